//! An environment without a world: so many turns, a word in between, then the verifier.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scalerl_rollout::{
    Environment, EnvironmentError, EpisodeVerdict, Outcome, Pending, Policy, Prompt, Restart,
    SampleRequest,
};
use tokio::time::sleep;

use super::unit;
use crate::settings::mix;

/// What the environment says between two turns.
const WORD: u32 = 7;

/// Plays every data set. What happens in an episode depends on its seed alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct FakeEnvironment {
    /// Most turns of an episode.
    pub turns: u64,
    /// Longest time between two turns.
    pub slowness: Duration,
    /// Chance of an error.
    pub fails: f64,
    /// Chance of never ending.
    pub hangs: f64,
    /// Chance that the agent forgets what was said before a turn.
    pub forgets: f64,
}

impl FakeEnvironment {
    async fn episode(
        &self,
        prompt: &Prompt,
        seed: u64,
        policy: Arc<dyn Policy>,
    ) -> Result<Outcome, EnvironmentError> {
        let chance = |purpose: &str, turn: u64| unit(mix(seed, purpose, turn));
        let mut tokens = prompt.token_ids.clone();
        let turns = 1 + mix(seed, "turns", 0) % self.turns.max(1);
        for turn in 0..turns {
            sleep(self.slowness.mul_f64(chance("pause", turn))).await;
            if chance("fails", turn) < self.fails {
                return Err(EnvironmentError::new("as told"));
            }
            if chance("hangs", turn) < self.hangs {
                std::future::pending::<()>().await;
            }
            if chance("forgets", turn) < self.forgets {
                tokens = [&prompt.token_ids[..], &[WORD, WORD]].concat();
            }
            let answer =
                policy.generate(SampleRequest::turn(tokens.clone(), Vec::new()), None).await;
            let Ok(completions) = answer else {
                return Ok(outcome(turn, true));
            };
            tokens.extend(&completions[0].token_ids);
            tokens.push(WORD);
        }
        Ok(outcome(turns, false))
    }
}

fn outcome(turns: u64, is_truncated: bool) -> Outcome {
    let metrics = BTreeMap::from([("turns".to_owned(), turns as f64)]);
    Outcome { verdict: EpisodeVerdict::AskVerifier, is_truncated, metrics }
}

impl Environment for FakeEnvironment {
    fn plays(&self, _dataset: &str) -> bool {
        true
    }

    fn play<'a>(
        &'a self,
        prompt: &'a Prompt,
        seed: u64,
        policy: Arc<dyn Policy>,
    ) -> Pending<'a, Result<Outcome, EnvironmentError>> {
        Box::pin(self.episode(prompt, seed, policy))
    }

    /// One that fails has always just been restarted.
    fn restarts(&self) -> Vec<Restart> {
        let restart = || Restart { dataset: "fake".to_owned(), reason: "as told".to_owned() };
        (self.fails > 0.0).then(restart).into_iter().collect()
    }
}

//! One episode: an environment plays with a policy that keeps every token.
//!
//! The environment is given a [`Policy`] that asks the run's generator as a single completion of the
//! prompt would be asked for: the recipe's sampling, budgets and interruptions, whatever the caller
//! wishes. What it may decide is where a turn ends. Waits for the environment (deadline, the policy's
//! own time not counted) and ends with the turns taken, or with the error that ends the run.
//!
//! Not here: how turns become sequences (`rollout::episode`), who asks for episodes (`sampling.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use scalerl_rollout::{
    Completion, EnvironmentError, EpisodeVerdict, Generator, GeneratorError, Grader, Interruption,
    Live, LiveToken, Outcome, Pending, Policy, Prompt, SampleRequest, Turn, assemble,
};
use tokio::{
    select,
    time::{Instant, sleep},
};

use crate::{
    meter::Role,
    sampling::{Answer, Floor},
    settings::mix,
};

/// What an episode has left behind so far.
#[derive(Debug, Default)]
struct Record {
    turns: Vec<Turn>,
    retried: Vec<(u32, String)>,
    /// The generator is gone: the run's trouble, not the episode's.
    failed: Option<GeneratorError>,
    /// A turn was refused because there were none left, or no room.
    is_out_of_room: bool,
    /// Calls taken, and calls under way.
    calls: u32,
    under_way: u32,
    /// Time with a call under way: of calls that are over, and since when.
    waited: Duration,
    since: Option<Instant>,
}

/// The policy as one episode sees it.
struct Recorder<G, R> {
    floor: Floor<G, R>,
    /// As a single completion would be asked for.
    usual: SampleRequest,
    role: Role,
    record: Mutex<Record>,
}

impl<G: Generator, R: Grader> Recorder<G, R> {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time the episode has waited for the policy.
    fn waited(&self) -> Duration {
        let record = self.record();
        record.waited + record.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The request as the recipe has it; an error where the episode is at its end.
    fn request(&self, asked: &SampleRequest) -> Result<SampleRequest, GeneratorError> {
        let recipe = &self.floor.settings.recipe;
        let limits = &recipe.episode;
        let mut record = self.record();
        let read = asked.prompt_token_ids.len() as u64;
        let first = record.turns.first().map_or(read, |turn| turn.context.len() as u64);
        let longest_prompt = u64::from(recipe.sampling.max_prompt_tokens);
        let most = first.min(longest_prompt) + u64::from(limits.max_tokens);
        if record.calls >= limits.max_turns {
            record.is_out_of_room = true;
            let reason = format!("the episode has had its {} turns", limits.max_turns);
            return Err(GeneratorError::Refused { reason });
        }
        if first > longest_prompt {
            let reason = format!(
                "the first context of the episode has {first} tokens, and sampling.max_prompt_tokens \
                 is {longest_prompt}"
            );
            return Err(GeneratorError::Refused { reason });
        }
        let budget = Budget::of(&self.usual, asked, most.saturating_sub(read));
        let Some(budget) = budget else {
            record.is_out_of_room = true;
            return Err(GeneratorError::TooLong { asked: read + 1, limit: most });
        };
        let turn = u64::from(record.calls);
        record.calls += 1;
        let count = asked.count.max(1);
        let cut = |one: &Interruption| {
            vec![
                Interruption { at_token: one.at_token.min(budget.thinking), ..one.clone() };
                count as usize
            ]
        };
        Ok(SampleRequest {
            prompt_token_ids: asked.prompt_token_ids.clone(),
            count,
            max_thinking_tokens: budget.thinking,
            max_answer_tokens: budget.answer,
            interruptions: self.usual.interruptions.first().map(cut).unwrap_or_default(),
            stop: [&self.usual.stop[..], &asked.stop].concat(),
            stop_token_ids: asked.stop_token_ids.clone(),
            seed: mix(self.usual.seed, "turn", turn),
            ..self.usual.clone()
        })
    }

    async fn turns(
        &self,
        asked: SampleRequest,
        live: Option<Live>,
    ) -> Result<Vec<Completion>, GeneratorError> {
        let request = self.request(&asked)?;
        let waiting = Waiting::start(&self.record);
        let mut retried = Vec::new();
        let answer = self.floor.generate(request, self.role, &mut retried).await;
        drop(waiting);
        let mut record = self.record();
        record.retried.extend(retried);
        match answer {
            Ok(completions) => {
                for completion in &completions {
                    let context = asked.prompt_token_ids.clone();
                    record.turns.push(Turn { context, completion: completion.clone() });
                }
                if let Some(live) = live {
                    completions.iter().enumerate().for_each(|(index, one)| tell(&live, index, one));
                }
                Ok(completions)
            }
            // The caller asked for something that cannot be; it may ask for something else.
            Err(error @ (GeneratorError::Refused { .. } | GeneratorError::TooLong { .. })) => {
                Err(error)
            }
            Err(error) => {
                let reason = error.to_string();
                record.failed.get_or_insert(error);
                Err(GeneratorError::Gone { reason })
            }
        }
    }
}

impl<G: Generator, R: Grader> Policy for Recorder<G, R> {
    fn generate(
        &self,
        request: SampleRequest,
        live: Option<Live>,
    ) -> Pending<'_, Result<Vec<Completion>, GeneratorError>> {
        Box::pin(self.turns(request, live))
    }
}

/// Tells of a completion that is there as a whole.
fn tell(live: &Live, index: usize, completion: &Completion) {
    for at in 0..completion.len() {
        live(LiveToken {
            completion: index as u32,
            token_id: completion.token_ids[at],
            logprob: completion.logprobs[at],
            version: completion.versions[at],
            is_injected: completion.is_injected[at],
        });
    }
}

/// Books a wait, also one that is given up.
struct Waiting<'a>(&'a Mutex<Record>);

impl<'a> Waiting<'a> {
    fn start(record: &'a Mutex<Record>) -> Self {
        let mut open = record.lock().unwrap_or_else(PoisonError::into_inner);
        open.under_way += 1;
        open.since.get_or_insert_with(Instant::now);
        Self(record)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.under_way -= 1;
        if open.under_way == 0
            && let Some(since) = open.since.take()
        {
            open.waited += since.elapsed();
        }
    }
}

/// Tokens of one turn.
#[derive(Debug, PartialEq, Eq)]
struct Budget {
    thinking: u32,
    answer: u32,
}

impl Budget {
    /// As the recipe has it, but no more than was asked for and than there is room for; thinking gives
    /// way first. `None` where not even one token fits.
    fn of(usual: &SampleRequest, asked: &SampleRequest, room: u64) -> Option<Self> {
        let phrase = usual.interruptions.first().map_or(0, |one| one.token_ids.len() as u64);
        let asked = u64::from(asked.max_thinking_tokens) + u64::from(asked.max_answer_tokens);
        let most = if asked == 0 { room } else { room.min(asked + phrase) };
        let answer = u64::from(usual.max_answer_tokens).min(most);
        let thinking =
            u64::from(usual.max_thinking_tokens).min(most.saturating_sub(answer + phrase));
        // An interruption needs a token of thinking to come after.
        let is_possible = answer > 0 && (usual.max_thinking_tokens == 0 || thinking > 0);
        is_possible.then_some(Self { thinking: thinking as u32, answer: answer as u32 })
    }
}

impl<G: Generator, R: Grader> Floor<G, R> {
    /// Plays one episode of `prompt`, sampled as `usual` says. Failed attempts of the generator go into
    /// `retried`.
    pub(crate) async fn episode(
        &self,
        prompt: &Prompt,
        usual: SampleRequest,
        role: Role,
        retried: &mut Vec<(u32, String)>,
    ) -> Result<Answer, GeneratorError> {
        let Some(environment) = self.environment.clone() else {
            return Err(GeneratorError::Refused {
                reason: "the run has no environment".to_owned(),
            });
        };
        // Held for the length of the episode; never closed.
        let _permit = self.episode_room.acquire().await.ok();
        let seed = usual.seed;
        let recorder =
            Arc::new(Recorder { floor: self.clone(), usual, role, record: Mutex::default() });
        let play = environment.play(prompt, seed, recorder.clone());
        let outcome = self.within_deadline(play, &recorder).await;
        let record = std::mem::take(&mut *recorder.record());
        retried.extend(record.retried);
        if let Some(failed) = record.failed {
            return Err(failed);
        }
        Ok(self.answer(prompt, record.turns, record.is_out_of_room, outcome).await)
    }

    /// The environment's answer, given up when it has taken too long by itself.
    async fn within_deadline(
        &self,
        mut play: Pending<'_, Result<Outcome, EnvironmentError>>,
        recorder: &Recorder<G, R>,
    ) -> Result<Outcome, EnvironmentError> {
        let limit = Duration::from_secs_f64(self.settings.recipe.episode.timeout_s);
        let started = Instant::now();
        loop {
            let own = started.elapsed().saturating_sub(recorder.waited());
            let Some(left) = limit.checked_sub(own).filter(|left| !left.is_zero()) else {
                let reason = format!("no end of the episode within {} s", limit.as_secs_f64());
                return Err(EnvironmentError::new(reason));
            };
            select! {
                outcome = &mut play => return outcome,
                () = sleep(left) => {}
            }
        }
    }

    async fn answer(
        &self,
        prompt: &Prompt,
        turns: Vec<Turn>,
        is_out_of_room: bool,
        outcome: Result<Outcome, EnvironmentError>,
    ) -> Answer {
        let last = turns.last().map(|turn| turn.completion.clone());
        let metrics = outcome.as_ref().map(|outcome| outcome.metrics.clone()).unwrap_or_default();
        let is_out_of_room =
            is_out_of_room || outcome.as_ref().is_ok_and(|outcome| outcome.is_truncated);
        let intake = self.settings.intake.clone();
        let assembled = assemble(turns, is_out_of_room, |completion| intake.text_of(completion));
        let verdict = match (outcome, last) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), None) => Err("the episode ended without a turn of the policy".to_owned()),
            (Ok(outcome), Some(last)) => match outcome.verdict {
                EpisodeVerdict::Reward(reward) if reward.value.is_finite() => Ok(reward),
                EpisodeVerdict::Reward(reward) => {
                    Err(format!("the environment: its reward is {}", reward.value))
                }
                EpisodeVerdict::AskVerifier => self.verdict(prompt, &last).await,
            },
        };
        let (completion, episode) = assembled.unzip();
        Answer { completion, episode, verdict, metrics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_rollout::{GroupId, Sampling};

    fn request(thinking: u32, answer: u32, phrase: usize) -> SampleRequest {
        let interruption = Interruption { at_token: thinking, token_ids: vec![9; phrase] };
        SampleRequest {
            group: GroupId(0),
            prompt_token_ids: vec![1],
            count: 1,
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
            max_thinking_tokens: thinking,
            max_answer_tokens: answer,
            end_of_thinking: Vec::new(),
            interruptions: if phrase > 0 { vec![interruption] } else { Vec::new() },
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            end_of_answer: None,
            seed: 0,
        }
    }

    #[test]
    fn a_turn_has_the_recipes_budget_the_callers_wish_and_what_room_is_left() {
        let budget = |thinking, answer| Some(Budget { thinking, answer });
        let plain = request(0, 20, 0);
        assert_eq!(Budget::of(&plain, &request(0, 0, 0), 100), budget(0, 20), "as the recipe says");
        assert_eq!(Budget::of(&plain, &request(0, 5, 0), 100), budget(0, 5), "less was asked for");
        assert_eq!(Budget::of(&plain, &request(0, 50, 0), 7), budget(0, 7), "less room");
        assert_eq!(Budget::of(&plain, &request(0, 50, 0), 0), None);
        let thinks = request(40, 10, 3);
        assert_eq!(Budget::of(&thinks, &request(0, 0, 0), 100), budget(40, 10));
        assert_eq!(
            Budget::of(&thinks, &request(0, 0, 0), 30),
            budget(17, 10),
            "thinking gives way"
        );
        assert_eq!(Budget::of(&thinks, &request(0, 0, 0), 13), None, "no token to think with");
    }
}

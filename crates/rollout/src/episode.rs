//! Episodes: rollouts of several turns, in which the policy and its environment write by turns.
//!
//! ```text
//! context |  turn  | environment |  turn  | environment |  turn  |
//!  read    sampled    injected    sampled    injected    sampled     one sequence, one reward
//! ```
//!
//! Every call of the policy is a [`Turn`]: what it read and what it wrote, as tokens. A turn whose
//! context begins with all of an earlier sequence goes on from it, and what lies between is injected:
//! no gradient, context only. Any other turn begins a sequence of its own. Tokens are never made from
//! text again, so a turn that an agent rewrote is simply another context.
//!
//! What words mean for an episode: its **length** is all tokens of all its sequences after their
//! contexts, the environment's included; it is **truncated** where its last turn ran out of tokens, or
//! the episode out of turns or room; it is **interrupted** where the thinking of some turn was.
//!
//! Not here: who runs episodes (`engine::episode`), what environments there are (`environment`).

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    completion::{Completion, FinishReason},
    group::Reward,
    policy::{Pending, Policy},
    prompt::Prompt,
};

/// One call of the policy. Made by the engine as it happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// All tokens it read.
    pub context: Vec<u32>,
    /// What it wrote.
    pub completion: Completion,
}

/// Tokens in one row: a context, and what followed it by turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// Read, never trained on.
    pub context: Vec<u32>,
    /// What followed; the environment's part is injected.
    pub completion: Completion,
}

/// What a rollout of several turns has beside its first sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// What the first sequence continues: the prompt as the environment put it.
    pub context: Vec<u32>,
    /// Sequences after the first: one for every turn that did not go on from an earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Sequence>,
    /// Calls of the policy.
    pub turns: u32,
    /// Whether the thinking of a turn was cut.
    pub is_interrupted: bool,
    /// Whether it ran out of turns, of room, or of tokens in its last turn.
    pub is_truncated: bool,
}

/// What an environment says at the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What the episode earned.
    pub verdict: EpisodeVerdict,
    /// It ended because there were no turns or no room left.
    pub is_truncated: bool,
    /// Whatever else the environment counted.
    pub metrics: BTreeMap<String, f64>,
}

/// What an episode earned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EpisodeVerdict {
    /// The environment's own reward.
    Reward(Reward),
    /// The data set's verifier reads the last turn.
    AskVerifier,
}

/// Why an episode has no outcome: never a wrong answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the environment: {reason}")]
pub struct EnvironmentError {
    /// In a sentence.
    pub reason: String,
}

impl EnvironmentError {
    /// From whatever went wrong.
    pub fn new(reason: impl std::fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// A process of an environment that ended before its time; another takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// The data set it plays.
    pub dataset: String,
    /// Why it ended.
    pub reason: String,
}

/// Where episodes take place; many at once.
pub trait Environment: Send + Sync + 'static {
    /// Whether prompts of this data set are episodes. All others are single completions.
    fn plays(&self, dataset: &str) -> bool;

    /// Plays one episode: asks `policy` for turns until it ends. Whoever gave the policy has its
    /// tokens; only the outcome comes back. Dropping the future ends the episode.
    fn play<'a>(
        &'a self,
        prompt: &'a Prompt,
        seed: u64,
        policy: Arc<dyn Policy>,
    ) -> Pending<'a, Result<Outcome, EnvironmentError>>;

    /// Its restarts since this was last asked.
    fn restarts(&self) -> Vec<Restart> {
        Vec::new()
    }
}

/// Turns in the order they were taken as sequences. No token is lost or made up: the sampled tokens of
/// all sequences are those of all turns, each once.
pub fn stitch(turns: Vec<Turn>) -> Vec<Sequence> {
    let mut sequences: Vec<Sequence> = Vec::new();
    for turn in turns {
        // The newest that goes on; a turn of an older policy begins anew, so versions never go back.
        let fitting = sequences.iter_mut().rev().find(|one| one.is_continued_by(&turn));
        if let Some(sequence) = fitting {
            sequence.append(turn);
        } else {
            let Turn { context, completion } = turn;
            sequences.push(Sequence { context, completion });
        }
    }
    sequences
}

impl Sequence {
    fn len(&self) -> usize {
        self.context.len() + self.completion.len()
    }

    fn is_continued_by(&self, turn: &Turn) -> bool {
        let context = &turn.context[..];
        let is_later = self.completion.versions.last() <= turn.completion.versions.first();
        is_later
            && context.len() >= self.len()
            && context.starts_with(&self.context)
            && context[self.context.len()..].starts_with(&self.completion.token_ids)
    }

    fn append(&mut self, turn: Turn) {
        let gap = &turn.context[self.len()..];
        let written = &mut self.completion;
        let next = turn.completion;
        if let Some(version) = next.versions.first() {
            written.versions.extend(std::iter::repeat_n(*version, gap.len()));
        }
        written.token_ids.extend(gap);
        written.logprobs.extend(std::iter::repeat_n(0.0, gap.len()));
        written.is_injected.extend(std::iter::repeat_n(true, gap.len()));
        written.token_ids.extend(next.token_ids);
        written.logprobs.extend(next.logprobs);
        written.versions.extend(next.versions);
        written.is_injected.extend(next.is_injected);
        written.text.push_str(&next.text);
        written.thinking_tokens += next.thinking_tokens;
        written.finish = next.finish;
    }
}

/// The turns of an episode as its first sequence and the rest; `None` where no turn was taken.
/// `text_of` says what a completion's tokens are as text.
pub fn assemble(
    turns: Vec<Turn>,
    is_out_of_room: bool,
    text_of: impl Fn(&Completion) -> Option<String>,
) -> Option<(Completion, Episode)> {
    let count = turns.len() as u32;
    let is_cut = turns.last()?.completion.finish == FinishReason::Length;
    let is_interrupted = turns.iter().any(|turn| turn.completion.is_interrupted());
    let mut sequences = stitch(turns);
    for sequence in &mut sequences {
        if let Some(text) = text_of(&sequence.completion) {
            sequence.completion.text = text;
        }
    }
    let mut sequences = sequences.into_iter();
    let Sequence { context, completion } = sequences.next()?;
    let episode = Episode {
        context,
        further: sequences.collect(),
        turns: count,
        is_interrupted,
        is_truncated: is_cut || is_out_of_room,
    };
    Some((completion, episode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::PolicyVersion;
    use proptest::prelude::*;

    fn written(ids: &[u32], version: u64) -> Completion {
        Completion {
            token_ids: ids.to_vec(),
            logprobs: ids.iter().map(|id| -0.01 * (*id as f32 + 1.0)).collect(),
            versions: vec![PolicyVersion(version); ids.len()],
            is_injected: vec![false; ids.len()],
            text: format!("{ids:?}"),
            thinking_tokens: 0,
            finish: FinishReason::Stop,
        }
    }

    fn turn(context: &[u32], ids: &[u32], version: u64) -> Turn {
        Turn { context: context.to_vec(), completion: written(ids, version) }
    }

    #[test]
    fn a_turn_goes_on_where_its_context_does() {
        let turns = vec![
            turn(&[1, 2], &[3, 4], 0),
            turn(&[1, 2, 3, 4, 9, 9], &[5], 1),
            // The agent dropped its first answer: another sequence.
            turn(&[1, 2, 9], &[6], 1),
            turn(&[1, 2, 3, 4, 9, 9, 5], &[7], 1),
        ];
        let sequences = stitch(turns);
        assert_eq!(sequences.len(), 2);
        let first = &sequences[0].completion;
        assert_eq!(first.token_ids, [3, 4, 9, 9, 5, 7]);
        assert_eq!(first.is_injected, [false, false, true, true, false, false]);
        assert_eq!(first.versions.iter().map(|v| v.0).collect::<Vec<_>>(), [0, 0, 1, 1, 1, 1]);
        assert_eq!(first.check(), Ok(()));
        assert_eq!(
            (&sequences[1].context[..], &sequences[1].completion.token_ids[..]),
            (&[1, 2, 9][..], &[6][..])
        );
    }

    #[test]
    fn choices_of_one_call_share_their_context_and_no_token() {
        let sequences =
            stitch(vec![turn(&[1], &[2], 0), turn(&[1], &[3], 0), turn(&[1, 3, 8], &[4], 0)]);
        let ids: Vec<_> = sequences.iter().map(|one| one.completion.token_ids.clone()).collect();
        assert_eq!(ids, [vec![2], vec![3, 8, 4]]);
    }

    #[test]
    fn an_older_policy_begins_a_sequence_of_its_own() {
        let sequences = stitch(vec![turn(&[1], &[2], 4), turn(&[1, 2], &[3], 3)]);
        assert_eq!(sequences.len(), 2);
        assert!(sequences.iter().all(|one| one.completion.check().is_ok()));
    }

    /// What an agent may do between two calls.
    #[derive(Debug, Clone)]
    enum Move {
        GoOn(Vec<u32>),
        Forget(usize, Vec<u32>),
        Rewrite(Vec<u32>),
    }

    fn moves() -> impl Strategy<Value = Vec<(Move, Vec<u32>)>> {
        let tokens = |least| prop::collection::vec(0_u32..4, least..4);
        let one = prop_oneof![
            4 => tokens(0).prop_map(Move::GoOn),
            1 => (0_usize..6, tokens(0)).prop_map(|(back, more)| Move::Forget(back, more)),
            1 => tokens(1).prop_map(Move::Rewrite),
        ];
        prop::collection::vec((one, tokens(1)), 1..12)
    }

    proptest! {
        /// Whatever an agent does: every sampled token is there once, in order, with its log-prob, and
        /// what a turn read is what stands before it in its sequence.
        #[test]
        fn stitching_loses_and_invents_nothing(moves in moves()) {
            let mut history: Vec<u32> = vec![7];
            let mut turns = Vec::new();
            for (version, (step, ids)) in moves.into_iter().enumerate() {
                match step {
                    Move::GoOn(gap) => history.extend(gap),
                    Move::Forget(back, more) => {
                        history.truncate(history.len().saturating_sub(back).max(1));
                        history.extend(more);
                    }
                    Move::Rewrite(whole) => history = whole,
                }
                turns.push(turn(&history, &ids, version as u64 / 3));
                history.extend(&ids);
            }
            let sequences = stitch(turns.clone());
            let mut sampled: Vec<(u32, u32)> = Vec::new();
            for sequence in &sequences {
                prop_assert_eq!(sequence.completion.check(), Ok(()));
                let one = &sequence.completion;
                let own = (0..one.len()).filter(|at| !one.is_injected[*at]);
                sampled.extend(own.map(|at| (one.token_ids[at], one.logprobs[at].to_bits())));
            }
            let of_turns = turns.iter().flat_map(|turn| {
                let one = &turn.completion;
                one.token_ids.iter().copied().zip(one.logprobs.iter().map(|x| x.to_bits()))
            });
            let mut expected: Vec<(u32, u32)> = of_turns.collect();
            sampled.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(sampled, expected);
            for turn in &turns {
                let read = [&turn.context[..], &turn.completion.token_ids].concat();
                let is_there = sequences.iter().any(|one| {
                    [&one.context[..], &one.completion.token_ids].concat().starts_with(&read)
                });
                prop_assert!(is_there, "{:?} is not what its turn read and wrote", read);
            }
        }
    }
}

//! What is asked of a generator: a prompt and how to sample from it.

use serde::{Deserialize, Serialize};

use crate::{answer::AnswerEnd, group::GroupId};

/// Names a prompt for the whole life of a run, in every epoch and after a resume.
///
/// Made by `task` (data set name and row); used as the key of the curriculum's history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PromptId(pub String);

/// One problem. Made by `task`; the generator reads `token_ids`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Stable name.
    pub id: PromptId,
    /// Data set it came from; metrics are kept for each.
    pub dataset: String,
    /// The text the model sees, template applied.
    pub text: String,
    /// `text` as tokens of the run's tokenizer.
    pub token_ids: Vec<u32>,
    /// The gold answer, for whoever reads the run. What else a verifier needs (tests of a program,
    /// numbers of a countdown) stays with `task`, under `id`.
    pub answer: String,
}

/// The distribution tokens are drawn from. Made from the recipe, used by generators.
///
/// Recorded log-probs are those of this very distribution, temperature included; the trainer
/// computes the other side of the ratio at the same temperature.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Divides the logits. 0 is greedy.
    pub temperature: f32,
    /// Smallest probability mass kept; 1 keeps everything.
    pub top_p: f32,
    /// Number of candidates kept; 0 keeps all.
    pub top_k: u32,
}

/// Makes a completion stop thinking. Made by the engine from the recipe, carried out by generators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// Sampled tokens after which `token_ids` are appended, unless thinking has ended by then.
    pub at_token: u32,
    /// The phrase, closing tag included. These tokens are injected: the policy did not choose them.
    pub token_ids: Vec<u32>,
}

/// Asks for the completions of one group. Made by the engine, served by a generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    /// The group the completions will belong to.
    pub group: GroupId,
    /// Prompt tokens.
    pub prompt_token_ids: Vec<u32>,
    /// Completions wanted. `interruptions` has this length where it is not empty.
    pub count: u32,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Tokens sampled before thinking must have ended; 0 when the format has no thinking.
    pub max_thinking_tokens: u32,
    /// Tokens sampled after thinking has ended (or after the interruption).
    pub max_answer_tokens: u32,
    /// Tokens that end thinking; empty when the format has no thinking.
    pub end_of_thinking: Vec<u32>,
    /// One per completion, each with its own random point; empty for none.
    pub interruptions: Vec<Interruption>,
    /// Texts that end a completion, beside the model's own end token.
    pub stop: Vec<String>,
    /// Tokens that end a completion, beside the model's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_token_ids: Vec<u32>,
    /// How the answer is marked, where its end ends the completion: looked for after thinking has
    /// ended (or after the interruption, or anywhere when the format has no thinking). The mark
    /// stays part of the completion.
    pub end_of_answer: Option<AnswerEnd>,
    /// Seed of the first completion; completion i uses `seed + i`.
    pub seed: u64,
}

impl SampleRequest {
    /// A turn after `context` that ends at `stop`, asked of a [`Policy`](crate::Policy): how it is
    /// sampled, and how long it may be, is the policy's own.
    pub fn turn(context: Vec<u32>, stop: Vec<String>) -> Self {
        Self {
            group: GroupId(0),
            prompt_token_ids: context,
            count: 1,
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
            max_thinking_tokens: 0,
            max_answer_tokens: 0,
            end_of_thinking: Vec::new(),
            interruptions: Vec::new(),
            stop,
            stop_token_ids: Vec::new(),
            end_of_answer: None,
            seed: 0,
        }
    }
}

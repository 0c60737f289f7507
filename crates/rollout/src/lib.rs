//! What crosses the line between generator, engine and trainer.
//!
//! ```text
//! PromptSource --Prompt--> engine --SampleRequest--> Generator --Completion--> engine
//! engine --Completion--> Grader --Reward--> engine --Group--> objective --TrainBatch--> Trainer
//! Trainer --WeightHandle--> engine --adopt--> Generator
//! Environment <--Policy-- engine: turns --assemble--> Completion, Episode
//! ```
//!
//! Plain carriers: public fields, no behaviour beyond counting. Each says who makes it, who uses
//! it and which of its arrays share a length. All can be written down and read back (`serde`),
//! because the journal keeps them and other machines exchange them.
//!
//! Not here: tensors, tokenizers, how rewards are decided (`task`), how weights per token are
//! decided (`objective`).

#![deny(missing_docs)]

pub mod answer;
pub mod boundary;
pub mod completion;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod episode;
pub mod group;
pub mod intake;
pub mod policy;
pub mod prompt;
pub mod source;
pub mod train;
pub mod version;

pub use answer::AnswerEnd;
pub use boundary::{Generator, GeneratorError, Trainer, TrainerError, WeightHandle, Writing};
pub use completion::{BrokenCompletion, Completion, FinishReason, LEAST_LOGPROB, LOGPROB_SLACK};
pub use episode::{
    Environment, EnvironmentError, Episode, EpisodeVerdict, Outcome, Restart, Sequence, Turn,
    assemble, stitch,
};
pub use group::{Batch, Group, GroupId, Reward, Rollout};
pub use intake::{BrokenAnswer, Intake, TextOf};
pub use policy::{Live, LiveToken, Pending, Policy, TokenScore};
pub use prompt::{Interruption, Prompt, PromptId, SampleRequest, Sampling};
pub use source::{
    Draw, DrawnPrompt, EvaluationSet, Grader, GraderError, PassRecord, PromptSource, SourceError,
};
pub use train::{RatioStats, StepReport, TrainBatch, TrainSequence};
pub use version::PolicyVersion;

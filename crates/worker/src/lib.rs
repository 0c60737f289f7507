//! Trainers and generators that exist.
//!
//! ```text
//! TrainBatch --micro_batch--> packed tokens, [m] vectors --Learner--> log-probs, entropies
//!   --loss--> gradient per token --Learner--> weights --weight store--> LocalGenerator
//! SampleRequest --LocalGenerator's thread--> tokens, log-probs, versions --> Completion
//! ```
//!
//! `loss` is the tensor form of `scalerl_objective::loss` and judged by it (tests/loss.rs);
//! [`LocalTrainer`] is `scalerl_rollout::Trainer` on the model of this process, [`LocalGenerator`]
//! `scalerl_rollout::Generator` on a copy of it; [`WeightStore`] is where the one leaves weights for the
//! other. [`ranks`] is the same trainer as several processes, [`channel`] the way of its weights to
//! generators in theirs, [`remote`] the way of requests and completions. [`VllmGenerator`] is a
//! generator on vLLM servers, [`WeightFolder`] the way of the weights there.
//!
//! Not here: what a batch is made of (`objective::prepare`), when a step is taken (`engine`), the
//! network and the optimizer (`model`).

pub mod channel;
pub mod flops;
pub mod generator;
pub mod host;
pub mod loss;
pub mod memory;
pub mod micro_batch;
pub mod options;
mod policy;
pub mod ranks;
pub mod remote;
pub mod trainer;
pub mod vllm;
pub mod weight_folder;
pub mod weight_store;

pub use generator::{GeneratorStats, LocalGenerator, LocalGeneratorSetup, intake};
pub use trainer::LocalTrainer;
pub use vllm::{VllmGenerator, VllmSetup};
pub use weight_folder::{FolderTrainer, HoldsModel, WeightFolder};
pub use weight_store::{Form, WeightStore, WeightStoreError, Weights};

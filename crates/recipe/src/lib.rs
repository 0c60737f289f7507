//! One TOML file describes a run: the schema, its defaults, layering and checking.
//!
//! ```text
//! defaults <- files, left to right (each over what it `extends`) <- --set key=value
//!          = Recipe --check--> Resolved --to_toml--> the run's folder
//! ```
//!
//! The schema is declared in `sections/`, one file per section; everything else is made from
//! those declarations, the reference page (docs/recipe-reference.md) included.
//!
//! Not here: what the choices do. `objective`, `task`, `engine` and `worker` read the typed
//! values. This crate builds without libtorch.

#![deny(missing_docs)]

mod advice;
mod check;
mod declare;
mod diff;
mod error;
mod free_table;
mod kept;
mod load;
mod nearest;
mod node;
mod reference;
pub mod sections;
mod setting;
pub mod shipped;
mod text;

pub use advice::Advice;
pub use diff::{Difference, diff};
pub use error::{Origin, RecipeError};
pub use free_table::FreeTable;
pub use load::{Override, Resolved, Source};
pub use reference::reference_page;
pub use sections::{
    adapter::Adapter,
    budget::{Axis, Budget},
    cluster::{Cluster, Experts, Sharding},
    episode::{EnvironmentChoice, Episode},
    evaluation::Evaluation,
    format::{AnswerForm, Format, Thinking},
    model::{Compute, Model, Weights},
    objective::{
        AdvantageScope, Aggregation, Curriculum, Filter, HeadPrecision, Kl, LengthControl,
        Objective, OffPolicy, RatioGrain, Surrogate, Truncated,
    },
    optimizer::{Gradients, Moments, Optimizer},
    output::Output,
    pipeline::{GeneratorChoice, KvAfterUpdate, Pipeline, WeightSets},
    sampling::Sampling,
    stopping::{Stopping, WhenUnstable},
    task::{DataSource, Dataset, PromptTemplate, Task, Verifier},
    track::{Track, TrackerChoice},
    warm_up::{WarmUp, WarmUpExamples},
};

use declare::{declare, section};

section! {
    /// One run, as it stands in a file: every key present, nothing checked across sections.
    /// [`Resolved`] is the checked form.
    pub struct Recipe {
        /// What this recipe is, in a line; shown by `scalerl recipe list`.
        description: String = String::new();
        /// Seed of everything random in the run.
        seed: u64 = 0;
        /// The policy.
        model: Model = Model::default();
        /// All weights, or an adapter.
        adapter: Adapter = Adapter::default();
        /// The problems and their judge.
        task: Task = Task::default();
        /// Supervised steps before RL.
        warm_up: WarmUp = WarmUp::default();
        /// Thinking and answer.
        format: Format = Format::default();
        /// How completions are drawn.
        sampling: Sampling = Sampling::default();
        /// Rollouts of several turns.
        episode: Episode = Episode::default();
        /// How much work a step is.
        pipeline: Pipeline = Pipeline::default();
        /// What makes one algorithm another.
        objective: Objective = Objective::default();
        /// How weights move.
        optimizer: Optimizer = Optimizer::default();
        /// What is measured.
        evaluation: Evaluation = Evaluation::default();
        /// What may be spent.
        budget: Budget = Budget::default();
        /// When to end early.
        stopping: Stopping = Stopping::default();
        /// What is left on disk.
        output: Output = Output::default();
        /// One process or several.
        cluster: Cluster = Cluster::default();
        /// Experiment trackers.
        track: Track = Track::default();
    }
}

impl Recipe {
    /// Whether some rollouts have several turns.
    pub fn has_episodes(&self) -> bool {
        let mut datasets = self.task.datasets.iter().chain(&self.evaluation.datasets);
        datasets.any(|dataset| dataset.environment().is_some())
    }

    /// Tokens of the longest sequence, injected phrases apart: a prompt with its completion, or with all
    /// turns of an episode.
    pub fn longest_sequence(&self) -> u64 {
        let completion = self.sampling.max_completion_tokens();
        let episode = if self.has_episodes() { u64::from(self.episode.max_tokens) } else { 0 };
        u64::from(self.sampling.max_prompt_tokens) + completion.max(episode)
    }
}

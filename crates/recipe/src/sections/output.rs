//! `[output]`: what a run leaves on disk. Read by `crates/journal` and `crates/engine`.

use crate::{
    declare::{declare, section},
    setting::Rule,
};

section! {
    /// What a run leaves on disk.
    pub struct Output {
        /// Folder that holds the run folders.
        folder: String = "runs".into(), Rule::NotEmpty;
        /// Steps between checkpoints.
        checkpoint_every_steps: u32 = 100, Rule::AtLeast(1.0);
        /// Latest checkpoints kept.
        keep_latest: u32 = 3, Rule::AtLeast(1.0);
        /// Keeps the checkpoint with the best primary pass rate too.
        keep_best: bool = true;
        /// Completions written out for reading, per evaluation.
        sampled_completions: u32 = 16;
    }
}

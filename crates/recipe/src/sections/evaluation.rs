//! `[evaluation]`: what is measured while a run goes on. Read by `crates/engine`.

use crate::{
    declare::{declare, section},
    sections::{MOST_AT_ONCE, task::Dataset},
    setting::Rule,
};

section! {
    /// What is measured while a run goes on; the points of its curve.
    pub struct Evaluation {
        /// Optimizer steps between evaluations. Source: ScaleRL, section 2.
        every_steps: Option<u32> = Some(100), Rule::AtLeast(1.0);
        /// Device-minutes between evaluations; whichever comes first.
        every_device_minutes: Option<f64> = None, Rule::Above(0.0);
        /// Evaluates before the first step too: the curve's floor.
        at_start: bool = true;
        /// Completions per prompt (mean@m). Source: ScaleRL, section 2.
        generations: u32 = 16, Rule::Between(1.0, MOST_AT_ONCE);
        /// Values of k for which pass@k is reported; none above `generations`.
        pass_at: Vec<u32> = Vec::new(), Rule::AtLeast(1.0);
        /// Temperature of evaluation. Not stated in the paper; the training distribution.
        temperature: f64 = 1.0, Rule::AtLeast(0.0);
        /// Probability mass kept in evaluation.
        top_p: f64 = 1.0, Rule::AboveUpTo(0.0, 1.0);
        /// The set whose pass rate is fitted and forecast: `held-out`, or a name from `datasets`.
        primary: String = "held-out".into(), Rule::NotEmpty;
        /// Further sets, such as AIME-24 or MATH-500; never trained on.
        datasets: Vec<Dataset> = Vec::new();
    }
}

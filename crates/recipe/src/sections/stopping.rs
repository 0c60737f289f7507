//! `[stopping]`: reasons to end before the budget does. Read by `crates/engine`.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

section! {
    /// Reasons to end before the budget does, and what counts as a bad sign.
    pub struct Stopping {
        /// Ends when the primary pass rate reaches this.
        target: Option<f64> = None, Rule::AboveUpTo(0.0, 1.0);
        /// Ends when twice the compute is forecast to buy less than this.
        forecast_gain: Option<f64> = None, Rule::AboveUpTo(0.0, 1.0);
        /// Share of truncated completions that counts as a bad sign. Source: ScaleRL, where 10 to
        /// 15 % preceded collapse and healthy runs stayed under 5 %.
        truncated_share: f64 = 0.1, Rule::AboveUpTo(0.0, 1.0);
        /// Effective sample share of the ratios below which a step counts as a bad sign. Our own
        /// choice.
        effective_sample_share: f64 = 0.3, Rule::Between(0.0, 1.0);
        /// Steps in a row with the same bad sign before anything is done. Our own choice.
        patience_steps: u32 = 20, Rule::AtLeast(1.0);
        /// What is done then.
        when_unstable: WhenUnstable = WhenUnstable::default();
    }
}

choice! {
    /// What is done about a run that shows bad signs.
    pub enum WhenUnstable {
        /// An event and a line on the terminal.
        "warn" Warn,
        /// The same, then a checkpoint and the end; for signs that training harms the policy.
        "stop" Stop,
        /// The same, then on from the checkpoint with the best primary pass rate, at half of
        /// `optimizer.lr`; twice at most, then the end. In runs of several processes: the end, and the
        /// command that goes back.
        "go-back" GoBack,
    }
}

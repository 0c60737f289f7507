//! The stability watch: signs that a run is going wrong, and for how long they have lasted.
//!
//! | sign | a step shows it when |
//! |---|---|
//! | truncation | the share of truncated completions is at the recipe's limit or above (ScaleRL: 10–15 % preceded collapse) |
//! | effective sample share | that of the ratios is below the recipe's limit |
//! | entropy collapse | entropy is below a tenth of that of the first steps |
//! | gradient norm | it is ten times the usual one |
//! | ratio extreme | a ratio of trainer to generator is beyond e⁵ either way |
//! | reward collapse | the smoothed pass rate of training is below half of its best |
//!
//! The limits that the recipe does not have are our own choice. A sign must last
//! `stopping.patience_steps` steps in a row; then it is told once, and again after it has gone and
//! come back.

use std::collections::BTreeMap;

use scalerl_journal::{BadSign, BatchReport};
use scalerl_recipe::Stopping;
use scalerl_rollout::StepReport;
use serde::{Deserialize, Serialize};

/// Steps that tell what is usual.
const FIRST_STEPS: u64 = 10;
/// Share of the first entropy that counts as collapse.
const ENTROPY_SHARE: f64 = 0.1;
/// Times the usual gradient norm.
const GRADIENT_FACTOR: f64 = 10.0;
/// Largest sane logarithm of a ratio.
const LOG_RATIO: f64 = 5.0;
/// Share of the best smoothed pass rate that counts as collapse.
const REWARD_SHARE: f64 = 0.5;
/// Weight of a new step in smoothed values.
const SMOOTHING: f64 = 0.1;

/// A sign that has lasted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Warning {
    pub(crate) sign: BadSign,
    pub(crate) value: f64,
    pub(crate) threshold: f64,
    pub(crate) steps: u32,
}

/// What is remembered between steps; saved with a checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Watch {
    steps: u64,
    first_entropy: f64,
    usual_gradient: f64,
    pass_rate: f64,
    best_pass_rate: f64,
    lasted: BTreeMap<BadSign, u32>,
}

impl Watch {
    /// Looks at a step; returns the signs whose patience has just run out.
    pub(crate) fn observe(
        &mut self,
        stopping: &Stopping,
        batch: &BatchReport,
        report: &StepReport,
    ) -> Vec<Warning> {
        self.learn(batch, report);
        let extreme = report.ratio.max.ln().max(-report.ratio.min.max(f64::MIN_POSITIVE).ln());
        let is_settled = self.steps > FIRST_STEPS;
        let signs = [
            (
                BadSign::Truncation,
                batch.truncated_share,
                stopping.truncated_share,
                batch.truncated_share >= stopping.truncated_share,
            ),
            (
                BadSign::EffectiveSampleShare,
                report.ratio.effective_sample_share,
                stopping.effective_sample_share,
                report.ratio.effective_sample_share < stopping.effective_sample_share,
            ),
            (
                BadSign::EntropyCollapse,
                report.entropy,
                self.first_entropy * ENTROPY_SHARE,
                is_settled && report.entropy < self.first_entropy * ENTROPY_SHARE,
            ),
            (
                BadSign::GradientNorm,
                report.gradient_norm,
                self.usual_gradient * GRADIENT_FACTOR,
                is_settled && report.gradient_norm > self.usual_gradient * GRADIENT_FACTOR,
            ),
            (BadSign::RatioExtreme, extreme.exp(), LOG_RATIO.exp(), extreme > LOG_RATIO),
            (
                BadSign::RewardCollapse,
                self.pass_rate,
                self.best_pass_rate * REWARD_SHARE,
                is_settled && self.pass_rate < self.best_pass_rate * REWARD_SHARE,
            ),
        ];
        let mut warnings = Vec::new();
        for (sign, value, threshold, is_bad) in signs {
            let lasted = self.lasted.entry(sign).or_default();
            *lasted = if is_bad { *lasted + 1 } else { 0 };
            if *lasted == stopping.patience_steps {
                warnings.push(Warning { sign, value, threshold, steps: *lasted });
            }
        }
        warnings
    }

    fn learn(&mut self, batch: &BatchReport, report: &StepReport) {
        self.steps += 1;
        let mean = |old: f64, new: f64, weight: f64| old + weight * (new - old);
        if self.steps <= FIRST_STEPS {
            let weight = 1.0 / self.steps as f64;
            self.first_entropy = mean(self.first_entropy, report.entropy, weight);
            self.usual_gradient = mean(self.usual_gradient, report.gradient_norm, weight);
            self.pass_rate = mean(self.pass_rate, batch.pass_rate, weight);
        } else {
            self.pass_rate = mean(self.pass_rate, batch.pass_rate, SMOOTHING);
            // A burst must not become what is usual while it lasts.
            let gradient = report.gradient_norm.min(self.usual_gradient * 2.0);
            self.usual_gradient = mean(self.usual_gradient, gradient, SMOOTHING);
        }
        self.best_pass_rate = self.best_pass_rate.max(self.pass_rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_rollout::{PolicyVersion, RatioStats};

    fn report() -> StepReport {
        let ratio = RatioStats {
            tokens: 10,
            mean: 1.0,
            min: 0.9,
            max: 1.1,
            clip_fraction: 0.0,
            effective_sample_share: 0.9,
            kl_k1: 0.0,
            kl_k3: 0.0,
            mean_abs_log: 0.0,
        };
        StepReport {
            version: PolicyVersion(1),
            loss: 0.0,
            gradient_norm: 1.0,
            entropy: 1.0,
            reference_kl: None,
            ratio,
            learning_rate: 1e-6,
            tokens: 10,
            trained_tokens: 8,
            model_flops: 60.0,
            seconds: 0.1,
        }
    }

    /// Steps at which a sign was told, among 60: healthy until 20, then as `change` makes them.
    fn told(change: impl Fn(&mut BatchReport, &mut StepReport)) -> Vec<(u64, BadSign)> {
        let stopping = Stopping { patience_steps: 5, ..Stopping::default() };
        let (mut watch, mut found) = (Watch::default(), Vec::new());
        for step in 1..=60 {
            let mut batch = BatchReport { pass_rate: 0.6, ..BatchReport::default() };
            let mut report = report();
            if step > 20 {
                change(&mut batch, &mut report);
            }
            for warning in watch.observe(&stopping, &batch, &report) {
                found.push((step, warning.sign));
            }
        }
        found
    }

    #[test]
    fn a_healthy_run_is_left_alone() {
        assert!(told(|_, _| {}).is_empty());
    }

    #[test]
    fn each_sign_is_told_once_when_its_patience_has_run_out() {
        assert_eq!(told(|batch, _| batch.truncated_share = 0.12), [(25, BadSign::Truncation)]);
        assert_eq!(
            told(|_, report| report.ratio.effective_sample_share = 0.2),
            [(25, BadSign::EffectiveSampleShare)]
        );
        assert_eq!(told(|_, report| report.entropy = 0.05), [(25, BadSign::EntropyCollapse)]);
        assert_eq!(told(|_, report| report.gradient_norm = 400.0)[0], (25, BadSign::GradientNorm));
        assert_eq!(told(|_, report| report.ratio.max = 200.0), [(25, BadSign::RatioExtreme)]);
        assert_eq!(told(|_, report| report.ratio.min = 0.001), [(25, BadSign::RatioExtreme)]);
        let collapse = told(|batch, _| batch.pass_rate = 0.0);
        assert_eq!(collapse.len(), 1);
        assert_eq!(collapse[0].1, BadSign::RewardCollapse);
    }

    #[test]
    fn one_bad_step_is_no_sign() {
        let stopping = Stopping { patience_steps: 2, ..Stopping::default() };
        let (mut watch, mut told) = (Watch::default(), 0);
        for step in 0..40 {
            let truncated_share = if step % 2 == 0 { 0.5 } else { 0.0 };
            let batch = BatchReport { truncated_share, pass_rate: 0.5, ..BatchReport::default() };
            told += watch.observe(&stopping, &batch, &report()).len();
        }
        assert_eq!(told, 0);
    }
}

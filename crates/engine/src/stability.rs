//! The stability watch: signs that a run is going wrong, and for how long they have lasted.
//!
//! | sign | shown when |
//! |---|---|
//! | held-out fall | the last evaluations lie below the best ones, beyond noise (`held_out.rs`) |
//! | repeated prompts | prompts drawn again are answered worse than the last time (`again.rs`) |
//! | truncation | the share of truncated completions is at the recipe's limit or above (ScaleRL: 10–15 % preceded collapse) |
//! | entropy collapse | entropy is below a tenth of that of the first steps |
//! | gradient norm | it is ten times the usual one |
//! | effective sample share | that of the ratios is below the recipe's limit |
//! | ratio extreme | the mean \|log ratio\| of trainer to generator is above a quarter |
//! | answer form | right answers written otherwise than the reference are 30 points more than in the first steps |
//! | dead groups, solved groups | four fifths of the groups have no right, or no wrong, completion |
//! | verifier errors | one completion in twenty has no verdict |
//! | evaluation errors | one completion in twenty of an evaluation set has no verdict |
//! | verifier bound | groups wait longer for verdicts than for completions |
//!
//! The limits that the recipe does not have are our own choice. The first two and errors of evaluations are judged at once; every
//! other sign must last `stopping.patience_steps` steps in a row. Each is told once, and again after it
//! has gone and come back.
//!
//! The watch sees the events of the journal and nothing else, so a recorded run can be looked at again
//! ([`Watch::observe`] over its events). How many alarms were right: docs/results/alarms.md.

mod again;
mod held_out;

use std::collections::BTreeMap;

use scalerl_journal::{BadSign, BatchReport, GroupReport, SetReport, What};
use scalerl_recipe::Stopping;
use scalerl_rollout::StepReport;
use serde::{Deserialize, Serialize};

use again::DrawnAgain;
use held_out::HeldOut;

/// Steps that tell what is usual.
const FIRST_STEPS: u64 = 10;
/// Share of the first entropy that counts as collapse.
const ENTROPY_SHARE: f64 = 0.1;
/// Times the usual gradient norm.
const GRADIENT_FACTOR: f64 = 10.0;
/// Largest sane mean |log ratio|.
const LOG_RATIO: f64 = 0.25;
/// Share of groups that are all wrong, or all right.
const ONE_SIDED_SHARE: f64 = 0.8;
/// Rise of the share of right answers in another form than the reference's.
const FORM_RISE: f64 = 0.3;
/// Share of completions without a verdict.
const ERROR_SHARE: f64 = 0.05;
/// Share of a group's time that is spent waiting for verdicts.
const VERDICT_SHARE: f64 = 0.5;
/// Weight of a new step in smoothed values.
const SMOOTHING: f64 = 0.1;

/// A sign that has lasted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Warning {
    /// Which.
    pub sign: BadSign,
    /// What was seen.
    pub value: f64,
    /// What it had to stay clear of.
    pub threshold: f64,
    /// Steps, or evaluations, that it has lasted.
    pub steps: u32,
}

/// What the groups since the last step have shown.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Groups {
    judged: u32,
    dead: u32,
    solved: u32,
    completions: u32,
    failed: u32,
    right: u32,
    other_form: u32,
    has_form: bool,
    generate_s: f64,
    judge_s: f64,
}

/// What is remembered between events; saved with a checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Watch {
    steps: u64,
    first_entropy: f64,
    usual_gradient: f64,
    groups: Groups,
    /// Share of right answers in another form: of the first steps that had right answers, and since.
    first_form: f64,
    form: f64,
    form_steps: u64,
    again: DrawnAgain,
    held_out: HeldOut,
    /// Whether the coming evaluation has a set without a verdict.
    is_unmeasured: bool,
    lasted: BTreeMap<BadSign, u32>,
}

/// One look at one sign.
struct Look {
    sign: BadSign,
    value: f64,
    threshold: f64,
    is_bad: bool,
}

fn look(sign: BadSign, value: f64, threshold: f64, is_bad: bool) -> Look {
    Look { sign, value, threshold, is_bad }
}

impl Watch {
    /// Looks at an event; returns the signs whose patience has just run out.
    pub fn observe(&mut self, stopping: &Stopping, what: &What) -> Vec<Warning> {
        match what {
            What::Group(group) => {
                self.groups.add(group);
                if let (Some(before), Some(now)) = (group.previous_pass_rate, pass_rate(group)) {
                    self.again.push(before, now);
                }
                Vec::new()
            }
            What::Step { batch, report, .. } => {
                let looks = self.look_at_step(stopping, batch, report);
                self.tell(looks, stopping)
            }
            What::NotMeasured { .. } => {
                self.is_unmeasured = true;
                Vec::new()
            }
            What::Evaluation { primary, sets, .. } => {
                let mut looks = vec![self.look_at_errors(sets)];
                let primary = sets.iter().find(|set| set.name == *primary && set.samples > 0);
                let fall = primary.and_then(|set| {
                    self.held_out.push(set.pass_rate, set.samples);
                    self.held_out.fall()
                });
                if primary.is_some() {
                    let (recent, best) = fall.map_or((0.0, 0.0), |fall| (fall.recent, fall.best));
                    looks.push(look(BadSign::HeldOutFall, recent, best, fall.is_some()));
                }
                let mut told = self.tell(looks, stopping);
                for warning in &mut told {
                    if warning.sign == BadSign::HeldOutFall {
                        warning.steps = fall.map_or(1, |fall| fall.evaluations as u32);
                    }
                }
                told
            }
            _ => Vec::new(),
        }
    }

    /// Gives every sign its whole patience again: for a run that goes on after a sign has ended it.
    pub(crate) fn forget_signs(&mut self) {
        self.lasted.clear();
    }

    /// The set with most of its completions without a verdict.
    fn look_at_errors(&mut self, sets: &[SetReport]) -> Look {
        let share = |set: &SetReport| set.failed as f64 / (set.samples + set.failed).max(1) as f64;
        let without = f64::from(u8::from(std::mem::take(&mut self.is_unmeasured)));
        let worst = sets.iter().map(share).fold(without, f64::max);
        look(BadSign::EvaluationErrors, worst, ERROR_SHARE, worst >= ERROR_SHARE)
    }

    fn look_at_step(
        &mut self,
        stopping: &Stopping,
        batch: &BatchReport,
        report: &StepReport,
    ) -> Vec<Look> {
        self.learn(report);
        let groups = std::mem::take(&mut self.groups);
        self.learn_form(&groups);
        let is_settled = self.steps > FIRST_STEPS;
        let (entropy, gradient) =
            (self.first_entropy * ENTROPY_SHARE, self.usual_gradient * GRADIENT_FACTOR);
        let (truncated, ratio) = (batch.truncated_share, &report.ratio);
        let effective = ratio.effective_sample_share;
        let mut looks = vec![
            look(
                BadSign::Truncation,
                truncated,
                stopping.truncated_share,
                truncated >= stopping.truncated_share,
            ),
            look(
                BadSign::EffectiveSampleShare,
                effective,
                stopping.effective_sample_share,
                effective < stopping.effective_sample_share,
            ),
            look(
                BadSign::EntropyCollapse,
                report.entropy,
                entropy,
                is_settled && report.entropy < entropy,
            ),
            look(
                BadSign::GradientNorm,
                report.gradient_norm,
                gradient,
                is_settled && report.gradient_norm > gradient,
            ),
            look(
                BadSign::RatioExtreme,
                ratio.mean_abs_log,
                LOG_RATIO,
                ratio.mean_abs_log > LOG_RATIO,
            ),
        ];
        looks.extend(groups.looks());
        let has_drifted = self.form_steps > FIRST_STEPS && self.form > self.first_form + FORM_RISE;
        looks.push(look(BadSign::AnswerForm, self.form, self.first_form + FORM_RISE, has_drifted));
        let (mean, has_fallen) = (self.again.mean(), self.again.has_fallen());
        looks.push(look(BadSign::RepeatedPrompts, mean, -again::LEAST, has_fallen));
        looks
    }

    fn tell(&mut self, looks: Vec<Look>, stopping: &Stopping) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for Look { sign, value, threshold, is_bad } in looks {
            let lasted = self.lasted.entry(sign).or_default();
            *lasted = if is_bad { *lasted + 1 } else { 0 };
            if *lasted == patience(sign, stopping) {
                warnings.push(Warning { sign, value, threshold, steps: *lasted });
            }
        }
        warnings
    }

    fn learn(&mut self, report: &StepReport) {
        self.steps += 1;
        let mean = |old: f64, new: f64, weight: f64| old + weight * (new - old);
        if self.steps <= FIRST_STEPS {
            let weight = 1.0 / self.steps as f64;
            self.first_entropy = mean(self.first_entropy, report.entropy, weight);
            self.usual_gradient = mean(self.usual_gradient, report.gradient_norm, weight);
        } else {
            // A burst must not become what is usual while it lasts.
            let gradient = report.gradient_norm.min(self.usual_gradient * 2.0);
            self.usual_gradient = mean(self.usual_gradient, gradient, SMOOTHING);
        }
    }

    fn learn_form(&mut self, groups: &Groups) {
        if !groups.has_form || groups.right == 0 {
            return;
        }
        let share = f64::from(groups.other_form) / f64::from(groups.right);
        self.form_steps += 1;
        let weight =
            if self.form_steps <= FIRST_STEPS { 1.0 / self.form_steps as f64 } else { SMOOTHING };
        self.form += weight * (share - self.form);
        if self.form_steps <= FIRST_STEPS {
            self.first_form = self.form;
        }
    }
}

impl Groups {
    fn add(&mut self, group: &GroupReport) {
        self.judged += u32::from(group.judged > 0);
        self.dead += u32::from(group.judged > 0 && group.passed == 0);
        self.solved += u32::from(group.judged > 0 && group.passed == group.judged);
        self.completions += group.judged + group.failed;
        self.failed += group.failed;
        if let Some(other_form) = group.other_form {
            self.has_form = true;
            self.right += group.passed;
            self.other_form += other_form;
        }
        self.generate_s += group.generate_s;
        self.judge_s += group.judge_s;
    }

    fn looks(&self) -> [Look; 4] {
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let dead = share(self.dead.into(), self.judged.into());
        let solved = share(self.solved.into(), self.judged.into());
        let failed = share(self.failed.into(), self.completions.into());
        let waiting = share(self.judge_s, self.judge_s + self.generate_s);
        [
            look(BadSign::DeadGroups, dead, ONE_SIDED_SHARE, dead >= ONE_SIDED_SHARE),
            look(BadSign::SolvedGroups, solved, ONE_SIDED_SHARE, solved >= ONE_SIDED_SHARE),
            look(BadSign::VerifierErrors, failed, ERROR_SHARE, failed >= ERROR_SHARE),
            look(BadSign::VerifierBound, waiting, VERDICT_SHARE, waiting > VERDICT_SHARE),
        ]
    }
}

/// Steps, or evaluations, that a sign must last. The first two are tests of their own with a bar of
/// their own: they need no more. Evaluations are few, and one with errors is one point less.
fn patience(sign: BadSign, stopping: &Stopping) -> u32 {
    match sign {
        BadSign::HeldOutFall | BadSign::RepeatedPrompts | BadSign::EvaluationErrors => 1,
        _ => stopping.patience_steps,
    }
}

fn pass_rate(group: &GroupReport) -> Option<f64> {
    (group.judged > 0).then(|| f64::from(group.passed) / f64::from(group.judged))
}

#[cfg(test)]
mod tests;

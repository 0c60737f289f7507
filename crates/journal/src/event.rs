//! Everything that is worth a line in `events.jsonl`.
//!
//! One line is one [`Event`]: the format's number, the time, and what happened. Carriers of
//! `rollout` are written as they are. Two kinds of events must be told apart: those of the run's
//! *history* (groups, steps, evaluations …), which a resumed run repeats exactly where it is
//! deterministic, and those of a *session* (started, resumed, checkpoint …), which depend on who
//! stopped the process and when.
//!
//! A new field gets a default, a changed meaning a new [`FORMAT`].

use scalerl_curve::{HistoryShare, Verdict};
use scalerl_recipe::Axis;
use scalerl_rollout::{Draw, GroupId, PolicyVersion, PromptId, StepReport};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{fleet::FleetChange, ledger::Ledger, sign::BadSign};

/// Number of the format this release writes.
pub(crate) const FORMAT: u32 = 1;

/// One line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The format's number.
    pub v: u32,
    /// Unix time in seconds.
    pub at: f64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum What {
    /// Session: a new run.
    Started { run: String, seed: u64, devices: f64 },
    /// Session: the run goes on from a checkpoint; of the lines before this one, the first `kept`
    /// count. `lost` is what the undone ones had cost.
    Resumed { version: PolicyVersion, kept: usize, lost: Ledger, buffered_groups: usize },
    /// Session: a group that was half written when its process ended is sampled again from its
    /// beginning.
    SampledAgain {
        group: GroupId,
        prompt: PromptId,
        #[serde(rename = "place")]
        draw: Draw,
    },
    /// A group was judged. Every prompt handed out ends in exactly one of these.
    Group(GroupReport),
    /// A judged group that no step could use left its batch for good. Its completions are in `file`
    /// of the run folder, unless too many are kept there already.
    SetAside {
        version: PolicyVersion,
        group: GroupId,
        prompt: PromptId,
        #[serde(rename = "place")]
        draw: Draw,
        reason: String,
        file: Option<String>,
    },
    /// A verifier failed on a completion, which leaves its group.
    VerifierFailed { group: GroupId, completion: u32, reason: String },
    /// Session: a generator failed on a group, or in an evaluation, and was asked again.
    GeneratorRetried { group: Option<GroupId>, attempt: u32, reason: String },
    /// Session: a process of a data set's environment ended before its time, and another takes its
    /// place. The episodes it played are errors of their own.
    EnvironmentRestarted { dataset: String, reason: String },
    /// Session: a process of the run's fleet is in another state.
    Fleet(FleetChange),
    /// One optimizer step.
    Step { lag: u64, batch: BatchReport, report: StepReport, ledger: Ledger },
    /// A batch in which nothing carried loss: no step was taken.
    EmptyBatch { version: PolicyVersion, batch: BatchReport, ledger: Ledger },
    /// Session: the generator took these weights.
    Adopted { version: PolicyVersion },
    /// An evaluation set without a single verdict: its pass rate is not known. An `evaluation` without
    /// this set follows.
    NotMeasured { version: PolicyVersion, set: String, failed: u64, reason: String },
    /// The evaluation sets, measured with one version. `spent` is the ledger when that version was
    /// made: the compute of the point. A pipeline spends more while it is measured.
    Evaluation {
        version: PolicyVersion,
        primary: String,
        #[serde(deserialize_with = "measured")]
        sets: Vec<SetReport>,
        spent: Ledger,
        ledger: Ledger,
    },
    /// What the curve so far says about more compute.
    Forecast(ForecastReport),
    /// A bad sign has lasted for as long as the recipe is patient.
    Warning { version: PolicyVersion, sign: BadSign, value: f64, threshold: f64, steps: u32 },
    /// Session: something in the folder was not what had been written; it was not used, and is kept
    /// under another name. Both names are inside the run folder.
    Damaged { found: String, reason: String, kept_as: String },
    /// Session: a checkpoint is whole on disk.
    Checkpoint { version: PolicyVersion, folder: String },
    /// Session: the run has ended as it should.
    Stopped { version: PolicyVersion, reason: StopReason, ledger: Ledger },
    /// Session: the run has ended with an error.
    Failed { version: PolicyVersion, error: String, ledger: Ledger },
}

/// Without those that had no verdict, which releases before `not-measured` wrote down as 0.
fn measured<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SetReport>, D::Error> {
    let mut sets: Vec<SetReport> = Vec::deserialize(deserializer)?;
    sets.retain(|set| set.samples > 0);
    Ok(sets)
}

/// What became of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group.
    pub group: GroupId,
    /// Its prompt.
    pub prompt: PromptId,
    /// Which draw of it; `place` in the file.
    #[serde(rename = "place")]
    pub draw: Draw,
    /// Version of the generator when sampling began.
    pub admitted: PolicyVersion,
    /// Oldest and newest version among its tokens; `None` when nothing was written.
    pub versions: Option<(PolicyVersion, PolicyVersion)>,
    /// Right completions.
    pub passed: u32,
    /// Judged completions.
    pub judged: u32,
    /// Completions whose verifier failed.
    pub failed: u32,
    /// Mean reward as graded; `None` when nothing was judged, or in folders of releases that did not
    /// write it.
    #[serde(default)]
    pub mean_reward: Option<f64>,
    /// Completions that ran out of their budget.
    pub truncated: u32,
    /// Completions whose thinking was cut.
    pub interrupted: u32,
    /// Right completions whose answer is written otherwise than the reference answer; `None` where that
    /// cannot be said.
    #[serde(default)]
    pub other_form: Option<u32>,
    /// Share of right completions the last time this prompt was drawn.
    #[serde(default)]
    pub previous_pass_rate: Option<f64>,
    /// Tokens of all completions.
    pub tokens: u64,
    /// Seconds from the request to the last completion.
    #[serde(default)]
    pub generate_s: f64,
    /// Seconds from there to the last verdict.
    #[serde(default)]
    pub judge_s: f64,
    /// Where it went.
    pub fate: Fate,
}

/// Where a judged group went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// To a batch; the `step` that lists it has trained on it. A `set-aside` says that none could.
    Batch,
    /// Left for good because all rewards were equal and another takes its place (refill).
    ZeroVariance,
    /// Left because no completion was judged.
    NotJudged,
}

/// What one step was made of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BatchReport {
    /// Groups of the batch, in the order of the batch.
    pub groups: Vec<GroupId>,
    /// Those without variance, dropped by the filter.
    pub zero_variance: Vec<GroupId>,
    /// Groups with at least one token that carries loss: the effective batch.
    pub trained_groups: u32,
    /// Completions of the batch.
    pub completions: u32,
    /// Completions that carry loss.
    pub trained_completions: u32,
    /// Tokens that carry loss.
    pub trained_tokens: u64,
    /// Share of completions that ran out of their budget.
    pub truncated_share: f64,
    /// Share of completions whose thinking was cut.
    pub interrupted_share: f64,
    /// Mean reward as graded.
    pub mean_reward: f64,
    /// Share of right completions.
    pub pass_rate: f64,
    /// Mean tokens of a completion.
    pub mean_tokens: f64,
    /// Standard deviation of the advantages.
    pub advantage_deviation: f64,
}

/// One evaluation set, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetReport {
    /// Its name.
    pub name: String,
    /// Mean over prompts and generations (mean@m).
    pub pass_rate: f64,
    /// Prompts with at least one judged completion.
    pub prompts: u32,
    /// Judged completions.
    pub samples: u64,
    /// Completions whose verifier failed.
    pub failed: u64,
    /// Mean reward of the judged completions; `None` in folders of releases that did not write it.
    #[serde(default)]
    pub mean_reward: Option<f64>,
    /// pass@k, unbiased, for each k of the recipe that some prompt has as many verdicts for.
    pub pass_at: Vec<PassAt>,
    /// Share of completions that ran out of their budget.
    pub truncated_share: f64,
    /// Mean tokens of a completion.
    pub mean_tokens: f64,
}

/// pass@k of a set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PassAt {
    /// Completions drawn.
    pub k: u32,
    /// Probability that one of them is right.
    pub value: f64,
}

/// What a fit of the points so far says. Intervals are 90 %.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForecastReport {
    /// Version of the last evaluation.
    pub version: PolicyVersion,
    /// The compute axis.
    pub axis: Axis,
    /// Compute of the last evaluation.
    pub compute: f64,
    /// The curve there.
    pub value: f64,
    /// What twice the compute buys: best value and interval.
    pub gain: (f64, f64, f64),
    /// One new measurement at twice the compute: best value and interval.
    pub at_twice: (f64, f64, f64),
    /// The ceiling: best value, lower end, upper end where the points bound it.
    pub ceiling: (f64, f64, Option<f64>),
    /// What the fit is worth.
    pub verdict: Verdict,
    /// What finished runs had to do with it; `None` where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryUse>,
}

/// How much of a forecast rests on finished runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryUse {
    /// Runs that it could learn from.
    pub runs: usize,
    /// Share of the forecast that rests on them, in [0, 1].
    pub weight: f64,
    /// The heaviest of them.
    pub heaviest: Vec<HistoryShare>,
}

/// Why a run ended in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// Somebody asked (SIGINT, SIGTERM).
    Asked,
    /// The budget of optimizer steps.
    Steps,
    /// The budget of device-hours.
    DeviceHours,
    /// The budget of hours by the clock.
    WallHours,
    /// The budget of generated tokens.
    Tokens,
    /// The primary pass rate has reached the target.
    Target,
    /// Twice the compute is forecast to buy less than the recipe asks for.
    ForecastGain,
    /// A bad sign has lasted, and the recipe says stop.
    Unstable,
    /// Every prompt is solved or excluded.
    NoPrompts,
    /// Many batches in a row had nothing to teach.
    NothingToLearn,
}

impl StopReason {
    /// In words.
    pub fn description(self) -> &'static str {
        match self {
            Self::Asked => "as asked",
            Self::Steps => "its steps are done",
            Self::DeviceHours => "its device-hours are spent",
            Self::WallHours => "its time is over",
            Self::Tokens => "its tokens are spent",
            Self::Target => "the target is reached",
            Self::ForecastGain => "more compute is forecast to buy too little",
            Self::Unstable => "training has become unstable",
            Self::NoPrompts => "no prompts are left",
            Self::NothingToLearn => "batch after batch had nothing to teach",
        }
    }
}

impl What {
    /// Whether it belongs to the process and not to the history of the run.
    pub fn is_of_session(&self) -> bool {
        matches!(
            self,
            Self::Started { .. }
                | Self::Resumed { .. }
                | Self::SampledAgain { .. }
                | Self::GeneratorRetried { .. }
                | Self::EnvironmentRestarted { .. }
                | Self::Fleet(_)
                | Self::Adopted { .. }
                | Self::Damaged { .. }
                | Self::Checkpoint { .. }
                | Self::Stopped { .. }
                | Self::Failed { .. }
        )
    }

    /// The ledger it carries.
    pub fn ledger(&self) -> Option<&Ledger> {
        match self {
            Self::Step { ledger, .. }
            | Self::EmptyBatch { ledger, .. }
            | Self::Evaluation { ledger, .. }
            | Self::Stopped { ledger, .. }
            | Self::Failed { ledger, .. } => Some(ledger),
            _ => None,
        }
    }

    /// The same with everything a clock has measured set to 0 and without the memory used, for comparing two runs. `None` for
    /// a forecast over device-hours, which is made of measured times.
    pub fn without_times(&self) -> Option<Self> {
        let mut what = self.clone();
        match &mut what {
            Self::Forecast(report) if report.axis == Axis::DeviceHours => return None,
            Self::Group(group) => (group.generate_s, group.judge_s) = (0.0, 0.0),
            Self::Step { report, ledger, .. } => {
                report.seconds = 0.0;
                report.peak_memory_bytes = None;
                *ledger = ledger.without_times();
            }
            Self::Evaluation { spent, ledger, .. } => {
                *spent = spent.without_times();
                *ledger = ledger.without_times();
            }
            Self::EmptyBatch { ledger, .. }
            | Self::Stopped { ledger, .. }
            | Self::Failed { ledger, .. } => *ledger = ledger.without_times(),
            _ => {}
        }
        Some(what)
    }

    /// Whether the disk must have it before the run goes on.
    pub(crate) fn is_synced(&self) -> bool {
        matches!(
            self,
            Self::Started { .. }
                | Self::Resumed { .. }
                | Self::Evaluation { .. }
                | Self::Damaged { .. }
                | Self::Checkpoint { .. }
                | Self::Stopped { .. }
                | Self::Failed { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_an_older_release_wrote_without_a_verdict_is_not_read_as_zero() {
        let set = |name: &str, samples: u64| {
            format!(
                r#"{{"name":"{name}","pass_rate":0.0,"prompts":0,"samples":{samples},"failed":8,
                "mean_reward":null,"pass_at":[],"truncated_share":0.0,"mean_tokens":0.0}}"#
            )
        };
        let ledger = serde_json::to_string(&Ledger::default()).unwrap();
        let line = format!(
            r#"{{"v":1,"at":0.0,"type":"evaluation","version":3,"primary":"test","sets":[{},{}],
            "spent":{ledger},"ledger":{ledger}}}"#,
            set("test", 0),
            set("other", 4),
        );
        let event: Event = serde_json::from_str(&line).unwrap();
        let What::Evaluation { sets, .. } = event.what else { panic!("{event:?}") };
        assert_eq!(sets.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), ["other"]);
    }
}

//! What is kept of a run's events: enough for every figure of the page, bounded whatever the run.
//!
//! Lines of frequent events that only count (groups, hand-overs) are told by their type and not
//! parsed: they are nine tenths of a journal.
//!
//! Not here: which lines count (`follow.rs`).

use std::collections::VecDeque;

use scalerl_journal::{
    BadSign, EvaluationPoint, Event, FailureKinds, FleetChange, ForecastReport, Ledger, SetReport,
    Status, Summary, What, kind_of,
};
use scalerl_rollout::PolicyVersion;

use crate::series::{Metric, StepSeries};

/// Evaluations kept; of more, every second of the earlier ones goes.
const MOST_POINTS: usize = 8192;
const MOST_FORECASTS: usize = 2048;
/// Of things that are listed by their last ones.
const MOST_LISTED: usize = 50;

/// A bad sign that lasted.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "named as in the journal")]
pub struct Warning {
    pub step: u64,
    pub sign: BadSign,
    pub value: f64,
    pub threshold: f64,
    pub steps: u32,
}

/// A process that worked on the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Unix seconds.
    pub at: f64,
    /// The step it went on from; `None` for the first.
    pub resumed_from: Option<u64>,
    /// Device-hours of work that its resume has taken back.
    pub lost_hours: f64,
}

/// The last of a list, and how many there were.
#[derive(Debug, Clone, PartialEq)]
pub struct Latest<T> {
    items: VecDeque<T>,
    count: usize,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), count: 0 }
    }
}

impl<T> Latest<T> {
    fn push(&mut self, item: T) {
        self.count += 1;
        self.items.push_back(item);
        if self.items.len() > MOST_LISTED {
            self.items.pop_front();
        }
    }

    /// How many there were in all.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The kept ones, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &T> {
        self.items.iter().rev()
    }
}

/// A run, as far as its events have been read.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "named as in the journal")]
pub struct Digest {
    pub status: Status,
    pub version: u64,
    pub ledger: Ledger,
    /// What was spent on work that kills have undone.
    pub lost: Ledger,
    pub devices: f64,
    pub groups: usize,
    pub set_aside: usize,
    pub empty_batches: usize,
    pub generator_retries: usize,
    pub largest_lag: u64,
    /// Unix seconds of the last event.
    pub last_at: f64,
    pub primary: String,
    /// The evaluations of the primary set.
    pub points: Vec<EvaluationPoint>,
    /// The sets of the last evaluation.
    pub sets: Vec<SetReport>,
    pub forecasts: Vec<ForecastReport>,
    pub warnings: Latest<Warning>,
    /// Reasons of verifiers that failed.
    pub verifier_failures: FailureKinds,
    pub environment_restarts: usize,
    pub fleet_changes: Latest<(f64, FleetChange)>,
    pub sessions: Latest<Session>,
    pub steps: StepSeries,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            status: Status::Open,
            version: 0,
            ledger: Ledger::default(),
            lost: Ledger::default(),
            devices: f64::NAN,
            groups: 0,
            set_aside: 0,
            empty_batches: 0,
            generator_retries: 0,
            largest_lag: 0,
            last_at: 0.0,
            primary: String::new(),
            points: Vec::new(),
            sets: Vec::new(),
            forecasts: Vec::new(),
            warnings: Latest::default(),
            verifier_failures: FailureKinds::default(),
            environment_restarts: 0,
            fleet_changes: Latest::default(),
            sessions: Latest::default(),
            steps: StepSeries::default(),
        }
    }
}

/// A line that is worth as much as its type says.
pub(crate) enum Line {
    Group,
    /// Of no weight here.
    Other,
    Parsed(Box<Event>),
}

/// Reads a line; `None` is no event.
pub(crate) fn parse(line: &[u8]) -> Option<Line> {
    let is_whole = line.first() == Some(&b'{') && line.last() == Some(&b'}');
    match kind_of(line).filter(|_| is_whole) {
        Some(b"group") => Some(Line::Group),
        Some(b"adopted" | b"sampled-again" | b"checkpoint") => Some(Line::Other),
        _ => serde_json::from_slice(line).ok().map(|event| Line::Parsed(Box::new(event))),
    }
}

impl Digest {
    /// Adds a line that counts.
    pub(crate) fn add(&mut self, run: &str, line: Line) {
        self.status = Status::Open;
        match line {
            Line::Group => self.groups += 1,
            Line::Other => {}
            Line::Parsed(event) => self.add_event(run, *event),
        }
    }

    /// A line that a resume has taken back: the work is undone, but a process began with it.
    pub(crate) fn add_undone(&mut self, line: Line) {
        if let Line::Parsed(event) = line {
            self.session(&event);
        }
    }

    fn session(&mut self, event: &Event) {
        let at = event.at;
        match &event.what {
            What::Started { .. } => {
                self.sessions.push(Session { at, resumed_from: None, lost_hours: 0.0 });
            }
            What::Resumed { version, lost, .. } => {
                self.lost += *lost;
                let (resumed_from, lost_hours) = (Some(version.0), lost.device_hours());
                self.sessions.push(Session { at, resumed_from, lost_hours });
            }
            _ => {}
        }
    }

    fn add_event(&mut self, run: &str, event: Event) {
        self.session(&event);
        self.last_at = event.at;
        self.status = Status::of(Some(&event.what));
        if let Some(ledger) = event.what.ledger() {
            self.ledger = *ledger;
        }
        match event.what {
            What::Started { devices, .. } => self.devices = devices,
            What::Group(_) => self.groups += 1,
            What::SetAside { .. } => self.set_aside += 1,
            What::VerifierFailed { reason, .. } => {
                self.verifier_failures.add(&reason);
            }
            What::EnvironmentRestarted { .. } => self.environment_restarts += 1,
            What::GeneratorRetried { .. } => self.generator_retries += 1,
            What::EmptyBatch { .. } => self.empty_batches += 1,
            What::Fleet(change) => self.fleet_changes.push((event.at, change)),
            What::Forecast(report) => {
                self.forecasts.push(report);
                halve(&mut self.forecasts, MOST_FORECASTS);
            }
            What::Warning { version, sign, value, threshold, steps } => {
                self.warnings.push(Warning { step: version.0, sign, value, threshold, steps });
            }
            What::Evaluation { version, primary, sets, spent, .. } => {
                if let Some(set) = sets.iter().find(|set| set.name == primary) {
                    self.points.push(EvaluationPoint::new(run, version, &spent, set));
                    halve(&mut self.points, MOST_POINTS);
                }
                (self.primary, self.sets) = (primary, sets);
            }
            What::Step { lag, batch, report, ledger } => {
                self.version = report.version.0;
                self.largest_lag = self.largest_lag.max(lag);
                let mut values = [f64::NAN; Metric::COUNT];
                for (metric, value) in [
                    (Metric::Lag, lag as f64),
                    (Metric::MeanReward, batch.mean_reward),
                    (Metric::PassRate, batch.pass_rate),
                    (Metric::MeanTokens, batch.mean_tokens),
                    (Metric::Truncated, batch.truncated_share),
                    (Metric::Entropy, report.entropy),
                    (Metric::GradientNorm, report.gradient_norm),
                    (Metric::EffectiveSamples, report.ratio.effective_sample_share),
                    (Metric::Clipped, report.ratio.clip_fraction),
                    (Metric::LargestRatio, report.ratio.max),
                    (Metric::MeanRatio, report.ratio.mean),
                    (Metric::SmallestRatio, report.ratio.min),
                    (Metric::TrainedGroups, f64::from(batch.trained_groups)),
                    (Metric::StepSeconds, report.seconds),
                ] {
                    values[metric as usize] = value;
                }
                self.steps.push(self.version, values, ledger);
            }
            _ => {}
        }
    }

    /// The run in numbers, as [`scalerl_journal::Reading::summary`] says it.
    pub fn summary(&self, run: &str) -> Summary {
        Summary {
            run: run.to_owned(),
            status: self.status.clone(),
            version: PolicyVersion(self.version),
            ledger: self.ledger,
            lost: self.lost,
            groups: self.groups,
            set_aside: self.set_aside,
            verifier_failures: self.verifier_failures.count() as usize,
            failures: self.verifier_failures.clone(),
            environment_restarts: self.environment_restarts,
            largest_lag: self.largest_lag,
            pass_rate: self.points.last().map(|point| point.pass_rate),
        }
    }
}

/// Lets every second of the earlier half go where there are too many.
fn halve<T>(items: &mut Vec<T>, most: usize) {
    if items.len() <= most {
        return;
    }
    let (mut index, half) = (0, most / 2);
    items.retain(|_| {
        index += 1;
        index > half || index % 2 == 1
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_found_where_the_writer_puts_it_and_nowhere_else() {
        assert_eq!(kind_of(br#"{"v":1,"at":1.5,"type":"group","group":3}"#), Some(&b"group"[..]));
        assert_eq!(kind_of(br#"{"v":1,"at":1.5}"#), None);
        let said = br#"{"v":1,"at":1.5,"type":"failed","version":1,"error":",\"type\":\"group\""}"#;
        assert_eq!(kind_of(said), Some(&b"failed"[..]));
        assert!(parse(b"{\"v\":1,\"at\":1.5,\"type\":\"gro").is_none());
        assert!(parse(&[0; 40]).is_none());
    }

    #[test]
    fn of_too_many_the_latest_half_is_kept_whole() {
        let mut items: Vec<u32> = (0..11).collect();
        halve(&mut items, 10);
        assert_eq!(items, [0, 2, 4, 5, 6, 7, 8, 9, 10]);
    }
}

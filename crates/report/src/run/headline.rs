//! A run in a dozen numbers: the first table of the page, the end of a run in the terminal, and
//! `--json`.

use std::{fmt, io::Write};

use scalerl_board::number::short;
use scalerl_journal::{Ledger, Status};
use scalerl_recipe::Axis;
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{
    Findings,
    compute::{percent, roles, share},
    forecasts::Checked,
    halftime::{HalfTime, off},
    story::{Session, Story, Warning},
};
use crate::table;

/// Width of sentences in the terminal.
const COLUMNS: usize = 96;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub struct Headline<'a> {
    run: &'a str,
    #[serde(flatten)]
    standing: Standing<'a>,
    steps: u64,
    axis: Axis,
    evaluations: usize,
    primary: &'a str,
    first_pass_rate: Option<f64>,
    last_pass_rate: Option<f64>,
    /// `None` with the reason in `no_half_time`.
    half_time: Option<&'a HalfTime>,
    no_half_time: Option<&'a str>,
    forecasts: &'a [Checked],
    device_hours: f64,
    ledger: &'a Ledger,
    lost: &'a Ledger,
    generator_idle_share: f64,
    trainer_idle_share: f64,
    largest_lag: Option<u64>,
    mean_lag: Option<f64>,
    tokens_per_second: Option<f64>,
    truncated_share: Option<f64>,
    interrupted_share: Option<f64>,
    zero_variance_share: Option<f64>,
    effective_groups: Option<f64>,
    verifier_failures: usize,
    warnings: &'a [Warning],
    sessions: &'a [Session],
}

impl<'a> Headline<'a> {
    pub(super) fn new(story: &'a Story, findings: &'a Findings) -> Self {
        let mean = |of: fn(&super::story::StepRow) -> f64| mean(story.steps.iter().map(of));
        let ledger = &story.ledger;
        Self {
            run: &story.name,
            standing: Standing { status: &story.status, is_held: story.is_held },
            steps: story.version(),
            axis: story.axis,
            evaluations: story.evaluations.len(),
            primary: story.primary(),
            first_pass_rate: story.points.first().map(|point| point.pass_rate),
            last_pass_rate: story.points.last().map(|point| point.pass_rate),
            half_time: findings.half_time.as_ref().ok(),
            no_half_time: findings.half_time.as_ref().err().map(String::as_str),
            forecasts: &findings.forecasts,
            device_hours: ledger.device_hours(),
            ledger,
            lost: &story.lost,
            generator_idle_share: ledger.generator_idle_share(),
            trainer_idle_share: ledger.trainer_idle_share(),
            largest_lag: story.steps.iter().map(|step| step.lag).max(),
            mean_lag: self::mean(story.steps.iter().filter_map(|step| step.mean_lag)),
            tokens_per_second: (ledger.wall_s > 0.0)
                .then(|| ledger.tokens_generated as f64 / ledger.wall_s),
            truncated_share: mean(|step| step.batch.truncated_share),
            interrupted_share: mean(|step| step.batch.interrupted_share),
            zero_variance_share: mean(|step| step.zero_variance_share),
            effective_groups: mean(|step| f64::from(step.batch.trained_groups)),
            verifier_failures: story.verifier_failures.len(),
            warnings: &story.warnings,
            sessions: &story.sessions,
        }
    }

    /// The first line.
    pub fn opening(&self) -> String {
        format!(
            "{}: {} steps, {} device-hours, {}",
            self.run,
            self.steps,
            short(self.device_hours),
            self.standing
        )
    }

    /// Names and values, for the terminal and the page.
    pub fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![("pass rate", self.pass_rate())];
        rows.extend(self.half_time_rows());
        if self.device_hours > 0.0 {
            rows.push(("device-hours", self.by_role()));
            let (generator, trainer) = (self.generator_idle_share, self.trainer_idle_share);
            let text = format!("generator {}, trainer {}", percent(generator), percent(trainer));
            rows.push(("idle", text));
        }
        if let Some(largest) = self.largest_lag {
            let mean = self.mean_lag.map(|mean| format!(", mean {mean:.1}")).unwrap_or_default();
            rows.push(("lag", format!("largest {largest}{mean} steps")));
        }
        if let Some(rate) = self.tokens_per_second {
            let text = format!(
                "{} generated for training, {} FLOPs in all",
                short(rate),
                short(self.ledger.flops)
            );
            rows.push(("tokens/s", text));
        }
        if let (Some(truncated), Some(interrupted), Some(zero)) =
            (self.truncated_share, self.interrupted_share, self.zero_variance_share)
        {
            let text = format!(
                "{} truncated, {} interrupted; {} of the groups without variance",
                percent(truncated),
                percent(interrupted),
                percent(zero)
            );
            rows.push(("completions", text));
        }
        let trouble = self.trouble();
        if !trouble.is_empty() {
            rows.push(("attention", trouble));
        }
        rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn pass_rate(&self) -> String {
        match (self.first_pass_rate, self.last_pass_rate) {
            (Some(first), Some(last)) => format!(
                "{first:.3} → {last:.3} on {}, {} evaluations",
                self.primary, self.evaluations
            ),
            _ => "nothing was evaluated yet".to_owned(),
        }
    }

    fn half_time_rows(&self) -> Vec<(&'static str, String)> {
        let Some(test) = self.half_time else {
            let reason = self.no_half_time.unwrap_or_default();
            return vec![("half-time forecast", format!("none: {reason}"))];
        };
        let line = |guess: &super::halftime::Guess| {
            let inside = match guess.is_inside {
                Some(true) => ", measured inside",
                Some(false) => ", measured outside",
                None => "",
            };
            format!("{}: {}{inside}", guess.forecast_text(), off(guess.error))
        };
        let names = ["half-time forecast", "half-time, power law", "half-time, last value"];
        let of = |name: &'static str, found: &str| {
            test.guesses.iter().find(|guess| guess.name == found).map(|guess| (name, line(guess)))
        };
        let mut rows = vec![(
            "measured at the end",
            format!(
                "{:.3} ± {:.3} at {} {}",
                test.measured,
                test.measured_error,
                short(test.at.0),
                self.axis.label()
            ),
        )];
        let found =
            [of(names[0], "sigmoid"), of(names[1], "power law"), of(names[2], "last value stays")];
        rows.splice(0..0, found.into_iter().flatten());
        rows
    }

    fn by_role(&self) -> String {
        let seconds = &self.ledger.device_seconds;
        let total = seconds.total();
        let part =
            |(name, seconds): (&str, f64)| format!("{name} {}", percent(share(seconds, total)));
        let parts: Vec<String> = roles(seconds).into_iter().map(part).collect();
        format!("{} = {}", short(self.device_hours), parts.join(" + "))
    }

    /// What a reader should look at; empty when all is well.
    fn trouble(&self) -> String {
        let mut parts = Vec::new();
        let mut say = |count: usize, what: &str| {
            if count > 0 {
                parts.push(format!("{what}: {count}"));
            }
        };
        say(self.warnings.len(), "stability warnings");
        say(self.verifier_failures, "verifier errors");
        say(self.sessions.len().saturating_sub(1), "resumes");
        if self.lost.device_hours() > 0.0 {
            parts.push(format!("device-hours lost to kills: {}", short(self.lost.device_hours())));
        }
        parts.join(", ")
    }

    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}\n", self.opening())?;
        let rows: Vec<Vec<String>> =
            self.rows().into_iter().map(|(key, value)| vec![key, value]).collect();
        table::write(out, &rows)?;
        if let Some(test) = self.half_time {
            writeln!(out)?;
            for line in test.sentences().iter().flat_map(|sentence| wrapped(sentence)) {
                writeln!(out, "  {line}")?;
            }
        }
        Ok(())
    }
}

/// Breaks a sentence between words, for the terminal.
fn wrapped(sentence: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then_some(sum / count)
}

/// Where a run stands: by its last event, and whether a process holds its folder.
#[derive(Debug, Clone, Copy)]
struct Standing<'a> {
    status: &'a Status,
    is_held: bool,
}

/// `state` and what belongs to it.
impl Serialize for Standing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.status {
            Status::Open if self.is_held => map.serialize_entry("state", "running")?,
            Status::Open => map.serialize_entry("state", "killed")?,
            Status::Stopped { reason } => {
                map.serialize_entry("state", "ended")?;
                map.serialize_entry("reason", reason)?;
            }
            Status::Failed { error } => {
                map.serialize_entry("state", "failed")?;
                map.serialize_entry("error", error)?;
            }
        }
        map.end()
    }
}

impl fmt::Display for Standing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Status::Open if self.is_held => f.write_str("still running"),
            Status::Open => {
                f.write_str("killed, or running on another machine: no end was recorded")
            }
            Status::Failed { error } => write!(f, "failed: {error}"),
            Status::Stopped { reason } => write!(f, "ended: {}", reason.description()),
        }
    }
}

#[cfg(test)]
mod tests {
    use scalerl_journal::StopReason;

    use super::*;

    #[test]
    fn the_words_of_a_state_are_those_that_scripts_read() {
        let stopped = Status::Stopped { reason: StopReason::DeviceHours };
        let failed = Status::Failed { error: "no".into() };
        for (status, is_held, expected) in [
            (&Status::Open, true, r#"{"state":"running"}"#),
            (&Status::Open, false, r#"{"state":"killed"}"#),
            (&stopped, false, r#"{"state":"ended","reason":"device-hours"}"#),
            (&failed, false, r#"{"state":"failed","error":"no"}"#),
        ] {
            let standing = Standing { status, is_held };
            assert_eq!(serde_json::to_string(&standing).unwrap(), expected);
        }
    }
}

//! What a run shows while it lives: a bar on a terminal, plain lines otherwise.
//!
//! A step tells where the run is, an evaluation what it has reached, a forecast what more compute
//! would buy. All of it stands in the journal as well; nothing here is kept.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use scalerl_journal::{
    BadSign, Event, FailureKinds, ForecastReport, HistoryUse, Ledger, SetReport, What,
};
use scalerl_recipe::Budget;
use scalerl_rollout::GroupId;
use serde_json::Value;

/// Time between plain lines of steps.
const EVERY: Duration = Duration::from_secs(5);

/// Writes lines to standard error, above the bar where there is one.
struct Screen {
    bar: Option<ProgressBar>,
    last: Option<Instant>,
}

impl Screen {
    fn new(total: Option<u64>, template: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(template);
            let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, last: None }
    }

    /// Something worth keeping on the screen.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            // A closed standard error must not end the run.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// Where the work is; shown now and then.
    fn update(&mut self, position: u64, line: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            bar.set_message(line.to_owned());
        } else if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            self.say(line);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The line of a warm-up.
pub(crate) struct WarmUpLine {
    screen: Screen,
    steps: u64,
    started: Instant,
    last_loss: f64,
}

impl WarmUpLine {
    pub(crate) fn new(steps: u64) -> Self {
        let screen = Screen::new(Some(steps), "warm-up {bar:30} {pos}/{len} {msg} {eta}");
        Self { screen, steps, started: Instant::now(), last_loss: f64::NAN }
    }

    /// Where an earlier process has left it.
    pub(crate) fn say_resumed(&self, step: u64) {
        self.screen.say(&format!("going on with the warm-up after step {step}"));
    }

    pub(crate) fn say_stopping(&self) {
        self.screen.say("asked to stop: saving the warm-up");
    }

    pub(crate) fn show(&mut self, metrics: &Value) {
        let step = metrics["step"].as_u64().unwrap_or_default();
        self.last_loss = metrics["loss"].as_f64().unwrap_or(f64::NAN);
        let line = format!("warm-up  step {step:>5} of {}  loss {:.4}", self.steps, self.last_loss);
        self.screen.update(step, &line);
    }

    pub(crate) fn finish(self) {
        let seconds = self.started.elapsed().as_secs_f64();
        let (steps, loss) = (self.steps, self.last_loss);
        self.screen.say(&format!("warmed up: {steps} steps in {seconds:.0} s, loss {loss:.4}"));
    }
}

/// The lines of a run.
pub(crate) struct Live {
    screen: Screen,
    budget: Budget,
    /// The last ledger seen; `None` until one is known.
    before: Option<Ledger>,
    primary: Option<SetReport>,
    failures: VerifierFailures,
    /// Processes of environments that ended before their time.
    restarts: u64,
    /// Groups that no step could use.
    set_aside: u64,
}

impl Live {
    pub(crate) fn new(budget: &Budget) -> Self {
        let steps = budget.steps;
        let template = if steps.is_some() { "{bar:20} {msg} {eta}" } else { "{spinner} {msg}" };
        Self {
            screen: Screen::new(steps, template),
            budget: budget.clone(),
            before: Some(Ledger::default()),
            primary: None,
            failures: VerifierFailures::default(),
            restarts: 0,
            set_aside: 0,
        }
    }

    /// Shows one event of the journal.
    pub(crate) fn show(&mut self, event: &Event) {
        match &event.what {
            What::Step { lag, batch, report, ledger } => {
                let line = format!(
                    "step {}  pass rate {}  train {:.3}  {}  {} tokens/s  lag {lag}  \
                     idle: generator {:.0} %, trainer {:.0} %{}",
                    self.position(report.version.0),
                    self.measured(),
                    batch.pass_rate,
                    held(ledger.device_hours()),
                    self.speed(ledger),
                    100.0 * ledger.generator_idle_share(),
                    100.0 * ledger.trainer_idle_share(),
                    if batch.truncated_share > 0.05 {
                        format!("  truncated {:.0} %", 100.0 * batch.truncated_share)
                    } else {
                        String::new()
                    },
                );
                self.screen.update(report.version.0, &line);
                self.before = Some(*ledger);
            }
            What::Evaluation { version, primary, sets, spent, .. } => {
                let spent = held(spent.device_hours());
                let shown: Vec<String> = sets.iter().map(set).collect();
                let (position, shown) = (self.position(version.0), shown.join("  "));
                self.screen.say(&format!("step {position}  {shown}  at {spent}"));
                self.primary = sets.iter().find(|set| set.name == *primary).cloned();
            }
            What::NotMeasured { version, set, failed, reason } => {
                let position = self.position(version.0);
                self.screen.say(&format!(
                    "step {position}  {set} not measured: {failed} of {failed} without a verdict: {reason}"
                ));
            }
            What::Forecast(report) => self.screen.say(&forecast(report)),
            What::Warning { sign, value, threshold, steps, .. } => {
                let is_evaluated = matches!(sign, BadSign::HeldOutFall | BadSign::EvaluationErrors);
                let unit = if is_evaluated { "evaluations" } else { "steps" };
                let (what, advice) = (sign.description(), sign.advice());
                self.screen.say(&format!(
                    "warning: {what}: {value:.3}, limit {threshold:.3}, {steps} {unit}\n         {advice}"
                ));
            }
            What::VerifierFailed { reason, .. } => {
                if let Some(line) = self.failures.line(reason) {
                    self.screen.say(&line);
                }
            }
            What::EnvironmentRestarted { dataset, reason } => {
                self.restarts += 1;
                if is_round(self.restarts) {
                    let count = self.restarts;
                    self.screen.say(&format!(
                        "environment of {dataset} restarted ({count} so far): {reason}"
                    ));
                }
            }
            What::SetAside { group, reason, file, .. } => {
                self.set_aside += 1;
                if is_round(self.set_aside) {
                    self.screen.say(&set_aside(self.set_aside, *group, reason, file.as_deref()));
                }
            }
            What::Damaged { found, reason, kept_as } => {
                self.screen.say(&format!("DAMAGED: {found}: {reason}; kept as {kept_as}"));
            }
            What::GeneratorRetried { attempt, reason, .. } => {
                self.screen.say(&format!("generator asked again (attempt {attempt}): {reason}"));
            }
            What::Fleet(change) => {
                let from = change.from.map_or_else(|| "new".to_owned(), |from| from.to_string());
                let (name, to, reason) = (&change.name, change.to, &change.reason);
                self.screen.say(&format!("{name}: {from} -> {to}: {reason}"));
            }
            What::Resumed { version, buffered_groups, .. } => {
                self.before = None;
                self.screen.say(&format!(
                    "going on after step {} with {buffered_groups} groups in hand",
                    version.0
                ));
            }
            _ => {}
        }
    }

    /// Shows a line of somebody else's.
    pub(crate) fn say(&self, line: &str) {
        self.screen.say(line);
    }

    /// Says that a request to stop was heard.
    pub(crate) fn say_stopping(&self) {
        self.screen.say("asked to stop: finishing the step, then saving");
    }

    /// Right-aligned, so that lines stand below each other.
    fn position(&self, step: u64) -> String {
        let Some(steps) = self.budget.steps else { return format!("{step:>5}") };
        let width = steps.to_string().len();
        // A run that was asked for fewer steps than it has done is not "9 of 5".
        if step > steps {
            return format!("{step:>width$} (budget {steps})");
        }
        format!("{step:>width$} of {steps}")
    }

    fn measured(&self) -> String {
        self.primary.as_ref().map_or_else(|| "-".into(), |set| format!("{:.3}", set.pass_rate))
    }

    /// Tokens generated per second since the last step of this process.
    fn speed(&self, ledger: &Ledger) -> String {
        let Some(before) = &self.before else { return "-".into() };
        let spent = ledger.since(before);
        let speed = spent.tokens_generated as f64 / spent.wall_s.max(1e-9);
        if speed >= 1e4 { format!("{:.1}k", speed / 1e3) } else { format!("{speed:.0}") }
    }
}

/// Verifier failures so far, by kind: hundreds of the same would hide the rest of the run.
#[derive(Default)]
struct VerifierFailures(FailureKinds);

impl VerifierFailures {
    /// What one more failure is worth saying: the first of a kind, the 10th, the 100th and so on.
    fn line(&mut self, reason: &str) -> Option<String> {
        let count = self.0.add(reason);
        if count == 1 {
            return Some(format!("verifier failed: {reason} (the report counts further ones)"));
        }
        let first = reason.lines().next().unwrap_or_default();
        is_round(count).then(|| format!("verifier failed {count} times: {first}"))
    }
}

/// Whether something that has happened so often is worth saying again: 1, 10, 100 and so on.
pub(crate) fn is_round(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| 10_u64.pow(digits) == count)
}

fn set_aside(count: u64, group: GroupId, reason: &str, file: Option<&str>) -> String {
    let kept = file.map_or_else(String::new, |file| format!("; its completions are in {file}"));
    let of_group = format!("group {}: {reason}{kept}", group.0);
    match count {
        1 => format!("set aside {of_group} (the report counts further ones)"),
        _ => format!("{count} groups set aside by now, the last: {of_group}"),
    }
}

/// Device-hours for a reader; runs of minutes are told in seconds.
pub(crate) fn held(hours: f64) -> String {
    if hours < 0.1 {
        format!("{:.1} device-seconds", hours * 3600.0)
    } else {
        format!("{hours:.4} device-hours")
    }
}

/// A set and its sampling error, prompts drawn independently.
fn set(set: &SetReport) -> String {
    let (rate, samples) = (set.pass_rate, set.samples as f64);
    let error = (rate * (1.0 - rate) / samples).sqrt();
    let mut line = format!("{} {rate:.3} ± {error:.3}", set.name);
    for at in &set.pass_at {
        // Writing to a string does not fail.
        let _ = write!(line, " pass@{} {:.3}", at.k, at.value);
    }
    line
}

fn forecast(report: &ForecastReport) -> String {
    let (gain, low, high) = report.gain;
    let (at, at_low, at_high) = report.at_twice;
    let learned = report.history.as_ref().map(learned).unwrap_or_default();
    format!(
        "            2x compute buys {gain:+.3} [{low:+.3}, {high:+.3}]: {at:.3} [{at_low:.3}, \
         {at_high:.3}] ({}{learned})",
        report.verdict
    )
}

/// How much of a forecast rests on finished runs, and on which most.
fn learned(history: &HistoryUse) -> String {
    let (weight, runs) = (100.0 * history.weight, history.runs);
    let first = history.heaviest.first().filter(|share| share.weight >= 0.005);
    let most = first.map(|share| format!(", most on {}", share.name)).unwrap_or_default();
    let runs = if runs == 1 { "1 finished run".into() } else { format!("{runs} finished runs") };
    format!("; {weight:.0} % rests on {runs}{most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_is_counted_beyond_the_budget() {
        let live = Live::new(&Budget { steps: Some(5), ..Budget::default() });
        assert_eq!(live.position(5), "5 of 5");
        assert_eq!(live.position(9), "9 (budget 5)");
    }

    #[test]
    fn a_reason_is_told_in_full_once_and_then_by_its_count() {
        let mut failures = VerifierFailures::default();
        let lines: Vec<String> = (0..1500).filter_map(|_| failures.line("undecided")).collect();
        let expected = [
            "verifier failed: undecided (the report counts further ones)",
            "verifier failed 10 times: undecided",
            "verifier failed 100 times: undecided",
            "verifier failed 1000 times: undecided",
        ];
        assert_eq!(lines, expected);
        assert!(failures.line("timed out").is_some(), "each reason by itself");
        assert_eq!(failures.line("timed out"), None);
    }

    #[test]
    fn a_traceback_is_told_once_whatever_its_last_line_quotes() {
        let mut failures = VerifierFailures::default();
        let reason = |text: &str| format!("line 3 raised ValueError\nTraceback …\n{text}");
        assert!(failures.line(&reason("'one'")).unwrap().contains("'one'"));
        let lines: Vec<String> =
            (2..=10).filter_map(|n| failures.line(&reason(&n.to_string()))).collect();
        assert_eq!(lines, ["verifier failed 10 times: line 3 raised ValueError"]);
    }
}

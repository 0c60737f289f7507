//! What stands on the screen, line by line, for any size of it.
//!
//! Names and reasons come from files: control characters in them would be orders to the terminal, so
//! they are taken out.

use std::sync::Arc;

use scalerl_board::chart::Role;
use scalerl_board::number::short;
use scalerl_board::plots::{self, Captions, Measured, RunCurve};
use scalerl_board::{Glyphs, TerminalOptions, terminal};
use scalerl_report::run::{compute, forecasts};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::digest::Digest;
use crate::glance::{Glance, State};
use crate::series::Metric;

/// As much of a text as fits, without orders to the terminal.
fn cut(text: &str, width: usize) -> String {
    let (mut kept, mut used) = (String::new(), 0);
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(letter);
    }
    kept
}

fn padded(text: &str, width: usize) -> String {
    let text = cut(text, width);
    let missing = width - text.width().min(width);
    format!("{text}{}", " ".repeat(missing))
}

fn rate(glance: &Glance) -> String {
    glance.points.last().map_or("-".to_owned(), |point| format!("{:.3}", point.pass_rate))
}

pub(super) fn list(
    runs: &[(String, Arc<Glance>)],
    chosen: usize,
    (width, height): (usize, usize),
) -> Vec<String> {
    let name = width.saturating_sub(68).clamp(12, 48);
    let line = |cells: [&str; 6]| {
        let [run, state, step, rate, twice, hours] = cells;
        let line = format!(
            "{}  {}  {}  {}  {}  {}",
            padded(run, name),
            padded(state, 7),
            padded(step, 12),
            padded(rate, 9),
            padded(twice, 20),
            hours
        );
        cut(&line, width)
    };
    let mut lines = vec![cut(&format!("{} runs", runs.len()), width)];
    lines.push(line(["run", "state", "step", "pass rate", "at twice", "hours"]));
    let room = height.saturating_sub(3);
    // The chosen run is always in sight.
    let first = chosen.saturating_sub(room.saturating_sub(1));
    for (index, (slug, glance)) in runs.iter().enumerate().skip(first).take(room) {
        let step = match glance.budget_steps {
            Some(steps) => format!("{}/{steps}", glance.version),
            None => glance.version.to_string(),
        };
        let twice = glance.forecast.as_ref().map_or("-".to_owned(), |report| {
            let (value, low, high) = report.at_twice;
            format!("{value:.3} [{low:.3}, {high:.3}]")
        });
        let hours = short(glance.ledger.device_hours());
        let text = line([slug, glance.state.word(), &step, &rate(glance), &twice, &hours]);
        lines.push(if index == chosen {
            format!("\x1b[7m{}\x1b[0m", padded(&text, width))
        } else {
            text
        });
    }
    lines.truncate(height.saturating_sub(1));
    lines.push(cut("arrows choose   enter opens   q quits", width));
    lines.truncate(height);
    lines
}

pub(super) fn run(
    slug: &str,
    glance: Option<&Arc<Glance>>,
    digest: Option<&Digest>,
    progress: f64,
    (width, height): (usize, usize),
) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(digest) = digest else {
        lines.push(cut(&format!("{slug}: reading the journal, {:.0} %", progress * 100.0), width));
        return lines;
    };
    let state = glance.map_or(State::Killed, |glance| glance.state.clone());
    let why = match &state {
        State::Ended(reason) => format!(": {reason}"),
        State::Failed(error) => format!(": {error}"),
        _ => String::new(),
    };
    let steps = glance.and_then(|glance| glance.budget_steps);
    let of = steps.map_or(String::new(), |steps| format!(" of {steps}"));
    lines.push(format!("{slug}  {}{why}  step {}{of}", state.word(), digest.version));
    lines.extend(numbers(digest));
    let rest = height.saturating_sub(lines.len() + 7);
    if rest >= 5 && !digest.points.is_empty() {
        lines.push(String::new());
        lines.extend(curve(slug, glance, digest, width, rest));
    }
    lines.truncate(height.saturating_sub(1));
    lines.push("back with escape   q quits".to_owned());
    lines.truncate(height);
    lines.into_iter().map(|line| cut(&line, width)).collect()
}

fn numbers(digest: &Digest) -> Vec<String> {
    let ledger = &digest.ledger;
    let total = ledger.device_seconds.total();
    let roles = compute::roles(&ledger.device_seconds)
        .map(|(name, part)| format!("{name} {}", compute::percent(compute::share(part, total))));
    let mut lines =
        vec![format!("{} device-hours: {}", short(ledger.device_hours()), roles.join(", "))];
    if let Some(last) = digest.steps.bins().last() {
        let now = |metric| short(last.stat(metric).mean());
        lines.push(format!(
            "reward {}  lag {} (largest {})  entropy {}  gradient {}  tokens {}  {} tokens/s",
            now(Metric::MeanReward),
            now(Metric::Lag),
            digest.largest_lag,
            now(Metric::Entropy),
            now(Metric::GradientNorm),
            now(Metric::MeanTokens),
            short(ledger.tokens_generated as f64 / ledger.wall_s.max(1e-9)),
        ));
    }
    let checked = forecasts::check(&digest.forecasts, &digest.points);
    if let Some(last) = checked.last() {
        let (value, low, high) = last.at_twice;
        let known: Vec<_> = checked.iter().filter_map(|one| one.is_inside).collect();
        let inside = known.iter().filter(|is_inside| **is_inside).count();
        lines.push(format!(
            "at twice the compute {value:.3} [{low:.3}, {high:.3}]; of {} earlier forecasts that \
             can be checked {inside} were inside",
            known.len()
        ));
    }
    lines.extend(digest.warnings.newest().take(1).map(|warning| {
        format!("warning at step {}: {}", warning.step, warning.sign.description())
    }));
    lines
}

fn curve(
    slug: &str,
    glance: Option<&Arc<Glance>>,
    digest: &Digest,
    width: usize,
    height: usize,
) -> Vec<String> {
    let axis = glance.map_or(scalerl_recipe::Axis::DeviceHours, |glance| glance.axis);
    let points = scalerl_report::figures::spread(&digest.points, 300);
    let points = points.iter().map(|point| Measured {
        compute: point.compute(axis),
        value: point.pass_rate,
        role: Role::Used,
    });
    let forecasts = digest.forecasts.last().map(|report| {
        let (value, low, high) = report.at_twice;
        plots::CurvePoint { compute: report.compute * 2.0, value, low, high }
    });
    let run = RunCurve {
        name: slug.to_owned(),
        points: points.collect(),
        forecasts: forecasts.into_iter().collect(),
        ..RunCurve::default()
    };
    let captions = Captions {
        compute: axis.label().to_owned(),
        value: "pass rate".to_owned(),
        interval: "90 %".to_owned(),
        ..Captions::default()
    };
    let options = TerminalOptions { width, height, color: false, glyphs: Glyphs::Unicode };
    terminal(&plots::fit(&run, &captions), options).lines().map(str::to_owned).collect()
}

//! All runs in one list, and some of them in one figure.

use std::fmt::Write as _;
use std::sync::Arc;

use scalerl_board::chart::Role;
use scalerl_board::number::short;
use scalerl_board::plots::{self, Captions, CurvePoint, Measured, RunCurve};
use scalerl_board::{Block, Table, escape, fragment};
use scalerl_journal::{EvaluationPoint, ForecastReport};
use scalerl_recipe::Axis;
use scalerl_report::words;

use super::trouble::ago;
use crate::glance::{Glance, State};

/// Runs in one figure.
pub(crate) const MOST_COMPARED: usize = 12;
/// Width and height of a small curve.
const SPARK: (f64, f64) = (96.0, 22.0);

/// A row for each run.
pub(crate) fn rows(runs: &[(String, Option<Arc<Glance>>)]) -> String {
    let mut html = String::new();
    for (slug, glance) in runs {
        let Some(glance) = glance else {
            let _ = write!(
                html,
                "<tr data-name=\"{slug}\"><td></td><td><a href=\"/run/{slug}\">{slug}</a></td>\
                 <td colspan=\"7\" class=\"quiet\">not looked at yet</td></tr>"
            );
            continue;
        };
        row(slug, glance, &mut html);
    }
    html
}

fn row(slug: &str, glance: &Glance, html: &mut String) {
    let word = glance.state.word();
    let why = match &glance.state {
        State::Ended(reason) => (*reason).to_owned(),
        State::Failed(error) | State::Unreadable(error) => error.clone(),
        State::Alive | State::Killed => String::new(),
    };
    let done = glance.done().map_or(String::new(), |done| {
        let steps = glance.budget_steps.unwrap_or_default();
        format!(
            " <small>of {steps}</small><progress max=\"1\" value=\"{done:.3}\" \
             aria-label=\"steps done\"></progress>"
        )
    });
    let rate = glance.points.last().map_or("–".to_owned(), |one| format!("{:.3}", one.pass_rate));
    let twice = glance.forecast.as_ref().map_or("–".to_owned(), |report| {
        let (value, low, high) = report.at_twice;
        words::interval(value, low, high)
    });
    let _ = write!(
        html,
        "<tr data-name=\"{slug} {word}\"><td><input type=\"checkbox\" value=\"{slug}\" \
         aria-label=\"compare {slug}\"></td>\
         <td class=\"name\"><a href=\"/run/{slug}\">{slug}</a></td>\
         <td><span class=\"state {word}\" title=\"{}\">{word}</span></td>\
         <td class=\"steps number\">{}{done}</td><td class=\"number\">{rate}</td>\
         <td class=\"spark\">{}</td><td class=\"number\">{twice}</td>\
         <td class=\"number\">{}</td><td class=\"quiet\">{}</td></tr>",
        escape(&why),
        glance.version,
        spark(&glance.points),
        short(glance.ledger.device_hours()),
        if glance.last_at > 0.0 { ago(glance.last_at) } else { "–".to_owned() },
    );
}

/// The pass rate over steps in a few pixels.
fn spark(points: &[EvaluationPoint]) -> String {
    if points.len() < 2 {
        return String::new();
    }
    let (width, height) = SPARK;
    let points = scalerl_report::figures::spread(points, 48);
    let last = points.iter().map(|one| one.step).max().unwrap_or(1).max(1) as f64;
    let low = points.iter().map(|one| one.pass_rate).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|one| one.pass_rate).fold(f64::NEG_INFINITY, f64::max);
    let reach = (high - low).max(1e-9);
    let place = |one: &EvaluationPoint| {
        let x = 2.0 + one.step as f64 / last * (width - 4.0);
        let y = height - 2.0 - (one.pass_rate - low) / reach * (height - 4.0);
        format!("{x:.1},{y:.1}")
    };
    let path: Vec<String> = points.iter().map(place).collect();
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         aria-hidden=\"true\"><polyline points=\"{}\" fill=\"none\" stroke=\"var(--run-0)\" \
         stroke-width=\"1.5\" stroke-linejoin=\"round\"/></svg>",
        path.join(" ")
    )
}

/// A line through what was measured, and from the last forecast on its interval, which opens up to twice
/// the compute. No fit is made here.
fn ahead(glance: &Glance, axis: Axis) -> RunCurve {
    let forecast = glance.forecast.as_ref().filter(|one| one.axis == axis && one.compute > 0.0);
    let until = forecast.map_or(f64::INFINITY, |one| one.compute);
    let measured = glance.points.iter().map(|point| (point.compute(axis), point.pass_rate));
    let mut curve: Vec<CurvePoint> = measured
        .filter(|(compute, _)| *compute > 0.0 && *compute <= until)
        .map(|(compute, value)| CurvePoint { compute, value, low: f64::NAN, high: f64::NAN })
        .collect();
    let twice = forecast.map(|one| {
        let (value, low, high) = one.at_twice;
        CurvePoint { compute: 2.0 * one.compute, value, low, high }
    });
    curve.extend(forecast.map(|one| {
        let ForecastReport { compute, value, .. } = *one;
        CurvePoint { compute, value, low: value, high: value }
    }));
    curve.extend(twice);
    RunCurve {
        curve,
        fitted_until: forecast.map(|one| one.compute),
        forecasts: twice.into_iter().collect(),
        ..RunCurve::default()
    }
}

/// Several runs in one figure and one table.
pub(crate) fn compared(runs: &[(String, Arc<Glance>)]) -> String {
    let Some((_, first)) = runs.first() else {
        return fragment(&[Block::Prose("No runs were chosen.".to_owned())]);
    };
    let axis = first.axis;
    let drawn: Vec<RunCurve> = runs
        .iter()
        .map(|(slug, glance)| {
            let measured = glance.points.iter().map(|point| Measured {
                compute: point.compute(axis),
                value: point.pass_rate,
                role: Role::Used,
            });
            let name = slug.clone();
            RunCurve { points: measured.collect(), name, ..ahead(glance, axis) }
        })
        .collect();
    let captions = Captions {
        title: "Pass rate against compute".to_owned(),
        subtitle: "Lines join what was measured; dashed, with its band: the last forecast."
            .to_owned(),
        compute: axis.label().to_owned(),
        value: "pass rate".to_owned(),
        interval: "90 %".to_owned(),
    };
    let columns =
        ["run", "state", "step", "pass rate", "at twice the compute", "device-hours", "tokens/s"];
    let row = |(slug, glance): &(String, Arc<Glance>)| {
        let rate = glance.points.last().map(|one| format!("{:.3}", one.pass_rate));
        let twice = glance.forecast.as_ref().map(|report| {
            let (value, low, high) = report.at_twice;
            words::interval(value, low, high)
        });
        let ledger = &glance.ledger;
        let speed =
            (ledger.wall_s > 0.0).then(|| short(ledger.tokens_generated as f64 / ledger.wall_s));
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        vec![
            slug.clone(),
            glance.state.word().to_owned(),
            glance.version.to_string(),
            or_dash(rate),
            or_dash(twice),
            short(ledger.device_hours()),
            or_dash(speed),
        ]
    };
    let table = Table {
        caption: String::new(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: runs.iter().map(row).collect(),
    };
    fragment(&[Block::figure(plots::compare(&drawn, &captions)), Block::Table(table)])
}

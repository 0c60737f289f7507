//! The live forecasts against what came: each said what twice the compute would give; where the
//! run got that far, the measurement is known.

use scalerl_board::chart::{Dot, Layer, Line, Mark, Marks, Points, Role, Stroke, Tone};
use scalerl_board::number::short;
use scalerl_board::{Block, Figure, Section, Table};
use scalerl_curve::Verdict;
use scalerl_journal::{EvaluationPoint, ForecastReport};
use scalerl_recipe::Axis;
use serde::Serialize;

use super::{story::Story, trace::spread};
use crate::words;

/// Forecasts drawn; more would hide the points.
const MOST_DRAWN: usize = 24;
/// Rows of the table.
const MOST_ROWS: usize = 200;

/// A recorded forecast, and what was measured at twice the compute.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    /// The step it was made at.
    pub step: u64,
    /// Compute spent until then.
    pub compute: f64,
    /// What it said of twice the compute: value and 90 % interval.
    pub at_twice: (f64, f64, f64),
    /// The ceiling: value, lower end, upper end where there is one.
    pub ceiling: (f64, f64, Option<f64>),
    /// What the fit was worth.
    pub verdict: Verdict,
    /// Measured there, between the two evaluations around it; `None` where the run has not come.
    pub measured: Option<f64>,
    /// Whether that lay inside the interval.
    pub is_inside: Option<bool>,
    /// What had been measured last when the forecast was made.
    pub last_value: Option<f64>,
}

/// Every recorded forecast with what came of it. Forecasts on another axis than the report's are
/// checked on their own.
pub fn check(forecasts: &[ForecastReport], points: &[EvaluationPoint]) -> Vec<Checked> {
    forecasts.iter().map(|report| checked(report, points)).collect()
}

fn checked(report: &ForecastReport, points: &[EvaluationPoint]) -> Checked {
    let measured = measured_at(points, report, report.compute * 2.0);
    let (_, low, high) = report.at_twice;
    let last = points.iter().rev().find(|point| point.step <= report.version.0);
    Checked {
        step: report.version.0,
        compute: report.compute,
        at_twice: report.at_twice,
        ceiling: report.ceiling,
        verdict: report.verdict,
        measured,
        is_inside: measured.map(|value| low <= value && value <= high),
        last_value: last.map(|point| point.pass_rate),
    }
}

/// The measured value at a compute, on a straight line between its neighbours.
fn measured_at(points: &[EvaluationPoint], report: &ForecastReport, at: f64) -> Option<f64> {
    let place = |point: &EvaluationPoint| (point.compute(report.axis), point.pass_rate);
    let after = points.iter().position(|point| place(point).0 >= at)?;
    let right = place(&points[after]);
    let left = after.checked_sub(1).map_or(right, |before| place(&points[before]));
    let width = right.0 - left.0;
    let share = if width > 0.0 { (at - left.0) / width } else { 1.0 };
    Some(left.1 + (right.1 - left.1) * share)
}

/// How the forecasts did, all together.
pub fn sentences(forecasts: &[Checked]) -> Vec<String> {
    let known: Vec<(&Checked, f64)> =
        forecasts.iter().filter_map(|one| Some((one, one.measured?))).collect();
    if known.is_empty() {
        return vec![format!(
            "{} live forecasts were recorded; the run has not reached twice the compute of any.",
            forecasts.len()
        )];
    }
    let count = known.len() as f64;
    let inside = known.iter().filter(|(one, _)| one.is_inside == Some(true)).count();
    let mean = |of: &dyn Fn(&Checked, f64) -> f64| {
        known.iter().map(|(one, measured)| of(one, *measured)).sum::<f64>() / count
    };
    let error = mean(&|one, measured| (one.at_twice.0 - measured).abs());
    let stays = mean(&|one, measured| (one.last_value.unwrap_or(f64::NAN) - measured).abs());
    vec![format!(
        "Of {} live forecasts the run has reached twice the compute of {}: {inside} of them had \
         the measurement inside their 90 % interval. Mean absolute error {error:.3}; of the guess \
         that the last value stays, {stays:.3}.",
        forecasts.len(),
        known.len(),
    )]
}

pub(crate) fn section(story: &Story, forecasts: &[Checked]) -> Section {
    let heading = "Live forecasts against what came".to_owned();
    if forecasts.is_empty() {
        let text = "No forecast was recorded: a fit needs at least three evaluations.";
        return Section { heading, blocks: vec![Block::Prose(text.to_owned())] };
    }
    let axis = story.forecasts.first().map_or(story.axis, |report| report.axis);
    let blocks = vec![
        Block::Headlines(sentences(forecasts)),
        Block::Figure(
            Box::new(figure(axis, &story.points, forecasts)),
            "Each star is a forecast, made at half of the compute it stands at.".to_owned(),
        ),
        Block::Fold("Every forecast".to_owned(), vec![Block::Table(table(axis, forecasts))]),
    ];
    Section { heading, blocks }
}

/// What was forecast for twice the compute, over what was measured; all on one axis.
pub fn figure(axis: Axis, points: &[EvaluationPoint], forecasts: &[Checked]) -> Figure {
    let marks = spread(forecasts, MOST_DRAWN).into_iter().map(|one| {
        let (value, low, high) = one.at_twice;
        let text = words::interval(value, low, high);
        Mark {
            x: one.compute * 2.0,
            y: value,
            low,
            high,
            label: String::new(),
            hover: format!("at step {} it was forecast: {text}", one.step),
        }
    });
    let measured: Vec<(f64, f64)> = spread(points, super::trace::MOST_BINS)
        .iter()
        .map(|point| (point.compute(axis), point.pass_rate))
        .collect();
    let dots = measured.iter().map(|(x, y)| Dot {
        x: *x,
        y: *y,
        hover: format!("at {}: measured {y:.4}", short(*x)),
    });
    let line = measured.iter().copied().filter(|(x, _)| *x > 0.0).collect();
    let tone = Tone::Run(0);
    Figure {
        title: "What was forecast for twice the compute, and what came".to_owned(),
        subtitle: String::new(),
        x: scalerl_board::chart::Axis::log(axis.label()),
        y: scalerl_board::chart::Axis::linear("pass rate"),
        layers: vec![
            Layer::Line(Line {
                tone,
                stroke: Stroke::Solid,
                legend: "measured".into(),
                points: line,
            }),
            Layer::Points(Points {
                tone,
                role: Role::Used,
                legend: "measured".into(),
                dots: dots.collect(),
            }),
            Layer::Marks(Marks {
                tone: Tone::Run(1),
                legend: "forecast with its 90 % interval".into(),
                marks: marks.collect(),
            }),
        ],
    }
}

/// Every forecast beside what came.
pub fn table(axis: Axis, forecasts: &[Checked]) -> Table {
    let columns = ["step", axis.label(), "forecast at 2×", "came", "error", "inside", "ceiling"];
    let rows = spread(forecasts, MOST_ROWS).into_iter().map(|one| {
        let (value, low, high) = one.at_twice;
        let inside = match one.is_inside {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        vec![
            one.step.to_string(),
            short(one.compute),
            words::interval(value, low, high),
            one.measured.map_or("–".into(), |measured| format!("{measured:.3}")),
            one.measured.map_or(String::new(), |measured| format!("{:+.3}", value - measured)),
            inside.to_owned(),
            match one.ceiling {
                (value, low, Some(high)) => words::interval(value, low, high),
                (_, low, None) => format!("at least {low:.3}"),
            },
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let caption = if forecasts.len() > rows.len() {
        format!("{} of {} forecasts, evenly spread", rows.len(), forecasts.len())
    } else {
        String::new()
    };
    Table { caption, columns: columns.map(str::to_owned).to_vec(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_rollout::PolicyVersion;

    #[test]
    fn a_forecast_is_held_against_the_value_between_its_neighbours() {
        let point = |step: u64, pass_rate: f64| EvaluationPoint {
            run: String::new(),
            step,
            gpu_hours: 0.0,
            tokens: 0,
            flops: 0.0,
            pass_rate,
            samples: 100,
            at: None,
        };
        let points = [point(0, 0.1), point(10, 0.3), point(20, 0.5), point(30, 0.6)];
        let report = |step: u64| ForecastReport {
            version: PolicyVersion(step),
            axis: Axis::Steps,
            compute: step as f64,
            value: 0.0,
            gain: (0.0, 0.0, 0.0),
            at_twice: (0.55, 0.54, 0.6),
            ceiling: (0.7, 0.6, None),
            verdict: Verdict::Bounded,
            history: None,
        };
        let found = checked(&report(12), &points);
        assert!((found.measured.unwrap() - 0.54).abs() < 1e-12);
        assert_eq!(found.is_inside, Some(true));
        assert_eq!(found.last_value, Some(0.3));
        assert_eq!(checked(&report(20), &points).measured, None, "the run ended before");
        let text = sentences(&[found, checked(&report(20), &points)]).remove(0);
        assert!(
            text.starts_with("Of 2 live forecasts the run has reached twice the compute of 1: 1")
        );
    }
}

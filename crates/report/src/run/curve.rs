//! Pass rate against compute: the fit of everything measured, and the half-time backtest.

use scalerl_board::number::short;
use scalerl_board::plots::{self, Captions};
use scalerl_board::{Block, Section, Table};
use scalerl_curve::{Backtest, Fit, FitOptions, Forecast};
use scalerl_journal::EvaluationPoint;

use super::{
    halftime::{HalfTime, too_few},
    story::Story,
    trace::{self, spread},
};
use crate::{figures, words};

/// Forecast ahead by these factors.
const AHEAD: [f64; 2] = [2.0, 10.0];

/// The fit of all evaluations; the sentence says why there is none.
pub(crate) fn fit(story: &Story) -> Result<Fit, String> {
    let series = EvaluationPoint::series(&story.points, story.axis);
    let series = series.map_err(|error| error.to_string())?;
    scalerl_curve::fit(&series, &FitOptions::default()).map_err(|error| too_few(&error))
}

pub(crate) fn section(story: &Story, fit: &Result<Fit, String>) -> Section {
    let heading = "Pass rate against compute".to_owned();
    let blocks = match fit {
        Ok(fit) => fitted(story, fit),
        Err(_) if story.points.is_empty() => {
            vec![Block::Prose("Nothing was evaluated yet.".to_owned())]
        }
        Err(reason) => vec![
            Block::Prose(format!("No curve can be fitted yet: {reason}.")),
            Block::figure(plots::fit(&measured(story), &captions(story, String::new()))),
        ],
    };
    Section { heading, blocks }
}

fn fitted(story: &Story, fit: &Fit) -> Vec<Block> {
    let ahead: Vec<Forecast> =
        AHEAD.iter().map(|factor| fit.forecast(fit.last_compute() * *factor)).collect();
    let gain = words::gain(2.0, &fit.gain(2.0));
    let rows = ahead.iter().zip(AHEAD).map(|(forecast, factor)| {
        vec![
            short(forecast.at.0),
            format!("{factor}×"),
            words::interval(forecast.value, forecast.low, forecast.high),
        ]
    });
    let columns = [story.axis.label(), "times", "forecast"];
    // Ten times ahead would press the measurements into a corner.
    let mut drawn = figures::run(&story.name, fit, &ahead[..1]);
    drawn.points = spread(&drawn.points, trace::MOST_BINS);
    vec![
        Block::Headlines(vec![
            gain.clone(),
            format!("Verdict: {}. {}", fit.verdict, fit.verdict.advice()),
        ]),
        Block::figure(plots::fit(&drawn, &captions(story, gain))),
        Block::KeyValues(parameters(story, fit)),
        Block::Table(Table {
            caption: "Forecasts, 90 % intervals for one measurement".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }),
    ]
}

fn parameters(story: &Story, fit: &Fit) -> Vec<(String, String)> {
    let steepness = words::interval(fit.steepness.value, fit.steepness.low, fit.steepness.high);
    let midpoint = format!("{} {}", words::computes(&fit.midpoint), story.axis.label());
    let pairs = [
        ("ceiling", words::ceiling(&fit.ceiling)),
        ("steepness", steepness),
        ("midpoint", midpoint),
        ("floor", format!("{:.3} ({})", fit.floor.value, fit.floor.source)),
        ("fit", format!("{}, {} points, rmse {:.4}", fit.method, fit.used.len(), fit.rmse)),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

/// The points alone, where there is no curve.
fn measured(story: &Story) -> plots::RunCurve {
    let point = |point: &EvaluationPoint| plots::Measured {
        compute: point.compute(story.axis),
        value: point.pass_rate,
        role: scalerl_board::chart::Role::HeldOut,
    };
    let points = spread(&story.points, trace::MOST_BINS);
    plots::RunCurve {
        name: story.name.clone(),
        points: points.iter().map(point).collect(),
        ..plots::RunCurve::default()
    }
}

fn captions(story: &Story, subtitle: String) -> Captions {
    Captions {
        title: format!("Pass rate on {}", story.primary()),
        subtitle,
        compute: story.axis.label().to_owned(),
        value: "pass rate".to_owned(),
        interval: "90 %".to_owned(),
    }
}

pub(crate) fn half_time_section(story: &Story, test: &Result<HalfTime, String>) -> Section {
    let heading = "Forecast at half-time".to_owned();
    let test = match test {
        Ok(test) => test,
        Err(reason) => {
            let text = format!("The first half cannot be held against the second: {reason}.");
            return Section { heading, blocks: vec![Block::Prose(text)] };
        }
    };
    let forecast = test.fit.forecast(test.at);
    let mut drawn = figures::run(&story.name, &test.fit, &[forecast]);
    drawn.points = spread(&drawn.points, trace::MOST_BINS);
    let captions = Captions {
        title: "Fitted on the first half, forecast for the second".to_owned(),
        ..captions(story, String::new())
    };
    let rows = test.guesses.iter().map(|guess| {
        vec![
            guess.name.to_owned(),
            guess.forecast_text(),
            format!("{:.3}", test.measured),
            format!("{:+.3}", guess.error),
            guess.inside_text().to_owned(),
            format!("{:.3}", guess.mean_error),
        ]
    });
    let columns =
        ["", "forecast of the end", "measured", "error", "inside", "mean error, second half"];
    let rest = format!(
        "Fitted: {} evaluations up to {} {label}. After it: {}, {:.0} % of them inside the \
         sigmoid's interval. End: {} {label}. The fit called itself: {}.",
        test.fitted_points,
        short(test.fitted_until.0),
        test.later_points,
        test.later_inside * 100.0,
        short(test.at.0),
        test.verdict,
        label = story.axis.label(),
    );
    let table = Table {
        caption: "Forecasts made at half of the compute, 90 % intervals for one measurement".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    let blocks = vec![
        Block::Headlines(test.sentences()),
        Block::figure(plots::fit(&drawn, &captions)),
        Block::Table(table),
        Block::Prose(rest),
        Block::Table(parts(test)),
    ];
    Section { heading, blocks }
}

/// The end, forecast from growing parts of the run.
fn parts(test: &HalfTime) -> Table {
    let row = |part: &Backtest| {
        vec![
            format!("{:.0} %", part.fraction * 100.0),
            part.points.to_string(),
            words::interval(part.predicted, part.low, part.high),
            format!("{:+.3}", part.error),
            if part.covered { "yes" } else { "no" }.to_owned(),
            words::ceiling(&part.ceiling),
            part.verdict.to_string(),
        ]
    };
    let columns =
        ["fitted", "points", "forecast of the end", "error", "inside", "ceiling", "verdict"];
    Table {
        caption: "The end, forecast by the sigmoid from growing parts of the compute".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: test.parts.iter().map(row).collect(),
    }
}

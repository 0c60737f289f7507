//! The figures of the forecasting commands, from plain numbers.
//!
//! | figure | shows | made by |
//! |---|---|---|
//! | fit | one run: points used and left out, curve, band, ceiling, midpoint, forecasts | [`fit`] |
//! | compare | many runs in one figure | [`compare`] |
//! | slopes | leave-one-out: log F(R) against log C, lines of slope B | [`slopes`] |
//! | backtest | forecasts made from early points against what came | [`backtest`] |
//! | agreement | forecast against measured, many forecasts of many runs | [`agreement`] |
//!
//! Not here: any fitting. Curves and bands come as sampled points, so every law can be drawn.

use crate::chart::{
    Axis, Band, Dot, Figure, Layer, Level, Line, Mark, Marks, Points, Role, Rule, Stroke, Tone,
};
use crate::number::short;

/// One evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Compute spent until then.
    pub compute: f64,
    /// What was measured.
    pub value: f64,
    /// What the point was to the fit.
    pub role: Role,
}

/// One place on a fitted curve with its interval; `low` and `high` are NaN where there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Compute.
    pub compute: f64,
    /// Value of the law.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// A fitted ceiling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Best value; not shown when the ceiling is not bounded.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Whether the data bound it from above.
    pub bounded: bool,
}

/// One run and what is known of its curve.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunCurve {
    /// Name, as in the legend.
    pub name: String,
    /// Measurements in any order.
    pub points: Vec<Measured>,
    /// The fitted curve by rising compute; empty where there is no fit.
    pub curve: Vec<CurvePoint>,
    /// The ceiling.
    pub ceiling: Option<Ceiling>,
    /// Compute at which half of the gain is reached.
    pub midpoint: Option<f64>,
    /// Compute at which the fitted window ends; the curve is dashed beyond.
    pub fitted_until: Option<f64>,
    /// Forecasts that were asked for.
    pub forecasts: Vec<CurvePoint>,
}

/// What the figures of one command have in common.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Captions {
    /// Bold line at the top.
    pub title: String,
    /// Smaller text below it: the verdict, the stop-or-scale line.
    pub subtitle: String,
    /// Name of the compute axis, e.g. "GPU-hours".
    pub compute: String,
    /// Name of the value axis, e.g. "pass rate".
    pub value: String,
    /// How sure an interval is, e.g. "90 %".
    pub interval: String,
}

/// One run with everything that the fit says about it.
pub fn fit(run: &RunCurve, captions: &Captions) -> Figure {
    let tone = Tone::Run(0);
    let mut layers = Vec::new();
    layers.extend(run.ceiling.map(|ceiling| {
        Layer::Level(Level { tone: Tone::Run(1), ..ceiling_level(ceiling, &captions.interval) })
    }));
    layers.push(band(run, tone, format!("{} interval", captions.interval)));
    layers.extend(run.midpoint.map(|x| {
        let label = format!("midpoint {}", short(x));
        Layer::Rule(Rule { tone: Tone::Neutral, x, label })
    }));
    layers.extend(run.fitted_until.map(|x| {
        let label = format!("fitted until {}", short(x));
        Layer::Rule(Rule { tone: Tone::Neutral, x, label })
    }));
    layers.extend(curve(run, tone, ["fitted curve", "extrapolated"]));
    layers.push(probes(run, tone));
    for (role, legend) in [
        (Role::LeftOut, "left out"),
        (Role::Used, "used by the fit"),
        (Role::HeldOut, "measured beyond the fit"),
    ] {
        layers.push(points(run, tone, role, legend));
    }
    layers.push(forecasts(run, tone, "forecast", Labelled::Yes));
    figure(captions, layers)
}

/// Bands and ceilings of more runs than this make mud.
const MOST_DETAILED: usize = 6;

/// Many runs in one figure; with more than six, intervals and ceilings are left to tables and
/// hover texts.
pub fn compare(runs: &[RunCurve], captions: &Captions) -> Figure {
    let mut layers = Vec::new();
    let detailed = if runs.len() > MOST_DETAILED { &[][..] } else { runs };
    for (index, run) in detailed.iter().enumerate() {
        layers.push(band(run, Tone::Run(index), String::new()));
    }
    for (index, run) in detailed.iter().enumerate() {
        let tone = Tone::Run(index);
        // The intervals of several ceilings on top of each other say nothing.
        let bounded = run.ceiling.filter(|ceiling| ceiling.bounded);
        layers.extend(bounded.map(|ceiling| {
            let (value, label) = (Some(ceiling.value), format!("{:.3}", ceiling.value));
            Layer::Level(Level { tone, value, interval: None, label, legend: run.name.clone() })
        }));
    }
    for (index, run) in runs.iter().enumerate() {
        let tone = Tone::Run(index);
        layers.extend(curve(run, tone, [&run.name, ""]));
        layers.push(probes(run, tone));
        layers.push(points(run, tone, Role::LeftOut, ""));
        layers.push(points(run, tone, Role::Used, &run.name));
        layers.push(points(run, tone, Role::HeldOut, ""));
        layers.push(forecasts(run, tone, "", Labelled::No));
    }
    figure(captions, layers)
}

/// One run of the leave-one-out plot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slope {
    /// Name, as in the legend.
    pub name: String,
    /// Compute and F(R) of each point that was used; zero and less are skipped.
    pub points: Vec<(f64, f64)>,
    /// The steepness B: the slope of the line in log-log.
    pub steepness: f64,
    /// A point the line goes through, compute and F(R).
    pub through: (f64, f64),
}

/// The leave-one-out plot: straight lines whose slope is the steepness.
pub fn slopes(runs: &[Slope], captions: &Captions) -> Figure {
    let mut layers = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let tone = Tone::Run(index);
        let legend = format!("{}, B = {:.2}", run.name, run.steepness);
        let computes = run.points.iter().map(|point| point.0).filter(|x| *x > 0.0);
        let low = computes.clone().fold(f64::INFINITY, f64::min);
        let high = computes.fold(0.0, f64::max);
        let value = |x: f64| run.through.1 * (x / run.through.0).powf(run.steepness);
        if low < high {
            let points = vec![(low, value(low)), (high, value(high))];
            let stroke = Stroke::Solid;
            layers.push(Layer::Line(Line { tone, stroke, legend: legend.clone(), points }));
        }
        // Zero has no place on a logarithmic axis, and the law is zero there.
        let dots = run.points.iter().filter(|point| point.0 > 0.0).map(|(x, y)| Dot {
            x: *x,
            y: *y,
            hover: format!("{}\n{}: {}\nF(R) {}", run.name, captions.compute, short(*x), short(*y)),
        });
        let dots = dots.collect();
        layers.push(Layer::Points(Points { tone, role: Role::Used, legend, dots }));
    }
    let mut figure = figure(captions, layers);
    figure.y.scale = crate::chart::Scale::Log;
    figure
}

/// One fit of a backtest: what was forecast from the first part of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Window {
    /// Name, e.g. "25 %".
    pub name: String,
    /// Compute at which the fitted window ends.
    pub fitted_until: f64,
    /// The fitted curve with its interval, over the whole run.
    pub curve: Vec<CurvePoint>,
}

/// Forecasts from growing parts of a run against what was measured.
pub fn backtest(points: &[Measured], windows: &[Window], captions: &Captions) -> Figure {
    let mut layers = Vec::new();
    for (index, window) in windows.iter().enumerate() {
        let tone = Tone::Run(index);
        let (_, ahead) = cut_at(&window.curve, window.fitted_until);
        let legend = format!("forecast from {}", window.name);
        let run = RunCurve { name: legend.clone(), curve: ahead, ..RunCurve::default() };
        layers.push(band(&run, tone, legend.clone()));
        layers.extend(curve(&run, tone, [&legend, ""]));
        layers.push(probes(&run, tone));
        let label = window.name.clone();
        layers.push(Layer::Rule(Rule { tone, x: window.fitted_until, label }));
    }
    let run = RunCurve { points: points.to_vec(), ..RunCurve::default() };
    for (role, legend) in
        [(Role::LeftOut, "left out"), (Role::HeldOut, "measured"), (Role::Used, "measured")]
    {
        layers.push(match self::points(&run, Tone::Neutral, role, legend) {
            // Every point is measured, some before one window's end and some after: one style.
            Layer::Points(points) if role == Role::HeldOut => {
                Layer::Points(Points { role: Role::Used, ..points })
            }
            other => other,
        });
    }
    figure(captions, layers)
}

/// One forecast and what came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Which run, and from how much of it.
    pub name: String,
    /// Forecast value.
    pub predicted: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// What was measured.
    pub actual: f64,
}

/// Forecast against measured: on the diagonal the forecast was right. Each group (a fraction, a
/// method) has its own colour, and is set aside a little so that forecasts of one value do not
/// cover each other.
pub fn agreement(groups: &[(String, Vec<Outcome>)], captions: &Captions) -> Figure {
    let all = groups.iter().flat_map(|group| &group.1);
    let values = all.flat_map(|outcome| [outcome.predicted, outcome.actual]);
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut layers = vec![Layer::Line(Line {
        stroke: Stroke::Dotted,
        legend: "forecast = measured".into(),
        points: vec![(low, low), (high, high)],
        ..Line::default()
    })];
    for (index, (legend, outcomes)) in groups.iter().enumerate() {
        let aside = (index as f64 - (groups.len() as f64 - 1.0) / 2.0) * 0.008 * (high - low);
        let marks = outcomes.iter().map(|outcome| Mark {
            x: outcome.actual + aside,
            y: outcome.predicted,
            low: outcome.low,
            high: outcome.high,
            label: String::new(),
            hover: format!(
                "{}\nforecast {}\nmeasured {:.3}",
                outcome.name,
                interval_text(outcome.predicted, outcome.low, outcome.high),
                outcome.actual
            ),
        });
        let marks = marks.collect();
        let legend = legend.clone();
        layers.push(Layer::Marks(Marks { tone: Tone::Run(index), legend, marks }));
    }
    let mut figure = figure(captions, layers);
    figure.x = Axis::linear(format!("measured {}", captions.value));
    figure.y = Axis::linear(format!("forecast {}", captions.value));
    figure
}

fn figure(captions: &Captions, layers: Vec<Layer>) -> Figure {
    Figure {
        title: captions.title.clone(),
        subtitle: captions.subtitle.clone(),
        x: Axis::log(&captions.compute),
        y: Axis::linear(&captions.value),
        layers,
    }
}

fn ceiling_level(ceiling: Ceiling, interval: &str) -> Level {
    if ceiling.bounded {
        Level {
            value: Some(ceiling.value),
            interval: Some((ceiling.low, ceiling.high)),
            label: format!(
                "ceiling {:.3}\n[{:.3}, {:.3}]",
                ceiling.value, ceiling.low, ceiling.high
            ),
            ..Level::default()
        }
    } else {
        let least =
            if interval.is_empty() { String::new() } else { format!("\n≥ {:.3}", ceiling.low) };
        Level {
            value: None,
            interval: Some((ceiling.low, f64::INFINITY)),
            label: format!("ceiling\nnot bounded{least}"),
            ..Level::default()
        }
    }
}

fn band(run: &RunCurve, tone: Tone, legend: String) -> Layer {
    let points: Vec<_> = run
        .curve
        .iter()
        .filter(|point| !point.low.is_nan() && !point.high.is_nan())
        .map(|point| (point.compute, point.low, point.high))
        .collect();
    let legend = if points.is_empty() { String::new() } else { legend };
    Layer::Band(Band { tone, legend, points })
}

/// The fitted piece and the extrapolated piece of a curve, with their legends.
fn curve(run: &RunCurve, tone: Tone, legends: [&str; 2]) -> Vec<Layer> {
    let (inside, beyond) = cut_at(&run.curve, run.fitted_until.unwrap_or(f64::INFINITY));
    let pieces = [(inside, Stroke::Solid, legends[0]), (beyond, Stroke::Dashed, legends[1])];
    pieces
        .into_iter()
        .filter(|(points, ..)| points.len() > 1)
        .map(|(points, stroke, legend)| {
            let points = points.iter().map(|point| (point.compute, point.value)).collect();
            Layer::Line(Line { tone, stroke, legend: legend.to_owned(), points })
        })
        .collect()
}

/// Cuts a curve in two at a compute, with a point of its own there so that nothing is missing
/// between two samples (interpolated, straight on the log axis that curves are drawn on).
fn cut_at(curve: &[CurvePoint], at: f64) -> (Vec<CurvePoint>, Vec<CurvePoint>) {
    let (mut inside, mut beyond): (Vec<_>, Vec<_>) =
        curve.iter().copied().partition(|point| point.compute <= at);
    if let (Some(last), Some(first)) = (inside.last().copied(), beyond.first().copied()) {
        let share = (at / last.compute).ln() / (first.compute / last.compute).ln();
        let share = if share.is_finite() { share } else { 0.0 };
        let between = |a: f64, b: f64| a + (b - a) * share;
        let cut = CurvePoint {
            compute: at,
            value: between(last.value, first.value),
            low: between(last.low, first.low),
            high: between(last.high, first.high),
        };
        inside.push(cut);
        beyond.insert(0, cut);
    }
    (inside, beyond)
}

fn probes(run: &RunCurve, tone: Tone) -> Layer {
    let dots = run.curve.iter().map(|point| Dot {
        x: point.compute,
        y: point.value,
        hover: format!(
            "{}\nat {}: {}",
            run.name,
            short(point.compute),
            interval_text(point.value, point.low, point.high)
        ),
    });
    Layer::Points(Points { tone, role: Role::Probe, legend: String::new(), dots: dots.collect() })
}

fn points(run: &RunCurve, tone: Tone, role: Role, legend: &str) -> Layer {
    let dots = run.points.iter().filter(|point| point.role == role).map(|point| Dot {
        x: point.compute,
        y: point.value,
        hover: format!("{}\nat {}: measured {:.4}", run.name, short(point.compute), point.value)
            .trim_start()
            .to_owned(),
    });
    Layer::Points(Points { tone, role, legend: legend.to_owned(), dots: dots.collect() })
}

/// Whether forecasts have their numbers written beside them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Labelled {
    Yes,
    No,
}

fn forecasts(run: &RunCurve, tone: Tone, legend: &str, labelled: Labelled) -> Layer {
    let marks = run.forecasts.iter().map(|forecast| {
        let value = interval_text(forecast.value, forecast.low, forecast.high);
        Mark {
            x: forecast.compute,
            y: forecast.value,
            low: forecast.low,
            high: forecast.high,
            hover: format!("{}\nforecast at {}: {value}", run.name, short(forecast.compute)),
            label: if labelled == Labelled::Yes { value } else { String::new() },
        }
    });
    let marks: Vec<_> = marks.collect();
    let legend = if marks.is_empty() { String::new() } else { legend.to_owned() };
    Layer::Marks(Marks { tone, legend, marks })
}

fn interval_text(value: f64, low: f64, high: f64) -> String {
    if low.is_nan() || high.is_nan() {
        format!("{value:.3}")
    } else {
        format!("{value:.3} [{low:.3}, {high:.3}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Vec<CurvePoint> {
        let point = |(compute, value): &(f64, f64)| CurvePoint {
            compute: *compute,
            value: *value,
            low: f64::NAN,
            high: f64::NAN,
        };
        points.iter().map(point).collect()
    }

    fn lines(figure: &Figure) -> Vec<&Line> {
        let lines = figure.layers.iter();
        lines
            .filter_map(|layer| if let Layer::Line(line) = layer { Some(line) } else { None })
            .collect()
    }

    #[test]
    fn a_curve_is_solid_until_the_window_ends_and_dashed_from_the_same_point() {
        let run = RunCurve {
            curve: line(&[(1.0, 0.1), (100.0, 0.3), (10_000.0, 0.5)]),
            fitted_until: Some(1000.0),
            ..RunCurve::default()
        };
        let figure = fit(&run, &Captions::default());
        let [solid, dashed] = lines(&figure)[..] else { panic!("two pieces") };
        assert_eq!((solid.stroke, dashed.stroke), (Stroke::Solid, Stroke::Dashed));
        assert_eq!(solid.points.last(), dashed.points.first());
        let (compute, value) = dashed.points[0];
        assert!((compute - 1000.0).abs() < 1e-9 && (value - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_ceiling_that_is_not_bounded_is_never_drawn_as_a_number() {
        let ceiling = Ceiling { value: 0.987, low: 0.5, high: 1.0, bounded: false };
        let run = RunCurve { name: "run".into(), ceiling: Some(ceiling), ..RunCurve::default() };
        let captions = Captions { interval: "90 %".into(), ..Captions::default() };
        for figure in [fit(&run, &captions), compare(std::slice::from_ref(&run), &captions)] {
            for layer in &figure.layers {
                if let Layer::Level(level) = layer {
                    assert_eq!(level.value, None);
                    assert!(!level.label.contains("0.987"));
                }
            }
        }
    }

    #[test]
    fn slopes_are_straight_in_log_log() {
        let run = Slope {
            points: vec![(10.0, 5.0), (1000.0, 400.0), (0.0, 1.0)],
            steepness: 2.0,
            through: (10.0, 1.0),
            ..Slope::default()
        };
        let figure = slopes(&[run], &Captions::default());
        let points = &lines(&figure)[0].points;
        assert_eq!(points.len(), 2);
        assert!((points[1].1 / points[0].1 - 1e4).abs() < 1e-6);
    }
}

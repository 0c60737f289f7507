//! The half-time backtest: what would have been forecast from the first half of the compute, and
//! what came.
//!
//! The law that the live forecast uses stands beside two rivals: the power law, and the guess that
//! needs no fit, that the last value measured stays. Whichever comes nearest is said.

use rayon::prelude::*;
use scalerl_curve::{
    Backtest, Compute, Fit, FitError, FitOptions, HistoryEntry, Method, Series, Skipped, Verdict,
};
use scalerl_journal::EvaluationPoint;
use scalerl_recipe::Axis;
use serde::Serialize;

use super::story::Story;
use crate::words;

/// Share of the compute that is fitted.
const HALF: f64 = 0.5;
/// Shares from which the end is forecast beside it, to show how the forecast has grown.
const PARTS: [f64; 4] = [0.25, HALF, 0.75, 0.9];
/// Errors that differ by less than this are the same to a reader of three digits.
const SAME_ERROR: f64 = 5e-4;

/// One forecast of the end, made at half-time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Guess {
    /// Who made it.
    pub(crate) name: &'static str,
    pub(crate) predicted: f64,
    /// 90 % interval for one measurement, where the guess has one.
    pub(crate) interval: Option<(f64, f64)>,
    /// predicted - measured.
    pub(crate) error: f64,
    /// Was the measurement inside the interval?
    pub(crate) is_inside: Option<bool>,
    /// Mean absolute error over every point of the second half.
    pub(crate) mean_error: f64,
}

/// The whole test.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HalfTime {
    /// Compute of the last point that was fitted.
    pub(crate) fitted_until: Compute,
    /// Points fitted, and points after them.
    pub(crate) fitted_points: usize,
    pub(crate) later_points: usize,
    /// Compute and value of the last point.
    pub(crate) at: Compute,
    pub(crate) measured: f64,
    /// Standard error of that measurement from its own sample.
    pub(crate) measured_error: f64,
    /// Share of the later points inside the sigmoid's interval.
    pub(crate) later_inside: f64,
    /// What the fit said of itself.
    pub(crate) verdict: Verdict,
    /// The sigmoid first; the power law where it could be fitted; the last value.
    pub(crate) guesses: Vec<Guess>,
    /// The sigmoid's forecasts of the end from growing parts of the run.
    pub(crate) parts: Vec<Backtest>,
    #[serde(skip)]
    pub(crate) fit: Fit,
}

/// Runs the test; the sentence says why there is none.
pub(crate) fn test(story: &Story) -> Result<HalfTime, String> {
    // What the run's own forecasts learned from; a file that cannot be read does not keep the rest
    // from being reported.
    let history = story.folder.history().unwrap_or_default();
    tested(&story.points, story.axis, &history)
}

fn tested(
    points: &[EvaluationPoint],
    axis: Axis,
    history: &[HistoryEntry],
) -> Result<HalfTime, String> {
    let series = EvaluationPoint::series(points, axis).map_err(|error| error.to_string())?;
    let options = FitOptions { history, ..FitOptions::default() };
    // The farthest horizon is the last point.
    let backtest = |method, part| {
        let options = FitOptions { method, ..options };
        scalerl_curve::backtest(&series, &options, part, f64::INFINITY)
    };
    let sigmoid = backtest(options.method, HALF).map_err(|reason| why_not(&reason))?;
    let cut = FitOptions { until: Some(series.last_compute() * HALF), ..options };
    let fit = scalerl_curve::fit(&series, &cut).map_err(|error| too_few(&error))?;
    let mut guesses = vec![guess("sigmoid", &sigmoid)];
    guesses.extend(backtest(Method::PowerLaw, HALF).ok().map(|test| guess("power law", &test)));
    guesses.extend(last_value(&series, &sigmoid));
    let samples = points.last().map_or(1.0, |point| point.samples.max(1) as f64);
    Ok(HalfTime {
        fitted_until: sigmoid.fitted_until,
        fitted_points: sigmoid.points,
        later_points: sigmoid.rest_points,
        at: sigmoid.at,
        measured: sigmoid.actual,
        measured_error: (sigmoid.actual * (1.0 - sigmoid.actual) / samples).sqrt(),
        later_inside: sigmoid.rest_covered,
        verdict: sigmoid.verdict,
        guesses,
        parts: PARTS.par_iter().filter_map(|part| backtest(options.method, *part).ok()).collect(),
        fit,
    })
}

fn why_not(reason: &Skipped) -> String {
    match reason {
        Skipped::Fit(error) => too_few(error),
        _ => "nothing was measured in the second half".to_owned(),
    }
}

/// The words of the command line's own options would mislead here.
pub(crate) fn too_few(error: &FitError) -> String {
    match error {
        FitError::TooFewPoints { found, needed, .. } => {
            format!("{found} evaluations, a fit needs {needed}")
        }
        other => other.to_string(),
    }
}

fn guess(name: &'static str, test: &Backtest) -> Guess {
    Guess {
        name,
        predicted: test.predicted,
        interval: Some((test.low, test.high)),
        error: test.error,
        is_inside: Some(test.covered),
        mean_error: test.rest_error,
    }
}

fn last_value(series: &Series, test: &Backtest) -> Option<Guess> {
    let is_fitted = |compute: Compute| compute <= test.fitted_until;
    let last = series.points().iter().rev().find(|point| is_fitted(point.compute))?;
    let later: Vec<f64> = series
        .points()
        .iter()
        .filter(|point| !is_fitted(point.compute))
        .map(|point| (last.value - point.value).abs())
        .collect();
    Some(Guess {
        name: "last value stays",
        predicted: last.value,
        interval: None,
        error: last.value - test.actual,
        is_inside: None,
        mean_error: later.iter().sum::<f64>() / later.len().max(1) as f64,
    })
}

impl Guess {
    pub(crate) fn forecast_text(&self) -> String {
        match self.interval {
            Some((low, high)) => words::interval(self.predicted, low, high),
            None => format!("{:.3}", self.predicted),
        }
    }

    pub(crate) fn inside_text(&self) -> &'static str {
        match self.is_inside {
            Some(true) => "yes",
            Some(false) => "no",
            None => "–",
        }
    }
}

impl HalfTime {
    /// What came of it, in plain words.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let sigmoid = &self.guesses[0];
        let inside = match sigmoid.is_inside {
            Some(true) => "inside its 90 % interval",
            _ => "outside its 90 % interval",
        };
        let mut lines = vec![format!(
            "From the first half of the compute ({} evaluations) the curve forecast {} for the \
             end. Measured: {:.3} ± {:.3}. The forecast was {}, and the measurement lies {inside}.",
            self.fitted_points,
            sigmoid.forecast_text(),
            self.measured,
            self.measured_error,
            off(sigmoid.error),
        )];
        lines.push(self.nearest());
        lines
    }

    /// Which guess was nearest at the end.
    fn nearest(&self) -> String {
        let error = |guess: &Guess| guess.error.abs();
        let best = self.guesses.iter().min_by(|a, b| error(a).total_cmp(&error(b)));
        let Some(best) = best else { return String::new() };
        let sigmoid = &self.guesses[0];
        let others: Vec<String> = self.guesses[1..]
            .iter()
            .map(|guess| format!("{} {:.3} ({})", guess.name, guess.predicted, off(guess.error)))
            .collect();
        let verdict = if error(sigmoid) - error(best) < SAME_ERROR {
            "No rival came nearer".to_owned()
        } else {
            format!("Nearer came: {}", best.name)
        };
        format!("Beside it: {}. {verdict}.", others.join("; "))
    }
}

/// 0.012 too high.
pub(crate) fn off(error: f64) -> String {
    let size = format!("{:.3}", error.abs());
    if size == "0.000" {
        return "right to three digits".to_owned();
    }
    format!("{size} too {}", if error > 0.0 { "high" } else { "low" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_curve::Sigmoid;

    fn points(count: u64, value: impl Fn(f64) -> f64) -> Vec<EvaluationPoint> {
        (0..=count)
            .map(|step| EvaluationPoint {
                run: "run".into(),
                step,
                gpu_hours: step as f64 * 0.1,
                tokens: step * 1000,
                flops: step as f64 * 1e12,
                pass_rate: value(step as f64),
                samples: 4000,
                at: None,
            })
            .collect()
    }

    #[test]
    fn a_run_that_follows_the_law_is_forecast_better_than_by_its_last_value() {
        let law = Sigmoid { floor: 0.3, ceiling: 0.8, steepness: 1.5, midpoint: Compute(15.0) };
        let test =
            tested(&points(40, |step| law.value_at(Compute(step))), Axis::Steps, &[]).unwrap();
        assert_eq!((test.fitted_points, test.later_points), (21, 20));
        let names: Vec<&str> = test.guesses.iter().map(|guess| guess.name).collect();
        assert_eq!(names, ["sigmoid", "power law", "last value stays"]);
        assert_eq!(test.guesses[0].is_inside, Some(true));
        let sentences = test.sentences();
        assert!(sentences[0].contains("inside its 90 % interval"), "{sentences:?}");
        assert!(sentences[1].contains("No rival came nearer"), "{sentences:?}");
    }

    #[test]
    fn a_run_that_stops_rising_at_half_time_is_said_to_have_fooled_the_fit() {
        let value = |step: f64| 0.2 + 0.02 * step.min(20.0);
        let test = tested(&points(40, value), Axis::Steps, &[]).unwrap();
        let sentences = test.sentences();
        assert!(sentences[0].contains("too high"), "{sentences:?}");
        assert!(sentences[1].contains("Nearer came: last value stays"), "{sentences:?}");
    }

    #[test]
    fn a_run_without_enough_evaluations_gets_a_reason() {
        let reason = tested(&points(3, |_| 0.4), Axis::Steps, &[]).unwrap_err();
        assert_eq!(reason, "2 evaluations, a fit needs 3");
        assert_eq!(tested(&[], Axis::Steps, &[]).unwrap_err(), "no points");
    }
}

//! Fits as drawing data.

use scalerl_board::chart::Role;
use scalerl_board::plots::{Captions, Ceiling, CurvePoint, Measured, Run, Slope, Window};
use scalerl_curve::{Fit, Forecast, Series, SharedFit};

use super::runs::Labels;

/// Places at which a curve is drawn.
const SAMPLES: u32 = 120;

pub(crate) fn captions(labels: &Labels, title: &str, subtitle: String) -> Captions {
    Captions {
        title: title.to_owned(),
        subtitle,
        compute: labels.compute.clone(),
        value: labels.value.clone(),
        interval: "90 %".to_owned(),
    }
}

/// Everything a figure shows of one fit, drawn as far as the farthest point or forecast.
pub(crate) fn run(name: &str, fit: &Fit, forecasts: &[Forecast]) -> Run {
    let last = fit.last_compute();
    let left_out = fit.left_out.iter().map(|point| {
        let role = if point.compute > last { Role::HeldOut } else { Role::LeftOut };
        Measured { compute: point.compute, value: point.value, role }
    });
    let used = fit.used.iter().map(|point| Measured {
        compute: point.compute,
        value: point.value,
        role: Role::Used,
    });
    let points: Vec<Measured> = left_out.chain(used).collect();
    let measured_to = points.iter().map(|p| p.compute).fold(last, f64::max);
    let end = forecasts.iter().map(|f| f.at).fold(measured_to, f64::max);
    Run {
        name: name.to_owned(),
        points,
        curve: curve(fit, end),
        ceiling: Some(ceiling(fit)),
        midpoint: Some(fit.midpoint.value).filter(|midpoint| *midpoint < end),
        fitted_until: Some(last).filter(|last| *last < end),
        forecasts: forecasts.iter().map(curve_point).collect(),
    }
}

/// The leave-one-out line of one run.
pub(crate) fn slope(name: &str, shared: &SharedFit) -> Slope {
    let law = shared.law;
    Slope {
        name: name.to_owned(),
        points: shared.straightened.clone(),
        steepness: law.steepness,
        through: (law.midpoint, law.midpoint.powf(law.steepness)),
    }
}

/// What was forecast from the first part of a run, drawn to its end.
pub(crate) fn window(name: String, fit: &Fit, end: f64) -> Window {
    Window { name, fitted_until: fit.last_compute(), curve: curve(fit, end) }
}

/// The measurements of a whole run.
pub(crate) fn measured(series: &Series) -> Vec<Measured> {
    let point = |p: &scalerl_curve::Point| Measured {
        compute: p.compute,
        value: p.value,
        role: Role::Used,
    };
    series.points().iter().map(point).collect()
}

fn curve(fit: &Fit, end: f64) -> Vec<CurvePoint> {
    let start = fit.used.iter().map(|p| p.compute).find(|c| *c > 0.0).unwrap_or(end);
    let ratio = (end / start).ln() / f64::from(SAMPLES);
    (0..=SAMPLES)
        .map(|i| start * (ratio * f64::from(i)).exp())
        .map(|compute| {
            let forecast = fit.forecast(compute);
            CurvePoint {
                compute,
                value: forecast.value,
                low: forecast.curve_low,
                high: forecast.curve_high,
            }
        })
        .collect()
}

fn curve_point(forecast: &Forecast) -> CurvePoint {
    CurvePoint {
        compute: forecast.at,
        value: forecast.value,
        low: forecast.low,
        high: forecast.high,
    }
}

fn ceiling(fit: &Fit) -> Ceiling {
    let ceiling = fit.ceiling;
    Ceiling {
        value: ceiling.value,
        low: ceiling.low,
        high: ceiling.high.unwrap_or(f64::INFINITY),
        bounded: ceiling.bounded,
    }
}

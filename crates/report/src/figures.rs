//! Fits as drawing data.

use scalerl_board::chart::Role;
use scalerl_board::plots::{Captions, Ceiling, CurvePoint, Measured, RunCurve, Slope, Window};
use scalerl_curve::{Compute, Fit, Forecast, Series, SharedFit};

/// What the axes of a figure are called.
#[derive(Debug, Clone)]
pub struct Labels {
    /// Compute, with its unit.
    pub compute: String,
    /// What was measured.
    pub value: String,
}

/// Places at which a curve is drawn.
const SAMPLES: u32 = 120;
/// Measurements drawn at most: more hide each other.
const MOST_POINTS: usize = 2000;

pub fn captions(labels: &Labels, title: &str, subtitle: String) -> Captions {
    Captions {
        title: title.to_owned(),
        subtitle,
        compute: labels.compute.clone(),
        value: labels.value.clone(),
        interval: "90 %".to_owned(),
    }
}

/// Everything a figure shows of one fit, drawn as far as the farthest point or forecast.
pub fn run(name: &str, fit: &Fit, forecasts: &[Forecast]) -> RunCurve {
    let last = fit.last_compute();
    let left_out = fit.left_out.iter().map(|point| {
        let role = if point.compute > last { Role::HeldOut } else { Role::LeftOut };
        Measured { compute: point.compute.0, value: point.value, role }
    });
    let used = fit.used.iter().map(|point| Measured {
        compute: point.compute.0,
        value: point.value,
        role: Role::Used,
    });
    let points: Vec<Measured> = spread(&left_out.chain(used).collect::<Vec<_>>(), MOST_POINTS);
    let measured_to = points.iter().map(|p| p.compute).fold(last.0, f64::max);
    let end = Compute(forecasts.iter().map(|f| f.at.0).fold(measured_to, f64::max));
    RunCurve {
        name: name.to_owned(),
        points,
        curve: curve(fit, end),
        ceiling: Some(ceiling(fit)),
        midpoint: Some(fit.midpoint.value).filter(|midpoint| *midpoint < end).map(|c| c.0),
        fitted_until: Some(last).filter(|last| *last < end).map(|last| last.0),
        forecasts: forecasts.iter().map(curve_point).collect(),
    }
}

/// The leave-one-out line of one run.
pub fn slope(name: &str, shared: &SharedFit) -> Slope {
    let law = shared.law;
    Slope {
        name: name.to_owned(),
        points: shared.straightened.iter().map(|(compute, f)| (compute.0, *f)).collect(),
        steepness: law.steepness,
        through: (law.midpoint.0, law.midpoint.0.powf(law.steepness)),
    }
}

/// What was forecast from the first part of a run, drawn to its end.
pub fn window(name: String, fit: &Fit, end: Compute) -> Window {
    Window { name, fitted_until: fit.last_compute().0, curve: curve(fit, end) }
}

/// The measurements of a whole run.
pub fn measured(series: &Series) -> Vec<Measured> {
    let point = |p: &scalerl_curve::Point| Measured {
        compute: p.compute.0,
        value: p.value,
        role: Role::Used,
    };
    spread(series.points(), MOST_POINTS).iter().map(point).collect()
}

fn curve(fit: &Fit, end: Compute) -> Vec<CurvePoint> {
    let start = fit.used.iter().map(|p| p.compute).find(|c| c.is_positive()).unwrap_or(end);
    let ratio = (end / start).ln() / f64::from(SAMPLES);
    let computes = (0..=SAMPLES).map(|i| start * (ratio * f64::from(i)).exp());
    let point = |forecast: &Forecast| CurvePoint {
        compute: forecast.at.0,
        value: forecast.value,
        low: forecast.curve_low,
        high: forecast.curve_high,
    };
    fit.curve(computes).iter().map(point).collect()
}

/// At most `most` of the items, evenly spread, first and last among them.
pub fn spread<T: Clone>(items: &[T], most: usize) -> Vec<T> {
    if items.len() <= most || most < 2 {
        return items.to_vec();
    }
    (0..most).map(|index| items[index * (items.len() - 1) / (most - 1)].clone()).collect()
}

fn curve_point(forecast: &Forecast) -> CurvePoint {
    CurvePoint {
        compute: forecast.at.0,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_keeps_both_ends() {
        let items: Vec<u32> = (0..1000).collect();
        let found = spread(&items, 10);
        assert_eq!((found.len(), found[0], found[9]), (10, 0, 999));
        assert_eq!(spread(&items[..3], 10), [0, 1, 2]);
    }
}

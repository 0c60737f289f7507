//! Two runs side by side: a higher ceiling, a better efficiency, or no difference to be seen.
//!
//! The paper's rule: ceilings that differ by more than 0.02 are a ceiling effect; otherwise both
//! are fitted again with their mean ceiling held, and the steepness is compared. Ours adds
//! intervals: a difference counts only when its 90 % interval leaves out zero. And it looks at
//! the midpoint beside the steepness, because a run that needs twice the compute for the same
//! climb is less efficient however parallel the two curves are.

use std::fmt;

use serde::Serialize;

use crate::fit::paper::CEILING_MARGIN;
use crate::fit::{Estimate, Fit, FitError, FitOptions, Method, Warmup, fit};
use crate::law::Sigmoid;
use crate::points::Series;

/// What separates two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Separation {
    /// Their ceilings differ.
    Ceiling,
    /// Their ceilings do not, the way there does.
    Efficiency,
    /// Nothing that these points can show.
    Indistinguishable,
}

impl fmt::Display for Separation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ceiling => "ceiling",
            Self::Efficiency => "efficiency",
            Self::Indistinguishable => "indistinguishable",
        })
    }
}

/// The comparison of run `a` with run `b`; differences are a - b.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair {
    /// What separates them.
    pub verdict: Separation,
    /// A of a less A of b, each fitted alone.
    pub ceiling_difference: Estimate,
    /// The mean ceiling, held in the second fit.
    pub shared_ceiling: f64,
    /// B of a less B of b at the shared ceiling.
    pub steepness_difference: Estimate,
    /// C_mid of a over C_mid of b at the shared ceiling: below 1, a needs less compute.
    pub midpoint_ratio: Estimate,
}

/// One run of a leave-one-out table: its own fit beside the fit at the ceiling shared by all.
#[derive(Debug, Clone)]
pub struct SharedFit {
    /// The law at the shared ceiling.
    pub law: Sigmoid,
    /// B at the shared ceiling.
    pub steepness: Estimate,
    /// C_mid at the shared ceiling.
    pub midpoint: Estimate,
    /// (C, F(R)) of the points strictly between floor and shared ceiling: on the law F = C^B.
    pub straightened: Vec<(f64, f64)>,
}

/// Compares run `a` with run `b`, given the fits of both with the same options.
///
/// ```
/// use scalerl_curve::{FitOptions, Point, Separation, Series, Sigmoid, compare, fit};
/// let run = |ceiling: f64| {
///     let law = Sigmoid { floor: 0.4, ceiling, steepness: 1.9, midpoint: 100.0 };
///     let points = (1..60).map(|i| f64::from(i) * 10.0).map(|c| Point::new(c, law.value_at(c)));
///     Series::try_new(points.collect()).unwrap()
/// };
/// let (a, b) = (run(0.61), run(0.52));
/// let options = FitOptions::default();
/// let fits = (fit(&a, &options).unwrap(), fit(&b, &options).unwrap());
/// let pair = compare((&a, &fits.0), (&b, &fits.1), &options).unwrap();
/// assert_eq!(pair.verdict, Separation::Ceiling);
/// ```
pub fn compare(
    a: (&Series, &Fit),
    b: (&Series, &Fit),
    options: &FitOptions,
) -> Result<Pair, FitError> {
    let ceiling_difference = difference(ceiling_interval(a.1), ceiling_interval(b.1));
    let shared_ceiling = f64::midpoint(a.1.ceiling.value, b.1.ceiling.value);
    let held = FitOptions { ceiling: Some(shared_ceiling), ..*options };
    let (fit_a, fit_b) = (fit(a.0, &held)?, fit(b.0, &held)?);
    let steepness_difference = difference(fit_a.steepness, fit_b.steepness);
    let midpoint_ratio =
        difference(fit_a.midpoint.map(f64::ln), fit_b.midpoint.map(f64::ln)).map(f64::exp);
    let margin = CEILING_MARGIN * a.1.range.width();
    let is_ceiling = ceiling_difference.value.abs() > margin && !ceiling_difference.contains(0.0);
    let is_efficiency = !steepness_difference.contains(0.0) || !midpoint_ratio.contains(1.0);
    let verdict = match (is_ceiling, is_efficiency) {
        (true, _) => Separation::Ceiling,
        (false, true) => Separation::Efficiency,
        (false, false) => Separation::Indistinguishable,
    };
    Ok(Pair { verdict, ceiling_difference, shared_ceiling, steepness_difference, midpoint_ratio })
}

/// Fits every run again with the mean of their ceilings held: the leave-one-out table. Gives the
/// shared ceiling and one row a run. By least squares, as in the paper: a posterior's medians are
/// not one curve, and this table is drawn as lines through the points.
pub fn share_ceiling(
    runs: &[(&Series, &Fit)],
    options: &FitOptions,
) -> Result<(f64, Vec<SharedFit>), FitError> {
    let ceilings: f64 = runs.iter().map(|(_, fit)| fit.ceiling.value).sum();
    let shared = ceilings / runs.len().max(1) as f64;
    let row = |(series, own): &(&Series, &Fit)| {
        let found = fit_at_ceiling(series, own, shared, options)?;
        let law = Sigmoid {
            floor: found.floor.value,
            ceiling: shared,
            steepness: found.steepness.value,
            midpoint: found.midpoint.value,
        };
        let straightened = found
            .used
            .iter()
            .filter_map(|p| law.straighten(p.value).map(|f| (p.compute, f)))
            .collect();
        Ok(SharedFit { law, steepness: found.steepness, midpoint: found.midpoint, straightened })
    };
    Ok((shared, runs.iter().map(row).collect::<Result<_, FitError>>()?))
}

/// One run of that table, fitted to the points of its own fit. (Least squares alone would choose
/// anew: it took the climb of a run that then lies flat below the shared ceiling for warm-up, and
/// read the rest as one late rise.)
pub fn fit_at_ceiling(
    series: &Series,
    own: &Fit,
    ceiling: f64,
    options: &FitOptions,
) -> Result<Fit, FitError> {
    let method = match options.method {
        method if method.is_posterior() => Method::Profile,
        other => other,
    };
    let (floor, warmup) = (Some(options.floor_choice()), Warmup::Before(own.warmup_cut));
    fit(series, &FitOptions { ceiling: Some(ceiling), method, floor, warmup, ..*options })
}

fn ceiling_interval(fit: &Fit) -> Estimate {
    let high = fit.ceiling_high.max(fit.ceiling.value);
    Estimate { value: fit.ceiling.value, low: fit.ceiling.low, high }
}

/// a - b for independent estimates: half-widths add in squares, each end with its own.
fn difference(a: Estimate, b: Estimate) -> Estimate {
    let value = a.value - b.value;
    Estimate {
        value,
        low: value - (a.value - a.low).hypot(b.high - b.value),
        high: value + (a.high - a.value).hypot(b.value - b.low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::Point;

    /// Deterministic noise of standard deviation 0.004.
    fn run(law: &Sigmoid, phase: f64) -> Series {
        let last = 400.0;
        let noise = |i: u32| 0.004 * 2.0_f64.sqrt() * (f64::from(i) * 2.399_963 + phase).sin();
        let points = (1..=75).map(|i| {
            let compute = last * f64::from(i) / 75.0;
            Point { compute, value: law.value_at(compute) + noise(i), samples: Some(16_000.0) }
        });
        Series::try_new(points.collect()).unwrap()
    }

    fn compared(a: &Sigmoid, b: &Sigmoid) -> Pair {
        let (a, b) = (run(a, 0.0), run(b, 1.0));
        let options = FitOptions::default();
        let fits = (fit(&a, &options).unwrap(), fit(&b, &options).unwrap());
        compare((&a, &fits.0), (&b, &fits.1), &options).unwrap()
    }

    const BASE: Sigmoid = Sigmoid { floor: 0.4, ceiling: 0.61, steepness: 1.92, midpoint: 100.0 };

    #[test]
    fn a_lower_ceiling_is_a_ceiling_effect() {
        let pair = compared(&BASE, &Sigmoid { ceiling: 0.53, ..BASE });
        assert_eq!(pair.verdict, Separation::Ceiling);
        assert!(pair.ceiling_difference.contains(0.08), "{pair:?}");
    }

    #[test]
    fn another_steepness_at_the_same_ceiling_is_an_efficiency_effect() {
        let pair = compared(&BASE, &Sigmoid { steepness: 1.1, midpoint: 70.0, ..BASE });
        assert_eq!(pair.verdict, Separation::Efficiency, "{pair:?}");
        assert!(pair.steepness_difference.value > 0.0);
    }

    #[test]
    fn twice_the_midpoint_is_an_efficiency_effect() {
        let pair = compared(&BASE, &Sigmoid { midpoint: 180.0, ..BASE });
        assert_eq!(pair.verdict, Separation::Efficiency, "{pair:?}");
        assert!(pair.midpoint_ratio.high < 1.0);
    }

    #[test]
    fn two_runs_of_one_recipe_are_indistinguishable() {
        assert_eq!(compared(&BASE, &BASE).verdict, Separation::Indistinguishable);
    }

    #[test]
    fn a_straightened_run_has_the_slope_of_its_steepness() {
        let series = run(&BASE, 0.0);
        let options = FitOptions::default();
        let own = fit(&series, &options).unwrap();
        let (shared, rows) = share_ceiling(&[(&series, &own)], &options).unwrap();
        assert!((shared - own.ceiling.value).abs() < 1e-12);
        let middle: Vec<_> =
            rows[0].straightened.iter().filter(|(c, _)| (50.0..200.0).contains(c)).collect();
        let slope = (middle[middle.len() - 1].1 / middle[0].1).ln()
            / (middle[middle.len() - 1].0 / middle[0].0).ln();
        assert!((slope - rows[0].steepness.value).abs() < 0.3, "{slope}");
    }

    /// It climbs early, lies flat, and drifts up at the end.
    #[test]
    fn at_a_ceiling_above_its_own_a_run_keeps_the_midpoint_of_its_climb() {
        let values = [
            0.405, 0.458, 0.556, 0.612, 0.650, 0.681, 0.698, 0.708, 0.710, 0.693, 0.707, 0.718,
            0.717, 0.719, 0.717, 0.716, 0.705, 0.714, 0.711, 0.717, 0.702, 0.701, 0.720, 0.725,
            0.737, 0.740, 0.750, 0.746, 0.743, 0.733,
        ];
        let points = values.iter().enumerate().map(|(i, value)| Point {
            compute: 0.3 * i as f64,
            value: *value,
            samples: Some(4096.0),
        });
        let series = Series::try_new(points.collect()).unwrap();
        let own = fit(&series, &FitOptions::default()).unwrap();
        let found = fit_at_ceiling(&series, &own, 0.76, &FitOptions::default()).unwrap();
        assert!(found.midpoint.value < 1.2, "half the climb is done by then: {:?}", found.midpoint);
    }
}

//! Two runs side by side: who leads at equal compute, and whether by its ceiling or on the way.
//!
//! **The lead** comes first: the difference of the two curves at the compute that both have spent,
//! and at twice what the longer one has spent, each with the chance that `a` lies above `b`.
//!
//! **Its cause** only where the data tell. The paper's rule: ceilings that differ by more than 0.02
//! are a ceiling effect; otherwise both are fitted again with their mean ceiling held, and the
//! steepness is compared. Ours asks more: a difference counts only when its 90 % interval leaves
//! out zero; ceilings are shared only where they are more likely than not within twice the margin
//! of each other; and the midpoint is looked at beside the steepness, because a run that needs
//! twice the compute for the same climb is less efficient however parallel the two curves are.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::compute::Compute;
use crate::fit::paper::CEILING_MARGIN;
use crate::fit::{Estimate, Fit, FitError, fit};
use crate::law::Sigmoid;
use crate::normal::Mixture;
use crate::options::{FitOptions, Method, Warmup};
use crate::points::Series;

/// The lead is also forecast at so many times the compute of the longer run.
pub const AHEAD: f64 = 2.0;
/// Ceilings this likely to lie within twice the margin of each other are taken for one.
const LIKELY_SHARED: f64 = 0.5;

/// What separates two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Separation {
    /// Their ceilings differ.
    Ceiling,
    /// Their ceilings do not, the way there does.
    Efficiency,
    /// One leads, and these points do not tell why.
    Undecided,
    /// Nothing that these points can show.
    Indistinguishable,
}

impl fmt::Display for Separation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ceiling => "ceiling",
            Self::Efficiency => "efficiency",
            Self::Undecided => "undecided",
            Self::Indistinguishable => "indistinguishable",
        })
    }
}

/// How far run `a` lies above run `b` at one compute, as far as their curves are known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lead {
    /// The compute.
    pub at: Compute,
    /// a - b.
    pub difference: Estimate,
    /// The chance that a lies above b.
    pub chance: f64,
}

impl Lead {
    /// Does one of the two lead beyond doubt?
    pub fn is_clear(&self) -> bool {
        !self.difference.contains(0.0)
    }
}

/// The comparison of run `a` with run `b`; differences are a - b.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Pair {
    /// At the compute that both have spent.
    pub now: Lead,
    /// At [`AHEAD`] times what the longer one has spent.
    pub ahead: Lead,
    /// What separates them.
    pub verdict: Separation,
    /// A of a less A of b, each fitted alone.
    pub ceiling_difference: Estimate,
    /// The chance that their ceilings lie within twice the margin of each other.
    pub chance_of_shared_ceiling: f64,
    /// The mean ceiling, held in the second fit.
    pub shared_ceiling: f64,
    /// B of a less B of b at the shared ceiling.
    pub steepness_difference: Estimate,
    /// C_mid of a over C_mid of b at the shared ceiling: below 1, a needs less compute.
    pub midpoint_ratio: Estimate,
}

impl Pair {
    /// The same comparison with a verdict that rests on more than these two curves.
    #[must_use]
    pub fn with_verdict(self, verdict: Separation) -> Self {
        Self { verdict, ..self }
    }

    /// May the two be compared at one ceiling?
    pub fn shares_ceiling(&self) -> bool {
        self.chance_of_shared_ceiling >= LIKELY_SHARED
    }

    fn separation(&self, margin: f64) -> Separation {
        let difference = self.ceiling_difference;
        if difference.value.abs() > margin && !difference.contains(0.0) {
            return Separation::Ceiling;
        }
        let is_efficient =
            !self.steepness_difference.contains(0.0) || !self.midpoint_ratio.contains(1.0);
        if is_efficient && self.shares_ceiling() {
            Separation::Efficiency
        } else if self.now.is_clear() || self.ahead.is_clear() {
            Separation::Undecided
        } else {
            Separation::Indistinguishable
        }
    }
}

/// One run of a leave-one-out table: its own fit beside the fit at the ceiling shared by all.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SharedFit {
    /// The law at the shared ceiling.
    pub law: Sigmoid,
    /// B at the shared ceiling.
    pub steepness: Estimate,
    /// C_mid at the shared ceiling.
    pub midpoint: Estimate<Compute>,
    /// (C, F(R)) of the points strictly between floor and shared ceiling: on the law F = C^B.
    pub straightened: Vec<(Compute, f64)>,
}

/// How far `a` lies above `b` at one compute.
///
/// ```
/// use scalerl_curve::{Compute, FitOptions, Point, Series, Sigmoid, fit, lead};
/// let run = |ceiling: f64| {
///     let law = Sigmoid { floor: 0.4, ceiling, steepness: 1.9, midpoint: Compute(100.0) };
///     let points = (1..60)
///         .map(|i| Compute(f64::from(i) * 10.0))
///         .map(|compute| Point::new(compute, law.value_at(compute)));
///     fit(&Series::try_new(points.collect()).unwrap(), &FitOptions::default()).unwrap()
/// };
/// let found = lead(&run(0.61), &run(0.52), Compute(590.0));
/// assert!(found.chance > 0.99);
/// ```
pub fn lead(a: &Fit, b: &Fit, at: Compute) -> Lead {
    let difference = a.curve_at(at).minus(&b.curve_at(at));
    Lead { at, difference: difference.estimate(), chance: 1.0 - difference.cdf(0.0) }
}

/// Compares run `a` with run `b`, given the fits of both with the same options.
///
/// ```
/// use scalerl_curve::{Compute, FitOptions, Point, Separation, Series, Sigmoid, compare, fit};
/// let run = |ceiling: f64| {
///     let law = Sigmoid { floor: 0.4, ceiling, steepness: 1.9, midpoint: Compute(100.0) };
///     let points = (1..60)
///         .map(|i| Compute(f64::from(i) * 10.0))
///         .map(|compute| Point::new(compute, law.value_at(compute)));
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
    let margin = CEILING_MARGIN * a.1.range.width();
    let ceilings: Mixture = a.1.ceiling_distribution().minus(&b.1.ceiling_distribution());
    let shared_ceiling = f64::midpoint(a.1.ceiling.value, b.1.ceiling.value);
    let held = FitOptions { ceiling: Some(shared_ceiling), ..*options };
    let (fit_a, fit_b) = (fit(a.0, &held)?, fit(b.0, &held)?);
    let midpoints = (fit_a.midpoint.map(Compute::ln), fit_b.midpoint.map(Compute::ln));
    let (last_a, last_b) = (a.1.last_compute(), b.1.last_compute());
    let pair = Pair {
        now: lead(a.1, b.1, last_a.min(last_b)),
        ahead: lead(a.1, b.1, last_a.max(last_b) * AHEAD),
        verdict: Separation::Indistinguishable,
        ceiling_difference: ceilings.estimate(),
        chance_of_shared_ceiling: ceilings.cdf(2.0 * margin) - ceilings.cdf(-2.0 * margin),
        shared_ceiling,
        steepness_difference: difference(fit_a.steepness, fit_b.steepness),
        midpoint_ratio: difference(midpoints.0, midpoints.1).map(f64::exp),
    };
    Ok(pair.with_verdict(pair.separation(margin)))
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
    let is_posterior = options.method.is_posterior();
    let method = if is_posterior { Method::Profile } else { options.method };
    let (floor, warmup) = (Some(options.floor_choice()), Warmup::Before(own.warmup_cut));
    fit(series, &FitOptions { ceiling: Some(ceiling), method, floor, warmup, ..*options })
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
    fn run_until(law: &Sigmoid, phase: f64, last: f64) -> Series {
        let noise = |i: u32| 0.004 * 2.0_f64.sqrt() * (f64::from(i) * 2.399_963 + phase).sin();
        let points = (1..=75).map(|i| {
            let compute = Compute(last * f64::from(i) / 75.0);
            Point::new(compute, law.value_at(compute) + noise(i)).with_samples(16_000.0)
        });
        Series::try_new(points.collect()).unwrap()
    }

    fn run(law: &Sigmoid, phase: f64) -> Series {
        run_until(law, phase, 400.0)
    }

    fn compared_until(a: &Sigmoid, b: &Sigmoid, last: f64) -> Pair {
        let (a, b) = (run_until(a, 0.0, last), run_until(b, 1.0, last));
        let options = FitOptions::default();
        let fits = (fit(&a, &options).unwrap(), fit(&b, &options).unwrap());
        compare((&a, &fits.0), (&b, &fits.1), &options).unwrap()
    }

    fn compared(a: &Sigmoid, b: &Sigmoid) -> Pair {
        compared_until(a, b, 400.0)
    }

    const BASE: Sigmoid =
        Sigmoid { floor: 0.4, ceiling: 0.61, steepness: 1.92, midpoint: Compute(100.0) };

    #[test]
    fn a_lower_ceiling_is_a_ceiling_effect() {
        let pair = compared(&BASE, &Sigmoid { ceiling: 0.53, ..BASE });
        assert_eq!(pair.verdict, Separation::Ceiling);
        assert!(pair.ceiling_difference.contains(0.08), "{pair:?}");
    }

    #[test]
    fn another_steepness_at_the_same_ceiling_is_an_efficiency_effect() {
        let pair = compared(&BASE, &Sigmoid { steepness: 1.1, midpoint: Compute(70.0), ..BASE });
        assert_eq!(pair.verdict, Separation::Efficiency, "{pair:?}");
        assert!(pair.steepness_difference.value > 0.0);
    }

    #[test]
    fn twice_the_midpoint_is_an_efficiency_effect() {
        let pair = compared(&BASE, &Sigmoid { midpoint: Compute(180.0), ..BASE });
        assert_eq!(pair.verdict, Separation::Efficiency, "{pair:?}");
        assert!(pair.midpoint_ratio.high < 1.0);
    }

    #[test]
    fn two_runs_of_one_recipe_are_indistinguishable() {
        let pair = compared(&BASE, &BASE);
        assert_eq!(pair.verdict, Separation::Indistinguishable);
        assert!((0.1..0.9).contains(&pair.now.chance), "{pair:?}");
    }

    /// Short of twice the midpoint the ceilings are open: that one leads is all that can be said.
    #[test]
    fn another_ceiling_at_one_steepness_is_not_called_efficiency() {
        let high = Sigmoid { ceiling: 0.7, ..BASE };
        for last in [80.0, 120.0, 160.0, 250.0, 400.0] {
            let pair = compared_until(&high, &Sigmoid { ceiling: 0.6, ..BASE }, last);
            assert_ne!(pair.verdict, Separation::Efficiency, "until {last}: {pair:?}");
            assert!(pair.now.is_clear() && pair.now.chance > 0.95, "until {last}: {pair:?}");
        }
    }

    #[test]
    fn the_lead_is_where_the_curves_are() {
        let low = Sigmoid { ceiling: 0.53, ..BASE };
        let pair = compared(&BASE, &low);
        for lead in [pair.now, pair.ahead] {
            let truth = BASE.value_at(lead.at) - low.value_at(lead.at);
            assert!(lead.difference.contains(truth), "{lead:?} {truth}");
        }
        assert!((pair.ahead.at.0 - 800.0).abs() < 1e-9);
    }

    #[test]
    fn a_straightened_run_has_the_slope_of_its_steepness() {
        let series = run(&BASE, 0.0);
        let options = FitOptions::default();
        let own = fit(&series, &options).unwrap();
        let (shared, rows) = share_ceiling(&[(&series, &own)], &options).unwrap();
        assert!((shared - own.ceiling.value).abs() < 1e-12);
        let middle: Vec<_> =
            rows[0].straightened.iter().filter(|(c, _)| (50.0..200.0).contains(&c.0)).collect();
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
        let points = values
            .iter()
            .enumerate()
            .map(|(i, value)| Point::new(Compute(0.3 * i as f64), *value).with_samples(4096.0));
        let series = Series::try_new(points.collect()).unwrap();
        let own = fit(&series, &FitOptions::default()).unwrap();
        let found = fit_at_ceiling(&series, &own, 0.76, &FitOptions::default()).unwrap();
        let midpoint = found.midpoint.value;
        assert!(midpoint < Compute(1.2), "half the climb is done by then: {midpoint:?}");
    }
}

//! What the runs of a study say: a curve per variant, margins between seeds, verdicts.
//!
//! ```text
//! run ──whole fit──> A, B, C_mid          ──┐ spread between seeds
//!  └──first half──> forecast of the end   ──┴──> margins     (with runs that had ended by then)
//! variant = all points of its runs ──fit──> A, B, C_mid, at the shared A again ──> verdict
//! ```
//!
//! The verdict is `curve`'s: ceiling, efficiency, undecided or indistinguishable, with one demand
//! more: a lead whose cause is open must show in the measured ends too. Where
//! some variant has two seeds or more, a difference must also exceed the margin between runs
//! ([`Spread::margin`]); where none has, [`Margins`] is empty and a verdict rests on single runs.
//!
//! Curves that are compared are fitted by their own points alone: a history shared between variants
//! would make them alike.
//!
//! Runs that failed are left out of the fits. Runs that still go on are in, so a table made on the
//! way is provisional, and says so.

use std::collections::BTreeMap;

use rayon::prelude::*;
use scalerl_curve::{
    Compute, Estimate, Fit, FitOptions, Pair, Separation, Series, SharedFit, compare, fit,
    fit_at_ceiling, share_ceiling,
};
use scalerl_recipe::Axis;
use serde::Serialize;

use crate::{
    Budget,
    history::{Finished, finished, known_at},
    margin::Spread,
    prediction::{Ending, FITTED_SHARE, Prediction, fit_until},
    record::RunRecord,
};

/// One-sided 95 % of the normal distribution.
const NORMAL_95: f64 = 1.645;

/// A study in numbers.
#[derive(Debug, Default)]
pub struct Analysis {
    /// Each run by itself.
    pub runs: Vec<RunAnalysis>,
    /// Each variant that has a fit, base first.
    pub variants: Vec<VariantAnalysis>,
    /// The mean ceiling of the base and the variants that have no ceiling of their own.
    pub shared_ceiling: Option<f64>,
    /// How much seeds differ.
    pub margins: Margins,
}

/// One run.
#[derive(Debug)]
pub struct RunAnalysis {
    /// Its name.
    pub name: String,
    /// Its variant.
    pub variant: String,
    /// Its record.
    pub record: RunRecord,
    /// Its points.
    pub series: Option<Series>,
    /// The fit to all points.
    pub whole: Option<Fit>,
    /// The fit to the first half.
    pub half: Option<Fit>,
    /// The forecast of the end from the first half (or from all there is before that).
    pub prediction: Option<Prediction>,
    /// The measured end, once there is one.
    pub ending: Option<Ending>,
}

/// One variant: all its runs together.
#[derive(Debug)]
pub struct VariantAnalysis {
    /// Its name.
    pub name: String,
    /// Runs behind it.
    pub runs: usize,
    /// All points of its runs.
    pub series: Series,
    /// The fit to all points.
    pub fit: Fit,
    /// The fit to the first half.
    pub half: Option<Fit>,
    /// The fit at the shared ceiling; `None` with a ceiling of its own.
    pub shared: Option<SharedFit>,
    /// The mean end of its runs.
    pub end: Option<MeanEnd>,
    /// Has a race paused some of its runs? What is known of it is a part, and gets no verdict.
    pub is_paused: bool,
    /// Against the base; `None` for the base itself, and where one of the two is paused.
    pub comparison: Option<Comparison>,
}

/// The measured ends of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanEnd {
    /// Their mean.
    pub value: f64,
    /// Its standard error by sampling.
    pub error: f64,
    /// Runs that have ended.
    pub runs: usize,
}

/// A variant against the base; differences are variant less base.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The verdict.
    pub verdict: Separation,
    /// What the curves alone say.
    pub pair: Pair,
    /// Difference of the measured ends.
    pub end_difference: Option<Estimate>,
}

/// Spreads between runs that differ in their seed only.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Margins {
    /// Of A.
    pub ceiling: Option<Spread>,
    /// Of B at the shared ceiling.
    pub steepness: Option<Spread>,
    /// Of ln C_mid at the shared ceiling.
    pub midpoint: Option<Spread>,
    /// Of the measured end.
    pub end: Option<Spread>,
}

impl Analysis {
    /// Fits and compares; `order` has the variants, base first.
    pub fn of(records: &[RunRecord], order: &[String], budget: Budget) -> Self {
        let finished = finished(records);
        let runs: Vec<RunAnalysis> =
            records.par_iter().map(|record| RunAnalysis::of(record, &finished, budget)).collect();
        let variants: Vec<VariantAnalysis> =
            order.par_iter().filter_map(|name| VariantAnalysis::of(name, &runs)).collect();
        let base = order.first().and_then(|base| variants.iter().position(|v| v.name == *base));
        let mut analysis = Self { runs, variants, ..Self::default() };
        analysis.margins = analysis.spreads(None);
        let pairs = analysis.pairs(base);
        analysis.share(base, &pairs);
        analysis.margins = analysis.spreads(analysis.shared_ceiling);
        analysis.judge(base, &pairs);
        analysis
    }

    /// What a difference between the ends of two variants must exceed.
    pub fn end_margin(&self, a: &VariantAnalysis, b: &VariantAnalysis) -> f64 {
        end_margin(a, b, self.margins.end)
    }

    /// Each variant against the base by their curves alone.
    fn pairs(&self, base: Option<usize>) -> Vec<Option<Pair>> {
        let with_base = |(index, variant): (usize, &VariantAnalysis)| {
            let base = &self.variants[base.filter(|base| *base != index)?];
            if variant.is_paused || base.is_paused {
                return None;
            }
            let (one, other) = ((&variant.series, &variant.fit), (&base.series, &base.fit));
            compare(one, other, &FitOptions::default()).ok()
        };
        self.variants.par_iter().enumerate().map(with_base).collect()
    }

    /// Fits again at the mean ceiling of the base and the variants that have no ceiling of their
    /// own: at a ceiling that is not theirs, the steepness of the others means nothing.
    fn share(&mut self, base: Option<usize>, pairs: &[Option<Pair>]) {
        let base_runs = base.map_or(1, |base| self.variants[base].runs);
        let margins = self.margins;
        let sharing: Vec<usize> = (0..self.variants.len())
            .filter(|index| {
                let runs = (self.variants[*index].runs, base_runs);
                !self.variants[*index].is_paused
                    && !pairs[*index].is_some_and(|pair| has_own_ceiling(&pair, &margins, runs))
            })
            .collect();
        let fits: Vec<(&Series, &Fit)> = sharing
            .iter()
            .map(|index| (&self.variants[*index].series, &self.variants[*index].fit))
            .collect();
        let Ok((ceiling, shared)) = share_ceiling(&fits, &FitOptions::default()) else { return };
        self.shared_ceiling = (!fits.is_empty()).then_some(ceiling);
        for (index, shared) in sharing.into_iter().zip(shared) {
            self.variants[index].shared = Some(shared);
        }
    }

    fn judge(&mut self, base: Option<usize>, pairs: &[Option<Pair>]) {
        let Some(base) = base else { return };
        let found: Vec<Option<Comparison>> = self
            .variants
            .iter()
            .zip(pairs)
            .map(|(variant, pair)| {
                Some(Comparison::of((*pair)?, variant, &self.variants[base], &self.margins))
            })
            .collect();
        for (variant, comparison) in self.variants.iter_mut().zip(found) {
            variant.comparison = comparison;
        }
    }

    /// Spreads between seeds; those at the shared ceiling once there is one.
    fn spreads(&self, shared_ceiling: Option<f64>) -> Margins {
        let mut ceilings: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let (mut steep, mut middle, mut ends) =
            (ceilings.clone(), ceilings.clone(), ceilings.clone());
        // As `share_ceiling` fits the variants: the spreads are of its numbers.
        let at_shared = |run: &RunAnalysis| {
            let variant = self.variants.iter().find(|one| one.name == run.variant)?;
            let (Some(ceiling), Some(_)) = (shared_ceiling, &variant.shared) else { return None };
            let series = run.series.as_ref()?;
            fit_at_ceiling(series, &variant.fit, ceiling, &FitOptions::default()).ok()
        };
        for run in self.runs.iter().filter(|run| run.record.meta.is_finished) {
            let name = run.variant.as_str();
            if let Some(whole) = &run.whole {
                ceilings.entry(name).or_default().push(whole.ceiling.value);
            }
            if let Some(shared) = at_shared(run) {
                steep.entry(name).or_default().push(shared.steepness.value);
                middle.entry(name).or_default().push(shared.midpoint.value.ln());
            }
            if let Some(ending) = &run.ending {
                ends.entry(name).or_default().push(ending.value);
            }
        }
        let pooled = |groups: BTreeMap<&str, Vec<f64>>| {
            Spread::pooled(&groups.into_values().collect::<Vec<_>>())
        };
        Margins {
            ceiling: pooled(ceilings),
            steepness: pooled(steep),
            midpoint: pooled(middle),
            end: pooled(ends),
        }
    }
}

impl RunAnalysis {
    fn of(record: &RunRecord, finished: &[Finished<'_>], budget: Budget) -> Self {
        let axis = budget.axis;
        let series = record.series(axis).ok();
        let end = series.as_ref().and_then(|series| end_of(record, series, budget));
        let fits = series.as_ref().zip(end).map(|(series, end)| {
            let cut = end * FITTED_SHARE;
            let whole = fit(series, &FitOptions::default()).ok();
            let history = known_at(finished, record, record.measured_at(axis, cut));
            let options = FitOptions { history: &history, ..FitOptions::default() };
            (whole, fit_until(series, &options, cut).ok(), cut)
        });
        let (whole, half, cut) = fits.unwrap_or((None, None, Compute::ZERO));
        let ending = series
            .as_ref()
            .filter(|_| record.meta.is_finished)
            .and_then(|series| Ending::of(series, cut));
        let prediction = half.as_ref().zip(end).map(|(half, end)| {
            let computes = ending.as_ref().map_or(vec![end], |ending| ending.computes.clone());
            Prediction::read(half, &computes)
        });
        let (name, variant) = (record.meta.run.clone(), record.meta.variant.clone());
        let record = record.clone();
        Self { name, variant, record, series, whole, half, prediction, ending }
    }
}

/// Compute at the end of a run: measured, or as the budget says. Budgets of device-hours count
/// evaluations, curves do not, so the part of the time that was training is carried on.
fn end_of(record: &RunRecord, series: &Series, budget: Budget) -> Option<Compute> {
    let last = series.last_compute();
    if record.meta.is_finished {
        return Some(last).filter(|last| last.is_positive());
    }
    match budget.axis {
        Axis::DeviceHours if record.meta.device_hours > 0.0 && last.is_positive() => {
            Some((last * (budget.amount / record.meta.device_hours)).max(last))
        }
        _ => Some(Compute(budget.amount)),
    }
}

impl VariantAnalysis {
    fn of(name: &str, runs: &[RunAnalysis]) -> Option<Self> {
        let is_sound = |run: &&RunAnalysis| {
            run.variant == name && !run.record.meta.status.starts_with("failed")
        };
        let runs: Vec<&RunAnalysis> = runs.iter().filter(is_sound).collect();
        let points = runs.iter().filter_map(|run| run.series.as_ref());
        let points = points.flat_map(|series| series.points().to_vec()).collect();
        let series = Series::try_new(points).ok()?;
        let whole = fit(&series, &FitOptions::default()).ok()?;
        let until = series.last_compute() * FITTED_SHARE;
        let half = fit_until(&series, &FitOptions::default(), until).ok();
        let endings: Vec<&Ending> = runs.iter().filter_map(|run| run.ending.as_ref()).collect();
        let end = (!endings.is_empty()).then(|| {
            let count = endings.len() as f64;
            let squares = endings.iter().map(|ending| ending.error.unwrap_or(0.0).powi(2));
            MeanEnd {
                value: endings.iter().map(|ending| ending.value).sum::<f64>() / count,
                error: squares.sum::<f64>().sqrt() / count,
                runs: endings.len(),
            }
        });
        Some(Self {
            name: name.to_owned(),
            runs: runs.len(),
            series,
            fit: whole,
            half,
            shared: None,
            end,
            is_paused: runs.iter().any(|run| run.record.is_paused()),
            comparison: None,
        })
    }
}

/// Does a difference exceed the margin between seeds? Where that is not known, any does.
fn exceeds(difference: f64, spread: Option<Spread>, runs: (usize, usize)) -> bool {
    spread.is_none_or(|spread| difference.abs() > spread.margin(runs.0, runs.1))
}

fn has_own_ceiling(pair: &Pair, margins: &Margins, runs: (usize, usize)) -> bool {
    pair.verdict == Separation::Ceiling
        && exceeds(pair.ceiling_difference.value, margins.ceiling, runs)
}

impl Comparison {
    fn of(
        pair: Pair,
        variant: &VariantAnalysis,
        base: &VariantAnalysis,
        margins: &Margins,
    ) -> Self {
        let runs = (variant.runs, base.runs);
        let (steepness, midpoint) = (pair.steepness_difference, pair.midpoint_ratio);
        let is_steeper =
            !steepness.contains(0.0) && exceeds(steepness.value, margins.steepness, runs);
        let is_earlier =
            !midpoint.contains(1.0) && exceeds(midpoint.value.ln(), margins.midpoint, runs);
        let end_difference = end_difference(variant, base, margins.end);
        let leads = end_difference.is_some_and(|difference| !difference.contains(0.0));
        let verdict = if has_own_ceiling(&pair, margins, runs) {
            Separation::Ceiling
        } else if (is_steeper || is_earlier) && pair.shares_ceiling() {
            Separation::Efficiency
        } else if leads && pair.verdict != Separation::Indistinguishable {
            Separation::Undecided
        } else {
            Separation::Indistinguishable
        };
        Self { verdict, pair, end_difference }
    }
}

fn end_difference(
    variant: &VariantAnalysis,
    base: &VariantAnalysis,
    spread: Option<Spread>,
) -> Option<Estimate> {
    let (a, b) = (variant.end?, base.end?);
    let half_width = end_margin(variant, base, spread);
    let value = a.value - b.value;
    Some(Estimate { value, low: value - half_width, high: value + half_width })
}

/// The spread between seeds has the sampling noise in it; where seeds agree by luck, the noise
/// alone is the least that can be said. A variant that has not ended counts as one run.
fn end_margin(a: &VariantAnalysis, b: &VariantAnalysis, spread: Option<Spread>) -> f64 {
    let error = |one: &VariantAnalysis| one.end.map_or(0.0, |end| end.error);
    let runs = |one: &VariantAnalysis| one.end.map_or(1, |end| end.runs);
    let sampling = NORMAL_95 * error(a).hypot(error(b));
    sampling.max(spread.map_or(0.0, |spread| spread.margin(runs(a), runs(b))))
}

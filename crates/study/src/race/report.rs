//! How a race came out: who was paused when, what was saved, and who leads beyond the margins.
//!
//! The margins are those of a full study: a variant is behind only if its end, or the upper end of
//! its forecast where it was paused, lies below the leader's by more than [`Analysis::end_margin`].
//! All others are not told apart from the leader, however early they were paused.

use scalerl_recipe::Axis;
use serde::Serialize;

use super::{Decision, Judged};
use crate::analysis::{Analysis, RunAnalysis, VariantAnalysis};
use crate::{Budget, plan::is_of_sweep};

/// A race in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RaceReport {
    /// Each variant, as it was last judged.
    pub variants: Vec<VariantReport>,
    /// Share of the study's compute that was not spent, runs that failed left out.
    pub saved: f64,
    /// Runs that the compute saved went to.
    pub added_runs: usize,
    /// The highest measured end, once there is one.
    pub leader: Option<Leader>,
}

/// One variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantReport {
    /// What was decided of it last.
    pub judged: Judged,
    /// Share of its compute that its runs have spent.
    pub spent: f64,
    /// Has it runs that are paused?
    pub is_paused: bool,
    /// Expected loss of doing without all that are paused, when it was paused.
    pub loss: f64,
}

/// Who leads, and over whom.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Leader {
    /// Its name.
    pub variant: String,
    /// Its measured end.
    pub end: f64,
    /// Runs behind that.
    pub runs: usize,
    /// Variants that lie behind by more than the margin.
    pub ahead_of: Vec<String>,
    /// Variants that it cannot be told apart from.
    pub not_told_from: Vec<String>,
    /// Is it known how much seeds differ?
    pub knows_seeds: bool,
}

impl RaceReport {
    /// From the decisions of a race, of which there must be one, and what was measured.
    pub fn of(decisions: &[Decision], analysis: &Analysis, budget: Budget) -> Option<Self> {
        let last = decisions.last()?;
        let is_added = |run: &&RunAnalysis| {
            let own = (run.variant.clone(), run.record.meta.seed);
            last.added_seeds.contains(&own)
        };
        let raced: Vec<&RunAnalysis> = analysis
            .runs
            .iter()
            .filter(|run| !is_of_sweep(&run.name) && !is_added(run))
            .filter(|run| !run.record.meta.status.starts_with("failed"))
            .collect();
        let place = |judged: &Judged| {
            let own: Vec<&&RunAnalysis> =
                raced.iter().filter(|run| run.variant == judged.variant).collect();
            VariantReport {
                judged: judged.clone(),
                spent: mean(own.iter().map(|run| spent(run, budget))),
                is_paused: own.iter().any(|run| run.record.is_paused()),
                loss: loss_when_paused(decisions, &judged.variant),
            }
        };
        Some(Self {
            variants: last.variants.iter().map(place).collect(),
            saved: 1.0 - mean(raced.iter().map(|run| spent(run, budget))),
            added_runs: last.added_seeds.len(),
            leader: leader(last, analysis),
        })
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// Share of its budget that a run has spent.
fn spent(run: &RunAnalysis, budget: Budget) -> f64 {
    let meta = &run.record.meta;
    let amount = match budget.axis {
        _ if meta.is_finished => budget.amount,
        Axis::DeviceHours => meta.device_hours,
        axis => run.record.points.last().map_or(0.0, |last| last.compute(axis)),
    };
    (amount / budget.amount).clamp(0.0, 1.0)
}

fn loss_when_paused(decisions: &[Decision], variant: &str) -> f64 {
    let is_kept = |one: &Decision| one.of(variant).is_none_or(|judged| judged.is_kept);
    let since = decisions.iter().rposition(is_kept).map_or(0, |index| index + 1);
    decisions.get(since).map_or(0.0, |decision| decision.loss)
}

fn leader(last: &Decision, analysis: &Analysis) -> Option<Leader> {
    let ended = analysis.variants.iter().filter_map(|one| Some((one, one.end?)));
    let (first, end) = ended.max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let (mut ahead_of, mut not_told_from) = (Vec::new(), Vec::new());
    for judged in last.variants.iter().filter(|judged| judged.variant != first.name) {
        let other = analysis.variants.iter().find(|one| one.name == judged.variant);
        let is_behind = other.is_some_and(|other| is_behind(other, first, judged, analysis));
        let list = if is_behind { &mut ahead_of } else { &mut not_told_from };
        list.push(judged.variant.clone());
    }
    Some(Leader {
        variant: first.name.clone(),
        end: end.value,
        runs: end.runs,
        ahead_of,
        not_told_from,
        knows_seeds: analysis.margins.end.is_some(),
    })
}

/// Does a variant lie behind the first one by more than the margin between their ends?
fn is_behind(
    other: &VariantAnalysis,
    first: &VariantAnalysis,
    judged: &Judged,
    analysis: &Analysis,
) -> bool {
    let Some(end) = first.end else { return false };
    let at_most = match (other.end.filter(|_| !other.is_paused), judged.forecast) {
        (Some(end), _) => end.value,
        (None, Some(forecast)) => forecast.high,
        (None, None) => return false,
    };
    end.value - at_most > analysis.end_margin(first, other)
}

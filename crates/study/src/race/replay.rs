//! A race run again over curves that are known to their end: what it saves, and what it loses.
//!
//! Every run of the study was made in full, so what a rule would have stopped is known: **saved** is
//! the share of the compute that was not spent, **regret** the best end of all less the end of the
//! variant that the race would have named.
//!
//! Rivals: halving by current value (successive halving at a quarter, a half, three quarters) and
//! no stopping.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use scalerl_curve::HistoryEntry;

use super::{Contestant, Limits, Outlook, RUNGS, RacingRun, Stage, choose, next_to_run};
use crate::{
    history::{finished, known_at},
    plan::is_of_sweep,
    prediction::{Ending, FITTED_SHARE},
    record::RunRecord,
};

/// Rungs at which the rival halves the field.
const HALVING: [f64; 3] = [0.25, 0.5, 0.75];
const RUNG_COUNT: usize = RUNGS.len();

/// A study whose every run is known to its end.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Study and seed.
    pub name: String,
    /// What it is one of: a study, its sweeps, a kind of simulation.
    pub group: String,
    /// Its variants.
    pub contestants: Vec<Contestant>,
    /// What each measured at its end: by this a winner is named.
    pub measured: Vec<f64>,
    /// What each was worth at its end: by this regret is counted. Of recorded runs the same.
    pub worth: Vec<f64>,
    /// What is known at each rung, each forecast made once.
    outlooks: Vec<[OnceLock<Option<Outlook>>; RUNG_COUNT]>,
}

/// How a race is decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Every run to its end.
    NoStopping,
    /// The better half by the latest evaluation goes on.
    HalvingByValue,
    /// Paused while the expected loss stays within a limit; and back when the others disappoint.
    ExpectedLoss(Limits),
}

/// What a policy did.
#[derive(Debug, Clone, PartialEq)]
pub struct Raced {
    /// Share of the study's compute that was not spent.
    pub saved: f64,
    /// Best end of all less that of the winner.
    pub regret: f64,
    /// Index of the winner.
    pub winner: usize,
    /// Share of its compute that each variant was given.
    pub shares: Vec<f64>,
}

/// Many races together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many.
    pub races: usize,
    /// Mean share of the compute that was saved.
    pub saved: f64,
    /// Mean regret.
    pub regret: f64,
    /// Nine in ten lost no more.
    pub ninetieth: f64,
    /// The largest regret.
    pub largest: f64,
}

impl Summary {
    /// `None` of no race.
    pub fn of(raced: &[&Raced]) -> Option<Self> {
        let mut regrets: Vec<f64> = raced.iter().map(|one| one.regret).collect();
        regrets.sort_by(f64::total_cmp);
        let count = raced.len() as f64;
        Some(Self {
            races: raced.len(),
            saved: raced.iter().map(|one| one.saved).sum::<f64>() / count,
            regret: regrets.iter().sum::<f64>() / count,
            ninetieth: *regrets.get(((0.9 * count).ceil() as usize).checked_sub(1)?)?,
            largest: *regrets.last()?,
        })
    }
}

impl Replay {
    /// The races in recorded runs: the runs of one seed of a study, and the runs of one sweep.
    /// Forecasts may learn from runs that had ended before the first of them started.
    pub fn recorded(records: &[RunRecord]) -> Vec<Self> {
        let finished = finished(records);
        let mut groups: BTreeMap<(String, String), Vec<&RunRecord>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.meta.is_finished) {
            let meta = &record.meta;
            if meta.variant.is_empty() {
                continue;
            }
            let name = if is_of_sweep(&meta.run) {
                let name = format!("{}, sweep of {}", meta.study, meta.variant);
                (format!("{}, sweeps", meta.study), name)
            } else {
                (meta.study.clone(), format!("{}, seed {}", meta.study, meta.seed))
            };
            groups.entry(name).or_default().push(record);
        }
        let of_group = |(name, group): ((String, String), Vec<&RunRecord>)| {
            let start = group.iter().map(|one| one.meta.started_at).fold(f64::INFINITY, f64::min);
            let history = |record: &RunRecord| known_at(&finished, record, Some(start));
            Self::of(name, &group, history)
        };
        groups.into_iter().filter_map(of_group).collect()
    }

    /// `None` with fewer than two runs that have a measured end.
    fn of(
        (kind, name): (String, String),
        group: &[&RunRecord],
        history: impl Fn(&RunRecord) -> Vec<HistoryEntry>,
    ) -> Option<Self> {
        let (mut contestants, mut measured) = (Vec::new(), Vec::new());
        for record in group {
            let Ok(series) = record.series(record.axis()) else { continue };
            let end = series.last_compute();
            let Some(ending) = Ending::of(&series, end * FITTED_SHARE) else { continue };
            measured.push(ending.value);
            let runs = vec![RacingRun { series, end, history: history(record) }];
            let name =
                if is_of_sweep(&record.meta.run) { &record.meta.run } else { &record.meta.variant };
            contestants.push(Contestant { name: name.clone(), runs });
        }
        let worth = measured.clone();
        (contestants.len() > 1).then(|| Self::new((kind, name), contestants, measured, worth))
    }

    pub(super) fn new(
        (group, name): (String, String),
        contestants: Vec<Contestant>,
        measured: Vec<f64>,
        worth: Vec<f64>,
    ) -> Self {
        let outlooks = contestants.iter().map(|_| Default::default()).collect();
        Self { name, group, contestants, measured, worth, outlooks }
    }

    fn outlook(&self, index: usize, rung: usize) -> Option<Outlook> {
        let known =
            self.outlooks[index][rung].get_or_init(|| self.contestants[index].outlook(RUNGS[rung]));
        known.clone()
    }

    /// What the winner of this full study would have cost in another with the same variants, such as
    /// another seed: the best end there less its own. `None` where they do not share all.
    pub fn regret_in(&self, other: &Self) -> Option<f64> {
        let winner = self.race(Policy::NoStopping).winner;
        let names = |one: &Self| one.contestants.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let place = names(other).iter().position(|name| *name == self.contestants[winner].name)?;
        let best = other.worth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (names(self) == names(other)).then(|| best - other.worth[place])
    }

    /// What a policy would have done.
    pub fn race(&self, policy: Policy) -> Raced {
        let reached = match policy {
            Policy::NoStopping => vec![1.0; self.contestants.len()],
            Policy::HalvingByValue => self.halve(),
            Policy::ExpectedLoss(limits) => self.pause(limits),
        };
        self.judge(reached)
    }

    /// The highest measured end of those that ran to it wins.
    fn judge(&self, shares: Vec<f64>) -> Raced {
        let cost = |index: usize| self.contestants[index].runs.iter().map(|r| r.end.0).sum::<f64>();
        let all = 0..self.contestants.len();
        let total: f64 = all.clone().map(cost).sum();
        let spent: f64 = all.clone().map(|index| shares[index] * cost(index)).sum();
        let ended = all.filter(|index| shares[*index] >= 1.0);
        let winner = ended
            .max_by(|a, b| self.measured[*a].total_cmp(&self.measured[*b]))
            .expect("a race ends with one run at its end");
        let best = self.worth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Raced { saved: 1.0 - spent / total, regret: best - self.worth[winner], winner, shares }
    }

    fn halve(&self) -> Vec<f64> {
        let mut shares = vec![1.0; self.contestants.len()];
        let mut open: Vec<usize> = (0..shares.len()).collect();
        for rung in HALVING {
            let value = |index: &usize| {
                self.contestants[*index].runs[0].value_at(rung).unwrap_or(f64::NEG_INFINITY)
            };
            open.sort_by(|a, b| value(b).total_cmp(&value(a)));
            for index in open.split_off(open.len().div_ceil(2)) {
                shares[index] = rung;
            }
        }
        shares
    }

    fn pause(&self, limits: Limits) -> Vec<f64> {
        let count = self.contestants.len();
        let mut reached = vec![0; count];
        let mut kept = vec![true; count];
        let mut next: Vec<usize> = (0..count).collect();
        while !next.is_empty() {
            for index in next {
                reached[index] += 1;
            }
            let known: Option<Vec<Outlook>> =
                (0..count).map(|index| self.outlook(index, reached[index] - 1)).collect();
            // Nobody is paused before everyone can be forecast.
            if let Some(known) = known {
                let stage = |index: usize| match (kept[index], reached[index]) {
                    (false, _) => Stage::Paused,
                    (true, RUNG_COUNT) => Stage::Ended,
                    (true, _) => Stage::Open,
                };
                let stages: Vec<Stage> = (0..count).map(stage).collect();
                kept = choose(&known, &stages, limits).kept;
            }
            next = next_to_run(&kept, &reached, RUNG_COUNT);
        }
        reached.iter().map(|reached| RUNGS[reached - 1]).collect()
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;
    use crate::race::simulated::studies;

    const OURS: Policy = Policy::ExpectedLoss(crate::race::USUAL_LIMITS);

    #[test]
    fn no_stopping_saves_nothing_and_names_the_highest_end() {
        let study = &studies(3..4)[0];
        let raced = study.race(Policy::NoStopping);
        assert!(raced.saved.abs() < 1e-12);
        assert!(study.measured.iter().all(|end| *end <= study.measured[raced.winner]));
    }

    #[test]
    fn halving_leaves_one_of_eight_and_saves_as_much_as_the_arithmetic_says() {
        let raced = studies(3..4)[0].race(Policy::HalvingByValue);
        assert_eq!(raced.shares.iter().filter(|share| **share >= 1.0).count(), 1);
        // 4 · 1/4 + 2 · 1/2 + 1 · 3/4 + 1 of 8.
        assert!((raced.saved - (1.0 - 3.75 / 8.0)).abs() < 1e-12, "{raced:?}");
    }

    #[test]
    fn a_race_saves_compute_and_loses_little_of_the_best_end() {
        let studies = studies(2000..2003);
        let raced: Vec<Raced> = studies.par_iter().map(|study| study.race(OURS)).collect();
        let all = Summary::of(&raced.iter().collect::<Vec<_>>()).unwrap();
        assert!(all.saved > 0.3 && all.regret < 0.01, "{all:?}");
        for one in &raced {
            assert!(one.shares[one.winner] >= 1.0, "a winner has run to its end: {one:?}");
        }
    }

    #[test]
    fn a_summary_of_regrets() {
        let raced = |regret: f64| Raced { saved: 0.5, regret, winner: 0, shares: vec![1.0] };
        let many: Vec<Raced> = (0..10).map(|i| raced(f64::from(i) / 100.0)).collect();
        let all = Summary::of(&many.iter().collect::<Vec<_>>()).unwrap();
        assert!((all.regret - 0.045).abs() < 1e-12);
        assert!((all.ninetieth - 0.08).abs() < 1e-12 && (all.largest - 0.09).abs() < 1e-12);
        assert_eq!(Summary::of(&[]), None);
    }
}

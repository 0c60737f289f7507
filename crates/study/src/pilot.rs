//! What finished runs say about the noise of a task and the cost of a run: the pilot of a plan.

use std::collections::BTreeMap;

use scalerl_curve::{FIXED_PROMPTS, noise_over_binomial};
use scalerl_recipe::Axis;
use serde::Serialize;

use crate::margin::Spread;
use crate::plan::is_of_sweep;
use crate::power::Noise;
use crate::prediction::{Ending, FITTED_SHARE};
use crate::record::RunRecord;

/// Evaluations in the mean that an end is.
const ENDING: f64 = 3.0;
/// 10 % point of the normal distribution.
const NORMAL_10: f64 = -1.2816;

/// Pilot runs in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pilot {
    /// Finished runs.
    pub runs: usize,
    /// Completions of an evaluation of theirs.
    pub completions: f64,
    /// Their noise.
    pub noise: Noise,
    /// Runs whose scatter gave the noise of an evaluation; none: the usual one is taken.
    pub noise_runs: usize,
    /// Seeds beyond the first of each variant: what the spread rests on. `None` where it was given.
    pub freedom: Option<usize>,
    /// The spread between seeds could be as large as this (90 %).
    pub between_seeds_high: f64,
    /// What a run costs.
    pub cost: Cost,
}

/// What a run costs, on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// The compute axis of the curves.
    pub axis: Axis,
    /// Compute on it.
    pub compute: f64,
    /// Device-hours without evaluations.
    pub training_hours: f64,
    /// Device-hours of one graded completion.
    pub hours_per_completion: f64,
    /// Evaluations of a run.
    pub evaluations: f64,
}

impl Cost {
    /// Device-hours of so many runs with evaluations of a size.
    pub fn hours(&self, runs: u32, completions: f64) -> f64 {
        let evaluations = self.evaluations * completions * self.hours_per_completion;
        f64::from(runs) * (self.training_hours + evaluations)
    }
}

/// Why runs are no pilot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPilot {
    /// No finished run among them has an end.
    NoRuns,
    /// No variant has two seeds.
    OneSeed,
}

impl Pilot {
    /// From finished runs, those of sweeps left out; with a spread between seeds that is known from
    /// elsewhere, or read off variants with two seeds or more.
    pub fn of(records: &[RunRecord], between_seeds: Option<f64>) -> Result<Self, NoPilot> {
        let ended: Vec<(&RunRecord, Ending)> = records.iter().filter_map(ended).collect();
        if ended.is_empty() {
            return Err(NoPilot::NoRuns);
        }
        let count = ended.len() as f64;
        let rate = ended.iter().map(|(_, ending)| ending.value).sum::<f64>() / count;
        let last = |record: &RunRecord| record.points.last().map_or(1.0, |p| p.samples as f64);
        let completions = median(ended.iter().map(|(record, _)| last(record)).collect());
        let factors: Vec<f64> = ended
            .iter()
            .filter_map(|(record, _)| noise_over_binomial(&record.series(record.axis()).ok()?))
            .collect();
        let (noise_runs, over_binomial) = match factors.len() {
            0 => (0, FIXED_PROMPTS),
            runs => (runs, median(factors)),
        };
        let alone = Noise { rate, between_seeds: 0.0, over_binomial };
        let spread = match between_seeds {
            Some(_) => None,
            None => Some(spread(&ended).ok_or(NoPilot::OneSeed)?),
        };
        let without_noise = |deviation: f64| {
            let noise = alone.of_evaluation(completions).powi(2) / ENDING;
            (deviation.powi(2) - noise).max(0.0).sqrt()
        };
        let read_off = spread.map(|spread| without_noise(spread.deviation));
        let high = spread.map(|spread| without_noise(upper(&spread)));
        Ok(Self {
            runs: ended.len(),
            completions,
            noise: Noise { between_seeds: between_seeds.or(read_off).unwrap_or_default(), ..alone },
            noise_runs,
            freedom: spread.map(|spread| spread.freedom),
            between_seeds_high: between_seeds.or(high).unwrap_or_default(),
            cost: cost(&ended),
        })
    }
}

fn ended(record: &RunRecord) -> Option<(&RunRecord, Ending)> {
    if !record.meta.is_finished || is_of_sweep(&record.meta.run) {
        return None;
    }
    let series = record.series(record.axis()).ok()?;
    let ending = Ending::of(&series, series.last_compute() * FITTED_SHARE)?;
    Some((record, ending))
}

/// Between runs that share study and variant.
fn spread(ended: &[(&RunRecord, Ending)]) -> Option<Spread> {
    let mut groups: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for (record, ending) in ended.iter().filter(|(record, _)| !record.meta.variant.is_empty()) {
        let own = (record.meta.study.as_str(), record.meta.variant.as_str());
        groups.entry(own).or_default().push(ending.value);
    }
    Spread::pooled(&groups.into_values().collect::<Vec<_>>())
}

/// 90 % upper end of a standard deviation: s √(ν / χ²(.1, ν)), by Wilson and Hilferty.
fn upper(spread: &Spread) -> f64 {
    let freedom = spread.freedom as f64;
    let part = 2.0 / (9.0 * freedom);
    let chi_squared = match spread.freedom {
        // The approximation is off by a factor of three there.
        1 => 0.0158,
        _ => freedom * (1.0 - part + NORMAL_10 * part.sqrt()).powi(3),
    };
    spread.deviation * (freedom / chi_squared).sqrt()
}

fn cost(ended: &[(&RunRecord, Ending)]) -> Cost {
    let count = ended.len() as f64;
    let sum = |of: &dyn Fn(&RunRecord) -> f64| ended.iter().map(|(record, _)| of(record)).sum();
    let first = ended[0].0.axis();
    // Runs that were counted differently have device-hours in common.
    let is_shared = ended.iter().all(|(record, _)| record.axis() == first);
    let axis = if is_shared { first } else { Axis::DeviceHours };
    let training = |record: &RunRecord| record.points.last().map_or(0.0, |last| last.gpu_hours);
    let evaluating = |record: &RunRecord| (record.meta.device_hours - training(record)).max(0.0);
    let graded = |record: &RunRecord| record.points.iter().map(|p| p.samples as f64).sum::<f64>();
    let hours: f64 = sum(&evaluating);
    let completions: f64 = sum(&graded);
    let compute: f64 = sum(&|record| record.points.last().map_or(0.0, |last| last.compute(axis)));
    let training_hours: f64 = sum(&training);
    let evaluations: f64 = sum(&|record| record.points.len() as f64);
    Cost {
        axis,
        compute: compute / count,
        training_hours: training_hours / count,
        hours_per_completion: hours / completions.max(1.0),
        evaluations: evaluations / count,
    }
}

/// The middle value, the lower of two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, StudyFile, fake};

    /// Simulated runs: binomial noise, seeds 0.004 apart in their ceiling.
    fn records(seeds: &str) -> Vec<RunRecord> {
        let text = format!(
            "base = \"scalerl\"\nseeds = {seeds}\nbudget = {{ steps = 90 }}\n\
             evaluation.every_steps = 2\n"
        );
        let plan = Plan::of(&StudyFile::parse("s.toml", &text).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let run = |job: crate::Job| {
            let path = folder.path().join(&job.name);
            fake::run(&path, Some(&job.recipe), || fake::Next::GoOn).unwrap();
            let mut record = RunRecord::load(&path).unwrap();
            record.meta.variant = job.variant;
            record
        };
        plan.base().runs(None).unwrap().into_iter().map(run).collect()
    }

    #[test]
    fn noise_spread_and_cost_are_read_off_the_pilot() {
        let records = records("[1, 2, 3, 4, 5, 6, 7, 8]");
        let pilot = Pilot::of(&records, None).unwrap();
        assert_eq!((pilot.runs, pilot.noise_runs, pilot.freedom), (8, 8, Some(7)));
        // The simulation has binomial noise, and seeds that differ by 0.004.
        assert!((0.7..1.3).contains(&pilot.noise.over_binomial), "{pilot:?}");
        assert!(pilot.noise.between_seeds < 0.012, "{pilot:?}");
        assert!(pilot.between_seeds_high > pilot.noise.between_seeds);
        assert!(
            (pilot.cost.compute - records[0].points.last().unwrap().compute(records[0].axis()))
                .abs()
                < 1e-9
        );
    }

    #[test]
    fn one_seed_is_no_pilot_unless_the_spread_is_given() {
        let records = records("[1]");
        assert_eq!(Pilot::of(&records, None), Err(NoPilot::OneSeed));
        let pilot = Pilot::of(&records, Some(0.01)).unwrap();
        assert!((pilot.noise.between_seeds - 0.01).abs() < 1e-15);
        assert_eq!(Pilot::of(&[], None), Err(NoPilot::NoRuns));
    }

    /// Percentage points of the chi-squared distribution, as in any statistical table.
    #[test]
    fn the_upper_end_of_a_spread_is_that_of_chi_squared() {
        for (freedom, tenth) in [(1, 0.0158), (2, 0.2107), (5, 1.6103), (10, 4.8652), (30, 20.599)]
        {
            let spread = Spread { deviation: 1.0, largest: 1.0, freedom };
            let exact = (freedom as f64 / tenth).sqrt();
            assert!((upper(&spread) / exact - 1.0).abs() < 0.04, "{freedom}");
        }
    }
}

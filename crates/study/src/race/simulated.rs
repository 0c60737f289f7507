//! Simulated studies whose truth is known: eight variants, curves that cross, collapses among them.
//!
//! A study draws a task (floor, ceiling, speed); its variants share the floor and move the rest.
//! In a third of the studies speed and ceiling pull against each other, so that curves cross; one
//! variant in twelve falls after it has led. Each run drifts, its evaluations have the noise of fixed
//! prompts and now and then a dip, as recorded runs do. A variant is worth what its curve is at the
//! end, drift included, noise left out.

use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use rand_distr::{Bernoulli, Distribution as _, Normal, Uniform};
use scalerl_curve::{Compute, FIXED_PROMPTS, Point, Series};

use super::replay::Replay;
use super::{Contestant, RacingRun};

const VARIANTS: usize = 8;
const EVALUATIONS: u32 = 30;
const SAMPLES: f64 = 4096.0;
/// Evaluations that make up the measured end.
const ENDING: usize = 3;
/// Chance that a variant collapses, and that an evaluation dips.
const COLLAPSES: f64 = 1.0 / 12.0;
const DIPS: f64 = 0.03;
/// Drift of a run per √(e-fold of compute).
const DRIFT: f64 = 0.006;

/// The law of one variant; compute in shares of the budget.
#[derive(Debug, Clone, Copy)]
struct Law {
    floor: f64,
    ceiling: f64,
    steepness: f64,
    midpoint: f64,
    /// Exponent of the tail: 1 is the law itself, others rise faster or slower at the end.
    tail: f64,
    /// Where it begins to fall, and by how much in the end.
    collapse: Option<(f64, f64)>,
}

impl Law {
    fn value_at(&self, share: f64) -> f64 {
        let u = (share / self.midpoint).powf(self.steepness);
        let gained = 1.0 - (1.0 + u / self.tail).powf(-self.tail);
        let value = self.floor + (self.ceiling - self.floor) * gained;
        let lost = self.collapse.map_or(0.0, |(from, depth)| {
            // It takes a fifth of the budget to fall.
            depth * ((share - from) / 0.2).clamp(0.0, 1.0)
        });
        value - lost
    }
}

/// The studies of these numbers; the same number gives the same study.
pub fn studies(numbers: Range<u64>) -> Vec<Replay> {
    numbers.map(study).collect()
}

fn study(seed: u64) -> Replay {
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
    let floor = dice.between(0.15, 0.45);
    let task = Law {
        floor,
        ceiling: floor + dice.between(0.2, 0.45),
        steepness: dice.normal(1.5_f64.ln(), 0.25).exp(),
        midpoint: dice.normal(0.12_f64.ln(), 0.5).exp(),
        tail: [0.5, 1.0, 2.5][(seed % 3) as usize],
        collapse: None,
    };
    let crosses = dice.chance(1.0 / 3.0);
    let (mut contestants, mut measured, mut worth) = (Vec::new(), Vec::new(), Vec::new());
    let mut collapses = false;
    for index in 0..VARIANTS {
        let law = dice.variant(&task, crosses);
        collapses |= law.collapse.is_some();
        let (series, ending, truth) = dice.run(&law);
        measured.push(ending);
        worth.push(truth);
        let run = RacingRun { series, end: Compute(1.0), history: Vec::new() };
        contestants.push(Contestant { name: format!("v{index}"), runs: vec![run] });
    }
    let group = match (collapses, crosses) {
        (true, _) => "simulated, with a collapse",
        (false, true) => "simulated, curves cross",
        (false, false) => "simulated, others",
    };
    let names = (group.to_owned(), format!("simulated {seed}"));
    Replay::new(names, contestants, measured, worth)
}

struct Dice(ChaCha8Rng);

impl Dice {
    fn normal(&mut self, mean: f64, sd: f64) -> f64 {
        Normal::new(mean, sd).expect("a spread of zero or more").sample(&mut self.0)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        Uniform::new(low, high).expect("low is below high").sample(&mut self.0)
    }

    fn chance(&mut self, chance: f64) -> bool {
        Bernoulli::new(chance).expect("a chance").sample(&mut self.0)
    }

    fn variant(&mut self, task: &Law, crosses: bool) -> Law {
        let speed = self.normal(0.0, 0.4);
        let pulled = if crosses { -0.06 * speed } else { 0.0 };
        let mut law = Law {
            ceiling: (task.ceiling + pulled + self.normal(0.0, 0.02)).min(0.97),
            steepness: task.steepness * self.normal(0.0, 0.15).exp(),
            midpoint: task.midpoint * (-speed).exp(),
            ..*task
        };
        if self.chance(COLLAPSES) {
            // What learns too fast is what falls.
            law.midpoint *= 0.6;
            law.collapse = Some((self.between(0.3, 0.9), self.between(0.05, 0.2)));
        }
        law
    }

    /// Its evaluations, the mean of the last ones, and what it is worth at the end.
    fn run(&mut self, law: &Law) -> (Series, f64, f64) {
        let (mut points, mut truths, mut drift) = (Vec::new(), Vec::new(), 0.0);
        for step in 0..=EVALUATIONS {
            let share = f64::from(step) / f64::from(EVALUATIONS);
            if step > 1 {
                let folds = (f64::from(step) / f64::from(step - 1)).ln();
                drift += self.normal(0.0, DRIFT * folds.sqrt());
            }
            let truth = (law.value_at(share) + drift).clamp(0.01, 0.99);
            let noise = FIXED_PROMPTS * (truth * (1.0 - truth) / SAMPLES).sqrt();
            let dip = if self.chance(DIPS) { self.between(0.01, 0.05) } else { 0.0 };
            let value = (truth - dip + self.normal(0.0, noise)).clamp(0.0, 1.0);
            points.push(Point::new(Compute(share), value).with_samples(SAMPLES));
            truths.push(truth);
        }
        let last = points.len() - ENDING;
        let ending = points[last..].iter().map(|point| point.value).sum::<f64>() / ENDING as f64;
        let worth = truths[last..].iter().sum::<f64>() / ENDING as f64;
        (Series::try_new(points).expect("points inside [0, 1]"), ending, worth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_gives_the_same_study_and_others_differ() {
        let (a, b) = (studies(0..3), studies(0..3));
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(
                a.measured.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
                b.measured.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
            );
        }
        assert!((a[0].measured[0] - a[1].measured[0]).abs() > 1e-6);
    }

    /// What the page says of them: curves cross and some fall.
    #[test]
    fn curves_cross_and_collapses_are_among_them() {
        let studies = studies(0..60);
        let value = |one: &Contestant, share: f64| one.runs[0].value_at(share).unwrap();
        let best = |replay: &Replay, at: f64| {
            (0..VARIANTS)
                .max_by(|a, b| {
                    value(&replay.contestants[*a], at)
                        .total_cmp(&value(&replay.contestants[*b], at))
                })
                .unwrap()
        };
        let crossed = studies.iter().filter(|one| best(one, 0.25) != best(one, 1.0)).count();
        assert!((15..55).contains(&crossed), "{crossed}");
        let falls = |one: &Contestant| {
            let top = one.runs[0].series.points().iter().map(|p| p.value).fold(0.0, f64::max);
            top - value(one, 1.0) > 0.06
        };
        let fallen = studies.iter().flat_map(|one| &one.contestants).filter(|one| falls(one));
        let fallen = fallen.count();
        assert!((15..60).contains(&fallen), "{fallen} of 480");
    }
}

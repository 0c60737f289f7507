//! Whether the held-out pass rate has fallen, beyond noise.
//!
//! The mean of the last `w` evaluations is set against the best mean of `w` evaluations before them,
//! for w = 2, 4 and 8: a steep fall shows in two, a slow one in eight. The difference is divided by
//! its noise. Because the best of many is chosen by its luck too, the bar is high: by simulation,
//! fewer than 1 in 100 runs of 60 evaluations that stand still are told to have fallen, and fewer
//! that rise (`tests`).
//!
//! The noise of one evaluation is the larger of two: 0.6 of the binomial one (the prompts are the
//! same each time, so only the sampling of answers varies), and what the evaluations themselves show
//! from one to the next, by the median so that the fall does not hide itself.

use serde::{Deserialize, Serialize};

/// Evaluations that are averaged.
const WINDOWS: [usize; 3] = [2, 4, 8];
/// Noise of an evaluation as a share of the binomial one.
const FIXED_PROMPTS: f64 = 0.6;
/// Times the noise.
const BAR: f64 = 4.5;
/// A smaller fall matters to nobody.
const LEAST: f64 = 0.03;
/// Differences that tell the noise.
const ENOUGH: usize = 8;
/// A median absolute deviation as a standard deviation.
const MAD: f64 = 1.4826;

/// The evaluations of the primary set so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct HeldOut {
    pass_rates: Vec<f64>,
    samples: Vec<u64>,
}

/// A fall from `best` to `recent`, both means of several evaluations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fall {
    pub(super) best: f64,
    pub(super) recent: f64,
    pub(super) evaluations: usize,
}

impl HeldOut {
    /// Takes one more evaluation in, of at least one verdict.
    pub(super) fn push(&mut self, pass_rate: f64, samples: u64) {
        self.pass_rates.push(pass_rate);
        self.samples.push(samples);
    }

    /// The fall that stands out most, if any does.
    pub(super) fn fall(&self) -> Option<Fall> {
        let noise = self.noise();
        let falls = WINDOWS.iter().filter_map(|window| self.fall_of(*window, noise));
        falls.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(fall, _)| fall)
    }

    fn fall_of(&self, window: usize, noise: f64) -> Option<(Fall, f64)> {
        let before = self.pass_rates.len().checked_sub(window)?;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let best = self.pass_rates[..before].windows(window).map(mean).reduce(f64::max)?;
        let recent = mean(&self.pass_rates[before..]);
        let height = (best - recent) / (noise * (2.0 / window as f64).sqrt());
        let is_fall = best - recent >= LEAST && height >= BAR;
        is_fall.then_some((Fall { best, recent, evaluations: window }, height))
    }

    /// Standard deviation of one evaluation.
    fn noise(&self) -> f64 {
        let rates = self.pass_rates.iter().zip(&self.samples);
        let variance = rates.map(|(rate, samples)| {
            let samples = *samples as f64;
            (rate * (1.0 - rate)).max(1.0 / (samples + 2.0)) / samples
        });
        let binomial = (variance.sum::<f64>() / self.samples.len().max(1) as f64).sqrt();
        (FIXED_PROMPTS * binomial).max(self.wobble())
    }

    /// What the evaluations show from one to the next; 0 while they are few.
    fn wobble(&self) -> f64 {
        let steps: Vec<f64> = self.pass_rates.windows(2).map(|pair| pair[1] - pair[0]).collect();
        if steps.len() < ENOUGH {
            return 0.0;
        }
        let usual = median(steps.clone());
        let apart = steps.iter().map(|step| (step - usual).abs()).collect();
        MAD * median(apart) / 2.0_f64.sqrt()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(below, above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
    use rand_distr::{Distribution as _, Normal, Uniform};

    const SAMPLES: u64 = 512;

    /// After how many evaluations a fall is told; `rate` is the truth at each.
    fn told(rng: &mut ChaCha8Rng, count: usize, rate: impl Fn(usize) -> f64) -> Option<usize> {
        let mut held_out = HeldOut::default();
        (0..count).find(|at| {
            let rate = rate(*at);
            let noise = FIXED_PROMPTS * (rate * (1.0 - rate) / SAMPLES as f64).sqrt();
            held_out.push(Normal::new(rate, noise).unwrap().sample(rng), SAMPLES);
            held_out.fall().is_some()
        })
    }

    #[test]
    fn runs_that_rise_or_stand_still_are_left_alone() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut alarms = [0; 2];
        for _ in 0..500 {
            let ceiling = Uniform::new(0.3, 0.9).unwrap().sample(&mut rng);
            alarms[0] += usize::from(told(&mut rng, 60, |_| ceiling).is_some());
            let rising =
                |at: usize| 0.1 + (ceiling - 0.1) / (1.0 + (15.0 / (at as f64 + 1.0)).powf(1.5));
            alarms[1] += usize::from(told(&mut rng, 60, rising).is_some());
        }
        assert!(alarms[0] <= 4 && alarms[1] <= 2, "{alarms:?} of 500 each");
    }

    #[test]
    fn a_fall_is_told_within_a_few_evaluations() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        // From 0.52 to 0.39 over five evaluations, as a run at too high a rate did; and by 0.06 at once.
        let slow = |at: usize| 0.52 - 0.026 * (at as f64 - 29.0).clamp(0.0, 5.0);
        let step = |at: usize| if at < 30 { 0.52 } else { 0.46 };
        for (what, rate, most) in
            [("slow", &slow as &dyn Fn(usize) -> f64, 34), ("at once", &step, 34)]
        {
            let mut late = 0;
            for _ in 0..200 {
                match told(&mut rng, 60, rate) {
                    Some(at) => late += usize::from(at > most),
                    None => late += 1,
                }
            }
            assert!(late <= 10, "{what}: {late} of 200 later than evaluation {most}");
        }
    }

    #[test]
    fn few_evaluations_are_no_fall() {
        let mut held_out = HeldOut::default();
        for rate in [0.9, 0.1, 0.1] {
            held_out.push(rate, SAMPLES);
            assert_eq!(held_out.fall(), None);
        }
        held_out.push(0.1, SAMPLES);
        assert_eq!(held_out.fall().map(|fall| (fall.best, fall.recent)), Some((0.5, 0.1)));
    }
}

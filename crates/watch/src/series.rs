//! Numbers over optimizer steps, in a bounded number of bins.
//!
//! A bin holds as many steps as every other (the last may hold fewer). When there are too many bins,
//! neighbours are joined and each holds twice as many: a run of a million steps costs the same memory
//! as one of a thousand, and a spike of one step stays to be seen as the bin's greatest value.

use scalerl_journal::Ledger;

/// Bins at most; never fewer than half of it once so many steps are there.
const MOST_BINS: usize = 256;

/// What is kept of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in the journal")]
pub enum Metric {
    Lag,
    MeanReward,
    PassRate,
    MeanTokens,
    Truncated,
    Entropy,
    GradientNorm,
    EffectiveSamples,
    Clipped,
    LargestRatio,
    MeanRatio,
    SmallestRatio,
    TrainedGroups,
    StepSeconds,
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = Self::StepSeconds as usize + 1;
}

/// One number over the steps of a bin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stat {
    sum: f64,
    count: u32,
    /// Least value.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
}

impl Stat {
    fn of(value: f64) -> Self {
        let count = u32::from(value.is_finite());
        let (low, high) =
            if count > 0 { (value, value) } else { (f64::INFINITY, f64::NEG_INFINITY) };
        Self { sum: if count > 0 { value } else { 0.0 }, count, low, high }
    }

    fn join(self, other: Self) -> Self {
        Self {
            sum: self.sum + other.sum,
            count: self.count + other.count,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// Mean of the values that are numbers; NaN of none.
    pub fn mean(&self) -> f64 {
        self.sum / f64::from(self.count)
    }
}

/// Some steps in a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Bin {
    /// Steps in it.
    pub steps: u64,
    /// Its first and last step.
    pub first: u64,
    /// See `first`.
    pub last: u64,
    stats: [Stat; Metric::COUNT],
    /// What had been spent at its end.
    pub ledger: Ledger,
}

impl Bin {
    /// What the bin says of one metric.
    pub fn stat(&self, metric: Metric) -> Stat {
        self.stats[metric as usize]
    }

    /// The step in its middle.
    pub fn middle(&self) -> f64 {
        f64::midpoint(self.first as f64, self.last as f64)
    }

    fn join(&mut self, later: &Self) {
        for (one, other) in self.stats.iter_mut().zip(later.stats) {
            *one = one.join(other);
        }
        self.steps += later.steps;
        self.last = later.last;
        self.ledger = later.ledger;
    }
}

/// All steps of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepSeries {
    bins: Vec<Bin>,
    /// Steps of a full bin.
    width: u64,
}

impl StepSeries {
    /// Adds the next step.
    pub(crate) fn push(&mut self, step: u64, values: [f64; Metric::COUNT], ledger: Ledger) {
        let new = Bin { steps: 1, first: step, last: step, stats: values.map(Stat::of), ledger };
        self.width = self.width.max(1);
        match self.bins.last_mut() {
            Some(last) if last.steps < self.width => last.join(&new),
            _ => self.bins.push(new),
        }
        if self.bins.len() > MOST_BINS {
            let pairs = self.bins.chunks(2).map(|pair| {
                let mut joined = pair[0].clone();
                pair[1..].iter().for_each(|later| joined.join(later));
                joined
            });
            self.bins = pairs.collect();
            self.width *= 2;
        }
    }

    /// In order.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// Steps that a full bin holds.
    pub fn width(&self) -> u64 {
        self.width.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bins_are_bounded_and_lose_neither_sum_nor_extreme(values in prop::collection::vec(-1e3..1e3f64, 1..3000)) {
            let mut series = StepSeries::default();
            for (step, value) in values.iter().enumerate() {
                series.push(step as u64, [*value; Metric::COUNT], Ledger::default());
            }
            prop_assert!(series.bins().len() <= MOST_BINS);
            let stats = || series.bins().iter().map(|bin| bin.stat(Metric::Lag));
            let steps: u64 = series.bins().iter().map(|bin| bin.steps).sum();
            prop_assert_eq!(steps, values.len() as u64);
            let sum: f64 = stats().map(|stat| stat.sum).sum();
            prop_assert!((sum - values.iter().sum::<f64>()).abs() < 1e-6);
            let high = stats().map(|stat| stat.high).fold(f64::NEG_INFINITY, f64::max);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert_eq!(high.to_bits(), most.to_bits());
            prop_assert!(series.bins().windows(2).all(|pair| pair[0].last < pair[1].first));
        }
    }

    #[test]
    fn what_is_no_number_is_left_out_of_a_mean() {
        let mut series = StepSeries::default();
        series.push(1, [f64::NAN; Metric::COUNT], Ledger::default());
        assert!(series.bins()[0].stat(Metric::Lag).mean().is_nan());
    }
}

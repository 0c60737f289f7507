//! Which examples a step uses: every epoch once through all, shuffled by seed and epoch.
//!
//! The order is a function of (seed, step), so a resumed run needs no generator state.

use crate::split_mix::split_mix;

/// Examples of one step, as indices.
pub(super) struct Order {
    count: usize,
    seed: u64,
    /// The epoch last asked for, since steps ask in order.
    epoch: Option<(u64, Vec<usize>)>,
}

impl Order {
    pub(super) fn new(count: usize, seed: u64) -> Self {
        Self { count, seed, epoch: None }
    }

    /// Examples of step `step` (from 0), `size` of them.
    pub(super) fn step(&mut self, step: u64, size: usize) -> Vec<usize> {
        let first = step * size as u64;
        (first..first + size as u64)
            .map(|place| {
                let (epoch, within) = (place / self.count as u64, place % self.count as u64);
                self.shuffled(epoch)[within as usize]
            })
            .collect()
    }

    fn shuffled(&mut self, epoch: u64) -> &[usize] {
        if self.epoch.as_ref().is_none_or(|(known, _)| *known != epoch) {
            let mut state = self.seed ^ epoch.wrapping_mul(0xd134_2543_de82_ef95);
            let mut order: Vec<usize> = (0..self.count).collect();
            for last in (1..self.count).rev() {
                // The bias of a remainder is below 2^-40 for any real number of examples.
                order.swap(last, (split_mix(&mut state) % (last as u64 + 1)) as usize);
            }
            self.epoch = Some((epoch, order));
        }
        &self.epoch.as_ref().expect("set above").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_every_example_once_and_epochs_differ() {
        let mut order = Order::new(12, 3);
        let steps: Vec<Vec<usize>> = (0..6).map(|step| order.step(step, 4)).collect();
        let mut first = steps[..3].concat();
        let second = steps[3..].concat();
        assert_ne!(first, second);
        first.sort_unstable();
        assert_eq!(first, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn any_step_can_be_asked_for_alone() {
        let mut along = Order::new(7, 5);
        let all: Vec<Vec<usize>> = (0..10).map(|step| along.step(step, 3)).collect();
        assert_eq!(Order::new(7, 5).step(8, 3), all[8]);
    }
}

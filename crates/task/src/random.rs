//! Random numbers that are the same on every platform and in every release.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): one multiplication-mix per number, any seed is a good
//! seed. Data order and synthetic tasks depend on it, so it is ours and never changes.

/// A small, fast, reproducible generator. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator for a seed and a purpose; different purposes give unrelated streams.
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self { state: mix(seed ^ hash(purpose.as_bytes())) }
    }

    /// A stream of its own for item `index`.
    pub fn for_index(seed: u64, purpose: &str, index: u64) -> Self {
        Self { state: mix(mix(seed ^ hash(purpose.as_bytes())).wrapping_add(index)) }
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`, without bias.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        // Lemire: the high half of a product, rejecting the few values that would be favoured.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            if (product as u64) >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low) as u64 + 1).cast_signed()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.bits() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Fisher–Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, for names and fingerprints.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The order in which one epoch visits `count` items.
pub fn permutation(seed: u64, epoch: u64, count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    Random::for_index(seed, "epoch order", epoch).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_an_epoch_is_fixed_for_ever() {
        // Golden: scripts/golden/epoch_order.py. A change would reorder the data of every old run.
        assert_eq!(permutation(7, 0, 8), [1, 5, 4, 6, 2, 3, 7, 0]);
        assert_eq!(permutation(7, 1, 8), [5, 7, 4, 6, 3, 2, 1, 0]);
    }

    #[test]
    fn a_permutation_has_every_item_once() {
        let mut order = permutation(1, 3, 1000);
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut random = Random::new(5, "test");
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        // Five standard deviations of a binomial with n = 70,000, p = 1/7.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 470), "{counts:?}");
    }
}

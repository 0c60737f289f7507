//! Where randomness comes from: a function of a completion's seed, the place in it and the candidate token.
//!
//! Nothing is drawn from a shared stream, so what else is being generated cannot matter. The largest
//! of `logit / temperature + Gumbel noise` is drawn from the softmax of the logits (Gumbel-max): one
//! pass, on every device, with no sum to walk through. Noise for each of 151,936 candidates is most
//! of the work though, so they are drawn in two rounds, which is the same distribution: first a group
//! of 16, by `log of its mass + noise of the group`, then one candidate of that group.
//!
//! ```text
//! group of candidate c   256 (c / 4096) + (c mod 1024) / 4      four neighbours, and those 1,024,
//!                                                               2,048 and 3,072 further on
//! ```
//! (So neighbouring threads of a GPU, one group each, read neighbouring memory.)
//!
//! The hash and the noise are here in plain Rust; `shim/paged.cpp` and `cuda/draw.cu` have the same
//! for the CPU and CUDA and are judged against this file.

/// SplitMix64's finisher (Steele, Lea and Flood 2014).
fn finish(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The two words that the noise of one token depends on.
pub(crate) fn keys(seed: u64, place: usize) -> [u32; 2] {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let stream = finish(seed.wrapping_add(STEP));
    let key = finish(stream.wrapping_add(STEP.wrapping_mul(place as u64 + 1)));
    [key as u32, (key >> 32) as u32]
}

/// A word per candidate: two rounds of good 32-bit mixers, with a key before each.
#[cfg(test)]
fn mixed(candidate: u32, [key0, key1]: [u32; 2]) -> u32 {
    let mut x = candidate.wrapping_mul(0x9e37_79b9).wrapping_add(key0);
    x = (x ^ x >> 16).wrapping_mul(0x21f0_aaad);
    x = (x ^ x >> 15).wrapping_mul(0x735a_2d97);
    x ^= x >> 15;
    x ^= key1;
    x = (x ^ x >> 17).wrapping_mul(0xed5a_d4bb);
    x = (x ^ x >> 11).wrapping_mul(0xac4c_1b51);
    x = (x ^ x >> 15).wrapping_mul(0x3184_8bab);
    x ^ x >> 14
}

/// What stands in place of a candidate in the noise of its group.
#[cfg(test)]
pub(crate) fn group(candidate: u32) -> u32 {
    0x8000_0000 | (candidate / 4096 * 256 + candidate % 1024 / 4)
}

/// Standard Gumbel noise of one candidate, or of a group.
#[cfg(test)]
pub(crate) fn gumbel(candidate: u32, keys: [u32; 2]) -> f64 {
    let uniform = (f64::from(mixed(candidate, keys) >> 1) + 0.5) / 2_f64.powi(31);
    -(-(-uniform).ln_1p()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_has_the_mean_and_spread_of_a_gumbel_variable() {
        let count = 200_000;
        let draws: Vec<f64> =
            (0..count).map(|i| gumbel(i % 400, keys(7, i as usize / 400))).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(count);
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count);
        // Euler's constant and pi² / 6; five standard errors of 200,000 draws.
        assert!((mean - 0.577_216).abs() < 0.015, "mean {mean}");
        assert!((variance - 1.644_934).abs() < 0.05, "variance {variance}");
    }

    #[test]
    fn neighbouring_seeds_and_places_share_nothing() {
        let base: Vec<u32> = (0..64).map(|c| mixed(c, keys(5, 9))).collect();
        for other in [keys(6, 9), keys(4, 9), keys(5, 10), keys(5, 8)] {
            let same = (0..64).filter(|&c| base.contains(&mixed(c, other))).count();
            assert_eq!(same, 0);
        }
    }
}

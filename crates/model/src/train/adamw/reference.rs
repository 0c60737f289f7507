//! AdamW in plain numbers, one at a time: what the fast ways are judged by.

use super::AdamWConfig;
use crate::split_mix::split_mix;

/// SplitMix64 takes steps of this.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is kept for one number that is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    pub master: f64,
    pub first: f64,
    pub second: f64,
}

/// One step of the textbook formula, for the `step`-th gradient (from 1) divided by `divisor`.
pub fn stepped(
    config: &AdamWConfig,
    number: Number,
    gradient: f64,
    divisor: f64,
    step: u64,
) -> Number {
    let g = gradient / divisor;
    let first = config.beta1 * number.first + (1.0 - config.beta1) * g;
    let second = config.beta2 * number.second + (1.0 - config.beta2) * g * g;
    let corrected = |moment: f64, beta: f64| moment / (1.0 - beta.powf(step as f64));
    let (mean, square) = (corrected(first, config.beta1), corrected(second, config.beta2));
    let decayed = number.master * (1.0 - config.lr * config.weight_decay);
    let master = decayed - config.lr * mean / (square.sqrt() + config.epsilon);
    Number { master, first, second }
}

/// What gradients of this norm are divided by.
pub fn divisor(config: &AdamWConfig, norm: f64) -> f64 {
    if config.max_gradient_norm > 0.0 { (norm / config.max_gradient_norm).max(1.0) } else { 1.0 }
}

/// The two bf16 numbers around a float32 one, the one nearer to 0 first, and the share of the way from
/// the first to the second.
pub fn neighbours(x: f32) -> ([f32; 2], f64) {
    let below = x.to_bits() & 0xffff_0000;
    let share = f64::from(x.to_bits() & 0xffff) / 65536.0;
    ([f32::from_bits(below), f32::from_bits(below.wrapping_add(0x1_0000))], share)
}

/// A moment as it is kept in bf16: away from 0 where `chance` of 65536 is at least what is missing.
pub fn rounded_by_chance(x: f32, chance: u32) -> f32 {
    let ([below, above], share) = neighbours(x);
    let missing = 65536.0 * (1.0 - share);
    if f64::from(chance & 0xffff) >= missing { above } else { below }
}

/// The chances of the two moments of a number in a step: the seed's numbers are keys, one a step, and a
/// key's numbers the chances, one a place.
pub fn chances(config: &AdamWConfig, step: u64, place: u64) -> [u32; 2] {
    let number = |start: u64, index: u64| {
        let mut state = start.wrapping_add(index.wrapping_mul(STEP));
        split_mix(&mut state)
    };
    let bits = number(number(config.seed, step - 1), place) as u32;
    [bits & 0xffff, bits >> 16]
}

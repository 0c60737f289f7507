//! From rows of logits to tokens: temperature, top-k, top-p, and the log-prob of what was drawn.
//!
//! Top-k and top-p only find the lowest logit that is kept (top-k first, top-p among what it left,
//! as transformers does); ties at that logit all stay. Drawing is one loop for all rows, on the
//! CPU in `shim/paged.cpp`, on CUDA in `cuda.rs`.

use tch::{TchError, Tensor};

use super::loops::{self, Draw};
use super::noise;
use super::request::Sampling;

/// How and with which noise one row is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSampling {
    pub(crate) sampling: Sampling,
    /// The completion's own.
    pub(crate) seed: u64,
    pub(crate) place: usize,
}

impl RowSampling {
    pub(crate) fn keys(&self) -> [u32; 2] {
        noise::keys(self.seed, self.place)
    }

    /// 0 for greedy.
    pub(crate) fn inverse_temperature(&self) -> f32 {
        let temperature = self.sampling.temperature;
        // Below this logits / temperature would overflow, and nothing but the top is ever drawn.
        if temperature < 1e-5 { 0.0 } else { (1.0 / temperature) as f32 }
    }
}

/// Draws a token per row of float32 logits [rows, v] on the CPU.
pub(crate) fn draw(logits: &Tensor, rows: &[RowSampling]) -> Result<Vec<(i64, f32)>, TchError> {
    let mut scratch = Vec::new();
    let draws: Vec<Draw> = rows
        .iter()
        .zip(loops::rows(logits))
        .map(|(row, logits)| Draw {
            inverse_temperature: row.inverse_temperature(),
            floor: floor(logits, row, &mut scratch),
            keys: row.keys(),
        })
        .collect();
    loops::draw(logits, &draws)
}

/// The lowest logit that top-k and top-p keep.
fn floor(logits: &[f32], row: &RowSampling, scratch: &mut Vec<f32>) -> f32 {
    let Sampling { top_p, top_k, .. } = row.sampling;
    let is_top_k = top_k > 0 && top_k < logits.len();
    let inverse_temperature = row.inverse_temperature();
    if inverse_temperature <= 0.0 || (!is_top_k && top_p >= 1.0) {
        return f32::MIN;
    }
    scratch.clear();
    scratch.extend_from_slice(logits);
    let falling = |a: &f32, b: &f32| b.total_cmp(a);
    let mut floor = f32::MIN;
    if is_top_k {
        let (_, &mut lowest, _) = scratch.select_nth_unstable_by(top_k - 1, falling);
        floor = lowest;
        scratch.retain(|logit| *logit >= lowest);
    }
    if top_p >= 1.0 {
        return floor;
    }
    let top = scratch.iter().copied().fold(f32::MIN, f32::max);
    let mass = |logit: f32| f64::from((logit - top) * inverse_temperature).exp();
    let wanted = top_p * scratch.iter().map(|logit| mass(*logit)).sum::<f64>();
    // Sorted piece by piece from the top: usually a few hundred hold the mass.
    let (mut sum, mut from, mut piece) = (0.0, 0, 256);
    while from < scratch.len() {
        let rest = &mut scratch[from..];
        let count = piece.min(rest.len());
        if count < rest.len() {
            let _ = rest.select_nth_unstable_by(count - 1, falling);
        }
        rest[..count].sort_unstable_by(falling);
        for &logit in &rest[..count] {
            sum += mass(logit);
            if sum >= wanted {
                return logit;
            }
        }
        from += count;
        piece *= 4;
    }
    floor
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;

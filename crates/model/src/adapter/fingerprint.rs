//! Which base an adapter belongs to, said in a few letters.
//!
//! Each parameter is summed up as whole numbers, twice: plain and weighted by place. Whole numbers
//! add up to the same on every device and in every order. They are those of the weights rounded to
//! bf16, so the kind that a base was loaded in does not matter.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use tch::{Kind, TchError, Tensor};

use crate::folder::Model;
use crate::layout::Parameter;

/// Numbers looked at together: 128 MiB in 64 bits.
const STRETCH: i64 = 1 << 24;
/// Weights of places repeat after this many, a prime below 2¹⁶.
const PLACES: i64 = 65_521;

/// A fingerprint in the making: weights are added in the order of their layout.
#[derive(Default)]
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(crate) fn add(&mut self, known: &Parameter, weight: &Tensor) -> Result<(), TchError> {
        let _guard = tch::no_grad_guard();
        self.0.update(known.name.as_bytes());
        for size in &known.shape {
            self.0.update(size.to_le_bytes());
        }
        for sum in sums(weight)? {
            self.0.update(sum.to_le_bytes());
        }
        Ok(())
    }

    pub(crate) fn letters(self) -> String {
        let mut letters = String::with_capacity(16);
        for byte in self.0.finalize().iter().take(8) {
            // Writing to a string cannot fail.
            let _ = write!(letters, "{byte:02x}");
        }
        letters
    }
}

/// Sixteen letters that differ where a base's weights, or their names or shapes, differ.
pub fn fingerprint(model: &Model) -> Result<String, TchError> {
    let mut all = Fingerprint::default();
    for (known, tensor) in model.layout.iter().zip(&model.parameters) {
        all.add(known, tensor)?;
    }
    Ok(all.letters())
}

fn sums(tensor: &Tensor) -> Result<[i64; 2], TchError> {
    let flat = tensor.f_detach()?.f_contiguous()?.f_view(-1)?;
    let mut sums = [0_i64; 2];
    let length = flat.size1()?;
    let mut at = 0;
    while at < length {
        let count = STRETCH.min(length - at);
        let bits = flat.f_narrow(0, at, count)?.f_to_kind(Kind::BFloat16)?;
        let bits = bits.f_view_dtype(Kind::Int16)?.f_to_kind(Kind::Int64)?;
        let places = Tensor::f_arange_start(at, at + count, (Kind::Int64, flat.device()))?;
        let places = places.f_remainder(PLACES)?.f_add_scalar(1)?;
        let weighted = bits.f_mul(&places)?.f_sum(Kind::Int64)?.f_int64_value(&[])?;
        sums[0] = sums[0].wrapping_add(bits.f_sum(Kind::Int64)?.f_int64_value(&[])?);
        sums[1] = sums[1].wrapping_add(weighted);
        at += count;
    }
    Ok(sums)
}

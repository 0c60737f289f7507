//! Two computations that training stands on, done on a device and held against float64 on the CPU.
//!
//! A library can be found and still be the wrong one, and a driver can be too old for it: only a
//! result shows that a device works. The product goes through cuBLAS on a GPU and oneDNN or MKL on
//! a CPU, the attention through torch's fused kernel (flash attention on a GPU).
//!
//! Not here: whether our own kernels and the network are right (tests of `model` and `generate`).

use std::time::Instant;

use scalerl_torch::shim;
use scalerl_torch::tch::{Device, Kind, TchError, Tensor};

/// Rows and columns of the product.
const SIDE: i64 = 512;
/// Sequences, heads, tokens and width of a head of the attention.
const SHAPE: [i64; 4] = [2, 4, 128, 64];
/// float32 keeps 24 bits; a sum of 512 products in any order stays well below this.
const PRODUCT_LIMIT: f64 = 1e-5;
/// bfloat16 keeps 8 bits of inputs and result: 0.4 % each.
const ATTENTION_LIMIT: f64 = 2e-2;
const REPEATS: usize = 5;

/// What one computation gave.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) what: &'static str,
    /// Largest difference from float64, over the largest number of the result.
    pub(super) error: f64,
    limit: f64,
    /// The fastest of a few, after one to warm up.
    pub(super) milliseconds: f64,
}

impl Proof {
    pub(super) fn holds(&self) -> bool {
        // A NaN does not hold.
        self.error <= self.limit
    }
}

/// A product and an attention on a device.
pub(super) fn prove(device: Device) -> Result<[Proof; 2], TchError> {
    Ok([product(device)?, attention(device)?])
}

/// Numbers without a pattern that a wrong stride could hide in; the same on every machine.
fn numbers(shape: &[i64], phase: f64) -> Result<Tensor, TchError> {
    let count: i64 = shape.iter().product();
    let line = Tensor::f_arange(count, (Kind::Double, Device::Cpu))?;
    let line = line.f_mul_scalar(0.618_033_988_75)?.f_add_scalar(phase)?;
    line.f_sin()?.f_reshape(shape)
}

fn product(device: Device) -> Result<Proof, TchError> {
    let (a, b) = (numbers(&[SIDE, SIDE], 0.0)?, numbers(&[SIDE, SIDE], 1.0)?);
    // What the device gets is rounded first: the proof is of the product, not of the rounding.
    let (a, b) = (a.f_to_kind(Kind::Float)?, b.f_to_kind(Kind::Float)?);
    let expected = a.f_to_kind(Kind::Double)?.f_matmul(&b.f_to_kind(Kind::Double)?)?;
    let (a, b) = (a.f_to_device(device)?, b.f_to_device(device)?);
    let (result, milliseconds) = timed(device, || a.f_matmul(&b))?;
    let error = distance(&result, &expected)?;
    Ok(Proof { what: "product 512×512, float32", error, limit: PRODUCT_LIMIT, milliseconds })
}

fn attention(device: Device) -> Result<Proof, TchError> {
    let [_, _, tokens, width] = SHAPE;
    let mut inputs = Vec::new();
    for phase in [0.0, 1.0, 2.0] {
        inputs.push(numbers(&SHAPE, phase)?.f_to_kind(Kind::BFloat16)?);
    }
    let [q, k, v] = &inputs[..] else { unreachable!("three were made") };
    let expected = {
        let [q, k, v] = [q, k, v].map(|x| x.f_to_kind(Kind::Double));
        let scores = q?.f_matmul(&k?.f_transpose(-2, -1)?)?.f_div_scalar((width as f64).sqrt())?;
        let future = Tensor::f_ones([tokens, tokens], (Kind::Bool, Device::Cpu))?.f_triu(1)?;
        scores
            .f_masked_fill(&future, f64::NEG_INFINITY)?
            .f_softmax(-1, Kind::Double)?
            .f_matmul(&v?)?
    };
    let (q, k, v) = (q.f_to_device(device)?, k.f_to_device(device)?, v.f_to_device(device)?);
    let attend = || {
        Tensor::f_scaled_dot_product_attention::<Tensor>(&q, &k, &v, None, 0.0, true, None, false)
    };
    let (result, milliseconds) = timed(device, attend)?;
    let error = distance(&result, &expected)?;
    Ok(Proof {
        what: "attention 2×4×128×64, bfloat16",
        error,
        limit: ATTENTION_LIMIT,
        milliseconds,
    })
}

fn timed(
    device: Device,
    compute: impl Fn() -> Result<Tensor, TchError>,
) -> Result<(Tensor, f64), TchError> {
    let result = compute()?;
    shim::synchronize(device)?;
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        let started = Instant::now();
        drop(compute()?);
        shim::synchronize(device)?;
        best = best.min(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok((result, best))
}

fn distance(result: &Tensor, expected: &Tensor) -> Result<f64, TchError> {
    let result = result.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?;
    let scale = expected.f_abs()?.f_max()?.f_double_value(&[])?;
    Ok(result.f_sub(expected)?.f_abs()?.f_max()?.f_double_value(&[])? / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_computes_a_product_and_an_attention_as_float64_does() {
        for proof in prove(Device::Cpu).unwrap() {
            assert!(proof.holds(), "{proof:?}");
            assert!(proof.error > 0.0, "float64 was held against itself: {proof:?}");
        }
    }

    #[test]
    fn a_result_that_is_off_or_no_number_does_not_hold() {
        let proof = |error| Proof { what: "", error, limit: PRODUCT_LIMIT, milliseconds: 0.0 };
        assert!(proof(1e-7).holds());
        assert!(!proof(1e-3).holds() && !proof(f64::NAN).holds());
    }
}

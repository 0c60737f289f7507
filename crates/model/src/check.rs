//! Every fast path of a training step against the same thing by plain torch operations in float64 on
//! the CPU: values and gradients.
//!
//! Run on a device by `scalerl bench train --check`. On the CPU the float32 paths are compared.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::Span;
use crate::head::{Head, HeadMode, HeadOptions, TokenGradients};
use crate::network::{Attend as _, Heads, PackedAttention};
use scalerl_torch::ops::{Angles, add_rms_norm, rms_norm, rotate, swiglu};
use scalerl_torch::shim;

/// One comparison.
#[derive(Debug, Clone)]
pub struct KernelCheck {
    pub what: String,
    /// Largest difference as a share of the largest value, or the share of rows that differ.
    pub error: f64,
    pub limit: f64,
}

impl KernelCheck {
    /// Not a number is never right.
    pub fn is_right(&self) -> bool {
        self.error <= self.limit
    }
}

/// Largest difference as a share of the largest value; not a number where either has one.
fn apart(found: &Tensor, expected: &Tensor) -> Result<f64, TchError> {
    let wide = |x: &Tensor| x.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double);
    let (found, expected) = (wide(found)?, wide(expected)?);
    let most = expected.f_abs()?.f_max()?.f_double_value(&[])?;
    Ok(found.f_sub(&expected)?.f_abs()?.f_max()?.f_double_value(&[])? / most.max(1e-30))
}

/// Where and in what a fast path works.
#[derive(Clone, Copy)]
struct Place {
    device: Device,
    kind: Kind,
}

impl Place {
    fn limit(self) -> f64 {
        if self.kind == Kind::Float { 1e-4 } else { 0.02 }
    }

    /// Outputs of an operation, and the gradients of its inputs under fixed gradients of the outputs.
    fn both(
        self,
        inputs: &[Tensor],
        operation: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, TchError>,
    ) -> Result<Vec<Tensor>, TchError> {
        let mut leaves = Vec::new();
        for input in inputs {
            let copy = input.f_to_kind(self.kind)?.f_to_device(self.device)?.f_detach_copy()?;
            leaves.push(copy.f_set_requires_grad(true)?);
        }
        let outputs = operation(&leaves)?;
        let mut slopes = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            let count = output.numel() as i64;
            let ramp = Tensor::f_arange(count, (Kind::Double, Device::Cpu))?;
            let ramp = ramp.f_mul_scalar(1.0 + 0.37 * index as f64)?.f_sin()?;
            // What both sides get must be the same number.
            let ramp = ramp.f_to_kind(Kind::BFloat16)?.f_to_kind(self.kind)?;
            slopes.push(ramp.f_view(&output.size()[..])?.f_to_device(self.device)?);
        }
        let (outs, grads): (Vec<&Tensor>, Vec<&Tensor>) =
            (outputs.iter().collect(), slopes.iter().collect());
        shim::backward(&outs, &grads)?;
        let mut all: Vec<Tensor> = outputs.iter().map(Tensor::detach).collect();
        for leaf in &leaves {
            all.push(shim::take_grad(leaf)?.ok_or_else(|| missing("a gradient"))?);
        }
        Ok(all)
    }
}

fn missing(what: &str) -> TchError {
    TchError::Torch(format!("{what} is missing"))
}

/// Compares an operation in `place` with `reference` in float64.
fn compare(
    place: Place,
    what: &str,
    inputs: &[Tensor],
    fast: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, TchError>,
    reference: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, TchError>,
) -> Result<KernelCheck, TchError> {
    let exact = Place { device: Device::Cpu, kind: Kind::Double };
    let (found, expected) = (place.both(inputs, fast)?, exact.both(inputs, reference)?);
    let mut error: f64 = 0.0;
    for (found, expected) in found.iter().zip(&expected) {
        let apart = apart(found, expected)?;
        // `max` would drop what is not a number.
        error = if apart.is_nan() || apart > error { apart } else { error };
    }
    Ok(KernelCheck { what: what.to_owned(), error, limit: place.limit() })
}

/// Numbers that bf16 can say, so that both sides begin with the same.
fn random(shape: &[i64]) -> Result<Tensor, TchError> {
    let random = Tensor::f_randn(shape, (Kind::Float, Device::Cpu))?;
    random.f_to_kind(Kind::BFloat16)?.f_to_kind(Kind::Double)
}

/// Compares every fast path of a training step on a device.
pub fn check_training(device: Device) -> Result<Vec<KernelCheck>, TchError> {
    tch::manual_seed(5);
    let kind = if device == Device::Cpu { Kind::Float } else { Kind::BFloat16 };
    let place = Place { device, kind };
    let mut checks = norms_and_gates(place)?;
    checks.extend(attention(place)?);
    checks.extend(head(device)?);
    Ok(checks)
}

fn norms_and_gates(place: Place) -> Result<Vec<KernelCheck>, TchError> {
    let mut checks = Vec::new();
    // Rows that a warp keeps, that a block keeps, that neither does, that are not of whole pieces.
    for (rows, width) in [(1, 64), (37, 96), (700, 896), (130, 4096), (9, 8192), (33, 1002)] {
        let inputs = [random(&[rows, width])?, random(&[rows, width])?, random(&[width])?];
        let plain = |x: &Tensor, w: &Tensor| x.f_rms_norm([width], Some(w), 1e-5);
        checks.push(compare(
            place,
            &format!("norm of {rows} × {width}"),
            &inputs[1..],
            |x| Ok(vec![rms_norm(&x[0], &x[1], 1e-5)?]),
            |x| Ok(vec![plain(&x[0], &x[1])?]),
        )?);
        checks.push(compare(
            place,
            &format!("sum and norm of {rows} × {width}"),
            &inputs,
            |x| add_rms_norm(&x[0], &x[1], &x[2], 1e-5).map(|(sum, normed)| vec![sum, normed]),
            |x| {
                let sum = x[0].f_add(&x[1])?;
                let normed = plain(&sum, &x[2])?;
                Ok(vec![sum, normed])
            },
        )?);
        checks.push(compare(
            place,
            &format!("gate of {rows} × {width}"),
            &[random(&[rows, 2 * width])?],
            |x| Ok(vec![swiglu(&x[0])?]),
            |x| {
                let parts = x[0].f_chunk(2, -1)?;
                Ok(vec![parts[0].f_silu()?.f_mul(&parts[1])?])
            },
        )?);
    }
    Ok(checks)
}

/// Each query weighs the keys that it may see, one sequence at a time.
fn definition(heads: &Heads, lengths: &[i64], span: Span) -> Result<Tensor, TchError> {
    let (_, h, d) = heads.q.size3()?;
    let group = h / heads.k.size3()?.1;
    let (mut out, mut at) = (Vec::new(), 0);
    for &length in lengths {
        let part = |x: &Tensor| x.f_narrow(0, at, length)?.f_transpose(0, 1);
        let wide = |x: &Tensor| part(x)?.f_repeat_interleave_self_int(group, 0, None);
        let (q, k, v) = (part(&heads.q)?, wide(&heads.k)?, wide(&heads.v)?);
        let scores = q.f_matmul(&k.f_transpose(1, 2)?)?.f_div_scalar((d as f64).sqrt())?;
        let all = Tensor::f_ones([length, length], (Kind::Bool, Device::Cpu))?;
        let seen = match span {
            Span::Window(size) => all.f_tril(0)?.f_triu(1 - size)?,
            _ => all.f_tril(0)?,
        };
        let scores = scores.f_masked_fill(&seen.f_logical_not()?, f64::NEG_INFINITY)?;
        out.push(scores.f_softmax(-1, Kind::Double)?.f_matmul(&v)?.f_transpose(0, 1)?);
        at += length;
    }
    Tensor::f_cat(&out, 0)
}

fn attention(place: Place) -> Result<Vec<KernelCheck>, TchError> {
    let mut checks = Vec::new();
    // One round length; equal short ones; long ones that reach over each other and over the end.
    let batches: [&[i64]; 5] =
        [&[512; 3], &[40, 40], &[1100, 1061, 300, 1, 77], &[1025], &[9, 2000, 3, 256, 256]];
    for (heads, kv_heads, width) in [(14, 2, 64), (4, 4, 128)] {
        for (lengths, span) in batches
            .into_iter()
            .map(|lengths| (lengths, Span::Full))
            .chain([(&[300, 1200][..], Span::Window(100))])
        {
            let n: i64 = lengths.iter().sum();
            let all = heads + 2 * kv_heads;
            let angle = Tensor::f_randn([n, width / 2], (Kind::Float, Device::Cpu))?;
            let angles = |device: Device| -> Result<Angles, TchError> {
                let (cosine, sine) = (angle.f_cos()?, angle.f_sin()?);
                let [cosine, sine] = [cosine, sine].map(|x| x.f_to_device(device));
                Ok(Angles { cosine: cosine?, sine: sine?, is_interleaved: false })
            };
            let (here, exact) = (angles(place.device)?, angles(Device::Cpu)?);
            let packed = PackedAttention::new(lengths, &[span], place.device)?;
            let split = |qkv: &Tensor| -> Result<Heads, TchError> {
                let mut parts = qkv.f_split_with_sizes([heads, kv_heads, kv_heads], 1)?;
                let (v, k, q) = (parts.pop(), parts.pop(), parts.pop());
                let all = [q, k, v].map(|part| part.ok_or_else(|| missing("a third")));
                let [q, k, v] = all;
                Ok(Heads { q: q?, k: k?, v: v? })
            };
            let rotated = |x: &Tensor, angles: &Angles| rotate(x, angles, heads + kv_heads);
            let inputs = [random(&[n, all, width])?];
            let slow = |x: &[Tensor]| {
                Ok(vec![definition(&split(&rotated(&x[0], &exact)?)?, lengths, span)?])
            };
            let what = format!("attention {heads}/{kv_heads} of {width}, {span:?}, {lengths:?}");
            checks.push(compare(
                place,
                &what,
                &inputs,
                |x| Ok(vec![packed.attend(0, span, &split(&rotated(&x[0], &here)?)?)?]),
                slow,
            )?);
            checks.push(compare(
                place,
                &format!("  rotated on the way, {lengths:?}"),
                &inputs,
                |x| {
                    // The product's result may be overwritten, the leaf may not.
                    let made = x[0].f_mul_scalar(1.0)?;
                    let out = packed.rotate_and_attend(0, span, (&made, heads), &here)?;
                    let slowly = || packed.attend(0, span, &split(&rotated(&made, &here)?)?);
                    Ok(vec![out.map_or_else(slowly, Ok)?])
                },
                slow,
            )?);
        }
    }
    Ok(checks)
}

/// Log-probs, entropies and both gradients of a head in FP32 logits.
fn head(device: Device) -> Result<Vec<KernelCheck>, TchError> {
    let mut checks = Vec::new();
    let mode = if device == Device::Cpu { HeadMode::Exact } else { HeadMode::Split };
    let kind = if device == Device::Cpu { Kind::Float } else { Kind::BFloat16 };
    // Vocabularies whose rows begin on 32, 16 and 4 bytes.
    for vocabulary in [151_936, 5004, 4099] {
        for temperature in [1.0, 0.7] {
            let (tokens, width) = (37, 64);
            let (hidden, weight) = (random(&[tokens, width])?, random(&[vocabulary, width])?);
            let targets = Tensor::f_randint(vocabulary, [tokens], (Kind::Int64, Device::Cpu))?;
            let slope = Tensor::f_randn([2, tokens], (Kind::Float, Device::Cpu))?;
            let on = |x: &Tensor, kind: Kind| x.f_to_kind(kind)?.f_to_device(device);
            let options = HeadOptions { mode, temperature, ..HeadOptions::of(device) };
            let fast = Head::new(&on(&weight, kind)?, options)?;
            let mut grad = Tensor::f_zeros([vocabulary, width], (Kind::Float, device))?;
            let gradients = TokenGradients {
                logprob: on(&slope.f_get(0)?, Kind::Float)?,
                entropy: Some(on(&slope.f_get(1)?, Kind::Float)?),
            };
            let (scores, d_hidden) = fast.score_and_backward(
                &on(&hidden, kind)?,
                &on(&targets, Kind::Int64)?,
                Some(&mut grad),
                |range, _| {
                    let cut = |x: &Tensor| x.f_narrow(0, range.start, range.end - range.start);
                    Ok(TokenGradients {
                        logprob: cut(&gradients.logprob)?,
                        entropy: gradients.entropy.as_ref().map(cut).transpose()?,
                    })
                },
            )?;
            let [hidden, weight] = [&hidden, &weight].map(|x| x.copy().set_requires_grad(true));
            let logits = hidden.f_mm(&weight.f_tr()?)?.f_div_scalar(temperature)?;
            let all = logits.f_log_softmax(-1, Kind::Double)?;
            let logprob = all.f_gather(1, &targets.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?;
            let entropy = all.f_exp()?.f_mul(&all)?.f_sum_dim_intlist(-1, false, None)?.f_neg()?;
            let slope = slope.f_to_kind(Kind::Double)?;
            shim::backward(&[&logprob, &entropy], &[&slope.f_get(0)?, &slope.f_get(1)?])?;
            let leaf = |x: &Tensor| shim::take_grad(x)?.ok_or_else(|| missing("a gradient"));
            for (what, found, expected, limit) in [
                ("log-probs", &scores.logprob, logprob.f_detach()?, 1e-4),
                ("entropies", &scores.entropy, entropy.f_detach()?, 1e-4),
                ("gradient of hidden states", &d_hidden, leaf(&hidden)?, 0.02),
                ("gradient of the matrix", &grad, leaf(&weight)?, 0.02),
            ] {
                checks.push(KernelCheck {
                    what: format!("head over {vocabulary} at {temperature}: {what}"),
                    error: apart(found, &expected)?,
                    limit,
                });
            }
        }
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_paths_of_the_cpu_are_right() {
        let checks = check_training(Device::Cpu).unwrap();
        let wrong: Vec<_> = checks.iter().filter(|check| !check.is_right()).collect();
        assert!(
            wrong.is_empty() && checks.len() > 60,
            "{} of {}: {wrong:#?}",
            wrong.len(),
            checks.len()
        );
    }

    #[test]
    fn what_is_not_a_number_is_wrong() {
        let one = Tensor::from_slice(&[1.0_f64]);
        let none = Tensor::from_slice(&[f64::NAN]);
        let error = apart(&none, &one).unwrap();
        assert!(!KernelCheck { what: String::new(), error, limit: 1.0 }.is_right());
    }
}

//! The element-wise operations of a layer, fused where that pays: RMSNorm, rotation, SwiGLU, GEGLU.
//!
//! Each has one formula in torch operations, which works for every kind of number and device, a
//! fused float32 loop for the CPU (`shim/fused.cpp`) and a fused bf16 kernel for CUDA (`cuda`).
//! The tests hold them together, values and gradients.

use tch::{Device, Kind, TchError, Tensor};

use crate::shim::{attach, attach_all, is_grad_enabled};
use crate::{cuda, fused};

/// Where the fused CPU loops apply.
fn is_fusable(tensor: &Tensor) -> bool {
    tensor.device() == Device::Cpu && tensor.kind() == Kind::Float
}

/// RMSNorm over the last dimension: x / rms(x) * weight.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor, TchError> {
    if cuda::takes_norm(x, weight) {
        let (input, weight_kept) = (x.f_detach()?.f_contiguous()?, weight.f_detach()?);
        let (y, scale) = cuda::norm(&input, &weight_kept, epsilon)?;
        return attach(y, &[x, weight], move |grad| {
            let grad = grad.f_contiguous()?;
            let (dx, dw) = cuda::norm_backward(&grad, &input, &weight_kept, &scale, None)?;
            Ok(vec![Some(dx), Some(dw)])
        });
    }
    if !is_fusable(x) || weight.kind() != Kind::Float {
        return x.f_rms_norm([x.size()[x.dim() - 1]], Some(weight), epsilon);
    }
    let (input, weight_kept) = (x.f_detach()?.f_contiguous()?, weight.f_detach()?);
    let (y, scale) = fused::norm(&input, &weight_kept, epsilon)?;
    attach(y, &[x, weight], move |grad| {
        let (dx, dw) = fused::norm_backward(&grad.f_contiguous()?, &input, &weight_kept, &scale)?;
        Ok(vec![Some(dx), Some(dw)])
    })
}

/// `x + y` and the RMSNorm of that sum, rounded as the two operations round; on CUDA one kernel
/// does both, and one goes back.
pub fn add_rms_norm(
    x: &Tensor,
    y: &Tensor,
    weight: &Tensor,
    epsilon: f64,
) -> Result<(Tensor, Tensor), TchError> {
    let is_fused = cuda::takes_norm(x, weight)
        && [x, y, weight].iter().all(|tensor| cuda::takes(tensor) && tensor.is_contiguous());
    if !is_fused {
        let sum = x.f_add(y)?;
        let normed = rms_norm(&sum, weight, epsilon)?;
        return Ok((sum, normed));
    }
    if !is_grad_enabled() {
        return cuda::add_norm(x, y, weight, None, epsilon);
    }
    let (kept, device) = (weight.f_detach()?, x.device());
    let rows = x.numel() as i64 / weight.numel().max(1) as i64;
    let scale = Tensor::f_empty([rows], (Kind::Float, device))?;
    let (sum, normed) =
        cuda::add_norm(&x.f_detach()?, &y.f_detach()?, &kept, Some(&scale), epsilon)?;
    let input = sum.f_detach()?;
    attach_all(&[&sum, &normed], &[x, y, weight], move |grads| {
        let [d_sum, d_normed] =
            [&grads[0], &grads[1]].map(|grad| grad.as_ref().map(Tensor::f_contiguous).transpose());
        let (d_sum, d_normed) = (d_sum?, d_normed?);
        let Some(d_normed) = d_normed else {
            let one = |grad: &Option<Tensor>| grad.as_ref().map(Tensor::shallow_clone);
            return Ok(vec![one(&d_sum), d_sum, None]);
        };
        let (dx, dw) = cuda::norm_backward(&d_normed, &input, &kept, &scale, d_sum.as_ref())?;
        Ok(vec![Some(dx.shallow_clone()), Some(dx), Some(dw)])
    })?;
    Ok((sum, normed))
}

/// RMS to one over the last dimension, in float32, without a weight.
pub fn unit_norm(x: &Tensor, epsilon: f64) -> Result<Tensor, TchError> {
    x.f_rms_norm([x.size()[x.dim() - 1]], None::<&Tensor>, epsilon)
}

/// Angles of a packed batch: one row per token.
pub struct Angles {
    /// [n, width / 2], float32.
    pub cosine: Tensor,
    pub sine: Tensor,
    pub is_interleaved: bool,
}

/// Rotates the first `rotated` heads of `x` [n, heads, width]; the others pass through.
pub fn rotate(x: &Tensor, angles: &Angles, rotated: i64) -> Result<Tensor, TchError> {
    if is_fusable(x) && !angles.is_interleaved {
        let (cosine, sine) = (angles.cosine.shallow_clone(), angles.sine.shallow_clone());
        let input = x.f_detach()?.f_contiguous()?;
        let y = fused::rotate(&input, &cosine, &sine, rotated, 1.0)?;
        // The inverse of a rotation is the rotation the other way.
        return attach(y, &[x], move |grad| {
            let dx = fused::rotate(&grad.f_contiguous()?, &cosine, &sine, rotated, -1.0)?;
            Ok(vec![Some(dx)])
        });
    }
    if cuda::takes(x) && !angles.is_interleaved && x.size()[2] % 4 == 0 {
        let (cosine, sine) = (angles.cosine.shallow_clone(), angles.sine.shallow_clone());
        let y = cuda::rotate(&x.f_detach()?.f_contiguous()?, &cosine, &sine, rotated, 1.0)?;
        return attach(y, &[x], move |grad| {
            let dx = cuda::rotate(&grad.f_contiguous()?, &cosine, &sine, rotated, -1.0)?;
            Ok(vec![Some(dx)])
        });
    }
    let heads = x.size()[1];
    if heads == rotated {
        return rotate_plainly(x, angles);
    }
    let parts = x.f_split_with_sizes([rotated, heads - rotated], 1)?;
    Tensor::f_cat(&[rotate_plainly(&parts[0], angles)?, parts[1].shallow_clone()], 1)
}

fn rotate_plainly(x: &Tensor, angles: &Angles) -> Result<Tensor, TchError> {
    let kind = x.kind();
    let wide = if kind == Kind::Double { Kind::Double } else { Kind::Float };
    let (cosine, sine) = (
        angles.cosine.f_to_kind(wide)?.f_unsqueeze(1)?,
        angles.sine.f_to_kind(wide)?.f_unsqueeze(1)?,
    );
    let x = x.f_to_kind(wide)?;
    let turned = |a: &Tensor, b: &Tensor| -> Result<[Tensor; 2], TchError> {
        Ok([a.f_mul(&cosine)?.f_sub(&b.f_mul(&sine)?)?, b.f_mul(&cosine)?.f_add(&a.f_mul(&sine)?)?])
    };
    let rotated = if angles.is_interleaved {
        let size = x.size();
        let pairs = x.f_view([size[0], size[1], size[2] / 2, 2])?.f_unbind(-1)?;
        Tensor::f_stack(&turned(&pairs[0], &pairs[1])?, -1)?.f_view(&size[..])?
    } else {
        let halves = x.f_chunk(2, -1)?;
        Tensor::f_cat(&turned(&halves[0], &halves[1])?, -1)?
    };
    rotated.f_to_kind(kind)
}

/// silu(gate) * up, where `x` [n, 2 f] holds gate and up side by side.
pub fn swiglu(x: &Tensor) -> Result<Tensor, TchError> {
    if cuda::takes(x) && x.size()[x.dim() - 1] % 4 == 0 {
        let input = x.f_detach()?.f_contiguous()?;
        let y = cuda::gate(&input)?;
        return attach(y, &[x], move |grad| {
            Ok(vec![Some(cuda::gate_backward(&grad.f_contiguous()?, &input)?)])
        });
    }
    if !is_fusable(x) {
        let parts = x.f_chunk(2, -1)?;
        return parts[0].f_silu()?.f_mul(&parts[1]);
    }
    let input = x.f_detach()?.f_contiguous()?;
    let y = fused::gate(&input)?;
    attach(y, &[x], move |grad| {
        Ok(vec![Some(fused::gate_backward(&grad.f_contiguous()?, &input)?)])
    })
}

/// gelu(gate) * up by GELU's tanh formula, where `x` [n, 2 f] holds gate and up side by side.
pub fn geglu(x: &Tensor) -> Result<Tensor, TchError> {
    let parts = x.f_chunk(2, -1)?;
    parts[0].f_gelu("tanh")?.f_mul(&parts[1])
}

/// Rows of `x` in another order, where `order` has no row twice and `inverse` undoes it.
///
/// `order` may be longer than `x`: places named in `blank` are zero, and pass no gradient back.
pub fn reorder(
    x: &Tensor,
    order: &Tensor,
    inverse: &Tensor,
    blanks: (Option<&Tensor>, Option<&Tensor>),
) -> Result<Tensor, TchError> {
    let pick = |from: &Tensor, order: &Tensor, blank: Option<&Tensor>| {
        let mut picked = from.f_index_select(0, order)?;
        match blank {
            Some(blank) => picked.f_index_fill_(0, blank, 0),
            None => Ok(picked),
        }
    };
    let y = pick(&x.f_detach()?, order, blanks.0)?;
    let (inverse, blank) = (inverse.shallow_clone(), blanks.1.map(Tensor::shallow_clone));
    attach(y, &[x], move |grad| Ok(vec![Some(pick(grad, &inverse, blank.as_ref())?)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fused float32 against the torch formula in float64, value and gradient of every input.
    fn agree(inputs: &[Tensor], operation: impl Fn(&[Tensor]) -> Tensor) {
        let run = |kind: Kind| {
            let inputs: Vec<Tensor> = inputs
                .iter()
                .map(|x| x.to_kind(kind).detach().copy().set_requires_grad(true))
                .collect();
            let y = operation(&inputs);
            let ramp = Tensor::arange(y.numel() as i64, (kind, Device::Cpu)).view_as(&y).sin();
            (&y * ramp).sum(kind).backward();
            let grads: Vec<Tensor> =
                inputs.iter().map(|x| x.grad().to_kind(Kind::Double)).collect();
            (y.to_kind(Kind::Double), grads)
        };
        let (fast, fast_grads) = run(Kind::Float);
        let (slow, slow_grads) = run(Kind::Double);
        assert!(fast.allclose(&slow, 1e-5, 1e-5, false), "values differ");
        for (fast, slow) in fast_grads.iter().zip(&slow_grads) {
            assert!(fast.allclose(slow, 1e-4, 1e-4, false), "gradients differ");
        }
    }

    fn random(shape: &[i64], seed: i64) -> Tensor {
        tch::manual_seed(seed);
        Tensor::randn(shape, (Kind::Float, Device::Cpu))
    }

    #[test]
    fn the_fused_norm_is_the_norm() {
        for rows in [1, 7, 300] {
            let inputs = [random(&[rows, 96], 1), random(&[96], 2)];
            agree(&inputs, |x| rms_norm(&x[0], &x[1], 1e-5).unwrap());
        }
    }

    #[test]
    fn the_fused_rotation_is_the_rotation() {
        for rows in [3, 200] {
            let angle = random(&[rows, 8], 3);
            let angles = Angles { cosine: angle.cos(), sine: angle.sin(), is_interleaved: false };
            agree(&[random(&[rows, 6, 16], 4)], |x| rotate(&x[0], &angles, 4).unwrap());
        }
    }

    #[test]
    fn the_fused_gate_is_the_gate() {
        for rows in [2, 333] {
            agree(&[random(&[rows, 80], 5)], |x| swiglu(&x[0]).unwrap());
        }
    }

    /// u · ½ g (1 + tanh(√(2/π) (g + 0.044715 g³))), and its derivatives by differences.
    #[test]
    fn the_gelu_gate_is_its_formula() {
        let formula = |g: f64, u: f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044_715 * g.powi(3));
            u * 0.5 * g * (1.0 + inner.tanh())
        };
        for seed in 0..20 {
            let x = random(&[1, 2], seed).to_kind(Kind::Double) * 3.0;
            let x = x.set_requires_grad(true);
            let [g, u] = [0, 1].map(|at| x.double_value(&[0, at]));
            let y = geglu(&x).unwrap();
            assert!((y.double_value(&[0, 0]) - formula(g, u)).abs() < 1e-9, "{g} {u}");
            y.backward();
            let step = 1e-6;
            let by_g = (formula(g + step, u) - formula(g - step, u)) / (2.0 * step);
            let by_u = formula(g, u + step) - formula(g, u - step);
            for (at, expected) in [(0, by_g), (1, by_u / (2.0 * step))] {
                let found = x.grad().double_value(&[0, at]);
                assert!((found - expected).abs() < 1e-6, "{g} {u}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_failing_backward_is_an_error_and_no_crash() {
        let x = random(&[4], 6).set_requires_grad(true);
        let y = tch::no_grad(|| &x * 2.0);
        let y = attach(y, &[&x], |_| Err(TchError::Torch("on purpose".into()))).unwrap();
        let said = y.sum(Kind::Float).f_backward().unwrap_err().to_string();
        assert!(said.contains("on purpose"), "{said}");
    }
}

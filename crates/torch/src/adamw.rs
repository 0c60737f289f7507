//! One AdamW step over lists of tensors: which of three ways takes it.
//!
//! ```text
//! CUDA          one pass of our kernel (cuda/adamw.cu): moments, master and the rounded copy; the norm in another
//! CPU           torch's fused kernel for float32 moments, a loop (shim/adamw.cpp) for bf16 ones; the copy in a pass of its own
//! CUDA without  torch's fused kernel; moments in bf16 are refused
//! our kernels
//! ```
//! Moments in bf16 are rounded by chance: up with the probability of the share that is cut off, so
//! that many small changes add up to what they are. The chance is a number of the seed, the step and
//! the place of the number among all, so a step taken again comes out the same.
//!
//! Not here: the formula in plain numbers that judges all three (`model/src/train/adamw/reference.rs`).

#![expect(unsafe_code, reason = "the loop takes plain pointers")]

use std::ffi::c_void;

use tch::{Device, Kind, TchError, Tensor};

use crate::cuda::{self, mailbox::Mailbox};
use crate::shim::{self, AdamWNumbers, AdamWTensors};

unsafe extern "C" {
    fn scalerl_cpu_adamw(
        grad: *const c_void,
        is_grad_narrow: i32,
        first: *mut u16,
        second: *mut u16,
        master: *mut f32,
        place: i64,
        length: i64,
        settings: *const LoopSettings,
    );
}

/// What one step has in common for all numbers, as shim/adamw.cpp declares it.
#[repr(C)]
struct LoopSettings {
    scale: f32,
    step_size: f32,
    inverse_root: f32,
    beta1: f32,
    beta2: f32,
    decay: f32,
    epsilon: f32,
    key: u64,
}

/// The tensors of a step; the lists share an order.
pub struct Lists<'a> {
    /// float32 masters.
    pub parameters: &'a [Tensor],
    /// float32 or bf16, each for itself.
    pub grads: &'a [Tensor],
    /// float32 or bf16, all alike.
    pub first: &'a [Tensor],
    pub second: &'a [Tensor],
    /// bf16 copies of the masters, renewed along.
    pub rounded: Option<&'a [Tensor]>,
    /// One float32 count a parameter, in one tensor.
    pub steps: &'a Tensor,
    /// Place of each tensor's first number among all of the model.
    pub places: &'a [i64],
}

/// The numbers of a step.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    pub adamw: AdamWNumbers,
    /// Gradients are scaled down to this norm; 0 leaves them alone.
    pub largest_norm: f64,
    pub seed: u64,
}

/// Takes a step and returns the norm of these gradients before clipping, or nothing where it was
/// `given`, taken over more than these. Where it is not finite nothing changes. On a device the step
/// itself may still be under way when the norm is known.
pub fn step(
    lists: &Lists,
    given: Option<&Tensor>,
    numbers: &Numbers,
    mail: &mut Mailbox,
) -> Result<Option<f64>, TchError> {
    let count = lists.parameters.len();
    let lengths = [lists.grads.len(), lists.first.len(), lists.second.len(), lists.places.len()];
    let is_whole = lengths == [count; 4]
        && lists.rounded.is_none_or(|rounded| rounded.len() == count)
        && lists.steps.numel() == count;
    assert!(is_whole, "lists share a length");
    let Some(one) = lists.parameters.first() else {
        return Err(TchError::Torch("a step needs parameters".to_owned()));
    };
    if cuda::is_ready(one.device()) {
        return cuda::adamw::step(lists, given, numbers, mail);
    }
    let norm = match given {
        Some(norm) => norm.shallow_clone(),
        None => shim::global_norm(lists.grads)?,
    };
    match (lists.first[0].kind(), one.device()) {
        (Kind::Float, _) => by_torch(lists, &norm, numbers)?,
        (_, Device::Cpu) => by_loop(lists, &norm, numbers)?,
        (_, device) => {
            let why = cuda::why_not_ready(device).unwrap_or_default();
            return Err(TchError::Torch(format!("moments in bf16 need our kernels: {why}")));
        }
    }
    if let Some(rounded) = lists.rounded {
        shim::copy_each(rounded, lists.parameters)?;
    }
    given.is_none().then(|| norm.f_double_value(&[])).transpose()
}

fn by_torch(lists: &Lists, norm: &Tensor, numbers: &Numbers) -> Result<(), TchError> {
    let skip = norm.f_isfinite()?.f_logical_not()?.f_to_kind(Kind::Float)?;
    let divisor = if numbers.largest_norm > 0.0 {
        norm.f_div_scalar(numbers.largest_norm)?.f_clamp_min(1.0)?
    } else {
        norm.f_ones_like()?
    };
    let grads: Vec<Tensor> =
        lists.grads.iter().map(|grad| grad.f_to_kind(Kind::Float)).collect::<Result<_, _>>()?;
    let counts = 0..lists.parameters.len() as i64;
    let steps: Vec<Tensor> =
        counts.map(|index| lists.steps.f_select(0, index)).collect::<Result<_, _>>()?;
    let tensors = AdamWTensors {
        parameters: lists.parameters,
        grads: &grads,
        first: lists.first,
        second: lists.second,
        steps: &steps,
        divisor: &divisor,
        skip: &skip,
    };
    shim::fused_adamw(&tensors, numbers.adamw)
}

fn by_loop(lists: &Lists, norm: &Tensor, numbers: &Numbers) -> Result<(), TchError> {
    let norm = norm.f_double_value(&[])?;
    if !norm.is_finite() {
        return Ok(());
    }
    let _ = lists.steps.shallow_clone().f_add_scalar_(1.0)?;
    let step = lists.steps.f_double_value(&[0])?;
    let AdamWNumbers { lr, betas: (beta1, beta2), weight_decay, epsilon } = numbers.adamw;
    let above = if numbers.largest_norm > 0.0 { norm / numbers.largest_norm } else { 1.0 };
    let settings = LoopSettings {
        scale: (1.0 / above.max(1.0)) as f32,
        step_size: (lr / (1.0 - beta1.powf(step))) as f32,
        inverse_root: (1.0 / (1.0 - beta2.powf(step)).sqrt()) as f32,
        beta1: beta1 as f32,
        beta2: beta2 as f32,
        decay: (lr * weight_decay) as f32,
        epsilon: epsilon as f32,
        key: key(numbers.seed, step as u64),
    };
    for (index, master) in lists.parameters.iter().enumerate() {
        let length = master.numel() as i64;
        let grad = lists.grads[index].f_contiguous()?;
        let is_narrow = grad.kind() == Kind::BFloat16;
        let grad_kind = if is_narrow { Kind::BFloat16 } else { Kind::Float };
        let [first, second] = [&lists.first[index], &lists.second[index]];
        // SAFETY: every pointer covers the checked number of elements of the checked kind.
        unsafe {
            scalerl_cpu_adamw(
                data(&grad, grad_kind, length),
                i32::from(is_narrow),
                data(first, Kind::BFloat16, length).cast(),
                data(second, Kind::BFloat16, length).cast(),
                data(master, Kind::Float, length).cast(),
                lists.places[index],
                length,
                &raw const settings,
            );
        }
    }
    Ok(())
}

/// The data of a contiguous tensor on the CPU with `count` numbers; anything else is a bug.
fn data(tensor: &Tensor, kind: Kind, count: i64) -> *mut c_void {
    assert!(
        tensor.kind() == kind
            && tensor.device() == Device::Cpu
            && tensor.is_contiguous()
            && tensor.numel() as i64 == count,
        "the loop needs {count} contiguous {kind:?} numbers, got {tensor:?}"
    );
    tensor.data_ptr()
}

/// What the noise of a step starts from: the seed's number of this step (SplitMix64).
fn key(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

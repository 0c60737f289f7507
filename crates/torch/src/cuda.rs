//! Our CUDA kernels: compiled by NVRTC when a device is first used, launched on torch's stream.
//!
//! Everything here is optional. Where NVRTC or the driver is missing, [`is_ready`] is false and the
//! callers (`ops.rs`, `head/rows.rs`) use torch operations. Shapes are checked before a launch.

#![expect(unsafe_code, reason = "kernels take plain pointers")]

pub(crate) mod adamw;
pub mod graph;
pub mod launch;
pub mod mailbox;

use tch::{Device, Kind, TchError, Tensor};

use launch::{Argument, Grid, launch};
pub use launch::{is_ready, why_not_ready};

/// Threads of a block that owns one row of activations.
const ROW_THREADS: u32 = 256;
/// Threads of a block that owns one row of logits.
const HEAD_THREADS: u32 = 1024;
/// Shared memory that a block gets without asking, less what `block_sum` uses.
const SHARED_BYTES: usize = (48 << 10) - 128;
/// Numbers of 16 bytes, which the wide kernels move at once; their threads, and how many pieces a
/// thread of `add_norm_wide` keeps.
const WIDE: i64 = 8;
const WIDE_NORM_THREADS: u32 = 128;
const WIDE_NORM_PIECES: i64 = 4;
const WIDE_GATE_THREADS: u32 = 256;
/// Blocks of the norm's backward, each with a row of partial sums.
const NORM_BLOCKS: i64 = 512;

/// Whether a tensor is what the kernels take: contiguous bf16 on a ready device.
pub fn takes(tensor: &Tensor) -> bool {
    tensor.kind() == Kind::BFloat16
        && matches!(tensor.device(), Device::Cuda(_))
        && is_ready(tensor.device())
}

/// Whether a norm of this width fits: pairs of columns, and their sums in shared memory.
pub fn takes_norm(x: &Tensor, weight: &Tensor) -> bool {
    let width = weight.numel();
    takes(x) && takes(weight) && width.is_multiple_of(2) && width * 4 <= SHARED_BYTES
}

fn pointer(tensor: &Tensor, kind: Kind, count: i64) -> Argument {
    assert!(
        tensor.kind() == kind
            && matches!(tensor.device(), Device::Cuda(_))
            && tensor.is_contiguous()
            && tensor.numel() as i64 == count,
        "a kernel needs {count} contiguous numbers of {kind:?} on CUDA, got {tensor:?}"
    );
    Argument::Pointer(tensor.data_ptr())
}

/// Whether rows of `width` numbers of all these can be moved 16 bytes at a time.
fn is_wide(width: i64, tensors: &[&Tensor]) -> bool {
    width % WIDE == 0 && tensors.iter().all(|x| x.data_ptr().addr().is_multiple_of(16))
}

/// Rows and columns of a tensor seen as a matrix over its last dimension.
fn matrix(tensor: &Tensor) -> (i64, i64) {
    let columns = tensor.size().last().copied().unwrap_or(1);
    (tensor.numel() as i64 / columns.max(1), columns)
}

fn rows_grid(rows: i64, threads: u32) -> Grid {
    Grid { blocks: rows as u32, threads, shared_bytes: 0 }
}

pub fn norm(x: &Tensor, w: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor), TchError> {
    let (rows, d) = matrix(x);
    let y = x.f_empty_like()?;
    let scale = Tensor::f_empty([rows], (Kind::Float, x.device()))?;
    let mut arguments = [
        pointer(x, Kind::BFloat16, rows * d),
        pointer(w, Kind::BFloat16, d),
        pointer(&y, Kind::BFloat16, rows * d),
        pointer(&scale, Kind::Float, rows),
        Argument::Int((d / 2) as i32),
        Argument::Float(epsilon as f32),
    ];
    launch("norm_forward", x.device(), rows_grid(rows, ROW_THREADS), &mut arguments)?;
    Ok((y, scale))
}

/// The sum of two tensors, and the norm of the sum.
pub fn add_norm(
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
    epsilon: f64,
) -> Result<(Tensor, Tensor), TchError> {
    let (rows, d) = matrix(x);
    let (sum, normed) = (x.f_empty_like()?, x.f_empty_like()?);
    let mut arguments = [
        pointer(x, Kind::BFloat16, rows * d),
        pointer(y, Kind::BFloat16, rows * d),
        pointer(w, Kind::BFloat16, d),
        pointer(&sum, Kind::BFloat16, rows * d),
        pointer(&normed, Kind::BFloat16, rows * d),
        Argument::Int((d / 2) as i32),
        Argument::Float(epsilon as f32),
    ];
    let most = WIDE * WIDE_NORM_PIECES * i64::from(WIDE_NORM_THREADS);
    if d <= most && is_wide(d, &[x, y, w, &sum, &normed]) {
        arguments[5] = Argument::Int((d / WIDE) as i32);
        let grid = rows_grid(rows, WIDE_NORM_THREADS);
        launch("add_norm_wide", x.device(), grid, &mut arguments)?;
    } else {
        launch("add_norm", x.device(), rows_grid(rows, ROW_THREADS), &mut arguments)?;
    }
    Ok((sum, normed))
}

pub fn norm_backward(
    g: &Tensor,
    x: &Tensor,
    w: &Tensor,
    scale: &Tensor,
) -> Result<(Tensor, Tensor), TchError> {
    let (rows, d) = matrix(x);
    let blocks = rows.min(NORM_BLOCKS);
    let dx = x.f_empty_like()?;
    let parts = Tensor::f_empty([blocks, d], (Kind::Float, x.device()))?;
    let mut arguments = [
        pointer(g, Kind::BFloat16, rows * d),
        pointer(x, Kind::BFloat16, rows * d),
        pointer(w, Kind::BFloat16, d),
        pointer(scale, Kind::Float, rows),
        pointer(&dx, Kind::BFloat16, rows * d),
        pointer(&parts, Kind::Float, blocks * d),
        Argument::Long(rows),
        Argument::Int((d / 2) as i32),
    ];
    let grid = Grid { blocks: blocks as u32, threads: ROW_THREADS, shared_bytes: 4 * d as u32 };
    launch("norm_backward", x.device(), grid, &mut arguments)?;
    let dw = parts.f_sum_dim_intlist(0, false, None)?.f_to_kind(Kind::BFloat16)?;
    Ok((dx, dw))
}

pub fn rotate(
    x: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    rotated: i64,
    direction: f32,
) -> Result<Tensor, TchError> {
    let (rows, heads, width) = x.size3()?;
    let y = x.f_empty_like()?;
    let count = rows * heads * width;
    let mut arguments = [
        pointer(x, Kind::BFloat16, count),
        pointer(cosine, Kind::Float, rows * width / 2),
        pointer(sine, Kind::Float, rows * width / 2),
        pointer(&y, Kind::BFloat16, count),
        Argument::Int(heads as i32),
        Argument::Int(rotated as i32),
        Argument::Int((width / 4) as i32),
        Argument::Float(direction),
    ];
    launch("rotate", x.device(), rows_grid(rows, ROW_THREADS), &mut arguments)?;
    Ok(y)
}

pub fn gate(x: &Tensor) -> Result<Tensor, TchError> {
    let (rows, doubled) = x.size2()?;
    let f = doubled / 2;
    let y = Tensor::f_empty([rows, f], (Kind::BFloat16, x.device()))?;
    let pieces = rows * f / WIDE;
    if is_wide(f, &[x, &y]) && pieces <= i64::from(i32::MAX) {
        let mut arguments = [
            pointer(x, Kind::BFloat16, rows * doubled),
            pointer(&y, Kind::BFloat16, rows * f),
            Argument::Int((f / WIDE) as i32),
            Argument::Int(pieces as i32),
        ];
        let blocks = (pieces as u32).div_ceil(WIDE_GATE_THREADS);
        let grid = Grid { blocks, threads: WIDE_GATE_THREADS, shared_bytes: 0 };
        launch("gate_forward_wide", x.device(), grid, &mut arguments)?;
        return Ok(y);
    }
    let mut arguments = [
        pointer(x, Kind::BFloat16, rows * doubled),
        pointer(&y, Kind::BFloat16, rows * f),
        Argument::Int((f / 2) as i32),
    ];
    launch("gate_forward", x.device(), rows_grid(rows, ROW_THREADS), &mut arguments)?;
    Ok(y)
}

pub fn gate_backward(g: &Tensor, x: &Tensor) -> Result<Tensor, TchError> {
    let (rows, doubled) = x.size2()?;
    let f = doubled / 2;
    let dx = x.f_empty_like()?;
    let mut arguments = [
        pointer(g, Kind::BFloat16, rows * f),
        pointer(x, Kind::BFloat16, rows * doubled),
        pointer(&dx, Kind::BFloat16, rows * doubled),
        Argument::Int((f / 2) as i32),
    ];
    launch("gate_backward", x.device(), rows_grid(rows, ROW_THREADS), &mut arguments)?;
    Ok(dx)
}

/// Log-prob of the target, entropy and log-sum-exp of each row of float32 logits.
pub fn head(
    logits: &Tensor,
    targets: &Tensor,
    inverse_temperature: f64,
) -> Result<[Tensor; 3], TchError> {
    let (rows, v) = logits.size2()?;
    let empty = || Tensor::f_empty([rows], (Kind::Float, logits.device()));
    let out = [empty()?, empty()?, empty()?];
    let mut arguments = [
        pointer(logits, Kind::Float, rows * v),
        pointer(targets, Kind::Int64, rows),
        pointer(&out[0], Kind::Float, rows),
        pointer(&out[1], Kind::Float, rows),
        pointer(&out[2], Kind::Float, rows),
        Argument::Int(v as i32),
        Argument::Float(inverse_temperature as f32),
    ];
    launch("head_forward", logits.device(), rows_grid(rows, HEAD_THREADS), &mut arguments)?;
    Ok(out)
}

/// The kind in which the gradient of logits is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlopeKind {
    /// A new bf16 tensor, for products that take bf16.
    BFloat16,
    /// float32 over the logits.
    Float32,
}

pub fn head_backward(
    logits: &Tensor,
    targets: &Tensor,
    [lse, entropy]: [&Tensor; 2],
    d_logprob: &Tensor,
    d_entropy: Option<&Tensor>,
    (inverse_temperature, kind): (f64, SlopeKind),
) -> Result<Tensor, TchError> {
    let (rows, v) = logits.size2()?;
    let mut arguments = vec![
        pointer(logits, Kind::Float, rows * v),
        pointer(targets, Kind::Int64, rows),
        pointer(lse, Kind::Float, rows),
        pointer(entropy, Kind::Float, rows),
        pointer(d_logprob, Kind::Float, rows),
        d_entropy
            .map_or(Argument::Pointer(std::ptr::null_mut()), |g| pointer(g, Kind::Float, rows)),
    ];
    let (name, out) = match kind {
        SlopeKind::BFloat16 => {
            let out = Tensor::f_empty([rows, v], (Kind::BFloat16, logits.device()))?;
            arguments.push(pointer(&out, Kind::BFloat16, rows * v));
            ("head_backward", out)
        }
        SlopeKind::Float32 => ("head_backward_wide", logits.shallow_clone()),
    };
    arguments.push(Argument::Int(v as i32));
    arguments.push(Argument::Float(inverse_temperature as f32));
    launch(name, logits.device(), rows_grid(rows, HEAD_THREADS), &mut arguments)?;
    Ok(out)
}

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
pub use launch::{is_hopper, is_ready, why_not_ready};

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
/// The longest row that a block, and that a warp, keeps in its registers.
const WIDE_NORM_MOST: i64 = WIDE * WIDE_NORM_PIECES * WIDE_NORM_THREADS as i64;
const WARP_NORM_MOST: i64 = WIDE * WIDE_NORM_PIECES * 32;
const WIDE_GATE_THREADS: u32 = 256;
/// Blocks of the norm's backward, each with a row of partial sums: three on each of an H200's
/// multiprocessors, so that no block waits for another's end.
const NORM_BLOCKS: i64 = 3 * 132;

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

fn pointer_or_null(tensor: Option<&Tensor>, kind: Kind, count: i64) -> Argument {
    tensor.map_or(Argument::Pointer(std::ptr::null_mut()), |tensor| pointer(tensor, kind, count))
}

/// The sum of two tensors, and the norm of the sum. `scale` [rows], where it is wanted, gets what
/// [`norm_backward`] asks for.
pub fn add_norm(
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
    scale: Option<&Tensor>,
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
        pointer_or_null(scale, Kind::Float, rows),
        Argument::Int((d / 2) as i32),
        Argument::Float(epsilon as f32),
    ];
    if d <= WIDE_NORM_MOST && is_wide(d, &[x, y, w, &sum, &normed]) {
        arguments[6] = Argument::Int((d / WIDE) as i32);
        let grid = rows_grid(rows, WIDE_NORM_THREADS);
        launch("add_norm_wide", x.device(), grid, &mut arguments)?;
    } else {
        launch("add_norm", x.device(), rows_grid(rows, ROW_THREADS), &mut arguments)?;
    }
    Ok((sum, normed))
}

/// Gradients of a norm's input and weight. `rest` is a gradient that reaches the input beside the
/// norm and is added to it.
pub fn norm_backward(
    g: &Tensor,
    x: &Tensor,
    w: &Tensor,
    scale: &Tensor,
    rest: Option<&Tensor>,
) -> Result<(Tensor, Tensor), TchError> {
    let (rows, d) = matrix(x);
    let dx = x.f_empty_like()?;
    let beside: Vec<&Tensor> = [g, x, w, &dx].into_iter().chain(rest).collect();
    let is_kept = d <= WIDE_NORM_MOST && is_wide(d, &beside);
    // Rows that a block works on at a time.
    let at_once =
        if is_kept && d <= WARP_NORM_MOST { i64::from(WIDE_NORM_THREADS) / 32 } else { 1 };
    let blocks = ((rows + at_once - 1) / at_once).min(NORM_BLOCKS);
    let parts = Tensor::f_empty([blocks, d], (Kind::Float, x.device()))?;
    let unit = if is_kept { WIDE } else { 2 };
    let mut arguments = [
        pointer(g, Kind::BFloat16, rows * d),
        pointer(x, Kind::BFloat16, rows * d),
        pointer(w, Kind::BFloat16, d),
        pointer(scale, Kind::Float, rows),
        pointer_or_null(rest, Kind::BFloat16, rows * d),
        pointer(&dx, Kind::BFloat16, rows * d),
        pointer(&parts, Kind::Float, blocks * d),
        Argument::Long(rows),
        Argument::Int((d / unit) as i32),
    ];
    let (name, threads, shared) = match (is_kept, at_once) {
        (true, 1) => ("norm_backward_long", WIDE_NORM_THREADS, 0),
        (true, _) => ("norm_backward_short", WIDE_NORM_THREADS, 4 * d as u32),
        (false, _) => ("norm_backward", ROW_THREADS, 4 * d as u32),
    };
    let grid = Grid { blocks: blocks as u32, threads, shared_bytes: shared };
    launch(name, x.device(), grid, &mut arguments)?;
    let dw = parts.f_sum_dim_intlist(0, false, None)?.f_to_kind(Kind::BFloat16)?;
    Ok((dx, dw))
}

/// Rotates the first `rotated` heads of `x` [n, heads, width] into `y`, which may be `x` itself.
fn rotate_into(
    x: &Tensor,
    [cosine, sine]: [&Tensor; 2],
    y: &Tensor,
    rotated: i64,
    direction: f32,
) -> Result<(), TchError> {
    let (rows, heads, width) = x.size3()?;
    let count = rows * heads * width;
    let mut arguments = [
        pointer(x, Kind::BFloat16, count),
        pointer(cosine, Kind::Float, rows * width / 2),
        pointer(sine, Kind::Float, rows * width / 2),
        pointer(y, Kind::BFloat16, count),
        Argument::Int(heads as i32),
        Argument::Int(rotated as i32),
        Argument::Int((width / 4) as i32),
        Argument::Float(direction),
    ];
    launch("rotate", x.device(), rows_grid(rows, ROW_THREADS), &mut arguments)
}

pub fn rotate(
    x: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    rotated: i64,
    direction: f32,
) -> Result<Tensor, TchError> {
    let y = x.f_empty_like()?;
    rotate_into(x, [cosine, sine], &y, rotated, direction)?;
    Ok(y)
}

/// Rotates the first `rotated` heads of `x` where they lie.
pub fn rotate_in_place(x: &Tensor, angles: [&Tensor; 2], rotated: i64) -> Result<(), TchError> {
    rotate_into(x, angles, x, rotated, 1.0)
}

/// Gradients of rotated queries [n, heads, width] and keys, and of values, as the gradient of what
/// was rotated, [n, heads + 2 kv_heads, width].
pub fn rotate_back(
    [q, k, v]: [&Tensor; 3],
    [cosine, sine]: [&Tensor; 2],
) -> Result<Tensor, TchError> {
    let (rows, heads, width) = q.size3()?;
    let kv_heads = k.size3()?.1;
    let shape = [rows, heads + 2 * kv_heads, width];
    let y = Tensor::f_empty(shape, (Kind::BFloat16, q.device()))?;
    let mut arguments = [
        pointer(q, Kind::BFloat16, rows * heads * width),
        pointer(k, Kind::BFloat16, rows * kv_heads * width),
        pointer(v, Kind::BFloat16, rows * kv_heads * width),
        pointer(cosine, Kind::Float, rows * width / 2),
        pointer(sine, Kind::Float, rows * width / 2),
        pointer(&y, Kind::BFloat16, shape.iter().product()),
        Argument::Int(heads as i32),
        Argument::Int(kv_heads as i32),
        Argument::Int((width / 4) as i32),
    ];
    launch("rotate_back", q.device(), rows_grid(rows, ROW_THREADS), &mut arguments)?;
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
    let pieces = rows * f / WIDE;
    let is_wide = is_wide(f, &[g, x, &dx]) && pieces <= i64::from(i32::MAX);
    let mut arguments = vec![
        pointer(g, Kind::BFloat16, rows * f),
        pointer(x, Kind::BFloat16, rows * doubled),
        pointer(&dx, Kind::BFloat16, rows * doubled),
        Argument::Int((f / if is_wide { WIDE } else { 2 }) as i32),
    ];
    let (name, grid) = if is_wide {
        arguments.push(Argument::Int(pieces as i32));
        let blocks = (pieces as u32).div_ceil(WIDE_GATE_THREADS);
        ("gate_backward_wide", Grid { blocks, threads: WIDE_GATE_THREADS, shared_bytes: 0 })
    } else {
        ("gate_backward", rows_grid(rows, ROW_THREADS))
    };
    launch(name, x.device(), grid, &mut arguments)?;
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
        pointer_or_null(d_entropy, Kind::Float, rows),
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

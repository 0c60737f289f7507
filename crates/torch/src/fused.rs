//! Safe faces of the fused CPU loops (`shim/fused.cpp`): shapes are checked here.

#![expect(unsafe_code, reason = "the loops take plain pointers")]

use tch::{Device, Kind, TchError, Tensor};

unsafe extern "C" {
    fn scalerl_cpu_norm(
        x: *const f32,
        w: *const f32,
        y: *mut f32,
        scale: *mut f32,
        rows: i64,
        d: i64,
        epsilon: f32,
    );
    fn scalerl_cpu_norm_backward(
        g: *const f32,
        x: *const f32,
        w: *const f32,
        scale: *const f32,
        dx: *mut f32,
        dw: *mut f32,
        rows: i64,
        d: i64,
    );
    fn scalerl_cpu_rotate(
        x: *const f32,
        cosine: *const f32,
        sine: *const f32,
        y: *mut f32,
        rows: i64,
        heads: i64,
        rotated: i64,
        width: i64,
        direction: f32,
    );
    fn scalerl_cpu_gate(x: *const f32, y: *mut f32, rows: i64, f: i64);
    fn scalerl_cpu_gate_backward(g: *const f32, x: *const f32, dx: *mut f32, rows: i64, f: i64);
    fn scalerl_cpu_head(
        logits: *const f32,
        targets: *const i64,
        logprob: *mut f32,
        entropy: *mut f32,
        lse: *mut f32,
        rows: i64,
        v: i64,
        inverse_temperature: f32,
    );
    fn scalerl_cpu_head_backward(
        logits: *mut f32,
        targets: *const i64,
        lse: *const f32,
        entropy: *const f32,
        d_logprob: *const f32,
        d_entropy: *const f32,
        rows: i64,
        v: i64,
        inverse_temperature: f32,
    );
}

/// The data of a contiguous float32 tensor on the CPU with `count` numbers; anything else is a bug.
fn floats(tensor: &Tensor, count: i64) -> *mut f32 {
    assert!(
        tensor.kind() == Kind::Float
            && tensor.device() == Device::Cpu
            && tensor.is_contiguous()
            && tensor.numel() as i64 == count,
        "a fused loop needs {count} contiguous float32 numbers, got {tensor:?}"
    );
    tensor.data_ptr().cast()
}

fn indices(tensor: &Tensor, count: i64) -> *const i64 {
    assert!(
        tensor.kind() == Kind::Int64
            && tensor.device() == Device::Cpu
            && tensor.is_contiguous()
            && tensor.numel() as i64 == count,
        "a fused loop needs {count} contiguous int64 numbers, got {tensor:?}"
    );
    tensor.data_ptr().cast_const().cast()
}

fn empty(shape: &[i64]) -> Result<Tensor, TchError> {
    Tensor::f_empty(shape, (Kind::Float, Device::Cpu))
}

/// Rows and columns of a tensor seen as a matrix over its last dimension.
fn matrix(tensor: &Tensor) -> (i64, i64) {
    let columns = tensor.size().last().copied().unwrap_or(1);
    (tensor.numel() as i64 / columns.max(1), columns)
}

pub fn norm(x: &Tensor, w: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor), TchError> {
    let (rows, d) = matrix(x);
    let (y, scale) = (empty(&x.size())?, empty(&[rows])?);
    let (xp, wp) = (floats(x, rows * d), floats(w, d));
    // SAFETY: every pointer covers the checked number of elements; outputs are fresh.
    unsafe {
        let (yp, sp) = (floats(&y, rows * d), floats(&scale, rows));
        scalerl_cpu_norm(xp, wp, yp, sp, rows, d, epsilon as f32);
    }
    Ok((y, scale))
}

pub fn norm_backward(
    g: &Tensor,
    x: &Tensor,
    w: &Tensor,
    scale: &Tensor,
) -> Result<(Tensor, Tensor), TchError> {
    let (rows, d) = matrix(x);
    let (dx, dw) = (empty(&x.size())?, empty(&[d])?);
    let (gp, xp) = (floats(g, rows * d), floats(x, rows * d));
    let (wp, sp) = (floats(w, d), floats(scale, rows));
    // SAFETY: as above.
    unsafe {
        let (dxp, dwp) = (floats(&dx, rows * d), floats(&dw, d));
        scalerl_cpu_norm_backward(gp, xp, wp, sp, dxp, dwp, rows, d);
    }
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
    assert!(rotated <= heads, "{rotated} of {heads} heads");
    let y = empty(&x.size())?;
    let (cp, sp) = (floats(cosine, rows * width / 2), floats(sine, rows * width / 2));
    let (xp, yp) = (floats(x, rows * heads * width), floats(&y, rows * heads * width));
    // SAFETY: as above.
    unsafe { scalerl_cpu_rotate(xp, cp, sp, yp, rows, heads, rotated, width, direction) };
    Ok(y)
}

pub fn gate(x: &Tensor) -> Result<Tensor, TchError> {
    let (rows, doubled) = x.size2()?;
    let y = empty(&[rows, doubled / 2])?;
    let (xp, yp) = (floats(x, rows * doubled), floats(&y, rows * doubled / 2));
    // SAFETY: as above.
    unsafe { scalerl_cpu_gate(xp, yp, rows, doubled / 2) };
    Ok(y)
}

pub fn gate_backward(g: &Tensor, x: &Tensor) -> Result<Tensor, TchError> {
    let (rows, doubled) = x.size2()?;
    let dx = empty(&x.size())?;
    let (gp, xp) = (floats(g, rows * doubled / 2), floats(x, rows * doubled));
    let dxp = floats(&dx, rows * doubled);
    // SAFETY: as above.
    unsafe { scalerl_cpu_gate_backward(gp, xp, dxp, rows, doubled / 2) };
    Ok(dx)
}

/// Log-prob of the target, entropy and log-sum-exp of each row of logits.
pub fn head(
    logits: &Tensor,
    targets: &Tensor,
    inverse_temperature: f64,
) -> Result<[Tensor; 3], TchError> {
    let (rows, v) = logits.size2()?;
    let out = [empty(&[rows])?, empty(&[rows])?, empty(&[rows])?];
    let [logprob, entropy, lse] = [&out[0], &out[1], &out[2]].map(|tensor| floats(tensor, rows));
    let (lp, tp) = (floats(logits, rows * v), indices(targets, rows));
    // SAFETY: as above; the caller has checked that targets lie in the vocabulary.
    unsafe {
        scalerl_cpu_head(lp, tp, logprob, entropy, lse, rows, v, inverse_temperature as f32);
    }
    Ok(out)
}

/// Overwrites logits by the gradient of the loss with respect to them.
pub fn head_backward(
    logits: &Tensor,
    targets: &Tensor,
    [lse, entropy]: [&Tensor; 2],
    [d_logprob, d_entropy]: [&Tensor; 2],
    inverse_temperature: f64,
) -> Result<(), TchError> {
    let (rows, v) = logits.size2()?;
    let [lse, entropy, d_logprob, d_entropy] =
        [lse, entropy, d_logprob, d_entropy].map(|tensor| floats(tensor, rows));
    let (lp, tp) = (floats(logits, rows * v), indices(targets, rows));
    // SAFETY: as above; nobody else holds the logits.
    unsafe {
        scalerl_cpu_head_backward(
            lp,
            tp,
            lse,
            entropy,
            d_logprob,
            d_entropy,
            rows,
            v,
            inverse_temperature as f32,
        );
    }
    Ok(())
}

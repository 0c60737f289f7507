//! Where a decode step's time goes: each kind of its work recorded apart, for all layers, and timed.
//!
//! Replayed graphs, because kernels of a few microseconds launched one by one would measure the
//! host. Work that stands apart overlaps a little less than inside the whole step, so the parts add
//! up to somewhat more.

use serde::Serialize;
use tch::{Kind, TchError, Tensor};

use super::DevicePlaces;
use super::decode::{DecodeRow, Parts, RowToken, Size, body, words};
use crate::pool::Page;
use crate::request::Sampling;
use crate::sampler::RowSampling;
use scalerl_model::config::{FeedForward, ModelConfig};
use scalerl_torch::cuda::graph::timed;
use scalerl_torch::ops::{add_rms_norm, swiglu};

const RUNS: usize = 20;

/// One kind of work of a decode step, all layers together.
#[derive(Debug, Clone, Serialize)]
pub struct PartTime {
    pub part: &'static str,
    pub ms: f64,
    /// The same by torch's own product, for products.
    pub torch_ms: Option<f64>,
}

/// Times the parts of a step of `rows` sequences of `length` tokens.
pub(crate) fn of(
    config: &ModelConfig,
    [rows, length]: [usize; 2],
    parts: Parts,
) -> Result<Vec<PartTime>, TchError> {
    let page = parts.cache.tokens_per_page() as usize;
    let (held, pool) = (length.div_ceil(page), parts.cache.spare_page() as usize);
    let tables: Vec<Vec<Page>> = (0..rows)
        .map(|row| (0..held).map(|at| ((row * held + at) % pool) as Page).collect())
        .collect();
    let sequences: Vec<DecodeRow> = tables
        .iter()
        .enumerate()
        .map(|(row, pages)| DecodeRow {
            token: RowToken::Known(row as i64 % config.vocabulary),
            position: length - 1,
            pages,
            sampling: RowSampling {
                sampling: Sampling::default(),
                seed: row as u64,
                place: length,
            },
        })
        .collect();
    let size = Size::for_rows(&sequences, page, false);
    parts.tune(size.rows as i64)?;
    let device = parts.network.device();
    let words = words(size, &sequences, parts.cache);
    let inputs = Tensor::f_from_slice(&words)?.f_to_device(device)?;
    let outputs = Tensor::f_zeros([2 * size.rows as i64], (Kind::Int, device))?;
    for _ in 0..2 {
        body(size, &inputs, &outputs, parts)?;
    }
    let watch = |body: &dyn Fn() -> Result<(), TchError>| -> Result<f64, TchError> {
        body()?;
        Ok(timed(device, RUNS, body)? * 1e3)
    };
    let mut found = Vec::new();
    let mut add = |part, ms| found.push(PartTime { part, ms, torch_ms: None });
    add("whole step", watch(&|| body(size, &inputs, &outputs, parts))?);
    layers(config, size, &inputs, parts, &mut add, &watch)?;
    head(config, size, [&inputs, &outputs], parts, &mut add, &watch)?;
    products(config, size, parts, &mut found)?;
    Ok(found)
}

type Watch<'a> = &'a dyn Fn(&dyn Fn() -> Result<(), TchError>) -> Result<f64, TchError>;

/// What our kernels do in the layers.
fn layers(
    config: &ModelConfig,
    size: Size,
    inputs: &Tensor,
    parts: Parts,
    add: &mut dyn FnMut(&'static str, f64),
    watch: Watch,
) -> Result<(), TchError> {
    let (r, p) = (size.rows as i64, size.pages as i64);
    let device = parts.network.device();
    let random = |shape: &[i64]| Tensor::f_randn(shape, (Kind::BFloat16, device));
    let places = DevicePlaces {
        positions: inputs.f_narrow(0, r, r)?,
        tables: inputs.f_narrow(0, 7 * r, r * p)?.f_view([r, p])?,
        rows: None,
        longest: p * parts.cache.tokens_per_page(),
    };
    let count = config.layers.len();
    let each = |body: &dyn Fn(usize) -> Result<(), TchError>| (0..count).try_for_each(body);
    let positions = places.positions.f_to_kind(Kind::Int64)?;
    let angles = &parts.network.angles(&positions)?[0];
    let qkv = random(&[r, config.heads + 2 * config.kv_heads, config.head_width])?;
    let queries = qkv.f_narrow(1, 0, config.heads)?;
    let attend = |layer: usize| {
        let (cache, span) = (parts.cache.layer(layer), config.layers[layer].span);
        if angles.is_interleaved {
            parts.kernels.attend(&queries, cache, &places, span).map(drop)
        } else {
            parts.kernels.rotate_and_attend(&qkv, angles, cache, &places, span).map(drop)
        }
    };
    add("attention, rotated", watch(&|| each(&attend))?);
    let (x, weight) = (random(&[r, config.width])?, random(&[config.width])?);
    let norm = |_| add_rms_norm(&x, &x, &weight, 1e-5).map(drop);
    add("sums and norms", watch(&|| each(&norm).and_then(|()| each(&norm)))?);
    if let FeedForward::Dense { width } = config.layers[0].feed_forward {
        let x = random(&[r, 2 * width])?;
        add("gate", watch(&|| each(&|_| swiglu(&x).map(drop)))?);
    }
    Ok(())
}

/// The embedding aside, what comes once a step.
fn head(
    config: &ModelConfig,
    size: Size,
    [inputs, outputs]: [&Tensor; 2],
    parts: Parts,
    add: &mut dyn FnMut(&'static str, f64),
    watch: Watch,
) -> Result<(), TchError> {
    let (r, device) = (size.rows as i64, parts.network.device());
    let hidden = Tensor::f_randn([r, config.width], (Kind::BFloat16, device))?;
    let given = [&inputs.f_narrow(0, 0, r)?, &inputs.f_narrow(0, r, r)?];
    let feed = || parts.kernels.feed(given, outputs, parts.network.rotary()).map(drop);
    add("tokens, angles", watch(&feed)?);
    add("head", watch(&|| parts.logits(&hidden).map(drop))?);
    let logits = parts.logits(&hidden)?;
    let settings = inputs.f_narrow(0, 2 * r, 5 * r)?;
    add("drawing", watch(&|| parts.kernels.draw(&logits, &settings, outputs))?);
    Ok(())
}

fn products(
    config: &ModelConfig,
    size: Size,
    parts: Parts,
    found: &mut Vec<PartTime>,
) -> Result<(), TchError> {
    let Some(products) = parts.tuned else { return Ok(()) };
    let mut add = |part, times: super::product::Found, count: usize| {
        let ms = |seconds: f64| seconds * 1e3 * count as f64;
        found.push(PartTime { part, ms: ms(times.best), torch_ms: Some(ms(times.torch)) });
    };
    let rows = size.rows as i64;
    for (part, matrices) in parts.network.matrices() {
        add(part, products.tune(rows, &matrices, false)?, config.layers.len());
    }
    if let Some(head) = parts.head.wide_matrix() {
        add("head, as tuned", products.tune(rows, &[(head, None)], true)?, 1);
    }
    Ok(())
}

//! The fast paths of this machine against torch operations, on random inputs.
//!
//! On CUDA the kernels are judged in float32 on the same numbers; on the CPU the loops are. What
//! must agree to the last digit does not exist here, so each check has a limit that comes from the
//! kind of numbers: bf16 has 8 bits.

use tch::{Device, Kind, Tensor};

use super::cache::{Batch, KvCache, PagedAttention, Piece};
use super::cuda::product::Products;
use super::cuda::{ChunkAttention, DecodeAttention, DevicePlaces, Kernels};
use super::generator::draw_on_device;
use super::pool::Page;
use super::request::{GREEDY, GenerateError, Sampling};
use super::sampler::{self, RowSampling};
use scalerl_model::bench::Shape;
use scalerl_model::check::KernelCheck;
use scalerl_model::config::{ModelConfig, RotaryConfig, RotaryScaling, Span, Yarn};
use scalerl_model::network::{Attend, Heads, Rotary};
use scalerl_torch::ops::{Angles, add_rms_norm, rotate, swiglu};

const PAGE: usize = 16;

/// Compares every fast path of a device.
pub fn check_kernels(device: Device) -> Result<Vec<KernelCheck>, GenerateError> {
    let _guard = tch::no_grad_guard();
    tch::manual_seed(17);
    let mut checks = Vec::new();
    // (heads, key heads, width): 444M, Qwen-0.5B, Llama-3-8B, one head per key, many per key.
    for (heads, kv_heads, width) in
        [(16, 8, 64), (14, 2, 64), (32, 8, 128), (4, 4, 32), (32, 2, 128)]
    {
        let shape = Shape {
            layers: 1,
            width: heads * width,
            heads,
            kv_heads,
            feed_forward: 16,
            vocabulary: 32,
        };
        let config = shape.config()?;
        for span in [Span::Full, Span::Chunk(100), Span::Window(100), Span::Window(1)] {
            checks.extend(attention(&config, device, span)?);
        }
    }
    checks.extend(drawing(device)?);
    // Rows that are moved 16 bytes at a time, and rows that are not.
    for width in [896, 900, 4104] {
        checks.push(sum_and_norm(device, width)?);
    }
    for width in [4864, 4868] {
        checks.push(gate(device, width)?);
    }
    checks.extend(feeding(device)?);
    checks.extend(products(device)?);
    Ok(checks)
}

/// Tuned products against float64.
fn products(device: Device) -> Result<Vec<KernelCheck>, GenerateError> {
    if device == Device::Cpu {
        return Ok(Vec::new());
    }
    let products = Products::new(device).map_err(tch::TchError::Torch)?;
    let random = |shape: &[i64]| Tensor::f_randn(shape, (Kind::BFloat16, device));
    let mut checks = Vec::new();
    // (rows, inner, outer, whether there is a bias, whether the result is float32)
    for (rows, inner, outer, has_bias, is_wide) in [
        (256, 896, 1152, true, false),
        (96, 4864, 896, false, false),
        (384, 896, 9728, false, false),
        (1, 896, 896, true, false),
        (64, 896, 151_936, false, true),
    ] {
        let (x, w) = (random(&[rows, inner])?, random(&[outer, inner])?);
        let bias = has_bias.then(|| random(&[outer])).transpose()?;
        let found = products.tune(rows, &[(&w, bias.as_ref())], is_wide)?;
        let out = products.product(&x, (&w, bias.as_ref()), is_wide)?;
        let wide = |x: &Tensor| x.f_to_kind(Kind::Double);
        let mut expected = wide(&x)?.f_mm(&wide(&w)?.f_tr()?)?;
        if let Some(bias) = &bias {
            expected = expected.f_add(&wide(bias)?)?;
        }
        let what = format!(
            "product {rows} x {inner} x {outer}{}, {:.1} us, torch {:.1} us",
            if has_bias { " + bias" } else { "" },
            found.best * 1e6,
            found.torch * 1e6
        );
        let limit = if is_wide { 1e-5 } else { 5e-3 };
        checks.push(KernelCheck { what, error: difference(&out, &expected)?, limit });
    }
    Ok(checks)
}

/// The fused sum and norm against float64.
fn sum_and_norm(device: Device, width: i64) -> Result<KernelCheck, GenerateError> {
    let kind = if device == Device::Cpu { Kind::Float } else { Kind::BFloat16 };
    let random = |shape: &[i64]| Tensor::f_randn(shape, (Kind::Float, device))?.f_to_kind(kind);
    let (x, y, w) = (random(&[300, width])?, random(&[300, width])?, random(&[width])?);
    let (sum, normed) = add_rms_norm(&x, &y, &w, 1e-5)?;
    let apart = difference(&sum, &x.f_add(&y)?)?;
    let wide = sum.f_to_kind(Kind::Double)?;
    let expected = wide.f_rms_norm([width], Some(&w.f_to_kind(Kind::Double)?), 1e-5)?;
    let error = difference(&normed, &expected)?.max(if apart > 0.0 { 1.0 } else { 0.0 });
    let limit = if device == Device::Cpu { 1e-5 } else { 5e-3 };
    Ok(KernelCheck { what: format!("sum and norm of {width}"), error, limit })
}

/// The gate against float64.
fn gate(device: Device, width: i64) -> Result<KernelCheck, GenerateError> {
    let kind = if device == Device::Cpu { Kind::Float } else { Kind::BFloat16 };
    let x = Tensor::f_randn([300, 2 * width], (Kind::Float, device))?.f_to_kind(kind)?;
    let halves = x.f_to_kind(Kind::Double)?.f_chunk(2, -1)?;
    let expected = halves[0].f_silu()?.f_mul(&halves[1])?;
    let limit = if device == Device::Cpu { 1e-5 } else { 5e-3 };
    let error = difference(&swiglu(&x)?, &expected)?;
    Ok(KernelCheck { what: format!("gate of {width}"), error, limit })
}

/// Tokens given, tokens drawn by the step before, and the angles of positions near and far.
fn feeding(device: Device) -> Result<Vec<KernelCheck>, GenerateError> {
    if device == Device::Cpu {
        return Ok(Vec::new());
    }
    let kernels = small_kernels(device)?;
    let drawn: Vec<i32> = (0..600).map(|i| 1000 + 3 * i).collect();
    let given: Vec<i32> = (0..300).map(|i| if i % 3 == 0 { i } else { -1 - (299 - i) }).collect();
    let places: Vec<i32> = (0..300).map(|i| i * i).collect();
    let upload = |list: &[i32]| Tensor::f_from_slice(list)?.f_to_device(device);
    let plain = RotaryConfig { theta: 10_000.0, scaling: None, interleaved: false };
    let yarn = Yarn {
        factor: 4.0,
        attention_factor: 1.14,
        fast: 32.0,
        slow: 1.0,
        original_positions: 32_768.0,
        is_truncated: true,
    };
    let other =
        RotaryConfig { theta: 1e6, scaling: Some(RotaryScaling::Yarn(yarn)), interleaved: false };
    let rotary = Rotary::new(&[plain, other], 64, device)?;
    let fed = kernels.feed([&upload(&given)?, &upload(&places)?], &upload(&drawn)?, &rotary)?;
    let back = |x: &Tensor| Vec::<i64>::try_from(&x.f_to_device(Device::Cpu)?);
    let expected = given.iter().map(|&id| if id < 0 { drawn[(-1 - id) as usize] } else { id });
    let tokens = back(&fed.tokens)?.into_iter().zip(expected);
    let positions = back(&fed.positions)?.into_iter().zip(places);
    let wrong = tokens.chain(positions).filter(|(fed, id)| *fed != i64::from(*id)).count();
    let mut checks = vec![KernelCheck {
        what: "tokens given and drawn".to_owned(),
        error: wrong as f64,
        limit: 0.0,
    }];
    for (table, (fed, angles)) in fed.angles.iter().zip(rotary.angles(&fed.positions)?).enumerate()
    {
        for (name, found, expected) in
            [("cosines", &fed.cosine, &angles.cosine), ("sines", &fed.sine, &angles.sine)]
        {
            let what = format!("{name} of positions up to 89,401, rotation {table}");
            checks.push(KernelCheck { what, error: difference(found, expected)?, limit: 1e-6 });
        }
    }
    Ok(checks)
}

/// Kernels of a model of which only the vocabulary matters, which is given elsewhere.
fn small_kernels(device: Device) -> Result<Kernels, GenerateError> {
    let shape =
        Shape { layers: 1, width: 64, heads: 1, kv_heads: 1, feed_forward: 8, vocabulary: 8 };
    let kernels = Kernels::new(&shape.config()?, PAGE as i64, device);
    Ok(kernels.map_err(|why| tch::TchError::Torch(format!("no kernels: {why}")))?)
}

/// Sequences with this many tokens before the step, and this many in it.
fn cases() -> Vec<(&'static str, Vec<(usize, usize)>)> {
    let mixed = [0, 1, 15, 16, 17, 63, 255, 256, 257, 600, 1023, 2000, 31, 100, 999, 5, 64, 48];
    vec![
        ("decode, mixed lengths", mixed.map(|before| (before, 1)).to_vec()),
        ("decode, one long sequence", vec![(3000, 1)]),
        ("decode, many sequences", (0..300).map(|i| (i * 7 % 500, 1)).collect()),
        ("prompts", vec![(0, 33), (0, 1), (0, 160), (0, 16)]),
        ("chunks of prompts", vec![(64, 40), (0, 20), (250, 90), (15, 2)]),
    ]
}

fn attention(
    config: &ModelConfig,
    device: Device,
    span: Span,
) -> Result<Vec<KernelCheck>, GenerateError> {
    let is_cuda = device != Device::Cpu;
    let kind = if is_cuda { Kind::BFloat16 } else { Kind::Float };
    let kernels = if is_cuda {
        let kernels = Kernels::new(config, PAGE as i64, device);
        Some(kernels.map_err(|why| tch::TchError::Torch(format!("no kernels: {why}")))?)
    } else {
        None
    };
    let mut checks = Vec::new();
    for (name, lengths) in cases() {
        let pages: Vec<usize> =
            lengths.iter().map(|(before, new)| (before + new).div_ceil(PAGE)).collect();
        let total: usize = pages.iter().sum();
        // Pages in a scattered order: neighbours in a sequence are not neighbours in memory.
        let mut order =
            Vec::<i64>::try_from(&Tensor::f_randperm(total as i64, (Kind::Int64, Device::Cpu))?)?;
        let tables: Vec<Vec<Page>> = pages
            .iter()
            .map(|count| order.drain(..count).map(|page| page as Page).collect())
            .collect();
        let ids = vec![0_i64; lengths.iter().map(|(_, new)| *new).max().unwrap_or(0)];
        let pieces: Vec<Piece> = lengths
            .iter()
            .zip(&tables)
            .map(|(&(from, new), pages)| Piece { tokens: &ids[..new], from, pages })
            .collect();
        let batch = Batch::new(&pieces, device)?;
        let n = batch.rows.len() as i64;
        let random = |shape: &[i64]| Tensor::f_randn(shape, (Kind::Float, device));
        // Queries, keys and values are parts of one row, as the layers make them.
        let all = config.heads + 2 * config.kv_heads;
        let rows = random(&[n, all, config.head_width])?.f_to_kind(kind)?;
        let split = |x: &Tensor| -> Result<Heads, tch::TchError> {
            let parts =
                x.f_split_with_sizes([config.heads, config.kv_heads, config.kv_heads], 1)?;
            let [q, k, v] = [0, 1, 2].map(|i| parts[i].shallow_clone());
            Ok(Heads { q, k, v })
        };
        let fast_cache = KvCache::new(config, total, PAGE, (kind, device))?;
        let slow_cache = KvCache::new(config, total, PAGE, (Kind::Float, device))?;
        for (fast, slow) in fast_cache.layer(0).into_iter().zip(slow_cache.layer(0)) {
            let content = random(&fast.size())?.f_to_kind(kind)?;
            fast.shallow_clone().f_copy_(&content)?;
            slow.shallow_clone().f_copy_(&content)?;
        }
        let fast = split(&rows)?;
        let out = match &kernels {
            Some(kernels) if lengths.iter().all(|(_, new)| *new == 1) => {
                let places = DevicePlaces::of_single_tokens(&batch, &fast_cache)?;
                let (cache, has_neighbours) = (&fast_cache, true);
                let attention = DecodeAttention { kernels, cache, places: &places, has_neighbours };
                attention.attend(0, span, &fast)?
            }
            Some(kernels) => {
                ChunkAttention::new(kernels, &fast_cache, &batch)?.attend(0, span, &fast)?
            }
            None => PagedAttention::new(&fast_cache, &batch).attend(0, span, &fast)?,
        };
        let slow = split(&rows.f_to_kind(Kind::Float)?)?;
        let expected = PagedAttention::new(&slow_cache, &batch).plain(0, span, &slow)?;
        let limit = if is_cuda { 1e-2 } else { 1e-5 };
        let what = format!(
            "attention {}/{} heads of {}, {span:?}, {name}",
            config.heads, config.kv_heads, config.head_width
        );
        checks.push(KernelCheck { what, error: difference(&out, &expected)?, limit });
        if let Some(kernels) = kernels.as_ref().filter(|_| lengths.iter().all(|(_, new)| *new == 1))
        {
            let places = DevicePlaces::of_single_tokens(&batch, &fast_cache)?;
            let slow = PagedAttention::new(&slow_cache, &batch);
            for (what, has_neighbours) in [("rotated first", true), ("rotated on the way", false)] {
                let cache = &fast_cache;
                let fast = DecodeAttention { kernels, cache, places: &places, has_neighbours };
                let what = format!("  {what}, {name}");
                checks.extend(rotated(config, &fast, &slow, span, (what, &rows, &batch))?);
            }
        }
        let [fast_keys, slow_keys] = [fast_cache.layer(0)[1], slow_cache.layer(0)[1]];
        let what = format!("  values on their pages, {name}");
        checks.push(KernelCheck { what, error: difference(fast_keys, slow_keys)?, limit: 0.0 });
    }
    Ok(checks)
}

/// Rotation, pages and attention in one go, against rotation first. Leaves the same values behind.
fn rotated(
    config: &ModelConfig,
    fast: &DecodeAttention,
    slow: &PagedAttention,
    span: Span,
    (what, rows, batch): (String, &Tensor, &Batch),
) -> Result<Vec<KernelCheck>, GenerateError> {
    let n = batch.rows.len() as i64;
    let angle = Tensor::f_randn([n, config.head_width / 2], (Kind::Float, rows.device()))?;
    let angles = Angles { cosine: angle.f_cos()?, sine: angle.f_sin()?, is_interleaved: false };
    let qkv = rotate(&rows.f_to_kind(Kind::Float)?, &angles, config.heads + config.kv_heads)?;
    let sizes = [config.heads, config.kv_heads, config.kv_heads];
    let heads = qkv.f_split_with_sizes(sizes, 1)?;
    let [q, k, v] = [0, 1, 2].map(|i| heads[i].shallow_clone());
    // The cache and the queries of the kernel are bf16.
    let narrow = |x: &Tensor| x.f_to_kind(rows.kind())?.f_to_kind(Kind::Float);
    let heads = Heads { q: narrow(&q)?, k: narrow(&k)?, v };
    let expected = slow.plain(0, span, &heads)?;
    let found = fast.rotate_and_attend(0, span, (&rows.copy(), config.heads), &angles)?;
    let found = found.expect("heads that are only rotated, by halves");
    let keys = [fast.cache.layer(0)[0], slow.cache.layer(0)[0]];
    let pages = format!("{what}, keys on their pages");
    Ok(vec![
        KernelCheck { what, error: difference(&found, &expected)?, limit: 1e-2 },
        // A number between two bf16 ones may be rounded either way.
        KernelCheck { what: pages, error: difference(keys[0], keys[1])?, limit: 4e-3 },
    ])
}

fn difference(found: &Tensor, expected: &Tensor) -> Result<f64, GenerateError> {
    let [found, expected] = [found, expected].map(|x| x.f_to_kind(Kind::Double));
    let (found, expected) = (found?, expected?);
    let apart = found.f_sub(&expected)?.f_abs()?.f_max()?.f_double_value(&[])?;
    Ok(apart / expected.f_abs()?.f_max()?.f_double_value(&[])?)
}

/// Rows drawn by the kernel against the CPU loop, which is judged in its own tests.
fn drawing(device: Device) -> Result<Vec<KernelCheck>, GenerateError> {
    if device == Device::Cpu {
        return Ok(Vec::new());
    }
    let kernels = small_kernels(device)?;
    let settings = [
        ("temperature 1", Sampling::default()),
        ("temperature 0.6", Sampling { temperature: 0.6, ..Sampling::default() }),
        ("greedy", GREEDY),
        ("top-k 50", Sampling { top_k: 50, ..Sampling::default() }),
        ("top-p 0.9", Sampling { top_p: 0.9, ..Sampling::default() }),
        ("top-k 200, top-p 0.5", Sampling { temperature: 1.3, top_p: 0.5, top_k: 200 }),
    ];
    let mut checks = Vec::new();
    for (name, sampling) in settings {
        // Few rows are split over more blocks than many.
        for (v, count) in [(7_i64, 64), (1000, 64), (32_768, 260), (151_936, 64), (151_937, 64)] {
            let rows: Vec<RowSampling> =
                (0..count).map(|i| RowSampling { sampling, seed: i as u64, place: i }).collect();
            let logits =
                Tensor::f_randn([count as i64, v], (Kind::Float, device))?.f_mul_scalar(3.0)?;
            let found = draw_on_device(&kernels, &logits, &rows)?;
            let expected = sampler::draw(&logits.f_to_device(Device::Cpu)?, &rows)?;
            let wrong = found
                .iter()
                .zip(&expected)
                .filter(|(a, b)| a.0 != b.0 || (a.1 - b.1).abs() > 1e-3 || a.1.is_nan())
                .count();
            // A tie in the last digit, or a token at the very edge of top-p, may fall either way.
            let what = format!("drawing, {name}, vocabulary {v}");
            checks.push(KernelCheck {
                what,
                error: wrong as f64 / count as f64,
                limit: 1.0 / 64.0,
            });
        }
    }
    Ok(checks)
}

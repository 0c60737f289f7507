//! Causal attention over packed sequences, behind the trait that generators implement too.
//!
//! A layer computes queries, keys and values and hands them to an [`Attend`]; whether keys come
//! from this batch (training, here) or from a paged cache (generation) is not its business.
//!
//! On CUDA cuDNN and flash attention share the sequences (`scalerl_torch::attention`). The CPU kernel wants rectangles, so
//! sequences of similar length are laid out as one, padded at their ends: causality hides the
//! padding from every real token. Equal lengths need no copy at all.
//!
//! Chunked attention is attention over shorter sequences: chunks are cut and treated alike. A window
//! is an argument of flash attention, and on the CPU a mask, where a sequence is longer than it.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::Span;
use scalerl_torch::attention::Plan;
use scalerl_torch::cuda;
use scalerl_torch::ops::{Angles, reorder};
use scalerl_torch::shim;

/// Queries [n, heads, width], keys and values [n, kv_heads, width], rotated already.
pub struct Heads {
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
}

/// Where a layer's attention comes from.
pub trait Attend {
    /// Returns [n, heads, width].
    fn attend(&self, layer: usize, span: Span, heads: &Heads) -> Result<Tensor, TchError>;

    /// The same for heads that are only rotated, by who rotates itself. `qkv` [n, heads +
    /// 2 kv_heads, width] is as the product made it and may be overwritten. `None`, and `qkv`
    /// untouched: they have to come rotated.
    fn rotate_and_attend(
        &self,
        _layer: usize,
        _span: Span,
        (_qkv, _heads): (&Tensor, i64),
        _angles: &Angles,
    ) -> Result<Option<Tensor>, TchError> {
        Ok(None)
    }
}

/// Attention of a packed batch to itself.
pub struct PackedAttention {
    packings: Vec<(Span, Packing)>,
}

impl PackedAttention {
    /// Prepares the spans that a model's layers use.
    pub fn new(lengths: &[i64], spans: &[Span], device: Device) -> Result<Self, TchError> {
        let mut packings: Vec<(Span, Packing)> = Vec::new();
        for &span in spans {
            if packings.iter().any(|(known, _)| *known == span) {
                continue;
            }
            let packing = match span {
                Span::Full => Packing::new(lengths, None, device)?,
                Span::Chunk(size) => Packing::new(&chunks(lengths, size), None, device)?,
                Span::Window(size) => Packing::new(lengths, Some(size), device)?,
            };
            packings.push((span, packing));
        }
        Ok(Self { packings })
    }
}

impl PackedAttention {
    fn packing(&self, span: Span) -> &Packing {
        let packing = self.packings.iter().find(|(known, _)| *known == span);
        &packing.expect("spans were prepared from the same config").1
    }
}

impl Attend for PackedAttention {
    fn attend(&self, _layer: usize, span: Span, heads: &Heads) -> Result<Tensor, TchError> {
        self.packing(span).attend(heads)
    }

    fn rotate_and_attend(
        &self,
        _layer: usize,
        span: Span,
        (qkv, heads): (&Tensor, i64),
        angles: &Angles,
    ) -> Result<Option<Tensor>, TchError> {
        let Packing::Device(plan) = self.packing(span) else { return Ok(None) };
        let (_, all, width) = qkv.size3()?;
        if !cuda::takes(qkv) || !qkv.is_contiguous() || angles.is_interleaved || width % 4 != 0 {
            return Ok(None);
        }
        let kv_heads = (all - heads) / 2;
        let rotated = qkv.f_detach()?;
        let turn = [angles.cosine.shallow_clone(), angles.sine.shallow_clone()];
        cuda::rotate_in_place(&rotated, turn.each_ref(), heads + kv_heads)?;
        let mut parts = rotated.f_split_with_sizes([heads, kv_heads, kv_heads], 1)?;
        let (v, k, q) = (parts.pop(), parts.pop(), parts.pop());
        let parts = [q, k, v].map(|part| part.expect("split into three"));
        let scale = 1.0 / (width as f64).sqrt();
        let (out, saved) = plan.forward(parts.each_ref(), scale)?;
        let plan = plan.share();
        let out = shim::attach(out, &[qkv], move |d_out| {
            let grads = plan.backward(parts.each_ref(), &saved, d_out, scale)?;
            Ok(vec![Some(cuda::rotate_back(grads.each_ref(), turn.each_ref())?)])
        })?;
        Ok(Some(out))
    }
}

fn chunks(lengths: &[i64], size: i64) -> Vec<i64> {
    lengths
        .iter()
        .flat_map(|&length| (0..length).step_by(size as usize).map(move |at| size.min(length - at)))
        .collect()
}

/// How the sequences of one span are laid out.
enum Packing {
    /// All of one length: a view.
    Equal(Rectangle),
    /// CUDA.
    Device(Plan),
    /// CPU: rectangles of similar lengths.
    Rectangles { shapes: Vec<Rectangle>, layout: Tensor, back: Tensor, padding: Option<Tensor> },
}

/// `count` sequences of one length.
struct Rectangle {
    count: i64,
    length: i64,
    /// [length, length], true where a query sees a key; `None`: everything up to itself.
    mask: Option<Tensor>,
}

impl Rectangle {
    fn new(count: i64, length: i64, window: Option<i64>) -> Result<Self, TchError> {
        let mask = window.filter(|size| length > *size).map(|size| {
            let all = Tensor::f_ones([length, length], (Kind::Bool, Device::Cpu))?;
            all.f_tril(0)?.f_triu(1 - size)
        });
        Ok(Self { count, length, mask: mask.transpose()? })
    }
}

/// A rectangle takes sequences down to this share of its longest.
const SIMILAR: f64 = 0.8;

impl Packing {
    fn new(lengths: &[i64], window: Option<i64>, device: Device) -> Result<Self, TchError> {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if device != Device::Cpu {
            return Ok(Self::Device(Plan::new(lengths, window, device)?));
        }
        if lengths.iter().all(|length| *length == longest) {
            return Ok(Self::Equal(Rectangle::new(lengths.len() as i64, longest, window)?));
        }
        Self::rectangles(lengths, window)
    }

    fn rectangles(lengths: &[i64], window: Option<i64>) -> Result<Self, TchError> {
        let mut starts = vec![0];
        for length in lengths {
            starts.push(starts[starts.len() - 1] + length);
        }
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|&index| (std::cmp::Reverse(lengths[index]), index));
        let mut shapes: Vec<(i64, i64)> = Vec::new();
        let (mut layout, mut padding) = (Vec::new(), Vec::new());
        let mut back = vec![0_i64; starts[lengths.len()] as usize];
        for group in order.chunk_by(|&a, &b| lengths[a] == lengths[b]).collect::<Vec<_>>() {
            let length = lengths[group[0]];
            let joins = shapes.last().is_some_and(|&(_, top)| {
                // Few large calls beat many small ones: tiny groups may pad more.
                length as f64 >= SIMILAR * top as f64
            });
            if !joins {
                shapes.push((0, length));
            }
            let (count, top) = shapes.last_mut().expect("pushed above");
            *count += group.len() as i64;
            for &sequence in group {
                for position in 0..*top {
                    let at = layout.len() as i64;
                    let row = starts[sequence] + position;
                    if position < length {
                        back[row as usize] = at;
                        layout.push(row);
                    } else {
                        padding.push(at);
                        layout.push(0);
                    }
                }
            }
        }
        let padding = (!padding.is_empty()).then(|| Tensor::f_from_slice(&padding)).transpose()?;
        let shape = |(count, length)| Rectangle::new(count, length, window);
        Ok(Self::Rectangles {
            shapes: shapes.into_iter().map(shape).collect::<Result<_, _>>()?,
            layout: Tensor::f_from_slice(&layout)?,
            back: Tensor::f_from_slice(&back)?,
            padding,
        })
    }

    fn attend(&self, heads: &Heads) -> Result<Tensor, TchError> {
        match self {
            Self::Equal(shape) => rectangle(heads, shape),
            Self::Device(plan) => on_device(heads, plan),
            Self::Rectangles { shapes, layout, back, padding } => {
                let padding = padding.as_ref();
                let lay = |x: &Tensor| reorder(x, layout, back, (padding, None));
                let all = Heads { q: lay(&heads.q)?, k: lay(&heads.k)?, v: lay(&heads.v)? };
                let sizes: Vec<i64> =
                    shapes.iter().map(|shape| shape.count * shape.length).collect();
                let [q, k, v] =
                    [&all.q, &all.k, &all.v].map(|x| x.f_split_with_sizes(&sizes[..], 0));
                let (q, k, v) = (q?, k?, v?);
                let mut parts = Vec::with_capacity(shapes.len());
                for (index, shape) in shapes.iter().enumerate() {
                    let part = |list: &[Tensor]| list[index].shallow_clone();
                    let heads = Heads { q: part(&q), k: part(&k), v: part(&v) };
                    parts.push(rectangle(&heads, shape)?);
                }
                reorder(&Tensor::f_cat(&parts, 0)?, back, layout, (None, padding))
            }
        }
    }
}

fn on_device(heads: &Heads, plan: &Plan) -> Result<Tensor, TchError> {
    if heads.q.kind() == Kind::Float {
        return Err(TchError::Torch(
            "attention on CUDA works in bfloat16; choose compute kind bf16".to_owned(),
        ));
    }
    let [q, k, v] = [&heads.q, &heads.k, &heads.v].map(Tensor::f_detach);
    let (parts, scale) = ([q?, k?, v?], 1.0 / (heads.q.size()[2] as f64).sqrt());
    let (out, saved) = plan.forward(parts.each_ref(), scale)?;
    let plan = plan.share();
    shim::attach(out, &[&heads.q, &heads.k, &heads.v], move |d_out| {
        Ok(plan.backward(parts.each_ref(), &saved, d_out, scale)?.map(Some).into())
    })
}

fn rectangle(heads: &Heads, shape: &Rectangle) -> Result<Tensor, TchError> {
    let (count, length) = (shape.count, shape.length);
    let shaped = |x: &Tensor| -> Result<Tensor, TchError> {
        let (_, h, d) = x.size3()?;
        x.f_view([count, length, h, d])?.f_transpose(1, 2)
    };
    let is_grouped = heads.q.size()[1] != heads.k.size()[1];
    let (q, k, v) = (shaped(&heads.q)?, shaped(&heads.k)?, shaped(&heads.v)?);
    let out = Tensor::f_scaled_dot_product_attention(
        &q,
        &k,
        &v,
        shape.mask.as_ref(),
        0.0,
        shape.mask.is_none(),
        None,
        is_grouped,
    )?;
    let (_, h, d) = heads.q.size3()?;
    out.f_transpose(1, 2)?.f_reshape([count * length, h, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cut_each_sequence_from_its_start() {
        assert_eq!(chunks(&[5, 2, 8], 4), [4, 1, 2, 4, 4]);
    }

    /// The definition, one sequence at a time: each query weighs the keys that its span lets it see.
    fn definition(heads: &Heads, span: Span) -> Tensor {
        let (length, h, d) = heads.q.size3().unwrap();
        let group = h / heads.k.size()[1];
        let wide = |x: &Tensor| x.repeat_interleave_self_int(group, 1, None).transpose(0, 1);
        let scores = heads.q.transpose(0, 1).matmul(&wide(&heads.k).transpose(1, 2));
        let is_seen = |query: i64, key: i64| (span.first_seen(query)..=query).contains(&key);
        let mask: Vec<bool> = (0..length)
            .flat_map(|query| (0..length).map(move |key| !is_seen(query, key)))
            .collect();
        let mask = Tensor::from_slice(&mask).view([length, length]);
        let scores = (scores / (d as f64).sqrt()).masked_fill(&mask, f64::NEG_INFINITY);
        scores.softmax(-1, Kind::Float).matmul(&wide(&heads.v)).transpose(0, 1).contiguous()
    }

    /// A packed batch must not differ from the definition, whatever its layers may see.
    #[test]
    fn packing_changes_nothing_for_any_mix_of_lengths() {
        tch::manual_seed(1);
        let batches = [vec![4, 4, 4], vec![9, 1, 8, 3, 9], vec![1], vec![17, 16, 2, 2]];
        let spans =
            [Span::Full, Span::Chunk(5), Span::Window(3), Span::Window(1), Span::Window(40)];
        for (lengths, span) in batches.iter().flat_map(|batch| spans.map(|span| (batch, span))) {
            let n: i64 = lengths.iter().sum();
            let make = |h: i64| {
                Tensor::randn([n, h, 8], (Kind::Float, Device::Cpu)).set_requires_grad(true)
            };
            let heads = Heads { q: make(4), k: make(2), v: make(2) };
            let weights = Tensor::randn([n, 4, 8], (Kind::Float, Device::Cpu));
            let gradients = |out: &Tensor| {
                (out * &weights).sum(Kind::Float).backward();
                [&heads.q, &heads.k, &heads.v].map(|x| {
                    let mut leaf = x.shallow_clone();
                    let grad = leaf.grad().copy();
                    leaf.zero_grad();
                    grad
                })
            };
            let packing = PackedAttention::new(lengths, &[span], Device::Cpu).unwrap();
            let packed = packing.attend(0, span, &heads).unwrap();
            let packed_grads = gradients(&packed);
            let mut at = 0;
            let alone: Vec<Tensor> = lengths
                .iter()
                .map(|&length| {
                    let cut = |x: &Tensor| x.narrow(0, at, length);
                    let one = Heads { q: cut(&heads.q), k: cut(&heads.k), v: cut(&heads.v) };
                    at += length;
                    definition(&one, span)
                })
                .collect();
            let alone = Tensor::cat(&alone, 0);
            assert!(packed.allclose(&alone, 1e-5, 1e-6, false), "{lengths:?} {span:?}");
            for (packed, alone) in packed_grads.iter().zip(gradients(&alone)) {
                assert!(
                    packed.allclose(&alone, 1e-4, 1e-5, false),
                    "gradients of {lengths:?} {span:?}"
                );
            }
        }
    }
}

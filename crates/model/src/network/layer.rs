//! One transformer layer: attention and a feed-forward, each behind a norm and added back.

use tch::{Kind, TchError, Tensor};

use super::attention::{Attend, Heads};
use super::experts::{ExpertLoad, Experts};
use crate::config::{LayerConfig, ModelConfig, QueryKeyNorm, RotaryConfig};
use scalerl_torch::ops::{Angles, rms_norm, rotate, swiglu, unit_norm};

/// Two products around a gate.
pub(crate) struct Mlp {
    pub(crate) gate_up: Tensor,
    pub(crate) gate_up_bias: Option<Tensor>,
    pub(crate) down: Tensor,
    pub(crate) down_bias: Option<Tensor>,
}

impl Mlp {
    fn forward(&self, x: &Tensor, products: &dyn Multiply) -> Result<Tensor, TchError> {
        let hidden = swiglu(&products.linear(x, &self.gate_up, self.gate_up_bias.as_ref())?)?;
        products.linear(&hidden, &self.down, self.down_bias.as_ref())
    }
}

pub(crate) enum FeedForwardWeights {
    Dense(Mlp),
    Experts { experts: Experts, shared: Option<Mlp> },
}

/// The tensors of one layer and what the config says about it.
pub(crate) struct Layer {
    pub(crate) index: usize,
    pub(crate) config: LayerConfig,
    /// Which of the model's rotations is this layer's.
    rotation: Option<usize>,
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
    pub(crate) head_width: i64,
    pub(crate) epsilon: f64,
    pub(crate) attention_norm: Tensor,
    pub(crate) qkv: Tensor,
    pub(crate) qkv_bias: Option<Tensor>,
    pub(crate) query_key_norms: Option<(Tensor, Tensor)>,
    pub(crate) output: Tensor,
    pub(crate) output_bias: Option<Tensor>,
    pub(crate) mlp_norm: Tensor,
    pub(crate) feed_forward: FeedForwardWeights,
}

/// What all layers of one forward pass share.
pub struct Context<'a> {
    /// One for each distinct rotation of the layers.
    pub angles: &'a [Angles],
    pub positions: &'a Tensor,
    pub attention: &'a dyn Attend,
    pub products: &'a dyn Multiply,
}

/// How activations are multiplied by weights.
pub trait Multiply {
    /// `x` [n, a] by the transpose of `weight` [b, a], plus `bias` [b].
    fn linear(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor, TchError>;
}

/// By torch, which can also go backward.
pub struct TorchProducts;

impl Multiply for TorchProducts {
    fn linear(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor, TchError> {
        x.f_linear(weight, bias)
    }
}

impl Layer {
    /// Takes the layer's tensors from `weight`, which knows parameters by name.
    pub(crate) fn new(
        config: &ModelConfig,
        index: usize,
        rotations: &[RotaryConfig],
        weight: &dyn Fn(&str) -> Option<Tensor>,
    ) -> Self {
        let prefix = |name: &str| format!("layers.{index}.{name}");
        let maybe = |name: &str| weight(&prefix(name));
        let need = |name: &str| {
            maybe(name).unwrap_or_else(|| panic!("layout has no parameter {}", prefix(name)))
        };
        let mlp = |place: &str| Mlp {
            gate_up: need(&format!("{place}gate_up")),
            gate_up_bias: maybe(&format!("{place}gate_up_bias")),
            down: need(&format!("{place}down")),
            down_bias: maybe(&format!("{place}down_bias")),
        };
        let layer = config.layers[index];
        let feed_forward = match layer.feed_forward {
            crate::config::FeedForward::Dense { .. } => FeedForwardWeights::Dense(mlp("")),
            crate::config::FeedForward::Experts { active, gate, shared_width, .. } => {
                FeedForwardWeights::Experts {
                    experts: Experts {
                        router_ed: need("router"),
                        gate_up: need("experts_gate_up"),
                        down: need("experts_down"),
                        active,
                        gate,
                    },
                    shared: shared_width.map(|_| mlp("shared.")),
                }
            }
        };
        Self {
            index,
            config: layer,
            rotation: layer.rotary.and_then(|own| rotations.iter().position(|r| *r == own)),
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_width: config.head_width,
            epsilon: config.norm_epsilon,
            attention_norm: need("attention_norm"),
            qkv: need("qkv"),
            qkv_bias: maybe("qkv_bias"),
            query_key_norms: maybe("query_norm").zip(maybe("key_norm")),
            output: need("output"),
            output_bias: maybe("output_bias"),
            mlp_norm: need("mlp_norm"),
            feed_forward,
        }
    }

    /// `x` [n, d] to [n, d], with the experts' load where there are any.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        context: &Context,
    ) -> Result<(Tensor, Option<ExpertLoad>), TchError> {
        let normed = rms_norm(x, &self.attention_norm, self.epsilon)?;
        let x = x.f_add(&self.attend(&normed, context)?)?;
        let normed = rms_norm(&x, &self.mlp_norm, self.epsilon)?;
        let (out, load) = self.feed_forward(&normed, context.products)?;
        Ok((x.f_add(&out)?, load))
    }

    /// The attention half, without its norm and its addition.
    pub(crate) fn attend(&self, normed: &Tensor, context: &Context) -> Result<Tensor, TchError> {
        let mixed = self.mix(self.qkv(normed, context)?, context)?;
        let mixed = mixed.f_reshape([normed.size()[0], self.heads * self.head_width])?;
        context.products.linear(&mixed, &self.output, self.output_bias.as_ref())
    }

    /// The other half, without its norm and its addition.
    pub(crate) fn feed_forward(
        &self,
        normed: &Tensor,
        products: &dyn Multiply,
    ) -> Result<(Tensor, Option<ExpertLoad>), TchError> {
        match &self.feed_forward {
            FeedForwardWeights::Dense(mlp) => Ok((mlp.forward(normed, products)?, None)),
            FeedForwardWeights::Experts { experts, shared } => {
                let (mut out, load) = experts.forward(normed)?;
                if let Some(shared) = shared {
                    out = out.f_add(&shared.forward(normed, products)?)?;
                }
                Ok((out, Some(load)))
            }
        }
    }

    /// Queries, keys and values side by side, [n, heads + 2 kv_heads, width].
    fn qkv(&self, normed: &Tensor, context: &Context) -> Result<Tensor, TchError> {
        let shape = [normed.size()[0], self.heads + 2 * self.kv_heads, self.head_width];
        context.products.linear(normed, &self.qkv, self.qkv_bias.as_ref())?.f_view(shape)
    }

    fn mix(&self, qkv: Tensor, context: &Context) -> Result<Tensor, TchError> {
        let (attention, span) = (context.attention, self.config.span);
        let is_only_rotated = self.query_key_norms.is_none()
            && self.config.query_key_norm != QueryKeyNorm::Unit
            && self.config.query_growth.is_none();
        if is_only_rotated
            && let Some(rotation) = self.rotation
            && let Some(mixed) =
                attention.rotate_and_attend(self.index, span, &qkv, &context.angles[rotation])?
        {
            return Ok(mixed);
        }
        attention.attend(self.index, span, &self.heads(qkv, context)?)
    }

    /// Queries, keys and values, normed and rotated as the layer asks.
    fn heads(&self, mut qkv: Tensor, context: &Context) -> Result<Heads, TchError> {
        let n = qkv.size()[0];
        let (h, kv) = (self.heads, self.kv_heads);
        let split = |qkv: &Tensor| -> Result<[Tensor; 3], TchError> {
            let mut parts = qkv.f_split_with_sizes([h, kv, kv], 1)?;
            let (v, k, q) = (parts.pop(), parts.pop(), parts.pop());
            Ok([q, k, v].map(|part| part.expect("split into three")))
        };
        if let Some((query_norm, key_norm)) = &self.query_key_norms {
            let [q, k, v] = split(&qkv)?;
            let q = rms_norm(&q, query_norm, self.epsilon)?;
            let k = rms_norm(&k, key_norm, self.epsilon)?;
            qkv = Tensor::f_cat(&[q, k, v], 1)?;
        }
        if let Some(rotation) = self.rotation {
            qkv = rotate(&qkv, &context.angles[rotation], h + kv)?;
        }
        let [mut q, mut k, v] = split(&qkv)?;
        if self.config.query_key_norm == QueryKeyNorm::Unit {
            q = unit_norm(&q, self.epsilon)?;
            k = unit_norm(&k, self.epsilon)?;
        }
        if let Some(growth) = self.config.query_growth {
            let steps = context.positions.f_to_kind(Kind::Float)?.f_add_scalar(1.0)?;
            let steps = steps.f_div_scalar(growth.floor)?.f_floor()?;
            let scale = steps.f_log1p()?.f_mul_scalar(growth.scale)?.f_add_scalar(1.0)?;
            q = q.f_mul(&scale.f_view([n, 1, 1])?)?.f_to_kind(v.kind())?;
        }
        Ok(Heads { q, k, v })
    }
}

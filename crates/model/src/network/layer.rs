//! One transformer layer: attention and a feed-forward, each behind a norm and added back.

use tch::{Kind, TchError, Tensor};

use super::attention::{Attend, Heads};
use super::experts::{ExpertLoad, Experts};
use super::norm::Norm;
use super::projection::{Named, Projection};
use crate::config::{Activation, LayerConfig, ModelConfig, QueryKeyNorm, RotaryConfig};
use scalerl_torch::collective::ProcessGroup;
use scalerl_torch::ops::{Angles, geglu, rotate, swiglu, unit_norm};

/// Two products around a gate.
pub(crate) struct Mlp {
    pub(crate) gate_up: Projection,
    pub(crate) down: Projection,
    activation: Activation,
}

impl Mlp {
    fn forward(&self, x: &Tensor, products: &dyn Multiply) -> Result<Tensor, TchError> {
        let gate_up = self.gate_up.forward(x, products)?;
        let hidden = match self.activation {
            Activation::Silu => swiglu(&gate_up)?,
            Activation::GeluTanh => geglu(&gate_up)?,
        };
        self.down.forward(&hidden, products)
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
    epsilon: f64,
    pub(crate) attention_norm: Norm,
    pub(crate) qkv: Projection,
    query_key_norms: Option<(Norm, Norm)>,
    pub(crate) output: Projection,
    attention_output_norm: Option<Norm>,
    pub(crate) mlp_norm: Norm,
    pub(crate) feed_forward: FeedForwardWeights,
    mlp_output_norm: Option<Norm>,
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
    /// Takes the layer's tensors from `named`.
    pub(crate) fn new(
        config: &ModelConfig,
        index: usize,
        rotations: &[RotaryConfig],
        named: &Named,
    ) -> Self {
        let prefix = |name: &str| format!("layers.{index}.{name}");
        let maybe = |name: &str| (named.weight)(&prefix(name));
        let need = |name: &str| named.need(&prefix(name));
        let projection = |name: &str| named.projection(&prefix(name));
        let (epsilon, kind) = (config.norm_epsilon, config.norm_weight);
        let norm = |name: &str| Norm { weight: need(name), epsilon, kind };
        let maybe_norm = |name: &str| maybe(name).map(|weight| Norm { weight, epsilon, kind });
        let mlp = |place: &str| Mlp {
            gate_up: projection(&format!("{place}gate_up")),
            down: projection(&format!("{place}down")),
            activation: config.activation,
        };
        let layer = config.layers[index];
        let feed_forward = match layer.feed_forward {
            crate::config::FeedForward::Dense { .. } => FeedForwardWeights::Dense(mlp("")),
            crate::config::FeedForward::Experts { active, gate, shared_width, .. } => {
                FeedForwardWeights::Experts {
                    experts: Experts {
                        router_ed: need("router"),
                        gate_up: projection("experts_gate_up"),
                        down: projection("experts_down"),
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
            attention_norm: norm("attention_norm"),
            qkv: projection("qkv"),
            query_key_norms: maybe_norm("query_norm").zip(maybe_norm("key_norm")),
            output: projection("output"),
            attention_output_norm: maybe_norm("attention_output_norm"),
            mlp_norm: norm("mlp_norm"),
            feed_forward,
            mlp_output_norm: maybe_norm("mlp_output_norm"),
        }
    }

    /// Two tensors [n, d] whose sum is the layer's input, or one, to two whose sum is its output, so
    /// that whoever is next adds and norms in one go; with the experts' load where there are any. With
    /// `owners` the experts are divided among them.
    pub(crate) fn forward(
        &self,
        (x, beside): (&Tensor, Option<&Tensor>),
        context: &Context,
        owners: Option<&ProcessGroup>,
    ) -> Result<(Tensor, Tensor, Option<ExpertLoad>), TchError> {
        let (x, normed) = self.attention_norm.of_sum(x, beside)?;
        let mixed = self.attend(&normed, context)?;
        let (x, normed) = self.mlp_norm.after_sum(&x, &mixed)?;
        let (out, load) = self.feed_forward(&normed, context.products, owners)?;
        Ok((x, out, load))
    }

    /// The attention half, without its first norm and its addition.
    pub(crate) fn attend(&self, normed: &Tensor, context: &Context) -> Result<Tensor, TchError> {
        let mixed = self.mix(self.qkv(normed, context)?, context)?;
        let mixed = mixed.f_reshape([normed.size()[0], self.heads * self.head_width])?;
        let out = self.output.forward(&mixed, context.products)?;
        normed_if(self.attention_output_norm.as_ref(), out)
    }

    /// The other half, without its first norm and its addition.
    pub(crate) fn feed_forward(
        &self,
        normed: &Tensor,
        products: &dyn Multiply,
        owners: Option<&ProcessGroup>,
    ) -> Result<(Tensor, Option<ExpertLoad>), TchError> {
        let (out, load) = match &self.feed_forward {
            FeedForwardWeights::Dense(mlp) => (mlp.forward(normed, products)?, None),
            FeedForwardWeights::Experts { experts, shared } => {
                let (mut out, load) = experts.forward(normed, owners)?;
                if let Some(shared) = shared {
                    out = out.f_add(&shared.forward(normed, products)?)?;
                }
                (out, Some(load))
            }
        };
        Ok((normed_if(self.mlp_output_norm.as_ref(), out)?, load))
    }

    /// Queries, keys and values side by side, [n, heads + 2 kv_heads, width].
    fn qkv(&self, normed: &Tensor, context: &Context) -> Result<Tensor, TchError> {
        let shape = [normed.size()[0], self.heads + 2 * self.kv_heads, self.head_width];
        self.qkv.forward(normed, context.products)?.f_view(shape)
    }

    fn mix(&self, qkv: Tensor, context: &Context) -> Result<Tensor, TchError> {
        let (attention, span) = (context.attention, self.config.span);
        let is_only_rotated = self.query_key_norms.is_none()
            && self.config.query_key_norm != QueryKeyNorm::Unit
            && self.config.query_growth.is_none()
            && self.config.query_scale.is_none();
        if is_only_rotated
            && let Some(rotation) = self.rotation
            && let Some(mixed) = attention.rotate_and_attend(
                self.index,
                span,
                (&qkv, self.heads),
                &context.angles[rotation],
            )?
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
            qkv = Tensor::f_cat(&[query_norm.forward(&q)?, key_norm.forward(&k)?, v], 1)?;
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
        if let Some(scale) = self.config.query_scale {
            q = q.f_mul_scalar(scale)?;
        }
        Ok(Heads { q, k, v })
    }
}

fn normed_if(norm: Option<&Norm>, x: Tensor) -> Result<Tensor, TchError> {
    match norm {
        Some(norm) => norm.forward(&x),
        None => Ok(x),
    }
}

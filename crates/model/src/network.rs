//! The transformer: embedding, layers, final norm. What comes after (the head) is `head.rs`.
//!
//! A [`Network`] borrows nothing and owns nothing of its own: its tensors are further references
//! to parameters held elsewhere (`parameters.rs`), so a parameter changed in place is changed here.
//!
//! Tensor names end in their dimensions: n tokens, d width.

mod attention;
mod experts;
mod layer;
mod norm;
mod projection;
mod residence;
mod rotary;

use tch::{Device, Kind, TchError, Tensor};

pub use attention::{Attend, Heads, PackedAttention};
pub use experts::ExpertLoad;
pub use layer::{Context, Multiply, TorchProducts};
use layer::{FeedForwardWeights, Layer};
use norm::Norm;
use projection::Named;
pub use residence::{Part, Residence, Resident};
pub use rotary::Rotary;

use crate::adapter::Adapter;
use crate::config::{ModelConfig, RotaryConfig, Span};
use crate::layout::Parameter;
use crate::packed::Packed;
use scalerl_torch::collective::ProcessGroup;
use scalerl_torch::ops::Angles;
use scalerl_torch::shim;

/// A model that can run forward.
pub struct Network {
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: Norm,
    head: Tensor,
    rotary: Rotary,
    /// Embeddings are multiplied by this.
    embedding_scale: Option<f64>,
    spans: Vec<Span>,
    width: i64,
}

/// A matrix of some layer, and what is added to its products.
pub type Matrix<'a> = (&'a Tensor, Option<&'a Tensor>);

/// Whether activations are kept for the backward pass or computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activations {
    /// Kept: fastest.
    #[default]
    Keep,
    /// Only the input of each layer is kept: least memory, one more forward pass.
    Recompute,
}

/// The result of a training forward pass: the last hidden states, and how to go back.
pub struct ForwardPass {
    /// After the final norm, [n, d].
    pub hidden_nd: Tensor,
    /// One entry per layer with experts.
    pub loads: Vec<ExpertLoad>,
    /// Inputs of the layers, where activations are computed again.
    kept: Vec<Tensor>,
    /// Output of the last layer as a leaf, where activations are computed again.
    last: Option<Tensor>,
}

impl Network {
    /// Builds the network over parameters that follow the `layout` of the config, and over an adapter's.
    pub fn new(
        config: &ModelConfig,
        (layout, parameters): (&[Parameter], &[Tensor]),
        adapter: Option<&Adapter>,
    ) -> Result<Self, TchError> {
        assert_eq!(layout.len(), parameters.len(), "parameters do not follow the layout");
        let weight = |name: &str| {
            let place = layout.iter().position(|parameter| parameter.name == name)?;
            Some(parameters[place].shallow_clone())
        };
        let low_rank = |name: &str| adapter.and_then(|adapter| adapter.on(name));
        let named = Named { weight: &weight, adapter: &low_rank };
        let embedding = named.need("embedding");
        let device = embedding.device();
        let rotations = rotations(config);
        Ok(Self {
            head: weight("head").unwrap_or_else(|| embedding.shallow_clone()),
            layers: (0..config.layers.len())
                .map(|index| Layer::new(config, index, &rotations, &named))
                .collect(),
            norm: Norm {
                weight: named.need("norm"),
                epsilon: config.norm_epsilon,
                kind: config.norm_weight,
            },
            rotary: Rotary::new(&rotations, config.head_width, device)?,
            embedding_scale: rounded(config.embedding_scale, embedding.kind())?,
            spans: config.layers.iter().map(|layer| layer.span).collect(),
            width: config.width,
            embedding,
        })
    }

    /// The matrix that turns hidden states into logits, [v, d].
    pub fn head(&self) -> &Tensor {
        &self.head
    }

    pub fn device(&self) -> Device {
        self.embedding.device()
    }

    /// Width of a hidden state.
    pub fn width(&self) -> i64 {
        self.width
    }

    /// Angles of some positions, for a generator that calls [`Network::run`].
    pub fn angles(&self, positions: &Tensor) -> Result<Vec<Angles>, TchError> {
        self.rotary.angles(positions)
    }

    pub fn rotary(&self) -> &Rotary {
        &self.rotary
    }

    /// Matrices of one shape and place in all dense layers, with their biases.
    pub fn matrices(&self) -> Vec<(&'static str, Vec<Matrix<'_>>)> {
        let mut qkv = Vec::new();
        let (mut output, mut gate_up, mut down) = (Vec::new(), Vec::new(), Vec::new());
        for layer in &self.layers {
            qkv.push(layer.qkv.matrix());
            output.push(layer.output.matrix());
            if let FeedForwardWeights::Dense(mlp) = &layer.feed_forward {
                gate_up.push(mlp.gate_up.matrix());
                down.push(mlp.down.matrix());
            }
        }
        let all = [("qkv", qkv), ("output", output), ("gate and up", gate_up), ("down", down)];
        all.into_iter().filter(|(_, matrices)| !matrices.is_empty()).collect()
    }

    /// Tokens [n] to hidden states [n, d], with attention supplied by the caller.
    pub fn run(&self, tokens: &Tensor, context: &Context) -> Result<Tensor, TchError> {
        let (mut x_nd, mut beside) = (self.embed(tokens)?, None);
        for layer in &self.layers {
            let (next, out_nd, _) = layer.forward((&x_nd, beside.as_ref()), context, None)?;
            (x_nd, beside) = (next, Some(out_nd));
        }
        Ok(self.norm.of_sum(&x_nd, beside.as_ref())?.1)
    }

    fn embed(&self, tokens: &Tensor) -> Result<Tensor, TchError> {
        let embedded_nd = Tensor::f_embedding(&self.embedding, tokens, -1, false, false)?;
        match self.embedding_scale {
            Some(scale) => embedded_nd.f_mul_scalar(scale),
            None => Ok(embedded_nd),
        }
    }

    /// Hidden states of a packed batch, without a graph.
    pub fn hidden(&self, packed: &Packed) -> Result<Tensor, TchError> {
        let _guard = tch::no_grad_guard();
        Ok(self.forward(packed, Activations::Keep)?.hidden_nd)
    }

    /// Hidden states of a packed batch, ready for [`Network::backward`].
    pub fn forward(
        &self,
        packed: &Packed,
        activations: Activations,
    ) -> Result<ForwardPass, TchError> {
        self.forward_with(packed, activations, &mut Resident)
    }

    /// As [`Network::forward`], with weights that come and go.
    pub fn forward_with<R: Residence>(
        &self,
        packed: &Packed,
        activations: Activations,
        weights: &mut R,
    ) -> Result<ForwardPass, R::Error> {
        let attention = PackedAttention::new(&packed.lengths, &self.spans, self.device())?;
        let angles = self.rotary.angles(&packed.positions)?;
        let context = Context {
            angles: &angles,
            positions: &packed.positions,
            attention: &attention,
            products: &TorchProducts,
        };
        let is_recomputed = activations == Activations::Recompute && shim::is_grad_enabled();
        let (mut loads, mut kept) = (Vec::new(), Vec::new());
        weights.enter(Part::Embedding)?;
        let (mut x_nd, mut beside) = (self.embed(&packed.tokens)?, None);
        weights.leave(Part::Embedding)?;
        for layer in &self.layers {
            weights.enter(Part::Layer(layer.index))?;
            if is_recomputed {
                // One tensor a layer is kept: here the sum is made at once.
                kept.push(x_nd.f_detach()?);
                let _guard = tch::no_grad_guard();
                let (next, out_nd, load) =
                    layer.forward((&x_nd, None), &context, weights.owners())?;
                x_nd = next.f_add(&out_nd)?;
                loads.extend(load);
            } else {
                let both = (&x_nd, beside.as_ref());
                let (next, out_nd, load) = layer.forward(both, &context, weights.owners())?;
                (x_nd, beside) = (next, Some(out_nd));
                loads.extend(load);
            }
            weights.leave(Part::Layer(layer.index))?;
        }
        let last = is_recomputed.then(|| x_nd.f_detach().and_then(|x| x.f_set_requires_grad(true)));
        let last = last.transpose()?;
        weights.enter(Part::Norm)?;
        let (_, hidden_nd) = self.norm.of_sum(last.as_ref().unwrap_or(&x_nd), beside.as_ref())?;
        Ok(ForwardPass { hidden_nd, loads, kept, last })
    }

    /// Adds the gradients of every trained parameter but the head, given the gradient of the hidden states.
    pub fn backward(
        &self,
        pass: ForwardPass,
        packed: &Packed,
        grad_nd: &Tensor,
    ) -> Result<(), TchError> {
        self.backward_with(pass, packed, grad_nd, &mut Resident)
    }

    /// As [`Network::backward`], with weights that come and go. They can where activations are computed
    /// again: what was kept instead holds on to weights.
    pub fn backward_with<R: Residence>(
        &self,
        pass: ForwardPass,
        packed: &Packed,
        grad_nd: &Tensor,
        weights: &mut R,
    ) -> Result<(), R::Error> {
        shim::backward(&[&pass.hidden_nd], &[grad_nd])?;
        drop(pass.hidden_nd);
        let Some(last) = pass.last else { return Ok(()) };
        weights.leave(Part::Norm)?;
        let mut grad = shim::take_grad(&last)?.expect("the norm passes a gradient on");
        let attention = PackedAttention::new(&packed.lengths, &self.spans, self.device())?;
        let angles = self.rotary.angles(&packed.positions)?;
        let context = Context {
            angles: &angles,
            positions: &packed.positions,
            attention: &attention,
            products: &TorchProducts,
        };
        for (layer, input) in self.layers.iter().zip(pass.kept).rev() {
            let input = input.f_set_requires_grad(true)?;
            weights.enter(Part::Layer(layer.index))?;
            let (x_nd, out_nd, _) = layer.forward((&input, None), &context, weights.owners())?;
            let output = x_nd.f_add(&out_nd)?;
            drop((x_nd, out_nd));
            shim::backward(&[&output], &[&grad])?;
            grad = shim::take_grad(&input)?.expect("a layer passes a gradient on");
            drop(output);
            weights.leave(Part::Layer(layer.index))?;
        }
        if self.embedding.requires_grad() {
            shim::backward(&[&self.embed(&packed.tokens)?], &[&grad])?;
        }
        weights.leave(Part::Embedding)
    }

    /// Computes with the own experts of a layer for the other ranks' rows, without any of this one's;
    /// with `goes_back` also their gradients.
    pub(crate) fn serve(
        &self,
        layer: usize,
        owners: &ProcessGroup,
        goes_back: bool,
    ) -> Result<(), TchError> {
        match &self.layers[layer].feed_forward {
            FeedForwardWeights::Experts { experts, .. } => experts.serve(owners, goes_back),
            FeedForwardWeights::Dense(_) => Ok(()),
        }
    }
}

/// A factor as numbers of this kind can say it: models were trained with it rounded so.
fn rounded(factor: Option<f64>, kind: Kind) -> Result<Option<f64>, TchError> {
    let round = |x: f64| Tensor::f_from_slice(&[x])?.f_to_kind(kind)?.f_double_value(&[0]);
    factor.map(round).transpose()
}

/// The distinct rotations of the layers. A model that rotates nowhere has one that nobody asks for:
/// a generator feeds positions and angles in one go.
fn rotations(config: &ModelConfig) -> Vec<RotaryConfig> {
    let mut found: Vec<RotaryConfig> = Vec::new();
    for rotation in config.layers.iter().filter_map(|layer| layer.rotary) {
        if !found.contains(&rotation) {
            found.push(rotation);
        }
    }
    if found.is_empty() {
        found.push(RotaryConfig { theta: 10_000.0, scaling: None, interleaved: false });
    }
    found
}

//! How fast a GPU generates and trains: measured on one H200 with a 0.5B model, scaled by arithmetic.
//!
//! A decode step is a list of kernels. Each costs a fixed time and then whatever is longer, moving
//! its bytes or doing its operations; [`Rates::measured`] works the rates out of docs/bench/decode.md.
//! A training step is operations at the rate that docs/bench/train.md has reached, plus the traffic
//! between ranks. [`checks`] puts what the formulas say beside what was measured.
//!
//! Not measured anywhere here: links between GPUs ([`Links`]) and an 8B model. Not modelled: other
//! jobs on the network, slow nodes, cold starts.

/// Bytes of memory of an H200.
const GPU_MEMORY: f64 = 141e9;
/// Share of it that is used for weights and pages.
const USED_MEMORY: f64 = 0.9;
/// Operations of a step whose activations are computed again in the backward pass, to those of one
/// whose activations are kept: four passes' worth instead of three.
const RECOMPUTED: f64 = 4.0 / 3.0;

/// A dense transformer with grouped queries and a gated feed-forward.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) layers: f64,
    pub(crate) width: f64,
    pub(crate) heads: f64,
    pub(crate) kv_heads: f64,
    pub(crate) head_width: f64,
    pub(crate) feed_forward: f64,
    pub(crate) vocabulary: f64,
    /// Input and output embeddings are one matrix.
    pub(crate) is_tied: bool,
}

/// The model that was measured.
pub(crate) const QWEN_HALF_B: Shape = Shape {
    layers: 24.0,
    width: 896.0,
    heads: 14.0,
    kv_heads: 2.0,
    head_width: 64.0,
    feed_forward: 4864.0,
    vocabulary: 151_936.0,
    is_tied: true,
};

/// The shape of Llama 3.1 8B.
pub(crate) const EIGHT_B: Shape = Shape {
    layers: 32.0,
    width: 4096.0,
    heads: 32.0,
    kv_heads: 8.0,
    head_width: 128.0,
    feed_forward: 14_336.0,
    vocabulary: 128_256.0,
    is_tied: false,
};

impl Shape {
    /// Numbers in the matrices of all layers.
    fn layer_parameters(&self) -> f64 {
        let attention = self.width * self.head_width * (2.0 * self.heads + 2.0 * self.kv_heads);
        self.layers * (attention + 3.0 * self.width * self.feed_forward)
    }

    fn head_parameters(&self) -> f64 {
        self.width * self.vocabulary
    }

    pub(crate) fn parameters(&self) -> f64 {
        let embeddings = if self.is_tied { 1.0 } else { 2.0 };
        self.layer_parameters() + embeddings * self.head_parameters()
    }

    /// Weights in bf16.
    pub(crate) fn weight_bytes(&self) -> f64 {
        2.0 * self.parameters()
    }

    /// Keys and values of one token in bf16.
    pub(crate) fn kv_bytes(&self) -> f64 {
        self.layers * 2.0 * self.kv_heads * self.head_width * 2.0
    }

    /// Operations of one token's forward pass, attention apart.
    fn forward(&self) -> f64 {
        2.0 * (self.layer_parameters() + self.head_parameters())
    }

    /// Operations of the causal attention of one sequence, forward.
    fn attention(&self, tokens: f64) -> f64 {
        2.0 * self.layers * self.heads * self.head_width * tokens * tokens
    }

    /// Tokens whose keys and values fit beside the weights in use and those that are arriving.
    pub(crate) fn kv_tokens(&self) -> f64 {
        (USED_MEMORY * GPU_MEMORY - 2.0 * self.weight_bytes()) / self.kv_bytes()
    }
}

/// What an H200 reached. Seconds, bytes and operations a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// Before a matrix product or an attention kernel does anything.
    kernel: f64,
    /// Reading weights, writing logits.
    weights: f64,
    /// Products of matrices, when decoding.
    products: f64,
    /// Reading keys and values.
    attention: f64,
    /// Norms, sums, gates.
    elementwise: f64,
    /// Reading logits to draw from them.
    drawing: f64,
    /// Once a step, between kernels and steps.
    gap: f64,
    /// Operations of a whole training step, mixed lengths.
    training: f64,
    /// Optimizer, seconds a parameter.
    optimizer: f64,
    /// All times of decoding are multiplied by this: 1, but for what-if.
    decode_factor: f64,
    /// As above, of training.
    training_factor: f64,
}

impl Rates {
    /// From docs/bench/decode.md (`c16150c`, batch 256, contexts of 160 and 544 tokens) and
    /// docs/bench/train.md (`e47eb25`).
    pub(crate) fn measured() -> Self {
        let (model, batch) = (QWEN_HALF_B, 256.0);
        let head_s = 0.118e-3;
        let logits = batch * model.vocabulary * 4.0;
        let weights = (2.0 * model.head_parameters() + logits) / head_s;
        let products = 2.0 * model.head_parameters() * batch / head_s;
        let (short_s, long_s) = (0.219e-3, 0.521e-3);
        let attention = batch * (544.0 - 160.0) * model.kv_bytes() / (long_s - short_s);
        let kernel = (short_s - batch * 160.0 * model.kv_bytes() / attention) / model.layers;
        let (norms_s, gate_s, drawing_s) = (0.070e-3, 0.064e-3, 0.045e-3);
        let parts_s = short_s + norms_s + gate_s + 0.687e-3 + head_s + drawing_s;
        Self {
            kernel,
            weights,
            products,
            attention,
            elementwise: elementwise_bytes(&model, batch) / (norms_s + gate_s),
            drawing: logits / drawing_s,
            gap: 1.397e-3 - parts_s,
            training: 114.9e3 * 3.0 * model.forward(),
            optimizer: 9.4e-3 / model.parameters(),
            decode_factor: 1.0,
            training_factor: 1.0,
        }
    }

    /// The same with all times of decoding multiplied.
    pub(crate) fn with_decode_factor(self, decode_factor: f64) -> Self {
        Self { decode_factor, ..self }
    }

    /// The same with the ranks' own work multiplied.
    pub(crate) fn with_training_factor(self, training_factor: f64) -> Self {
        Self { training_factor, ..self }
    }

    /// One decode step of `sequences` that have `context` tokens altogether.
    pub(crate) fn decode_step(&self, model: &Shape, sequences: f64, context: f64) -> f64 {
        let longer =
            |bytes: f64, operations: f64| (bytes / self.weights).max(operations / self.products);
        let numbers = model.layer_parameters();
        // Four products a layer: queries with keys and values, output, gate with up, down.
        let products =
            4.0 * model.layers * self.kernel + longer(2.0 * numbers, 2.0 * numbers * sequences);
        let attention = model.layers * self.kernel + context * model.kv_bytes() / self.attention;
        let logits = sequences * model.vocabulary * 4.0;
        let head = model.head_parameters();
        let head = longer(2.0 * head + logits, 2.0 * head * sequences) + logits / self.drawing;
        let rest = elementwise_bytes(model, sequences) / self.elementwise;
        self.decode_factor * (products + attention + head + rest + self.gap)
    }

    /// Computing the keys and values of `tokens` at once.
    pub(crate) fn prefill(&self, model: &Shape, tokens: f64) -> f64 {
        self.decode_factor * tokens * model.forward() / self.training
    }

    /// The own work of one rank in a training step over sequences of these lengths.
    pub(crate) fn training(&self, model: &Shape, lengths: &[f64]) -> f64 {
        let forward = |tokens: &f64| tokens * model.forward() + model.attention(*tokens);
        let operations = RECOMPUTED * 3.0 * lengths.iter().map(forward).sum::<f64>();
        self.training_factor * operations / self.training
    }

    /// The optimizer on one rank's part of the parameters.
    pub(crate) fn optimizer(&self, model: &Shape, ranks: f64) -> f64 {
        self.optimizer * model.parameters() / ranks
    }

    /// Copying the weights inside a GPU.
    pub(crate) fn copy(&self, model: &Shape) -> f64 {
        2.0 * model.weight_bytes() / self.attention
    }
}

/// Gate: two read, one written. Two sums with norms: two read, two written, each.
fn elementwise_bytes(model: &Shape, sequences: f64) -> f64 {
    sequences * model.layers * 2.0 * (3.0 * model.feed_forward + 8.0 * model.width)
}

/// Bytes a second between GPUs. Not measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    /// Between trainer ranks, each way, a GPU.
    pub(crate) ranks: f64,
    /// From rank 0 to the generators; a broadcast passes pieces along, so once for all of them.
    pub(crate) weights: f64,
}

impl Links {
    /// 400 Gbit/s a GPU.
    pub(crate) const FAST: Self = Self { ranks: 50e9, weights: 50e9 };

    /// Gradients out, weights back: 6 bytes a parameter for every rank.
    pub(crate) fn exchange(&self, model: &Shape, ranks: f64) -> f64 {
        6.0 * model.parameters() * (ranks - 1.0) / ranks / self.ranks
    }

    pub(crate) fn hand_over(&self, model: &Shape) -> f64 {
        model.weight_bytes() / self.weights
    }
}

/// What the formula says beside what was measured: name, formula, measured (ms a decode step).
pub(crate) fn checks() -> Vec<(&'static str, f64, f64)> {
    let rates = Rates::measured();
    let step =
        |batch: f64, context: f64| 1e3 * rates.decode_step(&QWEN_HALF_B, batch, batch * context);
    vec![
        ("batch 256, 160 tokens each (fitted to)", step(256.0, 160.0), 1.397),
        ("batch 256, 544 tokens each (fitted to)", step(256.0, 544.0), 1.695),
        ("batch 768, 160 tokens each", step(768.0, 160.0), 768e3 / 292_458.0),
    ]
}

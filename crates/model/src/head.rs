//! The head: hidden states to log-probs and entropies, and back, in chunks of tokens.
//!
//! All logits of a batch are never held at once: a chunk's logits are made, reduced to three
//! numbers per token (log-prob, entropy, log-sum-exp), and dropped. Going back, the chunk is made
//! again and overwritten by its gradient
//!
//! ```text
//! d loss / d logit_j = (g (1[j = target] - p_j) - h p_j (log p_j + entropy)) / temperature
//! ```
//! for g = d loss / d logprob and h = d loss / d entropy. A loss that is a sum over tokens needs no
//! second making: [`Head::score_and_backward`] asks for g while the chunk is there.
//!
//! Legend: m scored tokens, c tokens of a chunk, v vocabulary, d width.
//!
//! Not here: how a chunk's logits are multiplied (`product.rs`), the formulas in plain numbers that
//! judge this file (`reference.rs`).

mod product;
pub mod reference;
mod rows;

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

pub use product::HeadMode;
use product::Product;
use rows::Rows;

/// How log-probs are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadOptions {
    pub mode: HeadMode,
    /// Log-probs are those of logits / temperature, the distribution that is sampled.
    pub temperature: f64,
    /// Most bytes of float32 logits held at once; `None` holds all of them.
    pub chunk_bytes: Option<i64>,
}

impl HeadOptions {
    /// The defaults of a device.
    ///
    /// On CUDA `split`: as accurate as FP32 products of the same numbers, at tensor-core speed.
    pub fn of(device: Device) -> Self {
        let (mode, chunk_bytes) = match device {
            Device::Cpu => (HeadMode::Exact, 16 << 20),
            _ => (HeadMode::Split, 1 << 30),
        };
        Self { mode, temperature: 1.0, chunk_bytes: Some(chunk_bytes) }
    }
}

/// Three numbers per token, float32, in the order of the tokens.
#[derive(Debug)]
pub struct TokenScores {
    /// Log-prob of the target.
    pub logprob: Tensor,
    /// Entropy of the whole distribution.
    pub entropy: Tensor,
    lse: Tensor,
}

/// The gradient of a loss at each token, float32.
#[derive(Debug)]
pub struct TokenGradients {
    /// d loss / d logprob.
    pub logprob: Tensor,
    /// d loss / d entropy, where the loss looks at entropy.
    pub entropy: Option<Tensor>,
}

/// A head over one matrix, prepared for one batch.
pub struct Head {
    product: Product,
    options: HeadOptions,
    vocabulary: i64,
}

impl Head {
    /// `weight_vd` stays as it is until the batch is done.
    pub fn new(weight_vd: &Tensor, options: HeadOptions) -> Result<Self, TchError> {
        let weight_vd = weight_vd.f_detach()?;
        let vocabulary = weight_vd.size2()?.0;
        Ok(Self { product: Product::new(&weight_vd, options.mode)?, options, vocabulary })
    }

    fn chunks(&self, tokens: i64) -> impl Iterator<Item = Range<i64>> + use<> {
        let most = self.options.chunk_bytes.map_or(tokens, |bytes| bytes / (4 * self.vocabulary));
        // Equal chunks: a small remainder would waste a product.
        let count = (tokens + most.max(1) - 1) / most.max(1);
        (0..count).map(move |i| tokens * i / count..tokens * (i + 1) / count)
    }

    /// Whole logits of a few tokens, float32 [m, v], at the head's temperature.
    pub fn logits(&self, hidden_md: &Tensor) -> Result<Tensor, TchError> {
        let _guard = tch::no_grad_guard();
        let logits = self.product.logits(hidden_md)?;
        if (self.options.temperature - 1.0).abs() < f64::EPSILON {
            return Ok(logits);
        }
        logits.f_div_scalar(self.options.temperature)
    }

    /// The matrix whose float32 products with bf16 hidden states are the logits, where one is all.
    pub fn wide_matrix(&self) -> Option<&Tensor> {
        let is_plain = (self.options.temperature - 1.0).abs() < f64::EPSILON;
        self.product.wide_matrix().filter(|_| is_plain)
    }

    /// Scores of `targets_m` after the hidden states `hidden_md`.
    pub fn score(&self, hidden_md: &Tensor, targets_m: &Tensor) -> Result<TokenScores, TchError> {
        let _guard = tch::no_grad_guard();
        let tokens = hidden_md.size2()?.0;
        let mut parts = Vec::new();
        for chunk in self.chunks(tokens) {
            let (hidden, targets) = (cut(hidden_md, &chunk)?, cut(targets_m, &chunk)?);
            let mut rows = Rows::new(self.product.logits(&hidden)?, targets, &self.options);
            parts.push(rows.score()?);
        }
        join(&parts, hidden_md.device())
    }

    /// Adds the head's gradient into `grad_vd` (float32), where the head learns, and returns that of
    /// the hidden states.
    pub fn backward(
        &self,
        hidden_md: &Tensor,
        targets_m: &Tensor,
        scores: &TokenScores,
        gradients: &TokenGradients,
        mut grad_vd: Option<&mut Tensor>,
    ) -> Result<Tensor, TchError> {
        let _guard = tch::no_grad_guard();
        let mut d_hidden = Vec::new();
        for chunk in self.chunks(hidden_md.size2()?.0) {
            let (hidden, targets) = (cut(hidden_md, &chunk)?, cut(targets_m, &chunk)?);
            let mut rows = Rows::new(self.product.logits(&hidden)?, targets, &self.options);
            let [lse, entropy] = [cut(&scores.lse, &chunk)?, cut(&scores.entropy, &chunk)?];
            let gradients = TokenGradients {
                logprob: cut(&gradients.logprob, &chunk)?,
                entropy: gradients.entropy.as_ref().map(|g| cut(g, &chunk)).transpose()?,
            };
            rows.differentiate(&lse, &entropy, &gradients)?;
            d_hidden.push(self.product.backward(
                &rows.into_logits(),
                &hidden,
                grad_vd.as_deref_mut(),
            )?);
        }
        concatenate(&d_hidden, hidden_md)
    }

    /// Score and backward in one, for losses that are sums over tokens: `gradient_of` is asked for
    /// the gradient of each chunk's tokens, given the range and their scores.
    pub fn score_and_backward(
        &self,
        hidden_md: &Tensor,
        targets_m: &Tensor,
        mut grad_vd: Option<&mut Tensor>,
        mut gradient_of: impl FnMut(Range<i64>, &TokenScores) -> Result<TokenGradients, TchError>,
    ) -> Result<(TokenScores, Tensor), TchError> {
        let _guard = tch::no_grad_guard();
        let (mut parts, mut d_hidden) = (Vec::new(), Vec::new());
        for chunk in self.chunks(hidden_md.size2()?.0) {
            let (hidden, targets) = (cut(hidden_md, &chunk)?, cut(targets_m, &chunk)?);
            let mut rows = Rows::new(self.product.logits(&hidden)?, targets, &self.options);
            let scores = rows.score()?;
            let gradients = gradient_of(chunk, &scores)?;
            rows.differentiate(&scores.lse, &scores.entropy, &gradients)?;
            d_hidden.push(self.product.backward(
                &rows.into_logits(),
                &hidden,
                grad_vd.as_deref_mut(),
            )?);
            parts.push(scores);
        }
        Ok((join(&parts, hidden_md.device())?, concatenate(&d_hidden, hidden_md)?))
    }
}

fn cut(tensor: &Tensor, range: &Range<i64>) -> Result<Tensor, TchError> {
    tensor.f_narrow(0, range.start, range.end - range.start)
}

fn concatenate(parts: &[Tensor], like: &Tensor) -> Result<Tensor, TchError> {
    match parts {
        [] => like.f_zeros_like(),
        [one] => Ok(one.shallow_clone()),
        many => Tensor::f_cat(many, 0),
    }
}

fn join(parts: &[TokenScores], device: Device) -> Result<TokenScores, TchError> {
    let empty = Tensor::f_zeros([0], (Kind::Float, device))?;
    let column = |pick: fn(&TokenScores) -> &Tensor| {
        let column: Vec<Tensor> = parts.iter().map(|part| pick(part).shallow_clone()).collect();
        concatenate(&column, &empty)
    };
    Ok(TokenScores {
        logprob: column(|part| &part.logprob)?,
        entropy: column(|part| &part.entropy)?,
        lse: column(|part| &part.lse)?,
    })
}

#[cfg(test)]
mod tests;

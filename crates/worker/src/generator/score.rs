//! How likely given tokens are: plain passes over whole sequences, between two decode steps.
//!
//! A list of sequences is cut into pieces of [`piece_tokens`] tokens, one piece between two steps, so
//! that decoding goes on and memory is bounded whatever is asked for. Logits are float32 at
//! temperature 1, a block of rows at a time: all of them are never held at once.
//!
//! Legend: n tokens of a piece, c rows of a block, v vocabulary, d width, k candidates.
//!
//! Not here: the KV cache. A score reads nothing of it and leaves nothing in it.

use std::collections::VecDeque;

use scalerl_generate::Generator;
use scalerl_model::packed::Packed;
use scalerl_rollout::{GeneratorError, TokenScore};
use tch::{Device, Kind, TchError, Tensor};

use super::thread::Reply;

/// Bytes of float32 logits held at once.
const BLOCK_BYTES: i64 = 64 << 20;

/// Tokens of one pass, unless a single sequence has more.
fn piece_tokens(device: Device) -> usize {
    if device == Device::Cpu { 512 } else { 8192 }
}

/// A list of sequences, half scored.
pub(super) struct Scoring {
    waiting: VecDeque<Vec<i64>>,
    done: Vec<Vec<TokenScore>>,
    top: i64,
    reply: Reply<Vec<Vec<TokenScore>>>,
}

impl Scoring {
    /// `None` where the sequences cannot be scored; whoever asked has been told.
    pub(super) fn begin(
        sequences: &[Vec<u32>],
        top: usize,
        reply: Reply<Vec<Vec<TokenScore>>>,
        generator: &Generator,
    ) -> Option<Self> {
        let config = &generator.model().config;
        let limit = config.max_positions;
        let longest = sequences.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let unknown =
            sequences.iter().flatten().find(|token| i64::from(**token) >= config.vocabulary);
        let refused = if longest > limit as u64 {
            Some(GeneratorError::TooLong { asked: longest, limit: limit as u64 })
        } else {
            unknown.map(|token| GeneratorError::Refused {
                reason: format!(
                    "token {token} is outside the model's vocabulary of {}",
                    config.vocabulary
                ),
            })
        };
        if let Some(error) = refused {
            // Given up already: nobody wants to know.
            let _ = reply.send(Err(error));
            return None;
        }
        let waiting = sequences.iter().map(|one| one.iter().copied().map(i64::from).collect());
        let top = (top as i64).min(config.vocabulary);
        Some(Self { waiting: waiting.collect(), done: Vec::new(), top, reply })
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.reply.is_closed()
    }

    /// Scores one piece. True when nothing is left to do.
    pub(super) fn advance(&mut self, generator: &Generator) -> Result<bool, TchError> {
        let most = piece_tokens(generator.model().device());
        let mut piece: Vec<Vec<i64>> = Vec::new();
        let mut tokens = 0;
        while let Some(next) = self.waiting.front() {
            if !piece.is_empty() && tokens + next.len() > most {
                break;
            }
            tokens += next.len();
            piece.extend(self.waiting.pop_front());
        }
        self.done.extend(score(generator, &piece, self.top)?);
        Ok(self.waiting.is_empty())
    }

    pub(super) fn finish(self) {
        // Given up in the last moment: nobody wants it.
        let _ = self.reply.send(Ok(self.done));
    }
}

/// One entry per token of each sequence.
fn score(
    generator: &Generator,
    sequences: &[Vec<i64>],
    top: i64,
) -> Result<Vec<Vec<TokenScore>>, TchError> {
    let _guard = tch::no_grad_guard();
    let model = generator.model();
    // A token is judged by the hidden state of the one before it; the first by none.
    let mut rows: Vec<i64> = Vec::new();
    let mut targets: Vec<i64> = Vec::new();
    let mut start = 0;
    for sequence in sequences {
        let count = sequence.len() as i64;
        rows.extend(start..start + (count - 1).max(0));
        targets.extend(sequence.iter().skip(1));
        start += count;
    }
    let mut scores = Vec::with_capacity(targets.len());
    if !targets.is_empty() {
        let hidden_nd = model.network.hidden(&Packed::new(sequences, model.device())?)?;
        let most = (BLOCK_BYTES / (4 * model.config.vocabulary)).max(1) as usize;
        for (rows, targets) in rows.chunks(most).zip(targets.chunks(most)) {
            let on_device = |ids: &[i64]| Tensor::f_from_slice(ids)?.f_to_device(model.device());
            let hidden_cd = hidden_nd.f_index_select(0, &on_device(rows)?)?;
            let logits_cv = generator.head().logits(&hidden_cd)?;
            scores.extend(block(&logits_cv, &on_device(targets)?, top)?);
        }
    }
    let mut scores = scores.into_iter();
    let first = || TokenScore { logprob: None, top: Vec::new() };
    let of = |sequence: &Vec<i64>| {
        let rest = sequence.len().saturating_sub(1);
        let begin = (!sequence.is_empty()).then(first);
        begin.into_iter().chain(scores.by_ref().take(rest)).collect()
    };
    Ok(sequences.iter().map(of).collect())
}

fn block(logits_cv: &Tensor, targets_c: &Tensor, top: i64) -> Result<Vec<TokenScore>, TchError> {
    let logprobs_cv = logits_cv.f_log_softmax(-1, Kind::Float)?;
    let floats = |tensor: &Tensor| Vec::<f32>::try_from(&tensor.f_to_device(Device::Cpu)?);
    let chosen = floats(&logprobs_cv.f_gather(1, &targets_c.f_unsqueeze(1)?, false)?.f_view(-1)?)?;
    let plain = |logprob: f32| TokenScore { logprob: Some(logprob), top: Vec::new() };
    if top == 0 {
        return Ok(chosen.into_iter().map(plain).collect());
    }
    let (values_ck, ids_ck) = logprobs_cv.f_topk(top, -1, true, true)?;
    let values = floats(&values_ck.f_contiguous()?.f_view(-1)?)?;
    let ids = ids_ck.f_contiguous()?.f_view(-1)?.f_to_device(Device::Cpu)?;
    let ids = Vec::<i64>::try_from(&ids)?;
    let candidates: Vec<(u32, f32)> =
        ids.into_iter().zip(values).map(|(id, value)| (id as u32, value)).collect();
    let of = |(logprob, top): (f32, &[(u32, f32)])| TokenScore {
        logprob: Some(logprob),
        top: top.to_vec(),
    };
    Ok(chosen.into_iter().zip(candidates.chunks(top as usize)).map(of).collect())
}

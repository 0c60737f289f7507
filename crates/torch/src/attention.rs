//! Causal attention over packed sequences on CUDA: cuDNN's kernels for long sequences, flash
//! attention for the rest.
//!
//! cuDNN's kernels for Hopper are 1.4 to 2.3 times as fast, but want rectangles, and each new
//! shape costs a plan of tens of milliseconds. So a long sequence is a rectangle of its own, its
//! length rounded up to one of sixteen an octave: causality hides what lies behind its end from
//! every real token, and no gradient comes from there. Sequences of one round length are one
//! rectangle. Short ones share a call of flash attention, a call for each run of neighbours.
//!
//! Not here: which layers see how far (`PackedAttention` of the model).

use std::sync::OnceLock;

use tch::{Device, Kind, TchError, Tensor};

use crate::cuda;
use crate::shim::{self, AttentionState, PackedStarts};

/// From this length on a sequence is worth a call of its own.
const LONG: i64 = 1024;
/// From this length on sequences of one round length are worth one.
const LONG_TOGETHER: i64 = 256;
/// Lengths of rectangles are multiples of this.
const STEP: i64 = 64;

/// Neighbours in a packed batch that one call serves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    /// First token.
    start: i64,
    lengths: Vec<i64>,
    /// Length of the rectangle, for cuDNN.
    round: Option<i64>,
}

impl Run {
    fn tokens(&self) -> i64 {
        self.lengths.iter().sum()
    }
}

/// The smallest length of a rectangle that holds a sequence.
fn rounded(length: i64) -> i64 {
    let octave = 1_i64 << (63 - length.max(1).leading_zeros());
    let step = (octave / 16).max(STEP);
    (length + step - 1) / step * step
}

/// Cuts a batch into runs.
fn runs(lengths: &[i64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < lengths.len() {
        let length = lengths[at];
        let alike = lengths[at..].iter().take_while(|other| **other == length).count();
        let is_round = rounded(length) == length;
        let (count, round) = if is_round && length >= LONG_TOGETHER && alike > 1 {
            (alike, Some(length))
        } else if length >= LONG {
            (1, Some(rounded(length)))
        } else {
            (1, None)
        };
        match runs.last_mut() {
            Some(last) if last.round.is_none() && round.is_none() => last.lengths.push(length),
            _ => runs.push(Run { start, lengths: vec![length; count], round }),
        }
        start += length * count as i64;
        at += count;
    }
    runs
}

/// How a packed batch is attended to.
pub struct Plan {
    /// All sequences in one call of flash attention.
    flash: PackedStarts,
    /// The same cut into runs, and where the sequences of those for flash attention begin; empty
    /// where all of it is for flash attention.
    runs: Vec<(Run, Option<PackedStarts>)>,
}

/// What [`Plan::forward`] leaves for [`Plan::backward`].
#[derive(Debug)]
pub enum Saved {
    /// Of one call of flash attention.
    Whole(AttentionState),
    /// Of each run.
    Runs(Vec<AttentionState>),
}

static NO_CUDNN: OnceLock<String> = OnceLock::new();

/// Why cuDNN's attention was given up in this process, if it was.
pub fn why_no_cudnn() -> Option<&'static str> {
    NO_CUDNN.get().map(String::as_str)
}

fn starts(lengths: &[i64], window: Option<i64>, device: Device) -> Result<PackedStarts, TchError> {
    let mut total = 0;
    let mut starts = vec![0_i32];
    starts.extend(lengths.iter().map(|length| {
        total += *length as i32;
        total
    }));
    let longest = lengths.iter().copied().max().unwrap_or(0);
    Ok(PackedStarts { starts: shim::upload(&starts, device)?, longest, window })
}

impl Plan {
    /// `window`: tokens that a query sees, itself among them.
    pub fn new(lengths: &[i64], window: Option<i64>, device: Device) -> Result<Self, TchError> {
        let mut cut = Vec::new();
        if window.is_none() && cuda::is_hopper(device) {
            let all = runs(lengths);
            if all.iter().any(|run| run.round.is_some()) {
                for run in all {
                    let starts = match run.round {
                        None => Some(starts(&run.lengths, None, device)?),
                        Some(_) => None,
                    };
                    cut.push((run, starts));
                }
            }
        }
        Ok(Self { flash: starts(lengths, window, device)?, runs: cut })
    }

    /// A further reference to the same: backward passes run on other threads, and keep one each.
    #[must_use]
    pub fn share(&self) -> Self {
        let shared = |(run, starts): &(Run, Option<PackedStarts>)| {
            (run.clone(), starts.as_ref().map(PackedStarts::share))
        };
        Self { flash: self.flash.share(), runs: self.runs.iter().map(shared).collect() }
    }

    fn is_cut(&self, q: &Tensor) -> bool {
        let width = q.size()[2];
        !self.runs.is_empty() && NO_CUDNN.get().is_none() && width <= 128 && width % 8 == 0
    }

    /// Queries [n, heads, width], keys and values [n, kv_heads, width] to [n, heads, width],
    /// contiguous; without autograd.
    pub fn forward(&self, qkv: [&Tensor; 3], scale: f64) -> Result<(Tensor, Saved), TchError> {
        if self.is_cut(qkv[0]) {
            match self.forward_in_runs(qkv, scale) {
                Ok(done) => return Ok(done),
                Err(problem) => {
                    let problem = problem.to_string();
                    // A device that is full says nothing of cuDNN.
                    if !problem.contains("out of memory") {
                        drop(NO_CUDNN.set(problem));
                    }
                }
            }
        }
        let state = shim::flash_forward(qkv, &self.flash, scale)?;
        Ok((state.out.f_contiguous()?, Saved::Whole(state)))
    }

    fn forward_in_runs(&self, qkv: [&Tensor; 3], scale: f64) -> Result<(Tensor, Saved), TchError> {
        let out = Tensor::f_empty(qkv[0].size(), (Kind::BFloat16, qkv[0].device()))?;
        let mut saved = Vec::with_capacity(self.runs.len());
        for (run, starts) in &self.runs {
            let mut place = out.f_narrow(0, run.start, run.tokens())?;
            let state = if let Some(starts) = starts {
                let [q, k, v] = qkv.map(|x| x.f_narrow(0, run.start, run.tokens()));
                let state = shim::flash_forward([&q?, &k?, &v?], starts, scale)?;
                place.f_copy_(&state.out)?;
                state
            } else {
                let [q, k, v] = qkv.map(|x| rectangle(x, run));
                let state = shim::cudnn_forward([&q?, &k?, &v?], scale)?;
                let found = flat(&state.out, run)?;
                if self.runs.len() == 1 && found.size() == out.size() && found.is_contiguous() {
                    return Ok((found, Saved::Runs(vec![state])));
                }
                place.f_copy_(&found)?;
                state
            };
            saved.push(state);
        }
        Ok((out, Saved::Runs(saved)))
    }

    /// Gradients of queries, keys and values, contiguous.
    pub fn backward(
        &self,
        qkv: [&Tensor; 3],
        saved: &Saved,
        d_out: &Tensor,
        scale: f64,
    ) -> Result<[Tensor; 3], TchError> {
        let d_out = d_out.f_contiguous()?;
        let states = match saved {
            Saved::Whole(state) => {
                let grads = flash_backward(qkv, &self.flash, state, &d_out, scale)?;
                return contiguous(&grads);
            }
            Saved::Runs(states) => states,
        };
        if let ([(run, None)], [state]) = (&self.runs[..], &states[..]) {
            let grads = cudnn_backward(qkv, run, state, &d_out, scale)?;
            return contiguous(&grads);
        }
        let made = qkv.map(|x| Tensor::f_empty(x.size(), (Kind::BFloat16, x.device())));
        let [dq, dk, dv] = made;
        let made = [dq?, dk?, dv?];
        for ((run, starts), state) in self.runs.iter().zip(states) {
            let (start, tokens) = (run.start, run.tokens());
            let grads = match starts {
                Some(starts) => {
                    let [q, k, v] = qkv.map(|x| x.f_narrow(0, start, tokens));
                    let d_out = d_out.f_narrow(0, start, tokens)?;
                    flash_backward([&q?, &k?, &v?], starts, state, &d_out, scale)?
                }
                None => cudnn_backward(qkv, run, state, &d_out, scale)?,
            };
            for (made, grad) in made.iter().zip(&grads) {
                made.f_narrow(0, start, tokens)?.f_copy_(grad)?;
            }
        }
        Ok(made)
    }
}

fn contiguous(grads: &[Tensor; 3]) -> Result<[Tensor; 3], TchError> {
    let [dq, dk, dv] = grads.each_ref().map(Tensor::f_contiguous);
    Ok([dq?, dk?, dv?])
}

/// The sequences of a run as [sequences, heads, length, width]: a view, but where the last one's
/// rectangle reaches over the end of the batch.
fn rectangle(x: &Tensor, run: &Run) -> Result<Tensor, TchError> {
    let (n, heads, width) = x.size3()?;
    let (count, length) = (run.lengths.len() as i64, run.round.expect("a run for cuDNN"));
    if count > 1 {
        let tokens = x.f_narrow(0, run.start, count * length)?;
        return tokens.f_view([count, length, heads, width])?.f_transpose(1, 2);
    }
    let tokens = if run.start + length <= n {
        x.f_narrow(0, run.start, length)?
    } else {
        let room = Tensor::f_zeros([length, heads, width], (x.kind(), x.device()))?;
        room.f_narrow(0, 0, n - run.start)?.f_copy_(&x.f_narrow(0, run.start, n - run.start)?)?;
        room
    };
    tokens.f_unsqueeze(0)?.f_transpose(1, 2)
}

/// The real tokens of a run's rectangles, [n, heads, width].
fn flat(x: &Tensor, run: &Run) -> Result<Tensor, TchError> {
    let (_, heads, _, width) = x.size4()?;
    let x = x.f_transpose(1, 2)?;
    match &run.lengths[..] {
        [length] => x.f_squeeze_dim(0)?.f_narrow(0, 0, *length),
        _ => x.f_reshape([run.tokens(), heads, width]),
    }
}

fn flash_backward(
    [q, k, v]: [&Tensor; 3],
    packed: &PackedStarts,
    state: &AttentionState,
    d_out: &Tensor,
    scale: f64,
) -> Result<[Tensor; 3], TchError> {
    let (starts, longest) = (&packed.starts, packed.longest);
    let (left, right) = match packed.window {
        Some(window) => (Some(window - 1), Some(0)),
        None => (None, None),
    };
    let [first, second] = &state.noise;
    let (dq, dk, dv) = Tensor::f_internal_flash_attention_backward(
        d_out, q, k, v, &state.out, &state.lse, starts, starts, longest, longest, 0.0, true, first,
        second, scale, left, right,
    )?;
    Ok([dq, dk, dv])
}

fn cudnn_backward(
    qkv: [&Tensor; 3],
    run: &Run,
    state: &AttentionState,
    d_out: &Tensor,
    scale: f64,
) -> Result<[Tensor; 3], TchError> {
    let [q, k, v] = qkv.map(|x| rectangle(x, run));
    let length = run.round.expect("a run for cuDNN");
    let (_, heads, width) = d_out.size3()?;
    let real = d_out.f_narrow(0, run.start, run.tokens())?;
    let d_out = match &run.lengths[..] {
        [own] if *own < length => {
            // What lies behind the end of the sequence belongs to others, and has no gradient here.
            let room = Tensor::f_zeros([length, heads, width], (real.kind(), real.device()))?;
            room.f_narrow(0, 0, *own)?.f_copy_(&real)?;
            room
        }
        _ => real,
    };
    let shape = [run.lengths.len() as i64, length, heads, width];
    let d_out = d_out.f_view(shape)?.f_transpose(1, 2)?;
    let (none, [seed, offset]) = (Tensor::new(), &state.noise);
    let (dq, dk, dv) = Tensor::f_internal_scaled_dot_product_cudnn_attention_backward(
        &d_out, &q?, &k?, &v?, &state.out, &state.lse, seed, offset, &none, &none, &none, length,
        length, 0.0, true, scale,
    )?;
    let [dq, dk, dv] = [dq, dk, dv].map(|grad| flat(&grad, run));
    Ok([dq?, dk?, dv?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: i64, lengths: &[i64], round: Option<i64>) -> Run {
        Run { start, lengths: lengths.to_vec(), round }
    }

    #[test]
    fn rectangles_hold_their_sequences_and_waste_a_sixteenth_at_most() {
        for length in 1..20_000 {
            let round = rounded(length);
            assert!(round >= length && round % STEP == 0, "{length} {round}");
            assert!(round - length < (length / 16).max(STEP), "{length} {round}");
            assert_eq!(rounded(round), round, "{length}");
        }
    }

    #[test]
    fn runs_cover_every_token_once_and_in_order() {
        let long = LONG + 5;
        let lengths = [3, 900, long, long, 7, 512, 512, 512, 100, 100, 4096];
        let found = runs(&lengths);
        let expected = [
            run(0, &[3, 900], None),
            run(903, &[long], Some(rounded(long))),
            run(903 + long, &[long], Some(rounded(long))),
            run(903 + 2 * long, &[7], None),
            run(910 + 2 * long, &[512; 3], Some(512)),
            run(910 + 2 * long + 1536, &[100, 100], None),
            run(910 + 2 * long + 1736, &[4096], Some(4096)),
        ];
        assert_eq!(found, expected);
        let tokens: i64 = found.iter().map(Run::tokens).sum();
        assert_eq!(tokens, lengths.iter().sum::<i64>());
    }

    /// What a rectangle over the end of the batch holds, on the CPU: views and copies agree.
    #[test]
    fn a_rectangle_begins_with_its_sequence() {
        let x = Tensor::arange(40 * 2 * 8, (Kind::Float, Device::Cpu)).view([40, 2, 8]);
        for (start, length) in [(0, 5), (30, 10), (7, 33)] {
            let one = run(start, &[length], Some(rounded(length)));
            let made = rectangle(&x, &one).unwrap();
            assert_eq!(made.size(), [1, 2, rounded(length), 8]);
            assert!(flat(&made, &one).unwrap().equal(&x.narrow(0, start, length)));
        }
    }
}

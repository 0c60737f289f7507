//! Problems of different difficulty and completions of different length.
//!
//! Assumed, not measured: thinking is log-normal, half of its spread (in the logarithm's variance)
//! between problems and half within; a problem's chance of a right answer is Beta(0.35, 0.35), which leaves about three
//! fifths of the groups with both right and wrong answers, the share that lets recipes with 80 groups
//! train on 48. The policy does not learn: this is about speed.

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_distr::{Beta, Distribution, LogNormal, StandardUniform};
use scalerl_rollout::{FinishReason, SampleRequest};

/// Tokens that one simulated token stands for: memory and time of the simulation, nothing else.
pub(crate) const STRIDE: u32 = 16;
/// Tokens of every prompt.
pub(crate) const PROMPT_TOKENS: f64 = 200.0;
/// The phrase that ends thinking.
pub(crate) const INTERRUPTION: u32 = 90;

/// How long completions are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    /// Half of all thinking is shorter, in tokens.
    pub(crate) median_thinking: f64,
    /// Standard deviation of its logarithm.
    pub(crate) spread: f64,
}

impl Lengths {
    /// With interruptions between 10k and 12k tokens, about an eighth of completions is cut.
    pub(crate) const USUAL: Self = Self { median_thinking: 5500.0, spread: 0.6 };
    const MEDIAN_ANSWER: f64 = 500.0;
    const SPREAD_OF_ANSWERS: f64 = 0.5;
}

/// A completion before it is written. Lengths are in strides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedCompletion {
    pub(crate) length: u32,
    pub(crate) thinking: u32,
    /// Where the phrase is forced, if thinking gets that far.
    pub(crate) interrupted_at: Option<u32>,
    pub(crate) finish: FinishReason,
    pub(crate) is_right: bool,
}

/// Log-normal around `median`; a spread of 0 is the median itself.
fn log_normal(random: &mut ChaCha8Rng, median: f64, spread: f64) -> f64 {
    LogNormal::new(median.ln(), spread).map_or(median, |law| law.sample(random))
}

/// All completions of a request.
pub(crate) fn plan(request: &SampleRequest, lengths: Lengths) -> Vec<PlannedCompletion> {
    let row = request.prompt_token_ids.last().copied().unwrap_or(0);
    let mut problem = ChaCha8Rng::seed_from_u64(u64::from(row));
    let chance = Beta::new(0.35, 0.35).map_or(0.5, |law| law.sample(&mut problem));
    let half = lengths.spread / 2.0_f64.sqrt();
    let median = log_normal(&mut problem, lengths.median_thinking, half);
    let one = |index: u32| {
        let mut random = ChaCha8Rng::seed_from_u64(request.seed.wrapping_add(u64::from(index)));
        let strides = |tokens: f64| (tokens / f64::from(STRIDE)).ceil().max(1.0) as u32;
        let wanted = strides(log_normal(&mut random, median, half));
        let interruption = request.interruptions.get(index as usize).map(|one| one.at_token);
        let interrupted_at = interruption.filter(|at| *at < wanted);
        let thinking = interrupted_at.map_or(wanted.min(request.max_thinking_tokens), |at| at + 1);
        let spread = Lengths::SPREAD_OF_ANSWERS;
        let answer = strides(log_normal(&mut random, Lengths::MEDIAN_ANSWER, spread));
        let is_cut = answer > request.max_answer_tokens
            || (interrupted_at.is_none() && wanted > request.max_thinking_tokens);
        let luck: f64 = StandardUniform.sample(&mut random);
        PlannedCompletion {
            length: thinking + answer.min(request.max_answer_tokens),
            thinking,
            interrupted_at,
            finish: if is_cut { FinishReason::Length } else { FinishReason::Stop },
            is_right: luck < chance && !is_cut,
        }
    };
    (0..request.count).map(one).collect()
}

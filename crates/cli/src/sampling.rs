//! The flags that say how tokens are drawn, the same wherever tokens are drawn.

use scalerl_generate::{GREEDY, Sampling};

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct SamplingArgs {
    /// 0 takes the most probable token.
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// The fewest tokens that hold this share of the probability are drawn from; 1 keeps all.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// So many of the most probable tokens are drawn from; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
}

impl SamplingArgs {
    pub(crate) fn sampling(self) -> Sampling {
        let Self { temperature, top_p, top_k } = self;
        if temperature == 0.0 { GREEDY } else { Sampling { temperature, top_p, top_k } }
    }
}

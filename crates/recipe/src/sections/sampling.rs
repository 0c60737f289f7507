//! `[sampling]`: how completions are drawn in training. Read by generators and the trainer.
//!
//! Recorded log-probs are of the distribution sampled from, so the trainer divides its logits by
//! the same temperature.

use crate::{
    declare::{declare, section},
    sections::MOST_TOKENS,
    setting::Rule,
};

section! {
    /// How completions are drawn in training.
    pub struct Sampling {
        /// Divides the logits, in the generator and in the trainer. The paper does not state it;
        /// 1 samples from the policy itself.
        temperature: f64 = 1.0, Rule::Above(0.0);
        /// Keeps the likeliest tokens up to this probability mass; 1 is off. Off in training
        /// because the trainer cannot rebuild the cut distribution.
        top_p: f64 = 1.0, Rule::AboveUpTo(0.0, 1.0);
        /// Keeps this many likeliest tokens; 0 is off.
        top_k: u32 = 0;
        /// Longer prompts are refused when the data is read. Source: ScaleRL, section 2.
        max_prompt_tokens: u32 = 2048, Rule::Between(1.0, MOST_TOKENS);
        /// Tokens until thinking must have ended. Source: ScaleRL, section 2 (16,384 in all).
        max_thinking_tokens: u32 = 12288, Rule::Between(0.0, MOST_TOKENS);
        /// Tokens after thinking has ended. Source: ScaleRL, section 2.
        max_answer_tokens: u32 = 2048, Rule::Between(1.0, MOST_TOKENS);
        /// Texts that end a completion, beside the model's own end token.
        stop: Vec<String> = Vec::new();
    }
}

impl Sampling {
    /// The longest completion, injected tokens apart.
    pub fn max_completion_tokens(&self) -> u64 {
        u64::from(self.max_thinking_tokens) + u64::from(self.max_answer_tokens)
    }
}

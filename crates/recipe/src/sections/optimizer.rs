//! `[optimizer]`: AdamW with a constant rate after a warm-up. Read by trainers.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

section! {
    /// AdamW with a constant learning rate after a linear warm-up.
    pub struct Optimizer {
        /// Learning rate. Source: ScaleRL, section 2.
        lr: f64 = 5e-7, Rule::Above(0.0);
        /// Steps over which the rate rises from 0. Source: ScaleRL, section 2.
        warmup_steps: u32 = 100;
        /// Decay of the weights, apart from the gradient. Source: ScaleRL, section 2.
        weight_decay: f64 = 0.01, Rule::AtLeast(0.0);
        /// Decay of the mean of gradients. Not stated in the paper; AdamW's usual value.
        beta1: f64 = 0.9, Rule::Between(0.0, 0.9999);
        /// Decay of the mean of squared gradients. Not stated in the paper; usual for language
        /// models.
        beta2: f64 = 0.95, Rule::Between(0.0, 0.99999);
        /// Keeps the division finite. Source: ScaleRL, section 2 (small, because RL gradients are).
        epsilon: f64 = 1e-15, Rule::Above(0.0);
        /// Gradients longer than this are scaled down to it; unset never clips. Not stated in the
        /// paper.
        max_gradient_norm: Option<f64> = Some(1.0), Rule::Above(0.0);
        /// In which numbers the means of gradients and of their squares are kept.
        moments: Moments = Moments::default();
        /// In which numbers the gradients of a step are added up over micro-batches.
        gradients: Gradients = Gradients::default();
    }
}

choice! {
    /// In which numbers the means of gradients and of their squares are kept.
    pub enum Moments {
        /// 8 bytes a parameter for both.
        "float32" Float32,
        /// 4 bytes a parameter, rounded by chance so that small changes count in the mean
        /// (docs/memory.md).
        "bf16" Bf16,
    }
}

choice! {
    /// In which numbers the gradients of a step are added up over micro-batches.
    pub enum Gradients {
        /// 4 bytes a parameter, and 2 more while a micro-batch goes back.
        "float32" Float32,
        /// 2 bytes a parameter: each micro-batch is rounded to the nearest as it is added. With one
        /// process that trains, and layers in bf16.
        "bf16" Bf16,
    }
}

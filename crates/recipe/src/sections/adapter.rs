//! `[adapter]`: whether all weights are trained, or small matrices beside them. Read by trainers and
//! generators.

use crate::{
    declare::{choice, declare},
    setting::Rule,
};

choice! {
    /// What is trained.
    pub enum Adapter {
        /// All weights.
        "none" None,
        /// LoRA: the model's weights are frozen and held once, in the number format of the layers; two
        /// float32 matrices beside each linear layer are trained. Source: Hu et al. 2021, in PEFT's form.
        /// No dropout.
        "lora" Lora {
            /// Rows of the first matrix, columns of the second.
            rank: u32 = 32, Rule::Between(1.0, 65_536.0);
            /// What the matrices add is multiplied by `alpha / rank`.
            alpha: f64 = 32.0, Rule::Above(0.0);
            /// Layers by the last word of their path, such as `q_proj`; empty takes every linear layer of
            /// attention and feed-forward, experts too.
            layers: Vec<String> = Vec::new();
        },
    }
}

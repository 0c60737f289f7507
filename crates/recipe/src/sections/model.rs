//! `[model]`: which policy is trained. Read by `crates/model`.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

section! {
    /// Which policy is trained.
    pub struct Model {
        /// Folder in Hugging Face format, or a hub name such as `Qwen/Qwen2.5-0.5B-Instruct`.
        /// Training refuses to start without it; checking a recipe does not.
        path: Option<String> = None;
        /// Branch, tag or commit when `path` is a hub name.
        revision: String = "main".into();
        /// Where the weights come from.
        weights: Weights = Weights::default();
        /// Number format of the layers; the head has its own choice, `objective.head_precision`.
        compute: Compute = Compute::default();
        /// Recomputes activations in the backward pass: less memory, about a third more time.
        activation_checkpointing: bool = false;
    }
}

choice! {
    /// Where the weights come from.
    pub enum Weights {
        /// Read from the model's safetensors files.
        "pretrained" Pretrained,
        /// Drawn at random with the run's seed; only `config.json` and the tokenizer are read.
        "random" Random,
        /// Drawn at random for a model of this shape, whose tokens are those of the synthetic
        /// problems; `path` stays unset. With `warm_up` a whole run needs no files.
        "new" New {
            /// Layers.
            layers: u32 = 4, Rule::Between(1.0, 4096.0);
            /// Width of a layer.
            width: u32 = 128, Rule::Between(2.0, 131_072.0);
            /// Query heads.
            heads: u32 = 4, Rule::Between(1.0, 4096.0);
            /// Key and value heads.
            kv_heads: u32 = 2, Rule::Between(1.0, 4096.0);
            /// Width of the feed-forward part, or of one expert.
            feed_forward: u32 = 384, Rule::Between(1.0, 1_048_576.0);
            /// Experts of each layer; 0 makes a dense model.
            experts: u32 = 0, Rule::Between(0.0, 65_536.0);
            /// Experts that read a token.
            active_experts: u32 = 2, Rule::Between(1.0, 65_536.0);
        },
    }
}

choice! {
    /// Number format of the layers.
    pub enum Compute {
        /// bf16 on a GPU, f32 on a CPU.
        "auto" Auto,
        /// 16 bits, FP32 master weights.
        "bf16" Bf16,
        /// 32 bits.
        "f32" F32,
    }
}

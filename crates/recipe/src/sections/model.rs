//! `[model]`: which policy is trained. Read by `crates/model`.

use crate::declare::{choice, declare, section};

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

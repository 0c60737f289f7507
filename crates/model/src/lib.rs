//! Transformers on libtorch: Hugging Face models, FP32 heads, and the training step.
//!
//! In reading order: a folder (`folder.rs`) holds a config (`config.rs`), weights (`weights.rs`,
//! cut up as `layout.rs` says), a tokenizer and a chat template. `network` runs packed sequences
//! forward; `head.rs` turns hidden states into log-probs without ever holding all logits; `train`
//! takes optimizer steps; `generate` continues prompts. `sft` is the trainer for supervised fine-tuning.
//!
//! libtorch comes through tch; what tch lacks is in the C++ shim (`shim.rs`). CUDA is looked for
//! at run time (`device.rs`): the same binary runs with and without a GPU. What the CPU can do is
//! settled before `main` (`cpu.rs`).
//!
//! Not here: RL losses (they hand in a gradient per token), anything asynchronous.

pub mod bench;
mod calendar;
pub mod collective;
pub mod config;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod error;
pub mod folder;
pub mod fresh;
mod fused;
pub mod generate;
pub mod head;
pub mod hub;
mod json;
mod layer_config;
pub mod layout;
mod limited;
pub mod memory;
pub mod network;
pub mod ops;
pub mod packed;
pub mod save;
pub mod sft;
pub mod shim;
pub mod stopwatch;
pub mod template;
pub mod tensor_file;
pub mod tokenizer;
pub mod train;
pub mod weights;

pub use tch;

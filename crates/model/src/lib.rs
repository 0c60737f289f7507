//! Transformers on libtorch: Hugging Face models, FP32 heads, and the training step.
//!
//! In reading order: a folder (`folder.rs`) holds a config (`config.rs`, read by its family in
//! `families`), weights (`weights.rs`, cut up as `layout.rs` says), a tokenizer and a chat template;
//! `unloaded.rs` is one whose weights have not been read.
//! `network` runs packed sequences forward; `head.rs` turns hidden states into log-probs without ever holding all logits; `train`
//! takes optimizer steps, over all parameters or over an `adapter`'s. `sft` is the trainer for supervised fine-tuning.
//!
//! Not here: libtorch itself and CUDA (`torch`), decoding (`generate`), RL losses (they hand in a gradient
//! per token), anything asynchronous.

pub mod adapter;
pub mod bench;
mod calendar;
pub mod check;
pub mod config;
pub mod error;
mod families;
pub mod folder;
pub mod fresh;
pub mod head;
pub mod hub;
mod json;
pub mod layout;
mod limited;
pub mod memory;
pub mod network;
pub mod packed;
pub mod save;
pub mod sft;
mod split_mix;
pub mod template;
pub mod tensor_file;
mod tensor_writer;
pub mod tokenizer;
pub mod train;
pub mod unloaded;
pub mod weights;

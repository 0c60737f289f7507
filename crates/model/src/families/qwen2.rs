//! Qwen 2 and 2.5: biases on queries, keys and values, never on the output.

use super::{Family, decoder};
use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::json::Keys;

pub(super) struct Qwen2;

impl Family for Qwen2 {
    fn model_type(&self) -> &'static str {
        "qwen2"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError> {
        decoder::refuse_windows(keys)?;
        let config = decoder::read(self.model_type(), keys, &decoder::Defaults::default())?;
        Ok(ModelConfig { has_qkv_bias: true, has_output_bias: false, ..config })
    }
}

//! Llama 1 to 3.x, SmolLM2, TinyLlama: biases where the config asks for them, `llama3` rotation.

use super::{Family, decoder};
use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::json::Keys;

pub(super) struct Llama;

impl Family for Llama {
    fn model_type(&self) -> &'static str {
        "llama"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError> {
        decoder::refuse_windows(keys)?;
        let defaults = decoder::Defaults { norm_epsilon: 1e-5, ..Default::default() };
        let config = decoder::read(self.model_type(), keys, &defaults)?;
        Ok(ModelConfig { has_mlp_bias: keys.flag_or("mlp_bias", false)?, ..config })
    }
}

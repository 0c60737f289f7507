//! Qwen 3, dense: norms on queries and keys.

use super::{Family, decoder};
use crate::config::{ModelConfig, QueryKeyNorm};
use crate::error::LoadError;
use crate::json::Keys;

pub(super) struct Qwen3;

impl Family for Qwen3 {
    fn model_type(&self) -> &'static str {
        "qwen3"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError> {
        decoder::refuse_windows(keys)?;
        let mut config = decoder::read(self.model_type(), keys, &decoder::Defaults::default())?;
        for layer in &mut config.layers {
            layer.query_key_norm = QueryKeyNorm::Weighted;
        }
        Ok(config)
    }
}

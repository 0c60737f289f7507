//! Mistral 7B, Nemo, Small: Llama with attention that slides over a window, where there is one.

use super::{Family, decoder};
use crate::config::{ModelConfig, Span};
use crate::error::LoadError;
use crate::json::Keys;

pub(super) struct Mistral;

impl Family for Mistral {
    fn model_type(&self) -> &'static str {
        "mistral"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError> {
        let defaults = decoder::Defaults { max_positions: 131_072, ..Default::default() };
        let mut config = decoder::read(self.model_type(), keys, &defaults)?;
        // Version 0.1 slides; later ones say null, which is not the same as saying nothing.
        if !keys.is_null("sliding_window") {
            let window = Span::Window(keys.positions_or("sliding_window", 4096)?);
            config.layers.iter_mut().for_each(|layer| layer.span = window);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn span(window: Option<Value>) -> Span {
        let mut config = json!({"model_type": "mistral", "vocab_size": 32, "hidden_size": 8,
            "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4});
        if let Some(window) = window {
            config["sliding_window"] = window;
        }
        let config = ModelConfig::from_json(config, Path::new("config.json")).unwrap();
        config.layers[0].span
    }

    #[test]
    fn a_window_of_null_is_none_and_one_left_out_is_the_default() {
        assert_eq!(span(Some(Value::Null)), Span::Full);
        assert_eq!(span(Some(json!(7))), Span::Window(7));
        assert_eq!(span(None), Span::Window(4096));
    }
}

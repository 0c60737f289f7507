//! One file a model family: how its config.json reads, what its tensors are called, what it refuses.
//!
//! A family turns the keys of its config.json into a [`ModelConfig`], which says layer by layer what
//! the network is; nothing outside this folder knows a family by its name. Most families are the
//! decoder of `decoder.rs` with a few facts changed. To add one: its file, its `mod` and its place in
//! [`FAMILIES`], a tiny model in scripts/golden/models.py and its name in tests/golden.rs.
//!
//! Not here: the network (`network`), which tensor goes where (`layout.rs`).

mod decoder;
mod gemma3_text;
mod llama;
mod llama4_text;
mod mistral;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod rotation;

use serde_json::{Map, Value};

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::json::Keys;

/// What a family is.
pub(crate) trait Family: Sync {
    /// `model_type` in config.json.
    fn model_type(&self) -> &'static str;

    /// What config.json says. What is not supported is refused by its key: a wrong result would be
    /// worse than an error.
    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError>;

    /// Puts the rotation into a config.json that is being saved, as transformers 4 and 5 spell it.
    fn write_rotation(&self, config: &ModelConfig, raw: &mut Map<String, Value>) {
        rotation::write(config, raw);
    }
}

/// Every family.
static FAMILIES: &[&dyn Family] = &[
    &llama::Llama,
    &qwen2::Qwen2,
    &qwen3::Qwen3,
    &qwen3_moe::Qwen3Moe,
    &llama4_text::Llama4Text,
    &mistral::Mistral,
    &gemma3_text::Gemma3Text,
];

/// The family of a config.json.
pub(crate) fn of(keys: &Keys) -> Result<&'static dyn Family, LoadError> {
    let found = keys.text("model_type")?;
    named(found).ok_or_else(|| LoadError::UnsupportedArchitecture {
        path: keys.path().to_path_buf(),
        found: found.to_owned(),
        supported: FAMILIES.iter().map(|family| family.model_type()).collect::<Vec<_>>().join(", "),
    })
}

/// The family of a `model_type`.
pub(crate) fn named(model_type: &str) -> Option<&'static dyn Family> {
    FAMILIES.iter().copied().find(|family| family.model_type() == model_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_found_by_a_name_of_its_own() {
        for &family in FAMILIES {
            let found = named(family.model_type()).unwrap();
            assert!(std::ptr::addr_eq(found, family), "{}", family.model_type());
        }
        assert!(named("gpt2").is_none());
    }
}

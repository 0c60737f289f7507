//! The tiny models that scripts/golden/models.py makes: one folder of `testdata` each.

pub(crate) const NAMES: [&str; 10] = [
    "llama",
    "llama_untied",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "llama4_text",
    "qwen2_yarn",
    "qwen3_yarn",
    "mistral",
    "gemma3_text",
];

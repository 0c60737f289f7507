//! Why a model folder cannot be used. Every variant names the file and the key or tensor.
//!
//! Not here: errors of a training step (`train/step.rs`) and of a run (`sft`).

use std::path::{Path, PathBuf};

use tch::TchError;
use thiserror::Error;

use crate::adapter::AdapterError;

/// Why a model, its tokenizer or its template could not be loaded or saved.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LoadError {
    /// Neither a folder nor something that looks like a hub name.
    #[error("{name}: no such folder")]
    NoFolder { name: String },
    /// The hub could not be reached, or has no such model.
    #[error(
        "{name} is not a folder here, and the Hugging Face hub could not supply {file}: {problem}"
    )]
    Hub { name: String, file: String, problem: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// No room is left where something is to be written.
    #[error("disk full: cannot write {}", path.display())]
    DiskFull { path: PathBuf, source: std::io::Error },
    #[error("{}: not valid JSON: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("{}: key `{key}` is missing", path.display())]
    MissingKey { path: PathBuf, key: &'static str },
    #[error("{}: `{key}` is {found}, {problem}", path.display())]
    BadValue { path: PathBuf, key: &'static str, found: String, problem: String },
    /// Every size may be sound and all together not.
    #[error("{}: describes a model of {problem}", path.display())]
    TooLarge { path: PathBuf, problem: String },
    /// Weights that do not fit, found out before they are made.
    #[error("a model of {parameters} parameters needs {} for its weights, and {} are free", gib(*needed), gib(*free))]
    NoRoom { parameters: i64, needed: u64, free: u64 },
    #[error("{}: model_type `{found}` is not supported; supported are {supported}", path.display())]
    UnsupportedArchitecture { path: PathBuf, found: String, supported: String },
    #[error("{}: no model.safetensors and no model.safetensors.index.json", path.display())]
    NoWeights { path: PathBuf },
    /// Truncated, overlapping or otherwise broken.
    #[error("{}: not a whole safetensors file: {problem}", path.display())]
    BrokenWeights { path: PathBuf, problem: String },
    #[error("{}: tensor `{tensor}` is missing", path.display())]
    MissingTensor { path: PathBuf, tensor: String },
    #[error("{}: tensor `{tensor}` has shape {found:?}, config.json asks for {expected:?}", path.display())]
    WrongShape { path: PathBuf, tensor: String, found: Vec<i64>, expected: Vec<i64> },
    #[error("{}: tensor `{tensor}` holds {found}; F32, BF16 and F16 are read", path.display())]
    WrongKind { path: PathBuf, tensor: String, found: String },
    #[error("{}: {problem}", path.display())]
    Tokenizer { path: PathBuf, problem: String },
    #[error("the chat template of {}: {problem}", path.display())]
    Template { path: PathBuf, problem: String },
    /// Not PEFT's folder of a LoRA adapter, or one that asks for more than we can.
    #[error("{}: {problem}", path.display())]
    NotAnAdapter { path: PathBuf, problem: String },
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64)
}

impl LoadError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoFolder { .. } => {
                "give a folder with config.json, or a hub name such as Qwen/Qwen2.5-0.5B-Instruct"
            }
            Self::Hub { .. } => {
                "without network, give a folder that holds config.json, *.safetensors and tokenizer.json"
            }
            Self::DiskFull { .. } => {
                "make room on that disk (or raise the quota), then give the same command again, with \
                 --resume where a run had begun; what was whole before still is"
            }
            Self::UnsupportedArchitecture { .. } => {
                "choose a model of one of these families; docs/extending.md shows how one is added"
            }
            Self::TooLarge { .. } => "no machine holds it: check the sizes that the file gives",
            Self::NoRoom { .. } => "choose a smaller model, bf16, or a machine with more memory",
            Self::BrokenWeights { .. } => "the file was cut off or changed: download it again",
            Self::NoWeights { .. } => {
                "only safetensors are read; convert other formats with transformers' save_pretrained"
            }
            Self::MissingTensor { .. } | Self::WrongShape { .. } => {
                "config.json and the weights belong to different models"
            }
            Self::Tokenizer { .. } => "the folder needs a sound tokenizer.json (a fast tokenizer)",
            Self::Template { .. } => {
                "it is in chat_template.jinja or tokenizer_config.json: mend it, or take it again \
                 from where the model came"
            }
            Self::NotAnAdapter { .. } => {
                "docs/adapters.md says which of PEFT's folders are read; merge others with PEFT itself"
            }
            Self::Adapter(error) => error.hint(),
            _ => "check the file, or take the model folder again from where it came",
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| {
            if scalerl_files::is_disk_full(&source) {
                Self::DiskFull { path, source }
            } else {
                Self::Io { path, source }
            }
        }
    }
}

//! The loop of supervised fine-tuning: step, validate, save, and go on after a kill.
//!
//! ```text
//! OUT/options.json       what the run was started with; a resume must agree
//! OUT/metrics.jsonl      a line per step and per validation
//! OUT/checkpoints/       step-00000040/, …
//! OUT/model/             the finished model, a Hugging Face folder
//! ```
//! On the CPU a resumed run writes the same numbers as one that was never stopped, bit for bit:
//! the order of examples follows from seed and step, and a checkpoint holds everything else.

use std::fs::File;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::{Device, Kind, TchError, Tensor};
use thiserror::Error;

use super::data::{DataError, Example, Reader};
use super::order::Order;
use crate::adapter::{self, Adapter, AdapterConfig, Place};
use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::folder::Model;
use crate::network::Activations;
use crate::packed::share_out;
use crate::save::{ModelToSave, SaveKind, save_model, write_json};
use crate::train::checkpoint::{self, CheckpointError};
use crate::train::{
    AdamWConfig, BatchError, ComputeKind, Learner, LearnerOptions, StepError, TrainingBatch,
};

/// What to train on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftOptions {
    /// Folder of the model to start from, or of an adapter.
    pub model: PathBuf,
    /// The base of a starting adapter, where it is not the one it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// What is trained in place of all weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterConfig>,
    /// Start from random weights; the folder then needs config.json and a tokenizer only.
    pub is_from_scratch: bool,
    pub train: PathBuf,
    pub validation: Option<PathBuf>,
    pub steps: u64,
    /// Examples of one step.
    pub examples_per_step: usize,
    /// Longer examples are left out.
    pub max_tokens: usize,
    /// Most tokens that pass through the network at once.
    pub micro_batch_tokens: usize,
    pub optimizer: AdamWConfig,
    /// Steps between validations; 0 validates at the end only.
    pub validate_every: u64,
    /// Steps between checkpoints; 0 saves at the end only.
    pub save_every: u64,
    /// Checkpoints to keep.
    pub keep: usize,
    pub seed: u64,
    /// Computed again in the backward pass.
    pub is_recomputing: bool,
}

/// Why fine-tuning stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SftError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("{} holds a run already", out.display())]
    OutExists { out: PathBuf },
    #[error("{} was started with other options: {}", out.display(), changed.join(", "))]
    OtherOptions { out: PathBuf, changed: Vec<String> },
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl SftError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Load(error) => error.hint(),
            Self::Data(error) => error.hint(),
            Self::Batch(_) => "tokenizer and model do not belong together",
            Self::Step(error) => error.hint(),
            Self::Checkpoint(error) => error.hint(),
            Self::OutExists { .. } => "add --resume to go on with it, or choose another --out",
            Self::OtherOptions { .. } => "resume with the same options, or choose another --out",
            Self::Torch(_) => "out of memory? lower --micro-batch-tokens or add --recompute",
        }
    }

    /// Whether the work failed, and not what it was given.
    pub fn is_of_work(&self) -> bool {
        matches!(
            self,
            Self::Torch(_)
                | Self::Step(_)
                | Self::Load(LoadError::DiskFull { .. })
                | Self::Checkpoint(CheckpointError::File(LoadError::DiskFull { .. }))
        )
    }
}

/// What a run tells its caller while it lives.
pub enum Progress<'a> {
    /// `too_long` examples of the training file were left out.
    Started {
        examples: usize,
        too_long: usize,
        parameters: i64,
        /// Of an adapter; `None` where all are trained.
        trained: Option<i64>,
        resumed_at: u64,
    },
    /// A line of metrics.jsonl.
    Line(&'a Value),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SftOutcome {
    pub model: PathBuf,
    pub last_loss: f64,
    pub validation_loss: Option<f64>,
}

struct FineTuning<'a> {
    options: &'a SftOptions,
    out: &'a Path,
    learner: Learner,
    train: Vec<Example>,
    validation: Option<Vec<Example>>,
    device: Device,
}

/// What a caller answers to progress; `Break` asks to save and stop.
pub type OnProgress<'a> = &'a mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// Trains, from the start or from the last checkpoint, and writes the finished model; `None` where
/// it was asked to stop and has saved its state.
pub fn run(
    options: &SftOptions,
    out: &Path,
    device: Device,
    is_resuming: bool,
    progress: OnProgress,
) -> Result<Option<SftOutcome>, SftError> {
    claim(options, out, is_resuming)?;
    let place = Place::find(&options.model, options.base.as_deref())?;
    let reader = Reader::load(&place.base, options.max_tokens)?;
    let (train, too_long) = reader.read(&options.train)?;
    let validation = options.validation.as_ref().map(|path| reader.read(path)).transpose()?;
    let mut learner = start(options, &place, device)?;
    let checkpoints = out.join("checkpoints");
    if let Some((_, path)) = checkpoint::list(&checkpoints)?.last() {
        checkpoint::restore(&mut learner, path)?;
    }
    let started = progress(&Progress::Started {
        examples: train.len(),
        too_long,
        parameters: learner.model.config.parameter_count(),
        trained: learner.model.adapter.as_ref().map(Adapter::parameter_count),
        resumed_at: learner.steps_taken(),
    });
    if started.is_break() {
        return Ok(None);
    }
    let validation = validation.map(|(examples, _)| examples);
    FineTuning { options, out, learner, train, validation, device }.train(progress)
}

/// Makes the folder ours, or checks that the run in it is this one.
fn claim(options: &SftOptions, out: &Path, is_resuming: bool) -> Result<(), SftError> {
    let path = out.join("options.json");
    let ours = serde_json::to_value(options).expect("plain data becomes JSON");
    if path.is_file() {
        if !is_resuming {
            return Err(SftError::OutExists { out: out.to_path_buf() });
        }
        let theirs = crate::json::read(&path)?;
        // More steps are the same run, longer.
        let changed: Vec<String> = ours
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| *key != "steps" && theirs.get(key.as_str()) != Some(*value))
            .map(|(key, _)| key.clone())
            .collect();
        if !changed.is_empty() {
            return Err(SftError::OtherOptions { out: out.to_path_buf(), changed });
        }
        return Ok(());
    }
    std::fs::create_dir_all(out).map_err(LoadError::io(out))?;
    Ok(write_json(&path, &ours)?)
}

fn start(options: &SftOptions, place: &Place, device: Device) -> Result<Learner, SftError> {
    let mut learner_options = LearnerOptions::of(device);
    let kind = match (&options.adapter, learner_options.compute) {
        (Some(_), ComputeKind::BFloat16) => Kind::BFloat16,
        _ => Kind::Float,
    };
    let model = if options.is_from_scratch {
        let config = ModelConfig::load(&place.base.join("config.json"))?;
        let mut model = Model::random(config, options.seed as i64, kind, device)?;
        model.folder = Some(place.base.clone());
        model
    } else {
        let base = Place { adapter: None, ..place.clone() };
        Model::load_at(&base, kind, device)?
    };
    let folder = place.adapter.as_deref().filter(|_| !options.is_from_scratch);
    let model = adapter::start(model, folder, options.adapter.clone(), options.seed)?;
    learner_options.optimizer = options.optimizer;
    if options.is_recomputing {
        learner_options.activations = Activations::Recompute;
    }
    Ok(Learner::new(model, learner_options)?)
}

impl FineTuning<'_> {
    fn train(mut self, progress: OnProgress) -> Result<Option<SftOutcome>, SftError> {
        let mut metrics =
            Metrics::open(&self.out.join("metrics.jsonl"), self.learner.steps_taken())?;
        let mut order = Order::new(self.train.len(), self.options.seed);
        let (mut last_loss, mut validation_loss) = (f64::NAN, None);
        while self.learner.steps_taken() < self.options.steps {
            let picked = order.step(self.learner.steps_taken(), self.options.examples_per_step);
            let line = self.step(&picked)?;
            last_loss = line["loss"].as_f64().unwrap_or(f64::NAN);
            metrics.write(&line)?;
            let mut asked = progress(&Progress::Line(&line));
            let step = self.learner.steps_taken();
            let is_last = step == self.options.steps;
            let is_due = |every: u64| is_last || (every > 0 && step.is_multiple_of(every));
            if is_due(self.options.validate_every)
                && let Some(loss) = self.validate()?
            {
                validation_loss = Some(loss);
                let line = json!({"step": step, "validation_loss": loss});
                metrics.write(&line)?;
                asked = progress(&Progress::Line(&line));
            }
            if is_due(self.options.save_every) || asked.is_break() {
                metrics.sync()?;
                checkpoint::save(&self.learner, &json!({}), &self.out.join("checkpoints"))?;
                checkpoint::prune(&self.out.join("checkpoints"), self.options.keep)?;
            }
            if asked.is_break() && !is_last {
                return Ok(None);
            }
        }
        let model = self.finished_model()?;
        Ok(Some(SftOutcome { model, last_loss, validation_loss }))
    }

    fn batches(&self, examples: &[&Example]) -> Result<Vec<TrainingBatch>, BatchError> {
        let lengths: Vec<usize> = examples.iter().map(|example| example.tokens.len()).collect();
        share_out(&lengths, self.options.micro_batch_tokens)
            .iter()
            .map(|indices| {
                let tokens: Vec<&[i64]> =
                    indices.iter().map(|&i| &examples[i].tokens[..]).collect();
                let answers: Vec<&[bool]> =
                    indices.iter().map(|&i| &examples[i].is_answer[..]).collect();
                let vocabulary = self.learner.model.config.vocabulary;
                TrainingBatch::new(&tokens, &answers, vocabulary, self.device)
            })
            .collect()
    }

    /// One optimizer step on the mean loss over the answers' tokens.
    fn step(&mut self, picked: &[usize]) -> Result<Value, SftError> {
        let examples: Vec<&Example> = picked.iter().map(|&index| &self.train[index]).collect();
        let batches = self.batches(&examples)?;
        let scored: usize = batches.iter().map(TrainingBatch::scored).sum();
        let tokens: i64 = batches.iter().map(|batch| batch.packed.len()).sum();
        let mut sum = Tensor::f_zeros(&[] as &[i64], (Kind::Float, self.device))?;
        for batch in &batches {
            let shape = [batch.scored() as i64];
            let weights = Tensor::f_full(shape, 1.0 / scored as f64, (Kind::Float, self.device))?;
            let scores = self.learner.cross_entropy(batch, &weights)?;
            sum = sum.f_sub(&scores.logprob.f_sum(Kind::Float)?)?;
        }
        let report = self.learner.step()?;
        Ok(json!({
            "step": report.step,
            "loss": sum.f_double_value(&[])? / scored as f64,
            "answer_tokens": scored,
            "tokens": tokens,
            "lr": report.lr,
            "gradient_norm": report.gradient_norm,
            "expert_imbalance": report.expert_imbalance,
        }))
    }

    /// Mean loss over the answers' tokens of the validation examples.
    fn validate(&self) -> Result<Option<f64>, SftError> {
        let Some(examples) = &self.validation else { return Ok(None) };
        let examples: Vec<&Example> = examples.iter().collect();
        let (mut sum, mut count) = (0.0, 0);
        for batch in self.batches(&examples)? {
            let scores = self.learner.score(&batch)?;
            sum -= scores.logprob.f_sum(Kind::Double)?.f_double_value(&[])?;
            count += batch.scored();
        }
        Ok(Some(sum / count as f64))
    }

    fn finished_model(&self) -> Result<PathBuf, SftError> {
        let target = self.out.join("model");
        if self.learner.model.adapter.is_some() {
            self.learner.model.save(&target, SaveKind::Float32)?;
            return Ok(target);
        }
        let is_wide = LearnerOptions::of(self.device).compute == ComputeKind::Float32;
        let model = ModelToSave {
            config: &self.learner.model.config,
            parameters: self.learner.masters(),
            kind: if is_wide { SaveKind::Float32 } else { SaveKind::BFloat16 },
            companions: self.learner.model.folder.as_deref(),
        };
        save_model(&model, &target)?;
        Ok(target)
    }
}

/// metrics.jsonl, cut back to the steps that a checkpoint has.
struct Metrics {
    file: File,
    path: PathBuf,
}

impl Metrics {
    fn open(path: &Path, steps_taken: u64) -> Result<Self, LoadError> {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let kept: String = old
            .lines()
            .filter(|line| {
                let line: Value = serde_json::from_str(line).unwrap_or_default();
                line["step"].as_u64().is_some_and(|step| step <= steps_taken)
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        std::fs::write(path, kept).map_err(LoadError::io(path))?;
        let file = File::options().append(true).open(path).map_err(LoadError::io(path))?;
        Ok(Self { file, path: path.to_path_buf() })
    }

    fn write(&mut self, line: &Value) -> Result<(), LoadError> {
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(LoadError::io(&self.path))
    }

    fn sync(&self) -> Result<(), LoadError> {
        self.file.sync_all().map_err(LoadError::io(&self.path))
    }
}

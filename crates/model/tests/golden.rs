//! Every architecture against transformers: logits, the loss and every gradient.
//!
//! Fixtures: scripts/golden/models.py (torch 2.11.0, transformers 5.3.0).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tiny_models;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_model::head::{Head, HeadOptions, TokenGradients};
use scalerl_model::layout::Parameter;
use scalerl_model::network::Activations;
use scalerl_model::packed::Packed;
use scalerl_model::save::{ModelToSave, SaveKind, save_model_in_shards};
use scalerl_model::tensor_file::read_tensors;
use scalerl_model::train::{AdamWConfig, ComputeKind, Learner, LearnerOptions, TrainingBatch};
use scalerl_torch::tch::{Device, Kind, Tensor};

use tiny_models::NAMES;

const SEQUENCES: usize = 4;
/// What models.py gave the entropy.
const ENTROPY: f64 = 0.05;
/// Float32 sums in another order.
const LOGITS: f64 = 1e-4;
const GRADIENT: f64 = 1e-3;

struct Golden {
    folder: PathBuf,
    tensors: HashMap<String, Tensor>,
}

impl Golden {
    fn load(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        let tensors = read_tensors(&folder.join("golden.safetensors")).unwrap();
        Self { folder, tensors: tensors.into_iter().collect() }
    }

    fn sequences(&self) -> Vec<Vec<i64>> {
        let ids = |index| Vec::try_from(&self.tensors[&format!("ids_{index}")]).unwrap();
        (0..SEQUENCES).map(ids).collect()
    }

    fn stacked(&self, what: &str) -> Tensor {
        let parts: Vec<Tensor> = (0..SEQUENCES)
            .map(|index| self.tensors[&format!("{what}_{index}")].shallow_clone())
            .collect();
        Tensor::cat(&parts, 0)
    }

    fn model(&self) -> Model {
        Model::load(&self.folder, Kind::Float, Device::Cpu).unwrap()
    }
}

fn logits(model: &Model, sequences: &[Vec<i64>]) -> Tensor {
    let packed = Packed::new(sequences, Device::Cpu).unwrap();
    let hidden = model.network.hidden(&packed).unwrap();
    Head::new(model.network.head(), HeadOptions::of(Device::Cpu)).unwrap().logits(&hidden).unwrap()
}

fn difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

#[test]
fn logits_of_packed_sequences_are_those_of_transformers() {
    for name in NAMES {
        let golden = Golden::load(name);
        let got = logits(&golden.model(), &golden.sequences());
        let worst = difference(&got, &golden.stacked("logits"));
        assert!(worst < LOGITS, "{name}: largest difference {worst:e}");
    }
}

/// The gradient in the file's names and shapes, stacked as `layout` says.
fn expected_gradient(golden: &Golden, parameter: &Parameter) -> Tensor {
    let parts: Vec<Tensor> = parameter
        .sources
        .iter()
        .map(|source| {
            let grad = golden.tensors[&format!("grad.{}", source.tensor)].shallow_clone();
            if source.is_transposed { grad.transpose(-1, -2) } else { grad }
        })
        .collect();
    Tensor::cat(&parts, 0).reshape(&parameter.shape[..])
}

fn check_gradients(name: &str, activations: Activations, micro_batches: usize) {
    let golden = Golden::load(name);
    let mut options = LearnerOptions::of(Device::Cpu);
    options.activations = activations;
    let mut learner = Learner::new(golden.model(), options).unwrap();
    let (sequences, weights) = (golden.sequences(), golden.stacked("weights"));
    let mut loss = 0.0;
    let mut seen = 0;
    for part in sequences.chunks(SEQUENCES / micro_batches) {
        let vocabulary = learner.model.config.vocabulary;
        let batch = TrainingBatch::all_scored(part, vocabulary, Device::Cpu).unwrap();
        let weights = weights.narrow(0, seen, batch.scored() as i64);
        seen += batch.scored() as i64;
        let pending = learner.forward(&batch).unwrap();
        let scores = &pending.scores;
        let sum = -(&scores.logprob * &weights).sum(None) - ENTROPY * scores.entropy.sum(None);
        loss += sum.double_value(&[]);
        let gradients = TokenGradients {
            logprob: -&weights,
            entropy: Some(Tensor::full_like(&weights, -ENTROPY)),
        };
        learner.backward(pending, &batch, &gradients).unwrap();
    }
    let expected = golden.tensors["loss"].double_value(&[0]);
    assert!((loss - expected).abs() < 1e-4 * expected.abs(), "{name}: {loss} {expected}");
    for (parameter, grad) in learner.model.layout.iter().zip(learner.gradients()) {
        let expected = expected_gradient(&golden, parameter);
        let worst = difference(grad.as_ref().unwrap(), &expected);
        let scale = expected.abs().max().double_value(&[]);
        assert!(worst <= GRADIENT * scale, "{name} {}: {worst:e} of {scale:e}", parameter.name);
    }
}

#[test]
fn gradients_are_those_of_transformers() {
    for name in NAMES {
        check_gradients(name, Activations::Keep, 1);
    }
}

#[test]
fn recomputed_activations_and_micro_batches_change_no_gradient() {
    for name in NAMES {
        check_gradients(name, Activations::Recompute, 1);
        check_gradients(name, Activations::Keep, 2);
    }
}

#[test]
fn a_saved_model_has_the_same_logits_and_the_same_tensors_as_the_file_it_came_from() {
    for name in NAMES {
        let golden = Golden::load(name);
        let model = golden.model();
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("saved");
        let saved = ModelToSave {
            config: &model.config,
            parameters: &model.parameters,
            kind: SaveKind::Float32,
            companions: Some(&golden.folder),
        };
        for shard_bytes in [1 << 30, 9000] {
            save_model_in_shards(&saved, &target, shard_bytes).unwrap();
            let again = Model::load(&target, Kind::Float, Device::Cpu).unwrap();
            let sequences = golden.sequences();
            assert!(logits(&model, &sequences).equal(&logits(&again, &sequences)), "{name}");
            let without_raw = |config: &ModelConfig| ModelConfig {
                raw: serde_json::Map::default(),
                ..config.clone()
            };
            assert_eq!(without_raw(&model.config), without_raw(&again.config));
            assert!(target.join("generation_config.json").is_file());
        }
    }
}

#[test]
fn bf16_compute_learns_what_float32_learns_but_for_rounding() {
    for name in NAMES {
        let golden = Golden::load(name);
        let losses = [ComputeKind::Float32, ComputeKind::BFloat16].map(|compute| {
            let mut options = LearnerOptions::of(Device::Cpu);
            options.compute = compute;
            options.optimizer = AdamWConfig { lr: 0.01, warmup_steps: 0, ..options.optimizer };
            let mut learner = Learner::new(golden.model(), options).unwrap();
            let batch = TrainingBatch::all_scored(&golden.sequences(), 64, Device::Cpu).unwrap();
            let count = batch.scored() as f64;
            let weights =
                Tensor::full([batch.scored() as i64], 1.0 / count, (Kind::Float, Device::Cpu));
            let mut losses = Vec::new();
            for _ in 0..20 {
                let scores = learner.cross_entropy(&batch, &weights).unwrap();
                losses.push(-scores.logprob.mean(None).double_value(&[]));
                learner.step().unwrap();
            }
            losses
        });
        let [wide, narrow] = &losses;
        assert!(wide[19] < 0.6 * wide[0], "{name} does not learn: {wide:?}");
        assert!((wide[0] - narrow[0]).abs() < 0.05 * wide[0], "{name}: {wide:?} {narrow:?}");
        assert!((wide[19] - narrow[19]).abs() < 0.15 * wide[0], "{name}: {wide:?} {narrow:?}");
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_named_and_nothing_moves() {
    let golden = Golden::load("qwen3");
    let mut learner = Learner::new(golden.model(), LearnerOptions::of(Device::Cpu)).unwrap();
    let batch = TrainingBatch::all_scored(&golden.sequences(), 64, Device::Cpu).unwrap();
    let mut weights = Tensor::ones([batch.scored() as i64], (Kind::Float, Device::Cpu));
    let _ = weights.get(0).fill_(f64::NAN);
    let before: Vec<Tensor> = learner.masters().iter().map(Tensor::copy).collect();
    learner.cross_entropy(&batch, &weights).unwrap();
    let said = learner.step().unwrap_err().to_string();
    assert!(said.contains("step 1") && said.contains("embedding"), "{said}");
    assert!(before.iter().zip(learner.masters()).all(|(a, b)| a.equal(b)));
    assert_eq!(learner.steps_taken(), 0);
    // The next batch trains as if nothing had happened.
    let _ = weights.fill_(1.0);
    learner.cross_entropy(&batch, &weights).unwrap();
    assert_eq!(learner.step().unwrap().step, 1);
    assert!(learner.step().unwrap_err().to_string().contains("no batch"));
}

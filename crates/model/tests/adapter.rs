//! LoRA against PEFT (loss, gradients, folders both ways), against finite differences, and on resume.
//!
//! Fixtures: scripts/golden/lora.py (torch 2.11.0, transformers 5.3.0, peft 0.21.2).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tiny_models;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use scalerl_model::adapter::{Adapter, AdapterConfig, Place};
use scalerl_model::folder::Model;
use scalerl_model::head::{Head, HeadOptions};
use scalerl_model::network::Activations;
use scalerl_model::packed::Packed;
use scalerl_model::save::SaveKind;
use scalerl_model::tensor_file::{read_tensors, write_tensors};
use scalerl_model::train::{Learner, LearnerOptions, TrainingBatch, checkpoint};
use scalerl_torch::tch::{Device, Kind, Tensor};
use serde_json::{Value, json};

use tiny_models::NAMES;

const CASES: [&str; 3] = ["llama-all", "qwen3-some", "gemma3_text-all"];
const SEQUENCES: usize = 4;
/// Float32 sums in another order.
const LOGITS: f64 = 1e-4;
const GRADIENT: f64 = 1e-3;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn tensors(path: &Path) -> BTreeMap<String, Tensor> {
    read_tensors(path).unwrap().into_iter().collect()
}

fn case(name: &str) -> (PathBuf, BTreeMap<String, Tensor>, BTreeMap<String, Tensor>) {
    let folder = testdata().join("lora").join(name);
    let base = testdata().join(name.split('-').next().unwrap());
    let golden = tensors(&folder.join("golden.safetensors"));
    (folder, golden, tensors(&base.join("golden.safetensors")))
}

fn sequences(base: &BTreeMap<String, Tensor>) -> Vec<Vec<i64>> {
    let ids = |index| Vec::try_from(&base[&format!("ids_{index}")]).unwrap();
    (0..SEQUENCES).map(ids).collect()
}

fn stacked(tensors: &BTreeMap<String, Tensor>, what: &str) -> Tensor {
    let part = |index| tensors[&format!("{what}_{index}")].shallow_clone();
    Tensor::cat(&(0..SEQUENCES).map(part).collect::<Vec<_>>(), 0)
}

fn logits(model: &Model, sequences: &[Vec<i64>]) -> Tensor {
    let packed = Packed::new(sequences, Device::Cpu).unwrap();
    let hidden = model.network.hidden(&packed).unwrap();
    Head::new(model.network.head(), HeadOptions::of(Device::Cpu)).unwrap().logits(&hidden).unwrap()
}

fn difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

fn base(name: &str) -> Model {
    Model::load(&testdata().join(name), Kind::Float, Device::Cpu).unwrap()
}

fn lora(rank: i64, layers: &[&str]) -> AdapterConfig {
    let layers = layers.iter().map(ToString::to_string).collect();
    AdapterConfig { rank, alpha: 6.0, layers, is_rank_stabilised: false }
}

/// Attention only where the experts are one tensor.
fn usual_layers(name: &str) -> &'static [&'static str] {
    if name == "llama4_text" { &["q_proj", "k_proj", "v_proj", "o_proj"] } else { &[] }
}

fn fresh(name: &str) -> Model {
    let model = base(name);
    let config = lora(2, usual_layers(name));
    let adapter = Adapter::fresh(config, &model.config, 5, Device::Cpu).unwrap();
    model.adapted(adapter).unwrap()
}

/// Both matrices are random: at zero B would hide A.
fn stirred(name: &str) -> Model {
    let model = fresh(name);
    let trained = model.trained().iter().enumerate().map(|(index, tensor)| {
        let seed = Tensor::arange(tensor.numel() as i64, (Kind::Float, Device::Cpu));
        ((seed + index as f64) * 1.7).sin().view(&tensor.size()[..]) * 0.3
    });
    model.with_trained(trained.collect()).unwrap()
}

const TEXT: [i64; 12] = [1, 5, 9, 33, 2, 17, 60, 4, 4, 21, 8, 3];

fn batch(model: &Model) -> TrainingBatch {
    let all = [TEXT.to_vec(), TEXT[3..].to_vec()];
    TrainingBatch::all_scored(&all, model.config.vocabulary, Device::Cpu).unwrap()
}

fn step(learner: &mut Learner) -> f64 {
    let batch = batch(&learner.model);
    let weights = Tensor::full([batch.scored() as i64], 0.1, (Kind::Float, Device::Cpu));
    let scores = learner.cross_entropy(&batch, &weights).unwrap();
    learner.step().unwrap();
    scores.logprob.sum(Kind::Double).double_value(&[])
}

fn learner(model: Model) -> Learner {
    let mut options = LearnerOptions::of(Device::Cpu);
    options.optimizer.lr = 1e-2;
    options.optimizer.warmup_steps = 0;
    Learner::new(model, options).unwrap()
}

#[test]
fn logits_loss_and_every_gradient_are_those_of_peft() {
    for name in CASES {
        for activations in [Activations::Keep, Activations::Recompute] {
            let (folder, golden, of_base) = case(name);
            let model = Model::load(&folder, Kind::Float, Device::Cpu).unwrap();
            let worst =
                difference(&logits(&model, &sequences(&of_base)), &stacked(&golden, "logits"));
            assert!(worst < LOGITS, "{name}: largest difference {worst:e}");
            let mut options = LearnerOptions::of(Device::Cpu);
            options.activations = activations;
            let mut learner = Learner::new(model, options).unwrap();
            let vocabulary = learner.model.config.vocabulary;
            let batch =
                TrainingBatch::all_scored(&sequences(&of_base), vocabulary, Device::Cpu).unwrap();
            let weights = stacked(&of_base, "weights");
            let scores = learner.cross_entropy(&batch, &weights).unwrap();
            let loss = -(&scores.logprob * &weights).sum(None).double_value(&[]);
            let expected = golden["loss"].double_value(&[0]);
            assert!((loss - expected).abs() < 1e-4 * expected.abs(), "{name}: {loss} {expected}");
            let layout = learner.model.trained_layout();
            for (parameter, grad) in layout.iter().zip(learner.gradients()) {
                let parts: Vec<Tensor> = parameter
                    .sources
                    .iter()
                    .map(|source| golden[&format!("grad.{}", source.tensor)].shallow_clone())
                    .collect();
                let expected = Tensor::cat(&parts, 0);
                let scale = expected.abs().max().double_value(&[]).max(1e-3);
                let worst = difference(grad.as_ref().unwrap(), &expected) / scale;
                assert!(worst < GRADIENT, "{name} {}: {worst:e}", parameter.name);
            }
            assert!(learner.model.parameters.iter().all(|p| !p.requires_grad()), "frozen");
        }
    }
}

#[test]
fn merged_weights_are_those_of_peft() {
    for name in CASES {
        let (folder, golden, _) = case(name);
        let model = Model::load(&folder, Kind::Float, Device::Cpu).unwrap().merged().unwrap();
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("merged");
        model.save(&out, SaveKind::Float32).unwrap();
        let ours = tensors(&out.join("model.safetensors"));
        let mut compared = 0;
        for (key, expected) in &golden {
            let Some(key) = key.strip_prefix("merged.") else { continue };
            let worst = difference(&ours[key], expected);
            assert!(worst < 1e-6, "{name} {key}: {worst:e}");
            compared += 1;
        }
        assert_eq!(compared, 4, "{name}");
    }
}

#[test]
fn a_fresh_adapter_is_the_base_to_the_last_bit() {
    for name in NAMES {
        let (plain, adapted) = (base(name), fresh(name));
        let texts = [TEXT.to_vec()];
        assert!(logits(&plain, &texts).equal(&logits(&adapted, &texts)), "{name}");
        let merged = adapted.merged().unwrap();
        assert!(merged.parameters.iter().zip(&plain.parameters).all(|(a, b)| a.equal(b)), "{name}");
    }
}

#[test]
fn base_and_adapter_are_the_merged_model_and_switched_off_the_base() {
    for name in NAMES {
        let adapted = stirred(name);
        let texts = [TEXT.to_vec()];
        let ours = logits(&adapted, &texts);
        let off = logits(&adapted.base().unwrap(), &texts);
        assert!(off.equal(&logits(&base(name), &texts)), "{name}: switched off");
        assert!(difference(&ours, &off) > 1e-2, "{name}: the adapter does something");
        let merged = logits(&adapted.merged().unwrap(), &texts);
        let worst = difference(&ours, &merged);
        assert!(worst < LOGITS, "{name}: {worst:e}");
    }
}

/// In float64, so that differences of a small step mean something. PEFT with this transformers has no
/// matrices for single experts, so this is what judges theirs.
#[test]
fn gradients_are_finite_differences_for_experts_too() {
    for name in ["qwen3_moe", "qwen2", "mistral"] {
        let wide = Model::load(&testdata().join(name), Kind::Double, Device::Cpu).unwrap();
        let narrow = stirred(name);
        let to_double = |t: &Tensor| t.to_kind(Kind::Double).set_requires_grad(true);
        let trained: Vec<Tensor> = narrow.trained().iter().map(to_double).collect();
        let adapter = Adapter::fresh(lora(2, &[]), &wide.config, 5, Device::Cpu).unwrap();
        let model = wide.adapted(adapter).unwrap().with_trained(trained).unwrap();
        let packed = Packed::new(&[TEXT.to_vec()], Device::Cpu).unwrap();
        let slope = Tensor::arange(12 * model.network.width(), (Kind::Double, Device::Cpu));
        let slope = slope.sin().view([12, -1]);
        let pass = model.network.forward(&packed, Activations::Keep).unwrap();
        model.network.backward(pass, &packed, &slope).unwrap();
        let loss = || {
            let hidden = model.network.hidden(&packed).unwrap();
            (hidden * &slope).sum(Kind::Double).double_value(&[])
        };
        let mut seen = 0;
        for (parameter, tensor) in model.trained_layout().iter().zip(model.trained()) {
            let flat = tensor.detach().view(-1);
            let grad = tensor.grad().view(-1);
            for place in [0, flat.size1().unwrap() / 2] {
                let (value, small) = (flat.double_value(&[place]), 1e-5);
                let mut number = flat.narrow(0, place, 1);
                let mut at = |x: f64| {
                    let _ = number.fill_(x);
                    loss()
                };
                let slope = (at(value + small) - at(value - small)) / (2.0 * small);
                at(value);
                let found = grad.double_value(&[place]);
                let scale = slope.abs().max(1e-2);
                assert!(
                    (found - slope).abs() < 1e-4 * scale,
                    "{name} {} {found} {slope}",
                    parameter.name
                );
                seen += usize::from(slope.abs() > 1e-6);
            }
        }
        assert!(seen > model.trained().len(), "{name}: most of them move the loss");
    }
}

#[test]
fn a_folder_of_ours_has_pefts_tensors_and_is_read_back() {
    for name in CASES {
        let (folder, ..) = case(name);
        let model = Model::load(&folder, Kind::Float, Device::Cpu).unwrap();
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("adapter");
        model.save(&out, SaveKind::Float32).unwrap();
        let (theirs, ours) = (
            tensors(&folder.join("adapter_model.safetensors")),
            tensors(&out.join("adapter_model.safetensors")),
        );
        assert_eq!(theirs.len(), ours.len(), "{name}");
        for (key, tensor) in &theirs {
            assert!(ours[key].equal(tensor), "{name} {key}");
        }
        let again = Model::load(&out, Kind::Float, Device::Cpu).unwrap();
        assert_eq!(again.adapter.as_ref().unwrap().config, {
            let mut config = model.adapter.as_ref().unwrap().config.clone();
            config.layers.sort();
            config
        });
        assert!(again.trained().iter().zip(model.trained()).all(|(a, b)| a.equal(b)));
    }
}

/// testdata/lora/ours was written by us and peft.safetensors in it by PEFT's `from_pretrained`
/// (scripts/golden/lora.py --read). The ignored test below writes the folder.
#[test]
fn peft_reads_our_folder_as_we_do() {
    let folder = testdata().join("lora/ours");
    let model = Model::load_at(
        &Place::find(&folder, Some(testdata().join("llama").to_str().unwrap())).unwrap(),
        Kind::Float,
        Device::Cpu,
    )
    .unwrap();
    assert!(model.trained().iter().zip(stirred("llama").trained()).all(|(a, b)| a.equal(b)));
    let of_base = tensors(&testdata().join("llama/golden.safetensors"));
    let theirs = stacked(&tensors(&folder.join("peft.safetensors")), "logits");
    let worst = difference(&logits(&model, &sequences(&of_base)), &theirs);
    assert!(worst < LOGITS, "{worst:e}");
}

#[test]
#[ignore = "writes the fixture that PEFT reads"]
fn write_the_folder_that_peft_reads() {
    let folder = testdata().join("lora/ours");
    let model = stirred("llama");
    model.save(&folder, SaveKind::Float32).unwrap();
    let path = folder.join("adapter_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["base_model_name_or_path"] = json!("../../llama");
    std::fs::write(&path, format!("{config:#}\n")).unwrap();
    let of_base = tensors(&testdata().join("llama/golden.safetensors"));
    let cut = |index: usize| {
        let one = [sequences(&of_base).swap_remove(index)];
        (format!("logits_{index}"), logits(&model, &one))
    };
    let ours: Vec<(String, Tensor)> = (0..SEQUENCES).map(cut).collect();
    write_tensors(&folder.join("ours.safetensors"), &ours).unwrap();
}

#[test]
fn the_step_after_a_restore_is_the_one_that_would_have_been_taken() {
    let place = tempfile::tempdir().unwrap();
    let mut straight = learner(fresh("qwen3_moe"));
    let first = step(&mut straight);
    let path = checkpoint::save(&straight, &json!({}), place.path()).unwrap();
    let bytes = std::fs::metadata(path.join("learner.safetensors")).unwrap().len();
    let numbers = straight.model.adapter.as_ref().unwrap().parameter_count() as u64;
    assert!(bytes < 14 * numbers + 20_000, "the adapter alone: {bytes} bytes, {numbers} numbers");
    let mut resumed = learner(fresh("qwen3_moe"));
    checkpoint::restore(&mut resumed, &path).unwrap();
    let (second, again) = (step(&mut straight), step(&mut resumed));
    assert_eq!(second.to_bits(), again.to_bits());
    assert!(second > first, "the adapter learns: {first} {second}");
    let is_same = straight.masters().iter().zip(resumed.masters()).all(|(a, b)| a.equal(b));
    assert!(is_same);
    let frozen = base("qwen3_moe");
    assert!(straight.model.parameters.iter().zip(&frozen.parameters).all(|(a, b)| a.equal(b)));
}

#[test]
fn a_checkpoint_belongs_to_its_base() {
    let place = tempfile::tempdir().unwrap();
    let path = checkpoint::save(&learner(fresh("llama")), &json!({}), place.path()).unwrap();
    let mut other = base("llama");
    let _ = other.parameters[2].narrow(0, 0, 1).fill_(0.25);
    let adapter = Adapter::fresh(lora(2, &[]), &other.config, 5, Device::Cpu).unwrap();
    other = other.adapted(adapter).unwrap();
    let said = checkpoint::restore(&mut learner(other), &path).unwrap_err().to_string();
    assert!(said.contains("belongs to another model") && said.contains("fingerprint"), "{said}");
    let said = checkpoint::restore(&mut learner(base("llama")), &path).unwrap_err().to_string();
    assert!(said.contains("this run trains all weights"), "{said}");
}

#[test]
fn an_adapter_of_ours_is_refused_by_another_base() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("adapter");
    stirred("qwen2").save(&out, SaveKind::Float32).unwrap();
    let load = |base: &Path| {
        let at = Place::find(&out, base.to_str()).unwrap();
        Model::load_at(&at, Kind::Float, Device::Cpu).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(load(&testdata().join("qwen2")), Ok(()));
    assert!(load(&testdata().join("gemma3_text")).is_err(), "another shape");
    let moved = place.path().join("moved");
    let other = base("qwen2");
    let _ = other.parameters[0].narrow(0, 3, 1).fill_(0.5);
    other.save(&moved, SaveKind::Float32).unwrap();
    let said = load(&moved).unwrap_err();
    assert!(said.contains("another base") && said.contains("fingerprint"), "{said}");
}

#[test]
fn what_peft_can_and_we_cannot_is_refused_by_name() {
    let (folder, ..) = case("llama-all");
    let text = std::fs::read(folder.join("adapter_config.json")).unwrap();
    let sound: Value = serde_json::from_slice(&text).unwrap();
    for (key, value, word) in [
        ("bias", json!("all"), "bias"),
        ("modules_to_save", json!(["lm_head"]), "modules_to_save"),
        ("use_dora", json!(true), "use_dora"),
        ("rank_pattern", json!({"q_proj": 2}), "rank_pattern"),
        ("alpha_pattern", json!({"q_proj": 2}), "alpha_pattern"),
        ("layers_to_transform", json!([0]), "layers_to_transform"),
        ("some_new_feature", json!("on"), "some_new_feature"),
        ("init_lora_weights", json!("pissa"), "init_lora_weights"),
        ("target_modules", json!(".*_proj"), "target_modules"),
        ("target_modules", json!(["lm_head"]), "`lm_head`"),
        ("peft_type", json!("IA3"), "peft_type"),
        ("r", json!(0), "`r`"),
        ("r", json!(40), "rank is 40"),
        ("r", json!(3), "another base"),
        ("lora_alpha", json!(-1), "lora_alpha"),
        ("target_modules", json!(["q_proj"]), "no LoRA matrix"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let mut config = sound.clone();
        config[key] = value;
        std::fs::write(place.path().join("adapter_config.json"), config.to_string()).unwrap();
        let weights = "adapter_model.safetensors";
        std::fs::copy(folder.join(weights), place.path().join(weights)).unwrap();
        let at = Place::find(place.path(), testdata().join("llama").to_str()).unwrap();
        let error = Model::load_at(&at, Kind::Float, Device::Cpu).map(drop).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(word), "{key}: {said}");
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let said = |name: &str, config: AdapterConfig| {
        let config = Adapter::fresh(config, &base(name).config, 1, Device::Cpu).map(drop);
        config.unwrap_err().to_string()
    };
    assert!(said("llama", lora(0, &[])).contains("rank is 0"));
    assert!(said("llama", lora(17, &[])).contains("only 16 inputs"));
    let unknown = said("llama", lora(2, &["q_proj", "query"]));
    assert!(unknown.contains("`query`") && unknown.contains("o_proj"), "{unknown}");
    assert!(said("llama4_text", lora(2, &[])).contains("experts"));
    assert!(said("qwen3_moe", lora(2, &["experts.0.up_proj"])).contains("some experts"));
}

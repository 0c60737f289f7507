//! LoRA through trainer and generator: the same log-probs on both sides, on base + adapter and merged;
//! PEFT's folder in a checkpoint; a restore that goes on bit for bit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod tiny;

use std::path::Path;

use batches::{batch, trained_as};
use scalerl_model::folder::Model;
use scalerl_model::save::SaveKind;
use scalerl_recipe::{Adapter, Compute, Kl, Recipe};
use scalerl_rollout::{Completion, Generator as _, PolicyVersion, Trainer, WeightHandle};
use scalerl_worker::options::compute_kind;
use scalerl_worker::{FolderTrainer, LocalGenerator, LocalTrainer, WeightFolder, WeightStore};
use tch::{Device, Kind, Tensor};

/// Mean difference of log-probs between trainer and generator in float32, as with all weights trained.
const SAME_WEIGHTS: f32 = 1e-5;

fn lora(mut recipe: Recipe) -> Recipe {
    recipe.adapter = Adapter::Lora { rank: 4, alpha: 8.0, layers: Vec::new() };
    recipe.optimizer.lr = 2e-2;
    recipe
}

fn trainer(recipe: &Recipe) -> LocalTrainer {
    let model = trained_as(recipe, batches::model(1));
    LocalTrainer::try_new(recipe, model, WeightStore::new()).unwrap()
}

/// Mean |difference| of what the generator recorded and what a model says of the same tokens.
fn apart(recipe: &Recipe, model: &Model, completions: &[Completion]) -> f32 {
    let prompt = tiny::request(1).prompt_token_ids;
    let sequences: Vec<_> = completions
        .iter()
        .map(|completion| {
            let mut one = batch(&batches::recipe(), 1).sequences.swap_remove(0);
            one.prompt_token_ids.clone_from(&prompt);
            one.completion_token_ids.clone_from(&completion.token_ids);
            one
        })
        .collect();
    let ours = batches::logprobs(recipe, model, &sequences);
    let pairs = ours.iter().flatten().zip(completions.iter().flat_map(|one| &one.logprobs));
    let differences: Vec<f32> = pairs.map(|(a, b)| (a - b).abs()).collect();
    assert!(differences.len() > 50, "{}", differences.len());
    differences.iter().sum::<f32>() / differences.len() as f32
}

/// A trainer with an adapter that has moved, and a generator that has its weights.
async fn trained_and_generating(recipe: &Recipe) -> (LocalTrainer, LocalGenerator, WeightHandle) {
    let store = WeightStore::new();
    let kind = compute_kind(recipe, Device::Cpu);
    let base = |seed| {
        let wide = tiny::model(seed);
        let parameters = wide.parameters.iter().map(|p| p.to_kind(kind)).collect();
        Model::over(wide.config, parameters, None).unwrap()
    };
    let model = trained_as(recipe, base(1));
    let mut trainer = LocalTrainer::try_new(recipe, model, store.clone()).unwrap();
    let mut learned = batch(&batches::recipe(), 1);
    for sequence in &mut learned.sequences {
        let small = |id: &mut u32| *id %= 32;
        sequence.prompt_token_ids.iter_mut().for_each(small);
        sequence.completion_token_ids.iter_mut().for_each(small);
    }
    for _ in 0..4 {
        trainer.step(&learned).unwrap();
    }
    let copies = trainer.model().trained().iter().map(|t| t.zeros_like().detach()).collect();
    let mut setup = tiny::setup(&store);
    // On the trainer's own base, and with an adapter of its own that is still empty.
    setup.model = trainer.model().with_trained(copies).unwrap();
    let generator = LocalGenerator::start(setup).unwrap();
    let handle = trainer.publish().unwrap();
    generator.adopt(&handle).await.unwrap();
    (trainer, generator, handle)
}

#[tokio::test]
async fn a_generator_on_base_and_adapter_has_the_trainers_logprobs() {
    let recipe = lora(tiny::recipe());
    let (trainer, generator, _) = trained_and_generating(&recipe).await;
    let written = generator.generate(tiny::request(8)).await.unwrap();
    let found = apart(&recipe, trainer.model(), &written);
    assert!(found < SAME_WEIGHTS, "{found:e}");
    let off = apart(&recipe, &trainer.model().base().unwrap(), &written);
    assert!(off > 1e-2, "the adapter is in what was written: {off:e}");
}

#[tokio::test]
async fn a_generator_on_merged_weights_has_the_trainers_logprobs() {
    let recipe = lora(tiny::recipe());
    let (trainer, ..) = trained_and_generating(&recipe).await;
    let place = tempfile::tempdir().unwrap();
    let mut folder = WeightFolder::open(place.path()).unwrap();
    let published = folder.publish(PolicyVersion(4), trainer.model()).unwrap();
    let merged = Model::load(Path::new(&published.location), Kind::Float, Device::Cpu).unwrap();
    assert!(merged.adapter.is_none());
    let mut setup = tiny::setup(&WeightStore::new());
    setup.model = merged;
    let written = LocalGenerator::start(setup).unwrap().generate(tiny::request(8)).await.unwrap();
    let found = apart(&recipe, trainer.model(), &written);
    assert!(found < SAME_WEIGHTS, "{found:e}");
}

/// Merged weights are rounded once more than base and adapter are: in bf16 only the latter is what
/// the trainer computes with.
#[tokio::test]
async fn in_bf16_base_and_adapter_agree_better_than_merged_weights() {
    let mut recipe = lora(tiny::recipe());
    recipe.model.compute = Compute::Bf16;
    let (trainer, generator, _) = trained_and_generating(&recipe).await;
    assert_eq!(trainer.model().parameters[0].kind(), Kind::BFloat16);
    assert!(trainer.model().trained().iter().all(|one| one.kind() == Kind::Float));
    let written = generator.generate(tiny::request(8)).await.unwrap();
    let found = apart(&recipe, trainer.model(), &written);
    let merged = trainer.model().merged_parameters().unwrap();
    let merged = Model::over(trainer.model().config.clone(), merged, None).unwrap();
    let of_merged = apart(&recipe, &merged, &written);
    println!("bf16: base + adapter {found:e}, merged {of_merged:e}");
    assert!(found < 2e-2 && of_merged < 1e-1, "{found:e} {of_merged:e}");
    assert!(found <= of_merged, "{found:e} {of_merged:e}");
}

#[test]
fn the_base_never_moves_and_the_penalty_is_measured_from_it() {
    let mut recipe = lora(batches::recipe());
    recipe.objective.kl = Kl::K3 { coefficient: 0.1 };
    let mut trainer = trainer(&recipe);
    let batch = batch(&recipe, 2);
    let kls: Vec<f64> =
        (0..4).map(|_| trainer.step(&batch).unwrap().reference_kl.unwrap()).collect();
    assert!(kls[0].abs() < 1e-12, "a fresh adapter is the reference: {kls:?}");
    assert!(kls[3] > 1e-4, "{kls:?}");
    let base = batches::model(1);
    assert!(trainer.model().parameters.iter().zip(&base.parameters).all(|(a, b)| a.equal(b)));
}

#[test]
fn a_checkpoint_holds_pefts_folder_and_goes_on_bit_for_bit() {
    let recipe = lora(batches::recipe());
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("base");
    batches::model(1).save(&home, SaveKind::Float32).unwrap();
    let model = || {
        let base = Model::load(&home, Kind::Float, Device::Cpu).unwrap();
        LocalTrainer::try_new(&recipe, trained_as(&recipe, base), WeightStore::new()).unwrap()
    };
    let (mut straight, mut resumed) = (model(), model());
    let batch = batch(&recipe, 2);
    straight.step(&batch).unwrap();
    let saved = place.path().join("trainer");
    straight.save(&saved).unwrap();
    let read = Model::load(&saved.join("model"), Kind::Float, Device::Cpu).unwrap();
    let same = |a: &[Tensor], b: &[Tensor]| a.iter().zip(b).all(|(a, b)| a.equal(b));
    assert!(same(read.trained(), straight.model().trained()), "PEFT's folder, and its base");
    resumed.restore(&saved).unwrap();
    let (one, other) = (straight.step(&batch).unwrap(), resumed.step(&batch).unwrap());
    assert_eq!(one.loss.to_bits(), other.loss.to_bits());
    assert!(same(straight.masters(), resumed.masters()));
    let mut whole = batches::recipe();
    whole.adapter = Adapter::None;
    let mut all = LocalTrainer::try_new(&whole, batches::model(1), WeightStore::new()).unwrap();
    let said = all.restore(&saved).unwrap_err().to_string();
    assert!(said.contains("this run trains all weights"), "{said}");
}

#[test]
fn servers_get_whole_weights() {
    let recipe = lora(batches::recipe());
    let place = tempfile::tempdir().unwrap();
    let mut inner = trainer(&recipe);
    inner.step(&batch(&recipe, 2)).unwrap();
    let expected = inner.model().merged_parameters().unwrap();
    let folder = WeightFolder::open(place.path()).unwrap();
    let handle = FolderTrainer::new(inner, folder).publish().unwrap();
    let read = Model::load(Path::new(&handle.location), Kind::Float, Device::Cpu).unwrap();
    assert!(read.parameters.iter().zip(&expected).all(|(a, b)| a.equal(b)));
}

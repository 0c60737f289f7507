//! What every generator must do.

use std::time::Duration;

use scalerl_model::adapter;
use scalerl_model::head::HeadOptions;
use scalerl_recipe::Adapter;
use scalerl_rollout::conformance::{Subject, check_all};
use scalerl_rollout::{
    AnswerEnd, Completion, Generator, GeneratorError, SampleRequest, Trainer, WeightHandle,
};
use scalerl_worker::options::adapter_config;
use scalerl_worker::vllm::{AgreementError, measure_agreement};
use scalerl_worker::{
    FolderTrainer, LocalGenerator, LocalTrainer, VllmGenerator, WeightFolder, WeightStore,
};
use tch::Device;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::fake::{Fake, Options};
use crate::{rig, setup, tiny};

/// Two servers and a trainer that share a folder.
struct Servers {
    /// Whether an adapter is trained, and goes by itself.
    has_adapter: bool,
}

/// A generator and what it needs to live.
struct Served {
    generator: VllmGenerator,
    _fakes: Vec<Fake>,
    _place: TempDir,
}

impl Generator for Served {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        self.generator.generate(request).await
    }

    async fn adopt(&self, weights: &WeightHandle) -> Result<(), GeneratorError> {
        self.generator.adopt(weights).await
    }
}

async fn pair(has_adapter: bool) -> (Served, FolderTrainer<LocalTrainer>) {
    let place = tempfile::tempdir().unwrap();
    let (mut recipe, mut model) = (tiny::recipe(), tiny::model(1));
    if has_adapter {
        recipe.adapter = Adapter::Lora { rank: 4, alpha: 8.0, layers: Vec::new() };
        recipe.optimizer.lr = 2e-2;
        model = adapter::start(model, None, adapter_config(&recipe), 7).unwrap();
    }
    let trainer = LocalTrainer::try_new(&recipe, model, WeightStore::new()).unwrap();
    let folder = WeightFolder::open(place.path()).unwrap();
    let mut trainer = FolderTrainer::new(trainer, folder);
    if has_adapter {
        trainer = trainer.with_adapter_alone();
    }
    let options = if has_adapter { Options::lora() } else { Options::default() };
    let fakes = vec![Fake::start_with(options.clone()).await, Fake::start_with(options).await];
    let (setup, _) = setup(fakes.iter().map(Fake::url).collect());
    let generator = VllmGenerator::start(setup).await.unwrap();
    generator.adopt(&trainer.publish().unwrap()).await.unwrap();
    (Served { generator, _fakes: fakes, _place: place }, trainer)
}

impl Subject for Servers {
    type Generator = Served;
    type Trainer = FolderTrainer<LocalTrainer>;

    fn pair(&self) -> (Served, FolderTrainer<LocalTrainer>) {
        block_in_place(|| Handle::current().block_on(pair(self.has_adapter)))
    }

    fn request(&self) -> SampleRequest {
        tiny::long_request()
    }

    fn limit(&self) -> Option<u64> {
        Some(128)
    }

    async fn a_few_steps(&self, attempt: u32) {
        tiny::until_the_middle(attempt).await;
    }

    fn is_empty(&self, generator: &Served) -> bool {
        generator.generator.load().iter().all(|server| server.running == 0)
    }

    async fn dead(&self) -> Served {
        let place = tempfile::tempdir().unwrap();
        let mut rig = rig(1, |setup| setup.patience = Duration::from_millis(300)).await;
        rig.fakes.clear();
        Served { generator: rig.generator, _fakes: Vec::new(), _place: place }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_a_trainer_that_share_a_folder_conform() {
    let servers = Servers { has_adapter: false };
    let checks = tokio::time::timeout(Duration::from_mins(5), check_all(&servers)).await;
    assert!(checks.is_ok(), "a check waits for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_get_adapters_by_themselves_conform() {
    let servers = Servers { has_adapter: true };
    let checks = tokio::time::timeout(Duration::from_mins(5), check_all(&servers)).await;
    assert!(checks.is_ok(), "a check waits for ever");
}

/// All that a client adds must be invisible: same weights, same seeds, same completions. Calls that
/// go on after an interruption draw other numbers, so up to there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_are_those_of_the_local_generator() {
    let weight_store = WeightStore::new();
    let local = LocalGenerator::start(tiny::setup(&weight_store)).unwrap();
    let rig = rig(2, |_| ()).await;
    let plain = tiny::request(8);
    let thinking = SampleRequest {
        max_thinking_tokens: 9,
        max_answer_tokens: 40,
        end_of_thinking: vec![5],
        ..tiny::request(8)
    };
    let closed = |request: &SampleRequest| SampleRequest {
        end_of_answer: Some(AnswerEnd::at("d")),
        ..request.clone()
    };
    for request in [closed(&plain), closed(&thinking), plain, thinking] {
        let ours = local.generate(request.clone()).await.unwrap();
        let theirs = rig.generator.generate(request.clone()).await.unwrap();
        for (one, other) in ours.iter().zip(&theirs) {
            // What the first call may write.
            let first = if request.max_thinking_tokens > 0 { 9 } else { 20 };
            let same = one.len().min(first);
            assert_eq!(one.token_ids[..same], other.token_ids[..same]);
            assert_eq!(one.logprobs[..same], other.logprobs[..same]);
            if one.len() <= first {
                assert_eq!(one, other, "text, finish and thinking too");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_probs_that_agree_are_measured_and_others_are_refused() {
    let mut rig = rig(2, |_| ()).await;
    let mut request = tiny::request(4);
    request.sampling.temperature = 0.7;
    let (model, head) = (tiny::model(1), HeadOptions::of(Device::Cpu));
    let requests = [request];
    let found = measure_agreement(&rig.generator, &model, head, &requests, 1e-2).await.unwrap();
    assert_eq!(found.len(), 2, "each server by itself");
    for one in &found {
        assert!(one.largest < 1e-4 && one.tokens > 8, "{one}");
    }
    // Servers with other weights than the trainer thinks.
    rig.adopt(1, 2).await;
    let error = measure_agreement(&rig.generator, &model, head, &requests, 1e-2).await.unwrap_err();
    assert!(matches!(error, AgreementError::Apart { .. }), "{error}");
    assert!(error.to_string().contains("the recipe allows 1.0e-2"), "{error}");
    assert!(error.hint().contains("processed_logprobs"));
}

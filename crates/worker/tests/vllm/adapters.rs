//! Adapters by themselves: which of them chose which token, servers that take none, servers that were
//! started again.

use std::time::Duration;

use scalerl_model::adapter::{self, AdapterConfig};
use scalerl_model::folder::Model;
use scalerl_model::head::HeadOptions;
use scalerl_model::train::TrainingBatch;
use scalerl_rollout::{Completion, Generator, PolicyVersion, SampleRequest, WeightHandle};
use scalerl_worker::vllm::{AgreementError, Notice, measure_agreement, stirred};
use serde_json::Value;
use tch::{Device, Tensor};

use crate::fake::{Fake, Misdeed, Options};
use crate::{Rig, idle_rig, tiny};

/// As between trainer and generator in float32.
const SAME: f32 = 1e-4;

/// The tiny model with an adapter that changes what it writes, another for each number.
fn adapted(rank: i64, number: u64) -> Model {
    let config = AdapterConfig { rank, alpha: 8.0, layers: Vec::new(), is_rank_stabilised: false };
    let model = adapter::start(tiny::model(1), None, Some(config), number).unwrap();
    let moved = stirred(&model).unwrap();
    let larger = moved.trained().iter().map(|tensor| tensor * 2.0).collect();
    moved.with_trained(larger).unwrap()
}

impl Rig {
    /// Publishes an adapter by itself, and lets the servers take it.
    async fn adopt_adapter(&mut self, version: u64, model: &Model) -> WeightHandle {
        let handle = self.weights.publish_adapter(PolicyVersion(version), model).unwrap();
        self.generator.adopt(&handle).await.unwrap();
        handle
    }
}

/// Servers that hold adapter 1 as version 1.
async fn rig(count: usize) -> Rig {
    let mut rig = idle_rig(vec![Options::lora(); count], |_| ()).await;
    rig.adopt_adapter(1, &adapted(4, 1)).await;
    rig
}

/// Largest difference between recorded log-probs of tokens of a version and a model's.
fn apart(model: &Model, request: &SampleRequest, one: &Completion, version: u64) -> f32 {
    let prompt = request.prompt_token_ids.len();
    let ids = request.prompt_token_ids.iter().chain(&one.token_ids);
    let ids: Vec<i64> = ids.copied().map(i64::from).collect();
    let vocabulary = model.config.vocabulary;
    let batch = TrainingBatch::all_scored(&[ids], vocabulary, Device::Cpu).unwrap();
    let scores = model.score(&batch, HeadOptions::of(Device::Cpu)).unwrap();
    let ours = Vec::<f32>::try_from(&scores.logprob).unwrap();
    let ours = &ours[ours.len() - one.len()..];
    assert!(prompt > 0 && one.is_injected.iter().all(|is_injected| !is_injected));
    let of_version = |i: &usize| one.versions[*i] == PolicyVersion(version);
    let places = (0..one.len()).filter(of_version);
    places.map(|i| (one.logprobs[i] - ours[i]).abs()).fold(0.0, f32::max)
}

fn is_salt_of(salt: &Value, version: u64) -> bool {
    salt.as_str().unwrap().starts_with(&format!("test:{version}+adapter:v"))
}

fn exchanges(fake: &Fake) -> Vec<String> {
    let is_exchange = |path: &String| {
        !["/health", "/v1/models", "/get_world_size", "/inference/v1/generate"]
            .contains(&path.as_str())
    };
    fake.asked().into_iter().filter(is_exchange).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adapter_goes_alone_and_writes_what_the_trainer_computes() {
    let rig = rig(2).await;
    let request = tiny::request(8);
    let (model, head) = (adapted(4, 1), HeadOptions::of(Device::Cpu));
    for one in rig.generator.generate(request.clone()).await.unwrap() {
        assert!(one.versions.iter().all(|version| *version == PolicyVersion(1)));
        assert!(apart(&model, &request, &one, 1) < SAME);
        let base = apart(&tiny::model(1), &request, &one, 1);
        assert!(one.len() < 3 || base > 0.05, "the adapter is in what is written: {base}");
    }
    let found = measure_agreement(&rig.generator, &model, head, &[request], 1e-4).await.unwrap();
    assert_eq!(found.len(), 2);
    for fake in &rig.fakes {
        let order = [
            "/pause?mode=abort&clear_cache=false",
            "/weight_info",
            "/v1/unload_lora_adapter",
            "/v1/load_lora_adapter",
            "/update_weight_version",
            "/resume",
        ];
        assert_eq!(exchanges(fake), order);
        assert!(fake.bodies().iter().all(|body| body["model"] == "scalerl"));
        assert!(fake.bodies().iter().all(|body| is_salt_of(&body["cache_salt"], 1)));
        let (_, folder) = fake.adapter().unwrap();
        assert!(std::path::Path::new(&folder).join("adapter_model.safetensors").is_file());
        assert!(!std::path::Path::new(&folder).join("model.safetensors").exists());
    }
}

/// The one that vLLM gets wrong where it is let: a request keeps its adapter, and its tokens get the
/// label of the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_written_completions_go_on_under_the_new_adapter_and_every_token_says_which() {
    let mut rig = rig(1).await;
    let request = SampleRequest { max_answer_tokens: 60, ..tiny::request(6) };
    rig.fakes[0].misbehave(&[Misdeed::UntilAborted; 6]);
    let asked = rig.generator.generate(request.clone());
    let handle = rig.weights.publish_adapter(PolicyVersion(2), &adapted(4, 2)).unwrap();
    let (written, ()) = tokio::join!(asked, async {
        while rig.fakes[0].bodies().len() < 6 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        rig.generator.adopt(&handle).await.unwrap();
    });
    let written = written.unwrap();
    let mut mixed = 0;
    for one in &written {
        assert!(one.versions.is_sorted());
        let old = one.versions.iter().filter(|version| version.0 == 1).count();
        assert!(old > 0 && old <= one.len(), "{old} of {}", one.len());
        mixed += usize::from(old < one.len());
        for (version, model) in [(1, adapted(4, 1)), (2, adapted(4, 2))] {
            let found = apart(&model, &request, one, version);
            assert!(found < SAME, "tokens of version {version} are {found} apart");
        }
    }
    assert!(mixed > 0, "none went on");
    let salts: Vec<_> = rig.fakes[0].bodies().iter().map(|b| b["cache_salt"].clone()).collect();
    assert!(salts[..6].iter().all(|salt| is_salt_of(salt, 1)), "{salts:?}");
    assert!(salts[6..].iter().all(|salt| is_salt_of(salt, 2)), "{salts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_arrives_in_mid_exchange_is_asked_again_under_the_new_adapter() {
    let mut rig = rig(1).await;
    // Longer under way than a pause takes; more of them than may fail.
    rig.fakes[0].misbehave(&[Misdeed::Sleep(Duration::from_millis(300)); 8]);
    let handle = rig.weights.publish_adapter(PolicyVersion(2), &adapted(4, 2)).unwrap();
    let request = tiny::request(8);
    let (written, ()) = tokio::join!(rig.generator.generate(request.clone()), async {
        while rig.fakes[0].bodies().len() < 8 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        rig.generator.adopt(&handle).await.unwrap();
    });
    for one in written.unwrap() {
        assert!(one.versions.iter().all(|version| *version == PolicyVersion(2)), "{one:?}");
        assert!(apart(&adapted(4, 2), &request, &one, 2) < SAME);
    }
    assert!(rig.notices.try_recv().is_err(), "nothing was lost");
    let pauses = exchanges(&rig.fakes[0]);
    let pauses = pauses.iter().filter(|path| path.starts_with("/pause")).count();
    assert!(pauses > 2, "the first pause came before the requests: {pauses}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_take_no_adapter_say_why_and_are_left_without_one() {
    let cases = [
        (Options::default(), "it has no route /v1/load_lora_adapter"),
        (Options { lora: None, ..Options::lora() }, "LoRA is not enabled. Use --enable-lora"),
        (
            Options { lora: Some(1), ..Options::lora() },
            "LoRA rank 4 is greater than max_lora_rank 1",
        ),
    ];
    for (other, words) in cases {
        let mut rig = idle_rig(vec![Options::lora(), other], |_| ()).await;
        let handle = rig.weights.publish_adapter(PolicyVersion(0), &adapted(4, 1)).unwrap();
        let refused = rig.generator.refuses_adapter(&handle.location, 4).await.unwrap().unwrap();
        assert_eq!(refused.url, rig.fakes[1].url(), "the one that does not");
        assert!(refused.reason.starts_with(words), "{refused}");
        assert!(refused.to_string().contains("--enable-lora --max-lora-rank 8"), "{refused}");
        assert_eq!(rig.fakes[0].adapter(), None, "the other has unloaded it");
        // Whole weights serve them all.
        rig.adopt(0, 2).await;
        let one = rig.generator.generate(tiny::request(1)).await.unwrap().remove(0);
        assert!(apart(&tiny::model(2), &tiny::request(1), &one, 0) < SAME);
    }
}

/// However little they are apart from the base: it would be in every token, and an adapter on top.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_base_was_replaced_takes_no_adapter_until_it_is_started_again() {
    let mut rig = rig(1).await;
    let handle = rig.weights.publish_adapter(PolicyVersion(3), &adapted(4, 2)).unwrap();
    assert_eq!(rig.generator.refuses_adapter(&handle.location, 4).await.unwrap(), None);
    rig.adopt(2, 1).await;
    let refused = rig.generator.refuses_adapter(&handle.location, 4).await.unwrap().unwrap();
    assert!(refused.reason.contains("has taken whole weights since it was started"), "{refused}");
    assert!(!refused.to_string().contains("--enable-lora"), "it is started so: {refused}");
    // Nor where nobody has asked.
    let error = rig.generator.adopt(&handle).await.unwrap_err();
    assert!(error.to_string().contains("start it again"), "{error}");
    assert_eq!(rig.fakes[0].adapter(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_take_one_are_asked_and_have_none_afterwards() {
    let mut rig = idle_rig(vec![Options::lora(); 2], |_| ()).await;
    let handle = rig.weights.publish_adapter(PolicyVersion(0), &adapted(4, 1)).unwrap();
    assert_eq!(rig.generator.refuses_adapter(&handle.location, 4).await.unwrap(), None);
    assert!(rig.fakes.iter().all(|fake| fake.adapter().is_none()));
    let missing = rig.generator.refuses_adapter("/nowhere", 4).await.unwrap().unwrap();
    assert!(missing.reason.contains("No adapter found"), "{missing}");
    rig.fakes.clear();
    let error = rig.generator.refuses_adapter(&handle.location, 4).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

/// A fresh adapter is the base, so it could not tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_leaves_the_adapter_out_is_refused_at_the_start() {
    let config =
        AdapterConfig { rank: 4, alpha: 8.0, layers: Vec::new(), is_rank_stabilised: false };
    let fresh = adapter::start(tiny::model(1), None, Some(config), 3).unwrap();
    let checked = stirred(&fresh).unwrap();
    let zeros = |model: &Model| {
        let is_zero = |tensor: &&Tensor| tensor.abs().max().double_value(&[]) < 1e-12;
        model.trained().iter().filter(is_zero).count()
    };
    assert!(zeros(&fresh) > 0 && zeros(&checked) == 0);
    let (head, requests) = (HeadOptions::of(Device::Cpu), [tiny::request(8)]);
    for (ignores_adapters, is_refused) in [(false, false), (true, true)] {
        let options = Options { ignores_adapters, ..Options::lora() };
        let mut rig = idle_rig(vec![options], |_| ()).await;
        rig.adopt_adapter(0, &checked).await;
        let limit = scalerl_recipe::Recipe::default();
        let limit = match limit.pipeline.generator {
            scalerl_recipe::GeneratorChoice::Vllm { logprob_tolerance, .. } => logprob_tolerance,
            scalerl_recipe::GeneratorChoice::Local => 0.02,
        };
        let found = measure_agreement(&rig.generator, &checked, head, &requests, limit).await;
        let is_apart = matches!(found, Err(AgreementError::Apart { .. }));
        assert_eq!(is_apart, is_refused, "{found:?}");
        // The same version from another folder: the one the run starts with.
        rig.adopt_adapter(0, &fresh).await;
        let one = rig.generator.generate(tiny::request(1)).await.unwrap().remove(0);
        assert!(apart(&tiny::model(1), &tiny::request(1), &one, 0) < SAME);
        // Keys and values of the one that was checked are not found under it.
        let salts: Vec<_> = rig.fakes[0].bodies().iter().map(|b| b["cache_salt"].clone()).collect();
        let last = salts.last().unwrap();
        assert!(is_salt_of(last, 0) && !salts[..salts.len() - 1].contains(last), "{salts:?}");
    }
    // One that was trained a little could not tell either.
    let trained = checked.trained().iter().map(|tensor| tensor * 1e-3).collect();
    let trained = checked.with_trained(trained).unwrap();
    let moved = stirred(&trained).unwrap();
    let pairs = moved.trained().iter().zip(trained.trained()).zip(fresh.trained());
    for ((moved, trained), fresh) in pairs {
        let is_of_zeros = fresh.abs().max().double_value(&[]) < 1e-12;
        let change = (moved - trained).abs().mean(tch::Kind::Double).double_value(&[]);
        assert_eq!(change > 1e-3, is_of_zeros, "{change}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_waits_for_a_server_as_long_as_patience_lasts_though_others_serve() {
    let mut rig = idle_rig(vec![Options::lora(); 2], |setup| {
        setup.patience = Duration::from_secs(2);
    })
    .await;
    let model = adapted(4, 1);
    rig.adopt_adapter(1, &model).await;
    let gone = rig.fakes.remove(1).url();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let head = HeadOptions::of(Device::Cpu);
    let requests = [tiny::request(2)];
    let asked = measure_agreement(&rig.generator, &model, head, &requests, 1e-3);
    let error = tokio::time::timeout(Duration::from_mins(1), asked).await.unwrap().unwrap_err();
    assert!(error.to_string().contains(&gone), "{error}");
    let one = rig.generator.generate(tiny::request(1)).await.unwrap().remove(0);
    assert!(!one.is_empty(), "the other serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_unseen_takes_the_adapter_again() {
    let mut rig = rig(1).await;
    rig.adopt_adapter(2, &adapted(4, 2)).await;
    let expected = rig.generator.generate(tiny::request(4)).await.unwrap();
    let address = rig.fakes.remove(0).address;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let fake = Fake::start_at(&address.to_string(), Options::lora()).await;
    let answer = rig.generator.generate(tiny::request(4)).await.unwrap();
    assert_eq!(answer, expected);
    assert!(fake.adapter().is_some());
    let notice = rig.notices.recv().await.unwrap();
    let Notice::Lost { reason, .. } = &notice else { panic!("{notice}") };
    assert!(reason.contains("it has no adapter of this run"), "{reason}");
    let back = rig.notices.recv().await.unwrap();
    assert!(matches!(back, Notice::Back { version: PolicyVersion(2), .. }), "{back}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_came_back_without_lora_stays_away_with_its_words() {
    let mut rig = idle_rig(vec![Options::lora()], |setup| {
        setup.patience = Duration::from_secs(2);
    })
    .await;
    rig.adopt_adapter(1, &adapted(4, 1)).await;
    let address = rig.fakes.remove(0).address;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _fake = Fake::start_at(&address.to_string(), Options::default()).await;
    let error = rig.generator.generate(tiny::request(1)).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let said = error.to_string();
    assert!(said.contains("VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_request_that_was_given_up_halfway_are_kept() {
    let mut rig = rig(1).await;
    let request = SampleRequest { max_answer_tokens: 60, ..tiny::request(1) };
    // Somebody else's pause: no exchange is under way.
    rig.fakes[0].misbehave(&[Misdeed::UntilAborted]);
    let (written, ()) = tokio::join!(rig.generator.generate(request.clone()), async {
        while rig.fakes[0].bodies().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        rig.fakes[0].abort_all();
    });
    let one = written.unwrap().remove(0);
    assert!(apart(&adapted(4, 1), &request, &one, 1) < SAME);
    let bodies = rig.fakes[0].bodies();
    let lengths = bodies.iter().map(|body| body["token_ids"].as_array().unwrap().len());
    let lengths: Vec<usize> = lengths.collect();
    assert!(lengths.len() == 1 || lengths[1] > lengths[0], "it begins anew: {lengths:?}");
    rig.adopt_adapter(2, &adapted(4, 2)).await;
}

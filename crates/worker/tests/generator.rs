//! The local generator on a tiny random model: what is true of it beside every generator's duties.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scalerl_model::config::ModelConfig;
use scalerl_model::device;
use scalerl_model::folder::Model;
use scalerl_model::generate::{CacheAfterExchange, GeneratorOptions};
use scalerl_model::tokenizer::Tokenizer;
use scalerl_rollout::{
    FinishReason, Generator, GeneratorError, GroupId, PolicyVersion, SampleRequest, Sampling,
    WeightHandle,
};
use scalerl_worker::{LocalGenerator, LocalGeneratorSetup, Shelf};
use tch::{Device, Kind};

/// `</s>` of the tiny tokenizer.
const END: u32 = 2;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat")
}

fn model(seed: i64) -> Model {
    let mut config = ModelConfig::load(&folder().join("config.json")).unwrap();
    // Far from uniform, so that log-probs differ from token to token.
    config.initial_spread = 0.4;
    Model::random(config, seed, Kind::Float, Device::Cpu).unwrap()
}

fn setup(shelf: &Arc<Shelf>) -> LocalGeneratorSetup {
    LocalGeneratorSetup {
        model: model(1),
        options: GeneratorOptions {
            cache_tokens: 2048,
            running: 16,
            ..GeneratorOptions::of(Device::Cpu)
        },
        tokenizer: Arc::new(Tokenizer::load(&folder()).unwrap()),
        stop_tokens: vec![END],
        cache_after_exchange: CacheAfterExchange::Stale,
        shelf: shelf.clone(),
        threads: Some(1),
    }
}

fn request(count: u32) -> SampleRequest {
    SampleRequest {
        group: GroupId(0),
        prompt_token_ids: vec![1, 7, 9],
        count,
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
        max_thinking_tokens: 0,
        max_answer_tokens: 20,
        end_of_thinking: Vec::new(),
        interruptions: Vec::new(),
        stop: Vec::new(),
        seed: 5,
    }
}

#[tokio::test]
async fn text_shows_every_token_but_the_end() {
    let generator = LocalGenerator::start(setup(&Shelf::new())).unwrap();
    let tokenizer = Tokenizer::load(&folder()).unwrap();
    let mut ended = 0;
    for completion in generator.generate(request(32)).await.unwrap() {
        let ids: Vec<i64> = completion.token_ids.iter().copied().map(i64::from).collect();
        let is_ended = completion.finish == FinishReason::Stop;
        assert_eq!(is_ended, completion.token_ids.last() == Some(&END));
        let shown = &ids[..ids.len() - usize::from(is_ended)];
        assert_eq!(completion.text, tokenizer.decode_all(shown).unwrap());
        assert_eq!(completion.thinking_tokens, 0);
        ended += usize::from(is_ended);
    }
    assert!((5..32).contains(&ended), "{ended} of 32 ended by themselves");
}

#[tokio::test]
async fn weights_that_are_not_numbers_end_the_generator_with_a_reason_for_everybody() {
    let shelf = Shelf::new();
    let generator = Arc::new(LocalGenerator::start(setup(&shelf)).unwrap());
    let broken: Vec<_> = model(1).parameters.iter().map(|p| p * f64::NAN).collect();
    let handle = shelf.publish(PolicyVersion(1), &broken).unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let generator = generator.clone();
            tokio::spawn(async move {
                // Long enough to be under way when the weights come.
                let long = SampleRequest { max_answer_tokens: 100, ..request(8) };
                generator.generate(SampleRequest { sampling: GREEDY, ..long }).await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    generator.adopt(&handle).await.unwrap();
    let mut gone = 0;
    for task in tasks {
        if let Err(error) =
            tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap()
        {
            assert!(error.to_string().contains("are not numbers"), "{error}");
            gone += 1;
        }
    }
    assert!(gone > 0);
    let after = generator.generate(request(1)).await.unwrap_err();
    assert!(matches!(&after, GeneratorError::Gone { reason } if reason.contains("not numbers")));
    assert!(after.is_retryable());
    let adopting = generator.adopt(&handle).await.unwrap_err();
    assert!(matches!(adopting, GeneratorError::Gone { .. }), "{adopting}");
}

const GREEDY: Sampling = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0 };

#[tokio::test]
async fn weights_it_cannot_take_leave_it_as_it_was() {
    let shelf = Shelf::new();
    let generator = LocalGenerator::start(setup(&shelf)).unwrap();
    let before = generator.generate(request(2)).await.unwrap();
    let nowhere = WeightHandle { version: PolicyVersion(3), location: "shelf:9".into() };
    let error = generator.adopt(&nowhere).await.unwrap_err();
    assert!(error.to_string().contains("shelf:9 of v3 is not on the shelf"), "{error}");
    let few = shelf.publish(PolicyVersion(4), &model(2).parameters[..3]).unwrap();
    let error = generator.adopt(&few).await.unwrap_err();
    assert!(matches!(error, GeneratorError::Weights { version: PolicyVersion(4), .. }), "{error}");
    assert_eq!(generator.generate(request(2)).await.unwrap(), before);
}

#[tokio::test]
async fn an_idle_generator_sleeps() {
    let generator = LocalGenerator::start(setup(&Shelf::new())).unwrap();
    let _ = generator.generate(request(2)).await.unwrap();
    let before = generator.stats();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(generator.stats(), before);
    assert!(before.steps > 0 && before.tokens > 2 && before.busy_seconds > 0.0);
    assert_eq!((before.running, before.waiting, before.pool.pages_in_use), (0, 0, 0));
}

/// What `threads` rests on.
#[test]
fn the_number_of_threads_is_the_calling_threads_own() {
    let role = std::thread::spawn(|| {
        device::use_threads(2);
        std::thread::spawn(|| device::use_threads(1)).join().unwrap();
        tch::get_num_threads()
    });
    assert_eq!(role.join().unwrap(), 2);
}

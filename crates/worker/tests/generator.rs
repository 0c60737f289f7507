//! The local generator on a tiny random model: what is true of it beside every generator's duties.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tiny;

use std::sync::Arc;
use std::time::Duration;

use scalerl_generate::CacheAfterExchange;
use scalerl_model::tokenizer::Tokenizer;
use scalerl_objective::prepare;
use scalerl_recipe::Truncated;
use scalerl_rollout::{
    AnswerEnd, Batch, Completion, FinishReason, Generator, GeneratorError, Group, GroupId,
    Interruption, PolicyVersion, Prompt, PromptId, RatioStats, Reward, Rollout, SampleRequest,
    Sampling, TrainBatch, TrainSequence, Trainer, WeightHandle,
};
use scalerl_torch::device;
use scalerl_worker::{LocalGenerator, LocalTrainer, WeightStore};
use tiny::{END, folder, model, request, setup};

/// Root of the mean square of log-prob differences, two float32 passes over the same weights.
const SAME_WEIGHTS: f64 = 1e-5;

#[tokio::test]
async fn text_shows_every_token_but_the_end() {
    let generator = LocalGenerator::start(setup(&WeightStore::new())).unwrap();
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
async fn the_closing_text_ends_the_answer_and_is_shown() {
    let generator = LocalGenerator::start(setup(&WeightStore::new())).unwrap();
    let tokenizer = Tokenizer::load(&folder()).unwrap();
    let text = |ids: &[u32]| {
        let ids: Vec<i64> = ids.iter().copied().map(i64::from).collect();
        tokenizer.decode_all(&ids).unwrap()
    };
    let open = generator.generate(request(32)).await.unwrap();
    // Something that is written often: two tokens.
    let close = text(&open[0].token_ids[1..3]);
    let closed =
        |text: &str| SampleRequest { end_of_answer: Some(AnswerEnd::at(text)), ..request(32) };
    let mut cut = 0;
    for (one, open) in generator.generate(closed(&close)).await.unwrap().iter().zip(&open) {
        let is_closed = |count: &usize| text(&open.token_ids[..*count]).contains(&close);
        let end = (1..=open.len()).find(is_closed);
        assert_eq!(one.token_ids, open.token_ids[..end.unwrap_or(open.len())]);
        if end.is_some() {
            assert_eq!(one.finish, FinishReason::Stop);
            assert!(one.text.contains(&close), "{}", one.text);
        }
        cut += usize::from(end.is_some_and(|end| end < open.len()));
    }
    assert!(cut > 0, "nothing was cut at {close:?}");
    let refused = generator.generate(closed("")).await.unwrap_err();
    assert!(refused.to_string().contains("the end of the answer"), "{refused}");
}

#[tokio::test]
async fn weights_that_are_not_numbers_end_the_generator_with_a_reason_for_everybody() {
    let weight_store = WeightStore::new();
    let generator = Arc::new(LocalGenerator::start(setup(&weight_store)).unwrap());
    let broken: Vec<_> = model(1).parameters.iter().map(|p| p * f64::NAN).collect();
    let handle = weight_store.publish(PolicyVersion(1), &broken).unwrap();
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
    let weight_store = WeightStore::new();
    let generator = LocalGenerator::start(setup(&weight_store)).unwrap();
    let before = generator.generate(request(2)).await.unwrap();
    let nowhere = WeightHandle { version: PolicyVersion(3), location: "weight_store:9".into() };
    let error = generator.adopt(&nowhere).await.unwrap_err();
    assert!(
        error.to_string().contains("weight_store:9 of v3 is not in the weight store"),
        "{error}"
    );
    let few = weight_store.publish(PolicyVersion(4), &model(2).parameters[..3]).unwrap();
    let error = generator.adopt(&few).await.unwrap_err();
    assert!(matches!(error, GeneratorError::Weights { version: PolicyVersion(4), .. }), "{error}");
    assert_eq!(generator.generate(request(2)).await.unwrap(), before);
}

#[test]
fn a_panic_on_the_thread_is_told_and_not_waited_for() {
    let mut setup = setup(&WeightStore::new());
    setup.options.page_tokens = 0;
    let error = LocalGenerator::start(setup).unwrap_err();
    assert!(error.to_string().contains("a panic: attempt to divide by zero"), "{error}");
}

#[tokio::test]
async fn an_idle_generator_sleeps() {
    let generator = LocalGenerator::start(setup(&WeightStore::new())).unwrap();
    let _ = generator.generate(request(2)).await.unwrap();
    let before = generator.stats();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(generator.stats(), before);
    assert!(before.steps > 0 && before.tokens > 2 && before.busy_seconds > 0.0);
    assert_eq!((before.running, before.waiting, before.pool.pages_in_use), (0, 0, 0));
}

/// Tokens of one version as a step's batch; those of others are context.
fn batch(completions: &[Completion], version: u64, temperature: f32) -> TrainBatch {
    let sequence = |(index, one): (usize, &Completion)| {
        let is_trained = |t: usize| !one.is_injected[t] && one.versions[t].0 == version;
        TrainSequence {
            prompt_token_ids: request(1).prompt_token_ids,
            completion_token_ids: one.token_ids.clone(),
            generator_logprobs: one.logprobs.clone(),
            weights: (0..one.len()).map(|t| f64::from(u8::from(is_trained(t)))).collect(),
            advantage: if index % 2 == 0 { 1.0 } else { -1.0 },
        }
    };
    let sequences = completions.iter().enumerate().map(sequence);
    let has_loss = |one: &TrainSequence| one.weights.iter().any(|weight| *weight > 0.0);
    TrainBatch { temperature, sequences: sequences.filter(has_loss).collect() }
}

/// Root of the mean square of the log ratio, which bounds its mean size: k3 is half the square.
fn distance(ratio: &RatioStats) -> f64 {
    (2.0 * ratio.kl_k3).sqrt()
}

/// A request with everything that could put the two apart.
fn mixed_request() -> SampleRequest {
    let interruption = |at_token| Interruption { at_token, token_ids: vec![6, 8, 5] };
    SampleRequest {
        sampling: Sampling { temperature: 0.8, top_p: 1.0, top_k: 0 },
        max_thinking_tokens: 60,
        max_answer_tokens: 30,
        end_of_thinking: vec![8, 5],
        interruptions: (0..24).map(|index| interruption(4 + 2 * index)).collect(),
        ..request(24)
    }
}

#[tokio::test]
async fn log_probs_are_the_trainers_at_every_version_and_not_at_others() {
    let weight_store = WeightStore::new();
    let mut trainer =
        LocalTrainer::try_new(&tiny::recipe(), model(1), weight_store.clone()).unwrap();
    let generator = LocalGenerator::start(setup(&weight_store)).unwrap();
    for version in 0..3 {
        let completions = generator.generate(mixed_request()).await.unwrap();
        assert!(completions.iter().any(Completion::is_interrupted));
        let report = trainer.step(&batch(&completions, version, 0.8)).unwrap();
        assert!(report.trained_tokens > 100, "{}", report.trained_tokens);
        let found = distance(&report.ratio);
        assert!(found <= SAME_WEIGHTS, "v{version}: {found}, {:?}", report.ratio);
        generator.adopt(&trainer.publish().unwrap()).await.unwrap();
        assert_eq!(generator.stats().version, PolicyVersion(version + 1));
    }
    // One step ahead of the generator it sees the difference.
    let completions = generator.generate(mixed_request()).await.unwrap();
    let _ = trainer.step(&batch(&completions, 3, 0.8)).unwrap();
    let late = generator.generate(mixed_request()).await.unwrap();
    let found = distance(&trainer.step(&batch(&late, 3, 0.8)).unwrap().ratio);
    assert!(found > 1000.0 * SAME_WEIGHTS, "{found}");
}

#[tokio::test]
async fn injected_tokens_carry_no_loss_and_all_others_do() {
    let generator = LocalGenerator::start(setup(&WeightStore::new())).unwrap();
    let completions = generator.generate(mixed_request()).await.unwrap();
    let interrupted = completions.iter().filter(|one| one.is_interrupted()).count();
    assert!((1..completions.len()).contains(&interrupted), "{interrupted} were interrupted");
    let rollout = |(index, completion): (usize, &Completion)| Rollout {
        completion: completion.clone(),
        reward: Reward { value: f64::from(u8::from(index % 3 == 0)), is_correct: index % 3 == 0 },
        episode: None,
    };
    let prompt = Prompt {
        id: PromptId("one".into()),
        dataset: "made up".into(),
        text: String::new(),
        token_ids: request(1).prompt_token_ids,
        answer: String::new(),
    };
    let rollouts = completions.iter().enumerate().map(rollout).collect();
    let group = Group { id: GroupId(0), prompt, rollouts };
    let batch = Batch { version: PolicyVersion(0), groups: vec![group] };
    let mut objective = tiny::recipe().objective;
    objective.truncated = Truncated::Kept;
    let prepared = prepare(&objective, 0.8, &batch).unwrap();
    assert_eq!(prepared.train.sequences.len(), completions.len());
    let mut forced = 0;
    for (sequence, completion) in prepared.train.sequences.iter().zip(&completions) {
        assert_eq!(sequence.completion_token_ids, completion.token_ids);
        for (weight, is_injected) in sequence.weights.iter().zip(&completion.is_injected) {
            assert_eq!(*weight > 0.0, !is_injected, "{:?}", sequence.weights);
            forced += usize::from(*is_injected);
        }
    }
    assert_eq!(forced, 3 * interrupted, "each has the whole phrase");
    // And the trainer counts the same tokens.
    let mut trainer = LocalTrainer::try_new(&tiny::recipe(), model(1), WeightStore::new()).unwrap();
    let report = trainer.step(&prepared.train).unwrap();
    let sampled: usize = completions.iter().map(Completion::sampled_tokens).sum();
    assert_eq!(report.trained_tokens, sampled as u64);
    assert!(report.ratio.mean_abs_log <= SAME_WEIGHTS, "{:?}", report.ratio);
}

#[tokio::test]
async fn a_cache_computed_again_makes_later_tokens_the_new_policys_own() {
    let weight_store = WeightStore::new();
    let mut trainer =
        LocalTrainer::try_new(&tiny::recipe(), model(1), weight_store.clone()).unwrap();
    let first = {
        let generator = LocalGenerator::start(setup(&weight_store)).unwrap();
        generator.generate(mixed_request()).await.unwrap()
    };
    let _ = trainer.step(&batch(&first, 0, 0.8)).unwrap();
    let weights = trainer.publish().unwrap();
    let mut apart = Vec::new();
    for cache in [CacheAfterExchange::Recompute, CacheAfterExchange::Stale] {
        let mut setup = setup(&weight_store);
        setup.cache_after_exchange = cache;
        let generator = LocalGenerator::start(setup).unwrap();
        let completions = half_and_half(&generator, &weights).await;
        // A copy of the trainer at the new version scores the tokens that it chose.
        let mut judge =
            LocalTrainer::try_new(&tiny::recipe(), model(1), WeightStore::new()).unwrap();
        let _ = judge.step(&batch(&first, 0, 0.8)).unwrap();
        apart.push(distance(&judge.step(&batch(&completions, 1, 0.8)).unwrap().ratio));
    }
    assert!(apart[0] <= SAME_WEIGHTS, "computed again: {}", apart[0]);
    assert!(apart[1] > 100.0 * SAME_WEIGHTS, "old keys and values leave a trace: {}", apart[1]);
}

/// Completions of which some have tokens of both versions.
async fn half_and_half(generator: &LocalGenerator, weights: &WeightHandle) -> Vec<Completion> {
    let long = SampleRequest { interruptions: Vec::new(), count: 64, ..mixed_request() };
    let begun = generator.generate(SampleRequest { max_thinking_tokens: 90, ..long });
    let exchange = async {
        while generator.stats().steps < 10 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        generator.adopt(weights).await.unwrap();
    };
    let (completions, ()) = tokio::join!(begun, exchange);
    let completions = completions.unwrap();
    let is_mixed = |one: &Completion| one.versions.first() != one.versions.last();
    assert!(completions.iter().any(is_mixed), "the weights came too late or too early");
    completions
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

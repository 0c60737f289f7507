//! The local generator as a policy: tokens told as they are drawn, scores of given text.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tiny;

use std::sync::{Arc, Mutex};

use scalerl_model::head::HeadOptions;
use scalerl_model::train::TrainingBatch;
use scalerl_rollout::{GeneratorError, Live, LiveToken, Policy, SampleRequest, TokenScore};
use scalerl_worker::{LocalGenerator, WeightStore};
use tch::Device;
use tiny::{model, request, setup};

/// Two float32 passes over the same weights.
const SAME_WEIGHTS: f32 = 1e-5;

fn start() -> LocalGenerator {
    LocalGenerator::start(setup(&WeightStore::new())).unwrap()
}

/// Sequences of all lengths from 0 up, of tokens that differ.
fn sequences(count: u32) -> Vec<Vec<u32>> {
    let token = |sequence: u32, place: u32| (sequence * 7 + place * place * 3 + 1) % 32;
    (0..count).map(|s| (0..s * 3 % 100).map(|place| token(s, place)).collect()).collect()
}

#[tokio::test]
async fn every_token_is_told_in_order_and_the_answer_has_the_same() {
    let generator = start();
    let heard: Arc<Mutex<Vec<LiveToken>>> = Arc::default();
    let theirs = heard.clone();
    let live: Live = Arc::new(move |token| theirs.lock().unwrap().push(token));
    let answer = generator.generate(request(8), Some(live)).await.unwrap();
    assert_eq!(answer, generator.generate(request(8), None).await.unwrap());
    let heard = heard.lock().unwrap();
    for (index, completion) in answer.iter().enumerate() {
        let own = || heard.iter().filter(|token| token.completion == index as u32);
        assert!(own().map(|token| token.token_id).eq(completion.token_ids.iter().copied()));
        assert!(own().map(|token| token.logprob).eq(completion.logprobs.iter().copied()));
        assert!(own().map(|token| token.version).eq(completion.versions.iter().copied()));
    }
    assert_eq!(heard.len(), answer.iter().map(|one| one.token_ids.len()).sum::<usize>());
}

#[tokio::test]
async fn scores_are_the_learners() {
    let generator = start();
    // More tokens than one piece has.
    let sequences = sequences(40);
    let found = generator.score(sequences.clone(), 0).await.unwrap();
    let ids: Vec<Vec<i64>> =
        sequences.iter().map(|one| one.iter().copied().map(i64::from).collect()).collect();
    let flags: Vec<Vec<bool>> = ids.iter().map(|one| vec![true; one.len()]).collect();
    let batch = TrainingBatch::new(&ids, &flags, 32, Device::Cpu).unwrap();
    let learner = model(1).score(&batch, HeadOptions::of(Device::Cpu)).unwrap();
    let expected = Vec::<f32>::try_from(&learner.logprob).unwrap();
    assert!(expected.len() > 1500, "{}", expected.len());
    for (place, expected) in batch.places.iter().zip(&expected) {
        let found = found[place.sequence][place.position].logprob.unwrap();
        assert!((found - expected).abs() <= SAME_WEIGHTS, "{place:?}: {found} for {expected}");
    }
    for (scores, tokens) in found.iter().zip(&sequences) {
        assert_eq!(scores.len(), tokens.len());
        assert_eq!(scores.first().map(|first| first.logprob), tokens.first().map(|_| None));
    }
}

#[tokio::test]
async fn the_most_likely_tokens_come_first_and_all_of_them_are_everything() {
    let generator = start();
    let sequence: Vec<u32> = (0..20).map(|place| place * 11 % 32).collect();
    // More than there are.
    let all = generator.score(vec![sequence.clone()], 99).await.unwrap().remove(0);
    let few = generator.score(vec![sequence.clone()], 3).await.unwrap().remove(0);
    assert!(all[0] == TokenScore { logprob: None, top: Vec::new() });
    for ((all, few), token) in all.iter().zip(&few).zip(&sequence).skip(1) {
        assert!(all.top.is_sorted_by(|a, b| a.1 >= b.1) && all.top.len() == 32);
        assert_eq!(few.top, all.top[..3]);
        let own = all.top.iter().find(|(id, _)| id == token).unwrap();
        assert_eq!(Some(own.1), all.logprob);
        let sum: f64 = all.top.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    }
}

#[tokio::test]
async fn what_was_drawn_is_as_likely_as_its_score() {
    let generator = start();
    let prompt = request(1).prompt_token_ids;
    for completion in generator.generate(request(16), None).await.unwrap() {
        let whole = [&prompt[..], &completion.token_ids].concat();
        let scores = generator.score(vec![whole], 0).await.unwrap().remove(0);
        for (score, drawn) in scores[prompt.len()..].iter().zip(&completion.logprobs) {
            assert!((score.logprob.unwrap() - drawn).abs() <= SAME_WEIGHTS);
        }
    }
}

#[tokio::test]
async fn decoding_goes_on_while_a_long_list_is_scored() {
    let generator = start();
    let many: Vec<Vec<u32>> = std::iter::repeat_with(|| sequences(40)).take(20).flatten().collect();
    let count = many.len();
    let mut scoring = generator.score(many, 1);
    let writing = generator.generate(request(4), None);
    tokio::select! {
        biased;
        _ = &mut scoring => panic!("the list was scored before 20 tokens were written"),
        written = writing => assert_eq!(written.unwrap().len(), 4),
    }
    assert_eq!(scoring.await.unwrap().len(), count);
}

#[tokio::test]
async fn a_score_that_nobody_waits_for_is_given_up() {
    let generator = start();
    let many: Vec<Vec<u32>> =
        std::iter::repeat_with(|| sequences(40)).take(2000).flatten().collect();
    let given_up = generator.score(many, 1);
    let short = generator.score(vec![vec![1, 2, 3]], 0);
    tokio::select! {
        biased;
        _ = given_up => panic!("two thousand lists were scored"),
        () = tokio::task::yield_now() => {}
    }
    // Behind the long one, so it comes soon only if that one is gone.
    assert_eq!(short.await.unwrap()[0].len(), 3);
}

#[tokio::test]
async fn what_cannot_be_scored_is_refused_and_harms_nobody() {
    let generator = start();
    let error = generator.score(vec![vec![1, 32]], 0).await.unwrap_err();
    assert!(error.to_string().contains("token 32 is outside"), "{error}");
    let error = generator.score(vec![vec![1; 129]], 0).await.unwrap_err();
    assert!(matches!(error, GeneratorError::TooLong { asked: 129, limit: 128 }), "{error}");
    assert_eq!(generator.score(Vec::new(), 0).await.unwrap(), Vec::<Vec<TokenScore>>::new());
    let one = SampleRequest { max_answer_tokens: 1, ..request(1) };
    assert_eq!(generator.generate(one, None).await.unwrap().len(), 1);
}

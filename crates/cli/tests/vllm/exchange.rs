//! The client against a real server: log-probs, forced interruption, texts that end a completion,
//! weights changed in flight.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_model::folder::Model;
use scalerl_model::head::HeadOptions;
use scalerl_model::tokenizer::{Markers, Tokenizer};
use scalerl_rollout::{
    AnswerEnd, Completion, Generator, GroupId, Interruption, PolicyVersion, SampleRequest, Sampling,
};
use scalerl_torch::tch::{Device, Kind};
use scalerl_worker::vllm::measure_agreement;
use scalerl_worker::{VllmGenerator, VllmSetup, WeightFolder};

use crate::LIMIT;
use crate::server::Server;

fn tokens(tokenizer: &Tokenizer, text: &str, markers: Markers) -> Vec<u32> {
    tokenizer.encode(text, markers).unwrap().iter().map(|id| *id as u32).collect()
}

fn request(tokenizer: &Tokenizer, text: &str, count: u32, length: u32) -> SampleRequest {
    SampleRequest {
        group: GroupId(0),
        prompt_token_ids: tokens(tokenizer, text, Markers::Add),
        count,
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
        max_thinking_tokens: 0,
        max_answer_tokens: length,
        end_of_thinking: Vec::new(),
        interruptions: Vec::new(),
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        end_of_answer: None,
        seed: 11,
    }
}

/// Completions never end by themselves, so that they are long enough to see weights change.
async fn connect(server: &Server, model: &Model, tokenizer: Arc<Tokenizer>) -> VllmGenerator {
    let generator = VllmGenerator::start(VllmSetup {
        urls: vec![server.url()],
        token: None,
        requests_at_once: 64,
        patience: Duration::from_mins(10),
        silence: Duration::from_mins(2),
        deadline: Duration::from_mins(10),
        keeps_cache: true,
        is_seeded: false,
        tokenizer,
        stop_tokens: Vec::new(),
        vocabulary: model.config.vocabulary,
        owner: "test".to_owned(),
        notices: None,
    });
    generator.await.unwrap()
}

/// The model with other weights: each number a little larger.
fn moved(model: &Model) -> Model {
    let parameters = model.parameters.iter().map(|parameter| parameter * 1.05).collect();
    Model::over(model.config.clone(), parameters, model.folder.clone()).unwrap()
}

async fn assert_agrees(
    generator: &VllmGenerator,
    model: &Model,
    what: &str,
    requests: &[SampleRequest],
) {
    let head = HeadOptions::of(Device::Cpu);
    let found = measure_agreement(generator, model, head, requests, LIMIT).await.unwrap();
    for one in &found {
        println!("{what}: {one}");
        assert!(one.tokens >= 40, "{what}: too few tokens to say anything: {one}");
        assert!(one.largest <= LIMIT, "{what}: {one}");
    }
}

fn sums(tokenizer: &Tokenizer, temperature: f32) -> Vec<SampleRequest> {
    let sum = |text: &&str| {
        let mut request = request(tokenizer, text, 4, 60);
        request.sampling.temperature = temperature;
        request
    };
    ["3+5*2=", "7-4=", "9*8-1+6="].iter().map(sum).collect()
}

/// Thinking that is broken off after one, two, three… tokens. The closing tag of `end_of_thinking`
/// never comes by itself, so that every completion is.
fn interrupted(tokenizer: &Tokenizer) -> SampleRequest {
    let phrase = tokens(tokenizer, "</think>", Markers::Leave);
    let at = |index: u32| Interruption { at_token: 1 + index, token_ids: phrase.clone() };
    SampleRequest {
        max_thinking_tokens: 20,
        max_answer_tokens: 6,
        end_of_thinking: [phrase.clone(), phrase.clone()].concat(),
        interruptions: (0..8).map(at).collect(),
        ..request(tokenizer, "3+5*2=", 8, 6)
    }
}

fn assert_interrupted(completions: &[Completion], request: &SampleRequest) {
    for (one, asked) in completions.iter().zip(&request.interruptions) {
        let (at, phrase) = (asked.at_token as usize, &asked.token_ids);
        let injected: Vec<usize> = (0..one.len()).filter(|i| one.is_injected[*i]).collect();
        let expected: Vec<usize> = (at..at + phrase.len()).collect();
        assert_eq!(injected, expected, "the phrase comes where it was asked for, and only there");
        assert_eq!(one.token_ids[at..at + phrase.len()], phrase[..]);
        let most = at + phrase.len() + request.max_answer_tokens as usize;
        assert_eq!(one.len(), most, "an answer of its whole budget follows");
    }
}

/// Each ends with the first `=` and keeps it, or has none in its whole budget of tokens.
fn assert_ended_by_text(completions: &[Completion], tokenizer: &Tokenizer, what: &str) {
    let mut ended = 0;
    for one in completions {
        let answer =
            one.is_injected.iter().rposition(|is_injected| *is_injected).map_or(0, |i| i + 1);
        let ids: Vec<i64> = one.token_ids[answer..].iter().map(|id| i64::from(*id)).collect();
        let text = tokenizer.decode_all(&ids).unwrap();
        assert_eq!(one.is_truncated(), !text.contains('='), "{what}: {text}");
        assert_eq!(text.find('='), (!one.is_truncated()).then(|| text.len() - 1), "{what}: {text}");
        ended += usize::from(!one.is_truncated());
    }
    println!("{what}: {ended} of {} ended by their text", completions.len());
    assert!(ended > 0, "{what}: the text was never written");
}

/// Completions that were half written when weights changed, and go on under the new ones.
fn assert_mixed(completions: &[Completion]) {
    let mut mixed = 0;
    for one in completions {
        assert!(one.versions.is_sorted());
        let old = one.versions.iter().filter(|version| version.0 == 0).count();
        mixed += usize::from(old > 0 && old < one.len());
    }
    println!("{mixed} of {} completions saw both weights", completions.len());
    assert!(mixed > 0, "weights never changed in mid-completion");
}

pub(crate) async fn check(server: &Server, folder: &Path, place: &Path) {
    let model = Model::load(folder, Kind::Float, Device::Cpu).unwrap();
    let tokenizer = Arc::new(Tokenizer::load(folder).unwrap());
    let generator = connect(server, &model, tokenizer.clone()).await;
    let mut weights = WeightFolder::open(&place.join("exchange")).unwrap();
    generator.adopt(&weights.publish(PolicyVersion(0), &model).unwrap()).await.unwrap();
    assert_agrees(&generator, &model, "temperature 1", &sums(&tokenizer, 1.0)).await;
    assert_agrees(&generator, &model, "temperature 0.7", &sums(&tokenizer, 0.7)).await;
    let request = interrupted(&tokenizer);
    assert_interrupted(&generator.generate(request.clone()).await.unwrap(), &request);
    assert_agrees(&generator, &model, "interrupted", std::slice::from_ref(&request)).await;

    let plain = self::request(&tokenizer, "9*8-1+6=", 8, 60);
    let closing = Some(AnswerEnd::at("="));
    for (what, request) in [
        ("a stop text", SampleRequest { stop: vec!["=".to_owned()], ..plain.clone() }),
        ("a closed answer", SampleRequest { end_of_answer: closing.clone(), ..plain }),
        (
            "a closed answer after an interruption",
            SampleRequest { end_of_answer: closing, max_answer_tokens: 60, ..request },
        ),
    ] {
        assert_ended_by_text(&generator.generate(request).await.unwrap(), &tokenizer, what);
    }

    let other = moved(&model);
    let handle = weights.publish(PolicyVersion(1), &other).unwrap();
    let long = self::request(&tokenizer, "3+5*2=", 8, 240);
    let (written, took) = tokio::join!(generator.generate(long), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let begun = Instant::now();
        generator.adopt(&handle).await.unwrap();
        begun.elapsed()
    });
    println!("weights exchanged in {:.0} ms", took.as_secs_f64() * 1e3);
    assert_mixed(&written.unwrap());
    assert_agrees(&generator, &other, "new weights", &sums(&tokenizer, 1.0)).await;
}

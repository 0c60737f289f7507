//! The generator against the trainer's packed forward pass, on tiny random models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use scalerl_generate::{
    AnswerStop, CacheAfterExchange, Completion, Finish, Generator, GeneratorOptions, Interruption,
    Request, RequestError, Sampling, Thinking,
};
use scalerl_model::config::{ModelConfig, Span};
use scalerl_model::folder::Model;
use scalerl_model::head::{Head, HeadOptions};
use scalerl_model::network::{Attend, Context, Heads, TorchProducts};
use scalerl_model::packed::Packed;
use scalerl_model::tokenizer::{Markers, Tokenizer};
use scalerl_rollout::AnswerEnd;
use scalerl_torch::tch::{Device, Kind, TchError, Tensor};
use serde_json::json;

/// The bound on the mean difference of log-probs in float32.
const CLOSE: f64 = 1e-5;

fn config(kind: &str) -> ModelConfig {
    let mut value = json!({
        "model_type": kind, "vocab_size": 61, "hidden_size": 48, "intermediate_size": 64,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
        // Large enough that distributions are far from flat and depend on the context.
        "initializer_range": 0.3, "max_position_embeddings": 4096,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "sliding_window": 21, "sliding_window_pattern": 3, "query_pre_attn_scalar": 12,
    });
    if kind == "qwen2" {
        value["rope_scaling"] = json!({"type": "yarn", "factor": 4.0,
                                       "original_max_position_embeddings": 64});
    }
    ModelConfig::from_json(value, Path::new("config.json")).unwrap()
}

fn model(kind: &str, seed: i64) -> Model {
    Model::random(config(kind), seed, Kind::Float, Device::Cpu).unwrap()
}

fn options(cache_tokens: usize, running: usize) -> GeneratorOptions {
    GeneratorOptions {
        cache_tokens,
        page_tokens: 8,
        running,
        chunk_tokens: 24,
        ..GeneratorOptions::of(Device::Cpu)
    }
}

/// Small, seeded, good enough to shuffle lengths.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }

    fn tokens(&mut self, count: usize) -> Vec<i64> {
        (0..count).map(|_| self.below(61) as i64).collect()
    }

    fn request(&mut self, longest: usize) -> Request {
        let prompt = 1 + self.below(50);
        let completions = 1 + self.below(4);
        let max_tokens = 1 + self.below(longest);
        let interruptions = if self.below(3) == 0 {
            (0..completions)
                .map(|_| Interruption {
                    after: 1 + self.below(max_tokens),
                    tokens: vec![5, 6, 7, 8, 9],
                    answer_tokens: 1 + self.below(20),
                })
                .collect()
        } else {
            Vec::new()
        };
        Request {
            completions,
            seed: self.below(1000) as u64,
            stop_tokens: vec![60],
            interruptions,
            ..Request::new(self.tokens(prompt), max_tokens)
        }
    }
}

/// What the trainer says about each sampled token of a completion.
fn trainer_logprobs(model: &Model, prompt: &[i64], completion: &Completion) -> Vec<f64> {
    let written = completion.tokens.iter().map(|token| token.id);
    let all: Vec<i64> = prompt.iter().copied().chain(written).collect();
    let hidden = model.network.hidden(&Packed::new(&[&all[..]], Device::Cpu).unwrap()).unwrap();
    let targets = Tensor::from_slice(&all[1..]);
    let head = Head::new(model.network.head(), HeadOptions::of(Device::Cpu)).unwrap();
    let scores = head.score(&hidden.narrow(0, 0, all.len() as i64 - 1), &targets).unwrap();
    let scores: Vec<f32> = Vec::try_from(&scores.logprob).unwrap();
    scores[prompt.len() - 1..].iter().map(|&x| f64::from(x)).collect()
}

/// Turns of a conversation, each with all tokens before it as its prompt.
#[test]
fn the_log_probs_of_every_turn_equal_the_trainers_whether_its_history_is_kept_or_computed_again() {
    for kind in ["llama", "qwen2", "qwen3_moe", "mistral", "gemma3_text"] {
        let judge = model(kind, 1);
        let mut computed = Vec::new();
        let mut written: Vec<Vec<i64>> = Vec::new();
        for keeps_prefixes in [true, false] {
            let options = GeneratorOptions { keeps_prefixes, ..options(4096, 8) };
            let mut generator = Generator::new(model(kind, 1), options).unwrap();
            let mut dice = Dice(5);
            let mut talks: Vec<Vec<i64>> = (0..6).map(|_| dice.tokens(20)).collect();
            let (mut sum, mut count, mut tokens) = (0.0, 0, 0);
            for turn in 0..8 {
                let seeds = 100 * turn..;
                for (prompt, seed) in talks.iter().zip(seeds) {
                    let request = Request { seed, ..Request::new(prompt.clone(), 12) };
                    generator.submit(request).unwrap();
                }
                let mut finished = Vec::new();
                while !generator.is_idle() {
                    let report = generator.step().unwrap();
                    tokens += report.computed;
                    finished.extend(report.finished);
                }
                finished.sort_by_key(|completion| completion.request);
                for (talk, completion) in talks.iter_mut().zip(&finished) {
                    let judged = trainer_logprobs(&judge, talk, completion);
                    for (token, judged) in completion.tokens.iter().zip(judged) {
                        sum += (f64::from(token.logprob.unwrap()) - judged).abs();
                        count += 1;
                    }
                    talk.extend(completion.tokens.iter().map(|token| token.id));
                    talk.extend(dice.tokens(5));
                }
            }
            let mean = sum / f64::from(count);
            println!(
                "{kind}, kept {keeps_prefixes}: mean |difference| {mean:.2e}, {tokens} tokens computed"
            );
            assert!(mean <= CLOSE, "{kind}: {mean}");
            assert_eq!(generator.usage().reused_tokens > 0, keeps_prefixes);
            computed.push(tokens);
            written.push(talks.concat());
        }
        assert!(computed[0] * 2 < computed[1], "{computed:?}: histories were computed again");
        assert_eq!(written[0], written[1], "{kind}: the same turns were drawn");
    }
}

#[test]
fn log_probs_equal_the_trainers_under_paging_pressure_interruptions_and_mixed_lengths() {
    for kind in ["llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "gemma3_text"] {
        let mut generator = Generator::new(model(kind, 1), options(640, 12)).unwrap();
        let judge = model(kind, 1);
        let mut dice = Dice(3);
        let mut requests = Vec::new();
        let (mut sum, mut worst, mut count, mut injected) = (0.0, 0.0_f64, 0, 0);
        let mut finished = Vec::new();
        while count < 10_000 {
            if generator.load().1 < 20 {
                let request = dice.request(200);
                requests.push(request.clone());
                generator.submit(request).unwrap();
            }
            finished.extend(generator.step().unwrap().finished);
            for completion in finished.drain(..) {
                let prompt = &requests[completion.request.0 as usize].prompt;
                let judged = trainer_logprobs(&judge, prompt, &completion);
                for (token, judged) in completion.tokens.iter().zip(judged) {
                    assert_eq!(token.is_injected, token.logprob.is_none());
                    let Some(logprob) = token.logprob else {
                        injected += 1;
                        continue;
                    };
                    let difference = (f64::from(logprob) - judged).abs();
                    (sum, worst, count) = (sum + difference, worst.max(difference), count + 1);
                }
            }
        }
        let usage = generator.usage();
        println!(
            "{kind}: mean |difference| {:.2e}, largest {worst:.2e} over {count} tokens, {injected} injected, \
             {} set aside, peak {} of {} pages",
            sum / f64::from(count),
            usage.set_aside,
            usage.peak_pages,
            usage.pages
        );
        assert!(sum / f64::from(count) <= CLOSE, "{kind}: {}", sum / f64::from(count));
        assert!(injected > 0 && usage.set_aside > 0, "the test missed what it is for");
    }
}

fn strip(completions: &[Completion]) -> Vec<Vec<i64>> {
    completions.iter().map(|c| c.tokens.iter().map(|token| token.id).collect()).collect()
}

#[test]
fn the_same_seed_gives_the_same_tokens_whatever_else_is_in_the_batch() {
    let request = |dice: &mut Dice| Request {
        completions: 3,
        seed: 77,
        sampling: Sampling { temperature: 0.8, top_p: 0.95, top_k: 40 },
        ..Request::new(dice.tokens(19), 120)
    };
    let mut alone = Generator::new(model("llama", 1), options(2000, 8)).unwrap();
    alone.submit(request(&mut Dice(5))).unwrap();
    let alone = alone.finish_all().unwrap();
    for load in 1..4 {
        let mut crowd = Generator::new(model("llama", 1), options(480 * load, 4 * load)).unwrap();
        let mut dice = Dice(load as u64);
        for _ in 0..6 {
            crowd.submit(dice.request(100)).unwrap();
        }
        for _ in 0..17 {
            crowd.step().unwrap();
        }
        let id = crowd.submit(request(&mut Dice(5))).unwrap();
        for _ in 0..6 {
            crowd.submit(dice.request(100)).unwrap();
        }
        let crowd: Vec<Completion> =
            crowd.finish_all().unwrap().into_iter().filter(|c| c.request == id).collect();
        assert_eq!(strip(&alone), strip(&crowd), "load {load}");
    }
    let texts = strip(&alone);
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "completions differ from each other");
}

/// Attention over keys and values kept from an earlier call, by the book.
#[derive(Default)]
struct Continued {
    before: Vec<[Tensor; 2]>,
    kept: RefCell<Vec<[Tensor; 2]>>,
}

impl Attend for Continued {
    fn attend(&self, layer: usize, _: Span, heads: &Heads) -> Result<Tensor, TchError> {
        let [keys, values] = match self.before.get(layer) {
            Some([k, v]) => [Tensor::cat(&[k, &heads.k], 0), Tensor::cat(&[v, &heads.v], 0)],
            None => [heads.k.copy(), heads.v.copy()],
        };
        let (n, all, group) =
            (heads.q.size()[0], keys.size()[0], heads.q.size()[1] / keys.size()[1]);
        let wide = |x: &Tensor| x.repeat_interleave_self_int(group, 1, None).transpose(0, 1);
        let scores = heads.q.transpose(0, 1).matmul(&wide(&keys).transpose(1, 2)) / 8_f64.sqrt();
        let mask = Tensor::ones([n, all], (Kind::Bool, Device::Cpu)).triu(all - n + 1);
        let weights = scores.masked_fill(&mask, f64::NEG_INFINITY).softmax(-1, Kind::Float);
        let out = weights.matmul(&wide(&values)).transpose(0, 1).contiguous();
        self.kept.borrow_mut().push([keys, values]);
        Ok(out)
    }
}

fn run(model: &Model, tokens: &[i64], from: i64, attention: &Continued) -> Tensor {
    let _guard = scalerl_torch::tch::no_grad_guard();
    let positions =
        Tensor::arange_start(from, from + tokens.len() as i64, (Kind::Int64, Device::Cpu));
    let angles = model.network.angles(&positions).unwrap();
    let products = &TorchProducts;
    let context = Context { angles: &angles, positions: &positions, attention, products };
    model.network.run(&Tensor::from_slice(tokens), &context).unwrap()
}

/// Log-probs of the tokens after the exchange: the old weights' keys and values up to there.
fn stale_logprobs(weights: [&Model; 2], all: &[i64], first_new: usize) -> Vec<f64> {
    // The last old token has not run yet when the weights change.
    let old = first_new - 1;
    let before = Continued::default();
    let _ = run(weights[0], &all[..old], 0, &before);
    let after = Continued { before: before.kept.into_inner(), kept: RefCell::default() };
    let hidden = run(weights[1], &all[old..all.len() - 1], old as i64, &after);
    let head = Head::new(weights[1].network.head(), HeadOptions::of(Device::Cpu)).unwrap();
    let scores = head.score(&hidden, &Tensor::from_slice(&all[first_new..])).unwrap();
    Vec::<f32>::try_from(&scores.logprob).unwrap().into_iter().map(f64::from).collect()
}

#[test]
fn after_an_exchange_tokens_follow_the_new_weights_over_a_stale_or_recomputed_cache() {
    for mode in [CacheAfterExchange::Recompute, CacheAfterExchange::Stale] {
        let mut generator = Generator::new(model("llama", 1), options(4000, 16)).unwrap();
        let (old, new) = (model("llama", 1), model("llama", 2));
        let mut dice = Dice(9);
        let prompts: Vec<Vec<i64>> = (0..5).map(|_| dice.tokens(13)).collect();
        for prompt in &prompts {
            let request = Request { completions: 3, ..Request::new(prompt.clone(), 60) };
            generator.submit(request).unwrap();
        }
        for _ in 0..30 {
            generator.step().unwrap();
        }
        generator.exchange(&new.parameters, 1, mode).unwrap();
        let (mut sums, mut count) = ([0.0; 3], 0);
        for completion in generator.finish_all().unwrap() {
            let prompt = &prompts[completion.request.0 as usize];
            let written = completion.tokens.iter().map(|token| token.id);
            let all: Vec<i64> = prompt.iter().copied().chain(written).collect();
            let first_new = completion.tokens.iter().take_while(|token| token.version == 0).count();
            let before = trainer_logprobs(&old, prompt, &completion);
            let recomputed = trainer_logprobs(&new, prompt, &completion);
            let stale = stale_logprobs([&old, &new], &all, prompt.len() + first_new);
            for (place, token) in completion.tokens.iter().enumerate() {
                let logprob = f64::from(token.logprob.unwrap());
                if place < first_new {
                    sums[0] += (logprob - before[place]).abs();
                } else {
                    assert_eq!(token.version, 1);
                    sums[1] += (logprob - recomputed[place]).abs();
                    sums[2] += (logprob - stale[place - first_new]).abs();
                    count += 1;
                }
            }
        }
        assert!(count > 200);
        let [before, recomputed, stale] = sums.map(|sum| sum / f64::from(count));
        println!(
            "{mode:?}: before {before:.1e}, to recomputed {recomputed:.1e}, to stale {stale:.1e}"
        );
        assert!(before <= CLOSE);
        let is_recomputed = mode == CacheAfterExchange::Recompute;
        assert_eq!(recomputed <= CLOSE, is_recomputed);
        assert_eq!(stale <= CLOSE, !is_recomputed);
    }
}

#[test]
fn a_thousand_exchanges_under_load_lose_no_request_and_mislabel_no_token() {
    let mut generator = Generator::new(model("llama", 1), options(640, 12)).unwrap();
    let weights = [model("llama", 1), model("llama", 2)];
    let mut dice = Dice(21);
    let (mut expected, mut finished, mut streamed) = (0, Vec::new(), 0);
    for version in 1..=1000_u64 {
        if generator.load().1 < 6 {
            let request = dice.request(40);
            expected += request.completions;
            generator.submit(request).unwrap();
        }
        let mode = if dice.below(20) == 0 {
            CacheAfterExchange::Recompute
        } else {
            CacheAfterExchange::Stale
        };
        let parameters = &weights[version as usize % 2].parameters;
        generator.exchange(parameters, version, mode).unwrap();
        for _ in 0..=dice.below(2) {
            let report = generator.step().unwrap();
            assert!(report.tokens.iter().all(|(_, _, token)| token.version == version));
            streamed += report.tokens.len();
            finished.extend(report.finished);
        }
    }
    finished.extend(generator.finish_all().unwrap());
    assert_eq!(finished.len(), expected, "every completion comes back once");
    for completion in &finished {
        let versions: Vec<u64> = completion.tokens.iter().map(|token| token.version).collect();
        assert!(versions.is_sorted(), "versions only grow: {versions:?}");
    }
    assert!(streamed > 1000);
    assert_eq!(generator.usage().pages_in_use, 0);
}

#[test]
fn a_thousand_requests_of_very_different_lengths_stay_inside_a_small_pool() {
    let mut generator = Generator::new(model("llama", 1), options(800, 32)).unwrap();
    let mut dice = Dice(4);
    let mut limits = Vec::new();
    for number in 0..1000 {
        // A few are nearly as long as the whole pool.
        let max_tokens = if number % 100 == 0 { 700 } else { 1 + dice.below(12) };
        let prompt = 1 + dice.below(60);
        limits.push(max_tokens);
        let request = Request { seed: number, ..Request::new(dice.tokens(prompt), max_tokens) };
        generator.submit(request).unwrap();
    }
    let finished = generator.finish_all().unwrap();
    let usage = generator.usage();
    println!("{usage:?}");
    assert_eq!(finished.len(), 1000);
    for completion in &finished {
        assert_eq!(completion.tokens.len(), limits[completion.request.0 as usize]);
        assert_eq!(completion.finish, Finish::Length);
    }
    assert!(usage.peak_pages <= usage.pages && usage.pages_in_use == 0 && usage.set_aside > 0);
}

#[test]
fn a_request_that_can_never_fit_is_refused_with_numbers() {
    let mut generator = Generator::new(model("llama", 1), options(64, 4)).unwrap();
    let refused = generator.submit(Request::new(vec![1; 40], 25)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the request can grow to 65 tokens (prompt 40), the whole cache holds 64"
    );
    generator.submit(Request::new(vec![1; 40], 24)).unwrap();
    assert_eq!(generator.finish_all().unwrap()[0].tokens.len(), 24);
    let too_long = generator.submit(Request::new(vec![1; 4000], 200)).unwrap_err();
    assert!(matches!(too_long, RequestError::LongerThanTheModel { tokens: 4200, positions: 4096 }));
    let unknown = generator.submit(Request::new(vec![1, 61], 2)).unwrap_err();
    assert!(unknown.to_string().contains("token 61"), "{unknown}");
    assert!(matches!(generator.submit(Request::new(vec![], 2)), Err(RequestError::EmptyPrompt)));
    let strings = Request { stop_strings: vec!["x".into()], ..Request::new(vec![1], 2) };
    assert_eq!(generator.submit(strings), Err(RequestError::NoTokenizer));
}

#[test]
fn a_stop_string_ends_a_completion_where_its_text_first_holds_it() {
    let (generator, tokenizer, request) = chatter(64);
    let mut generator = generator.with_tokenizer(tokenizer.clone());
    let stops = vec!["e".to_owned(), "an".to_owned()];
    generator.submit(Request { stop_strings: stops.clone(), ..request }).unwrap();
    let mut stopped = 0;
    for completion in generator.finish_all().unwrap() {
        let ids: Vec<i64> = completion.tokens.iter().map(|token| token.id).collect();
        let holds = |ids: &[i64]| {
            let text = tokenizer.decode_all(ids).unwrap();
            stops.iter().any(|stop| text.contains(stop.as_str()))
        };
        assert!(!holds(&ids[..ids.len() - 1]), "went on after a stop string");
        assert_eq!(holds(&ids), completion.finish == Finish::Stop);
        stopped += usize::from(completion.finish == Finish::Stop);
    }
    assert!(stopped > 10, "only {stopped} completions met a stop string");
}

/// A model that draws almost evenly from the tokens of `tiny_chat`, and those tokens.
fn chatter(completions: usize) -> (Generator, Arc<Tokenizer>, Request) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
    let config = ModelConfig::load(&folder.join("config.json")).unwrap();
    let tokenizer = Arc::new(Tokenizer::load(&folder).unwrap());
    let model = Model::random(config, 4, Kind::Float, Device::Cpu).unwrap();
    let generator = Generator::new(model, options(4000, completions)).unwrap();
    (generator, tokenizer, Request { completions, ..Request::new(vec![1, 2, 3], 40) })
}

#[test]
fn an_answer_ends_where_its_text_first_holds_the_closing_one() {
    let (mut generator, tokenizer, request) = chatter(64);
    let end_of_answer =
        Some(Arc::new(AnswerStop::new(AnswerEnd::at("e"), tokenizer.clone()).unwrap()));
    let thinking = Thinking {
        end: tokenizer.encode("a", Markers::Leave).unwrap(),
        tag: None,
        answer_tokens: 30,
    };
    let interruptions = vec![
        Interruption {
            after: 20,
            tokens: tokenizer.encode("ea", Markers::Leave).unwrap(),
            answer_tokens: 30
        };
        64
    ];
    let request = Request { end_of_answer, thinking: Some(thinking), interruptions, ..request };
    generator.submit(request).unwrap();
    let (mut closed, mut forced, mut thought) = (0, 0, 0);
    for completion in generator.finish_all().unwrap() {
        let ids: Vec<i64> = completion.tokens.iter().map(|token| token.id).collect();
        let text = |ids: &[i64]| tokenizer.decode_all(ids).unwrap();
        let (thinking, answer) = ids.split_at(completion.thinking_tokens.unwrap());
        assert!(!text(&answer[..answer.len() - 1]).contains('e'), "went on after the closing text");
        let is_closed = text(answer).contains('e');
        assert_eq!(is_closed, completion.finish == Finish::Stop);
        assert!(is_closed || answer.len() == 30, "cut off at {}", answer.len());
        closed += usize::from(is_closed && !completion.is_interrupted);
        forced += usize::from(is_closed && completion.is_interrupted);
        thought += usize::from(!completion.is_interrupted && text(thinking).contains('e'));
    }
    assert!(closed > 5 && forced > 5 && thought > 5, "{closed}, {forced}, {thought}");
}

#[test]
fn weights_of_another_model_are_refused() {
    let mut generator = Generator::new(model("llama", 1), options(64, 4)).unwrap();
    let other = model("qwen3", 1);
    let said = generator.exchange(&other.parameters, 1, CacheAfterExchange::Stale).unwrap_err();
    assert!(said.to_string().contains("tensors were given"), "{said}");
    let mut parameters: Vec<Tensor> =
        generator.model().parameters.iter().map(Tensor::shallow_clone).collect();
    parameters[0] = Tensor::zeros([3, 3], (Kind::Float, Device::Cpu));
    let said = generator.exchange(&parameters, 1, CacheAfterExchange::Stale).unwrap_err();
    assert!(said.to_string().contains("embedding has shape [3, 3]"), "{said}");
    assert_eq!(generator.version(), 0);
}

/// The generator gets a thread of its own.
#[test]
fn a_generator_can_move_to_another_thread() {
    let mut generator = Generator::new(model("llama", 1), options(64, 4)).unwrap();
    let finished = std::thread::spawn(move || {
        generator.submit(Request::new(vec![1, 2], 3)).unwrap();
        generator.finish_all().unwrap().len()
    });
    assert_eq!(finished.join().unwrap(), 1);
}

#[test]
fn broken_weights_are_an_error_that_names_the_request() {
    let mut generator = Generator::new(model("llama", 1), options(640, 4)).unwrap();
    generator.submit(Request::new(vec![1, 2], 3)).unwrap();
    let broken: Vec<Tensor> =
        generator.model().parameters.iter().map(|p| p.full_like(f64::NAN)).collect();
    generator.exchange(&broken, 1, CacheAfterExchange::Stale).unwrap();
    let said = generator.step().unwrap_err().to_string();
    assert!(said.contains("request 0") && said.contains("not numbers"), "{said}");
}

//! The same model on CUDA: kernels against torch formulas, bf16 against the CPU's float32.
//!
//! Without a CUDA device every test says that it skipped. On a GPU machine: scripts/h200/check.sh.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../model/tests/tiny_models/mod.rs"]
mod tiny_models;

use std::path::Path;

use scalerl_generate::{
    CacheAfterExchange, Completion, Finish, Generator, GeneratorOptions, Interruption, Request,
    check_kernels,
};
use scalerl_model::bench::{HeadBench, Shape, bench_head};
use scalerl_model::check::check_training;
use scalerl_model::config::{FeedForward, Gate, ModelConfig, Span};
use scalerl_model::folder::Model;
use scalerl_model::head::{Head, HeadMode, HeadOptions};
use scalerl_model::network::Activations;
use scalerl_model::packed::Packed;
use scalerl_model::tensor_file::read_tensors;
use scalerl_model::train::{Learner, LearnerOptions, TrainingBatch};
use scalerl_torch::ops::{Angles, rms_norm, rotate, swiglu};
use scalerl_torch::tch::{Device, Kind, Tensor};
use scalerl_torch::{cuda, device};
use tiny_models::NAMES;

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn device_or_skip(test: &str) -> Option<Device> {
    if device::open().cuda_devices == 0 {
        let is_required = std::env::var_os("SCALERL_REQUIRE_CUDA").is_some();
        assert!(!is_required, "{test}: SCALERL_REQUIRE_CUDA is set and there is no CUDA device");
        println!("{test} skipped: no CUDA device");
        return None;
    }
    Some(Device::Cuda(0))
}

/// Largest difference as a share of the largest value.
fn relative(a: &Tensor, b: &Tensor) -> f64 {
    let [a, b] = [a, b].map(|x| x.to_device(Device::Cpu).to_kind(Kind::Double));
    ((a - &b).abs().max() / b.abs().max()).double_value(&[])
}

/// bf16 on the device against float64 on the CPU, values and gradients.
fn agree(inputs: &[Tensor], on: Device, operation: impl Fn(&[Tensor], Device) -> Tensor) {
    let run = |kind: Kind, device: Device| {
        let inputs: Vec<Tensor> = inputs
            .iter()
            .map(|x| x.to_kind(kind).to_device(device).detach().copy().set_requires_grad(true))
            .collect();
        let y = operation(&inputs, device);
        let ramp = Tensor::arange(y.numel() as i64, (Kind::Double, Device::Cpu)).sin();
        let ramp = ramp.view_as(&y).to_kind(Kind::BFloat16).to_kind(kind).to_device(device);
        (&y * ramp).sum(Kind::Double).backward();
        (y, inputs.iter().map(Tensor::grad).collect::<Vec<_>>())
    };
    let (fast, fast_grads) = run(Kind::BFloat16, on);
    let (slow, slow_grads) = run(Kind::Double, Device::Cpu);
    // One rounding of the result is 2^-9; a sum over rows may add a few.
    assert!(relative(&fast, &slow) < 0.01, "values differ by {}", relative(&fast, &slow));
    for (fast, slow) in fast_grads.iter().zip(&slow_grads) {
        assert!(relative(fast, slow) < 0.02, "gradients differ by {}", relative(fast, slow));
    }
}

fn random(shape: &[i64]) -> Tensor {
    Tensor::randn(shape, (Kind::Float, Device::Cpu)).to_kind(Kind::BFloat16)
}

#[test]
fn the_kernels_compute_what_the_formulas_say() {
    let Some(on) = device_or_skip("kernels") else { return };
    scalerl_torch::tch::manual_seed(3);
    let probe = Tensor::zeros([1], (Kind::Float, on));
    assert!(cuda::is_ready(probe.device()), "{:?}", cuda::why_not_ready(on));
    for (rows, width) in [(1, 64), (37, 96), (5000, 896)] {
        agree(&[random(&[rows, width]), random(&[width])], on, |x, _| {
            rms_norm(&x[0], &x[1], 1e-5).unwrap()
        });
        agree(&[random(&[rows, 2 * width])], on, |x, _| swiglu(&x[0]).unwrap());
    }
    for rows in [3, 700] {
        let angle = Tensor::randn([rows, 32], (Kind::Float, Device::Cpu));
        agree(&[random(&[rows, 8, 64])], on, |x, device| {
            let cosine = angle.cos().to_device(device);
            let angles =
                Angles { cosine, sine: angle.sin().to_device(device), is_interleaved: false };
            rotate(&x[0], &angles, 6).unwrap()
        });
    }
}

#[test]
fn every_fast_path_of_training_agrees_with_torch_operations() {
    let Some(on) = device_or_skip("fast paths of training") else { return };
    let checks = check_training(on).unwrap();
    let wrong: Vec<_> = checks.iter().filter(|check| !check.is_right()).collect();
    assert!(
        wrong.is_empty() && checks.len() > 60,
        "{} of {}: {wrong:#?}",
        wrong.len(),
        checks.len()
    );
    assert!(scalerl_torch::attention::why_no_cudnn().is_none());
}

#[test]
fn every_fast_path_of_generation_agrees_with_torch_operations() {
    let Some(on) = device_or_skip("fast paths") else { return };
    let checks = check_kernels(on).unwrap();
    let wrong: Vec<_> = checks.iter().filter(|check| !check.is_right()).collect();
    assert!(
        wrong.is_empty() && checks.len() > 100,
        "{} of {}: {wrong:#?}",
        wrong.len(),
        checks.len()
    );
}

/// Beside the sources, or in the current folder on a machine without them.
fn folder(name: &str) -> std::path::PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata");
    let here = ["crates/model/testdata", "testdata"].map(Path::new);
    let found = here.into_iter().find(|folder| folder.join(name).is_dir());
    let folder = if beside.is_dir() { beside.as_path() } else { found.unwrap_or(&beside) };
    folder.join(name)
}

fn sequences(name: &str) -> Vec<Vec<i64>> {
    let tensors = read_tensors(&folder(name).join("golden.safetensors")).unwrap();
    let find = |index: usize| {
        let name = format!("ids_{index}");
        let found = tensors.iter().find(|(known, _)| *known == name);
        Vec::try_from(&found.unwrap().1).unwrap()
    };
    (0..4).map(find).collect()
}

#[test]
fn every_architecture_gives_the_cpu_logits_but_for_rounding() {
    let Some(on) = device_or_skip("architectures") else { return };
    for name in NAMES {
        let logits = |kind: Kind, device: Device| {
            let model = Model::load(&folder(name), kind, device).unwrap();
            let packed = Packed::new(&sequences(name), device).unwrap();
            let hidden = model.network.hidden(&packed).unwrap();
            let head = Head::new(model.network.head(), HeadOptions::of(device)).unwrap();
            head.logits(&hidden).unwrap()
        };
        let difference = relative(&logits(Kind::BFloat16, on), &logits(Kind::Float, Device::Cpu));
        println!("{name}: logits differ by {difference:.4} of the largest");
        // Routers of the tiny random models can flip an expert by rounding.
        let tolerance = if name.contains("moe") || name.contains("llama4") { 0.5 } else { 0.1 };
        assert!(difference < tolerance, "{name}: {difference}");
    }
}

#[test]
fn training_on_cuda_follows_the_cpu() {
    let Some(on) = device_or_skip("training") else { return };
    for name in NAMES {
        for activations in [Activations::Keep, Activations::Recompute] {
            let losses = [Device::Cpu, on].map(|device| {
                let mut options = LearnerOptions::of(device);
                options.activations = activations;
                options.optimizer.lr = 0.01;
                options.optimizer.warmup_steps = 0;
                let model = Model::load(&folder(name), Kind::Float, device).unwrap();
                let mut learner = Learner::new(model, options).unwrap();
                let batch = TrainingBatch::all_scored(&sequences(name), 64, device).unwrap();
                let share = 1.0 / batch.scored() as f64;
                let weights = Tensor::full([batch.scored() as i64], share, (Kind::Float, device));
                let mut losses = Vec::new();
                for _ in 0..20 {
                    let scores = learner.cross_entropy(&batch, &weights).unwrap();
                    losses.push(-scores.logprob.mean(Kind::Float).double_value(&[]));
                    learner.step().unwrap();
                }
                losses
            });
            let [cpu, gpu] = &losses;
            println!(
                "{name}: CPU {:.3} to {:.3}, CUDA {:.3} to {:.3}",
                cpu[0], cpu[19], gpu[0], gpu[19]
            );
            assert!((cpu[0] - gpu[0]).abs() < 0.05 * cpu[0], "{name}: {cpu:?} {gpu:?}");
            assert!((cpu[19] - gpu[19]).abs() < 0.15 * cpu[0], "{name}: {cpu:?} {gpu:?}");
        }
    }
}

#[test]
fn the_split_head_is_as_accurate_as_the_exact_one() {
    let Some(on) = device_or_skip("head") else { return };
    for kind in [Kind::BFloat16, Kind::Float] {
        let bench =
            HeadBench { tokens: 1024, width: 896, vocabulary: 32000, steps: 2, device: on, kind };
        let timings = bench_head(&bench).unwrap();
        let error = |mode| timings.iter().find(|t| t.mode == mode).unwrap().largest_error;
        let [exact, split, bf16] = [HeadMode::Exact, HeadMode::Split, HeadMode::Bf16].map(error);
        println!("{kind:?}: exact {exact:e}, split {split:e}, bf16 {bf16:e}");
        assert!(split < 2.0 * exact + 5e-6, "{kind:?}: split {split:e}, exact {exact:e}");
        assert!(bf16 > 20.0 * exact, "{kind:?}: bf16 {bf16:e}, exact {exact:e}");
    }
}

/// Many lengths, stops that nobody can foresee, interruptions, and prompts of every size.
fn mixed_requests(vocabulary: i64) -> Vec<Request> {
    let one = |i: usize| {
        let prompt = (0..=i * 7 % 40).map(|k| (i * 131 + k * 17) as i64 % vocabulary).collect();
        let completions = 1 + i % 3;
        let forced = |k: usize| Interruption {
            after: 5 + (i + k) % 20,
            tokens: vec![3, 4, 5],
            answer_tokens: 9,
        };
        let is_interrupted = i.is_multiple_of(4);
        Request {
            completions,
            seed: i as u64,
            stop_tokens: if i % 5 == 1 { (0..vocabulary).step_by(40).collect() } else { vec![] },
            interruptions: (0..completions).filter(|_| is_interrupted).map(forced).collect(),
            ..Request::new(prompt, 30 + i * 13 % 90)
        }
    };
    (0..60).map(one).collect()
}

/// Generates, new versions coming in on the way.
fn generated(
    generator: &mut Generator,
    weights: &[Tensor],
    requests: &[Request],
) -> Vec<Completion> {
    for request in requests {
        generator.submit(request.clone()).unwrap();
    }
    let (mut finished, mut version, mut steps) = (Vec::new(), generator.version(), 0);
    while !generator.is_idle() {
        let report = generator.step().unwrap();
        assert!(report.tokens.iter().all(|(_, _, token)| token.version == version));
        finished.extend(report.finished);
        steps += 1;
        if steps % 17 == 0 {
            version += 1;
            generator.exchange(weights, version, CacheAfterExchange::Stale).unwrap();
        }
        let usage = generator.usage();
        assert!(usage.pages_in_use <= usage.pages);
    }
    assert_eq!(generator.usage().pages_in_use, 0, "pages leaked");
    finished.sort_by_key(|completion| (completion.request, completion.index));
    finished
}

/// The device works a step ahead of the host here, whenever it can.
#[test]
fn generation_follows_the_trainer_whoever_joins_leaves_or_is_interrupted() {
    let Some(on) = device_or_skip("generation") else { return };
    let shape =
        Shape { layers: 2, width: 256, heads: 4, kv_heads: 2, feed_forward: 512, vocabulary: 1000 };
    let dense = shape.config().unwrap();
    // Rounding may send a token to another expert, which moves its log-prob by more.
    let mut experts = dense.clone();
    for layer in &mut experts.layers {
        layer.feed_forward = FeedForward::Experts {
            count: 8,
            active: 2,
            width: 256,
            shared_width: None,
            gate: Gate::SoftmaxNormalised,
        };
    }
    follows_the_trainer(&dense, 0.2, on);
    follows_the_trainer(&experts, 0.5, on);
    // Shorter than most of the sequences, and longer than a chunk of a prompt.
    let mut windows = dense.clone();
    windows.layers[0].span = Span::Window(50);
    follows_the_trainer(&windows, 0.2, on);
    // Two rotations, norms of heads, scaled queries and embeddings, heads as wide as Gemma's.
    let gemma = serde_json::json!({
        "model_type": "gemma3_text", "vocab_size": 1000, "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "query_pre_attn_scalar": 200,
        "sliding_window": 50, "sliding_window_pattern": 2, "tie_word_embeddings": false,
    });
    let gemma = ModelConfig::from_json(gemma, Path::new("config.json")).unwrap();
    follows_the_trainer(&gemma, 0.5, on);
}

#[expect(clippy::print_stdout, reason = "how far apart they are is worth reading")]
fn follows_the_trainer(config: &ModelConfig, most_apart: f64, on: Device) {
    let model = || Model::random(config.clone(), 5, Kind::BFloat16, on).unwrap();
    let judge = model();
    let head = Head::new(judge.network.head(), HeadOptions::of(on)).unwrap();
    let requests = mixed_requests(1000);
    // Room for all, and so little that sequences are set aside. Graphs are recorded in the first
    // round, and all there in the second.
    for (cache_tokens, rounds) in [(1 << 14, 2), (1280, 2)] {
        let options = GeneratorOptions { cache_tokens, running: 24, ..GeneratorOptions::of(on) };
        let mut generator = Generator::new(model(), options).unwrap();
        assert_eq!(generator.why_no_kernels(), None);
        for round in 0..rounds {
            let completions = generated(&mut generator, &judge.parameters, &requests);
            let expected: usize = requests.iter().map(|request| request.completions).sum();
            assert_eq!(completions.len(), expected);
            let (mut apart, mut stopped) = (Vec::new(), 0);
            for completion in &completions {
                let request = &requests[completion.request.0 as usize % requests.len()];
                stopped += usize::from(is_as_asked(completion, request));
                apart.extend(differences(&judge, &head, request, completion));
            }
            let mean = apart.iter().sum::<f64>() / apart.len() as f64;
            let largest = apart.iter().copied().fold(0.0, f64::max);
            let aside = generator.usage().set_aside;
            println!(
                "{cache_tokens} tokens of cache, round {round}: mean {mean:.1e}, largest \
                 {largest:.1e} over {} tokens, {stopped} stopped, {aside} set aside",
                apart.len()
            );
            // A token in the wrong place changes log-probs by about 0.4.
            assert!(mean < 0.01 && largest < most_apart, "mean {mean}, largest {largest}");
            assert!(stopped > 0 && (aside > 0) == (cache_tokens == 1280), "missed its purpose");
        }
    }
}

/// Checks lengths, stops and injected tokens; whether a stop token ended it.
fn is_as_asked(completion: &Completion, request: &Request) -> bool {
    let ids: Vec<i64> = completion.tokens.iter().map(|token| token.id).collect();
    let stop = ids.iter().position(|id| request.stop_tokens.contains(id));
    assert_eq!(completion.finish == Finish::Stop, stop.is_some());
    assert!(stop.is_none_or(|at| at + 1 == ids.len()), "went on after a stop");
    let injected = completion.tokens.iter().filter(|token| token.is_injected).count();
    let forced = request.interruptions.get(completion.index);
    // A stop token may come before the interruption, or cut the answer after it.
    let forced = forced.filter(|forced| stop.is_none_or(|at| at >= forced.after));
    if let Some(forced) = forced {
        assert_eq!(ids[forced.after..forced.after + 3], [3, 4, 5]);
        assert_eq!(injected, 3);
    } else {
        assert_eq!(injected, 0);
    }
    if stop.is_none() {
        let asked = forced.map_or(request.max_tokens, |f| f.after + 3 + f.answer_tokens);
        assert_eq!(ids.len(), asked);
    }
    stop.is_some()
}

/// Of each sampled token's log-prob from the trainer's.
fn differences(judge: &Model, head: &Head, request: &Request, done: &Completion) -> Vec<f64> {
    let on = judge.device();
    let ids: Vec<i64> = done.tokens.iter().map(|token| token.id).collect();
    let all: Vec<i64> = request.prompt.iter().chain(&ids).copied().collect();
    let hidden = judge.network.hidden(&Packed::new(&[&all[..]], on).unwrap()).unwrap();
    let hidden = hidden.narrow(0, request.prompt.len() as i64 - 1, ids.len() as i64);
    let scores = head.score(&hidden, &Tensor::from_slice(&ids).to_device(on)).unwrap();
    let scores = Vec::<f32>::try_from(scores.logprob.to_device(Device::Cpu)).unwrap();
    let apart = |(logprob, score): (f32, f32)| f64::from((logprob - score).abs());
    let sampled = done.tokens.iter().zip(scores);
    sampled.filter_map(|(token, score)| Some((token.logprob?, score))).map(apart).collect()
}

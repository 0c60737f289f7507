//! A real vLLM writes for `scalerl train`: `make test-vllm`.
//!
//! SCALERL_VLLM_PYTHON names the Python that has vLLM (scripts/setup/vllm.py installs one); without
//! it nothing is tested here. One server, in this order, because starting it takes a minute or more:
//! log-probs against ours, weights changed in flight, a training run that learns while the server is
//! killed and started again.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "numbers to read with --nocapture")]

mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_journal::{Reading, What};
use scalerl_model::folder::Model;
use scalerl_model::head::HeadOptions;
use scalerl_model::tch::{Device, Kind};
use scalerl_model::tokenizer::{Markers, Tokenizer};
use scalerl_rollout::{Completion, Generator, GroupId, PolicyVersion, SampleRequest, Sampling};
use scalerl_worker::vllm::measure_agreement;
use scalerl_worker::{VllmGenerator, VllmSetup, WeightFolder};

use server::Server;

/// The limit that `docs/vllm.md` promises for f32 on a CPU.
const LIMIT: f64 = 1e-4;

/// As the tests of `scalerl train`, with heads as wide as vLLM's CPU kernels want them.
const SMALL: &str = r#"
[model]
weights = { type = "new", layers = 2, width = 64, heads = 2, kv_heads = 2, feed_forward = 128 }

[[task.datasets]]
name = "chain"
source = { type = "chain", min_steps = 1, max_steps = 3, count = 1216 }

[task]
held_out = 192

[warm_up]
examples = { type = "chain", min_steps = 1, max_steps = 3, noise = 0.2, cut = 0.1 }
steps = 1000
examples_per_step = 40

[format]
interruption = ""

[sampling]
max_prompt_tokens = 16
max_thinking_tokens = 12
max_answer_tokens = 3

[pipeline]
groups_per_step = 16
group_size = 8
micro_batch_tokens = 2048

[objective]
length_control = { type = "interruption", earliest = 12, latest = 12 }

[optimizer]
lr = 5e-4
warmup_steps = 2

[evaluation]
every_steps = 20
generations = 4

[budget]
steps = 60

[output]
folder = "runs"
checkpoint_every_steps = 10
sampled_completions = 64
"#;

fn scalerl(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command.current_dir(folder).env("OMP_WAIT_POLICY", "passive").stdin(Stdio::null());
    command.args(["train", "scalerl", "small.toml", "--device", "cpu"]).args(arguments);
    command
}

/// The model that runs of this recipe start from, made by a run of one step.
fn warmed_up(folder: &Path) -> PathBuf {
    let one = ["--run", "warm", "--set", "budget.steps=1", "--set", "evaluation.generations=1"];
    let status = scalerl(folder, &one).status().unwrap();
    assert!(status.success(), "the run that warms up fails");
    let text = fs::read_to_string(folder.join("warm/policy.json")).unwrap();
    let policy: serde_json::Value = serde_json::from_str(&text).unwrap();
    policy["folder"].as_str().unwrap().into()
}

fn request(tokenizer: &Tokenizer, text: &str, count: u32, tokens: u32) -> SampleRequest {
    let prompt = tokenizer.encode(text, Markers::Add).unwrap();
    SampleRequest {
        group: GroupId(0),
        prompt_token_ids: prompt.iter().map(|id| *id as u32).collect(),
        count,
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
        max_thinking_tokens: 0,
        max_answer_tokens: tokens,
        end_of_thinking: Vec::new(),
        interruptions: Vec::new(),
        stop: Vec::new(),
        seed: 11,
    }
}

/// Never ends by itself, so that completions are long enough to see weights change.
async fn connect(server: &Server, folder: &Path) -> (VllmGenerator, Arc<Tokenizer>, Model) {
    let model = Model::load(folder, Kind::Float, Device::Cpu).unwrap();
    let tokenizer = Arc::new(Tokenizer::load(folder).unwrap());
    let generator = VllmGenerator::start(VllmSetup {
        urls: vec![server.url()],
        token: None,
        requests_at_once: 64,
        patience: Duration::from_mins(10),
        silence: Duration::from_mins(2),
        deadline: Duration::from_mins(10),
        keeps_cache: true,
        tokenizer: tokenizer.clone(),
        stop_tokens: Vec::new(),
        vocabulary: model.config.vocabulary,
        owner: "test".to_owned(),
        notices: None,
    });
    (generator.await.unwrap(), tokenizer, model)
}

/// The model with other weights: each number a little larger.
fn moved(model: &Model) -> Model {
    let parameters = model.parameters.iter().map(|parameter| parameter * 1.05).collect();
    Model::over(model.config.clone(), parameters, model.folder.clone()).unwrap()
}

async fn assert_agrees(
    generator: &VllmGenerator,
    model: &Model,
    tokenizer: &Tokenizer,
    temperature: f32,
) {
    let mut requests: Vec<SampleRequest> =
        ["3+5*2=", "7-4=", "9*8-1+6="].iter().map(|text| request(tokenizer, text, 4, 60)).collect();
    for request in &mut requests {
        request.sampling.temperature = temperature;
    }
    let head = HeadOptions::of(Device::Cpu);
    let found = measure_agreement(generator, model, head, &requests, LIMIT).await.unwrap();
    for one in &found {
        println!("temperature {temperature}: {one}");
        assert!(one.largest <= LIMIT, "{one}");
    }
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

async fn check_exchange(server: &Server, folder: &Path, place: &Path) {
    let (generator, tokenizer, model) = connect(server, folder).await;
    let mut weights = WeightFolder::open(&place.join("exchange")).unwrap();
    generator.adopt(&weights.publish(PolicyVersion(0), &model).unwrap()).await.unwrap();
    assert_agrees(&generator, &model, &tokenizer, 1.0).await;
    assert_agrees(&generator, &model, &tokenizer, 0.7).await;

    let other = moved(&model);
    let handle = weights.publish(PolicyVersion(1), &other).unwrap();
    let long = request(&tokenizer, "3+5*2=", 8, 240);
    let (written, took) = tokio::join!(generator.generate(long), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let begun = Instant::now();
        generator.adopt(&handle).await.unwrap();
        begun.elapsed()
    });
    println!("weights exchanged in {:.0} ms", took.as_secs_f64() * 1e3);
    assert_mixed(&written.unwrap());
    assert_agrees(&generator, &other, &tokenizer, 1.0).await;
}

fn steps(run: &Path) -> usize {
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    text.lines().filter(|line| line.contains("\"mean_abs_log\"")).count()
}

fn wait_for_steps(child: &mut Child, run: &Path, count: usize) {
    let begun = Instant::now();
    while steps(run) < count {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before step {count}");
        assert!(begun.elapsed() < Duration::from_mins(20), "no step {count}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Trains, kills the server at step 10, starts it again, and trains to the end.
fn check_training(server: &mut Server, folder: &Path) {
    let vllm = format!(
        "[pipeline.generator]\ntype = \"vllm\"\nurls = [\"{}\"]\nlogprob_tolerance = {LIMIT}\n",
        server.url()
    );
    fs::write(folder.join("vllm.toml"), vllm).unwrap();
    let run = folder.join("served");
    let begun = Instant::now();
    let mut child = scalerl(folder, &["vllm.toml", "--run", "served"]).spawn().unwrap();
    wait_for_steps(&mut child, &run, 10);
    server.kill();
    let before = steps(&run);
    server.restart();
    wait_for_steps(&mut child, &run, before + 10);
    println!("killed after step {before}, went on");
    assert!(child.wait().unwrap().success());
    println!("trained for {:.0} s", begun.elapsed().as_secs_f64());

    let reading = Reading::load(&run).unwrap();
    let (mut rates, mut apart) = (Vec::new(), Vec::new());
    for event in &reading.history.events {
        match &event.what {
            What::Evaluation { sets, .. } => rates.push((sets[0].pass_rate, sets[0].samples)),
            What::Step { report, .. } => apart.push(report.ratio.mean_abs_log),
            _ => {}
        }
    }
    println!("pass rates {rates:?}; mean |log ratio| of steps {apart:.5?}");
    let ((first, samples), (last, _)) = (rates[0], *rates.last().unwrap());
    let error = (2.0 * 0.25 / samples as f64).sqrt();
    assert!(last > first + 3.0 * error, "it learns: {first} to {last} ± {error}");
}

#[test]
fn a_real_vllm_agrees_takes_weights_in_flight_and_trains() {
    let Some(python) = std::env::var_os("SCALERL_VLLM_PYTHON") else {
        println!("skipped: SCALERL_VLLM_PYTHON is unset; make test-vllm sets it");
        return;
    };
    let python = fs::canonicalize(Path::new(&python).parent().unwrap()).unwrap().join("python");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vllm");
    // Missing at the first time.
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("small.toml"), SMALL).unwrap();
    let model = warmed_up(&folder);
    let mut server = Server::start(&python, &model, &folder.join("vllm.log"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(check_exchange(&server, &model, &folder));
    check_training(&mut server, &folder);
}

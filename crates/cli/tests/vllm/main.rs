//! vLLM writes for `scalerl train`: servers of this process that stand in for it, and, with
//! `make test-vllm`, a real one.
//!
//! SCALERL_VLLM_PYTHON names the Python that has the real one (scripts/setup/vllm.py installs it); without
//! it nothing is tested of that. One server, in this order, because starting it takes a minute or more:
//! log-probs against ours, weights changed in flight, a training run that learns while the server is
//! killed and started again.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "numbers to read with --nocapture")]

#[path = "../../../engine/tests/audit/mod.rs"]
mod audit;
mod exchange;
#[path = "../../../worker/tests/vllm/fake.rs"]
#[expect(dead_code, reason = "the generator's own tests have servers that fail")]
mod fake;
mod server;
mod standing_in;
mod tiny;
mod training;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use server::Server;

/// The limit that `docs/vllm.md` promises for f32 on a CPU.
const LIMIT: f64 = 1e-4;

/// As in the tests of `scalerl train`.
const SMALL: &str = include_str!("../train/small.toml");

/// Over that: heads as wide as vLLM's CPU kernels want them, and fewer steps.
const WIDER: &str = r#"
[model]
weights = { type = "new", layers = 2, width = 64, heads = 2, kv_heads = 2, feed_forward = 128 }

[evaluation]
every_steps = 20

[budget]
steps = 60
"#;

fn scalerl(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command.current_dir(folder).env("OMP_WAIT_POLICY", "passive").stdin(Stdio::null());
    // The model is tiny, and the server wants a core as well.
    command.env("OMP_NUM_THREADS", "1");
    command
        .args(["train", "scalerl", "small.toml", "wider.toml", "--device", "cpu"])
        .args(arguments);
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

#[test]
fn a_real_vllm_agrees_takes_weights_in_flight_and_trains() {
    let Some(python) = std::env::var_os("SCALERL_VLLM_PYTHON") else {
        println!("skipped: SCALERL_VLLM_PYTHON is unset; make test-vllm sets it");
        return;
    };
    let python = PathBuf::from(python);
    assert!(
        python.is_absolute() && python.is_file(),
        "SCALERL_VLLM_PYTHON is {}, which is no Python; run make test-vllm",
        python.display()
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vllm");
    // Missing at the first time.
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("small.toml"), SMALL).unwrap();
    fs::write(folder.join("wider.toml"), WIDER).unwrap();
    let model = warmed_up(&folder);
    let mut server = Server::start(&python, &model, &folder.join("vllm.log"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(exchange::check(&server, &model, &folder));
    training::check(&mut server, &folder);
    training::check_ranks(&server, &folder);
}

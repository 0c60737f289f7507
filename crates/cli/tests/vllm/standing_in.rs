//! `scalerl train` with an adapter, on servers of this process that stand in for vLLM: it goes by itself
//! where all of them take it, else merged, and a run that is resumed looks anew.

use std::fs;
use std::path::{Path, PathBuf};

use scalerl_journal::{Reading, What};

use crate::fake::{Fake, Options};
use crate::{SMALL, WIDER, scalerl, tiny, warmed_up};

/// Both sides compute in float32, one with the adapter and one, where it is merged, without.
const LIMIT: f64 = 1e-4;

/// Over the small recipe: steps that move the adapter far enough to be seen in log-probs, each of which
/// waits for the weights of the last.
const ADAPTER: &str = r#"
[warm_up]
steps = 40

[adapter]
type = "lora"
rank = 4
alpha = 8.0

[objective]
off_policy = { type = "pipeline", steps_behind = 0 }
filter = "none"

[optimizer]
lr = 5e-3
warmup_steps = 0

[evaluation]
every_steps = 100
generations = 1
"#;

const ALONE: &str = "the adapter goes to the servers by itself";
const MERGED: &str = "merged weights are sent";

struct Place {
    folder: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Place {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("standing-in");
        // Missing at the first time.
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("small.toml"), SMALL).unwrap();
        // One table may stand in a file once.
        let (model, _) = WIDER.split_once("[evaluation]").unwrap();
        fs::write(folder.join("wider.toml"), format!("{model}{ADAPTER}")).unwrap();
        tiny::FOLDER.set(warmed_up(&folder)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { folder, runtime }
    }

    fn server(&self, options: Options) -> Fake {
        self.runtime.block_on(Fake::start_with(options))
    }

    /// A session up to this many steps: what it said. All log-probs so far are the trainer's.
    fn train(&self, servers: &[&Fake], run: &[&str], steps: usize) -> String {
        self.train_within(LIMIT, servers, run, steps)
    }

    /// The same, servers being refused above another difference.
    fn train_within(&self, limit: f64, servers: &[&Fake], run: &[&str], steps: usize) -> String {
        let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
        let mut command = scalerl(&self.folder, run);
        for set in [
            "pipeline.generator.type=vllm".to_owned(),
            "pipeline.generator.seeded=true".to_owned(),
            format!("pipeline.generator.urls={urls:?}"),
            format!("pipeline.generator.logprob_tolerance={limit}"),
            format!("budget.steps={steps}"),
        ] {
            command.args(["--set", &set]);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let reading = Reading::load(&self.folder.join(run.last().unwrap())).unwrap();
        let apart: Vec<f64> = (reading.history.events.iter())
            .filter_map(|event| match &event.what {
                What::Step { report, .. } => Some(report.ratio.mean_abs_log),
                _ => None,
            })
            .collect();
        println!("{run:?}: mean |log ratio| of steps {apart:.6?}");
        assert_eq!(apart.len(), steps);
        assert!(apart.iter().all(|apart| *apart < LIMIT), "new weights have arrived: {apart:?}");
        said
    }
}

/// How often servers have been asked for a path.
fn asked(servers: &[&Fake], path: &str) -> usize {
    let all = servers.iter().flat_map(|server| server.asked());
    all.filter(|asked| asked.starts_with(path)).count()
}

#[test]
fn an_adapter_goes_alone_where_every_server_takes_it_and_merged_otherwise() {
    let place = Place::new();
    let (one, two) = (place.server(Options::lora()), place.server(Options::lora()));
    let said = place.train(&[&one, &two], &["--run", "alone"], 4);
    assert!(said.contains(ALONE) && !said.contains(MERGED), "{said}");
    assert_eq!(asked(&[&one, &two], "/collective_rpc"), 0, "no whole weights");
    let (_, folder) = one.adapter().unwrap();
    assert!(Path::new(&folder).join("adapter_model.safetensors").is_file());

    // Another session: they hold the adapter of the last, and take the one of this.
    let said = place.train(&[&one, &two], &["--resume", "alone"], 6);
    assert!(said.contains(ALONE), "{said}");
    assert_eq!(asked(&[&one, &two], "/collective_rpc"), 0);

    // One without LoRA beside one with: all get whole weights, and it is said why.
    let plain = place.server(Options::default());
    let said = place.train(&[&one, &plain], &["--resume", "alone"], 8);
    for words in [&plain.url(), MERGED, "--enable-lora --max-lora-rank 8"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains(ALONE), "{said}");
    assert!(one.adapter().is_none(), "a request without it would be the base's");
    assert!(asked(&[&one], "/collective_rpc") > 0 && asked(&[&plain], "/collective_rpc") > 0);

    // Its base is no longer the run's: an adapter on merged weights would count twice. That is known,
    // not measured: after few steps the difference is small.
    let said = place.train_within(1.0, &[&one], &["--resume", "alone"], 10);
    assert!(said.contains("has taken whole weights since") && said.contains(MERGED), "{said}");
    assert!(one.adapter().is_none());

    // One that says it takes adapters and leaves them out is found out by its log-probs.
    let deaf = place.server(Options { ignores_adapters: true, ..Options::lora() });
    let said = place.train(&[&deaf], &["--resume", "alone"], 12);
    assert!(said.contains("leaves out layers of the adapter") && said.contains(MERGED), "{said}");
}

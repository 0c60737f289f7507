//! A run that trains an adapter: it learns, says so, stops and goes on, and its checkpoints are taken
//! where models are; what does not fit is refused.

use std::path::PathBuf;

use crate::bench::{finish, folder, reading, resume, said, scalerl, succeed, train};
use crate::learning::assert_rises;

const LORA: [&str; 4] =
    ["adapter.type=lora", "adapter.rank=8", "adapter.alpha=8.0", "optimizer.lr=1.5e-3"];

fn newest_adapter(run: &str) -> PathBuf {
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder().join(run).join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    all.sort();
    all.pop().unwrap().join("trainer").join("model")
}

#[test]
fn an_adapter_learns_and_its_checkpoints_are_models() {
    let run = "lora";
    let reading = finish(run, train("scalerl", run, &LORA));
    assert_rises(&reading, run);
    let size = reading.environment.adapter.expect("an adapter is trained");
    assert_eq!(size.rank, 8);
    assert!(size.trained > 0 && size.trained < size.parameters / 2, "{size}");
    let status = succeed(scalerl(&["status", run]));
    assert!(status.out.contains("LoRA rank 8"), "{}", status.out);

    let adapter = newest_adapter(run);
    assert!(adapter.join("adapter_config.json").is_file(), "{}", adapter.display());
    assert!(!adapter.join("model.safetensors").exists(), "the base is not copied");
    let ask = |model: &str| {
        let arguments = [
            "generate",
            "--model",
            model,
            "--device",
            "cpu",
            "--prompt",
            "3+5=",
            "--temperature",
            "0",
        ];
        succeed(scalerl(&arguments)).out
    };
    let merged = succeed(scalerl(&["merge", run, "--out", "lora-merged"]));
    assert!(merged.out.contains("lora-merged"), "{}", merged.out);
    assert_eq!(ask(adapter.to_str().unwrap()), ask("lora-merged"), "greedy answers agree");
    let again = said(scalerl(&["merge", run, "--out", "lora-merged"]));
    assert_eq!(again.code, Some(2), "nothing is overwritten: {again:?}");
    let of_full = said(scalerl(&["merge", "lora-merged", "--out", "lora-merged-twice"]));
    assert!(of_full.code == Some(2) && of_full.err.contains("no adapter"), "{of_full:?}");
}

#[test]
fn an_adapters_run_goes_on_and_ends_as_one_that_never_stopped() {
    let lockstep = ["objective.off_policy.steps_behind=0", "budget.steps=6"];
    let settings = [&LORA[..], &lockstep].concat();
    let straight = finish("lora-straight", train("scalerl", "lora-straight", &settings));
    let short = [&LORA[..], &["objective.off_policy.steps_behind=0", "budget.steps=3"]].concat();
    succeed(train("scalerl", "lora-resumed", &short));
    succeed(resume("lora-resumed", &["budget.steps=6"]));
    let resumed = reading("lora-resumed");
    let last = |reading: &scalerl_journal::Reading| reading.points().last().unwrap().pass_rate;
    assert_eq!(last(&straight).to_bits(), last(&resumed).to_bits());
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    for (set, words) in [
        (&["adapter.type=lora", "adapter.rank=0"][..], "adapter.rank"),
        (&["adapter.type=lora", "adapter.rank=65"], "64 inputs"),
        (&["adapter.type=lora", "adapter.layers=[\"query\"]"], "`query`"),
        (&["adapter.type=dora"], "dora"),
    ] {
        for plan in [None, Some("--dry-run")] {
            let mut command = train("scalerl", "lora-refused", set);
            command.args(plan);
            let said = said(command);
            assert_eq!(said.code, Some(2), "{set:?}: {said:?}");
            assert!(said.err.contains(words), "{set:?}: {}", said.err);
            assert!(!folder().join("lora-refused").exists(), "{set:?} left a run folder");
        }
    }
}

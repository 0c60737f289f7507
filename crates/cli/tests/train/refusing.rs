//! What cannot work is refused with exit code 2 and a hint, before anything is spent; a plan
//! leaves nothing behind.

use std::path::Path;

use crate::bench::{files, folder, said, scalerl, succeed, train};

#[test]
fn what_cannot_work_is_refused_before_anything_is_spent() {
    let own = "output.folder=\"refused-output\"";
    let missing =
        "task.datasets=[{name=\"a\",source={type=\"files\",path=\"no/such/file.jsonl\"}}]";
    let program = "task.datasets=[{name=\"chain\",source={type=\"chain\",count=300},\
                   verifier={type=\"program\",command=[\"./no/such/scorer.py\"]}}]";
    let pattern = "task.datasets=[{name=\"chain\",source={type=\"chain\",count=300},\
                   verifier={type=\"regex\",pattern=\"(\"}}]";
    let reward = "task.datasets=[{name=\"chain\",source={type=\"chain\",count=300},\
                  verifier={type=\"python\",file=\"./no/such/reward.py\"}}]";
    let no_end = ["scalerl", "--set", "model.path=\"somewhere\""];
    let cases: [(&[&str], &[&str]); 10] = [
        (&no_end, &["no end", "budget.steps"]),
        (&["scalerl", "--set", "budget.steps=1"], &["task.datasets", "[[task.datasets]]"]),
        (
            &["scalerl", "small.toml", "--set", "model.weights=\"pretrained\""],
            &["model.path", "hint:"],
        ),
        (
            &[
                "scalerl",
                "small.toml",
                "--set",
                "model.path=\"no/model\"",
                "--set",
                "model.weights=\"pretrained\"",
            ],
            &["no/model", "hint:"],
        ),
        (&["scalerl", "small.toml", "--set", missing], &["no/such/file.jsonl", "hint:"]),
        (&["scalerl", "small.toml", "--set", program], &["./no/such/scorer.py", "chmod +x"]),
        (
            &["scalerl", "small.toml", "--set", reward],
            &["chain", "verifier.file", "./no/such/reward.py", "hint:"],
        ),
        (&["scalerl", "small.toml", "--set", pattern], &["chain", "pattern", "hint:"]),
        (&["scalerl", "small.toml", "--set", "task.held_out=5000"], &["5000", "hint:"]),
        (&["no-such-recipe"], &["no-such-recipe", "hint:"]),
    ];
    // A plan refuses the same, in the same words.
    for ((arguments, words), plan) in
        cases.into_iter().flat_map(|case| [(case, None), (case, Some("--dry-run"))])
    {
        let mut command = scalerl(&["train", "--device", "cpu", "--run", "refused"]);
        command.args(arguments).args(["--set", own]).args(plan);
        let said = said(command);
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        assert!(said.err.starts_with("error: "), "{}", said.err);
        for word in words {
            assert!(said.err.contains(word), "`{word}` is missing in: {}", said.err);
        }
        assert!(!folder().join("refused").exists(), "{arguments:?} left a run folder");
    }
    let left = folder().join("refused-output");
    assert!(!left.exists() || files(&left).is_empty(), "no warm-up was paid for");
}

#[test]
fn a_warm_up_file_that_is_missing_is_named() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
    let model = format!("model.path=\"{}\"", model.display());
    let set = [
        "warm_up.examples={type=\"file\",path=\"no/examples.jsonl\"}",
        "model.weights=\"random\"",
        &model,
    ];
    let said = said(train("scalerl", "no-examples", &set));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("no/examples.jsonl"), "{}", said.err);
    assert!(!folder().join("no-examples").exists());
}

#[test]
fn a_judge_that_always_fails_ends_the_run_with_its_reason() {
    let broken = "task.datasets=[{name=\"chain\",source={type=\"chain\",min_steps=1,max_steps=3,\
                  count=1216},verifier={type=\"program\",command=[\"false\"]}}]";
    let set = [broken, "evaluation.at_start=false", "pipeline.groups_per_step=4"];
    let said = said(train("scalerl", "unjudged", &set));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("false ended with"), "{}", said.err);
    assert!(said.err.contains("hint: "), "{}", said.err);
}

#[test]
fn a_plan_tells_sizes_and_times_and_leaves_nothing() {
    let aside = folder().join("aside");
    std::fs::create_dir_all(&aside).unwrap();
    let mut command = train("scalerl", "planned", &["output.folder=\"planned-output\""]);
    command.arg("--dry-run").env("TMPDIR", &aside);
    let said = succeed(command);
    for word in [
        "model ",
        "prompts   1024 to train on",
        "192 held-out",
        "16 prompts x 8 completions = 128",
        "at most 8 steps behind",
        "memory ",
        "MiB",
        "tokens generated",
        "time ",
        "100 steps:",
    ] {
        assert!(said.out.contains(word), "`{word}` is missing in: {}", said.out);
    }
    for name in ["planned", "planned-output"] {
        assert!(!folder().join(name).exists(), "{name} was made");
    }
    assert!(std::fs::read_dir(&aside).unwrap().next().is_none(), "something was left aside");
}

#[test]
fn a_plan_refuses_prompts_that_are_all_too_long() {
    let mut command = train("scalerl", "no-prompts", &["sampling.max_prompt_tokens=1"]);
    command.arg("--dry-run");
    let said = said(command);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("sampling.max_prompt_tokens"), "{}", said.err);
}

#[test]
fn experts_that_trainers_cannot_own_are_refused_with_what_to_set() {
    let owned = "cluster.experts=\"owned\"";
    let full = ["cluster.sharding=\"full\"", "model.activation_checkpointing=true"];
    let four = "model.weights={type=\"new\",layers=2,width=64,heads=4,kv_heads=4,feed_forward=64,\
                experts=4,active_experts=2}";
    let cases: [(&[&str], &[&str]); 3] = [
        (&[owned], &["cluster.experts", "set cluster.sharding = \"full\""]),
        (&[owned, full[0], full[1], "cluster.trainers=2"], &["the model has no experts", "hint:"]),
        (
            &[owned, full[0], full[1], "cluster.trainers=3", four],
            &[
                "3 trainers cannot own 4 experts",
                "hint: set cluster.trainers to a number that divides 4",
            ],
        ),
    ];
    for (set, words) in cases {
        let mut command = train("scalerl", "not-owned", set);
        command.arg("--dry-run");
        let said = said(command);
        assert_eq!(said.code, Some(2), "{said:?}");
        for word in words {
            assert!(said.err.contains(word), "`{word}` is missing in: {}", said.err);
        }
    }
    // The run refuses what its plan refuses, once there is a model.
    let none = ["warm_up.examples=\"none\"", "budget.steps=1", four];
    let run = [&[owned, full[0], full[1], "cluster.trainers=3"][..], &none].concat();
    let said = said(train("scalerl", "not-owned", &run));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("3 trainers cannot own 4 experts"), "{}", said.err);
    assert!(!folder().join("not-owned").exists());
}

#[test]
fn a_device_of_no_size_is_refused() {
    for bad in ["80", "a lot", "-1GB"] {
        let mut command = train("scalerl", "sizeless", &[]);
        command.args(["--dry-run", &format!("--device-memory={bad}")]);
        let said = said(command);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("80GB"), "{}", said.err);
    }
    let mut command = train("scalerl", "sizeless", &[]);
    command.args(["--device-memory", "80GB"]);
    assert_eq!(self::said(command).code, Some(2), "only a plan asks about other machines");
}

#[test]
fn a_plan_has_a_time_and_a_price_for_models_that_cannot_be_tried() {
    let model = folder().join("large-model");
    std::fs::create_dir_all(&model).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
    for entry in std::fs::read_dir(&from).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
    }
    let text = std::fs::read_to_string(from.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let large = |changes: serde_json::Value| {
        let mut config = config.clone();
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        config.to_string()
    };
    let dense = large(serde_json::json!({"hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}));
    std::fs::write(model.join("config.json"), dense).unwrap();
    let path = format!("model.path=\"{}\"", model.display());
    let mut command = train("scalerl", "large", &["model.weights=\"random\"", &path]);
    command.args(["--dry-run", "--price-per-hour", "2.5", "--set", "warm_up.examples=none"]);
    command.args(["--set", "sampling.max_prompt_tokens=512"]);
    // Another machine's GPU is asked about.
    command.args(["--device-memory", "80GB"]);
    // What goes with a GPU alone may be asked about without one.
    let mut as_advised = train("scalerl", "large", &["model.weights=\"random\"", &path]);
    as_advised.args(["--dry-run", "--set", "warm_up.examples=none"]);
    as_advised.args(["--set", "sampling.max_prompt_tokens=512", "--device-memory", "80GB"]);
    as_advised.args(["--set", "pipeline.weights=shared"]);
    let advised = succeed(as_advised);
    assert!(advised.out.contains("that can be used of a device"), "{}", advised.out);
    let said = succeed(command);
    for words in [
        "estimated from ",
        "TFLOP/s",
        "100 steps: between",
        "at 2.5 an hour",
        "budget.steps",
        "masters 2",
        "of 71.53 GiB that can be used of a device",
        "DOES NOT FIT",
        "--set 'pipeline.weights=shared' (",
        "on 4 devices with --set 'cluster.trainers=4' --set 'cluster.sharding=full'",
        "the host: a checkpoint",
    ] {
        assert!(said.out.contains(words), "`{words}` is missing in: {}", said.out);
    }
    assert!(said.out.contains("gold answers judged right"), "{}", said.out);
}

//! Recipes that ask for the absurd: each is refused by its key, before anything is made for it.

use std::path::PathBuf;

use scalerl_recipe::{Override, Recipe, RecipeError, Source};

fn refused(overrides: &[&str]) -> String {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).expect("key and value")).collect();
    let said = Recipe::load(&[Source::named("quickstart")], &overrides);
    said.expect_err("the value is absurd").to_string()
}

#[test]
fn absurd_numbers_are_refused_by_their_key() {
    let new =
        |key: &str, value: &str| format!("model.weights={{ type = \"new\", {key} = {value} }}");
    let chain = |key: &str, value: &str| {
        format!(
            "task.datasets=[{{ name = \"a\", source = {{ type = \"chain\", {key} = {value} }} }}]"
        )
    };
    let vllm = |key: &str, value: &str| {
        format!(
            "pipeline.generator={{ type = \"vllm\", urls = [\"http://a:1\"], {key} = {value} }}"
        )
    };
    let set = |key: &str, value: &str| format!("{key}={value}");
    let cases = [
        ("experts", new("experts", "1_000_000_000")),
        ("layers", new("layers", "4_294_967_295")),
        ("width", new("width", "4_294_967_294")),
        ("heads", new("heads", "2_147_483_648")),
        ("kv_heads", new("kv_heads", "1_000_000_000")),
        ("feed_forward", new("feed_forward", "4_000_000_000")),
        ("active_experts", new("active_experts", "4_000_000_000")),
        ("count", chain("count", "1_000_000_000_000")),
        ("max_steps", chain("max_steps", "4_000_000_000")),
        ("count", chain("max_steps = 1000, count", "1_000_000")),
        ("silence_s", vllm("silence_s", "1e300")),
        ("patience_s", vllm("patience_s", "1e300")),
        ("requests_at_once", vllm("requests_at_once", "4_000_000_000")),
        ("task.verifier_timeout_s", set("task.verifier_timeout_s", "1e300")),
        ("task.verifier_timeout_s", set("task.verifier_timeout_s", "nan")),
        ("task.verifier_timeout_s", set("task.verifier_timeout_s", "inf")),
        ("cluster.suspect_s", set("cluster.suspect_s", "1e20")),
        ("cluster.dead_s", set("cluster.dead_s", "1e20")),
        ("cluster.rank_deadline_s", set("cluster.rank_deadline_s", "1e20")),
        ("cluster.trainers", set("cluster.trainers", "4_000_000_000")),
        ("cluster.generators", set("cluster.generators", "4_000_000_000")),
        ("pipeline.groups_per_step", set("pipeline.groups_per_step", "4_000_000_000")),
        ("pipeline.group_size", set("pipeline.group_size", "4_000_000_000")),
        ("evaluation.generations", set("evaluation.generations", "4_000_000_000")),
        ("sampling.max_prompt_tokens", set("sampling.max_prompt_tokens", "4_000_000_000")),
        ("sampling.max_thinking_tokens", set("sampling.max_thinking_tokens", "4_000_000_000")),
        ("sampling.max_answer_tokens", set("sampling.max_answer_tokens", "4_000_000_000")),
        ("warm_up.examples_per_step", set("warm_up.examples_per_step", "4_000_000_000")),
        ("seed", set("seed", "99999999999999999999")),
    ];
    for (key, text) in &cases {
        let said = refused(&[text]);
        assert!(said.contains(&format!("{key}`")), "{text}: {said}");
    }
    println!("hostile cases: {}", cases.len());
}

#[test]
fn files_that_are_none_and_files_without_end_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let large = folder.path().join("large.toml");
    std::fs::File::create(&large).and_then(|file| file.set_len(1 << 40)).expect("holes");
    let cases = [
        (PathBuf::from("/dev/zero"), "a device"),
        (pipe, "a named pipe"),
        (large, "larger than 1 MiB"),
        (folder.path().to_owned(), "a folder"),
    ];
    for (path, what) in &cases {
        let error = Recipe::load(&[Source::File(path.clone())], &[]).expect_err("no recipe");
        assert!(matches!(error, RecipeError::Unreadable { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(what) && said.contains(&path.display().to_string()), "{said}");
    }
    println!("hostile cases: {}", cases.len());
}

#[test]
fn deep_and_long_recipes_are_errors_and_no_crashes() {
    let deep =
        |open: &str, close: &str| format!("a = {}1{}", open.repeat(200_000), close.repeat(200_000));
    let cases = [
        deep("[", "]"),
        deep("{a=", "}"),
        format!("{} = 1", vec!["a"; 200_000].join(".")),
        format!("[{}]\nb = 1", vec!["a"; 200_000].join(".")),
        format!("seed = {}", "9".repeat(1_000_000)),
        format!("a = \"{}\"", "\\u0000".repeat(100_000)),
    ];
    for text in &cases {
        let source = Source::Text { name: "deep".into(), text: text.clone() };
        assert!(Recipe::load(&[source], &[]).is_err());
    }
    let keys = vec!["a"; 100_000].join(".");
    let overridden = Override::parse(&format!("{keys}=1"));
    assert!(overridden.is_err());
    // As many keys as fit: looking for their lines must not take their number squared.
    let many: String =
        (0..100_000).flat_map(|index| ["k".into(), index.to_string(), "=1\n".into()]).collect();
    let source = Source::Text { name: "many".into(), text: many };
    assert!(Recipe::load(&[source], &[]).is_err());
    println!("hostile cases: {}", cases.len() + 2);
}

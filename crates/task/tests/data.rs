//! Real data sets: Parquet, JSONL and JSON of the shared folder; says so when it is not there.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, outside of any test"
)]

use std::path::PathBuf;

use scalerl_task::data::{DataConfig, DuplicatePolicy, Prompt, load_dataset, separate};
use scalerl_task::verify::countdown::{CountdownOptions, CountdownVerifier};
use scalerl_task::{Outcome, Verifier};
use serde_json::{Value, json};

fn load(file: &str, mut config: Value) -> Option<Vec<Prompt>> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/math").join(file);
    if !path.exists() {
        println!("SKIPPED: {} is not here", path.display());
        return None;
    }
    config["name"] = json!(file);
    config["path"] = json!(path);
    let config: DataConfig = serde_json::from_value(config).unwrap();
    Some(load_dataset(&config).unwrap())
}

#[test]
fn parquet_with_nested_columns_is_read() {
    let config = json!({"prompt": {"column": "prompt"}, "answer": {"template": ""}});
    let Some(prompts) = load("countdown_train.parquet", config) else { return };
    assert_eq!(prompts.len(), 10_240);
    assert!(prompts[0].text().len() > 20);
    // The verifier finds its numbers in the row; 1 is no expression over them.
    let verifier = CountdownVerifier::new(CountdownOptions::default());
    assert_eq!(verifier.verify(&prompts[0].question, "<answer>1</answer>"), Outcome::Incorrect);
}

#[test]
fn nested_answers_are_found_by_their_path() {
    let config = json!({"prompt": {"column": "prompt"}, "answer": {"template": "{reward_model.ground_truth}"}});
    let Some(prompts) = load("math_train.parquet", config) else { return };
    assert_eq!(prompts.len(), 7_500);
    // The file itself has two rows without an answer.
    assert_eq!(prompts.iter().filter(|prompt| prompt.question.answer.is_empty()).count(), 2);
}

#[test]
fn json_lists_and_marked_answers_are_read() {
    let config =
        json!({"prompt": {"plain": "{Body} {Question}"}, "answer": {"template": "{Answer}"}});
    let Some(prompts) = load("svamp.json", config) else { return };
    assert_eq!((prompts.len(), prompts[0].question.answer.as_str()), (1_000, "51"));
    let config = json!({"prompt": {"plain": "{question}"}, "answer": {"template": "{answer}", "after": "####"}});
    let (Some(train), Some(test)) =
        (load("gsm8k_train.jsonl", config.clone()), load("gsm8k_test.jsonl", config))
    else {
        return;
    };
    assert_eq!((train.len(), train[0].question.answer.as_str()), (7_473, "72"));
    assert_eq!(separate(train, &test, DuplicatePolicy::Refuse).unwrap().len(), 7_473);
}

#[test]
fn a_large_parquet_file_is_read() {
    let config = json!({"prompt": {"column": "prompt"}, "answer": {"template": "{reward_model.ground_truth}"}});
    let Some(prompts) = load("dapo_math_17k.parquet", config) else { return };
    assert_eq!(prompts.len(), 17_917);
    assert!(prompts.iter().all(|prompt| !prompt.question.answer.is_empty()));
}

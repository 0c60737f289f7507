//! Real data sets: Parquet, JSONL and JSON of the shared folder; says so when it is not there.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, outside of any test"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use scalerl_recipe::{Recipe, Source};
use scalerl_task::{Answer, Outcome, Problem, Problems};

fn shared(file: &str) -> Option<PathBuf> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/math").join(file);
    if !path.exists() {
        println!("SKIPPED: {} is not here", path.display());
        return None;
    }
    Some(path)
}

fn dataset(list: &str, file: &str, columns: &str) -> Option<String> {
    let path = shared(file)?;
    let path = path.display();
    Some(format!(
        "[[{list}]]\nname = \"{file}\"\nsource = {{ type = \"files\", path = \"{path}\", {columns} }}\n"
    ))
}

fn load(recipe: &str) -> Problems {
    let source = Source::Text { name: "test".into(), text: recipe.to_owned() };
    let recipe = Recipe::load(&[source], &[]).unwrap();
    Problems::load(&recipe, Path::new("/nowhere/held_out.json"), 1).unwrap()
}

/// All problems of one file.
fn read(file: &str, columns: &str, task: &str) -> Option<Vec<Problem>> {
    let dataset = dataset("task.datasets", file, columns)?;
    let task = format!("[task]\nheld_out = 1\n{task}\n");
    let problems = load(&format!("{task}{dataset}"));
    let held = problems.evaluation[0].1.clone();
    let mut all: Vec<Problem> = problems.pool.problems().cloned().chain(held).collect();
    let row =
        |problem: &Problem| -> u32 { problem.id.0.rsplit('/').next().unwrap().parse().unwrap() };
    all.sort_by_key(row);
    Some(all)
}

#[test]
fn parquet_with_conversations_and_nested_columns_is_read() {
    let task = "verifier = \"countdown\"";
    let dataset = "prompt_column = \"prompt\", answer_column = \"\"";
    let Some(problems) = read("countdown_test.parquet", dataset, task) else { return };
    assert_eq!(problems.len(), 1_024);
    assert!(problems[0].text().len() > 20);
    assert_eq!(problems[0].messages[0].role, "user");
    // The verifier finds its numbers in the row; 1 is no expression over them.
    let recipe = format!(
        "[task]\nheld_out = 1\n{task}\n{}",
        self::dataset("task.datasets", "countdown_test.parquet", dataset).unwrap()
    );
    let verifier = &load(&recipe).verifiers["countdown_test.parquet"];
    let wrong = verifier.verify(Arc::new(problems[0].clone()), Answer::whole("<answer>1</answer>"));
    assert_eq!(wrong, Outcome::Incorrect);
}

#[test]
fn nested_answers_are_found_by_their_path() {
    let columns = "prompt_column = \"prompt\", answer_column = \"reward_model.ground_truth\"";
    let Some(problems) = read("math_train.parquet", columns, "") else { return };
    // Copies of the prompt that is held out leave with it.
    assert!((7_490..=7_500).contains(&problems.len()));
    // The file itself has two rows without an answer.
    assert!(problems.iter().filter(|problem| problem.answer.is_empty()).count() <= 2);
}

#[test]
fn json_lists_and_marked_answers_are_read() {
    let template = "prompt = { type = \"plain\", template = \"{Body} {prompt}\" }";
    let columns = "prompt_column = \"Question\", answer_column = \"Answer\"";
    let Some(problems) = read("svamp.json", columns, template) else { return };
    assert_eq!((problems.len(), problems[0].answer.as_str()), (1_000, "51"));
    assert!(problems[0].text().len() > 60, "both columns are there");

    let columns = "prompt_column = \"question\", answer_after = \"####\"";
    let (Some(train), Some(test)) = (
        dataset("task.datasets", "gsm8k_train.jsonl", columns),
        dataset("evaluation.datasets", "gsm8k_test.jsonl", columns),
    ) else {
        return;
    };
    let evaluation = "[evaluation]\nprimary = \"gsm8k_test.jsonl\"\n";
    let problems = load(&format!("[task]\nheld_out = 0\n{train}{evaluation}{test}"));
    assert_eq!((problems.pool.problems().count(), problems.duplicates), (7_473, 0));
    assert_eq!(problems.pool.problems().next().unwrap().answer, "72");
    assert_eq!(problems.evaluation[0].1.len(), 1_319);
}

#[test]
fn a_large_parquet_file_is_read() {
    let columns = "prompt_column = \"prompt\", answer_column = \"reward_model.ground_truth\"";
    let Some(problems) = read("dapo_math_17k.parquet", columns, "") else { return };
    assert!(problems.len() > 17_000);
    assert!(problems.iter().all(|problem| !problem.answer.is_empty()));
}

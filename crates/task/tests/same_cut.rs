//! Every verifier of a recipe is shown the same part of a completion.
//!
//! The list below must name every verifier the recipe has: a new one fails the first test until it is
//! judged here too.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, outside of any test"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use scalerl_recipe::{Format, Recipe, Source, Verifier};
use scalerl_task::{Answer, Problem, VerifierPool, verifier};
use serde_json::json;

/// A verifier, and the text of a right and of a wrong answer.
struct Case {
    name: &'static str,
    recipe: &'static str,
    right: &'static str,
    wrong: &'static str,
}

const CASES: [Case; 7] = [
    Case { name: "math", recipe: "\"math\"", right: "3", wrong: "4" },
    Case { name: "exact", recipe: "\"exact\"", right: "3", wrong: "4" },
    Case {
        name: "regex",
        recipe: "{ type = \"regex\", pattern = '(\\d+)' }",
        right: "3",
        wrong: "4",
    },
    Case { name: "countdown", recipe: "\"countdown\"", right: "1+2", wrong: "2-1" },
    Case {
        name: "program",
        recipe: r#"{ type = "program", command = ["sh", "-c", """
            grep -q '"completion":"3"' && echo '{"correct":true}' || echo '{"correct":false}'"""] }"#,
        right: "3",
        wrong: "4",
    },
    Case {
        name: "python",
        recipe: r#"{ type = "python", file = "testdata/same_text.py" }"#,
        right: "3",
        wrong: "4",
    },
    Case { name: "code", recipe: "\"code\"", right: "print(3)", wrong: "print(4)" },
];

/// How thinking ends, and where the answer stands.
const FORMATS: [(&str, &str, &str); 6] = [
    ("", "</think>", ""),
    ("thinking = { type = \"tags\", close = \"[/THINK]\" }", "[/THINK]", ""),
    ("thinking = \"none\"", "", ""),
    ("answer = \"boxed\"", "</think>so \\boxed{", "}"),
    ("thinking = \"none\"\nanswer = \"gsm8k\"", "####", "\n and more"),
    ("thinking = \"before-answer\"\nanswer = \"boxed\"", "so \\boxed{", "}"),
];

fn recipe(text: &str) -> Recipe {
    let source = Source::Text { name: "test".into(), text: text.to_owned() };
    let loaded = Recipe::load(&[source], &[]);
    Recipe::clone(&loaded.unwrap_or_else(|error| panic!("{text}: {error}")))
}

fn format(text: &str) -> Format {
    let budget = if text.contains("\"none\"") { 0 } else { 100 };
    let control = "objective.length_control = \"none\"";
    recipe(&format!("{control}\nsampling.max_thinking_tokens = {budget}\n[format]\n{text}\n"))
        .format
}

fn judge_of(case: &Case) -> Option<VerifierPool> {
    let choice = recipe(&format!("[task]\nverifier = {}\n", case.recipe)).task.verifier;
    let deadline = Duration::from_secs(20);
    let resources = verifier::Resources::of_one(&choice, deadline).unwrap();
    match verifier::build(&choice, &resources) {
        Ok(built) => Some(VerifierPool::new(built, 1, deadline)),
        Err(problem) => {
            assert!(
                case.name == "code" && std::env::var_os("SCALERL_REQUIRE_SANDBOX").is_none(),
                "{problem}"
            );
            println!("SKIPPED: {problem}");
            None
        }
    }
}

fn problem() -> Arc<Problem> {
    let fields = json!({"nums": [1, 2], "target": 3, "tests": [{"input": "", "output": "3"}]});
    let fields = fields.as_object().unwrap().clone();
    Arc::new(Problem { fields, ..Problem::with_answer("3") })
}

#[test]
fn every_verifier_is_in_the_list() {
    let listed: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
    assert_eq!(listed, Verifier::NAMES.iter().copied().collect());
}

#[test]
fn every_verifier_judges_what_the_format_cuts_out() {
    for case in &CASES {
        let Some(judge) = judge_of(case) else { continue };
        let verdict = |format: &Format, completion: &str| {
            judge.verify(problem(), Answer::cut(format, completion)).word()
        };
        for (text, before, after) in FORMATS {
            let format = format(text);
            let name = case.name;
            let write = |first: &str, last: &str| {
                let thought = if before.is_empty() { "" } else { first };
                format!("{thought}{before}{last}{after}")
            };
            let right = write(case.wrong, case.right);
            assert_eq!(verdict(&format, &right), "equal", "{name}: {right:?}");
            let wrong = write(case.right, case.wrong);
            assert_eq!(verdict(&format, &wrong), "different", "{name}: {wrong:?}");
            if !before.is_empty() {
                let unmarked = case.right;
                assert_eq!(verdict(&format, unmarked), "different", "{name}: {unmarked:?}");
            }
        }
    }
}

//! The shared cases of `testdata/answers/*.toml`: the verdicts the grader must give.

use std::fs;
use std::path::PathBuf;

use scalerl_grader::{Grader, Options, Verdict};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    gold: String,
    #[serde(default)]
    question: String,
    #[serde(default)]
    evaluated: bool,
    #[serde(default = "yes")]
    strict: bool,
    #[serde(default)]
    equal: Vec<String>,
    #[serde(default)]
    different: Vec<String>,
    #[serde(default)]
    undecided: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Case {
    fn grader(&self, evaluated: bool) -> Grader {
        let mut options = Options::default();
        options.evaluated = evaluated;
        options.strict = self.strict;
        Grader::try_new(options).expect("these options can be meant")
    }

    /// Every prediction with the verdict it must get.
    fn rows(&self) -> impl Iterator<Item = (&str, &str)> {
        let wanted = [
            ("equal", &self.equal),
            ("different", &self.different),
            ("undecided", &self.undecided),
        ];
        wanted
            .into_iter()
            .flat_map(|(word, preds)| preds.iter().map(move |pred| (word, pred.as_str())))
    }
}

/// All cases, each with its file.
fn cases() -> Vec<(String, Case)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/answers");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("it is here")
        .map(|file| file.expect("readable").path())
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().map(|name| name.display().to_string()).unwrap_or_default();
        let text = fs::read_to_string(&file).expect("readable");
        let cases: Cases = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        all.extend(cases.case.into_iter().map(|case| (name.clone(), case)));
    }
    all
}

#[test]
fn the_shared_cases_hold() {
    let mut failures = Vec::new();
    let mut count = 0;
    for (file, case) in cases() {
        let grader = case.grader(case.evaluated);
        for (wanted, pred) in case.rows() {
            count += 1;
            let found = grader.grade_answer_to(&case.question, &case.gold, pred).to_string();
            if found != wanted {
                failures.push(format!("{file}: {} | {pred} is {found}, not {wanted}", case.gold));
            }
        }
    }
    assert!(count > 800, "only {count} cases were found");
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}

/// Asking for evaluated answers takes rewards away; it never gives one.
#[test]
fn what_is_different_stays_different_when_evaluated_answers_are_asked_for() {
    for (file, case) in cases() {
        let (free, asked) = (case.grader(false), case.grader(true));
        for (_, pred) in case.rows() {
            let before = free.grade_answer_to(&case.question, &case.gold, pred);
            let after = asked.grade_answer_to(&case.question, &case.gold, pred);
            assert!(
                after == before || after == Verdict::Different,
                "{file}: {} | {pred} was {before} and is {after}",
                case.gold
            );
        }
    }
}

/// Whoever answers in the words of the gold answer is right, whatever is asked for.
#[test]
fn every_gold_answer_equals_itself() {
    for (file, case) in cases() {
        for evaluated in [false, true] {
            let verdict = case.grader(evaluated).grade(&case.gold, &case.gold);
            assert_eq!(verdict, Verdict::Equal, "{file}: {}", case.gold);
        }
    }
}

//! Which columns of a data set hold the problem, its answer and its tests.
//!
//! Known names first, in the order in which data sets use them; then what the column holds decides:
//! a mark (`####`), a box, or the answer alone. Every row must fit, because one that does not would
//! end a run.

use anyhow::Result;
use scalerl_task::data::{Row, column};
use scalerl_task::problem::lookup;
use scalerl_task::verify::math::last_boxed;
use serde_json::Value;

use crate::failure::BadInput;

const PROBLEM: [&str; 11] = [
    "problem",
    "question",
    "prompt",
    "query",
    "input",
    "instruction",
    "task",
    "text",
    "messages",
    "conversation",
    "question_content",
];
const ANSWER: [&str; 17] = [
    "answer",
    "final_answer",
    "expected_answer",
    "ground_truth",
    "reward_model.ground_truth",
    "gold",
    "gold_answer",
    "target",
    "label",
    "solution",
    "output",
    "response",
    "completion",
    "extra_info.answer",
    "correct_answer",
    "answerkey",
    "result",
];
const TESTS: [&str; 6] =
    ["tests", "test_list", "test_cases", "unit_tests", "test", "reward_model.ground_truth"];
/// What a problem cannot be understood without, where it is apart from the question.
const CONTEXT: [&str; 5] = ["body", "context", "passage", "story", "background"];
const CHOICES: [&str; 3] = ["choices", "options", "endings"];
const NUMBERS: [(&str, &str); 4] = [
    ("nums", "target"),
    ("numbers", "target"),
    ("reward_model.ground_truth.numbers", "reward_model.ground_truth.target"),
    ("ground_truth.numbers", "ground_truth.target"),
];

/// One empty answer in so many is a slip of the data, not another column.
const EMPTY_IN: usize = 100;
/// An answer with more characters is a worked solution.
const SHORT: usize = 120;

/// Where a row's answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gold {
    /// The column, as it is.
    Whole(String),
    /// After the last `####`.
    Marked(String),
    /// In the last box.
    Boxed(String),
    /// Numbers and target of a countdown problem.
    Countdown { numbers: String, target: String },
    /// Tests of a program.
    Tests(String),
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) problem: String,
    /// Whether the problem is a list of messages.
    pub(super) is_conversation: bool,
    /// Columns that belong to the problem: what stands before it, and choices after it.
    pub(super) context: Option<String>,
    pub(super) choices: Option<String>,
    pub(super) gold: Gold,
    /// A worked solution, for its length.
    pub(super) solution: Option<String>,
}

/// Columns that the user named.
#[derive(Debug, Default)]
pub(super) struct Named<'a> {
    pub(super) problem: Option<&'a str>,
    pub(super) answer: Option<&'a str>,
}

impl Columns {
    pub(super) fn find(rows: &[Row], named: &Named<'_>) -> Result<Self> {
        let problem = match named.problem {
            Some(name) => spelled(rows, name).ok_or_else(|| missing(rows, name))?,
            None => first(rows, &PROBLEM, &is_problem)
                .ok_or_else(|| unknown(rows, "problems", "--problem COLUMN"))?,
        };
        let is_conversation = matches!(lookup(&rows[0], &problem), Some(Value::Array(_)));
        let gold = match named.answer {
            Some(name) => {
                let name = spelled(rows, name).ok_or_else(|| missing(rows, name))?;
                gold_of(rows, &name).ok_or_else(|| empty_answer(rows, &name))?
            }
            None => find_gold(rows, &problem)?,
        };
        let other = |names: &[&str]| {
            first(rows, names, &|value| !value.is_null()).filter(|name| *name != problem)
        };
        let is_apart = !is_conversation;
        Ok(Self {
            context: other(&CONTEXT).filter(|_| is_apart),
            choices: other(&CHOICES).filter(|_| is_apart),
            solution: solution(rows, &gold),
            problem,
            is_conversation,
            gold,
        })
    }
}

/// A column's name as the data spells it.
fn spelled(rows: &[Row], name: &str) -> Option<String> {
    if lookup(&rows[0], name).is_some() {
        return Some(name.to_owned());
    }
    rows[0].keys().find(|key| key.eq_ignore_ascii_case(name)).cloned()
}

/// The first of these names that every row has with a fitting value.
fn first(rows: &[Row], names: &[&str], fits: &dyn Fn(&Value) -> bool) -> Option<String> {
    let is_whole = |name: &String| rows.iter().all(|row| lookup(row, name).is_some_and(fits));
    names.iter().filter_map(|name| spelled(rows, name)).find(is_whole)
}

fn is_problem(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(turns) => {
            !turns.is_empty()
                && turns
                    .iter()
                    .all(|turn| turn.get("role").is_some() && turn.get("content").is_some())
        }
        _ => false,
    }
}

fn find_gold(rows: &[Row], problem: &str) -> Result<Gold> {
    for (numbers, target) in NUMBERS {
        let is_list = |value: &Value| {
            value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_i64))
        };
        let (numbers, target) =
            (first(rows, &[numbers], &is_list), first(rows, &[target], &Value::is_i64));
        if let (Some(numbers), Some(target)) = (numbers, target) {
            return Ok(Gold::Countdown { numbers, target });
        }
    }
    if let Some(tests) = first(rows, &TESTS, &is_tests) {
        return Ok(Gold::Tests(tests));
    }
    let names: Vec<String> = ANSWER
        .iter()
        .filter_map(|name| spelled(rows, name))
        .filter(|name| name != problem)
        .collect();
    let mut long = None;
    for name in &names {
        match gold_of(rows, name) {
            Some(Gold::Whole(name)) if typical_length(rows, &name) > SHORT => {
                long = long.or(Some(name));
            }
            Some(gold) => return Ok(gold),
            None => {}
        }
    }
    match (long, names.first()) {
        (Some(name), _) => Ok(Gold::Whole(name)),
        (None, Some(name)) => Err(empty_answer(rows, name)),
        (None, None) => Err(unknown(rows, "answers", "--answer COLUMN")),
    }
}

/// How the answer is cut out of a column that all rows have and nearly all fill.
fn gold_of(rows: &[Row], name: &str) -> Option<Gold> {
    let texts: Option<Vec<String>> = rows.iter().map(|row| cell(row, name)).collect();
    let texts = texts?;
    if empty(rows, name).len() > rows.len() / EMPTY_IN {
        return None;
    }
    let after = |text: &String| text.rfind("####").is_some_and(|at| text[at + 4..].trim() != "");
    Some(if texts.iter().all(after) {
        Gold::Marked(name.to_owned())
    } else if texts.iter().all(|text| last_boxed(text).is_some()) {
        Gold::Boxed(name.to_owned())
    } else {
        Gold::Whole(name.to_owned())
    })
}

/// A value that is there and can be compared.
fn cell(row: &Row, name: &str) -> Option<String> {
    match lookup(row, name)? {
        Value::Null | Value::Object(_) | Value::Array(_) => None,
        _ => column(row, name).ok(),
    }
}

/// Rows without an answer: nothing can be right there.
pub(super) fn empty(rows: &[Row], name: &str) -> Vec<usize> {
    let is_empty = |row: &Row| cell(row, name).is_none_or(|text| text.trim().is_empty());
    (0..rows.len()).filter(|index| is_empty(&rows[*index])).collect()
}

fn typical_length(rows: &[Row], name: &str) -> usize {
    let mut lengths: Vec<usize> =
        rows.iter().filter_map(|row| cell(row, name)).map(|t| t.len()).collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or_default()
}

/// Statements, or inputs with outputs; `check(candidate)` needs a name that no column tells us.
fn is_tests(value: &Value) -> bool {
    match value {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(inner @ Value::Array(_)) => is_tests(&inner),
            _ => text.contains("assert") && !text.contains("def check("),
        },
        Value::Array(tests) => {
            !tests.is_empty()
                && tests.iter().all(|test| match test {
                    Value::String(text) => text.contains("assert"),
                    test => test.get("input").is_some() && test.get("output").is_some(),
                })
        }
        _ => false,
    }
}

fn solution(rows: &[Row], gold: &Gold) -> Option<String> {
    match gold {
        Gold::Marked(name) | Gold::Boxed(name) => Some(name.clone()),
        Gold::Whole(answer) => {
            let names = ["solution", "reasoning", "rationale", "explanation"];
            first(rows, &names, &|value| value.as_str().is_some_and(|text| text.len() > SHORT))
                .filter(|name| name != answer)
        }
        Gold::Countdown { .. } | Gold::Tests(_) => None,
    }
}

fn names(rows: &[Row]) -> String {
    rows[0].keys().cloned().collect::<Vec<_>>().join(", ")
}

fn missing(rows: &[Row], name: &str) -> anyhow::Error {
    BadInput::new(format!("no column `{name}`; the columns are {}", names(rows)))
        .hint("nested columns are dotted: reward_model.ground_truth")
        .into()
}

fn unknown(rows: &[Row], what: &str, flag: &str) -> anyhow::Error {
    BadInput::new(format!(
        "no column that holds the {what} in every row; the columns are {}",
        names(rows)
    ))
    .hint(format!("name it with {flag}"))
    .into()
}

/// The row that keeps a column of answers from being one.
fn empty_answer(rows: &[Row], name: &str) -> anyhow::Error {
    let row = empty(rows, name).first().copied().unwrap_or_default();
    BadInput::new(format!("row {row} has no answer in column `{name}`"))
        .hint("leave such rows out of the file, or name another column with --answer COLUMN")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn find(row: &Value) -> Columns {
        let rows = vec![row.as_object().unwrap().clone(); 3];
        Columns::find(&rows, &Named::default()).unwrap()
    }

    fn gold(row: &Value) -> Gold {
        find(row).gold
    }

    #[test]
    fn answers_are_found_by_name_and_by_what_they_hold() {
        let found = gold(&json!({"question": "1+1?", "answer": "so\n#### 2"}));
        assert_eq!(found, Gold::Marked("answer".into()));
        let found = gold(&json!({"problem": "1+1?", "solution": "It is $\\boxed{2}$."}));
        assert_eq!(found, Gold::Boxed("solution".into()));
        let nested = json!({"prompt": [{"role": "user", "content": "1+1?"}],
                            "reward_model": {"ground_truth": "2", "style": "rule"}});
        assert_eq!(gold(&nested), Gold::Whole("reward_model.ground_truth".into()));
        assert!(find(&nested).is_conversation);
        let countdown = json!({"nums": [1, 2], "target": 3, "question": "reach 3", "answer": "x"});
        let wanted = Gold::Countdown { numbers: "nums".into(), target: "target".into() };
        assert_eq!(gold(&countdown), wanted);
        let tests = json!({"text": "Add.", "test_list": ["assert add(1, 2) == 3"]});
        assert_eq!(gold(&tests), Gold::Tests("test_list".into()));
        let cases = json!({"question": "Add.", "tests": [{"input": "1 2", "output": "3"}]});
        assert_eq!(gold(&cases), Gold::Tests("tests".into()));
    }

    #[test]
    fn a_short_answer_is_taken_before_a_long_solution() {
        let row = json!({"problem": "1+1?", "solution": "x ".repeat(200), "answer": 2});
        let found = find(&row);
        assert_eq!(found.gold, Gold::Whole("answer".into()));
        assert_eq!(found.solution.as_deref(), Some("solution"));
    }

    #[test]
    fn a_story_apart_from_its_question_is_found_whatever_the_case() {
        let found = find(&json!({"Body": "Dan had 3.", "Question": "How many?", "Answer": 3.0}));
        assert_eq!(found.problem, "Question");
        assert_eq!(found.context.as_deref(), Some("Body"));
        assert_eq!(found.gold, Gold::Whole("Answer".into()));
    }

    #[test]
    fn what_cannot_be_found_names_the_columns_or_the_row() {
        let rows = |rows: Value| -> Vec<Row> {
            rows.as_array().unwrap().iter().map(|row| row.as_object().unwrap().clone()).collect()
        };
        let refuse =
            |value: Value| Columns::find(&rows(value), &Named::default()).unwrap_err().to_string();
        assert!(refuse(json!([{"a": 1, "b": 2}])).contains("the columns are a, b"));
        let said =
            refuse(json!([{"question": "q", "answer": "1"}, {"question": "q", "answer": null}]));
        assert_eq!(said, "row 1 has no answer in column `answer`");
        let mut many = vec![json!({"question": "q", "answer": "1"}); 200];
        many[7] = json!({"question": "q", "answer": ""});
        assert!(Columns::find(&rows(many.into()), &Named::default()).is_ok(), "one in 200");
        let rows = rows(json!([{"a": "1+1?", "b": "2"}]));
        let named = Named { problem: Some("a"), answer: Some("b") };
        assert_eq!(Columns::find(&rows, &named).unwrap().gold, Gold::Whole("b".into()));
    }
}

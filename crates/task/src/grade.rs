//! Grades a file of answers: rows of `gold` and `pred`, with an optional `expected` verdict.
//!
//! Every row is checked before the first is graded, so a broken file is refused whole, with the
//! line that is wrong. A `pred` that is null is a row without an answer, which is a wrong one. `kwargs` are those of Math-Verify's tests (`match_types`, `precision`,
//! `strict`, `allow_set_relation_comp`); others are ignored and named in the summary.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::time::Instant;

use scalerl_files::{Lines, RECORD};
use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::outcome::Outcome;
use crate::second_opinion::SecondOpinion;
use crate::verify::math::{MatchType, MathOptions, MathVerifier};

/// One row, checked.
#[derive(Debug, Clone)]
pub struct GradeRow {
    /// Its line in the file, from 1.
    pub line: usize,
    /// What was asked, where the file says so.
    pub question: String,
    /// The right answer.
    pub gold: String,
    /// What the model wrote; `None` where it gave no answer.
    pub pred: Option<String>,
    /// What the verdict should be, where the file says so.
    pub expected: Option<bool>,
    /// How to compare.
    pub options: MathOptions,
}

/// Why a file cannot be graded.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum GradeError {
    /// A line that is not a row.
    #[error("line {line}: {problem}")]
    BadRow { line: usize, problem: String },
    /// The file ends before it began.
    #[error("no rows")]
    Empty,
    /// The file cannot be read.
    #[error("line {line}: {source}")]
    Unreadable { line: usize, source: std::io::Error },
}

impl GradeError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        "a row is one JSON object per line, {\"gold\": \"$1/2$\", \"pred\": \"0.5\"}, and may have \
         \"question\", \"expected\": 0 or 1 and \"kwargs\": {\"match_types\": [\"latex\", \"expr\"]}"
    }
}

/// The rows of a file, and the names of options that were ignored.
#[derive(Debug, Default)]
pub struct GradeFile {
    /// All rows, in order.
    pub rows: Vec<GradeRow>,
    /// Unknown `kwargs`, each once.
    pub ignored: BTreeSet<String>,
}

impl GradeFile {
    /// Reads and checks every row; blank lines are skipped.
    pub fn read(input: impl BufRead) -> Result<Self, GradeError> {
        let mut file = Self::default();
        for (index, line) in Lines::new(input, RECORD).enumerate() {
            let number = index + 1;
            let line = line.map_err(|source| GradeError::Unreadable { line: number, source })?;
            if line.trim().is_empty() {
                continue;
            }
            let row = read_row(number, &line, &mut file.ignored)
                .map_err(|problem| GradeError::BadRow { line: number, problem })?;
            file.rows.push(row);
        }
        if file.rows.is_empty() { Err(GradeError::Empty) } else { Ok(file) }
    }
}

fn read_row(line: usize, text: &str, ignored: &mut BTreeSet<String>) -> Result<GradeRow, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(row) = value else { return Err("not a JSON object".to_owned()) };
    let text = |key: &str| match row.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::Null) => Err(format!("`{key}` is null")),
        Some(_) => Err(format!("`{key}` must be a string")),
        None => Err(format!("`{key}` is missing")),
    };
    let expected = match row.get("expected") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(expected)) => Some(*expected),
        Some(value) => match value.as_i64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => return Err(format!("`expected` must be 0 or 1, it is {value}")),
        },
    };
    let options = match row.get("kwargs") {
        None | Some(Value::Null) => MathOptions::default(),
        Some(Value::Object(kwargs)) => read_kwargs(kwargs, ignored)?,
        Some(_) => return Err("`kwargs` must be an object".to_owned()),
    };
    let pred = match row.get("pred") {
        Some(Value::Null) => None,
        _ => Some(text("pred")?),
    };
    let question = row.get("question").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(GradeRow { line, question, gold: text("gold")?, pred, expected, options })
}

fn read_kwargs(
    kwargs: &Map<String, Value>,
    ignored: &mut BTreeSet<String>,
) -> Result<MathOptions, String> {
    // Math-Verify's own default, other than ours.
    let mut options = MathOptions::default();
    options.allow_set_relation_comp = false;
    let flag = |key: &str, value: &Value| {
        value.as_bool().ok_or_else(|| format!("`kwargs.{key}` must be true or false"))
    };
    for (key, value) in kwargs {
        match key.as_str() {
            "match_types" => {
                let items = value.as_array().ok_or("`kwargs.match_types` must be a list")?;
                for item in items {
                    match serde_json::from_value::<MatchType>(item.clone()) {
                        Ok(kind) => options.match_types.push(kind),
                        Err(_) => drop(ignored.insert(format!("match_types {item}"))),
                    }
                }
            }
            "precision" => {
                let digits = value.as_u64().filter(|digits| *digits <= 50);
                let digits = digits.ok_or("`kwargs.precision` must be a number up to 50")?;
                options.precision = digits as u32;
            }
            "strict" => options.strict = flag(key, value)?,
            "allow_set_relation_comp" => options.allow_set_relation_comp = flag(key, value)?,
            other => drop(ignored.insert(other.to_owned())),
        }
    }
    Ok(options)
}

/// The verdict on one row.
#[derive(Debug, Clone, Serialize)]
pub struct GradedRow {
    /// The row's place in the file, from 0, blank lines not counted.
    pub row: usize,
    /// Its line in the file, from 1.
    pub line: usize,
    /// `equal`, `different`, `undecided` or `error`.
    pub verdict: &'static str,
    /// Time it took.
    pub seconds: f64,
    /// Why there is no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the second opinion was asked.
    #[serde(skip)]
    pub asked_again: bool,
}

/// All verdicts together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GradeSummary {
    /// Rows graded.
    pub rows: usize,
    /// Verdicts "equal".
    pub equal: usize,
    /// `equal / rows`, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equal_share: Option<f64>,
    /// Verdicts "different".
    pub different: usize,
    /// Rows without a verdict because the grader cannot tell.
    pub undecided: usize,
    /// Rows without a verdict because the grader failed.
    pub error: usize,
    /// Rows with an `expected` verdict.
    pub expected: usize,
    /// … on which the verdict is the expected one.
    pub agreed: usize,
    /// `agreed / expected`, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Rows called equal that should not be: the harmful mistake.
    pub wrongly_equal: usize,
    /// Rows called different that should be equal.
    pub wrongly_different: usize,
    /// Rows on which the second opinion was asked.
    pub second_opinions: usize,
    /// Time for all rows.
    pub seconds: f64,
    /// `kwargs` that are unknown here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_kwargs: Vec<String>,
}

impl GradeSummary {
    /// Adds one verdict.
    pub fn add(&mut self, row: &GradeRow, graded: &GradedRow) {
        self.rows += 1;
        self.seconds += graded.seconds;
        self.second_opinions += usize::from(graded.asked_again);
        match graded.verdict {
            "equal" => self.equal += 1,
            "different" => self.different += 1,
            "undecided" => self.undecided += 1,
            _ => self.error += 1,
        }
        self.equal_share = Some(self.equal as f64 / self.rows as f64);
        if let Some(expected) = row.expected {
            self.expected += 1;
            self.agreed +=
                usize::from(graded.verdict == if expected { "equal" } else { "different" });
            self.wrongly_equal += usize::from(!expected && graded.verdict == "equal");
            self.wrongly_different += usize::from(expected && graded.verdict == "different");
            self.agreement = Some(self.agreed as f64 / self.expected as f64);
        }
    }
}

/// Grades one row: natively, then by the second opinion where the native grader cannot tell.
pub fn grade_row(index: usize, row: &GradeRow, second: Option<&SecondOpinion>) -> GradedRow {
    let start = Instant::now();
    let mut asked_again = false;
    let outcome = match &row.pred {
        None => Outcome::Incorrect,
        Some(pred) => match (native_outcome(row, pred), second) {
            (Outcome::Undecided { .. }, Some(second)) => {
                asked_again = true;
                second.compare(&row.gold, pred, &row.options)
            }
            (outcome, _) => outcome,
        },
    };
    let seconds = start.elapsed().as_secs_f64();
    let verdict = outcome.word();
    let reason = match outcome {
        Outcome::Undecided { reason } | Outcome::Error { reason } => Some(reason),
        _ => None,
    };
    GradedRow { row: index, line: row.line, verdict, seconds, reason, asked_again }
}

fn native_outcome(row: &GradeRow, pred: &str) -> Outcome {
    match MathVerifier::try_new(row.options.clone()) {
        Ok(grader) => grader.compare_answer_to(&row.question, &row.gold, pred),
        Err(error) => Outcome::error(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GradeFile, GradeError> {
        GradeFile::read(text.as_bytes())
    }

    #[test]
    fn rows_are_graded_and_summed_up() {
        let file = read(
            "{\"gold\": \"$1/2$\", \"pred\": \"0.5\", \"expected\": 1}\n\n\
             {\"gold\": \"3\", \"pred\": \"4\", \"expected\": 0, \"kwargs\": {\"lang\": \"en\"}}\n\
             {\"gold\": 7, \"pred\": \"8\", \"expected\": true}\n",
        )
        .unwrap();
        let mut summary = GradeSummary::default();
        for (index, row) in file.rows.iter().enumerate() {
            summary.add(row, &grade_row(index, row, None));
        }
        assert_eq!((summary.rows, summary.equal, summary.different), (3, 1, 2));
        assert_eq!((summary.agreed, summary.wrongly_equal, summary.wrongly_different), (2, 0, 1));
        assert!(file.ignored.contains("lang"));
    }

    #[test]
    fn no_answer_is_a_wrong_answer_and_not_a_broken_row() {
        let file = read(
            "{\"gold\": \"1\", \"pred\": null, \"expected\": 0}\n\n\
             {\"gold\": \"1\", \"pred\": \"1\", \"expected\": null}\n",
        )
        .unwrap();
        let graded: Vec<GradedRow> =
            file.rows.iter().enumerate().map(|(i, row)| grade_row(i, row, None)).collect();
        assert_eq!((graded[0].verdict, graded[0].line), ("different", 1));
        assert_eq!((graded[1].verdict, graded[1].line), ("equal", 3));
        let error = read("{\"gold\": null, \"pred\": \"1\"}\n").unwrap_err().to_string();
        assert!(error.starts_with("line 1: `gold` is null"), "{error}");
    }

    #[test]
    fn a_row_may_say_what_was_asked() {
        let line = "{\"question\": \"Expand $(x+1)^2$\", \"gold\": \"x^2+2x+1\", \
                    \"pred\": \"\\\\boxed{(x+1)^2}\"}";
        let mut file = read(line).unwrap();
        assert_eq!(grade_row(0, &file.rows[0], None).verdict, "equal");
        file.rows[0].options.evaluated = true;
        assert_eq!(grade_row(0, &file.rows[0], None).verdict, "different");
    }

    #[test]
    fn a_bad_row_is_named_by_its_line() {
        for (bad, words) in [
            ("{", "line 2: not JSON"),
            ("[1]", "line 2: not a JSON object"),
            ("{\"gold\": \"1\"}", "line 2: `pred` is missing"),
            ("{\"gold\": [], \"pred\": \"1\"}", "line 2: `gold` must be a string"),
            (
                "{\"gold\": \"1\", \"pred\": \"1\", \"expected\": 2}",
                "line 2: `expected` must be 0 or 1",
            ),
            (
                "{\"gold\": \"1\", \"pred\": \"1\", \"kwargs\": {\"strict\": 3}}",
                "line 2: `kwargs.strict`",
            ),
        ] {
            let text = format!("{{\"gold\": \"1\", \"pred\": \"1\"}}\n{bad}\n");
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        assert!(matches!(read("\n"), Err(GradeError::Empty)));
    }
}

//! What a run's problems were when it began, so that a resume on other problems is refused.
//!
//! One line a problem: fingerprints of its prompt, its gold answer and all columns of its row, and its
//! id. A held-out set drawn from other prompts, or answers graded against other gold, would make the
//! second half of a curve another experiment. A fingerprint is 64 bits of FNV-1a: it finds changes, and
//! nobody has a reason to forge one.
//!
//! Not here: files that verifiers run (`verifier_files.rs`); the recipe, which a resume may not change.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use crate::problem::Problem;
use crate::random::hash;

const HEADING: &str = "# fingerprints of prompt, answer and columns, then the problem\n";

/// Why problems are not those that a run was started with.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ProblemsChanged {
    #[error("{part} of {id} is not what the run was started with")]
    Row { id: String, part: &'static str },
    #[error("{id} is gone: the run was started with {recorded} problems, there are {found} now")]
    Gone { id: String, recorded: usize, found: usize },
    #[error("{id} is new: the run was started with {recorded} problems, there are {found} now")]
    New { id: String, recorded: usize, found: usize },
    #[error("{file} is not what the run was started with: line {line} differs")]
    VerifierFile { file: String, line: usize },
    #[error("{}: {problem}", path.display())]
    BadRecord { path: PathBuf, problem: String },
}

impl ProblemsChanged {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadRecord { .. } => "check the file, its permissions and the free space",
            Self::VerifierFile { .. } => {
                "put it back: its text is in verifier_files.json of the run's folder. To go on with \
                 the changed one all the same, remove that verifier_files.json; rewards before and \
                 after are then not the same"
            }
            _ => "resume with the data the run was started with; other data is another run",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    id: String,
    prompt: u64,
    answer: u64,
    fields: u64,
}

/// Of all problems of a run, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprints(Vec<Row>);

impl Fingerprints {
    /// Of these problems.
    pub fn of<'a>(problems: impl IntoIterator<Item = &'a Problem>) -> Self {
        let row = |problem: &Problem| Row {
            id: problem.id.0.clone(),
            prompt: hash(said(problem).as_bytes()),
            answer: hash(problem.answer.as_bytes()),
            fields: hash(canonical(&Value::Object(problem.fields.clone())).as_bytes()),
        };
        Self(problems.into_iter().map(row).collect())
    }

    /// Records them.
    pub fn save(&self, path: &Path) -> Result<(), ProblemsChanged> {
        let mut text = HEADING.to_owned();
        for Row { id, prompt, answer, fields } in &self.0 {
            let id = Value::String(id.clone());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{prompt:016x} {answer:016x} {fields:016x} {id}");
        }
        let written = crate::record::write_whole(path, text.as_bytes());
        written.map_err(|error| ProblemsChanged::BadRecord {
            path: path.to_owned(),
            problem: crate::record::problem(&error),
        })
    }

    /// Reads what was recorded.
    pub fn load(path: &Path) -> Result<Self, ProblemsChanged> {
        let bad = |problem: String| ProblemsChanged::BadRecord { path: path.to_owned(), problem };
        let text = scalerl_files::read_to_string(path, scalerl_files::TABLE)
            .map_err(|error| bad(error.to_string()))?;
        let mut rows = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let row = parse(line);
            rows.push(row.ok_or_else(|| bad(format!("line {} is no fingerprint", index + 1)))?);
        }
        Ok(Self(rows))
    }

    /// Refuses problems other than the recorded ones, by the first that differs.
    pub fn check(&self, recorded: &Self) -> Result<(), ProblemsChanged> {
        let (found, counted) = (self.0.len(), recorded.0.len());
        for (now, before) in self.0.iter().zip(&recorded.0) {
            let part = if now.id != before.id {
                let (id, recorded) = (before.id.clone(), counted);
                return Err(ProblemsChanged::Gone { id, recorded, found });
            } else if now.prompt != before.prompt {
                "the prompt"
            } else if now.answer != before.answer {
                "the answer"
            } else if now.fields != before.fields {
                "a column"
            } else {
                continue;
            };
            return Err(ProblemsChanged::Row { id: now.id.clone(), part });
        }
        let recorded_rows = &recorded.0;
        if let Some(Row { id, .. }) = recorded_rows.get(found) {
            return Err(ProblemsChanged::Gone { id: id.clone(), recorded: counted, found });
        }
        match self.0.get(counted) {
            Some(Row { id, .. }) => {
                Err(ProblemsChanged::New { id: id.clone(), recorded: counted, found })
            }
            None => Ok(()),
        }
    }
}

/// The conversation, roles included.
fn said(problem: &Problem) -> String {
    let messages = problem.messages.iter().map(|one| [one.role.as_str(), one.content.as_str()]);
    serde_json::json!(messages.collect::<Vec<_>>()).to_string()
}

/// JSON whose keys are in order, so that a file with its columns in another order is the same.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let field = |(name, value): (&String, &Value)| {
                format!("{}:{}", Value::String(name.clone()), canonical(value))
            };
            format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

fn parse(line: &str) -> Option<Row> {
    let mut words = line.splitn(4, ' ');
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (prompt, answer, fields) = (number()?, number()?, number()?);
    let id = serde_json::from_str(words.next()?).ok()?;
    Some(Row { id, prompt, answer, fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Message;
    use std::fs;

    use proptest::prelude::*;
    use scalerl_rollout::PromptId;
    use serde_json::json;

    fn problem(row: usize) -> Problem {
        let fields = json!({"tests": [{"in": row, "out": row + 1}], "level": "easy"});
        let problem = Problem::with_answer((row + 1).to_string()).named("sums of two", row);
        Problem {
            messages: vec![Message::new("user", format!("What is {row} + 1?"))],
            fields: fields.as_object().unwrap().clone(),
            ..problem
        }
    }

    fn of(problems: &[Problem]) -> Fingerprints {
        Fingerprints::of(problems)
    }

    type Change = fn(&mut Vec<Problem>);

    #[test]
    fn every_change_is_found_and_named_by_its_row() {
        let before: Vec<Problem> = (0..20).map(problem).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("problems.fingerprints");
        of(&before).save(&path).unwrap();
        let recorded = Fingerprints::load(&path).unwrap();
        assert_eq!(of(&before).check(&recorded), Ok(()));
        let cases: [(Change, &str); 8] = [
            (|all| all[7].answer = "9".into(), "the answer of sums of two/7 is not"),
            (|all| all[3].messages[0].content.push('?'), "the prompt of sums of two/3"),
            (|all| all[3].messages[0].role = "system".into(), "the prompt of sums of two/3"),
            (|all| all[19].fields["tests"][0]["out"] = json!(1), "a column of sums of two/19"),
            (|all| drop(all.pop()), "sums of two/19 is gone: the run was started with 20"),
            (|all| drop(all.remove(4)), "sums of two/4 is gone"),
            (|all| all.push(problem(20)), "sums of two/20 is new: the run was started with 20"),
            (|all| all.swap(1, 2), "sums of two/1 is gone"),
        ];
        for (change, expected) in cases {
            let mut now = before.clone();
            change(&mut now);
            let said = of(&now).check(&recorded).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn columns_in_another_order_are_the_same_row() {
        let mut other = problem(1);
        let fields = json!({"level": "easy", "tests": [{"out": 2, "in": 1}]});
        other.fields = fields.as_object().unwrap().clone();
        assert_eq!(of(&[other]), of(&[problem(1)]));
    }

    #[test]
    fn a_record_that_is_none_is_refused_by_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("problems.fingerprints");
        of(&[problem(0), problem(1)]).save(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap().replace("sums of two/1\"", "sums");
        fs::write(&path, text).unwrap();
        let said = Fingerprints::load(&path).unwrap_err().to_string();
        assert!(said.ends_with("problems.fingerprints: line 3 is no fingerprint"), "{said}");
    }

    proptest! {
        #[test]
        fn what_was_recorded_is_read_back(ids in prop::collection::vec(".{0,12}", 0..6)) {
            let named = |id: &String| Problem { id: PromptId(id.clone()), ..problem(0) };
            let problems: Vec<Problem> = ids.iter().map(named).collect();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("problems.fingerprints");
            of(&problems).save(&path).unwrap();
            prop_assert_eq!(Fingerprints::load(&path).unwrap(), of(&problems));
        }
    }
}

//! A Python program against tests, in a sandbox.
//!
//! The program is the last fenced block of the completion. Two kinds of tests, from a field of the
//! row:
//!
//! ```text
//! ["assert add(1, 2) == 3", …]  or one string   run after the program, in the same interpreter
//! [{"input": "1 2\n", "output": "3\n"}, …]        a run each, standard output compared
//! ```
//!
//! A program that fails a test, raises, runs out of its time or memory, or floods its output is
//! wrong. A sandbox that does not start is an error. A program shares the interpreter with
//! assertions and could tamper with them; input/output tests are judged from outside.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::outcome::Outcome;
use crate::process::{Ending, Finished};
use crate::question::Question;
use crate::sandbox::{STARTED, Sandbox, SandboxLimits};
use crate::verifier::{Verifier, VerifierError, is_deadline};

/// What a user writes to run programs without a sandbox.
pub const UNSANDBOXED_CONSENT: &str =
    "I understand that programs written by a model will run on this machine without a sandbox";

/// Options of the `code` verifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeOptions {
    /// Where the row holds the tests, as a dotted path.
    pub tests: String,
    /// The interpreter; `/usr/bin/python3` is tried when it does not work inside the sandbox.
    pub python: String,
    /// Limits of one run.
    pub limits: SandboxLimits,
    /// Most input/output tests that are run, from the first.
    pub most_tests: usize,
    /// Exactly [`UNSANDBOXED_CONSENT`] to run without a sandbox. Empty: refuse.
    pub allow_unsandboxed: String,
}

impl Default for CodeOptions {
    fn default() -> Self {
        Self {
            tests: "tests".to_owned(),
            python: "python3".to_owned(),
            limits: SandboxLimits::default(),
            most_tests: 20,
            allow_unsandboxed: String::new(),
        }
    }
}

/// Runs programs.
#[derive(Debug, Clone)]
pub struct CodeVerifier {
    options: CodeOptions,
    sandbox: Sandbox,
}

/// Printed by the last line of an assertion run; a program that ends early does not print it.
const PASSED: &str = "scalerl-all-tests-passed";

impl CodeVerifier {
    /// Finds a sandbox and tries it out.
    pub fn try_new(options: CodeOptions) -> Result<Self, VerifierError> {
        let limits = options.limits;
        if !is_deadline(limits.time_s) {
            let problem = format!("{} is no time to run", limits.time_s);
            return Err(VerifierError::BadOption { key: "limits.time_s", problem });
        }
        let consent = options.allow_unsandboxed.trim();
        if !consent.is_empty() && consent != UNSANDBOXED_CONSENT {
            let problem =
                format!("to run without a sandbox write exactly \"{UNSANDBOXED_CONSENT}\"");
            return Err(VerifierError::BadOption { key: "allow_unsandboxed", problem });
        }
        let sandbox = match Sandbox::find(&options.python) {
            Err(_) if consent == UNSANDBOXED_CONSENT => Sandbox::without_walls(&options.python),
            found => found,
        };
        let sandbox = sandbox.map_err(|problem| VerifierError::NoSandbox { problem })?;
        Ok(Self { options, sandbox })
    }

    fn run(&self, program: &str, input: &str) -> Result<Finished, Outcome> {
        let finished = self
            .sandbox
            .run(program, input.as_bytes(), self.options.limits)
            .map_err(|error| Outcome::error(format!("the sandbox cannot be started: {error}")))?;
        let has_started = finished.stderr.windows(STARTED.len()).any(|part| part == STARTED);
        if !has_started {
            let stderr = String::from_utf8_lossy(&finished.stderr);
            let last = stderr.trim().lines().next_back().unwrap_or("no message").to_owned();
            return Err(Outcome::error(format!("the sandbox did not start: {last}")));
        }
        Ok(finished)
    }

    fn assertions(&self, program: &str, tests: &str) -> Result<bool, Outcome> {
        // `exit()` in the program must not skip the tests.
        let whole = format!("{program}\n\n{tests}\n\nprint('\\n{PASSED}', flush=True)\n");
        let finished = self.run(&whole, "")?;
        let stdout = String::from_utf8_lossy(&finished.stdout);
        Ok(finished.ending == Ending::Exited
            && finished.status.success()
            && stdout.trim_end().lines().next_back() == Some(PASSED))
    }

    fn outputs(&self, program: &str, cases: &[(String, String)]) -> Result<bool, Outcome> {
        for (input, wanted) in cases.iter().take(self.options.most_tests) {
            let finished = self.run(program, input)?;
            let is_right = finished.ending == Ending::Exited
                && finished.status.success()
                && same_output(&String::from_utf8_lossy(&finished.stdout), wanted);
            if !is_right {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Verifier for CodeVerifier {
    fn verify(&self, question: &Question, completion: &str) -> Outcome {
        let Some(tests) = question.field(&self.options.tests).and_then(read_tests) else {
            let path = &self.options.tests;
            return Outcome::error(format!("the row has no tests at `{path}`"));
        };
        let program = program_of(completion);
        let judged = match &tests {
            Tests::Assertions(text) => self.assertions(program, text),
            Tests::Cases(cases) => self.outputs(program, cases),
        };
        judged.map_or_else(|outcome| outcome, Outcome::of)
    }
}

enum Tests {
    Assertions(String),
    Cases(Vec<(String, String)>),
}

fn read_tests(value: &Value) -> Option<Tests> {
    match value {
        // Many data sets keep their tests as JSON inside a string.
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner @ Value::Array(_)) => read_tests(&inner),
            _ => Some(Tests::Assertions(text.clone())).filter(|_| !text.trim().is_empty()),
        },
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            let lines: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            if let Some(lines) = lines {
                return Some(Tests::Assertions(lines.join("\n")));
            }
            let case = |item: &Value| {
                let text = |key: &str| item.get(key)?.as_str().map(str::to_owned);
                Some((text("input")?, text("output")?))
            };
            items.iter().map(case).collect::<Option<Vec<_>>>().map(Tests::Cases)
        }
        _ => None,
    }
}

/// The last fenced block, or all of it.
fn program_of(completion: &str) -> &str {
    let answer = completion.rsplit("</think>").next().unwrap_or(completion);
    let mut last = None;
    let mut rest = answer;
    while let Some(open) = rest.find("```") {
        let after = &rest[open + 3..];
        let Some(line_end) = after.find('\n') else { break };
        let body = &after[line_end + 1..];
        let end = body.find("```").unwrap_or(body.len());
        last = Some(&body[..end]);
        rest = body.get(end + 3..).unwrap_or("");
    }
    last.unwrap_or(answer)
}

/// Equal line by line, blanks at the ends of lines aside.
fn same_output(found: &str, wanted: &str) -> bool {
    let lines =
        |text: &str| text.trim_end().lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    lines(found) == lines(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_fenced_block_is_the_program() {
        let text = "First\n```python\nx = 1\n```\nbetter:\n```py\nx = 2\n```\ndone";
        assert_eq!(program_of(text), "x = 2\n");
        assert_eq!(program_of("print(1)"), "print(1)");
        assert_eq!(program_of("```python\nprint(1)"), "print(1)");
    }

    #[test]
    fn tests_are_read_in_each_of_their_forms() {
        assert!(matches!(read_tests(&json!(["assert f(1)"])), Some(Tests::Assertions(_))));
        assert!(matches!(read_tests(&json!("assert f(1)")), Some(Tests::Assertions(_))));
        let cases = json!([{"input": "1", "output": "2"}]);
        assert!(matches!(read_tests(&cases), Some(Tests::Cases(_))));
        assert!(matches!(read_tests(&json!(cases.to_string())), Some(Tests::Cases(_))));
        assert!(read_tests(&json!([])).is_none());
        assert!(read_tests(&json!([{"in": 1}])).is_none());
    }

    #[test]
    fn consent_must_be_given_in_these_words() {
        let options = CodeOptions { allow_unsandboxed: "yes".into(), ..CodeOptions::default() };
        let error = CodeVerifier::try_new(options).unwrap_err();
        assert!(error.to_string().contains(UNSANDBOXED_CONSENT));
    }
}

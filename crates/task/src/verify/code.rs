//! A Python program against tests, in a sandbox.
//!
//! The program is the last fenced block of the completion. Two kinds of tests, from a field of the
//! row:
//!
//! ```text
//! ["assert add(1, 2) == 3", …]  or one string   statements, run by a judge elsewhere (`code/`)
//! [{"input": "1 2\n", "output": "3\n"}, …]        a run each, standard output compared
//! ```
//!
//! Both are judged from outside: a program never sees what its answers are compared with. One that
//! fails a test, raises, runs out of its time or memory, or floods its output is wrong. A sandbox
//! that does not start, or tests that no program could pass or fail, are errors.

mod assertions;

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::process::{Ending, Finished, Streams};
use crate::sandbox::{START, Sandbox, SandboxLimits, SandboxRun, last_line};
use crate::verifier::{LONGEST_S, Verifier, VerifierError};

/// What a user writes to run programs without a sandbox.
pub const UNSANDBOXED_CONSENT: &str =
    "I understand that programs written by a model will run on this machine without a sandbox";

/// Options of the `code` verifier.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeOptions {
    /// Where the row holds the tests, as a dotted path.
    pub tests: String,
    /// The interpreter; `/usr/bin/python3` is tried when it does not work inside the sandbox.
    pub python: String,
    /// What a program may use.
    pub limits: SandboxLimits,
    /// Most input/output tests that are run, from the first.
    pub most_tests: usize,
    /// Whether the score is the share of tests passed.
    pub partial_credit: bool,
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
            partial_credit: false,
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

/// How many of its tests a program passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TestsPassed {
    /// Tests passed.
    pub passed: usize,
    /// Tests there are; at least one.
    pub total: usize,
}

/// When to stop testing a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Its verdict is known.
    FirstFailure,
    /// All tests were run.
    TheEnd,
}

/// For killing what overstayed and removing what it left.
const CLEAN_UP: Duration = Duration::from_secs(3);

impl CodeVerifier {
    /// Finds a sandbox and tries it out.
    pub fn try_new(options: CodeOptions) -> Result<Self, VerifierError> {
        let limits = options.limits;
        for (key, seconds) in
            [("limits.time_s", limits.time_s), ("limits.time_per_test_s", limits.time_per_test_s)]
        {
            if !(seconds > 0.0 && seconds <= LONGEST_S) {
                let problem = format!("{seconds} s is no time to run");
                return Err(VerifierError::BadOption { key, problem });
            }
        }
        let consent = options.allow_unsandboxed.trim();
        if !consent.is_empty() && consent != UNSANDBOXED_CONSENT {
            let problem =
                format!("to run without a sandbox write exactly \"{UNSANDBOXED_CONSENT}\"");
            return Err(VerifierError::BadOption { key: "allow_unsandboxed", problem });
        }
        let sandbox = match Sandbox::find(&options.python, limits) {
            Err(_) if consent == UNSANDBOXED_CONSENT => {
                Sandbox::without_walls(&options.python, limits)
            }
            found => found,
        };
        let sandbox = sandbox.map_err(|problem| VerifierError::NoSandbox { problem })?;
        Ok(Self { options, sandbox })
    }

    /// The same verifier as on a machine where no cgroup is ours; for tests of what then holds.
    #[doc(hidden)]
    #[must_use]
    pub fn without_cgroup(self) -> Self {
        Self { sandbox: self.sandbox.without_cgroup(), ..self }
    }

    /// Runs all tests and counts: for rewards that grow with the share of tests passed. Where there
    /// is no verdict, the outcome says why.
    pub fn tests_passed(&self, problem: &Problem, answer: &Answer) -> Result<TestsPassed, Outcome> {
        self.judge(problem, answer, Until::TheEnd)
    }

    fn judge(
        &self,
        problem: &Problem,
        answer: &Answer,
        until: Until,
    ) -> Result<TestsPassed, Outcome> {
        let tests = problem.field(&self.options.tests).and_then(read_tests).ok_or_else(|| {
            Outcome::error(format!("the row has no tests at `{}`", self.options.tests))
        })?;
        let program = program_of(answer.text().unwrap_or_default());
        match &tests {
            Tests::Assertions(text) => self.assertions(program, text, until),
            Tests::Cases(cases) => self.outputs(program, cases, until),
        }
    }

    fn outputs(
        &self,
        program: &str,
        cases: &[(String, String)],
        until: Until,
    ) -> Result<TestsPassed, Outcome> {
        let limits = self.options.limits;
        let cases = &cases[..cases.len().min(self.options.most_tests.max(1))];
        let end = Instant::now() + Duration::from_secs_f64(limits.time_s);
        let mut passed = 0;
        for (input, wanted) in cases {
            let left = end.saturating_duration_since(Instant::now());
            let time = left.min(Duration::from_secs_f64(limits.time_per_test_s));
            let is_right = !time.is_zero() && {
                let input = Streams::Collected(input.as_bytes());
                let run = self.sandbox.start(&[("program.py", program)], input, time);
                let finished = started(run.and_then(SandboxRun::wait))?;
                finished.ending == Ending::Exited
                    && finished.status.success()
                    && same_output(&String::from_utf8_lossy(&finished.stdout), wanted)
            };
            passed += usize::from(is_right);
            if !is_right && until == Until::FirstFailure {
                break;
            }
        }
        Ok(TestsPassed { passed, total: cases.len() })
    }
}

/// Tells a program that was wrong from a sandbox that never came to it.
fn started(finished: std::io::Result<Finished>) -> Result<Finished, Outcome> {
    let finished = finished
        .map_err(|error| Outcome::error(format!("the sandbox cannot be started: {error}")))?;
    if finished.ending == Ending::NotStarted {
        let last = last_line(&finished.stderr).unwrap_or_else(|| "no message".to_owned());
        return Err(Outcome::error(format!("the sandbox did not start: {last}")));
    }
    Ok(finished)
}

impl Verifier for CodeVerifier {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        let is_partial = self.options.partial_credit;
        let until = if is_partial { Until::TheEnd } else { Until::FirstFailure };
        match self.judge(problem, answer, until) {
            Err(outcome) => outcome,
            Ok(TestsPassed { passed, total }) if is_partial => {
                Outcome::Scored { score: passed as f64 / total as f64, is_correct: passed == total }
            }
            Ok(TestsPassed { passed, total }) => Outcome::of(passed == total),
        }
    }

    fn longest(&self) -> Option<Duration> {
        let time = Duration::from_secs_f64(self.options.limits.time_s);
        Some(START.within + time + CLEAN_UP)
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
fn program_of(answer: &str) -> &str {
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

//! The `code` verifier for tests that need a sandbox.
//!
//! Without bubblewrap they say so and pass, unless SCALERL_REQUIRE_SANDBOX=1, which `make test`
//! sets where bwrap is installed.

#![expect(clippy::print_stdout, reason = "helpers of tests, outside of any test")]

use scalerl_task::verify::code::{CodeOptions, CodeVerifier};
use scalerl_task::{Answer, Problem, SandboxLimits};
use serde_json::Value;

/// Small enough that what is unbounded shows soon.
pub(crate) const LIMITS: SandboxLimits = SandboxLimits {
    time_per_test_s: 4.0,
    time_s: 16.0,
    memory_mib: 256,
    processes: 16,
    output_bytes: 100_000,
};

pub(crate) fn verifier(limits: SandboxLimits) -> Option<CodeVerifier> {
    match CodeVerifier::try_new(CodeOptions { limits, ..CodeOptions::default() }) {
        Ok(verifier) => Some(verifier),
        Err(problem) => {
            let is_required = std::env::var_os("SCALERL_REQUIRE_SANDBOX").is_some();
            assert!(!is_required, "SCALERL_REQUIRE_SANDBOX is set and {problem}");
            println!("SKIPPED, NOTHING IS SHOWN HERE: {problem} (make setup-sandbox)");
            None
        }
    }
}

/// A row with these tests.
pub(crate) fn problem(tests: &Value) -> Problem {
    let mut problem = Problem::with_answer("");
    problem.fields.insert("tests".to_owned(), tests.clone());
    problem
}

/// An answer that contains the program.
pub(crate) fn answer(program: &str) -> Answer {
    Answer::whole(format!("Here:\n```python\n{program}\n```"))
}

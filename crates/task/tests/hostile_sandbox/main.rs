//! Programs that want to be called right without being right, or to reach, fill or outlive what is
//! outside of their sandbox: what a policy would find when it is paid for it, and what a hostile
//! neighbour would try. Each group prints how many of its cases were held; `--nocapture` shows it.

#[path = "../sandboxed/mod.rs"]
mod sandboxed;

mod descriptors;
mod forged;
mod leftovers;
mod memory;
mod neighbours;
mod system_calls;

use sandboxed::{LIMITS, answer, problem, verifier};
use scalerl_task::verify::code::CodeVerifier;
use scalerl_task::{Outcome, Verifier};
use serde_json::{Value, json};

/// One program and what must become of it.
struct Case<'a> {
    name: &'a str,
    program: &'a str,
    tests: Value,
    held: Outcome,
}

impl<'a> Case<'a> {
    /// Must not be called right, and is no error of ours either.
    fn wrong(name: &'a str, tests: impl Into<Value>, program: &'a str) -> Self {
        Self { name, program, tests: tests.into(), held: Outcome::Incorrect }
    }

    /// Must not come to print this.
    fn never_prints(name: &'a str, printed: &str, program: &'a str) -> Self {
        Self::wrong(name, json!([{"input": "", "output": printed}]), program)
    }

    /// Looks around and prints what it found, which must be this.
    fn prints(name: &'a str, wanted: &str, program: &'a str) -> Self {
        let tests = json!([{"input": "", "output": wanted}]);
        Self { name, program, tests, held: Outcome::Correct }
    }
}

/// Runs all cases and says how many were held.
fn hold(group: &str, verifier: &CodeVerifier, cases: &[Case<'_>]) {
    let failed: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let outcome = verifier.verify(&problem(&case.tests), &answer(case.program));
            (outcome != case.held).then(|| format!("{}: {outcome:?}", case.name))
        })
        .collect();
    report(group, cases.len() - failed.len(), cases.len());
    assert!(failed.is_empty(), "{group}: {failed:#?}");
}

#[expect(clippy::print_stdout, reason = "the count is what `make test-hostile` is run for")]
fn report(group: &str, held: usize, of: usize) {
    println!("hostile sandbox: {group}: {held} of {of} held");
}

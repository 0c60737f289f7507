//! Assertions, judged from outside of the program.
//!
//! ```text
//! judge.py, with the tests          ──requests──▶   serve.py, with the program
//! a sandbox, trusted                ◀──values────   another sandbox, not trusted
//!        │
//!        └─ passed and total, on a pipe that only the judge has ─▶ here
//! ```
//!
//! In one interpreter a program could do to assertions whatever it likes: print what a passed test
//! prints and exit, return objects that are equal to everything, patch what compares. Here it has a
//! process of its own and is asked for values. Expected values and the tests' text never reach it,
//! and what it sends is read as plain data (`wire.py`).
//!
//! What can still be beaten is in docs/design/judging-code.md.

use std::io;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::{CodeVerifier, TestsPassed, Until, started};
use crate::outcome::Outcome;
use crate::process::{Finished, Streams, until};
use crate::sandbox::{START, last_line};

/// One file each, so that nothing need be importable inside.
const JUDGE: &str = concat!(
    include_str!("wire.py"),
    "\n\n",
    include_str!("remote.py"),
    "\n\n",
    include_str!("tests.py"),
    "\n\n",
    include_str!("judge.py"),
);
const SERVE: &str = concat!(include_str!("wire.py"), "\n\n", include_str!("serve.py"));

/// For the judge's own work: its clock and ours are not read at the same moment.
const SLACK: Duration = Duration::from_secs(1);

/// The judge's last word.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Report {
    Counted { passed: usize, total: usize },
    BadRow { row: String },
}

impl CodeVerifier {
    pub(super) fn assertions(
        &self,
        program: &str,
        tests: &str,
        until: Until,
    ) -> Result<TestsPassed, Outcome> {
        let ended = self.judge_and_program(program, tests, until);
        let (judge, program) = ended
            .map_err(|error| Outcome::error(format!("the sandbox cannot be started: {error}")))?;
        let judge = started(Ok(judge))?;
        // Whatever became of the judge meanwhile, by its time or by a value that was too large for
        // it: what it reported before that stands.
        let report = last_line(&judge.stderr).unwrap_or_default();
        match serde_json::from_str(&report) {
            Ok(Report::BadRow { row }) => Err(Outcome::error(row)),
            Ok(Report::Counted { passed, total }) => {
                started(Ok(program))?;
                Ok(TestsPassed { passed, total })
            }
            Err(_) => Err(Outcome::error(format!("the judge of assertions failed: {report}"))),
        }
    }

    /// Runs both until the judge has ended; a program whose judge has gone is of no use.
    fn judge_and_program(
        &self,
        program: &str,
        tests: &str,
        stop: Until,
    ) -> io::Result<(Finished, Finished)> {
        let limits = self.options.limits;
        let job = json!({
            "tests": tests,
            "limits": {
                "start_s": START.within.as_secs_f64(),
                "time_s": limits.time_s,
                "time_per_test_s": limits.time_per_test_s,
                "is_first_failure_enough": stop == Until::FirstFailure,
            },
        });
        let time = Duration::from_secs_f64(limits.time_s) + SLACK;
        // Either may have to wait for the other to start before its time begins.
        let most = START.within + time;
        let (values, to_judge) = io::pipe()?;
        let (requests, to_program) = io::pipe()?;
        let connected = |stdin: io::PipeReader, stdout: io::PipeWriter| Streams::Connected {
            stdin: stdin.into(),
            stdout: stdout.into(),
        };
        let files = [("main.py", SERVE), ("program.py", program)];
        let mut served = self.sandbox.start(&files, connected(requests, to_judge), most)?;
        let files = [("main.py", JUDGE), ("tests.json", &job.to_string())];
        let mut judge = self.sandbox.start(&files, connected(values, to_program), most)?;
        let mut end = None;
        until(|| {
            served.poll()?;
            if end.is_none() && served.has_started() && judge.has_started() {
                end = Some(Instant::now() + time);
            }
            // The judge keeps the time itself; it may be lost in what it was given to compare.
            if end.is_some_and(|end| Instant::now() >= end) {
                judge.stop()?;
            }
            judge.poll()
        })?;
        Ok((judge.finish()?, served.finish()?))
    }
}

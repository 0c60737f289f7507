//! Python as a tool: a program that a model wrote is run in the sandbox for what it prints.
//!
//! A program that fails, takes too long or prints too much is an answer too, and the model is told.
//! Only a sandbox that cannot be started is an error.

use std::time::Duration;

use crate::process::{Ending, Streams};
use crate::sandbox::{START, Sandbox, SandboxLimits, SandboxRun};

/// Characters of output that a model is shown.
const LONGEST: usize = 4000;

/// Runs programs one at a time; many threads may do so at once.
#[derive(Debug, Clone)]
pub struct Interpreter {
    sandbox: Sandbox,
    time: Duration,
}

impl Interpreter {
    /// Finds a sandbox and tries it out; the problem in words otherwise.
    pub fn find(limits: SandboxLimits, allow_without_sandbox: bool) -> Result<Self, String> {
        let sandbox = match Sandbox::find("python3", limits) {
            Err(_) if allow_without_sandbox => Sandbox::without_walls("python3", limits),
            found => found,
        }?;
        Ok(Self { sandbox, time: Duration::from_secs_f64(limits.time_s) })
    }

    /// What a program prints, its errors included, cut to what a model can read.
    pub fn run(&self, program: &str) -> Result<String, String> {
        let run =
            self.sandbox.start(&[("program.py", program)], Streams::Collected(b""), self.time);
        let finished = run.and_then(SandboxRun::wait).map_err(|error| error.to_string())?;
        let errors = String::from_utf8_lossy(&finished.stderr);
        let mark = String::from_utf8_lossy(START.mark).trim_end().to_owned();
        let errors: Vec<&str> = errors.lines().filter(|line| *line != mark).collect();
        let printed = String::from_utf8_lossy(&finished.stdout);
        let mut said = printed.trim_end().to_owned();
        let note = match finished.ending {
            Ending::Exited if finished.status.success() => None,
            Ending::Exited => Some(errors.join("\n")),
            Ending::NotStarted => return Err("the sandbox did not start in time".to_owned()),
            Ending::OutOfTime => Some(format!("stopped after {} s", self.time.as_secs_f64())),
            Ending::OutOfMemory => Some("stopped: out of memory".to_owned()),
            Ending::TooMuchOutput => Some("stopped: too much output".to_owned()),
            Ending::Dismissed => Some("stopped".to_owned()),
        };
        if let Some(note) = note {
            if !said.is_empty() {
                said.push('\n');
            }
            said.push_str(note.trim_end());
        }
        Ok(if said.is_empty() { "(nothing was printed)".to_owned() } else { shortened(&said) })
    }
}

/// Both ends of a text that is too long.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= LONGEST {
        return text.to_owned();
    }
    let head: String = text.chars().take(LONGEST / 2).collect();
    let tail: String = text.chars().skip(count - LONGEST / 2).collect();
    format!("{head}\n[{} characters left out]\n{tail}", count - LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_answered_with_what_it_prints_and_how_it_failed() {
        let limits = SandboxLimits { time_s: 2.0, ..SandboxLimits::default() };
        let interpreter = match Interpreter::find(limits, false) {
            Ok(found) => found,
            Err(problem) if std::env::var_os("SCALERL_REQUIRE_SANDBOX").is_some() => {
                panic!("{problem}")
            }
            // Said by the sandbox's own tests.
            Err(_) => return,
        };
        assert_eq!(interpreter.run("print(6 * 7)").unwrap(), "42");
        assert_eq!(interpreter.run("x = 1").unwrap(), "(nothing was printed)");
        let failed = interpreter.run("print('before')\nraise ValueError('why')").unwrap();
        assert!(failed.starts_with("before\n") && failed.ends_with("ValueError: why"), "{failed}");
        assert_eq!(interpreter.run("while True: pass").unwrap(), "stopped after 2 s");
        let long = interpreter.run("print('x' * 9000)").unwrap();
        assert!(long.contains("[5000 characters left out]"), "{}", long.len());
    }
}

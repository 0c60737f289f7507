//! Math-Verify as a second opinion, for what the native grader cannot decide.
//!
//! A pool of Python processes (`process_pool/`) that read one JSON line per comparison and write one
//! back. Math-Verify works only on the main thread of a process and can hang in SymPy; so each process
//! has one thread, its own alarm is off, and a process that does not answer in time is killed and
//! started anew. Its failures are errors, never wrong answers. It inherits nothing but its standard
//! streams: it reads what a model wrote.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::outcome::Outcome;
use crate::process_pool::{PoolOptions, ProcessPool};
use crate::verifier::{LONGEST_S, VerifierError};
use crate::verify::math::{MatchType, MathOptions};

/// Options of the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecondOpinionOptions {
    /// An interpreter in which `import math_verify` works.
    pub python: String,
    /// Processes at once.
    pub processes: usize,
    /// Seconds for one comparison, after which the process is killed.
    pub timeout_s: f64,
}

impl Default for SecondOpinionOptions {
    fn default() -> Self {
        Self { python: "python3".to_owned(), processes: 2, timeout_s: 15.0 }
    }
}

/// The Python side: one line in, one line out.
const SERVER: &str = r#"
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from importlib.metadata import version
from math_verify import (ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig,
                         parse, verify)
out = sys.stdout
sys.stdout = sys.stderr
KINDS = {"latex": LatexExtractionConfig, "expr": ExprExtractionConfig,
         "string": StringExtractionConfig}
out.write(json.dumps({"ready": version("math-verify")}) + "\n")
out.flush()
for line in sys.stdin:
    job = json.loads(line)
    try:
        config = [KINDS[name]() for name in job["match_types"]]
        gold = parse(job["gold"], config, parsing_timeout=None)
        pred = parse(job["pred"], config, parsing_timeout=None)
        reply = {"equal": bool(verify(
            gold, pred, float_rounding=job["precision"], strict=job["strict"],
            allow_set_relation_comp=job["allow_set_relation_comp"], timeout_seconds=None)),
            "read": bool(gold)}
    except Exception as error:
        reply = {"error": type(error).__name__ + ": " + str(error)[:200]}
    out.write(json.dumps({"id": job["id"], **reply}) + "\n")
    out.flush()
"#;

/// Time for Python to start and import SymPy.
const START: Duration = Duration::from_mins(1);

/// A pool of Math-Verify processes.
pub struct SecondOpinion {
    pool: ProcessPool,
    version: String,
}

impl SecondOpinion {
    /// Starts the first process, which shows whether Math-Verify is there.
    pub fn try_new(options: SecondOpinionOptions) -> Result<Self, VerifierError> {
        if !(options.timeout_s > 0.0 && options.timeout_s <= LONGEST_S) {
            let problem = format!("{} s is no time to wait", options.timeout_s);
            return Err(VerifierError::BadOption { key: "second_opinion.timeout_s", problem });
        }
        let python = options.python;
        let missing = VerifierError::NoSecondOpinion {
            problem: format!("`import math_verify` fails in {python}"),
        };
        let pool = ProcessPool::try_new(PoolOptions {
            name: "Math-Verify".to_owned(),
            command: vec![python, "-u".to_owned(), "-c".to_owned(), SERVER.to_owned()],
            setup: None,
            start: Some(START),
            time: Duration::from_secs_f64(options.timeout_s),
            processes: options.processes,
            log: None,
        });
        let Ok(pool) = pool else { return Err(missing) };
        let Some(version) = pool.hello()["ready"].as_str().map(str::to_owned) else {
            return Err(missing);
        };
        Ok(Self { pool, version })
    }

    /// Math-Verify's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Math-Verify's verdict.
    pub fn compare(&self, gold: &str, pred: &str, options: &MathOptions) -> Outcome {
        match self.pool.ask(request(gold, pred, options)) {
            Ok(reply) => judge(&reply),
            Err(problem) => Outcome::error(problem),
        }
    }
}

/// Without match types the native grader takes a bare gold answer whole; Math-Verify wants
/// LaTeX marked as such.
fn request(gold: &str, pred: &str, options: &MathOptions) -> Map<String, Value> {
    let types = &options.match_types;
    let is_free = types.is_empty();
    let names = if is_free { &[MatchType::Latex, MatchType::Expr][..] } else { types };
    let marked = |text: &str| {
        let is_bare = is_free
            && text.len() <= 400
            && !text.contains(['$', '\n'])
            && !text.contains("\\boxed");
        if is_bare { format!("${text}$") } else { text.to_owned() }
    };
    let question = [
        ("gold", json!(marked(gold))),
        ("pred", json!(marked(pred))),
        ("match_types", json!(names)),
        ("precision", json!(options.precision)),
        ("strict", json!(options.strict)),
        ("allow_set_relation_comp", json!(options.allow_set_relation_comp)),
    ];
    question.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

fn judge(reply: &Value) -> Outcome {
    if let Some(problem) = reply["error"].as_str() {
        return Outcome::error(format!("Math-Verify failed: {problem}"));
    }
    match (reply["equal"].as_bool(), reply["read"].as_bool()) {
        (Some(true), _) => Outcome::Correct,
        (Some(false), Some(true)) => Outcome::Incorrect,
        (Some(false), _) => Outcome::undecided("Math-Verify cannot read the gold answer"),
        (None, _) => Outcome::error("Math-Verify's reply has no verdict"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interpreter_is_named() {
        let options = SecondOpinionOptions {
            python: "no-such-python".into(),
            ..SecondOpinionOptions::default()
        };
        let Err(error) = SecondOpinion::try_new(options) else { panic!("it cannot be there") };
        assert!(error.to_string().contains("no-such-python"), "{error}");
    }

    /// A pool whose interpreter is a shell script.
    fn pool_of(script: &str, timeout_s: f64) -> (tempfile::TempDir, SecondOpinion) {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python").to_str().unwrap().to_owned();
        // Written by another process: a child that is forked here meanwhile would hold the file
        // open, and what is open for writing cannot be run.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod +x \"$2\"";
        let status =
            std::process::Command::new("sh").args(["-c", write, "sh", script, &python]).status();
        assert!(status.unwrap().success());
        let options = SecondOpinionOptions { python, timeout_s, ..SecondOpinionOptions::default() };
        (folder, SecondOpinion::try_new(options).unwrap())
    }

    #[test]
    fn a_process_inherits_nothing_but_its_streams() {
        let (reader, _writer) = std::io::pipe().unwrap();
        rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let script = format!(
            "[ -e /proc/self/fd/{number} ] && found=leaked || found=nothing\n\
             echo '{{\"ready\": \"'$found'\"}}'; cat >/dev/null"
        );
        let (_folder, pool) = pool_of(&script, 1.0);
        assert_eq!(pool.version(), "nothing");
    }

    #[test]
    fn a_process_that_neither_reads_nor_answers_is_given_up() {
        let long = "x".repeat(1 << 20);
        for (script, said) in [
            ("sleep 30", "no answer within"),
            ("exit 0", "has ended"),
            ("head -c 30000000 /dev/zero; sleep 30", "has ended"),
            ("head -c 10 >/dev/null; echo nonsense; sleep 30", "broken"),
        ] {
            let (_folder, pool) = pool_of(&format!("echo '{{\"ready\": \"1\"}}'; {script}"), 1.0);
            let outcome = pool.compare("1", &long, &MathOptions::default());
            let Outcome::Error { reason } = outcome else { panic!("{script}: {outcome:?}") };
            assert!(reason.contains(said), "{script}: {reason}");
        }
    }
}

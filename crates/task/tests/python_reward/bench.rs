//! A reward file in a folder of its own, and its judge.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_recipe::{Recipe, Source, Verifier};
use scalerl_task::{
    Answer, Message, Outcome, Problem, Resources, VerifierError, VerifierPool, verifier,
};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A file `reward.py` and what its judge prints.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    keys: String,
}

impl Bench {
    /// With further keys of the verifier, each preceded by a comma.
    pub(crate) fn new(text: &str, keys: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("reward.py"), text).unwrap();
        Self { folder, keys: keys.to_owned() }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("reward.py")
    }

    pub(crate) fn choice(&self) -> Verifier {
        let file = self.file().display().to_string();
        let text =
            format!("[task]\nverifier = {{ type = \"python\", file = \"{file}\"{} }}\n", self.keys);
        let source = Source::Text { name: "test".into(), text };
        Recipe::load(&[source], &[]).unwrap().task.verifier.clone()
    }

    pub(crate) fn judge(&self) -> VerifierPool {
        self.try_judge().unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_judge(&self) -> Result<VerifierPool, VerifierError> {
        let choice = self.choice();
        let resources = Resources::of_one(&choice, DEADLINE)?;
        resources.log.keep_at(&self.folder.path().join("verifier.log"));
        Ok(VerifierPool::new(verifier::build(&choice, &resources)?, 1, DEADLINE))
    }

    /// What is printed arrives beside the verdicts, and maybe after them.
    pub(crate) fn await_in_log(&self, words: &str) {
        let deadline = Instant::now() + DEADLINE;
        let log =
            || std::fs::read_to_string(self.folder.path().join("verifier.log")).unwrap_or_default();
        while !log().contains(words) {
            assert!(Instant::now() < deadline, "`{words}` is missing in {}", log());
            std::thread::yield_now();
        }
    }
}

/// A row of a data set, asked in a conversation.
pub(crate) fn row(fields: &Value) -> Problem {
    let problem = Problem::plain("", fields["answer"].as_str().unwrap_or("")).named("sums", 7);
    let messages = vec![Message::new("system", "Be brief."), Message::new("user", "1 + 1?")];
    Problem { messages, fields: fields.as_object().unwrap().clone(), ..problem }
}

/// Of a completion that is all answer, to a row with the answer 2.
pub(crate) fn ask(judge: &VerifierPool, completion: &str) -> Outcome {
    judge.verify(Arc::new(row(&json!({"answer": "2"}))), Answer::whole(completion))
}

pub(crate) fn scored(score: f64) -> Outcome {
    Outcome::Scored { score, is_correct: score >= 0.5 }
}

pub(crate) fn error(outcome: Outcome) -> String {
    match outcome {
        Outcome::Error { reason } => reason,
        other => panic!("no error: {other:?}"),
    }
}

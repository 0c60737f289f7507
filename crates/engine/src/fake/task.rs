//! Prompts in a fixed order, and a grader that reads what the fake generator wrote.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use scalerl_rollout::{
    Completion, Draw, DrawnPrompt, Grader, GraderError, PassRecord, Prompt, PromptId, PromptSource,
    Reward, SourceError,
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{Delays, unit};
use crate::settings::mix;

/// `count` prompts named after `dataset`.
pub fn fake_prompts(dataset: &str, count: u64) -> Vec<Prompt> {
    let prompt = |row: u64| Prompt {
        id: PromptId(format!("{dataset}/{row}")),
        dataset: dataset.into(),
        text: format!("problem {row}"),
        token_ids: vec![1, row as u32],
        answer: "right".into(),
    };
    (0..count).map(prompt).collect()
}

/// Hands prompts out epoch by epoch; solved ones no more, where a threshold is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FakePrompts {
    count: u64,
    next: u64,
    threshold: Option<f64>,
    solved: BTreeSet<PromptId>,
    /// Records so far: a record that came twice or not at all would show here.
    records: u64,
}

impl FakePrompts {
    /// All prompts, always.
    pub fn new(count: u64) -> Self {
        Self { count, next: 0, threshold: None, solved: BTreeSet::new(), records: 0 }
    }

    /// Prompts whose pass rate has reached `threshold` come no more.
    pub fn without_solved(count: u64, threshold: f64) -> Self {
        Self { threshold: Some(threshold), ..Self::new(count) }
    }
}

impl PromptSource for FakePrompts {
    fn next(&mut self) -> Result<Option<DrawnPrompt>, SourceError> {
        let prompts = fake_prompts("fake", self.count);
        for _ in 0..self.count {
            let (epoch, position) = (self.next / self.count, self.next % self.count);
            self.next += 1;
            let prompt = &prompts[position as usize];
            if !self.solved.contains(&prompt.id) {
                let draw = Draw { dataset: 0, epoch, position };
                return Ok(Some(DrawnPrompt { draw, prompt: prompt.clone() }));
            }
        }
        Ok(None)
    }

    fn record(
        &mut self,
        prompt: &PromptId,
        record: PassRecord,
    ) -> Result<Option<PassRecord>, SourceError> {
        self.records += 1;
        let rate = f64::from(record.passed) / f64::from(record.judged.max(1));
        if self.threshold.is_some_and(|threshold| rate >= threshold) {
            self.solved.insert(prompt.clone());
        }
        Ok(None)
    }

    fn state(&self) -> Result<serde_json::Value, SourceError> {
        serde_json::to_value(self).map_err(|error| SourceError { reason: error.to_string() })
    }

    fn restore(&mut self, state: serde_json::Value) -> Result<(), SourceError> {
        *self = serde_json::from_value(state)
            .map_err(|error| SourceError { reason: error.to_string() })?;
        Ok(())
    }
}

/// Finds "right" right, after a while.
#[derive(Debug)]
pub struct FakeGrader {
    timing_seed: u64,
    longest: Duration,
    calls: AtomicU64,
    /// Share of completions on which it fails, and on which it never answers.
    fails: f64,
    hangs: f64,
    /// Of the data set on which it always fails.
    broken_for: Option<String>,
}

impl FakeGrader {
    /// A verdict takes up to `longest`.
    pub fn new(timing_seed: u64, longest: Duration) -> Self {
        Self {
            timing_seed,
            longest,
            calls: AtomicU64::new(0),
            fails: 0.0,
            hangs: 0.0,
            broken_for: None,
        }
    }

    /// The same, failing on some completions and never answering on others.
    #[must_use]
    pub fn with_failures(self, fails: f64, hangs: f64) -> Self {
        Self { fails, hangs, ..self }
    }

    /// The same, failing on every completion of a data set.
    #[must_use]
    pub fn broken_for(self, dataset: Option<&str>) -> Self {
        Self { broken_for: dataset.map(str::to_owned), ..self }
    }
}

impl Grader for FakeGrader {
    fn deadline(&self, _: &Prompt, usual: Duration) -> Duration {
        usual.max(self.longest + Duration::from_secs(1))
    }

    async fn grade(&self, prompt: &Prompt, completion: &Completion) -> Result<Reward, GraderError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let timing = mix(self.timing_seed, "verdict", call);
        sleep(Delays::new(timing, self.longest).draw()).await;
        // Which completions fail depends on what was written, not on when.
        let tokens = completion.token_ids.iter().copied().map(u64::from);
        let luck = unit(tokens.fold(7, |sum, token| mix(sum, "luck", token)));
        let is_broken = self.broken_for.as_deref() == Some(&*prompt.dataset);
        if is_broken || luck < self.fails {
            return Err(GraderError { reason: "as told".into() });
        }
        if luck < self.fails + self.hangs {
            std::future::pending::<()>().await;
        }
        let is_correct = completion.text == "right";
        Ok(Reward { value: if is_correct { 1.0 } else { -1.0 }, is_correct })
    }
}

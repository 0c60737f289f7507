//! The pass-rate history of every prompt, and what follows from it.
//!
//! Each time a group is judged its pass rate is recorded, before any filter decides about the
//! group: the record is what was seen, not what was trained on. No-Positive-Resampling
//! (arXiv 2510.13786, section 3) then never samples a prompt again that has once reached the
//! threshold. Completions whose verifier failed count neither way.

use std::collections::BTreeMap;

use scalerl_recipe::Curriculum as Choice;
use scalerl_rollout::{PassRecord, PromptId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// More right completions than completions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("prompt {prompt}: {passed} right completions of {judged}")]
#[expect(missing_docs, reason = "the message names the fields")]
pub struct ImpossibleRecord {
    pub prompt: String,
    pub passed: u32,
    pub judged: u32,
}

/// The history of all prompts, by prompt id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curriculum {
    history: BTreeMap<PromptId, Vec<PassRecord>>,
}

impl Curriculum {
    /// Records what a group showed; returns what the prompt's last one did.
    pub fn record(
        &mut self,
        prompt: &PromptId,
        record: PassRecord,
    ) -> Result<Option<PassRecord>, ImpossibleRecord> {
        let PassRecord { passed, judged, .. } = record;
        if passed > judged {
            return Err(ImpossibleRecord { prompt: prompt.0.clone(), passed, judged });
        }
        let records = self.history.entry(prompt.clone()).or_default();
        let last = records.last().copied();
        records.push(record);
        Ok(last)
    }

    /// Whether a prompt is to be sampled no more.
    pub fn is_excluded(&self, prompt: &PromptId, choice: &Choice) -> bool {
        match choice {
            Choice::None => false,
            Choice::NoPositiveResampling { threshold } => {
                let records = self.history.get(prompt).map_or(&[][..], Vec::as_slice);
                records.iter().filter_map(PassRecord::rate).any(|rate| rate >= *threshold)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NPR: Choice = Choice::NoPositiveResampling { threshold: 0.9 };

    fn seen(step: u64, passed: u32, judged: u32) -> PassRecord {
        PassRecord { step, passed, judged }
    }

    fn id(name: &str) -> PromptId {
        PromptId(name.into())
    }

    #[test]
    fn a_prompt_that_once_reached_the_threshold_stays_out() {
        let mut curriculum = Curriculum::default();
        curriculum.record(&id("a"), seen(1, 14, 16)).unwrap();
        assert!(!curriculum.is_excluded(&id("a"), &NPR));
        curriculum.record(&id("a"), seen(2, 9, 10)).unwrap();
        curriculum.record(&id("a"), seen(3, 0, 16)).unwrap();
        assert!(curriculum.is_excluded(&id("a"), &NPR));
        assert!(!curriculum.is_excluded(&id("a"), &Choice::None));
        assert!(!curriculum.is_excluded(&id("never seen"), &NPR));
    }

    #[test]
    fn a_group_whose_verifier_failed_says_nothing() {
        let mut curriculum = Curriculum::default();
        curriculum.record(&id("a"), seen(1, 0, 0)).unwrap();
        assert!(!curriculum.is_excluded(&id("a"), &NPR));
        assert!(curriculum.record(&id("a"), seen(1, 2, 1)).is_err());
    }

    #[test]
    fn the_history_survives_being_written_down() {
        let mut curriculum = Curriculum::default();
        curriculum.record(&id("set/1"), seen(4, 1, 2)).unwrap();
        let text = serde_json::to_string(&curriculum).unwrap();
        assert_eq!(text, r#"{"history":{"set/1":[{"step":4,"passed":1,"judged":2}]}}"#);
        assert_eq!(serde_json::from_str::<Curriculum>(&text).unwrap(), curriculum);
    }
}

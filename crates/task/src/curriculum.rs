//! The pass-rate history of every prompt, and what follows from it.
//!
//! Each time a group is judged its pass rate is recorded, before any filter decides about the
//! group: the record is what was seen, not what was trained on. No-Positive-Resampling
//! (arXiv 2510.13786, section 3) then never samples a prompt again that has once reached the
//! threshold. Completions whose verifier failed count neither way.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::record::write_json;

/// What was seen of one prompt at one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRecord {
    /// The optimizer step whose weights were being trained when the group was judged.
    pub step: u64,
    /// Right completions.
    pub passed: u32,
    /// Judged completions, right or wrong.
    pub judged: u32,
}

impl PassRecord {
    /// Share of right completions; `None` when none was judged.
    pub fn rate(&self) -> Option<f64> {
        (self.judged > 0).then(|| f64::from(self.passed) / f64::from(self.judged))
    }
}

/// Which prompts are no longer sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "type", rename_all = "kebab-case")]
pub enum CurriculumConfig {
    /// All prompts, always.
    None,
    /// Not those that once reached `threshold`.
    NoPositiveResampling {
        /// The pass rate from which a prompt counts as solved.
        #[serde(default = "nine_tenths")]
        threshold: f64,
    },
}

/// The paper's threshold, section 3.
fn nine_tenths() -> f64 {
    0.9
}

/// Why a curriculum cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CurriculumError {
    /// The file.
    #[error("{path}: {problem}")]
    BadFile { path: PathBuf, problem: String },
    /// More right completions than completions.
    #[error("prompt {prompt}: {passed} right completions of {judged}")]
    Impossible { prompt: String, passed: u32, judged: u32 },
}

/// The history of all prompts, by prompt id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curriculum {
    history: BTreeMap<String, Vec<PassRecord>>,
}

impl Curriculum {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records what a group showed.
    pub fn record(&mut self, prompt: &str, record: PassRecord) -> Result<(), CurriculumError> {
        let PassRecord { passed, judged, .. } = record;
        if passed > judged {
            return Err(CurriculumError::Impossible { prompt: prompt.to_owned(), passed, judged });
        }
        self.history.entry(prompt.to_owned()).or_default().push(record);
        Ok(())
    }

    /// What was seen of a prompt, oldest first.
    pub fn history(&self, prompt: &str) -> &[PassRecord] {
        self.history.get(prompt).map_or(&[], Vec::as_slice)
    }

    /// Whether a prompt is to be sampled no more.
    pub fn is_excluded(&self, prompt: &str, config: CurriculumConfig) -> bool {
        match config {
            CurriculumConfig::None => false,
            CurriculumConfig::NoPositiveResampling { threshold } => self
                .history(prompt)
                .iter()
                .filter_map(PassRecord::rate)
                .any(|rate| rate >= threshold),
        }
    }

    /// How many prompts are excluded.
    pub fn excluded(&self, config: CurriculumConfig) -> usize {
        self.history.keys().filter(|prompt| self.is_excluded(prompt, config)).count()
    }

    /// Writes the history, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), CurriculumError> {
        write_json(path, self).map_err(|error| bad(path, &error))
    }

    /// Reads a saved history.
    pub fn load(path: &Path) -> Result<Self, CurriculumError> {
        let text = scalerl_files::read_to_string(path, scalerl_files::TABLE)
            .map_err(|error| bad(path, &error))?;
        serde_json::from_str(&text).map_err(|error| bad(path, &error))
    }

    /// One CSV line per record: `prompt,step,passed,judged,rate`.
    pub fn export(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["prompt", "step", "passed", "judged", "rate"])?;
        for (prompt, records) in &self.history {
            for record in records {
                let rate = record.rate().map_or_else(String::new, |rate| rate.to_string());
                let PassRecord { step, passed, judged } = record;
                let cells = [step.to_string(), passed.to_string(), judged.to_string(), rate];
                csv.write_record(std::iter::once(prompt.clone()).chain(cells))?;
            }
        }
        csv.flush()
    }
}

fn bad(path: &Path, problem: &dyn std::fmt::Display) -> CurriculumError {
    CurriculumError::BadFile { path: path.to_owned(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NPR: CurriculumConfig = CurriculumConfig::NoPositiveResampling { threshold: 0.9 };

    fn seen(step: u64, passed: u32, judged: u32) -> PassRecord {
        PassRecord { step, passed, judged }
    }

    #[test]
    fn a_prompt_that_once_reached_the_threshold_stays_out() {
        let mut curriculum = Curriculum::new();
        curriculum.record("a", seen(1, 14, 16)).unwrap();
        assert!(!curriculum.is_excluded("a", NPR));
        curriculum.record("a", seen(2, 9, 10)).unwrap();
        curriculum.record("a", seen(3, 0, 16)).unwrap();
        assert!(curriculum.is_excluded("a", NPR));
        assert!(!curriculum.is_excluded("a", CurriculumConfig::None));
        assert!(!curriculum.is_excluded("never seen", NPR));
        assert_eq!(curriculum.excluded(NPR), 1);
    }

    #[test]
    fn a_group_whose_verifier_failed_says_nothing() {
        let mut curriculum = Curriculum::new();
        curriculum.record("a", seen(1, 0, 0)).unwrap();
        assert!(!curriculum.is_excluded("a", NPR));
        assert!(curriculum.record("a", seen(1, 2, 1)).is_err());
    }

    #[test]
    fn the_history_survives_saving_and_is_exported() {
        let mut curriculum = Curriculum::new();
        curriculum.record("set/1", seen(4, 1, 2)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/curriculum.json");
        curriculum.save(&path).unwrap();
        assert_eq!(Curriculum::load(&path).unwrap(), curriculum);
        let mut csv = Vec::new();
        curriculum.export(&mut csv).unwrap();
        assert_eq!(
            String::from_utf8(csv).unwrap(),
            "prompt,step,passed,judged,rate\nset/1,4,1,2,0.5\n"
        );
    }
}

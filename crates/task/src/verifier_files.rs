//! Files of code that verifiers run, as they were when the run began.
//!
//! A reward that changes half-way makes the second half of a curve another experiment. So the text is
//! read once, every process is started from it, the run keeps it in its folder, and a resume with another
//! text is refused by the first line that differs.
//!
//! Not here: modules that such a file imports, and files of `program` verifiers: those are read by
//! whoever runs them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use scalerl_recipe::Verifier as Choice;

use crate::data::ProblemsChanged;
use crate::verifier::VerifierError;

/// One file, by its path as in the recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierFile {
    /// The path.
    pub path: String,
    /// What stood in it.
    pub text: Arc<str>,
}

/// All files of a run's verifiers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifierFiles(BTreeMap<String, Arc<str>>);

impl VerifierFiles {
    /// Reads the file that this choice names, if it names one.
    pub(crate) fn add(&mut self, choice: &Choice) -> Result<(), VerifierError> {
        if let Choice::Python { file, .. } = choice {
            self.0.insert(file.clone(), read(file)?);
        }
        Ok(())
    }

    /// One of them.
    pub(crate) fn get(&self, path: &str) -> Result<VerifierFile, VerifierError> {
        let text = self.0.get(path).map_or_else(|| read(path), |text| Ok(Arc::clone(text)))?;
        Ok(VerifierFile { path: path.to_owned(), text })
    }

    /// Records them, where there are any.
    pub(crate) fn save(&self, path: &Path) -> Result<(), ProblemsChanged> {
        if self.0.is_empty() {
            return Ok(());
        }
        let texts: BTreeMap<&str, &str> =
            self.0.iter().map(|(path, text)| (path.as_str(), &**text)).collect();
        crate::record::write_json(path, &texts).map_err(|error| ProblemsChanged::BadRecord {
            path: path.to_owned(),
            problem: crate::record::problem(&error),
        })
    }

    /// Refuses files other than the recorded ones, by the first that differs.
    pub(crate) fn check(&self, path: &Path) -> Result<(), ProblemsChanged> {
        let bad = |problem: String| ProblemsChanged::BadRecord { path: path.to_owned(), problem };
        let text = scalerl_files::read_to_string(path, scalerl_files::DOCUMENT)
            .map_err(|error| bad(error.to_string()))?;
        let recorded: BTreeMap<String, String> =
            serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        for (file, now) in &self.0 {
            if let Some(before) = recorded.get(file).filter(|before| before.as_str() != &**now) {
                let same = before.lines().zip(now.lines()).take_while(|(a, b)| a == b).count();
                return Err(ProblemsChanged::VerifierFile { file: file.clone(), line: same + 1 });
            }
        }
        Ok(())
    }
}

fn read(path: &str) -> Result<Arc<str>, VerifierError> {
    let text = scalerl_files::read_to_string(Path::new(path), scalerl_files::DOCUMENT);
    text.map(Into::into).map_err(|error| VerifierError::BadReward {
        key: "file",
        problem: format!("{path} cannot be read: {error}"),
    })
}

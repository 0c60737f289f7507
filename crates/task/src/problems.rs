//! A recipe's `[task]` and `[evaluation]` as problems to train on, sets that are measured, and
//! verifiers.
//!
//! Data sets are read or made, the prompts to hold out are drawn once and recorded in the run's
//! folder, and whatever is measured is taken out of what is trained on.
//!
//! Not here: the verifiers of the data sets (`problems/verifiers.rs`); the prompts as a model reads them
//! (`prompts.rs`).

mod verifiers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use scalerl_recipe::{DataSource, Dataset, Recipe};
use thiserror::Error;

use crate::data::{
    AnswerColumn, DataError, Files, Fingerprints, HeldOut, Pool, ProblemsChanged, SplitError,
    read_problems, seeds, without_measured,
};
use crate::problem::Problem;
use crate::process_pool::VerifierLog;
use crate::synthetic::{Synthetic, SyntheticError};
use crate::verifier::{Resources, VerifierError};
use crate::verifier_files::VerifierFiles;
use crate::worker::VerifierPool;

/// The prompts set apart, by the name the recipe gives them.
pub const HELD_OUT: &str = "held-out";

/// Why a recipe's problems cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ProblemsError {
    /// Nothing to train on.
    #[error("the recipe names no data: task.datasets is empty")]
    NoData,
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("data set `{name}`: {source}")]
    Synthetic { name: String, source: SyntheticError },
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error("data set `{name}`: {source}")]
    Verifier { name: String, source: VerifierError },
    /// Not what the run was started with.
    #[error(transparent)]
    Changed(#[from] ProblemsChanged),
    /// Everything was held out or is measured.
    #[error("no prompts are left to train on: {read} were read, {measured} are measured")]
    NothingLeft { read: usize, measured: usize },
}

impl ProblemsError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoData => {
                "add a [[task.datasets]] with name and source; docs/tasks.md has examples"
            }
            Self::Data(error) => error.hint(),
            Self::Synthetic { source, .. } => source.hint(),
            Self::Split(error) => error.hint(),
            Self::Verifier { source, .. } => source.hint(),
            Self::Changed(error) => error.hint(),
            Self::NothingLeft { .. } => "hold fewer prompts out (task.held_out), or give more data",
        }
    }
}

/// What a run asks, measures and judges with; not yet as tokens.
pub struct Problems {
    /// Problems to train on.
    pub pool: Pool,
    /// Problems to measure on, by the name of their set.
    pub evaluation: Vec<(String, Vec<Problem>)>,
    /// The judge of each data set.
    pub verifiers: BTreeMap<String, Arc<VerifierPool>>,
    /// Problems that were left out of training because they are measured.
    pub duplicates: usize,
    /// To be kept with the run.
    pub record: ProblemsRecord,
}

/// What a run keeps of its problems for a resume.
#[derive(Debug, Clone)]
pub struct ProblemsRecord {
    /// Which problems were held out.
    split: Option<HeldOut>,
    /// Of everything that was read.
    fingerprints: Fingerprints,
    /// What verifiers run.
    files: VerifierFiles,
    /// What they print.
    log: VerifierLog,
}

/// Beside the record of what is held out.
const FINGERPRINTS: &str = "problems.fingerprints";
const VERIFIER_FILES: &str = "verifier_files.json";
const VERIFIER_LOG: &str = "verifier.log";

impl ProblemsRecord {
    /// Writes what `path` and its neighbours do not hold yet; what verifiers print goes there too from
    /// now on.
    pub fn save(&self, path: &Path) -> Result<(), ProblemsError> {
        let fingerprints = path.with_file_name(FINGERPRINTS);
        if !fingerprints.exists() {
            self.fingerprints.save(&fingerprints)?;
        }
        if let Some(split) = self.split.as_ref().filter(|_| !path.exists()) {
            split.save(path)?;
        }
        let files = path.with_file_name(VERIFIER_FILES);
        if !files.exists() {
            self.files.save(&files)?;
        }
        self.log.keep_at(&path.with_file_name(VERIFIER_LOG));
        Ok(())
    }
}

impl Problems {
    /// Reads, makes and separates everything. Problems are held out as `record` says, where it
    /// exists, and must then be what they were; verifiers get `workers` threads a data set. Nothing
    /// is written.
    pub fn load(recipe: &Recipe, record: &Path, workers: usize) -> Result<Self, ProblemsError> {
        let task = &recipe.task;
        if task.datasets.is_empty() {
            return Err(ProblemsError::NoData);
        }
        let mut all = Vec::new();
        for dataset in &task.datasets {
            all.extend(problems_of(dataset, recipe)?);
        }
        let mut evaluation = Vec::new();
        for dataset in &recipe.evaluation.datasets {
            evaluation.push((dataset.name.clone(), problems_of(dataset, recipe)?));
        }
        let fingerprints = fingerprints(&all, &evaluation, record)?;
        let read = all.len();
        let measured: Vec<&Problem> =
            evaluation.iter().flat_map(|(_, problems)| problems).collect();
        let all = without_measured(all, &measured);
        let duplicates = read - all.len();
        let split = hold_out(recipe, record, &all)?;
        let (training, held_out) = match &split {
            Some(split) => split.apply(all),
            None => (all, Vec::new()),
        };
        if !held_out.is_empty() {
            evaluation.insert(0, (HELD_OUT.to_owned(), held_out));
        }
        if training.is_empty() {
            let measured = evaluation.iter().map(|(_, problems)| problems.len()).sum();
            return Err(ProblemsError::NothingLeft { read, measured });
        }
        let resources =
            verifiers::resources(recipe, &record.with_file_name(VERIFIER_FILES), workers)?;
        let verifiers = verifiers::start(recipe, &resources)?;
        let measured = evaluation.iter().flat_map(|(_, problems)| problems);
        verifiers::check(&verifiers, training.iter().chain(measured))?;
        let pool = by_dataset(&task.datasets, training)?;
        let Resources { files, log, .. } = resources;
        let record = ProblemsRecord { split, fingerprints, files, log };
        Ok(Self { pool, evaluation, verifiers, duplicates, record })
    }

    /// Problems to train on alone, without a judge.
    #[cfg(test)]
    pub(crate) fn of_pool(pool: Pool) -> Self {
        let (evaluation, verifiers) = (Vec::new(), BTreeMap::new());
        let record = ProblemsRecord {
            split: None,
            fingerprints: Fingerprints::of([]),
            files: VerifierFiles::default(),
            log: VerifierLog::default(),
        };
        Self { pool, evaluation, verifiers, duplicates: 0, record }
    }
}

/// Of everything that was read, which must be what is on record.
fn fingerprints(
    all: &[Problem],
    evaluation: &[(String, Vec<Problem>)],
    record: &Path,
) -> Result<Fingerprints, ProblemsChanged> {
    let measured = evaluation.iter().flat_map(|(_, problems)| problems);
    let found = Fingerprints::of(all.iter().chain(measured));
    let recorded = record.with_file_name(FINGERPRINTS);
    if recorded.exists() {
        found.check(&Fingerprints::load(&recorded)?)?;
    }
    Ok(found)
}

fn hold_out(
    recipe: &Recipe,
    record: &Path,
    all: &[Problem],
) -> Result<Option<HeldOut>, ProblemsError> {
    let count = recipe.task.held_out as usize;
    if count == 0 {
        return Ok(None);
    }
    let held = if record.exists() {
        HeldOut::load(record, all)?
    } else {
        HeldOut::draw(all, count, recipe.task.seed)?
    };
    Ok(Some(held))
}

fn by_dataset(datasets: &[Dataset], training: Vec<Problem>) -> Result<Pool, DataError> {
    let mut sets: Vec<(String, f64, Vec<Problem>)> =
        datasets.iter().map(|set| (set.name.clone(), set.weight, Vec::new())).collect();
    for problem in training {
        if let Some((_, _, problems)) = sets.iter_mut().find(|(name, ..)| *name == problem.dataset)
        {
            problems.push(problem);
        }
    }
    Pool::try_new(sets)
}

/// Reads or makes the problems of one data set.
pub fn problems_of(dataset: &Dataset, recipe: &Recipe) -> Result<Vec<Problem>, ProblemsError> {
    let name = &dataset.name;
    let limit = dataset.limit.map(|limit| limit as usize);
    match &dataset.source {
        DataSource::Files {
            path,
            split,
            prompt_column,
            answer_column,
            answer_after,
            answer_boxed,
        } => {
            let answer =
                AnswerColumn { name: answer_column, after: answer_after, is_boxed: *answer_boxed };
            let files = Files { path: Path::new(path), split, prompt_column, answer, limit };
            Ok(read_problems(name, &files, &recipe.task.prompt)?)
        }
        DataSource::Seeds { prompt, count } => {
            let count = limit.unwrap_or(usize::MAX).min(*count as usize);
            Ok(seeds(name, prompt, count, &recipe.task.prompt)?)
        }
        DataSource::Chain { count, .. }
        | DataSource::Arithmetic { count, .. }
        | DataSource::Countdown { count, .. }
        | DataSource::Store { count, .. } => {
            let task = Synthetic::of_source(&dataset.source).expect("neither files nor seeds");
            let count = limit.unwrap_or(usize::MAX).min(*count as usize);
            task.problems(name, recipe.task.seed, count)
                .map_err(|source| ProblemsError::Synthetic { name: name.clone(), source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use crate::outcome::Outcome;
    use crate::verifier;
    use scalerl_recipe::Source;
    use std::time::Duration;

    fn load(text: &str, folder: &Path) -> Result<Problems, ProblemsError> {
        let source = Source::Text { name: "test".into(), text: text.into() };
        let recipe = Recipe::load(&[source], &[]).unwrap();
        Problems::load(&recipe, &folder.join("held_out.json"), 1)
    }

    const CHAIN: &str = "[task]\nheld_out = 20\n[[task.datasets]]\nname = \"sums\"\n\
                         source = { type = \"chain\", count = 100 }\n";

    #[test]
    fn synthetic_problems_are_held_out_once_and_bring_their_judge() {
        let folder = tempfile::tempdir().unwrap();
        let problems = load(CHAIN, folder.path()).unwrap();
        let record = folder.path().join("held_out.json");
        assert!(!record.exists(), "reading writes nothing");
        problems.record.save(&record).unwrap();
        assert_eq!(problems.pool.problems().count(), 80);
        let (name, held) = &problems.evaluation[0];
        assert_eq!((name.as_str(), held.len()), (HELD_OUT, 20));
        // The record decides, whatever seed or number a later recipe has.
        let other = CHAIN.replace("held_out = 20", "held_out = 30");
        let again = load(&other, folder.path()).unwrap();
        assert_eq!(*held, again.evaluation[0].1);
        let right = Answer::whole(held[0].answer.clone());
        let verdict = problems.verifiers["sums"].verify(Arc::new(held[0].clone()), right);
        assert_eq!(verdict, Outcome::Correct);
    }

    #[test]
    fn rows_of_a_file_become_problems_and_measured_ones_leave_training() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, rows: &[(&str, &str)]| {
            let line = |(q, a): &(&str, &str)| {
                serde_json::json!({"question": q, "solution": a}).to_string() + "\n"
            };
            std::fs::write(folder.path().join(name), rows.iter().map(line).collect::<String>())
                .unwrap();
            folder.path().join(name).display().to_string()
        };
        let train = write("train.jsonl", &[("1+1?", "so #### 2"), ("1+2?", "so #### 3")]);
        let test = write("test.jsonl", &[("1+2?", "#### 3")]);
        let source = |path: &str| {
            format!(
                "source = {{ type = \"files\", path = \"{path}\", prompt_column = \"question\", \
                 answer_column = \"solution\", answer_after = \"####\" }}"
            )
        };
        let text = format!(
            "[task]\nheld_out = 0\nprompt = {{ type = \"chat\", system = \"Be brief.\", user = \
             \"Q: {{prompt}}\" }}\n[[task.datasets]]\nname = \"a\"\n{}\n[evaluation]\nprimary = \
             \"b\"\n[[evaluation.datasets]]\nname = \"b\"\n{}\n",
            source(&train),
            source(&test),
        );
        let problems = load(&text, folder.path()).unwrap();
        assert_eq!(problems.duplicates, 1);
        let problem = problems.pool.problems().next().unwrap().clone();
        assert_eq!(problem.messages[1].content, "Q: 1+1?");
        assert_eq!(problem.answer, "2");
        let verdict =
            problems.verifiers["a"].verify(Arc::new(problem), Answer::whole("so \\boxed{2}"));
        assert_eq!(verdict, Outcome::Correct);
    }

    #[test]
    fn problems_that_changed_since_the_start_are_refused_by_their_row() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, answers: [&str; 3]| {
            let line = |(row, answer): (usize, &str)| {
                serde_json::json!({"question": format!("{row}?"), "solution": answer}).to_string()
            };
            let lines: Vec<String> = answers.into_iter().enumerate().map(line).collect();
            std::fs::write(folder.path().join(name), lines.join("\n")).unwrap();
            folder.path().join(name).display().to_string()
        };
        let (train, test) = (write("a.jsonl", ["1", "2", "3"]), write("b.jsonl", ["4", "5", "6"]));
        let source = |path: &str| {
            format!(
                "source = {{ type = \"files\", path = \"{path}\", prompt_column = \"question\", \
                 answer_column = \"solution\" }}"
            )
        };
        let text = format!(
            "[task]\nheld_out = 1\n[[task.datasets]]\nname = \"a\"\n{}\n[evaluation]\n\
             primary = \"b\"\n[[evaluation.datasets]]\nname = \"b\"\n{}\n",
            source(&train),
            source(&test).replace("question\"", "solution\""),
        );
        let problems = load(&text, folder.path()).unwrap();
        problems.record.save(&folder.path().join("held_out.json")).unwrap();
        load(&text, folder.path()).unwrap();
        let refused = || load(&text, folder.path()).err().unwrap().to_string();
        write("a.jsonl", ["1", "99", "3"]);
        assert!(refused().contains("the answer of a/1 is not what the run"), "{}", refused());
        write("a.jsonl", ["1", "2", "3"]);
        load(&text, folder.path()).unwrap();
        write("b.jsonl", ["4", "5", "7"]);
        assert!(refused().contains("of b/2 is not what the run"), "{}", refused());
    }

    #[test]
    fn unevaluated_arithmetic_is_paid_only_where_the_recipe_says_so() {
        let paid = |keys: &str| {
            let text = format!("[task]\nverifier = {{ type = \"math\"{keys} }}\n");
            let source = Source::Text { name: "test".into(), text };
            let recipe = Recipe::load(&[source], &[]).unwrap();
            let choice = &recipe.task.verifier;
            let resources = Resources::of_one(choice, Duration::from_secs(5)).unwrap();
            let judge = verifier::build(choice, &resources).unwrap();
            let answer = Answer::cut(&recipe.format, "</think>\\boxed{56 + 52 + 72 + 48}");
            judge.verify(&Problem::with_answer("228"), &answer)
        };
        assert_eq!(paid(""), Outcome::Incorrect);
        assert_eq!(paid(", evaluated = false"), Outcome::Correct);
    }

    #[test]
    fn nothing_to_train_on_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(load("seed = 1\n", folder.path()), Err(ProblemsError::NoData)));
        let all = CHAIN.replace("held_out = 20", "held_out = 100");
        let error = load(&all, folder.path()).err().unwrap();
        assert!(error.to_string().contains("100 were read"), "{error}");
        let too_many = CHAIN.replace("held_out = 20", "held_out = 1000");
        let error = load(&too_many, folder.path()).err().unwrap();
        assert!(error.to_string().starts_with("task.held_out asks for 1000"), "{error}");
    }
}

//! A recipe's `[task]` and `[evaluation]` as prompts, judges and sets that are measured.
//!
//! Data sets are read or made, the prompts to hold out are drawn once and recorded in the run's
//! folder, and whatever is measured is taken out of what is trained on.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use scalerl_recipe::{DataSource, Dataset, Format, PromptTemplate, Recipe, Thinking, Verifier};
use scalerl_rollout::PromptId;
use scalerl_task::{
    Question, VerifierConfig, VerifierError, VerifierPool,
    data::{
        self, AnswerSource, DataConfig, DataError, DuplicatePolicy, HeldOut, Message, Pool,
        ProblemSums, ProblemsChanged, Prompt, SplitError, load_dataset, separate,
    },
    synthetic::{
        SyntheticConfig, SyntheticError,
        arithmetic::{ArithmeticConfig, Operator},
        chain::ChainConfig,
        countdown::CountdownConfig,
    },
    verify::{
        code::{CodeOptions, UNSANDBOXED_CONSENT},
        countdown::CountdownOptions,
        exact::ExactOptions,
        math::MathOptions,
        program::ProgramOptions,
        regex::RegexOptions,
    },
};
use thiserror::Error;

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

/// What a run asks, measures and judges with; prompts are not yet rendered.
pub struct Problems {
    /// Prompts to train on.
    pub pool: Pool,
    /// Prompts to measure on, by the name of their set.
    pub evaluation: Vec<(String, Vec<Prompt>)>,
    /// The judge of each data set.
    pub verifiers: BTreeMap<String, Arc<VerifierPool>>,
    /// Prompts that were left out of training because they are measured.
    pub duplicates: usize,
    /// Which prompts were held out.
    split: Option<HeldOut>,
    /// Of everything that was read.
    sums: ProblemSums,
}

/// Beside the record of what is held out.
const SUMS: &str = "problems.sums";

/// The synthetic task of a source; `None` for files.
pub fn synthetic(source: &DataSource) -> Option<SyntheticConfig> {
    match source {
        DataSource::Files { .. } => None,
        DataSource::Chain { min_steps, max_steps, .. } => {
            let operations = (*min_steps, *max_steps);
            Some(SyntheticConfig::Chain(ChainConfig { operations, ..ChainConfig::default() }))
        }
        DataSource::Arithmetic { min_digits, max_digits, operations, .. } => {
            let operators = operations.iter().filter_map(|sign| operator(sign)).collect();
            Some(SyntheticConfig::Arithmetic(ArithmeticConfig {
                digits: (*min_digits, *max_digits),
                operators,
                ..ArithmeticConfig::default()
            }))
        }
        DataSource::Countdown { min_numbers, max_numbers, max_value, .. } => {
            Some(SyntheticConfig::Countdown(CountdownConfig {
                numbers: (*min_numbers, *max_numbers),
                largest_number: *max_value,
                ..CountdownConfig::default()
            }))
        }
    }
}

/// An operator by its sign.
pub fn operator(sign: &str) -> Option<Operator> {
    match sign {
        "+" => Some(Operator::Add),
        "-" => Some(Operator::Subtract),
        "*" => Some(Operator::Multiply),
        _ => None,
    }
}

impl Problems {
    /// Reads, makes and separates everything. Prompts are held out as `record` says, where it
    /// exists, and must then be what they were; verifiers get `workers` threads a data set. Nothing is written.
    pub fn load(recipe: &Recipe, record: &Path, workers: usize) -> Result<Self, ProblemsError> {
        let task = &recipe.task;
        if task.datasets.is_empty() {
            return Err(ProblemsError::NoData);
        }
        let mut all = Vec::new();
        for dataset in &task.datasets {
            all.extend(prompts_of(dataset, recipe)?);
        }
        let mut evaluation = Vec::new();
        for dataset in &recipe.evaluation.datasets {
            evaluation.push((dataset.name.clone(), prompts_of(dataset, recipe)?));
        }
        let sums =
            ProblemSums::of(all.iter().chain(evaluation.iter().flat_map(|(_, prompts)| prompts)));
        let recorded = record.with_file_name(SUMS);
        if recorded.exists() {
            sums.check(&ProblemSums::load(&recorded)?)?;
        }
        let read = all.len();
        let measured: Vec<Prompt> =
            evaluation.iter().flat_map(|(_, prompts)| prompts.clone()).collect();
        // The policy to drop cannot refuse.
        let all = separate(all, &measured, DuplicatePolicy::DropFromTraining).unwrap_or_default();
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
            let measured = evaluation.iter().map(|(_, prompts)| prompts.len()).sum();
            return Err(ProblemsError::NothingLeft { read, measured });
        }
        let verifiers = verifiers(recipe, workers)?;
        let pool = by_dataset(&task.datasets, training)?;
        Ok(Self { pool, evaluation, verifiers, duplicates, split, sums })
    }

    /// Keeps which prompts were held out, and what all problems were, for a resume.
    pub fn write_record(&self, record: &Path) -> Result<(), ProblemsError> {
        let recorded = record.with_file_name(SUMS);
        if !recorded.exists() {
            self.sums.save(&recorded)?;
        }
        if let Some(split) = &self.split
            && !record.exists()
        {
            split.save(record)?;
        }
        Ok(())
    }

    /// The gold side of every prompt, for the grader.
    pub fn questions(&self) -> HashMap<PromptId, Question> {
        let measured = self.evaluation.iter().flat_map(|(_, prompts)| prompts);
        let trained = self.pool.prompts();
        trained
            .chain(measured)
            .map(|prompt| (PromptId(prompt.id.clone()), prompt.question.clone()))
            .collect()
    }
}

fn hold_out(
    recipe: &Recipe,
    record: &Path,
    all: &[Prompt],
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

fn by_dataset(datasets: &[Dataset], training: Vec<Prompt>) -> Result<Pool, DataError> {
    let mut sets: Vec<(String, f64, Vec<Prompt>)> =
        datasets.iter().map(|set| (set.name.clone(), set.weight, Vec::new())).collect();
    for prompt in training {
        if let Some((_, _, prompts)) = sets.iter_mut().find(|(name, ..)| *name == prompt.dataset) {
            prompts.push(prompt);
        }
    }
    Pool::try_new(sets)
}

fn prompts_of(dataset: &Dataset, recipe: &Recipe) -> Result<Vec<Prompt>, ProblemsError> {
    let name = &dataset.name;
    let limit = dataset.limit.map_or(0, |limit| limit as usize);
    match &dataset.source {
        DataSource::Files {
            path,
            split,
            prompt_column,
            answer_column,
            answer_after,
            answer_boxed,
            ..
        } => {
            let config = DataConfig {
                name: name.clone(),
                path: PathBuf::from(path),
                split: split.clone(),
                prompt: template(&recipe.task.prompt, prompt_column),
                answer: AnswerSource {
                    template: format!("{{{answer_column}}}"),
                    after: answer_after.clone(),
                    boxed: *answer_boxed,
                },
                weight: dataset.weight,
                limit,
            };
            Ok(load_dataset(&config)?)
        }
        DataSource::Chain { count, .. }
        | DataSource::Arithmetic { count, .. }
        | DataSource::Countdown { count, .. } => {
            let task = synthetic(&dataset.source).expect("only files are not synthetic");
            let count = if limit > 0 { limit.min(*count as usize) } else { *count as usize };
            let mut prompts = task
                .prompts(recipe.task.seed, count)
                .map_err(|source| ProblemsError::Synthetic { name: name.clone(), source })?;
            for prompt in &mut prompts {
                let row = prompt.id.rsplit('/').next().unwrap_or_default();
                prompt.id = format!("{name}/{row}");
                prompt.dataset.clone_from(name);
            }
            Ok(prompts)
        }
    }
}

/// `{prompt}` of a recipe is the column that holds the problem.
fn template(template: &PromptTemplate, column: &str) -> data::PromptTemplate {
    let fill = |text: &str| text.replace("{prompt}", &format!("{{{column}}}"));
    match template {
        PromptTemplate::Plain { template } => data::PromptTemplate::Plain(fill(template)),
        PromptTemplate::Chat { system, user } => {
            let message = |role: &str, content: &str| Message {
                role: role.to_owned(),
                content: fill(content),
            };
            let system = system.iter().map(|text| message("system", text));
            data::PromptTemplate::Chat(system.chain([message("user", user)]).collect())
        }
    }
}

fn verifiers(
    recipe: &Recipe,
    workers: usize,
) -> Result<BTreeMap<String, Arc<VerifierPool>>, ProblemsError> {
    let deadline = Duration::from_secs_f64(recipe.task.verifier_timeout_s);
    let mut verifiers = BTreeMap::new();
    for dataset in recipe.task.datasets.iter().chain(&recipe.evaluation.datasets) {
        let built = match (&dataset.verifier, synthetic(&dataset.source)) {
            (None, Some(task)) => Ok(Box::new(task) as Box<dyn scalerl_task::Verifier>),
            (own, _) => {
                let chosen = own.as_ref().unwrap_or(&recipe.task.verifier);
                verifier(chosen, recipe).build()
            }
        };
        let built = built
            .map_err(|source| ProblemsError::Verifier { name: dataset.name.clone(), source })?;
        let pool = VerifierPool::new(built, workers, deadline);
        verifiers.insert(dataset.name.clone(), Arc::new(pool));
    }
    Ok(verifiers)
}

/// Where the answer begins: at the format's own mark, or after thinking.
fn answer_after(format: &Format) -> String {
    if let Some(open) = &format.answer_open {
        return open.clone();
    }
    match &format.thinking {
        Thinking::Tags { close, .. } => close.clone(),
        Thinking::None => String::new(),
    }
}

/// A recipe's judge in the words of `task`.
fn verifier(verifier: &Verifier, recipe: &Recipe) -> VerifierConfig {
    let timeout_s = recipe.task.verifier_timeout_s;
    let answer_after = answer_after(&recipe.format);
    match verifier {
        Verifier::Math { precision, strict, second_opinion } => {
            let math = MathOptions {
                precision: *precision,
                strict: *strict,
                answer_after,
                ..MathOptions::default()
            };
            if *second_opinion {
                let second_opinion = scalerl_task::second_opinion::SecondOpinionOptions {
                    timeout_s,
                    ..Default::default()
                };
                VerifierConfig::MathWithSecondOpinion(
                    scalerl_task::verifier::MathWithSecondOpinion { math, second_opinion },
                )
            } else {
                VerifierConfig::Math(math)
            }
        }
        Verifier::Exact { ignore_case, ignore_blanks } => VerifierConfig::Exact(ExactOptions {
            answer_after,
            answer_until: recipe.format.answer_close.clone().unwrap_or_default(),
            ignore_case: *ignore_case,
            ignore_blanks: *ignore_blanks,
        }),
        Verifier::Regex { pattern } => {
            VerifierConfig::Regex(RegexOptions { pattern: pattern.clone() })
        }
        Verifier::Countdown { numbers, target, use_all } => {
            VerifierConfig::Countdown(CountdownOptions {
                numbers: numbers.clone(),
                target: target.clone(),
                use_all: *use_all,
            })
        }
        Verifier::Program { command, url } => VerifierConfig::Program(ProgramOptions {
            command: command.clone(),
            url: url.clone().unwrap_or_default(),
            timeout_s,
            ..ProgramOptions::default()
        }),
        Verifier::Code { allow_without_sandbox, memory_mib } => {
            let mut options = CodeOptions::default();
            options.limits.memory_mib = u64::from(*memory_mib);
            if *allow_without_sandbox {
                UNSANDBOXED_CONSENT.clone_into(&mut options.allow_unsandboxed);
            }
            VerifierConfig::Code(options)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_recipe::Source;
    use scalerl_task::Outcome;

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
        problems.write_record(&record).unwrap();
        assert_eq!(problems.pool.len(), 80);
        let (name, held) = &problems.evaluation[0];
        assert_eq!((name.as_str(), held.len()), (HELD_OUT, 20));
        // The record decides, whatever seed or number a later recipe has.
        let other = CHAIN.replace("held_out = 20", "held_out = 30");
        let again = load(&other, folder.path()).unwrap();
        assert_eq!(*held, again.evaluation[0].1);
        let question = problems.questions()[&PromptId(held[0].id.clone())].clone();
        let right = format!("</think>{}", question.answer);
        assert_eq!(problems.verifiers["sums"].verify(question, right), Outcome::Correct);
    }

    #[test]
    fn rows_of_a_file_become_prompts_and_measured_ones_leave_training() {
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
        let prompt = problems.pool.prompts().next().unwrap();
        assert_eq!(prompt.messages[1].content, "Q: 1+1?");
        assert_eq!(prompt.question.answer, "2");
        let question = prompt.question.clone();
        let verdict = problems.verifiers["a"].verify(question, "3</think>\\boxed{2}".into());
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
        problems.write_record(&folder.path().join("held_out.json")).unwrap();
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
    fn nothing_to_train_on_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(load("seed = 1\n", folder.path()), Err(ProblemsError::NoData)));
        let all = CHAIN.replace("held_out = 20", "held_out = 100");
        let error = load(&all, folder.path()).err().unwrap();
        assert!(error.to_string().contains("100 were read"), "{error}");
    }
}

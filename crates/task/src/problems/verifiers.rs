//! The verifier of each data set: its own, its synthetic task's, or `task.verifier`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scalerl_recipe::{Dataset, Recipe, Verifier as Choice};

use super::ProblemsError;
use crate::problem::Problem;
use crate::process_pool::VerifierLog;
use crate::synthetic::Synthetic;
use crate::verifier::{self, Resources, VerifierError};
use crate::verifier_files::VerifierFiles;
use crate::worker::VerifierPool;

type Pools = BTreeMap<String, Arc<VerifierPool>>;

/// Who judges the answers to a data set's problems.
enum Judge<'a> {
    Task(Synthetic),
    Chosen(&'a Choice),
}

/// All data sets, each with its judge.
fn judges(recipe: &Recipe) -> impl Iterator<Item = (&str, Judge<'_>)> {
    let datasets = recipe.task.datasets.iter().chain(&recipe.evaluation.datasets);
    datasets.map(|dataset: &Dataset| {
        let judge = match (&dataset.verifier, Synthetic::of_source(&dataset.source)) {
            (None, Some(task)) => Judge::Task(task),
            (own, _) => Judge::Chosen(own.as_ref().unwrap_or(&recipe.task.verifier)),
        };
        (dataset.name.as_str(), judge)
    })
}

fn failed(name: &str, source: VerifierError) -> ProblemsError {
    ProblemsError::Verifier { name: name.to_owned(), source }
}

/// What the verifiers share. Files that they run must be what is on record, where there is one.
pub(super) fn resources(
    recipe: &Recipe,
    record: &Path,
    workers: usize,
) -> Result<Resources, ProblemsError> {
    let mut files = VerifierFiles::default();
    for (name, judge) in judges(recipe) {
        if let Judge::Chosen(choice) = judge {
            files.add(choice).map_err(|source| failed(name, source))?;
        }
    }
    if record.exists() {
        files.check(record)?;
    }
    let deadline = Duration::from_secs_f64(recipe.task.verifier_timeout_s);
    Ok(Resources { deadline, workers, files, log: VerifierLog::default() })
}

/// Starts them; data sets that choose the same share one.
pub(super) fn start(recipe: &Recipe, resources: &Resources) -> Result<Pools, ProblemsError> {
    let pool = |built| Arc::new(VerifierPool::new(built, resources.workers, resources.deadline));
    let mut chosen: Vec<(&Choice, Arc<VerifierPool>)> = Vec::new();
    let mut pools = Pools::new();
    for (name, judge) in judges(recipe) {
        let judge = match judge {
            Judge::Task(task) => pool(Box::new(task)),
            Judge::Chosen(choice) => {
                let same = chosen.iter().find(|(other, _)| *other == choice);
                if let Some((_, same)) = same {
                    Arc::clone(same)
                } else {
                    let built = verifier::build(choice, resources);
                    let built = pool(built.map_err(|source| failed(name, source))?);
                    chosen.push((choice, Arc::clone(&built)));
                    built
                }
            }
        };
        pools.insert(name.to_owned(), judge);
    }
    Ok(pools)
}

/// Refuses problems that their verifiers could not judge.
pub(super) fn check<'a>(
    pools: &Pools,
    problems: impl Iterator<Item = &'a Problem>,
) -> Result<(), ProblemsError> {
    for problem in problems {
        if let Some(pool) = pools.get(&problem.dataset) {
            let checked = pool.verifier().check(problem);
            checked.map_err(|source| failed(&problem.dataset, source))?;
        }
    }
    Ok(())
}

//! What the lists of data sets must obey.

use std::collections::BTreeSet;

use super::verifiers::check_verifier;
use crate::{
    DataSource, Dataset, EnvironmentChoice, Recipe, RecipeError, WarmUpExamples, error::Origin,
    node::Node, sections::MOST_PROBLEMS,
};

/// What the lists of data sets must obey, and the name that evaluation follows.
pub(super) fn check_datasets(recipe: &Recipe, layers: &Node) -> Result<(), RecipeError> {
    let mut names = BTreeSet::from(["held-out"]);
    let lists = [
        ("task.datasets", &recipe.task.datasets),
        ("evaluation.datasets", &recipe.evaluation.datasets),
    ];
    for (list, datasets) in lists {
        for (index, dataset) in datasets.iter().enumerate() {
            let place = item_place(layers, list, index);
            let key = format!("{list}[{index}]");
            check_dataset(dataset, &place, &key)?;
            check_environment(dataset, &place, &key)?;
            if let Some(verifier) = &dataset.verifier {
                check_verifier(verifier, (&place, &format!("{key}.verifier")), recipe, layers)?;
            }
            if !names.insert(&dataset.name) {
                return Err(RecipeError::Conflict {
                    place,
                    key: format!("{list}[{index}].name"),
                    other: list.into(),
                    reason: format!("the name \"{}\" is taken", dataset.name).into(),
                    remedy: "metrics are kept by name: give each data set its own".into(),
                });
            }
        }
    }
    let place = layers.place_of("task.verifier");
    check_verifier(&recipe.task.verifier, (&place, "task.verifier"), recipe, layers)?;
    check_warm_up(recipe, layers)?;
    check_primary(recipe, layers)
}

fn item_place(layers: &Node, list: &str, index: usize) -> Origin {
    let item = layers.find(list).and_then(|node| match &node.value {
        crate::node::Value::List(items) => items.get(index),
        _ => None,
    });
    // A table's own place is its header; its first key is nearer to what must be mended.
    item.map(|item| item.get("name").unwrap_or(item).place.clone()).unwrap_or_default()
}

fn check_dataset(dataset: &Dataset, place: &Origin, key: &str) -> Result<(), RecipeError> {
    let key = format!("{key}.source");
    match &dataset.source {
        DataSource::Files { path, .. } => not_empty(place, &key, "path", path),
        DataSource::Chain { min_steps, max_steps, count } => {
            in_order(place, &key, "steps", *min_steps, *max_steps)?;
            fits_memory(place, &key, *count, *max_steps)
        }
        DataSource::Arithmetic { min_digits, max_digits, operations, .. } => {
            in_order(place, &key, "digits", *min_digits, *max_digits)?;
            known_operations(place, &key, operations)
        }
        DataSource::Countdown { min_numbers, max_numbers, .. } => {
            in_order(place, &key, "numbers", *min_numbers, *max_numbers)
        }
        DataSource::Store { min_reads, max_reads, .. } => {
            in_order(place, &key, "reads", *min_reads, *max_reads)
        }
        DataSource::Seeds { .. } => Ok(()),
    }
}

fn check_environment(dataset: &Dataset, place: &Origin, key: &str) -> Result<(), RecipeError> {
    let conflict = |other: &str, reason: String, remedy: &'static str| {
        Err(RecipeError::Conflict {
            place: place.clone(),
            key: format!("{key}.environment"),
            other: format!("{key}.{other}"),
            reason: reason.into(),
            remedy: remedy.into(),
        })
    };
    let is_store = matches!(dataset.source, DataSource::Store { .. });
    match &dataset.environment {
        Some(EnvironmentChoice::Store) if !is_store => conflict(
            "source",
            "it plays problems of the source \"store\" and no others".into(),
            "choose source = \"store\", or another environment",
        ),
        Some(other) if is_store && *other != EnvironmentChoice::Store => conflict(
            "source",
            format!("problems of the source \"store\" cannot be played in \"{}\"", other.name()),
            "leave environment unset: the source brings its own",
        ),
        None if matches!(dataset.source, DataSource::Seeds { .. }) => conflict(
            "source",
            "a seed is a task only to an environment, and none is named".into(),
            "name the environment that makes its tasks from seeds",
        ),
        Some(EnvironmentChoice::Program { command, url, .. })
            if command.is_empty() == url.is_none() =>
        {
            conflict(
                "environment.url",
                "an agent is either a command or an address".into(),
                "give one of command and url",
            )
        }
        Some(EnvironmentChoice::Tools { tools, .. }) => {
            match tools.iter().find(|tool| *tool != "python") {
                Some(tool) => conflict(
                    "environment.tools",
                    format!("there is no tool \"{tool}\""),
                    "the one tool so far is \"python\"",
                ),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Each number may be sound and both together not.
fn fits_memory(place: &Origin, key: &str, count: u64, steps: u32) -> Result<(), RecipeError> {
    let operations = count.saturating_mul(u64::from(steps));
    if operations <= 10 * MOST_PROBLEMS as u64 {
        return Ok(());
    }
    Err(RecipeError::Conflict {
        place: place.clone(),
        key: format!("{key}.count"),
        other: format!("{key}.max_steps"),
        reason: format!("{operations} operations in all would not fit into memory").into(),
        remedy: "lower one of the two: their product may be 100 million".into(),
    })
}

fn check_warm_up(recipe: &Recipe, layers: &Node) -> Result<(), RecipeError> {
    let place = layers.place_of("warm_up.examples");
    let key = "warm_up.examples";
    match &recipe.warm_up.examples {
        WarmUpExamples::None => Ok(()),
        WarmUpExamples::File { path } => not_empty(&place, key, "path", path),
        WarmUpExamples::Chain { min_steps, max_steps, .. } => {
            in_order(&place, key, "steps", *min_steps, *max_steps)
        }
        WarmUpExamples::Arithmetic { min_digits, max_digits, operations, .. } => {
            in_order(&place, key, "digits", *min_digits, *max_digits)?;
            known_operations(&place, key, operations)
        }
        WarmUpExamples::Countdown { min_numbers, max_numbers, .. } => {
            in_order(&place, key, "numbers", *min_numbers, *max_numbers)
        }
        WarmUpExamples::Store { min_reads, max_reads, .. } => {
            in_order(&place, key, "reads", *min_reads, *max_reads)
        }
    }
}

fn in_order(place: &Origin, key: &str, what: &str, low: u32, high: u32) -> Result<(), RecipeError> {
    if low <= high {
        return Ok(());
    }
    Err(RecipeError::Conflict {
        place: place.clone(),
        key: format!("{key}.min_{what}"),
        other: format!("{key}.max_{what}"),
        reason: format!("{low} is more than {high}").into(),
        remedy: "swap the two".into(),
    })
}

fn not_empty(place: &Origin, key: &str, what: &str, text: &str) -> Result<(), RecipeError> {
    if !text.is_empty() {
        return Ok(());
    }
    Err(RecipeError::OutOfRange {
        place: place.clone(),
        key: format!("{key}.{what}"),
        found: "\"\"".into(),
        rule: "not empty".into(),
    })
}

fn known_operations(place: &Origin, key: &str, signs: &[String]) -> Result<(), RecipeError> {
    let stranger = signs.iter().find(|sign| !["+", "-", "*"].contains(&sign.as_str()));
    let found = stranger.map(|sign| format!("{sign:?}"));
    let found = found.or_else(|| signs.is_empty().then(|| "[]".into()));
    found.map_or(Ok(()), |found| {
        Err(RecipeError::OutOfRange {
            place: place.clone(),
            key: format!("{key}.operations"),
            found,
            rule: "a list of \"+\", \"-\" and \"*\", one at least".into(),
        })
    })
}

fn check_primary(recipe: &Recipe, layers: &Node) -> Result<(), RecipeError> {
    let primary = &recipe.evaluation.primary;
    let known: Vec<String> = std::iter::once("held-out")
        .chain(recipe.evaluation.datasets.iter().map(|dataset| dataset.name.as_str()))
        .map(Into::into)
        .collect();
    if !known.contains(primary) {
        return Err(RecipeError::UnknownChoice {
            place: layers.place_of("evaluation.primary"),
            key: "evaluation.primary".into(),
            found: primary.clone(),
            nearest: crate::nearest::nearest(primary, known.iter().map(String::as_str))
                .map(Into::into),
            known,
        });
    }
    if primary == "held-out" && recipe.task.held_out == 0 {
        return Err(RecipeError::Conflict {
            place: layers.place_of("task.held_out"),
            key: "task.held_out".into(),
            other: "evaluation.primary".into(),
            reason: "no prompts are held out, and their pass rate is what is forecast".into(),
            remedy: "hold prompts out, or name one of evaluation.datasets as primary".into(),
        });
    }
    Ok(())
}

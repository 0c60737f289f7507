//! The recipe of a run: what differs from the paper's, and all of it.

use scalerl_board::{Block, Section, Table};
use scalerl_recipe::{Difference, Recipe, Resolved, Source, Weights, diff, shipped};

use super::story::Story;

/// What a run is compared with.
const REFERENCE: &str = "scalerl";

/// The keys in which the run differs from the reference recipe.
pub(crate) fn differences(story: &Story) -> Result<Vec<Difference>, String> {
    let own = story.recipe.as_ref().map_err(Clone::clone)?;
    let reference = Recipe::load(&[Source::Shipped(REFERENCE.into())], &[]);
    let reference = reference.map_err(|error| error.to_string())?;
    Ok(diff(&reference, own))
}

/// What this run is, in a line. A description that it has from a shipped recipe is that recipe's only
/// as long as model and task are: a toy must not be announced with the paper's GPU-hours.
pub(crate) fn subtitle(story: &Story) -> String {
    story.recipe.as_ref().map_or_else(|_| String::new(), describe)
}

fn describe(own: &Resolved) -> String {
    let is_other = |shipped: &Resolved| {
        let changed = diff(shipped, own);
        changed.iter().any(|one| one.key.starts_with("model.") || one.key.starts_with("task."))
    };
    let is_inherited = shipped::RECIPES.iter().any(|recipe| {
        let shipped = Recipe::load(&[Source::Shipped(recipe.name.into())], &[]);
        shipped.is_ok_and(|shipped| shipped.description == own.description && is_other(&shipped))
    });
    if !is_inherited && !own.description.is_empty() {
        return own.description.clone();
    }
    let model = match (&own.model.weights, &own.model.path) {
        (Weights::New { layers, width, .. }, _) => {
            format!("A new model of {layers} layers and width {width}")
        }
        (_, Some(path)) => path.clone(),
        (_, None) => "A model that is not named".to_owned(),
    };
    let sets: Vec<&str> = own.task.datasets.iter().map(|set| set.name.as_str()).collect();
    format!("{model}, trained on {}", sets.join(", "))
}

pub(crate) fn section(story: &Story) -> Section {
    let mut blocks = vec![match differences(story) {
        Ok(found) if found.is_empty() => {
            Block::Prose(format!("It makes the same choices as {REFERENCE}.toml."))
        }
        Ok(found) => Block::Table(Table {
            caption: format!("What differs from {REFERENCE}.toml"),
            columns: ["key", REFERENCE, "this run"].map(str::to_owned).to_vec(),
            rows: found.into_iter().map(|one| vec![one.key, one.left, one.right]).collect(),
        }),
        Err(reason) => {
            Block::Prose(format!("This release cannot read it, so nothing is compared: {reason}."))
        }
    }];
    blocks.push(Block::Fold(
        "The resolved recipe".to_owned(),
        vec![Block::Code(story.recipe_text.clone())],
    ));
    Section { heading: "Recipe".to_owned(), blocks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toy_is_not_announced_with_the_papers_hours() {
        let load = |name: &str, text: &str| {
            let own = Source::Text { name: "own".into(), text: text.into() };
            describe(&Recipe::load(&[Source::Shipped(name.into()), own], &[]).unwrap())
        };
        let toy = "[model]\nweights = { type = \"new\", layers = 2, width = 64 }\n\
                   [[task.datasets]]\nname = \"chain\"\nsource = { type = \"chain\" }\n";
        assert_eq!(load("scalerl", toy), "A new model of 2 layers and width 64, trained on chain");
        let shorter = "[budget]\nsteps = 5\n";
        assert!(load("quickstart", shorter).starts_with("ScaleRL on a small synthetic task"));
        let own = format!("description = \"mine\"\n{toy}");
        assert_eq!(load("scalerl", &own), "mine");
    }
}

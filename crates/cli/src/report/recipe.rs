//! The recipe of a run: what differs from the paper's, and all of it.

use scalerl_board::{Block, Section, Table};
use scalerl_recipe::{Difference, Recipe, Source, diff};

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

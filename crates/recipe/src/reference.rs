//! The page of all keys, made from the declarations in `sections/`.
//!
//! `cargo run -p scalerl-recipe --example reference > docs/recipe-reference.md` writes it; a test
//! refuses a stale one.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::{
    Recipe,
    setting::{KeyEntry, Setting as _},
};

const OPENING: &str = "\
# Recipe reference

Every key of a recipe: what to write, its default, what it means. Made by
`cargo run -p scalerl-recipe --example reference > docs/recipe-reference.md`; do not edit.
How files are layered and checked: [recipes.md](recipes.md). Formulas: [objectives.md](objectives.md).

Where a key takes one of several words, an alternative that has keys of its own can be written as
a table: `surrogate = { type = \"cispo\", cap = 4 }`. A key that may have no value takes the word
`\"unset\"`.
";

/// The page as Markdown.
pub fn reference_page() -> String {
    let mut page = String::from(OPENING);
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "\n## Top level\n\n- **`extends`**: text in quotes. Another recipe, shipped or a file beside \
         this one, that this one is laid over."
    );
    // Keys of an alternative stand one step further in than the alternative itself.
    let mut choices = BTreeSet::new();
    for entry in Recipe::keys("") {
        let depth = entry.key.matches('.').count();
        let is_section = depth == 0 && entry.default.is_none();
        if is_section {
            let _ = writeln!(page, "\n## `[{}]`\n\n{}\n", entry.key, entry.meaning);
            continue;
        }
        let inside = choices.iter().filter(|choice| entry.key.starts_with(*choice)).count();
        write_entry(&mut page, &entry, (depth + inside).saturating_sub(1));
        if let Some((choice, _)) = entry.key.split_once(" = ") {
            choices.insert(format!("{choice}."));
        }
    }
    page
}

fn write_entry(page: &mut String, entry: &KeyEntry, depth: usize) {
    let KeyEntry { key, kind, default, rule, meaning } = entry;
    let is_alternative = kind.is_empty();
    let indent = "  ".repeat(depth + usize::from(is_alternative));
    let kind = if rule.is_empty() { kind.clone() } else { kind.replace(", 0 or more", "") };
    let rule = if rule.is_empty() { String::new() } else { format!(", {rule}") };
    let default = default.as_ref().map(|default| format!("; default `{default}`"));
    let default = default.unwrap_or_default();
    let _ = if is_alternative {
        let word = key.split_once(" = ").map_or(key.as_str(), |(_, word)| word);
        writeln!(page, "{indent}- `{word}`: {meaning}")
    } else {
        writeln!(page, "{indent}- **`{key}`**: {kind}{rule}{default}. {meaning}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_in_seconds_has_an_upper_limit() {
        let keys = Recipe::keys("");
        let seconds: Vec<&KeyEntry> =
            keys.iter().filter(|entry| entry.key.ends_with("_s")).collect();
        assert!(seconds.len() >= 7, "the keys in seconds are found by their ending");
        for entry in seconds {
            let is_bounded = entry.rule.contains("at most") || entry.rule.contains("between");
            assert!(is_bounded, "{}: {:?}", entry.key, entry.rule);
        }
    }
}

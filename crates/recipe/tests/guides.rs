//! What the guides show: every TOML block is a recipe that loads, every key they name exists.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of any test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use scalerl_recipe::{Recipe, Source, reference_page};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README and every page directly under docs/, by name.
fn guides() -> Vec<(String, String)> {
    let docs = fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.chain([repository().join("README.md")]);
    let mut pages: Vec<PathBuf> =
        pages.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    pages.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    pages.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// The fenced blocks of a language, indentation of lists taken off.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in page.lines() {
        let indent = line.len() - line.trim_start().len();
        match &mut open {
            None if line.trim() == format!("```{language}") => open = Some((indent, String::new())),
            None => {}
            Some(_) if line.trim() == "```" => blocks.extend(open.take().map(|(_, text)| text)),
            Some((cut, text)) => {
                text.push_str(line.get(*cut..).unwrap_or_default());
                text.push('\n');
            }
        }
    }
    blocks
}

#[test]
fn every_toml_block_of_the_guides_is_a_recipe_that_loads() {
    let mut seen = 0;
    for (name, page) in guides() {
        // Files of studies; `scalerl-study` loads those.
        if name == "studies.md" {
            continue;
        }
        for text in blocks(&page, "toml") {
            seen += 1;
            let source = Source::Text { name: name.clone(), text: text.clone() };
            if let Err(error) = Recipe::load(&[source], &[]) {
                panic!("docs/{name}: {error}\n{}\n{text}", error.hint());
            }
        }
    }
    assert!(seen >= 8, "only {seen} blocks were found");
}

#[test]
fn every_key_that_a_guide_names_exists() {
    let reference = reference_page();
    let known: BTreeSet<String> = code_spans(&reference)
        .filter_map(|span| span.split(['=', ' ']).next().map(str::to_owned))
        .collect();
    let sections: BTreeSet<&str> =
        known.iter().filter_map(|key| key.split_once('.')).map(|(section, _)| section).collect();
    let mut checked = 0;
    for (name, page) in guides() {
        for span in code_spans(&page) {
            let key = span.split(['=', ' ']).next().unwrap_or_default().trim();
            let Some((section, rest)) = key.split_once('.') else { continue };
            let is_key = !rest.is_empty()
                && rest.chars().all(|c| c.is_ascii_lowercase() || "_.".contains(c))
                && !["toml", "json", "jsonl", "rs", "md"].contains(&rest);
            if !is_key || !sections.contains(section) {
                continue;
            }
            checked += 1;
            assert!(known.contains(key), "docs/{name} names `{key}`, which no recipe has");
        }
    }
    assert!(checked >= 40, "only {checked} keys were found");
}

/// What stands between single backticks outside of fenced blocks.
fn code_spans(page: &str) -> impl Iterator<Item = String> {
    let mut is_fenced = false;
    let prose: Vec<&str> = page
        .lines()
        .filter(|line| {
            is_fenced ^= line.trim_start().starts_with("```");
            !is_fenced
        })
        .collect();
    let prose = prose.join("\n");
    let spans: Vec<String> = prose.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    spans.into_iter()
}

#[test]
fn code_that_a_guide_quotes_stands_in_the_file_it_names() {
    let mut seen = 0;
    for (name, page) in guides() {
        let mut lines = page.lines().peekable();
        while let Some(line) = lines.next() {
            let path = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            let is_source =
                |path: &&str| path.starts_with("crates/") || path.starts_with("scripts/");
            let Some(path) = path.filter(is_source) else { continue };
            assert!(lines.next().is_some_and(|fence| fence.starts_with("```")), "{name}: {path}");
            let quoted: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let source = fs::read_to_string(repository().join(path)).unwrap();
            assert!(
                source.contains(&quoted.join("\n")),
                "{name}: {path} has no\n{}",
                quoted.join("\n")
            );
            seen += 1;
        }
    }
    assert!(seen >= 12, "only {seen} quotations were found");
}

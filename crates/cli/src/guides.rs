//! What the guides show is what the program takes: every `scalerl …` line of README and docs/ parses.
//!
//! Not here: that a command does what the guide says; each has tests of its own.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use crate::Cli;

fn pages() -> Vec<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = |folder: &str| {
        let entries = fs::read_dir(repository.join(folder)).expect("the guides are there");
        entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut pages: Vec<PathBuf> = ["docs", "docs/bench", "docs/results"].map(list).concat();
    pages.push(repository.join("README.md"));
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.sort();
    pages
}

/// Commands in fenced blocks, lines that end in a backslash joined, comments and redirections cut.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let (mut is_fenced, mut line) = (false, String::new());
    for part in page.lines() {
        if part.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        let part = part.trim().trim_start_matches("$ ");
        if !is_fenced || (line.is_empty() && !part.starts_with("scalerl ")) {
            continue;
        }
        if let Some(part) = part.strip_suffix('\\') {
            line.push_str(part);
            continue;
        }
        line.push_str(part);
        let command = std::mem::take(&mut line);
        let command = command.split(" # ").next().unwrap_or_default();
        let end = [" > ", " | ", " 2> ", " && ", " &"]
            .iter()
            .filter_map(|sign| command.find(sign))
            .min()
            .unwrap_or(command.len());
        commands.push(command[..end].trim().to_owned());
    }
    commands
}

/// Words as a shell would cut them.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, ' ') => words.push(String::new()),
            (_, c) => words.last_mut().expect("never empty").push(c),
        }
    }
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

#[test]
fn every_command_of_the_guides_is_one_the_program_takes() {
    let mut checked = 0;
    for path in pages() {
        for command in commands(&fs::read_to_string(&path).unwrap()) {
            // A line that stands for several.
            if command.contains('…') || command.contains(" ...") || command.contains('[') {
                continue;
            }
            checked += 1;
            if let Err(error) = Cli::try_parse_from(words(&command)) {
                panic!("{}: `{command}`\n{error}", path.display());
            }
        }
    }
    assert!(checked >= 40, "only {checked} commands were found");
}

#[test]
fn the_page_on_stability_has_every_sign_in_the_words_of_the_program() {
    let page = pages().into_iter().find(|path| path.ends_with("docs/stability.md")).unwrap();
    let page = fs::read_to_string(page).unwrap();
    for sign in scalerl_journal::BadSign::ALL {
        let name = serde_json::to_value(sign).unwrap();
        let row = format!("| {} | {} |", name.as_str().unwrap(), sign.description());
        let row = page.lines().find(|line| line.starts_with(&row));
        assert!(row.is_some_and(|row| row.contains(sign.advice())), "{sign:?}");
    }
}

//! The list of metrics: what is sent is in it, what is in it is sent, and the guide has it all.

use std::collections::BTreeSet;

use super::journal::Journal;
use crate::{METRICS, counted_rows};

/// `eval/gsm8k test/pass_at_8` is `eval/{set}/pass_at_{k}`.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), name.split('/').collect());
    let part = |(pattern, name): (&&str, &&str)| match pattern.split_once('{') {
        None => pattern == name,
        Some((before, _)) => name.len() > before.len() && name.starts_with(before),
    };
    pattern.len() == name.len() && pattern.iter().zip(&name).all(part)
}

#[test]
fn every_metric_that_is_sent_is_listed_and_every_listed_one_is_sent() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 5);
    journal.trouble(5);
    journal.train(6, 6);
    let rows = counted_rows(&journal.path).unwrap();
    let sent: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.metrics.iter().map(|(name, _)| name.as_ref())).collect();
    for name in &sent {
        assert!(METRICS.iter().any(|metric| fits(metric.name, name)), "{name} is not listed");
    }
    for metric in METRICS {
        assert!(sent.iter().any(|name| fits(metric.name, name)), "{} is never sent", metric.name);
    }
}

#[test]
fn names_are_those_that_every_tracker_takes() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 5);
    for row in counted_rows(&journal.path).unwrap() {
        for (name, _) in &row.metrics {
            let is_known =
                |letter: char| letter.is_ascii_alphanumeric() || "_-. :/".contains(letter);
            assert!(name.chars().all(is_known), "{name}");
        }
        let names: BTreeSet<_> = row.metrics.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), row.metrics.len(), "a name stands twice in a row");
    }
}

#[test]
fn the_guide_has_every_metric_in_the_words_of_the_program() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tracking.md");
    let page = std::fs::read_to_string(page).unwrap();
    for metric in METRICS {
        let row = format!("| `{}` | {} |", metric.name, metric.meaning);
        assert!(page.lines().any(|line| line == row), "docs/tracking.md has no line {row}");
    }
}

#[test]
fn a_resumed_run_has_the_rows_of_its_history_only() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 4);
    let kept = journal.lines();
    journal.train(5, 8);
    let mut journal = journal.resume(4, kept);
    journal.train(5, 6);
    let rows = counted_rows(&journal.path).unwrap();
    let steps: Vec<u64> = rows.iter().map(|row| row.step).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 5, 5, 6]);
    // The counters go on where the checkpoint was.
    let judged = |row: &crate::Row| {
        row.metrics.iter().find(|(name, _)| name == "groups/judged").map(|(_, value)| *value)
    };
    assert_eq!(judged(rows.last().unwrap()), Some(6.0));
}

//! Console logs of verl: `step:N - key:value - key:value …`, one line per step.
//!
//! Which compute belongs to a validation: verl validates *after* the step's update, inside the
//! same step, and prints both on one line. So a validation belongs to the sum of all training
//! times up to and including its own line, with the line's own validation and checkpoint time
//! taken out. The validation before training (`Initial validation metrics`, or a `step:0` line
//! with validations only) belongs to zero.
//!
//! Old versions count steps from 0: there `step:9` ends the tenth update. The table's `step` is
//! the number of updates done, whatever the version.
//!
//! `Final validation metrics`, off the schedule, is noted and not made a point: newer versions
//! repeat there what the last step's line already has.
//!
//! Not here: lines and the printed configuration (`lines.rs`), sums of times (`compute.rs`).

mod lines;

use std::collections::BTreeMap;

use crate::error::IngestError;
use crate::format::Format;
use crate::table::{Cell, Log, Table};
use lines::{Line, Pairs};

pub(crate) use lines::looks_like;

/// One log file, parsed and not yet joined with the files that continue it.
#[derive(Debug, Default)]
pub(crate) struct VerlLog {
    name: String,
    file: String,
    steps: BTreeMap<u64, Step>,
    initial: Option<(usize, Pairs)>,
    last_validation: Option<Pairs>,
    gpus_per_node: Option<f64>,
    nodes: Option<f64>,
    notes: Vec<String>,
}

#[derive(Debug, Default, Clone)]
struct Step {
    line: usize,
    /// A key may come twice; the later value counts.
    pairs: Pairs,
}

impl Step {
    /// A training step has times or losses; a validation before training has neither.
    fn is_training(&self) -> bool {
        self.pairs.iter().any(|(key, _)| !is_validation(key))
    }
}

fn is_validation(key: &str) -> bool {
    key.starts_with("val-") || key.starts_with("val/")
}

impl VerlLog {
    /// Parses a log; anything that is not a step line or configuration is passed over.
    pub(crate) fn parse(name: &str, file: &str, bytes: &[u8]) -> Result<Self, IngestError> {
        let text = String::from_utf8_lossy(bytes);
        let mut log = Self { name: name.to_owned(), file: file.to_owned(), ..Self::default() };
        let mut abandoned = 0;
        let mut usual_end: Option<String> = None;
        for line in lines::Lines::new(&text) {
            match line {
                Line::Step { line, number, pairs, is_last } => {
                    let is_cut = is_last && !ends_as_usual(usual_end.as_deref(), &pairs);
                    if is_cut {
                        log.notes.push(format!("Step {number} is cut off and was left out."));
                        continue;
                    }
                    let step = Step { line, pairs };
                    if step.is_training() {
                        usual_end = step.pairs.last().map(|(key, _)| key.clone());
                    }
                    abandoned += log.insert(number, step);
                }
                Line::Initial { line, pairs } => {
                    log.initial.get_or_insert((line, pairs));
                }
                Line::Final { pairs } => log.last_validation = Some(pairs),
                Line::GpusPerNode(count) => log.gpus_per_node = log.gpus_per_node.or(Some(count)),
                Line::Nodes(count) => log.nodes = log.nodes.or(Some(count)),
            }
        }
        if log.steps.is_empty() && log.initial.is_none() {
            return Err(IngestError::Malformed {
                file: file.to_owned(),
                format: Format::Verl,
                place: "whole file".to_owned(),
                problem: "no line `step:N - key:value …`".to_owned(),
            });
        }
        log.note_abandoned(abandoned);
        Ok(log)
    }

    /// Adds a step. One that is already there means a restart from a checkpoint: what came after
    /// the checkpoint is taken back. Returns how many steps were.
    fn insert(&mut self, number: u64, step: Step) -> usize {
        // After a restart the weights of step `number` are validated again before training goes
        // on; that line adds to the step and replaces only what follows it.
        let first_stale = if step.is_training() { number } else { number.saturating_add(1) };
        let stale = self.steps.split_off(&first_stale);
        let abandoned = stale.values().filter(|stale| stale.is_training()).count();
        let kept =
            self.steps.entry(number).or_insert_with(|| Step { line: step.line, ..Step::default() });
        kept.pairs.extend(step.pairs);
        abandoned
    }

    fn note_abandoned(&mut self, count: usize) {
        if count > 0 {
            self.notes.push(format!(
                "The step counter went back (a restart): {count} steps were repeated; the later \
                 ones are used and the time of the earlier ones is not counted."
            ));
        }
    }

    /// The first step that trained.
    fn first_step(&self) -> Option<u64> {
        self.steps.iter().find(|(_, step)| step.is_training()).map(|(number, _)| *number)
    }

    /// Whether this log begins where `earlier` had got to: a fresh run begins at step 0 or 1.
    fn continues(&self, earlier: &Self) -> bool {
        let last = earlier.steps.keys().next_back();
        matches!((self.first_step(), last), (Some(first), Some(last))
            if first > 1 && first <= last.saturating_add(1))
    }

    fn append(&mut self, later: Self) {
        let mut abandoned = 0;
        for (number, step) in later.steps {
            abandoned += self.insert(number, step);
        }
        self.last_validation = later.last_validation;
        self.gpus_per_node = self.gpus_per_node.or(later.gpus_per_node);
        self.nodes = self.nodes.or(later.nodes);
        self.notes.push(format!("Continued by {}.", later.file));
        self.notes.extend(later.notes);
        self.note_abandoned(abandoned);
    }

    fn into_log(self) -> Log {
        let mut notes = self.notes;
        let counts_from_zero = self.steps.get(&0).is_some_and(Step::is_training);
        if counts_from_zero {
            notes.push(
                "Steps are counted from 0 in this log; the axis counts updates done.".to_owned(),
            );
        }
        let first = self.steps.iter().find(|(_, step)| step.is_training()).map(|(n, _)| *n);
        if let Some(first) = first.filter(|first| *first > 1) {
            notes.push(format!(
                "The log begins at step {first}: compute spent before is not counted. Give the \
                 earlier log first to join them."
            ));
        }
        let mut table = Table::default();
        let zero_has_validation = !counts_from_zero
            && self.steps.get(&0).is_some_and(|s| s.pairs.iter().any(|(k, _)| is_validation(k)));
        if let Some((line, pairs)) = self.initial.filter(|_| !zero_has_validation) {
            let before = first.map_or(0, |first| first.saturating_sub(1));
            push(&mut table, line, before as f64, &pairs);
        }
        for (number, step) in &self.steps {
            let updates = *number as f64 + f64::from(u8::from(counts_from_zero));
            push(&mut table, step.line, updates, &step.pairs);
        }
        note_final(&mut notes, self.last_validation.as_ref(), self.steps.values().next_back());
        let gpus = self.gpus_per_node.map(|per_node| {
            let nodes = self.nodes.unwrap_or(1.0);
            (per_node * nodes, format!("n_gpus_per_node {per_node} × nnodes {nodes}"))
        });
        Log {
            name: self.name,
            file: self.file,
            table,
            gpus,
            notes,
            is_timed: true,
            ..Log::default()
        }
    }
}

/// Joins logs that continue the one given before them.
pub(crate) fn join(logs: Vec<VerlLog>) -> Vec<Log> {
    let mut joined: Vec<VerlLog> = Vec::new();
    for log in logs {
        match joined.last_mut() {
            Some(earlier) if log.continues(earlier) => earlier.append(log),
            _ => joined.push(log),
        }
    }
    joined.into_iter().map(VerlLog::into_log).collect()
}

fn push(table: &mut Table, line: usize, step: f64, pairs: &Pairs) {
    table.push_row(line);
    table.set("step", Cell::Number(step));
    for (key, value) in pairs {
        table.set(key, Cell::Number(*value));
    }
}

/// Every full line of a version ends with the same key; the last one may be cut before it.
fn ends_as_usual(usual: Option<&str>, pairs: &Pairs) -> bool {
    let is_training = pairs.iter().any(|(key, _)| !is_validation(key));
    !is_training || usual.is_none_or(|usual| pairs.last().is_some_and(|(key, _)| key == usual))
}

fn note_final(notes: &mut Vec<String>, last: Option<&Pairs>, step: Option<&Step>) {
    let already = step.is_some_and(|step| step.pairs.iter().any(|(key, _)| is_validation(key)));
    let Some(pairs) = last.filter(|_| !already) else { return };
    let values: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{key} {value:.4}")).collect();
    notes.push(format!(
        "The log's final validation, off the schedule, is not a point: {}.",
        values.join(", ")
    ));
}

#[cfg(test)]
mod tests;

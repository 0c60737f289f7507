//! Which columns make up the training time of a step, and which are to be taken out of it.
//!
//! Frameworks log the seconds of a whole step and of its parts. Whether validation and
//! checkpoints lie inside the whole changes between versions of verl: at first both did, then
//! neither, then checkpoints again. The log itself tells: where they are inside, the part of the
//! step that training does not explain grows by their time in the steps that have them.

use crate::table::{Column, Table};

/// Seconds of one whole step, by framework: verl, prime-rl, TRL.
const WHOLE: [&str; 5] =
    ["timing_s/step", "timing/step", "perf/time_per_step", "time/step", "step_time"];

/// Seconds that are not training.
const NOT_TRAINING: [&str; 8] = [
    "timing_s/testing",
    "timing_s/save_checkpoint",
    "timing/testing",
    "timing/save_checkpoint",
    "time/save_ckpt",
    "time/eval",
    "time/evaluate",
    "time/eval_ckpt",
];

/// Parts of verl's step that follow one another; others (`generate_sequences`) lie inside these.
const TRAINING: [&str; 9] = [
    "timing_s/gen",
    "timing_s/reward",
    "timing_s/old_log_prob",
    "timing_s/ref",
    "timing_s/values",
    "timing_s/adv",
    "timing_s/update_critic",
    "timing_s/update_actor",
    "timing_s/update_weights",
];

/// Columns to add up and columns to take out; empty where the log has no step times.
#[derive(Debug, Default)]
pub(super) struct StepTimes {
    pub(super) added: Vec<String>,
    pub(super) removed: Vec<String>,
    /// Time that is logged beside the step and so needs no taking out.
    outside: Vec<String>,
}

impl StepTimes {
    /// Finds the step times of a table and judges them on the rows of one run.
    pub(super) fn find(table: &Table, rows: &[u32]) -> Self {
        let Some(whole) = WHOLE.iter().find_map(|name| numeric(table, name)) else {
            return Self { added: parts(table), ..Self::default() };
        };
        // Parts are written in the same family as the whole: `timing_s/…` or `time/…`.
        let is_verl = whole.name.starts_with("perf/");
        let family = if is_verl { "timing_s" } else { family(&whole.name) };
        let training: Vec<&Column> = TRAINING.iter().filter_map(|n| numeric(table, n)).collect();
        let mut unexplained: Vec<(u32, f64)> = rows
            .iter()
            .filter_map(|&row| {
                let parts = training.iter().filter_map(|column| column.number(row));
                Some((row, whole.number(row)? - parts.sum::<f64>()))
            })
            .filter(|(_, seconds)| seconds.is_finite())
            .collect();
        let mut times = Self { added: vec![whole.name.clone()], ..Self::default() };
        let names = NOT_TRAINING.iter().filter(|name| self::family(name) == family);
        let mut events: Vec<&Column> = names.filter_map(|name| numeric(table, name)).collect();
        // The more frequent one first: it has rows to itself.
        events.sort_by_key(|column| std::cmp::Reverse(column.cells.len()));
        for (order, event) in events.iter().enumerate() {
            if is_inside(&unexplained, event, &events[order + 1..]) {
                for (row, seconds) in &mut unexplained {
                    *seconds -= event.number(*row).unwrap_or(0.0);
                }
                times.removed.push(event.name.clone());
            } else {
                times.outside.push(event.name.clone());
            }
        }
        times
    }

    /// How the GPU-hours came about, in a sentence.
    pub(super) fn note(&self, gpus: f64) -> String {
        let added = match self.added.as_slice() {
            [whole] => format!("`{whole}`"),
            parts => format!("the step's parts ({})", parts.join(", ")),
        };
        let parts = |names: &[String], text: &str| match names {
            [] => String::new(),
            names => text.replace("{}", &names.join(", ")),
        };
        let removed = parts(&self.removed, ", with validation and checkpoint time ({}) taken out");
        let outside = parts(&self.outside, "; {} lies outside the step in this log");
        let apart = if self.added.len() > 1 {
            "; validation and checkpoints are not among them"
        } else {
            ""
        };
        format!("GPU-hours are the sum of {added} × {gpus} (GPUs) / 3600{removed}{outside}{apart}.")
    }
}

/// Whether a column is a step's time, however much its name looks like an axis.
pub(super) fn is_whole(name: &str) -> bool {
    WHOLE.contains(&name)
}

/// Without a whole, as in verl's logs of 2024, the parts follow one another.
fn parts(table: &Table) -> Vec<String> {
    let is_part = |column: &&Column| {
        ["timing", "timing_s"].contains(&family(&column.name))
            && column.name.matches('/').count() == 1
            && column.is_numeric()
            && !NOT_TRAINING.contains(&column.name.as_str())
    };
    table.columns().iter().filter(is_part).map(|column| column.name.clone()).collect()
}

/// Compares steps with the event and without: the difference is its time, or nothing. Rows with
/// one of the `others` too are left out unless there are only such.
fn is_inside(unexplained: &[(u32, f64)], event: &Column, others: &[&Column]) -> bool {
    let has = |column: &Column, row: u32| column.number(row).is_some_and(|seconds| seconds > 0.0);
    let is_clear = |row: u32| !others.iter().any(|other| has(other, row));
    let without: Vec<f64> = unexplained
        .iter()
        .filter(|(row, _)| !has(event, *row) && is_clear(*row))
        .map(|(_, seconds)| *seconds)
        .collect();
    let usual = median(without).unwrap_or(0.0);
    let share = |wants_clear: bool| {
        let rows = unexplained.iter().filter(|(row, _)| !wants_clear || is_clear(*row));
        let shares = rows
            .filter(|(row, _)| has(event, *row))
            .filter_map(|(row, seconds)| Some((seconds - usual) / event.number(*row)?));
        median(shares.collect())
    };
    // Never above zero seconds: nothing to take out, and nothing lost by saying so.
    share(true).or_else(|| share(false)).is_none_or(|share| share > 0.5)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn numeric<'a>(table: &'a Table, name: &str) -> Option<&'a Column> {
    table.column(name).filter(|column| column.is_numeric())
}

fn family(name: &str) -> &str {
    name.split_once('/').map_or("", |(family, _)| family)
}

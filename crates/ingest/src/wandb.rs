//! CSV files exported from Weights & Biases.
//!
//! A chart's export is wide: `Step`, then for every run `name - metric`, `name - metric__MIN`
//! and `name - metric__MAX`. It becomes one row per step and run, with the run in the column
//! `run`; minimum and maximum are left out (they are the chart's smoothing window, not
//! evaluations). A run's history export (`_step`, `_runtime`, `_timestamp`, metrics) is an
//! ordinary table already and passes unchanged.

use std::collections::{BTreeSet, HashMap};

use crate::error::IngestError;
use crate::format::Format;
use crate::table::{Cell, Table};

/// The column that names the run in the long table.
pub(crate) const RUN: &str = "run";

const BETWEEN: &str = " - ";

/// Whether a CSV header is one of the two exports.
pub(crate) fn looks_like(header: &[String]) -> bool {
    let wide = header.iter().any(|name| is_band(name) && name.contains(BETWEEN))
        || (header.first().is_some_and(|name| is_axis(name))
            && header.len() > 1
            && header[1..].iter().all(|name| name.contains(BETWEEN)));
    wide || header.iter().any(|name| name == "_step" || name == "_runtime")
}

/// Turns a chart's export into one row per step and run.
pub(crate) fn read(file: &str, bytes: &[u8]) -> Result<(Table, Vec<String>), IngestError> {
    let (wide, notes) = crate::delimited::read(file, bytes, None, Format::WandbCsv)?;
    if !wide.columns().iter().any(|column| column.name.contains(BETWEEN)) {
        return Ok((wide, notes));
    }
    let names = wide.names();
    let runs = runs_of(&names);
    let shared: Vec<usize> =
        (0..names.len()).filter(|place| !names[*place].contains(BETWEEN)).collect();
    let mut long = Table::default();
    for place in &shared {
        long.declare(&names[*place]);
    }
    long.declare(RUN);
    // Run by run, so that the rows of one run are in the order of its steps.
    for (run, members) in &runs {
        for row in filled_rows(&wide, members) {
            let cell = |place: usize| wide.columns()[place].get(row).cloned();
            long.push_row(wide.line(row) as usize);
            long.set(RUN, Cell::Text((*run).to_owned()));
            for place in &shared {
                if let Some(value) = cell(*place) {
                    long.set(&names[*place], value);
                }
            }
            for (place, metric) in members {
                if let Some(value) = cell(*place) {
                    long.set(metric, value);
                }
            }
        }
    }
    Ok((long, notes))
}

/// A run and its columns: place in the wide table, name of the metric.
type RunColumns<'a> = (&'a str, Vec<(usize, &'a str)>);

/// The rows in which at least one of a run's columns is filled.
fn filled_rows(wide: &Table, members: &[(usize, &str)]) -> BTreeSet<u32> {
    let cells = members.iter().flat_map(|(place, _)| &wide.columns()[*place].cells);
    cells.map(|(row, _)| *row).collect()
}

/// Runs by first appearance. The run's own name may contain ` - `, a metric's does not.
fn runs_of(names: &[String]) -> Vec<RunColumns<'_>> {
    let mut runs: Vec<RunColumns<'_>> = Vec::new();
    let mut places = HashMap::new();
    for (place, name) in names.iter().enumerate() {
        let Some((run, metric)) = name.rsplit_once(BETWEEN) else { continue };
        if is_band(name) || metric == "_step" {
            continue;
        }
        let run = run.trim_start_matches("Group: ");
        let index = *places.entry(run).or_insert_with(|| {
            runs.push((run, Vec::new()));
            runs.len() - 1
        });
        runs[index].1.push((place, metric));
    }
    runs
}

fn is_band(name: &str) -> bool {
    name.ends_with("__MIN") || name.ends_with("__MAX")
}

fn is_axis(name: &str) -> bool {
    matches!(crate::axis::Axis::of_column(name), crate::axis::Axis::Steps)
        || name.starts_with("Relative Time")
        || name == "Wall Time"
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: &str = "\"Step\",\"grpo - 8b - eval/acc\",\"grpo - 8b - eval/acc__MIN\",\
        \"grpo - 8b - eval/acc__MAX\",\"dapo - eval/acc\",\"dapo - eval/acc__MIN\",\
        \"dapo - eval/acc__MAX\"\n\"0\",\"0.2\",\"0.2\",\"0.2\",\"\",\"\",\"\"\n\
        \"10\",\"0.4\",\"0.4\",\"0.4\",\"0.3\",\"0.3\",\"0.3\"\n";

    #[test]
    fn a_chart_becomes_one_row_per_step_and_run() {
        let (table, _) = read("chart.csv", CHART.as_bytes()).unwrap();
        assert_eq!(table.names(), ["Step", "run", "eval/acc"]);
        let runs: Vec<_> = table.column("run").unwrap().cells.iter().map(|c| &c.1).collect();
        let text = |name: &str| Cell::Text(name.to_owned());
        assert_eq!(runs, [&text("grpo - 8b"), &text("grpo - 8b"), &text("dapo")]);
        let acc: Vec<_> = table.column("eval/acc").unwrap().numbers().collect();
        assert_eq!(acc, [(0, 0.2), (1, 0.4), (2, 0.3)]);
    }

    #[test]
    fn both_exports_are_recognised_and_a_plain_table_is_not() {
        let header = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        assert!(looks_like(&header("Step,a - acc,a - acc__MIN,a - acc__MAX")));
        assert!(looks_like(&header("Relative Time (Process),a - acc,b - acc")));
        assert!(looks_like(&header("_step,_runtime,_timestamp,eval/acc")));
        assert!(!looks_like(&header("run,gpu_hours,pass_rate")));
    }
}

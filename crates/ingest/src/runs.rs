//! From a table to runs: rows split by run, a compute and a value for each evaluation.
//!
//! Evaluations are sparse, so rows without a value are passed over in silence; values that are
//! there and not finite are counted in a note. An evaluation row without its own compute takes
//! the last one that its run stated before it, because many trainers log the two apart.

use std::collections::HashMap;

use scalerl_curve::{Compute, Point};

use crate::axis::normalise;
use crate::compute;
use crate::error::{ColumnList, IngestError, nearest};
use crate::metric::{self, Metric};
use crate::table::{Cell, Column, Log};
use crate::{Request, Run};

/// More validation series than this in one log are a mistake of recognition.
const MOST_METRICS: usize = 24;

/// A run as one file gives it.
pub(crate) struct Part {
    pub(crate) run: Run,
    /// Its compute starts at zero in this file, whatever came before.
    pub(crate) counts_from_start: bool,
}

/// Rows of one run: its name if a column gives it, and the rows in order.
struct RunRows {
    name: Option<String>,
    rows: Vec<u32>,
}

/// The runs of a log.
pub(crate) fn parts(log: &Log, request: &Request) -> Result<Vec<Part>, IngestError> {
    if log.table.row_count() == 0 {
        return Err(IngestError::Empty { file: log.file.clone() });
    }
    let metrics = metrics(log, request)?;
    let groups = groups(log, request)?;
    let mut parts = Vec::new();
    let mut without_points = metrics.first().map(|m| (String::from("any"), m.column.clone()));
    let samples = Samples::find(log, request);
    for group in &groups {
        // Rows without any evaluation need no axis either (prime-rl's samples by the clock).
        if !metrics.iter().any(|metric| has_values(log, metric, group)) {
            continue;
        }
        let compute = compute::ComputeAxis::choose(log, &group.rows, request)?;
        let base = group.name.as_deref().unwrap_or(&log.name);
        for metric in &metrics {
            let run = run(log, request, group, metric, &compute, &samples)?;
            if run.points.is_empty() {
                without_points = Some((compute.name.clone(), metric.column.clone()));
                continue;
            }
            let name = if metrics.len() == 1 {
                base.to_owned()
            } else {
                let set = if metric.set.is_empty() { &metric.column } else { &metric.set };
                format!("{base}:{set}")
            };
            let counts_from_start = compute.counts_from_start();
            parts.push(Part { run: Run { name, ..run }, counts_from_start });
        }
    }
    match without_points {
        Some((x, y)) if parts.is_empty() => {
            Err(IngestError::NoPoints { file: log.file.clone(), x, y })
        }
        _ => Ok(parts),
    }
}

fn has_values(log: &Log, metric: &Metric, group: &RunRows) -> bool {
    let column = log.table.column(&metric.column);
    column.is_some_and(|column| group.rows.iter().any(|row| column.get(*row).is_some()))
}

fn metrics(log: &Log, request: &Request) -> Result<Vec<Metric>, IngestError> {
    let columns = || ColumnList(log.table.names());
    if let Some(wanted) = &request.y {
        let column =
            compute::find(&log.table, wanted).ok_or_else(|| missing(log, "--y", wanted))?;
        let (column, set) = (column.name.clone(), String::new());
        return Ok(vec![Metric { column, set, is_training: false }]);
    }
    let metrics = metric::find(&log.table);
    if metrics.is_empty() {
        return Err(IngestError::NoMetric { file: log.file.clone(), columns: columns() });
    }
    if metrics.len() > MOST_METRICS {
        let columns = ColumnList(metrics.iter().map(|metric| metric.column.clone()).collect());
        let count = metrics.len();
        return Err(IngestError::TooManyMetrics { file: log.file.clone(), count, columns });
    }
    Ok(metrics)
}

fn missing(log: &Log, option: &'static str, wanted: &str) -> IngestError {
    let names = log.table.names();
    IngestError::MissingColumn {
        file: log.file.clone(),
        option,
        wanted: wanted.to_owned(),
        nearest: nearest(wanted, names.iter().map(String::as_str)),
        columns: ColumnList(names),
    }
}

/// Splits by `--by`, else by a textual column that names runs, else not at all.
fn groups(log: &Log, request: &Request) -> Result<Vec<RunRows>, IngestError> {
    let by = match &request.by {
        Some(wanted) => {
            Some(compute::find(&log.table, wanted).ok_or_else(|| missing(log, "--by", wanted))?)
        }
        None if log.is_named => None,
        None => ["run", "run_name", "name", "experiment"]
            .iter()
            .filter_map(|name| compute::find(&log.table, name))
            .find(|column| column.is_text()),
    };
    let all = 0..log.table.row_count();
    let Some(by) = by else { return Ok(vec![RunRows { name: None, rows: all.collect() }]) };
    let mut groups: Vec<RunRows> = Vec::new();
    let mut places: HashMap<Option<String>, usize> = HashMap::new();
    for row in all {
        let name = by.get(row).map(|cell| match cell {
            Cell::Number(value) => value.to_string(),
            Cell::Text(text) => text.clone(),
        });
        let place = *places.entry(name).or_insert_with_key(|name| {
            groups.push(RunRows { name: name.clone(), rows: Vec::new() });
            groups.len() - 1
        });
        groups[place].rows.push(row);
    }
    Ok(groups)
}

fn run(
    log: &Log,
    request: &Request,
    group: &RunRows,
    metric: &Metric,
    compute: &compute::ComputeAxis,
    samples: &Samples<'_>,
) -> Result<Run, IngestError> {
    let column =
        log.table.column(&metric.column).ok_or_else(|| missing(log, "--y", &metric.column))?;
    let values = compute.values(&log.table, &group.rows);
    let (mut points, mut not_finite, mut no_compute) = (Vec::new(), 0_usize, 0_usize);
    for &row in &group.rows {
        let value = match column.get(row) {
            None => continue,
            Some(Cell::Number(value)) => *value,
            Some(Cell::Text(text)) => return Err(not_a_number(log, row, column, text)),
        };
        let at = values.at(row).filter(|at| at.is_finite() && *at >= 0.0);
        match at {
            _ if !value.is_finite() => not_finite += 1,
            None => no_compute += 1,
            Some(at) => {
                let samples = samples.at(row);
                points.push(Point { compute: Compute(at), value, samples });
            }
        }
    }
    let mut notes = log.notes.clone();
    notes.extend(compute.notes.iter().cloned());
    if metric.is_training {
        notes.push(format!(
            "No validation was found; `{}` is measured on training prompts.",
            metric.column
        ));
    } else if request.y.is_none() && metric.column != "pass_rate" {
        notes.push(format!("The pass rate is `{}`, found by its name.", metric.column));
    }
    for (count, what) in
        [(not_finite, "without a finite value"), (no_compute, "without a compute of zero or more")]
    {
        if count > 0 {
            notes.push(format!("{count} evaluations {what} were left out."));
        }
    }
    notes.extend(samples.note.clone());
    Ok(Run {
        name: String::new(),
        axis: compute.axis,
        x: compute.name.clone(),
        metric: metric.column.clone(),
        points,
        entropy: entropy(log, group, &values),
        notes,
    })
}

fn not_a_number(log: &Log, row: u32, column: &Column, text: &str) -> IngestError {
    IngestError::NotANumber {
        file: log.file.clone(),
        line: log.table.line(row),
        column: column.name.clone(),
        text: text.chars().take(60).collect(),
    }
}

/// Where the number of graded completions behind a value comes from.
struct Samples<'a> {
    factors: Vec<&'a Column>,
    otherwise: Option<f64>,
    note: Option<String>,
}

impl<'a> Samples<'a> {
    fn find(log: &'a Log, request: &Request) -> Self {
        let column = |names: &[&str]| {
            let mut found = names.iter().filter_map(|name| compute::find(&log.table, name));
            found.find(|column| column.is_numeric())
        };
        let otherwise = request.samples;
        if let Some(total) = column(&["samples", "n_samples", "num_samples", "eval_samples"]) {
            return Self { factors: vec![total], otherwise, note: None };
        }
        let prompts = column(&["prompts", "n_prompts", "num_prompts"]);
        let generations = column(&[
            "generations",
            "n_generations",
            "num_generations",
            "generations_per_prompt",
            "rollouts_per_prompt",
        ]);
        if let (Some(prompts), Some(generations)) = (prompts, generations) {
            let note = Some(format!("Samples are `{}` × `{}`.", prompts.name, generations.name));
            return Self { factors: vec![prompts, generations], otherwise, note };
        }
        Self { factors: Vec::new(), otherwise, note: None }
    }

    fn at(&self, row: u32) -> Option<f64> {
        let product = self.factors.iter().map(|column| column.number(row)).product::<Option<f64>>();
        let product = product.filter(|_| !self.factors.is_empty());
        product.filter(|count| count.is_finite() && *count > 0.0).or(self.otherwise)
    }
}

/// Names of the policy's entropy: the last part of the column's.
const ENTROPIES: [&str; 5] =
    ["entropy", "entropy_loss", "mean_entropy", "entropy_mean", "policy_entropy"];

fn entropy(log: &Log, group: &RunRows, values: &compute::Values) -> Vec<(Compute, f64)> {
    let rank = |column: &Column| {
        let name = normalise(&column.name);
        let leaf = name.rsplit(['/', '.']).next().unwrap_or(&name);
        ENTROPIES.iter().position(|known| *known == leaf)
    };
    let columns = log.table.columns().iter().filter(|column| column.is_numeric());
    let found = columns.filter_map(|column| Some((rank(column)?, column)));
    let Some((_, column)) = found.min_by_key(|(rank, _)| *rank) else { return Vec::new() };
    let pair = |row: &u32| {
        let value = column.number(*row).filter(|value| value.is_finite())?;
        Some((Compute(values.at(*row)?), value))
    };
    group.rows.iter().filter_map(pair).collect()
}

/// Joins parts of the same run, in the order the files were given.
pub(crate) fn merge(parts: Vec<Part>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    for part in parts {
        let key = (part.run.name.clone(), part.run.metric.clone());
        match places.get(&key) {
            Some(place) if runs[*place].axis == part.run.axis => {
                extend(&mut runs[*place], part);
            }
            _ => {
                places.insert(key, runs.len());
                runs.push(part.run);
            }
        }
    }
    tell_apart(&mut runs);
    runs
}

fn extend(run: &mut Run, part: Part) {
    let last = run.points.iter().map(|point| point.compute.0).fold(0.0, f64::max);
    let shift = if part.counts_from_start { last } else { 0.0 };
    if shift > 0.0 {
        run.notes.push(format!("A later file's compute was counted on from {last:.4}."));
    }
    let shifted = part.run.points.into_iter();
    run.points
        .extend(shifted.map(|point| Point { compute: Compute(point.compute.0 + shift), ..point }));
    let entropy = part.run.entropy.into_iter();
    run.entropy.extend(entropy.map(|(compute, value)| (Compute(compute.0 + shift), value)));
    for note in part.run.notes {
        if !run.notes.contains(&note) {
            run.notes.push(note);
        }
    }
}

/// Runs of one name that could not be joined (other metric, other axis) get it in their names.
fn tell_apart(runs: &mut [Run]) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for run in runs.iter() {
        *count.entry(run.name.clone()).or_default() += 1;
    }
    for run in runs {
        if count[&run.name] > 1 {
            run.name = format!("{}:{}", run.name, run.metric);
        }
    }
}

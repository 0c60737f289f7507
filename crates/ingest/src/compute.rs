//! Chooses the compute axis of a table and works out its value row by row.
//!
//! Preferred without `--x`: GPU-hours, then FLOPs, tokens, steps. GPU-hours come from, in this
//! order: a column that has them; the sum of step times, with validation and checkpoint time
//! taken out; the clock. The last two need the number of GPUs.
//!
//! Sums are over steps, not over rows: a step time counts for every step since the row before, so
//! a history that was sampled (W&B keeps 500 rows) or lost lines still adds up.

mod clock;
mod steptime;

use crate::Request;
use crate::axis::{Axis, normalise};
use crate::error::{ColumnList, IngestError, nearest};
use crate::table::{Column, Log, Table};
use steptime::StepTimes;

/// Where the compute of a row comes from.
#[derive(Debug, Clone)]
pub(crate) struct ComputeAxis {
    pub(crate) axis: Axis,
    /// What the axis is called: a column's name, or the axis' own where it is derived.
    pub(crate) name: String,
    source: Source,
    /// What was derived or assumed.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Clone)]
enum Source {
    /// A running total that the log has itself.
    Column(String),
    /// The sum of amounts per step: what is added, and what is taken out.
    Sum { added: Vec<String>, removed: Vec<String>, scale: f64 },
    /// Seconds or dates on a clock, counted from the run's first row.
    Clock { column: String, scale: f64 },
}

const SECONDS_PER_HOUR: f64 = 3600.0;

/// Tokens of one step: verl, prime-rl.
const STEP_TOKENS: [&str; 2] = ["perf/total_num_tokens", "progress/tokens"];

/// Seconds since the start, or since 1970.
const CLOCKS: [&str; 12] = [
    "_runtime",
    "runtime",
    "elapsed",
    "elapsed_s",
    "elapsed_seconds",
    "relative_time_(process)",
    "relative_time_(wall)",
    "wall_time",
    "_timestamp",
    "timestamp",
    "time",
    "seconds",
];

impl ComputeAxis {
    /// The axis the request asks for, or the best there is.
    pub(crate) fn choose(log: &Log, rows: &[u32], request: &Request) -> Result<Self, IngestError> {
        let Some(wanted) = &request.x else { return Self::best(log, rows, request) };
        if let Some(column) = find(&log.table, wanted) {
            let axis = Axis::of_column(&column.name);
            // Dates are no compute: the time since the first of them is.
            if axis == Axis::Other && clock::is_date(column, rows) {
                return Self::from_clock(log, &column.name, request);
            }
            return Ok(Self::column(column, axis));
        }
        let Some(axis) = Axis::named(wanted) else {
            let names = log.table.names();
            let axes = ["gpu_hours", "tokens", "flops", "steps"];
            return Err(IngestError::MissingColumn {
                file: log.file.clone(),
                option: "--x",
                wanted: wanted.clone(),
                nearest: nearest(wanted, names.iter().map(String::as_str).chain(axes)),
                columns: ColumnList(names),
            });
        };
        Self::on_axis(log, rows, axis, request, |_| true)?.ok_or_else(|| no_axis(log, Some(axis)))
    }

    fn best(log: &Log, rows: &[u32], request: &Request) -> Result<Self, IngestError> {
        for axis in [Axis::GpuHours, Axis::Flops, Axis::Tokens, Axis::Steps] {
            // Tokens and operations are logged per step under the same names as totals.
            let is_ambiguous = matches!(axis, Axis::Flops | Axis::Tokens);
            let is_usable = |column: &Column| !is_ambiguous || never_falls(column, rows);
            match Self::on_axis(log, rows, axis, request, is_usable) {
                Ok(Some(compute)) => return Ok(compute),
                // Other logs can do with steps; a timed one would silently lose its meaning.
                Err(error) if log.is_timed => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
        Err(no_axis(log, None))
    }

    fn on_axis(
        log: &Log,
        rows: &[u32],
        axis: Axis,
        request: &Request,
        is_usable: impl Fn(&Column) -> bool,
    ) -> Result<Option<Self>, IngestError> {
        let named = log
            .table
            .columns()
            .iter()
            .filter_map(|column| Some((axis.rank(&column.name)?, column)))
            // `timing_s/step` and the like end in an axis' name and are no axis.
            .filter(|(_, column)| !steptime::is_whole(&column.name))
            .filter(|(_, column)| column.is_numeric() && is_usable(column))
            .min_by_key(|(rank, _)| *rank);
        if let Some((_, column)) = named {
            return Ok(Some(Self::column(column, axis)));
        }
        match axis {
            Axis::GpuHours => Self::from_times(log, rows, request),
            Axis::Tokens => Ok(Self::from_step_tokens(log)),
            _ => Ok(None),
        }
    }

    fn column(column: &Column, axis: Axis) -> Self {
        let name = column.name.clone();
        Self { axis, source: Source::Column(name.clone()), name, notes: Vec::new() }
    }

    fn from_step_tokens(log: &Log) -> Option<Self> {
        let column = STEP_TOKENS.iter().find(|name| has_numbers(&log.table, name))?;
        let notes = vec![format!("Tokens are the sum of `{column}` over the steps.")];
        let source =
            Source::Sum { added: vec![(*column).to_owned()], removed: Vec::new(), scale: 1.0 };
        Some(Self { axis: Axis::Tokens, name: "tokens".to_owned(), source, notes })
    }

    fn from_times(log: &Log, rows: &[u32], request: &Request) -> Result<Option<Self>, IngestError> {
        let times = StepTimes::find(&log.table, rows);
        let clock = CLOCKS.iter().find_map(|clock| {
            let mut columns = log.table.columns().iter();
            columns.find(|column| {
                let is_named = normalise(&column.name) == *clock;
                is_named && (column.is_numeric() || clock::is_date(column, rows))
            })
        });
        let Some(column) = times.added.first().or(clock.map(|column| &column.name)) else {
            return Ok(None);
        };
        if times.added.is_empty() {
            return Self::from_clock(log, column, request).map(Some);
        }
        let mut notes = Vec::new();
        let gpus = gpus(log, column, request, &mut notes)?;
        notes.push(times.note(gpus));
        let scale = gpus / SECONDS_PER_HOUR;
        let source = Source::Sum { added: times.added, removed: times.removed, scale };
        Ok(Some(Self { axis: Axis::GpuHours, name: "gpu_hours".to_owned(), source, notes }))
    }

    /// Time on the clock since the run's first row.
    fn from_clock(log: &Log, column: &str, request: &Request) -> Result<Self, IngestError> {
        let mut notes = Vec::new();
        let gpus = gpus(log, column, request, &mut notes)?;
        notes.push(format!(
            "GPU-hours are clock time (`{column}`, in seconds; dates count from the run's first row) \
             × {gpus} (GPUs); validation and pauses are in it."
        ));
        let source = Source::Clock { column: column.to_owned(), scale: gpus / SECONDS_PER_HOUR };
        Ok(Self { axis: Axis::GpuHours, name: "gpu_hours".to_owned(), source, notes })
    }

    /// Whether the axis restarts from zero in a file that continues another.
    pub(crate) fn counts_from_start(&self) -> bool {
        !matches!(self.source, Source::Column(_))
    }

    /// The compute after each of `rows` (ascending) that states it. Rows before the first have
    /// `start`, where the axis has a known start.
    pub(crate) fn values(&self, table: &Table, rows: &[u32]) -> Values {
        let points = match &self.source {
            Source::Column(name) => numbers(table, name, rows),
            Source::Clock { column, scale } => {
                let column = table.column(column);
                let ticks = column.and_then(|column| clock::seconds(column, rows));
                let ticks = ticks.unwrap_or_default();
                // A clock that starts near zero counts the run's own seconds; else it is a date.
                let start = ticks.first().map_or(0.0, |first| first.1);
                let start = if start > 1e8 { start } else { 0.0 };
                ticks.into_iter().map(|(row, seconds)| (row, (seconds - start) * scale)).collect()
            }
            Source::Sum { added, removed, scale } => sums(table, rows, added, removed, *scale),
        };
        let start = matches!(self.source, Source::Sum { .. }).then_some(0.0);
        Values { points, start }
    }
}

/// The number of GPUs: as asked, or as the log says.
fn gpus(
    log: &Log,
    column: &str,
    request: &Request,
    notes: &mut Vec<String>,
) -> Result<f64, IngestError> {
    match (request.gpus, &log.gpus) {
        (Some(given), Some((logged, origin))) if (given - logged).abs() > 0.5 => {
            notes.push(format!(
                "{given} GPUs, as asked; the log's configuration says {logged} ({origin})."
            ));
            Ok(given)
        }
        (Some(given), _) => Ok(given),
        (None, Some((logged, origin))) => {
            notes.push(format!("{logged} GPUs, as the log's configuration says ({origin})."));
            Ok(*logged)
        }
        (None, None) => {
            Err(IngestError::NeedsGpus { file: log.file.clone(), column: column.to_owned() })
        }
    }
}

/// Compute by row.
pub(crate) struct Values {
    points: Vec<(u32, f64)>,
    start: Option<f64>,
}

impl Values {
    /// The compute at `row`: its own, or the last one stated before it.
    pub(crate) fn at(&self, row: u32) -> Option<f64> {
        let count = self.points.partition_point(|(known, _)| *known <= row);
        if count == 0 { self.start } else { Some(self.points[count - 1].1) }
    }
}

/// Running sums; an amount counts for every step since the last row that had one.
fn sums(
    table: &Table,
    rows: &[u32],
    added: &[String],
    removed: &[String],
    scale: f64,
) -> Vec<(u32, f64)> {
    let columns = |names: &[String]| -> Vec<&Column> {
        names.iter().filter_map(|name| table.column(name)).collect()
    };
    let (added, removed) = (columns(added), columns(removed));
    let steps = table
        .columns()
        .iter()
        .filter_map(|column| Some((Axis::Steps.rank(&column.name)?, column)))
        .filter(|(_, column)| !steptime::is_whole(&column.name))
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, column)| column);
    let total = |columns: &[&Column], row: u32| -> Option<f64> {
        let amounts = columns.iter().filter_map(|column| column.number(row));
        let amounts: Vec<f64> = amounts.filter(|amount| amount.is_finite()).collect();
        if amounts.is_empty() { None } else { Some(amounts.iter().sum()) }
    };
    let stated: Vec<(u32, f64, Option<f64>)> = rows
        .iter()
        .filter_map(|&row| {
            let step = steps.and_then(|column| column.number(row));
            Some((row, total(&added, row)?, step))
        })
        .collect();
    let mut running = 0.0;
    let mut previous = start_of(&stated);
    let mut points = Vec::new();
    for (row, amount, step) in stated {
        // Back at an earlier step: a restart, whose time was spent again. The same step: a second
        // line about it.
        let count = match (previous, step) {
            (Some(previous), Some(step)) if step >= previous => step - previous,
            _ => 1.0,
        };
        let excess = total(&removed, row).unwrap_or(0.0);
        running += ((amount * count - excess) * scale).max(0.0);
        previous = step.or(previous);
        points.push((row, running));
    }
    points
}

/// The step before the first row: as far back as the second row is ahead, and not below zero. A
/// trainer that logs every tenth step speaks of ten in its first row, a resumed log of one.
fn start_of(stated: &[(u32, f64, Option<f64>)]) -> Option<f64> {
    let first = stated.first()?.2?;
    let interval = stated.get(1).and_then(|second| second.2).map_or(1.0, |second| second - first);
    Some((first - interval.max(1.0)).max(0.0)).filter(|start| *start < first)
}

fn numbers(table: &Table, name: &str, rows: &[u32]) -> Vec<(u32, f64)> {
    let Some(column) = table.column(name) else { return Vec::new() };
    let value = |row: &u32| Some((*row, column.number(*row).filter(|value| value.is_finite())?));
    rows.iter().filter_map(value).collect()
}

fn has_numbers(table: &Table, name: &str) -> bool {
    table.column(name).is_some_and(Column::is_numeric)
}

/// Amounts per step fall again and again; a running total does not.
fn never_falls(column: &Column, rows: &[u32]) -> bool {
    let values: Vec<f64> = rows.iter().filter_map(|row| column.number(*row)).collect();
    !values.is_empty() && values.is_sorted()
}

/// The column of this name, or of the same name in another spelling.
pub(crate) fn find<'a>(table: &'a Table, wanted: &str) -> Option<&'a Column> {
    table.column(wanted).or_else(|| {
        let wanted = normalise(wanted);
        table.columns().iter().find(|column| normalise(&column.name) == wanted)
    })
}

fn no_axis(log: &Log, wanted: Option<Axis>) -> IngestError {
    IngestError::NoAxis { file: log.file.clone(), wanted, columns: ColumnList(log.table.names()) }
}

#[cfg(test)]
mod tests;

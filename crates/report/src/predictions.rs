//! The page of predictions: how good each method was, by fitted share and by study, and every run.

use std::fmt::Write as _;

use scalerl_board::plots::{self, Captions, Outcome};
use scalerl_curve::Method;
use scalerl_study::ledger::{CLOSE, NARROW, Paired, Row, Score};

use crate::study::tables::pipes;
use crate::table::row;
use crate::words;

/// One way of forecasting: its name and what it said of a run, with its interval where it has one.
struct Way {
    name: &'static str,
    forecast: fn(&Row) -> Option<f64>,
    interval: fn(&Row) -> Option<(f64, f64)>,
}

const WAYS: [Way; 9] = [
    Way {
        name: "mixture with history (ours)",
        forecast: |row| Some(row.forecast),
        interval: |row| Some((row.low, row.high)),
    },
    Way {
        name: "mixture alone",
        forecast: |row| row.alone,
        interval: |row| row.alone_low.zip(row.alone_high),
    },
    Way {
        name: "marginal",
        forecast: |row| row.marginal,
        interval: |row| row.marginal_low.zip(row.marginal_high),
    },
    Way { name: "authors' grid", forecast: |row| row.paper, interval: |_| None },
    Way { name: "power law", forecast: |row| row.power_law, interval: |_| None },
    Way { name: "offset power law", forecast: |row| row.offset_power_law, interval: |_| None },
    Way { name: "log error", forecast: |row| row.log_error, interval: |_| None },
    Way { name: "last value", forecast: |row| row.last_value, interval: |_| None },
    Way { name: "twin, where one had finished", forecast: |row| row.twin, interval: |_| None },
];

/// What is forecast from which share, in words.
const SHARES: [(f64, &str); 3] = [
    (0.5, "From half of the compute to the end"),
    (0.25, "From a quarter to twice as much"),
    (0.75, "From three quarters to the end"),
];

fn share(part: usize, whole: usize) -> String {
    format!("{part} of {whole} ({:.0} %)", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Rows that could be made anew from their points, and those that could not.
fn is_current(row: &Row) -> bool {
    row.method == Method::default()
}

fn from_half(rows: &[Row]) -> Vec<&Row> {
    rows.iter().filter(|row| is_current(row) && row.is_from_half()).collect()
}

pub fn headlines(rows: &[Row]) -> Vec<String> {
    let line = |which: &str, rows: &[&Row]| {
        let score = Score::of(rows.iter().map(|row| row.error))?;
        let inside = rows.iter().filter(|row| row.inside).count();
        let good = rows.iter().filter(|row| row.is_good()).count();
        let width = rows.iter().map(|row| row.high - row.low).sum::<f64>() / rows.len() as f64;
        Some(format!(
            "{which}: mean absolute error {:.4}, {} within {CLOSE}; {} inside their 90 % \
             interval, mean width {width:.3}; {} within {CLOSE}, or inside an interval narrower \
             than {NARROW}.",
            score.mean_error,
            share(score.close, rows.len()),
            share(inside, rows.len()),
            share(good, rows.len()),
        ))
    };
    let all = from_half(rows);
    let whole: Vec<&Row> = all.iter().copied().filter(|row| !row.is_of_sweep()).collect();
    let bounded: Vec<&Row> = all.iter().copied().filter(|row| row.bounded).collect();
    let taught: Vec<&Row> = all.iter().copied().filter(|row| row.history_runs > 0).collect();
    let runs = |count: usize| if count == 1 { "1 run".into() } else { format!("{count} runs") };
    let mut lines = Vec::new();
    lines.extend(line(&format!("From half of the compute, {}", runs(all.len())), &all));
    if whole.len() < all.len() {
        let which = format!("Without the short runs of sweeps, {}", runs(whole.len()));
        lines.extend(line(&which, &whole));
    }
    if taught.len() < all.len() {
        lines.extend(line(&format!("With a history by then, {}", runs(taught.len())), &taught));
    }
    match line(&format!("Called bounded, {}", runs(bounded.len())), &bounded) {
        Some(text) => lines.push(text),
        None => lines.push("No run was called bounded at half of its compute.".into()),
    }
    lines
}

/// One row a method, for forecasts from half of the compute.
pub fn methods(rows: &[Row]) -> Vec<Vec<String>> {
    method_rows(&from_half(rows))
}

fn method_rows(rows: &[&Row]) -> Vec<Vec<String>> {
    let heading =
        ["method", "runs", "mean |error|", "median |error|", "within 0.02", "inside", "width"];
    let mut lines = vec![row(heading)];
    for way in &WAYS {
        let known: Vec<&&Row> = rows.iter().filter(|row| (way.forecast)(row).is_some()).collect();
        let errors = known.iter().filter_map(|row| Some((way.forecast)(row)? - row.measured));
        let Some(score) = Score::of(errors) else { continue };
        let intervals: Vec<(f64, f64, f64)> = known
            .iter()
            .filter_map(|row| (way.interval)(row).map(|(low, high)| (low, high, row.measured)))
            .collect();
        let inside = intervals.iter().filter(|(low, high, is)| low <= is && is <= high).count();
        let width = intervals.iter().map(|(low, high, _)| high - low).sum::<f64>();
        let count = intervals.len();
        let cell = |text: String| if count == 0 { "–".to_owned() } else { text };
        lines.push(vec![
            way.name.to_owned(),
            score.runs.to_string(),
            format!("{:.4}", score.mean_error),
            format!("{:.4}", score.median_error),
            share(score.close, score.runs),
            cell(format!("{:.0} %", 100.0 * inside as f64 / count.max(1) as f64)),
            cell(format!("{:.3}", width / count.max(1) as f64)),
        ]);
    }
    lines
}

/// How much more the mixture errs without history than `marginal`, run by run.
fn alone_beside_marginal(rows: &[&Row]) -> Option<Paired> {
    let difference = |row: &&Row| {
        let error = |forecast: f64| (forecast - row.measured).abs();
        Some(error(row.alone?) - error(row.marginal?))
    };
    Paired::of(&rows.iter().filter_map(difference).collect::<Vec<f64>>())
}

/// Mean errors and coverage by study: ours with and without history, and `marginal`.
fn groups(rows: &[&Row]) -> Vec<Vec<String>> {
    let heading = ["study", "runs", "with history", "alone", "marginal", "alone − marginal"];
    let mut lines = vec![row(heading)];
    let group = |one: &Row| match (one.study.as_str(), one.is_of_sweep()) {
        ("", _) => "runs of their own".to_owned(),
        (study, true) => format!("{study}, sweeps"),
        (study, false) => study.to_owned(),
    };
    let mut names: Vec<String> = Vec::new();
    for one in rows {
        let name = group(one);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let of: Vec<&Row> = rows.iter().copied().filter(|row| group(row) == name).collect();
        lines.push(group_line(name, &of));
    }
    lines.push(group_line("all".into(), rows));
    lines
}

fn group_line(name: String, rows: &[&Row]) -> Vec<String> {
    let mut line = vec![name, rows.len().to_string()];
    line.extend(WAYS[..3].iter().map(|way| {
        let known: Vec<(f64, bool)> = rows
            .iter()
            .filter_map(|row| {
                let (low, high) = (way.interval)(row)?;
                let error = ((way.forecast)(row)? - row.measured).abs();
                Some((error, low <= row.measured && row.measured <= high))
            })
            .collect();
        let count = known.len().max(1) as f64;
        let inside = known.iter().filter(|(_, is_inside)| *is_inside).count() as f64;
        let error = known.iter().map(|(error, _)| error).sum::<f64>() / count;
        format!("{error:.4}, {:.0} %", 100.0 * inside / count)
    }));
    line.push(alone_beside_marginal(rows).map_or("–".into(), |paired| paired.to_string()));
    line
}

pub fn page(rows: &[Row], image: &str) -> String {
    let mut text = String::from(
        "# Predictions\n\nMade by `scalerl predictions`; do not edit. For every run: the forecast \
         from the points of the first part of its compute, and what was measured at the end (mean \
         of the last three evaluations, with its sampling error; the forecast is of the mean at \
         the same computes, its 90 % interval is for such a mean). History are the runs of the \
         same model and evaluation that had finished when the last point of the first part was \
         measured, and no others.\n\n",
    );
    for line in headlines(rows) {
        let _ = writeln!(text, "- {line}");
    }
    let _ = write!(text, "\n![forecast against measured]({image})\n");
    for (fraction, heading) in SHARES {
        let of: Vec<&Row> = rows
            .iter()
            .filter(|row| is_current(row) && (row.fraction - fraction).abs() < 1e-9)
            .collect();
        if !of.is_empty() {
            let _ = write!(text, "\n## {heading}\n\n{}", pipes(&method_rows(&of)));
            let _ = write!(
                text,
                "\nMean error and coverage by study; in the last column the mean over the runs of \
                 \"error alone less error of `marginal`\", and its standard error:\n\n{}",
                pipes(&groups(&of))
            );
        }
    }
    let _ = write!(text, "\n## Every run, from half of its compute\n\n{}", pipes(&list(rows)));
    let _ = write!(
        text,
        "\n\"Could be made from\" is when the last point of the first half was measured (UTC); \
         \"history\" is how many finished runs there were to learn from then, and how much of the \
         forecast rests on them; \"recorded then\" is what the run itself wrote down at that \
         moment for twice the compute. The rivals, computes and devices, and the forecasts from a \
         quarter and three quarters, are in the CSV beside this page.\n"
    );
    let older: Vec<&Row> = rows.iter().filter(|row| !is_current(row)).collect();
    if !older.is_empty() {
        let score = Score::of(older.iter().map(|row| row.error));
        let error = score.map_or(0.0, |score| score.mean_error);
        let _ = write!(
            text,
            "\nThe points of {} runs were not kept; their forecasts are those of the method of \
             their day (mean error {error:.3}) and are in no table above:\n\n{}",
            older.len(),
            pipes(&lines(&older))
        );
    }
    text
}

fn list(rows: &[Row]) -> Vec<Vec<String>> {
    lines(&from_half(rows))
}

fn lines(rows: &[&Row]) -> Vec<Vec<String>> {
    let mut lines = vec![row([
        "run",
        "commit",
        "could be made from",
        "points",
        "history",
        "forecast",
        "recorded then",
        "measured",
        "error",
        "inside",
        "fit",
    ])];
    lines.extend(rows.iter().map(|one| {
        let error = one.measured_error.map(|error| format!(" ± {error:.3}")).unwrap_or_default();
        let history = match one.history_runs {
            0 => "–".to_owned(),
            runs => format!("{runs}, {:.0} %", 100.0 * one.history_weight),
        };
        vec![
            one.name(),
            short_commit(&one.commit),
            one.forecast_from.clone(),
            one.points.to_string(),
            history,
            words::interval(one.forecast, one.low, one.high),
            one.recorded.map_or("–".into(), |value| format!("{value:.3}")),
            format!("{:.3}{error}", one.measured),
            format!("{:+.3}", one.error),
            if one.inside { "yes" } else { "no" }.to_owned(),
            one.verdict.to_string(),
        ]
    }));
    lines
}

/// The first letters, and whether the tree had changes beside it.
fn short_commit(commit: &str) -> String {
    let (commit, mark) = commit.split_once('+').map_or((commit, ""), |(commit, _)| (commit, "+"));
    commit.chars().take(9).chain(mark.chars()).collect()
}

pub fn agreement(rows: &[Row]) -> scalerl_board::Figure {
    let chosen = from_half(rows);
    let outcomes = |is_chosen: &dyn Fn(&Row) -> bool| -> Vec<Outcome> {
        let outcome = |row: &&Row| Outcome {
            name: row.name(),
            predicted: row.forecast,
            low: row.low,
            high: row.high,
            actual: row.measured,
        };
        chosen.iter().filter(|row| is_chosen(row)).map(outcome).collect()
    };
    // The rarest last, so that they lie on top.
    let kinds = [
        ("not bounded", outcomes(&|row| !row.bounded && !row.is_of_sweep())),
        ("short run of a sweep", outcomes(&|row| !row.bounded && row.is_of_sweep())),
        ("called bounded", outcomes(&|row| row.bounded)),
    ];
    let groups: Vec<(String, Vec<Outcome>)> = kinds
        .into_iter()
        .filter(|(_, outcomes)| !outcomes.is_empty())
        .map(|(name, outcomes)| (name.to_owned(), outcomes))
        .collect();
    let captions = Captions {
        title: "Forecasts at half of the compute, and what came".into(),
        subtitle: headlines(rows).first().cloned().unwrap_or_default(),
        value: "pass rate".into(),
        interval: "90 %".into(),
        ..Captions::default()
    };
    plots::agreement(&groups, &captions)
}

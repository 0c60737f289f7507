//! The mixture against its plain forms: the numpy reference (`scripts/golden/mixture_fits.py`) over
//! whole fits, and dense Gaussian conditioning over single cells.

use std::path::Path;

use serde_json::Value;

use super::*;

/// Two codes of one sum.
const SAME: f64 = 1e-6;

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden_mixture.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Rows of a CSV file as (run, columns by name).
fn table(path: &Path) -> Vec<std::collections::HashMap<String, String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        let cells = line.split(',').map(str::to_owned);
        header.iter().map(|name| (*name).to_owned()).zip(cells).collect()
    };
    lines.map(row).collect()
}

fn points(path: &Path, run: &str, axis: &str) -> Vec<Point> {
    let number = |row: &std::collections::HashMap<String, String>, key: &str| -> Option<f64> {
        row.get(key).map(|text| text.parse().unwrap())
    };
    let rows = table(path);
    let of_run = rows.iter().filter(|row| row["run"] == run);
    let mut points: Vec<Point> = of_run
        .map(|row| Point {
            compute: Compute(number(row, axis).unwrap()),
            value: number(row, "pass_rate").unwrap(),
            samples: number(row, "samples"),
        })
        .collect();
    points.sort_by(|a, b| a.compute.0.total_cmp(&b.compute.0));
    points
}

fn recorded(key: &str) -> Vec<Point> {
    let (folder, run) = key.split_once('/').unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results").join(folder);
    let runs = std::fs::read_to_string(folder.join("runs.jsonl")).unwrap();
    let meta: Value = runs
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|meta| meta["run"] == run)
        .unwrap();
    let axis = match meta["axis"].as_str().unwrap() {
        "tokens" => "tokens",
        "steps" => "step",
        _ => "gpu_hours",
    };
    points(&folder.join("points.csv"), run, axis)
}

fn simulated(golden: &Value, key: &str) -> Vec<Point> {
    let series = &golden["simulated"][key];
    let samples = series["samples"].as_array().map(|_| numbers(&series["samples"]));
    let pairs = numbers(&series["compute"]).into_iter().zip(numbers(&series["value"]));
    let point = |(i, (compute, value)): (usize, (f64, f64))| Point {
        compute: Compute(compute),
        value,
        samples: samples.as_ref().map(|samples| samples[i]),
    };
    pairs.enumerate().map(point).collect()
}

/// Other people's curves, where the folder with them lies beside the project.
fn foreign(key: &str) -> Option<Vec<Point>> {
    let (file, run) = key.split_once('/').unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/curves")
        .join(format!("{file}.csv"));
    if !path.exists() {
        println!("skipped: {key} is not at hand");
        return None;
    }
    let axis = if file.starts_with("qwen3") { "step" } else { "gpu_hours" };
    Some(points(&path, run, axis))
}

fn history(golden: &Value) -> Vec<Branch> {
    let runs = golden["history"].as_array().unwrap();
    let key = |run: &Value| run["run"].as_str().unwrap().to_owned();
    runs.iter().map(|run| summarise_with(&recorded(&key(run)), &Settings::REFERENCE)).collect()
}

fn posterior(points: &[Point], history: &[Branch], settings: &Settings) -> Posterior {
    let observed = Observed::new(points, settings);
    let prior = Prior::generic(&observed, settings);
    let grid = Grid::refine(&observed, &prior, settings);
    Posterior::new(observed, grid, history, settings)
}

fn near(found: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((found - wanted).abs() <= tolerance, "{what}: {found} is not {wanted}");
}

/// Fits a case of the golden file and holds every number against it.
fn check(points: &[Point], case: &Value, history: &[Branch]) {
    let end = points[points.len() - 1].compute * case["fraction"].as_f64().unwrap();
    let part: Vec<Point> = points.iter().copied().filter(|p| p.compute <= end).collect();
    let at = Compute(case["at"].as_f64().unwrap());
    for (key, history) in [("alone", &[][..]), ("with_history", history)] {
        let (wanted, name) = (&case[key], format!("{} {} {key}", case["run"], case["fraction"]));
        let posterior = posterior(&part, history, &Settings::REFERENCE);
        let measured = posterior.at(&[at], 1.0);
        let shares = [0.05, 0.5, 0.95];
        for (share, wanted) in shares.iter().zip(numbers(&wanted["measured"])) {
            near(measured.quantile(*share), wanted, SAME, &format!("{name} at {share}"));
        }
        let curve = posterior.at(&[at], 0.0);
        for (share, wanted) in [0.05, 0.95].iter().zip(numbers(&wanted["curve"])) {
            near(curve.quantile(*share), wanted, SAME, &format!("{name} curve at {share}"));
        }
        let ceiling = posterior.ceiling();
        for (share, wanted) in shares.iter().zip(numbers(&wanted["ceiling"])) {
            near(ceiling.quantile(*share), wanted, SAME, &format!("{name} ceiling at {share}"));
        }
        let from_history: f64 = posterior.history_weights().iter().sum();
        near(from_history, wanted["from_history"].as_f64().unwrap(), SAME, &name);
    }
}

#[test]
fn recorded_runs_agree_with_the_reference() {
    let golden = golden();
    let history = history(&golden);
    for case in golden["recorded"].as_array().unwrap() {
        check(&recorded(case["run"].as_str().unwrap()), case, &history);
    }
}

#[test]
fn simulated_series_agree_with_the_reference() {
    let golden = golden();
    let history = history(&golden);
    for case in golden["simulated_cases"].as_array().unwrap() {
        check(&simulated(&golden, case["run"].as_str().unwrap()), case, &history);
    }
}

#[test]
fn other_peoples_curves_agree_with_the_reference() {
    let golden = golden();
    let history = history(&golden);
    for case in golden["foreign"].as_array().unwrap() {
        let Some(points) = foreign(case["run"].as_str().unwrap()) else { return };
        check(&points, case, &history);
    }
}

#[test]
fn summaries_agree_with_the_reference() {
    let golden = golden();
    for (wanted, found) in golden["history"].as_array().unwrap().iter().zip(history(&golden)) {
        let name = wanted["run"].to_string();
        near(found.ceiling, wanted["ceiling"].as_f64().unwrap(), SAME, &name);
        near(found.ceiling_sd, wanted["ceiling_sd"].as_f64().unwrap(), SAME, &name);
        for (tail, wanted) in found.tails.iter().zip(wanted["tails"].as_array().unwrap()) {
            let numbers = numbers(wanted);
            near(tail.share, numbers[0], SAME, &name);
            near(tail.log_steepness, numbers[1], SAME, &name);
            near(tail.log_steepness_sd, numbers[2], SAME, &name);
        }
    }
}

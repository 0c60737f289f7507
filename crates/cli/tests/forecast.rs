//! The forecasting commands as a user sees them: output, error text, exit code.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

struct Outcome {
    code: i32,
    out: String,
    err: String,
}

fn scalerl(arguments: &[&str]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_scalerl"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("the binary was built for this test");
    Outcome {
        code: output.status.code().expect("no signal"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn json(arguments: &[&str]) -> Value {
    let outcome = scalerl(arguments);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    serde_json::from_str(&outcome.out).unwrap()
}

fn near(value: &Value, wanted: f64, tolerance: f64) {
    let found = value.as_f64().unwrap();
    assert!((found - wanted).abs() <= tolerance, "{found} is not near {wanted}");
}

const EXAMPLE: &str = "examples/curves/scalerl-8b.csv";
const RECIPES: &str = "examples/curves/recipes.csv";

#[test]
fn fit_prints_a_table_the_verdict_and_a_chart() {
    let outcome = scalerl(&["fit", EXAMPLE, "--target", "0.6", "--target", "0.9"]);
    assert_eq!(outcome.code, 0);
    let words = outcome.out.split("\n\n").take(3).collect::<Vec<_>>().join("\n\n");
    insta::assert_snapshot!(words, @r"
    scalerl-8b: pass_rate by gpu_hours, 40 points to 16k GPU-hours

      ceiling        0.608 [0.599, 0.626]
      steepness      1.831 [1.438, 2.238]
      midpoint       2.43k [2.05k, 2.87k]
      floor          0.394 (fitted)
      fit            mixture, rmse 0.0041
      at 32k (2×)    0.607 [0.594, 0.621]
      at 160k (10×)  0.608 [0.589, 0.630]

      2× more compute buys +0.004 [-0.005, 0.014], which may be nothing.
      Buying more than 0.01: 2× the compute may (12 %), 10× the compute may (26 %).
      Verdict: bounded. The ceiling is bounded by these points: judge more compute by the forecast.
      0.600 was reached at 12k GPU-hours.
      0.900 lies above the ceiling.
      One evaluation of 16k samples is known to ±0.006 (90 %) by counting, ±0.004 on fixed prompts; two of them tell 0.005 apart.
    ");
    assert!(outcome.out.contains('●'), "a chart of the points");
}

#[test]
fn fit_json_has_the_documented_shape() {
    let found = json(&["fit", EXAMPLE, "--json", "--at", "32000", "--target", "0.6"]);
    let run = &found["runs"][0];
    assert_eq!(run["name"], "scalerl-8b");
    assert_eq!(run["points"], 40);
    assert_eq!(run["x"], "gpu_hours");
    assert_eq!(run["floor"]["source"], "fit");
    assert_eq!(run["verdict"], "bounded");
    near(&run["ceiling"]["value"], 0.61, 0.02);
    assert_eq!(run["ceiling"]["bounded"], true);
    for key in ["steepness", "midpoint", "ceiling"] {
        let (low, high) = (run[key]["low"].as_f64().unwrap(), run[key]["high"].as_f64().unwrap());
        let value = run[key]["value"].as_f64().unwrap();
        assert!(low <= value && value <= high, "{key}");
    }
    assert_eq!(run["forecasts"].as_array().unwrap().len(), 1);
    near(&run["forecasts"][0]["at"], 32_000.0, 0.0);
    near(&run["targets"][0]["target"], 0.6, 0.0);
    assert!(run["targets"][0]["compute"].as_f64().unwrap() < 16_000.0);
}

#[test]
fn an_early_fit_says_that_the_ceiling_is_not_bounded() {
    let found = json(&["fit", EXAMPLE, "--json", "--until", "2500"]);
    let ceiling = &found["runs"][0]["ceiling"];
    assert_eq!(ceiling["bounded"], false);
    assert!(ceiling["high"].is_null());
    let text = scalerl(&["fit", EXAMPLE, "--until", "2500"]).out;
    assert!(text.contains("not bounded, at least"), "{text}");
}

#[test]
fn compare_tells_ceiling_from_efficiency() {
    let found = json(&["compare", RECIPES, "--json", "--baseline", "scalerl"]);
    let pairs = found["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    let verdict = |name: &str| {
        let pair = pairs.iter().find(|pair| pair["a"] == name).unwrap();
        assert_eq!(pair["b"], "scalerl");
        assert!(pair["ceiling_difference"]["low"].is_number());
        assert!(pair["steepness_difference"]["high"].is_number());
        assert!(pair["shared_ceiling"].is_number());
        pair["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("grpo-deepseek"), "ceiling");
    assert_eq!(verdict("magistral"), "ceiling");
    assert_ne!(verdict("minimax-m1"), "ceiling");
}

#[test]
fn backtest_reports_errors_and_coverage() {
    let found = json(&["backtest", EXAMPLE, "--json", "--fractions", "0.25,0.5"]);
    let tests = found["backtests"].as_array().unwrap();
    assert_eq!(tests.len(), 2);
    near(&tests[1]["fraction"], 0.5, 0.0);
    near(&tests[1]["fitted_until"], 8000.0, 0.0);
    near(&tests[1]["at"], 16_000.0, 0.0);
    let error = tests[1]["predicted"].as_f64().unwrap() - tests[1]["actual"].as_f64().unwrap();
    near(&tests[1]["error"], error, 1e-12);
    assert_eq!(tests[1]["covered"], true);
    assert_eq!(found["summary"]["forecasts"], 2);
}

#[test]
fn figures_and_reports_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for command in ["fit", "compare", "backtest"] {
        let (plot, page) = (at(&format!("{command}.png")), at(&format!("{command}.html")));
        let outcome = scalerl(&[command, RECIPES, "--plot", &plot, "--report", &page]);
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        assert!(std::fs::read(&plot).unwrap().starts_with(b"\x89PNG"));
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains("<svg") && page.contains("grpo-deepseek"), "{command}");
    }
    assert!(Path::new(&at("compare-slopes.png")).exists());
}

#[test]
fn a_missing_column_is_named_with_what_is_there() {
    let outcome = scalerl(&["fit", EXAMPLE, "--y", "pas_rate"]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.err.starts_with("error: "), "{}", outcome.err);
    assert!(outcome.err.contains("pas_rate") && outcome.err.contains("pass_rate"));
    assert!(outcome.err.contains("hint: "));
}

#[test]
fn percentages_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.csv");
    let rows: Vec<String> = (1..12).map(|i| format!("{i},{}", 40 + i)).collect();
    std::fs::write(&file, format!("gpu_hours,pass_rate\n{}\n", rows.join("\n"))).unwrap();
    let path = file.to_str().unwrap();
    let outcome = scalerl(&["fit", path]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.err.contains("value 41 lies outside [0, 1]"), "{}", outcome.err);
    assert!(outcome.err.contains("--range 0,100"), "{}", outcome.err);
    assert_eq!(scalerl(&["fit", path, "--range", "0,100"]).code, 0);
}

#[test]
fn bad_input_ends_with_code_2_and_nothing_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let plot = at("never.png");
    for arguments in [
        vec!["fit", "no-such-file.csv", "--plot", &plot],
        vec!["fit", EXAMPLE, "--plot", "picture.gif"],
        vec!["fit", EXAMPLE, "--until", "10", "--plot", &plot],
        vec!["fit", EXAMPLE, "--floor", "1.5", "--plot", &plot],
        vec!["fit", EXAMPLE, "--method", "magic"],
        vec!["fit", EXAMPLE, "--report", EXAMPLE],
        vec!["fit", EXAMPLE, "--method", "paper", "--floor", "fit"],
        vec!["compare", EXAMPLE],
        vec!["compare", RECIPES, "--baseline", "nobody"],
        vec!["backtest", EXAMPLE, "--fractions", "0.5,2"],
    ] {
        let outcome = scalerl(&arguments);
        assert_eq!(outcome.code, 2, "{arguments:?}: {}", outcome.err);
        assert!(outcome.err.contains("error: "), "{arguments:?}: {}", outcome.err);
    }
    assert!(!Path::new(&plot).exists());
    assert!(std::fs::read_to_string(root().join(EXAMPLE)).unwrap().starts_with('#'));
}

/// The points of the paper's Figure 1, where they are at hand.
fn figure_one() -> Option<String> {
    let path = root().join("../shared/data/curves/scalerl_fig1_8b.csv");
    let found = path.exists().then(|| path.to_str().unwrap().to_owned());
    if found.is_none() {
        println!("skipped: the digitised points of Figure 1 are not at hand");
    }
    found
}

#[test]
fn the_papers_own_run_gives_the_papers_numbers() {
    let Some(path) = figure_one() else { return };
    let window = ["--x", "gpu_hours", "--y", "pass_rate", "--by", "run", "--warmup", "1500"];
    let fit = |extra: &[&str]| {
        let arguments = [&["fit", &path, "--json"], &window[..], extra].concat();
        json(&arguments)["runs"][0].clone()
    };
    let paper = fit(&["--method", "paper", "--floor", "0.4017", "--until", "50000"]);
    near(&paper["ceiling"]["value"], 0.630, 1e-9);
    near(&paper["steepness"]["value"], 1.910, 0.002);
    near(&paper["midpoint"]["value"], 10_176.0, 1.0);
    let power = fit(&["--method", "power-law", "--floor", "0.4017", "--until", "50000"]);
    assert!(power["ceiling"]["value"].as_f64().unwrap() >= 1.0);
}

#[test]
fn the_papers_own_run_is_forecast_honestly() {
    let Some(path) = figure_one() else { return };
    let (last, truth) = ("89367", 0.6402);
    let fit = |until: &str| json(&["fit", &path, "--json", "--until", until, "--at", last]);
    for (until, widest) in [("50000", 0.06), ("25000", 0.12)] {
        let found = fit(until);
        let forecast = &found["runs"][0]["forecasts"][0];
        let (low, high) = (forecast["low"].as_f64().unwrap(), forecast["high"].as_f64().unwrap());
        assert!(low <= truth && truth <= high, "until {until}: [{low}, {high}]");
        assert!(high - low < widest, "until {until}: [{low}, {high}]");
        near(&forecast["value"], truth, 0.02);
    }
    assert_eq!(fit("8000")["runs"][0]["ceiling"]["bounded"], false);
}

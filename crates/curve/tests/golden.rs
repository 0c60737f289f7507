//! Fits of the shipped example curve against numbers made by other tools: scipy for the
//! least-squares methods, a plain numpy version of `marginal`. The default method is judged in
//! `src/fit/mixture/tests.rs`.
//! `scripts/golden/curve_fits.py` made the file and names the versions in it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;

use scalerl_curve::{Compute, Fit, FitOptions, FloorChoice, Method, Point, Series, Warmup, fit};
use serde_json::Value;

/// Optimisers agree to far less than any interval.
const SAME_OPTIMUM: f64 = 2e-3;
/// 4,000 draws against 200,000: the ends of an interval move by about a twentieth of its width.
const SAME_SAMPLE: f64 = 0.0025;

fn example() -> Series {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/curves/scalerl-8b.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("scalerl-8b"));
    let points = rows.map(|row| {
        let cells: Vec<f64> = row.split(',').skip(1).map(|cell| cell.parse().unwrap()).collect();
        Point::new(Compute(cells[0]), cells[1]).with_samples(cells[2])
    });
    Series::try_new(points.collect()).unwrap()
}

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden_fits.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("golden file lacks {key}"))
}

fn assert_near(found: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((found - wanted).abs() <= tolerance, "{what}: {found} is not near {wanted}");
}

fn found(method: Method, warmup: f64) -> Fit {
    let floor = (method != Method::Marginal).then_some(FloorChoice::Given(0.40));
    let warmup = Warmup::Before(Compute(warmup));
    fit(&example(), &FitOptions { method, floor, warmup, ..FitOptions::default() }).unwrap()
}

#[test]
fn the_papers_grid_has_the_same_winner_with_scipy() {
    let (found, wanted) = (found(Method::Paper, 0.0), &golden()["paper"]);
    assert_near(found.ceiling.value, number(wanted, "ceiling"), 1e-9, "ceiling");
    assert_near(found.midpoint.value.0, number(wanted, "midpoint"), 1e-6, "midpoint");
    assert_near(found.steepness.value, number(wanted, "steepness"), SAME_OPTIMUM, "steepness");
}

#[test]
fn least_squares_has_the_same_optimum_with_scipy() {
    let golden = golden();
    // scipy's fit weighs all points alike; so do equal sample counts.
    let (profile, wanted) = (found(Method::Profile, 0.0), &golden["profile"]);
    assert_near(profile.ceiling.value, number(wanted, "ceiling"), 1e-5, "ceiling");
    assert_near(profile.steepness.value, number(wanted, "steepness"), SAME_OPTIMUM, "steepness");
    let relative = profile.midpoint.value.0 / number(wanted, "midpoint");
    assert_near(relative, 1.0, SAME_OPTIMUM, "midpoint");
    let (power, wanted) = (found(Method::PowerLaw, 2000.0), &golden["power_law"]);
    assert_near(power.ceiling.value, number(wanted, "ceiling"), 1e-5, "power-law ceiling");
    assert_near(power.steepness.value, number(wanted, "steepness"), SAME_OPTIMUM, "power");
}

#[test]
fn the_marginal_posterior_agrees_with_its_plain_version() {
    for (key, until) in [("marginal", None), ("marginal_until_8000", Some(Compute(8000.0)))] {
        let golden = golden();
        let wanted = &golden[key];
        let options = FitOptions { method: Method::Marginal, until, ..FitOptions::default() };
        let found = fit(&example(), &options).unwrap();
        let forecast = found.forecast(Compute(number(wanted, "at")));
        for (what, value) in [
            ("floor", found.floor.value),
            ("ceiling", found.ceiling.value),
            ("forecast", forecast.value),
            ("forecast_low", forecast.low),
            ("forecast_high", forecast.high),
        ] {
            assert_near(value, number(wanted, what), SAME_SAMPLE, &format!("{key} {what}"));
        }
        // Stated no lower than what the curve has reached.
        let reached = found.forecast(found.last_compute()).curve_low;
        let low = number(wanted, "ceiling_low").max(reached);
        assert_near(found.ceiling.low, low, SAME_SAMPLE, "ceiling_low");
        if let Some(high) = found.ceiling.high {
            assert_near(high, number(wanted, "ceiling_high"), 2.0 * SAME_SAMPLE, "ceiling_high");
        }
    }
}

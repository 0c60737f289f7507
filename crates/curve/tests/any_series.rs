//! Whatever checked points come in, every method answers with sane numbers or a named error.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use proptest::prelude::*;
use scalerl_curve::{
    Compute, FitError, FitOptions, FloorChoice, Method, Point, Series, Sigmoid, ValueRange,
    Verdict, backtest, compare, fit, other_cuts, share_ceiling,
};

fn any_points() -> impl Strategy<Value = Vec<Point>> {
    let value = prop_oneof![Just(0.0), Just(1.0), Just(0.5), 0.0..=1.0_f64];
    let compute = prop_oneof![
        Just(0.0),
        0.0..1e-3_f64,
        0.0..100.0_f64,
        1e18..1e23_f64,
        Just(f64::MIN_POSITIVE),
        Just(1e300),
    ];
    let samples = prop_oneof![Just(None), (1.0..1e9_f64).prop_map(Some), Just(Some(0.0))];
    let point = (compute, value, samples).prop_map(|(compute, value, samples)| Point {
        compute: Compute(compute),
        value,
        samples,
    });
    prop::collection::vec(point, 1..40)
}

fn check(
    points: &[Point],
    method: Method,
    floor: Option<FloorChoice>,
) -> Result<(), TestCaseError> {
    let Ok(series) = Series::try_new(points.to_vec()) else {
        // Nothing was measured.
        prop_assert!(points.iter().all(|point| point.samples == Some(0.0)));
        return Ok(());
    };
    let options = FitOptions { method, floor, ..FitOptions::default() };
    let found = match fit(&series, &options) {
        Ok(found) => found,
        Err(error) => {
            prop_assert!(!error.to_string().is_empty() && !error.hint().is_empty());
            return Ok(());
        }
    };
    let midpoint = found.midpoint.map(|compute| compute.0);
    for (name, estimate) in [("steepness", found.steepness), ("midpoint", midpoint)] {
        prop_assert!(!estimate.value.is_nan(), "{name}");
        prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{name}");
    }
    prop_assert!(found.ceiling.low <= found.ceiling.value);
    prop_assert_eq!(found.ceiling.high.is_some(), found.ceiling.bounded);
    let last = found.last_compute();
    for at in [last * 0.5, last, last * 2.0, last * 10.0] {
        let forecast = found.forecast(at);
        prop_assert!(!forecast.value.is_nan() && forecast.low <= forecast.high);
        prop_assert!(forecast.low <= forecast.curve_low && forecast.curve_high <= forecast.high);
    }
    let gain = found.gain(2.0);
    prop_assert!(gain.low <= gain.value && gain.value <= gain.high);
    let _ = other_cuts(&series, &options);
    let _ = backtest(&series, &options, 0.5, 2.0);
    let _ = compare((&series, &found), (&series, &found), &options);
    let _ = share_ceiling(&[(&series, &found)], &options);
    Ok(())
}

/// Ceilings of a mixture whose narrow parts are far apart: they do not join into few.
#[test]
fn a_shared_ceiling_of_three_points_with_next_to_no_noise_is_found() {
    let point = |compute: f64, value: f64, samples: f64| Point {
        compute: Compute(compute),
        value,
        samples: Some(samples),
    };
    let points = [
        point(0.000_529_782_203_598_453_1, 0.254_545_629_536_083_8, 41_912_269.451_910_384),
        point(0.0, 0.5, 515_370_691.862_515_45),
        point(99.395_186_885_127_19, 0.5, 130_047_709.016_585_02),
    ];
    check(&points, Method::Mixture, None).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn mixture_answers_anything(points in any_points()) {
        check(&points, Method::Mixture, None)?;
    }

    #[test]
    fn marginal_answers_anything(points in any_points()) {
        check(&points, Method::Marginal, None)?;
    }

    #[test]
    fn profile_answers_anything(points in any_points(), is_free in any::<bool>()) {
        check(&points, Method::Profile, is_free.then_some(FloorChoice::Fit))?;
    }

    #[test]
    fn paper_answers_anything(points in any_points()) {
        check(&points, Method::Paper, None)?;
    }

    #[test]
    fn power_law_answers_anything(points in any_points()) {
        check(&points, Method::PowerLaw, None)?;
    }

    #[test]
    fn a_fit_recovers_the_curve_that_made_its_points(
        floor in 0.1..0.4_f64, gain in 0.15..0.4_f64, steepness in 1.0..3.0_f64,
        log_midpoint in 0.0..8.0_f64,
    ) {
        let midpoint = Compute(10.0_f64.powf(log_midpoint));
        let law = Sigmoid { floor, ceiling: floor + gain, steepness, midpoint };
        let points = (0..50).map(|i| {
            let compute = midpoint * (4.0 * f64::from(i + 1) / 50.0);
            Point::new(compute, law.value_at(compute)).with_samples(16_000.0)
        });
        let series = Series::try_new(points.collect()).unwrap();
        let options = FitOptions {
            method: Method::Profile, floor: Some(FloorChoice::Fit), ..FitOptions::default()
        };
        let found = fit(&series, &options).unwrap();
        prop_assert!((found.ceiling.value - law.ceiling).abs() < 1e-4);
        prop_assert!((found.steepness.value / steepness - 1.0).abs() < 1e-3);
        prop_assert!((found.midpoint.value / midpoint - 1.0).abs() < 1e-3);
        let default = fit(&series, &FitOptions::default()).unwrap();
        let at = midpoint * 8.0;
        prop_assert!((default.forecast(at).value - law.value_at(at)).abs() < 0.015);
        prop_assert!(default.steepness.contains(steepness));
    }

    #[test]
    fn the_axis_has_no_unit(log_unit in -3.0..20.0_f64) {
        let unit = 10.0_f64.powf(log_unit);
        let law = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.8, midpoint: Compute(100.0) };
        let series = |unit: f64| {
            let points = (1..40).map(|i| {
                let compute = Compute(f64::from(i) * 12.0);
                let value = law.value_at(compute) + 0.003 * (f64::from(i) * 1.7).sin();
                Point::new(compute * unit, value).with_samples(16_000.0)
            });
            Series::try_new(points.collect()).unwrap()
        };
        let plain = fit(&series(1.0), &FitOptions::default()).unwrap();
        let scaled = fit(&series(unit), &FitOptions::default()).unwrap();
        let (a, b) = (plain.forecast(Compute(1000.0)), scaled.forecast(Compute(1000.0 * unit)));
        prop_assert!((a.value - b.value).abs() < 1e-3 && (a.low - b.low).abs() < 2e-3);
    }
}

#[test]
fn another_range_gives_the_same_fit_on_its_own_scale() {
    let law = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.8, midpoint: Compute(100.0) };
    let points = |scale: f64, shift: f64| {
        (1..40)
            .map(|i| Compute(f64::from(i) * 12.0))
            .map(|c| Point::new(c, law.value_at(c) * scale + shift))
            .collect::<Vec<_>>()
    };
    let unit = Series::try_new(points(1.0, 0.0)).unwrap();
    let range = ValueRange { low: -1.0, high: 1.0 };
    let wide = Series::try_with_range(points(2.0, -1.0), range).unwrap();
    let options = FitOptions::default();
    let (a, b) = (fit(&unit, &options).unwrap(), fit(&wide, &options).unwrap());
    assert!((a.ceiling.value * 2.0 - 1.0 - b.ceiling.value).abs() < 1e-9);
    assert!(
        (a.forecast(Compute(900.0)).low * 2.0 - 1.0 - b.forecast(Compute(900.0)).low).abs() < 1e-9
    );
    assert!((a.gain(2.0).value * 2.0 - b.gain(2.0).value).abs() < 1e-9);
}

#[test]
fn a_constant_run_is_not_bounded_and_forecast_to_stay() {
    let points = (1..30).map(|i| Point::new(Compute(f64::from(i)), 0.42).with_samples(1000.0));
    let series = Series::try_new(points.collect()).unwrap();
    let found = fit(&series, &FitOptions::default()).unwrap();
    assert!(!found.ceiling.bounded);
    assert!((found.forecast(Compute(58.0)).value - 0.42).abs() < 0.01);
}

#[test]
fn a_falling_run_is_called_so() {
    let value =
        |i: u32| if i < 20 { 0.4 + 0.01 * f64::from(i) } else { 0.6 - 0.012 * f64::from(i - 20) };
    let points =
        (1..35).map(|i| Point::new(Compute(f64::from(i)), value(i)).with_samples(16_000.0));
    let series = Series::try_new(points.collect()).unwrap();
    let found = fit(&series, &FitOptions::default()).unwrap();
    assert_eq!(found.verdict, Verdict::Falling);
}

#[test]
fn two_stages_are_not_a_sigmoid() {
    let value = |i: u32| if i < 25 { 0.3 } else { 0.6 } + 0.001 * f64::from(i % 3);
    let points = (1..60).map(|i| Point {
        compute: Compute(f64::from(i) + 20.0),
        value: value(i) - 0.2 * f64::from(u8::from((40..46).contains(&i))),
        samples: Some(16_000.0),
    });
    let series = Series::try_new(points.collect()).unwrap();
    let found = fit(&series, &FitOptions::default()).unwrap();
    assert_eq!(found.verdict, Verdict::NotSigmoid);
}

#[test]
fn points_at_compute_zero_only_are_refused() {
    let series = Series::try_new(vec![Point::new(Compute::ZERO, 0.3)]).unwrap();
    let error = fit(&series, &FitOptions::default()).unwrap_err();
    assert_eq!(error, FitError::NoCompute);
}

//! Time of one fit with all its intervals, by method and number of points.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use scalerl_curve::{Compute, FitOptions, HistoryEntry, Method, Point, Series, Sigmoid, fit};

/// The law of the paper's 8B run to four times its midpoint, with a deterministic wiggle of the size
/// of sampling noise.
fn series(count: u32) -> Series {
    measured(count, 4.0, 16_000.0)
}

/// Few samples, and the bend not over: many shapes and scales carry weight, so it takes longest.
fn noisy(count: u32) -> Series {
    measured(count, 1.5, 64.0)
}

fn measured(count: u32, midpoints: f64, samples: f64) -> Series {
    let law = Sigmoid { floor: 0.4, ceiling: 0.61, steepness: 1.92, midpoint: Compute(2542.0) };
    let size = 0.7 / samples.sqrt();
    let points = (1..=count).map(|i| {
        let compute = law.midpoint * (midpoints * f64::from(i) / f64::from(count));
        let wiggle = size * (f64::from(i) * 2.399_963).sin();
        Point::new(compute, law.value_at(compute) + wiggle).with_samples(samples)
    });
    Series::try_new(points.collect()).expect("rates")
}

fn fits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fit");
    for count in [24, 75, 160] {
        let series = series(count);
        for method in Method::ALL {
            let options = FitOptions { method, ..FitOptions::default() };
            group.bench_with_input(BenchmarkId::new(method.to_string(), count), &series, |b, s| {
                b.iter(|| fit(s, &options));
            });
        }
    }
    group.finish();
}

/// As many finished runs as a forecast uses at most.
const HISTORY: u32 = 24;

/// A full history of runs of the same task: all that a user's forecast costs, and a finished run's
/// summary.
fn with_history(criterion: &mut Criterion) {
    let entry = |i: u32| HistoryEntry::summarise(&format!("run-{i}"), &series(100 + i));
    let history: Vec<HistoryEntry> = (0..HISTORY).flat_map(entry).collect();
    let options = FitOptions { history: &history, ..FitOptions::default() };
    let mut group = criterion.benchmark_group("history");
    for (name, series) in [("75", series(75)), ("75 noisy", noisy(75)), ("160", series(160))] {
        group.bench_with_input(BenchmarkId::new("fit and forecast", name), &series, |b, s| {
            b.iter(|| fit(s, &options).map(|found| found.forecast(s.last_compute() * 2.0)));
        });
        group.bench_with_input(BenchmarkId::new("summarise", name), &series, |b, s| {
            b.iter(|| HistoryEntry::summarise("one", s));
        });
    }
    group.finish();
}

fn forecasts(criterion: &mut Criterion) {
    let found = fit(&series(75), &FitOptions::default()).expect("75 points");
    criterion.bench_function("forecast/mixture/75", |b| b.iter(|| found.forecast(Compute(2e4))));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = fits, with_history, forecasts
}
criterion_main!(benches);

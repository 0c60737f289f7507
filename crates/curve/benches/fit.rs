//! Time of one fit with all its intervals, by method and number of points.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use scalerl_curve::{Compute, FitOptions, Method, Point, Series, Sigmoid, fit};

/// The law of the paper's 8B run with a deterministic wiggle of the size of sampling noise.
fn series(count: u32) -> Series {
    let law = Sigmoid { floor: 0.4, ceiling: 0.61, steepness: 1.92, midpoint: Compute(2542.0) };
    let points = (1..=count).map(|i| {
        let compute = law.midpoint * (4.0 * f64::from(i) / f64::from(count));
        let wiggle = 0.0055 * (f64::from(i) * 2.399_963).sin();
        Point::new(compute, law.value_at(compute) + wiggle).with_samples(16_000.0)
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

fn forecasts(criterion: &mut Criterion) {
    let found = fit(&series(75), &FitOptions::default()).expect("75 points");
    criterion.bench_function("forecast/mixture/75", |b| b.iter(|| found.forecast(Compute(2e4))));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = fits, forecasts
}
criterion_main!(benches);

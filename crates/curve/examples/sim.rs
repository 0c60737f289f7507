use rand_chacha::{ChaCha12Rng, rand_core::SeedableRng};
use rand_distr::{Binomial, Distribution};
use scalerl_curve::*;
fn main() {
    let rows = [
        ("8b bs768", 2542.0, 1.92, 0.610, 0.40),
        ("32k", 11272.0, 1.89, 0.645, 0.40),
        ("gen8", 2542.0, 2.44, 0.585, 0.40),
        ("gen24", 3054.0, 2.22, 0.590, 0.40),
        ("gen32", 2936.0, 2.07, 0.595, 0.40),
        ("scout", 4242.0, 1.65, 0.710, 0.51),
        ("bs512", 2818.0, 1.77, 0.605, 0.40),
        ("bs2048", 10909.0, 1.70, 0.645, 0.40),
        ("math", 2896.0, 2.05, 0.595, 0.40),
        ("code", 1675.0, 1.09, 0.615, 0.40),
    ];
    let seeds: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let method: Method = std::env::args().nth(2).unwrap().parse().unwrap();
    for (name, midpoint, steepness, ceiling, floor) in rows {
        let truth = Sigmoid { floor, ceiling, steepness, midpoint };
        let mut cov = [0usize; 6];
        let mut width = [0.0; 6];
        let mut bounded = 0;
        let mut err = 0.0;
        for seed in 0..seeds {
            let mut rng = ChaCha12Rng::seed_from_u64(1000 + seed);
            let points: Vec<Point> = (1..=75)
                .map(|i| {
                    let c = 4.0 * midpoint * i as f64 / 75.0;
                    let n = 16000;
                    let k = Binomial::new(n, truth.value_at(c)).unwrap().sample(&mut rng);
                    Point { compute: c, value: k as f64 / n as f64, samples: Some(n as f64) }
                })
                .collect();
            let f = fit(
                &Series::try_new(points).unwrap(),
                &FitOptions {
                    method,
                    floor: if method == Method::Profile { Some(FloorChoice::Fit) } else { None },
                    ..Default::default()
                },
            )
            .unwrap();
            let fc = f.forecast(8.0 * midpoint);
            let t = truth.value_at(8.0 * midpoint);
            err += (fc.value - t).abs();
            let n = 16000;
            let m = Binomial::new(n, t).unwrap().sample(&mut rng) as f64 / n as f64;
            let items = [
                (f.floor.value, f.floor.low, f.floor.high, floor),
                (f.ceiling.value, f.ceiling.low, f.ceiling.high.unwrap_or(1.0), ceiling),
                (f.steepness.value, f.steepness.low, f.steepness.high, steepness),
                (f.midpoint.value, f.midpoint.low, f.midpoint.high, midpoint),
                (fc.value, fc.curve_low, fc.curve_high, t),
                (fc.value, fc.low, fc.high, m),
            ];
            for (i, (_, l, h, t)) in items.iter().enumerate() {
                cov[i] += usize::from(l <= t && t <= h);
                width[i] += (h - l) / if i == 2 || i == 3 { *t } else { 1.0 };
            }
            bounded += usize::from(f.verdict == Verdict::Bounded);
        }
        let n = seeds as f64;
        println!(
            "{name:10} cov R0 {:.2} A {:.2} B {:.2} Cm {:.2} curve {:.2} meas {:.2} | width {:.3} {:.3} {:.2} {:.2} {:.3} {:.3} | bounded {:.2} mae {:.4}",
            cov[0] as f64 / n,
            cov[1] as f64 / n,
            cov[2] as f64 / n,
            cov[3] as f64 / n,
            cov[4] as f64 / n,
            cov[5] as f64 / n,
            width[0] / n,
            width[1] / n,
            width[2] / n,
            width[3] / n,
            width[4] / n,
            width[5] / n,
            bounded as f64 / n,
            err / n
        );
    }
}

//! Draws every kind of figure from made-up numbers, to look at them: `cargo run -p scalerl-board
//! --example gallery -- FOLDER` (default `out/gallery`).
//!
//! The numbers are invented (a sigmoid with noise), realistic in size, and stand for no run.

use std::error::Error;
use std::path::{Path, PathBuf};

use scalerl_board::chart::Role;
use scalerl_board::plots::{self, Captions, Ceiling, CurvePoint, Measured, Outcome, RunCurve};
use scalerl_board::{
    Block, Figure, Glyphs, Page, Section, Size, Table, TerminalOptions, save, terminal,
};

/// The law of the paper with made-up parameters.
#[derive(Clone, Copy)]
struct Law {
    floor: f64,
    ceiling: f64,
    steepness: f64,
    midpoint: f64,
}

impl Law {
    fn value(self, compute: f64) -> f64 {
        let gain = self.ceiling - self.floor;
        self.floor + gain / (1.0 + (self.midpoint / compute).powf(self.steepness))
    }

    fn curve(self, low: f64, high: f64, known_until: f64) -> Vec<CurvePoint> {
        (0..=60)
            .map(|index| {
                let compute = low * (high / low).powf(f64::from(index) / 60.0);
                let value = self.value(compute);
                let half = 0.006 + 0.02 * (compute / known_until).ln().max(0.0);
                CurvePoint { compute, value, low: value - half, high: value + 1.3 * half }
            })
            .collect()
    }
}

/// Noise that is the same on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        let mut sum = 0.0;
        for _ in 0..4 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            sum += (self.0 >> 33) as f64 / f64::from(1u32 << 31);
        }
        sum - 2.0
    }
}

fn measured(law: Law, seed: u64, computes: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    let mut noise = Noise(seed);
    computes.map(|compute| (compute, law.value(compute) + 0.006 * noise.next())).collect()
}

fn roles(points: &[(f64, f64)], warmup: f64, until: f64) -> Vec<Measured> {
    let role = |compute: f64| match compute {
        compute if compute < warmup => Role::LeftOut,
        compute if compute <= until => Role::Used,
        _ => Role::HeldOut,
    };
    let point = |(compute, value): &(f64, f64)| Measured {
        compute: *compute,
        value: *value,
        role: role(*compute),
    };
    points.iter().map(point).collect()
}

fn captions(title: &str, subtitle: &str) -> Captions {
    Captions {
        title: title.into(),
        subtitle: subtitle.into(),
        compute: "compute (GPU-hours)".into(),
        value: "pass rate".into(),
        interval: "90 %".into(),
    }
}

const EIGHT_B: Law = Law { floor: 0.40, ceiling: 0.645, steepness: 1.9, midpoint: 10_200.0 };

fn one_run() -> RunCurve {
    let points = measured(EIGHT_B, 7, (1..=34).map(|index| 1330.0 * f64::from(index) * 1.9));
    let mut points = roles(&points, 4000.0, 50_000.0);
    points.insert(0, Measured { compute: 0.0, value: 0.397, role: Role::LeftOut });
    points.push(Measured { compute: f64::NAN, value: 0.5, role: Role::Used });
    let forecast = |compute: f64, half: f64| CurvePoint {
        compute,
        value: EIGHT_B.value(compute),
        low: EIGHT_B.value(compute) - half,
        high: EIGHT_B.value(compute) + half,
    };
    RunCurve {
        name: "8B dense".into(),
        points,
        curve: EIGHT_B.curve(1500.0, 200_000.0, 50_000.0),
        ceiling: Some(Ceiling { value: 0.645, low: 0.628, high: 0.671, bounded: true }),
        midpoint: Some(10_200.0),
        fitted_until: Some(50_000.0),
        forecasts: vec![forecast(100_000.0, 0.014), forecast(200_000.0, 0.025)],
    }
}

fn unbounded_run() -> RunCurve {
    let law = Law { floor: 0.21, ceiling: 0.71, steepness: 1.1, midpoint: 9e20 };
    let points = measured(law, 3, (0..14).map(|index| 1.2e18 * 1.55f64.powi(index)));
    let mut run = RunCurve {
        name: "0.5B on GSM8K".into(),
        points: roles(&points, 3e18, 1e22),
        curve: law.curve(1e18, 1e22, 4e20),
        ceiling: Some(Ceiling { value: 0.71, low: 0.52, high: 1.0, bounded: false }),
        midpoint: Some(9e20),
        fitted_until: Some(points.last().map_or(0.0, |point| point.0)),
        forecasts: Vec::new(),
    };
    for point in &mut run.curve {
        let beyond = (point.compute / 4e20).ln().max(0.0);
        point.high += 0.06 * beyond;
    }
    run
}

fn five_runs() -> Vec<RunCurve> {
    let laws = [
        ("ScaleRL", 0.61, 1.97, 2600.0),
        ("MiniMax-M1", 0.605, 1.6, 2900.0),
        ("Magistral", 0.562, 1.7, 2700.0),
        ("DAPO (Qwen2.5)", 0.554, 1.3, 3000.0),
        ("GRPO (DeepSeek)", 0.515, 1.5, 2300.0),
    ];
    let run = |(index, (name, ceiling, steepness, midpoint)): (usize, (&str, f64, f64, f64))| {
        let law = Law { floor: 0.39, ceiling, steepness, midpoint };
        let computes = (1..=16).map(|step| 1000.0 * f64::from(step));
        RunCurve {
            name: name.into(),
            points: roles(&measured(law, index as u64 + 11, computes), 1500.0, 8000.0),
            curve: law.curve(900.0, 16_500.0, 8000.0),
            ceiling: Some(Ceiling { value: ceiling, low: 0.0, high: 1.0, bounded: true }),
            fitted_until: Some(8000.0),
            ..RunCurve::default()
        }
    };
    laws.into_iter().enumerate().map(run).collect()
}

/// A sweep of learning rates, more runs than can be told apart.
fn forty_runs() -> Vec<RunCurve> {
    let run = |index: u32| {
        let share = f64::from(index) / 39.0;
        let law = Law { floor: 0.3, ceiling: 0.5 + 0.2 * share, steepness: 1.4, midpoint: 400.0 };
        let computes = (1..=12).map(|step| 120.0 * f64::from(step));
        RunCurve {
            name: format!("sweep lr={:.1e}", 1e-7 * 1.2f64.powi(index.cast_signed())),
            points: roles(&measured(law, u64::from(index) + 90, computes), 0.0, 2000.0),
            curve: law.curve(100.0, 3000.0, 1500.0),
            ceiling: Some(Ceiling { value: law.ceiling, low: 0.0, high: 1.0, bounded: true }),
            ..RunCurve::default()
        }
    };
    (0..40).map(run).collect()
}

fn slopes() -> Figure {
    let names = [
        "ScaleRL",
        "without FP32 head",
        "prompt → sample average",
        "GSPO loss",
        "no zero-variance filter",
        "length penalty",
        "batch → no normalisation",
        "PPO-off-policy-8",
        "no positive resampling off",
    ];
    let runs = names.iter().enumerate().map(|(index, name)| {
        let steepness = 2.01 - 0.09 * index as f64;
        let mut noise = Noise(index as u64 + 40);
        let value = |compute: f64| (compute / 1000.0).powf(steepness);
        let points = (2..=16).map(|step| {
            let compute = 1000.0 * f64::from(step);
            (compute, value(compute) * (0.12 * noise.next()).exp())
        });
        plots::Slope {
            name: (*name).into(),
            points: points.collect(),
            steepness,
            through: (1000.0, 1.0),
        }
    });
    let runs: Vec<_> = runs.collect();
    let mut captions = captions(
        "Leave one out: how fast each variant nears the shared ceiling",
        "Lines of slope B in log-log; all runs fitted with A = 0.610",
    );
    captions.value = "F(R), one unit at 1k GPU-hours".into();
    plots::slopes(&runs, &captions)
}

fn backtest() -> Figure {
    let points = measured(EIGHT_B, 21, (1..=36).map(|index| 2480.0 * f64::from(index)));
    let window = |name: &str, until: f64, ceiling: f64, wide: f64| {
        let law = Law { ceiling, ..EIGHT_B };
        let mut curve = law.curve(1500.0, 90_000.0, until);
        for point in &mut curve {
            point.low = point.value - (point.value - point.low) * wide;
            point.high = point.value + (point.high - point.value) * wide;
        }
        plots::Window { name: name.into(), fitted_until: until, curve }
    };
    let windows = [
        window("10 %", 9000.0, 0.600, 1.9),
        window("25 %", 22_300.0, 0.625, 1.2),
        window("50 %", 44_600.0, 0.650, 0.9),
        window("75 %", 67_000.0, 0.642, 0.7),
    ];
    let captions = captions(
        "What earlier fits would have said",
        "90 % intervals of forecasts made at 10, 25, 50 and 75 % of the compute",
    );
    plots::backtest(&roles(&points, 3000.0, 1e9), &windows, &captions)
}

fn agreement() -> Figure {
    let group = |(index, name): (usize, &str)| {
        let mut noise = Noise(index as u64 + 5);
        let outcomes = (0..14).map(|run| {
            let actual = 0.32 + 0.038 * f64::from(run);
            let error = 0.035 / (index as f64 + 1.0);
            let predicted = actual + error * 0.8 * noise.next();
            let name = format!("run {run} from {name}");
            Outcome { name, predicted, low: predicted - error, high: predicted + error, actual }
        });
        (format!("from {name}"), outcomes.collect())
    };
    let groups: Vec<_> = ["25 %", "50 %", "75 %"].into_iter().enumerate().map(group).collect();
    plots::agreement(&groups, &captions("Forecast against measured", "14 runs, three fractions"))
}

/// Shapes that break careless drawing: one point, a constant, less than a decade, six decades.
fn edge_cases() -> Vec<(&'static str, Figure)> {
    let run = |points: Vec<(f64, f64)>| RunCurve {
        name: "edge".into(),
        points: roles(&points, 0.0, f64::INFINITY),
        ..RunCurve::default()
    };
    let draw = |title: &str, points| plots::fit(&run(points), &captions(title, ""));
    let narrow = Law { floor: 0.5, ceiling: 0.7, steepness: 3.0, midpoint: 4500.0 };
    let wide = Law { floor: 0.02, ceiling: 0.98, steepness: 0.6, midpoint: 800.0 };
    let mut six_decades = draw(
        "Six decades",
        measured(wide, 2, (0..40).map(|index| 0.5 * 10f64.powf(f64::from(index) * 6.3 / 39.0))),
    );
    six_decades.y = six_decades.y.with_range(0.0, 1.0);
    vec![
        ("edge-one-point", draw("One point", vec![(128.0, 0.42)])),
        ("edge-constant", draw("Constant", (1..9).map(|x| (f64::from(x), 0.5)).collect())),
        ("edge-empty", draw("No points", vec![(f64::NAN, 0.5)])),
        (
            "edge-under-a-decade",
            draw("Less than a decade", measured(narrow, 2, (30..70).map(|x| f64::from(x) * 100.0))),
        ),
        ("edge-six-decades", six_decades),
        ("edge-forty-runs", plots::compare(&forty_runs(), &captions("Forty runs of a sweep", ""))),
    ]
}

fn figures() -> Vec<(&'static str, Figure)> {
    let mut figures = vec![
        (
            "fit",
            plots::fit(
                &one_run(),
                &captions(
                    "Pass rate of 8B dense against compute",
                    "Bounded: 2× more compute buys +0.012 [0.006, 0.021]",
                ),
            ),
        ),
        ("fit-not-bounded", {
            let mut captions =
                captions("0.5B on GSM8K", "The ceiling is not bounded by these points");
            captions.compute = "compute (model FLOPs)".into();
            plots::fit(&unbounded_run(), &captions)
        }),
        (
            "compare",
            plots::compare(
                &five_runs(),
                &captions(
                    "Five recipes at 16k GPU-hours",
                    "Fitted until 8k, dashed and hollow beyond",
                ),
            ),
        ),
        ("leave-one-out", slopes()),
        ("backtest", backtest()),
        ("agreement", agreement()),
    ];
    figures.extend(edge_cases());
    figures
}

fn report() -> Page {
    let rows = |rows: &[&[&str]]| -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    };
    let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let section = |heading: &str, blocks| Section { heading: heading.into(), blocks };
    let drawn = figures().into_iter().take(6).map(|(_, figure)| Block::figure(figure));
    Page {
        title: "Is more compute worth it? 8B dense".into(),
        subtitle: "Made-up numbers that show what a report looks like".into(),
        sections: vec![
            section(
                "",
                vec![Block::Headlines(vec![
                    "The ceiling is bounded: 0.645, 90 % interval [0.628, 0.671].".into(),
                    "2× more compute buys +0.012 [0.006, 0.021].".into(),
                ])],
            ),
            section(
                "Summary",
                vec![Block::Table(Table {
                    caption: "Parameters with their 90 % intervals".into(),
                    columns: columns(&["run", "points", "ceiling", "interval", "steepness", "midpoint", "verdict"]),
                    rows: rows(&[
                        &["8B dense", "34", "0.645", "[0.628, 0.671]", "1.90", "10.2k", "bounded"],
                        &["0.5B <b>GSM8K</b>", "14", "", "≥ 0.520", "1.10", "9×10²⁰", "not bounded"],
                    ]),
                })],
            ),
            section("Figures", drawn.collect()),
            section(
                "Sensitivity",
                vec![
                    Block::Prose("How the ceiling moves with the warm-up cut and the floor.".into()),
                    Block::Table(Table {
                        caption: "Ceiling under other warm-up cuts".into(),
                        columns: columns(&["cut", "points", "ceiling", "low", "high"]),
                        rows: rows(&[
                            &["1k", "36", "0.641", "0.620", "0.668"],
                            &["1.5k", "34", "0.645", "0.628", "0.671"],
                            &["5k", "30", "0.649", "0.629", "0.690"],
                        ]),
                    }),
                ],
            ),
            section("Notes", vec![Block::Fold("Points that were left out".into(), vec![Block::Code("0\t0.397\n2527\t0.413".into())])]),
            section(
                "How this was made",
                vec![
                    Block::Code("scalerl fit run.csv --x gpu_hours --y pass_rate --at 100000 --at 200000 --report report.html".into()),
                    Block::KeyValues(vec![
                        ("version".into(), env!("CARGO_PKG_VERSION").into()),
                        ("method".into(), "marginal".into()),
                        ("floor".into(), "0.397 (first point)".into()),
                    ]),
                ],
            ),
        ],
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder =
        std::env::args().nth(1).map_or_else(|| PathBuf::from("out/gallery"), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    for (name, figure) in figures() {
        save_all(&folder, name, &figure)?;
    }
    std::fs::write(folder.join("report.html"), report().html())?;
    Ok(())
}

fn save_all(folder: &Path, name: &str, figure: &Figure) -> Result<(), Box<dyn Error>> {
    save(figure, Size::WIDE, &folder.join(format!("{name}.svg")))?;
    save(figure, Size::WIDE, &folder.join(format!("{name}.png")))?;
    save(figure, Size::NARROW, &folder.join(format!("{name}-narrow.png")))?;
    let mut text = terminal(figure, TerminalOptions::default());
    let ascii = TerminalOptions { glyphs: Glyphs::Ascii, width: 60, ..TerminalOptions::default() };
    text += &terminal(figure, ascii);
    std::fs::write(folder.join(format!("{name}.txt")), text)?;
    Ok(())
}

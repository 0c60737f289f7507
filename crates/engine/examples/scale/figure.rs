//! Two pictures of the sweep: throughput, and how long each role waits.

use std::path::Path;

use scalerl_board::{
    DrawError, Figure, Size,
    chart::{Axis, Dot, Layer, Line as Curve, Points, Role, Stroke, Tone},
    save,
};

use crate::Line;

pub(crate) fn draw(sweep: &[Line], folder: &Path) -> Result<(), DrawError> {
    let mut names: Vec<&str> = sweep.iter().map(|line| line.name.as_str()).collect();
    names.dedup();
    let of = |name: &str| sweep.iter().filter(|line| line.name == name).collect::<Vec<_>>();

    let mut throughput = Figure {
        title: "More generators help until the trainers are busy".into(),
        subtitle: "8B, 768 completions a step, 16 trainers: real engine, simulated H200s".into(),
        x: Axis::linear("generators (one GPU each)").with_range(0.0, 100.0),
        y: Axis::linear("steps per hour"),
        layers: Vec::new(),
    };
    let mut idle = Figure {
        title: "Who waits: solid the generators, dashed the trainers".into(),
        subtitle: "Share of their GPU time, 16 trainers".into(),
        x: Axis::linear("generators (one GPU each)").with_range(0.0, 100.0),
        y: Axis::linear("idle share").with_range(0.0, 1.0),
        layers: Vec::new(),
    };
    for (number, name) in names.into_iter().enumerate() {
        let lines = of(name);
        let tone = Tone::Run(number);
        let points = |value: fn(&Line) -> f64| {
            lines.iter().map(|line| (line.generators as f64, value(line))).collect::<Vec<_>>()
        };
        let add = |figure: &mut Figure, legend: &str, stroke, points: Vec<(f64, f64)>| {
            let dots = points.iter().map(|&(x, y)| Dot { x, y, hover: String::new() }).collect();
            let legend = legend.to_owned();
            figure.layers.push(Layer::Line(Curve { tone, stroke, legend: legend.clone(), points }));
            figure.layers.push(Layer::Points(Points { tone, role: Role::Used, legend, dots }));
        };
        add(&mut throughput, name, Stroke::Solid, points(|line| line.row.steps_per_hour()));
        add(&mut idle, name, Stroke::Solid, points(|line| line.row.generator_idle));
        add(&mut idle, name, Stroke::Dashed, points(|line| line.row.trainer_idle));
    }
    throughput.y.range = Some((0.0, 1.1 * highest(sweep)));
    save(&throughput, Size::WIDE, &folder.join("simulation.png"))?;
    save(&idle, Size::WIDE, &folder.join("simulation-idle.png"))
}

fn highest(sweep: &[Line]) -> f64 {
    sweep.iter().map(|line| line.row.steps_per_hour()).fold(0.0, f64::max)
}

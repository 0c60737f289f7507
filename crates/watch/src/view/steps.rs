//! Charts over optimizer steps, from the bins of a digest.

use scalerl_board::chart::{Axis, Band, Dot, Layer, Line, Points, Role, Scale, Stroke, Tone};
use scalerl_board::number::short;
use scalerl_board::{Block, Figure};

use super::Subject;
use crate::series::{Bin, Metric};

/// Fewer bins than this are drawn as markers too.
const FEW: usize = 25;
/// Bins whose value can be pointed at.
const MOST_PROBES: usize = 64;

pub(super) fn blocks(subject: &Subject<'_>) -> Vec<Block> {
    let steps = &subject.digest.steps;
    if steps.bins().is_empty() {
        return vec![Block::Prose("No optimizer step was taken yet.".to_owned())];
    }
    let bins = steps.bins();
    let draw = |title: &str, unit: &str, metrics: &[(&str, Metric)]| {
        over_steps(title, Axis::linear(unit), bins, metrics)
    };
    let mut ratios = draw(
        "Ratio of trainer to generator",
        "ratio",
        &[
            ("largest", Metric::LargestRatio),
            ("mean", Metric::MeanRatio),
            ("smallest", Metric::SmallestRatio),
        ],
    );
    ratios.y.scale = Scale::Log;
    let figures = vec![
        draw(
            "Rewards in training",
            "reward",
            &[("mean reward", Metric::MeanReward), ("right completions", Metric::PassRate)],
        ),
        draw("Lag", "steps", &[("largest of the step", Metric::Lag)]),
        draw("Length of completions", "mean tokens", &[("mean tokens", Metric::MeanTokens)]),
        draw("Out of budget", "share of completions", &[("truncated", Metric::Truncated)]),
        draw("Entropy of the policy", "nats", &[("entropy", Metric::Entropy)]),
        draw("Gradient norm, before clipping", "norm", &[("norm", Metric::GradientNorm)]),
        draw(
            "What the ratios leave",
            "share of tokens",
            &[("effective samples", Metric::EffectiveSamples), ("clipped", Metric::Clipped)],
        ),
        ratios,
        draw("Groups that carry loss", "groups", &[("groups", Metric::TrainedGroups)]),
        draw("Time of an optimizer step", "seconds", &[("seconds", Metric::StepSeconds)]),
    ];
    let mut blocks = Vec::new();
    if steps.width() > 1 {
        let width = steps.width();
        let text = format!("Lines: means of {width} steps. Bands: least to greatest.");
        blocks.push(Block::Prose(text));
    }
    blocks.push(Block::Gallery(figures));
    blocks
}

fn over_steps(title: &str, y: Axis, bins: &[Bin], metrics: &[(&str, Metric)]) -> Figure {
    let mut layers = Vec::new();
    for (index, (name, metric)) in metrics.iter().enumerate() {
        let (tone, metric) = (Tone::Run(index), *metric);
        let legend = if metrics.len() > 1 { (*name).to_owned() } else { String::new() };
        if bins.iter().any(|bin| bin.steps > 1) {
            let points = bins
                .iter()
                .map(|bin| (bin.middle(), bin.stat(metric)))
                .filter(|(_, stat)| stat.mean().is_finite())
                .map(|(x, stat)| (x, stat.low, stat.high))
                .collect();
            layers.push(Layer::Band(Band { tone, legend: legend.clone(), points }));
        }
        let values = bins.iter().map(|bin| (bin.middle(), bin.stat(metric).mean())).collect();
        layers.extend(line(tone, &legend, name, values));
    }
    Figure {
        title: title.to_owned(),
        subtitle: String::new(),
        x: Axis::linear("optimizer steps"),
        y,
        layers,
    }
}

fn line(tone: Tone, legend: &str, name: &str, values: Vec<(f64, f64)>) -> [Layer; 2] {
    let role = if values.len() < FEW { Role::Used } else { Role::Probe };
    let dots = scalerl_report::figures::spread(&values, MOST_PROBES).into_iter().map(|(x, y)| {
        let hover = format!("{name}\nstep {}: {}", short(x.round()), short(y));
        Dot { x, y, hover }
    });
    let points = Points { tone, role, legend: legend.to_owned(), dots: dots.collect() };
    let legend = legend.to_owned();
    [
        Layer::Line(Line { tone, stroke: Stroke::Solid, legend, points: values }),
        Layer::Points(points),
    ]
}

/// Tokens a second, generated and trained.
pub(super) fn speed(bins: &[Bin]) -> Figure {
    let rate = |of: fn(&scalerl_journal::Ledger) -> u64| -> Vec<(f64, f64)> {
        let between = |pair: &[Bin]| {
            let spent = pair[1].ledger.since(&pair[0].ledger);
            (pair[1].middle(), of(&spent) as f64 / spent.wall_s)
        };
        bins.windows(2).map(between).filter(|(_, rate)| rate.is_finite()).collect()
    };
    let mut layers = Vec::new();
    let curves = [
        ("generated", rate(|spent| spent.tokens_generated)),
        ("trained", rate(|spent| spent.tokens_trained)),
    ];
    for (index, (name, values)) in curves.into_iter().enumerate() {
        layers.extend(line(Tone::Run(index), name, name, values));
    }
    Figure {
        title: "Tokens per second of the clock".to_owned(),
        subtitle: String::new(),
        x: Axis::linear("optimizer steps"),
        y: Axis::linear("tokens/s"),
        layers,
    }
}

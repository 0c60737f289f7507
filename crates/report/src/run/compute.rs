//! The compute ledger: where the device-seconds went, tokens and operations.

use scalerl_board::chart::{Axis, Band, Dot, Layer, Line, Points, Role, Stroke, Tone};
use scalerl_board::number::short;
use scalerl_board::{Block, Figure, Section, Table};
use scalerl_journal::{Ledger, RoleSeconds};

use super::{story::Story, trace::spread};

/// Windows of the figure over time.
const MOST_WINDOWS: usize = 40;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// Roles in the order they are stacked, with their seconds.
pub fn roles(seconds: &RoleSeconds) -> [(&'static str, f64); 4] {
    [
        ("train", seconds.train),
        ("generate", seconds.generate),
        ("evaluate", seconds.evaluate),
        ("idle", seconds.idle),
    ]
}

/// Part of a whole; 0 of nothing.
pub fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// 12.3 %.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Device-seconds, or hours where there are many.
pub fn device_time(seconds: f64) -> String {
    if seconds < SECONDS_PER_HOUR {
        format!("{seconds:.1} s")
    } else {
        format!("{:.3} h", seconds / SECONDS_PER_HOUR)
    }
}

pub(crate) fn section(story: &Story) -> Section {
    let heading = "Compute".to_owned();
    let ledger = &story.ledger;
    if ledger.device_seconds.total() <= 0.0 {
        return Section { heading, blocks: vec![Block::Prose("Nothing was booked yet.".into())] };
    }
    let mut blocks = vec![Block::Table(role_table(story))];
    if story.steps.len() > 1 {
        blocks.push(Block::Gallery(vec![cumulative(story), windows(story)]));
    }
    blocks.push(Block::KeyValues(throughput(ledger)));
    if story.lost.device_hours() > 0.0 {
        blocks.push(Block::Prose(format!(
            "Beside this, {} of device time went into work that kills have undone. Budgets count \
             it, the curve does not.",
            device_time(story.lost.device_seconds.total())
        )));
    }
    Section { heading, blocks }
}

fn role_table(story: &Story) -> Table {
    let seconds = &story.ledger.device_seconds;
    let total = seconds.total();
    let row = |name: &str, part: f64| {
        let hours = format!("{:.4}", part / SECONDS_PER_HOUR);
        vec![name.to_owned(), format!("{part:.1}"), hours, percent(share(part, total))]
    };
    let mut rows: Vec<Vec<String>> =
        roles(seconds).iter().map(|(name, part)| row(name, *part)).collect();
    rows.push(row("sum", total));
    if story.devices.is_finite() {
        let held = story.ledger.wall_s * story.devices;
        rows.push(row(&format!("held: {} devices by the clock", short(story.devices)), held));
    }
    let columns = ["role", "device-seconds", "device-hours", "share"];
    Table {
        caption: "Every device-second held is booked to one role.".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    }
}

fn throughput(ledger: &Ledger) -> Vec<(String, String)> {
    let rate = |tokens: u64, seconds: f64| {
        if seconds > 0.0 { short(tokens as f64 / seconds) } else { "–".to_owned() }
    };
    let sampled = ledger.tokens_generated + ledger.tokens_evaluated;
    let pairs = [
        (
            "tokens generated",
            format!(
                "{} for training ({} per second of the clock), {} in evaluations",
                short(ledger.tokens_generated as f64),
                rate(ledger.tokens_generated, ledger.wall_s),
                short(ledger.tokens_evaluated as f64)
            ),
        ),
        (
            "generator",
            format!(
                "{} tokens per second at work, idle {}",
                rate(sampled, ledger.generator_busy_s),
                percent(ledger.generator_idle_share())
            ),
        ),
        (
            "trainer",
            format!(
                "{} tokens, {} per second at work, idle {}",
                short(ledger.tokens_trained as f64),
                rate(ledger.tokens_trained, ledger.trainer_busy_s),
                percent(ledger.trainer_idle_share())
            ),
        ),
        ("model FLOPs", format!("{} in generating and training", short(ledger.flops))),
        ("clock", device_time(ledger.wall_s)),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

/// Ledgers along the run, evenly spread.
fn milestones(story: &Story, most: usize) -> Vec<(f64, Ledger)> {
    let all: Vec<(f64, Ledger)> =
        story.steps.iter().map(|step| (step.version as f64, step.ledger)).collect();
    spread(&all, most)
}

fn cumulative(story: &Story) -> Figure {
    let milestones = milestones(story, 4 * MOST_WINDOWS);
    let unit = if story.ledger.device_seconds.total() < SECONDS_PER_HOUR { 1.0 } else { 3600.0 };
    let label = if unit > 1.0 { "device-hours" } else { "device-seconds" };
    let values: Vec<(f64, [f64; 4])> = milestones
        .iter()
        .map(|(step, ledger)| (*step, roles(&ledger.device_seconds).map(|(_, part)| part / unit)))
        .collect();
    stacked("Device time by role, added up", label, &values, &|value| short(value))
}

/// What was spent in each of some equal windows of steps, by the step in its middle.
pub(crate) fn windows_of(story: &Story) -> Vec<(f64, Ledger)> {
    let milestones = milestones(story, MOST_WINDOWS + 1);
    let window =
        |pair: &[(f64, Ledger)]| (f64::midpoint(pair[0].0, pair[1].0), pair[1].1.since(&pair[0].1));
    milestones.windows(2).map(window).collect()
}

fn windows(story: &Story) -> Figure {
    let values: Vec<(f64, [f64; 4])> = windows_of(story)
        .into_iter()
        .map(|(step, spent)| {
            let spent = spent.device_seconds;
            (step, roles(&spent).map(|(_, part)| share(part, spent.total())))
        })
        .collect();
    let mut figure = stacked("Share of device time by role", "share", &values, &percent);
    figure.y = figure.y.with_range(0.0, 1.0);
    figure
}

/// Parts on top of each other; the last line is their sum. Roles over steps, on top of each other; `text` says a value.
pub fn stacked(
    title: &str,
    label: &str,
    values: &[(f64, [f64; 4])],
    text: &dyn Fn(f64) -> String,
) -> Figure {
    let names = roles(&RoleSeconds::default()).map(|(name, _)| name);
    let mut layers = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let tone = if name == "idle" { Tone::Neutral } else { Tone::Run(index) };
        let below = |parts: &[f64; 4]| parts[..index].iter().sum::<f64>();
        let edges: Vec<(f64, f64, f64)> = values
            .iter()
            .map(|(x, parts)| (*x, below(parts), below(parts) + parts[index]))
            .collect();
        let line = edges.iter().map(|(x, _, high)| (*x, *high)).collect();
        let dots = values.iter().zip(&edges).map(|((x, parts), (_, low, high))| Dot {
            x: *x,
            y: f64::midpoint(*low, *high),
            hover: format!("{name}\nstep {}: {}", short(x.round()), text(parts[index])),
        });
        let dots = spread(&dots.collect::<Vec<_>>(), MOST_WINDOWS);
        let legend = name.to_owned();
        layers.push(Layer::Band(Band { tone, legend: legend.clone(), points: edges }));
        let stroke = Stroke::Solid;
        layers.push(Layer::Line(Line { tone, stroke, legend: legend.clone(), points: line }));
        layers.push(Layer::Points(Points { tone, role: Role::Probe, legend, dots }));
    }
    Figure {
        title: title.to_owned(),
        subtitle: String::new(),
        x: Axis::linear("optimizer steps"),
        y: Axis::linear(label),
        layers,
    }
}

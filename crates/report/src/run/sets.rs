//! Every evaluation set: pass rates over the run, and pass@k.

use std::collections::BTreeSet;

use scalerl_board::chart::{Axis, Dot, Layer, Line, Points, Role, Stroke, Tone};
use scalerl_board::number::short;
use scalerl_board::{Block, Figure, Section, Table};
use scalerl_journal::{EvaluationPoint, SetReport};

use super::{
    story::{Evaluation, Story},
    trace::{self, spread},
};

pub(crate) fn section(story: &Story) -> Section {
    let heading = "Evaluation sets".to_owned();
    if story.evaluations.is_empty() {
        return Section {
            heading,
            blocks: vec![Block::Prose("Nothing was evaluated yet.".into())],
        };
    }
    let mut blocks = vec![Block::Table(table(story))];
    let names = names(story);
    if names.len() > 1 {
        let curves =
            names.iter().map(|name| (name.clone(), values(story, name, |set| Some(set.pass_rate))));
        blocks.push(Block::figure(figure(story, "Pass rate of each set", curves.collect())));
    }
    for name in &names {
        blocks.extend(pass_at_figure(story, name).map(Block::figure));
    }
    Section { heading, blocks }
}

/// Names of the sets, the primary one first.
fn names(story: &Story) -> Vec<String> {
    let all = story.evaluations.iter().flat_map(|evaluation| &evaluation.sets);
    let others: BTreeSet<&str> =
        all.map(|set| set.name.as_str()).filter(|name| *name != story.primary()).collect();
    let primary = story.primary().to_owned();
    std::iter::once(primary).chain(others.into_iter().map(str::to_owned)).collect()
}

fn find<'a>(evaluation: &'a Evaluation, name: &str) -> Option<&'a SetReport> {
    evaluation.sets.iter().find(|set| set.name == name)
}

/// A number of one set, over the axis of the report.
fn values(story: &Story, name: &str, of: impl Fn(&SetReport) -> Option<f64>) -> Vec<(f64, f64)> {
    let value = |evaluation: &Evaluation| {
        let set = find(evaluation, name)?;
        let point = EvaluationPoint::new("", evaluation.version, &evaluation.spent, set);
        Some((point.compute(story.axis), of(set)?))
    };
    story.evaluations.iter().filter_map(value).collect()
}

fn table(story: &Story) -> Table {
    let ks: BTreeSet<u32> = story
        .evaluations
        .iter()
        .flat_map(|evaluation| &evaluation.sets)
        .flat_map(|set| set.pass_at.iter().map(|pass| pass.k))
        .collect();
    let columns = ["set", "first", "best", "last"].map(str::to_owned).into_iter();
    let columns = columns
        .chain(ks.iter().map(|k| format!("pass@{k}")))
        .chain(["reward", "judged", "failed", "truncated", "tokens"].map(str::to_owned));
    let row = |name: &String| {
        let reports: Vec<&SetReport> =
            story.evaluations.iter().filter_map(|evaluation| find(evaluation, name)).collect();
        let (first, last) = (reports.first()?, reports.last()?);
        let best = reports.iter().map(|set| set.pass_rate).fold(0.0, f64::max);
        let mut cells = vec![name.clone()];
        cells.extend([first.pass_rate, best, last.pass_rate].map(|rate| format!("{rate:.3}")));
        for k in &ks {
            let found = last.pass_at.iter().find(|pass| pass.k == *k);
            cells.push(found.map_or("–".into(), |pass| format!("{:.3}", pass.value)));
        }
        cells.extend([
            last.mean_reward.map_or("–".into(), |reward| format!("{reward:.3}")),
            last.samples.to_string(),
            last.failed.to_string(),
            format!("{:.1} %", last.truncated_share * 100.0),
            format!("{:.0}", last.mean_tokens),
        ]);
        Some(cells)
    };
    let caption = "Pass rate is the mean over prompts and completions. pass@k, mean reward, \
                   completions judged and failed, share truncated and mean tokens are of the last \
                   evaluation.";
    Table {
        caption: caption.to_owned(),
        columns: columns.collect(),
        rows: names(story).iter().filter_map(row).collect(),
    }
}

fn pass_at_figure(story: &Story, name: &str) -> Option<Figure> {
    let last = story.evaluations.iter().rev().find_map(|evaluation| find(evaluation, name))?;
    let ks: Vec<u32> = last.pass_at.iter().map(|pass| pass.k).filter(|k| *k > 1).collect();
    if ks.is_empty() {
        return None;
    }
    let mut curves = vec![("pass rate".to_owned(), values(story, name, |set| Some(set.pass_rate)))];
    for k in ks {
        let of =
            |set: &SetReport| set.pass_at.iter().find(|pass| pass.k == k).map(|pass| pass.value);
        curves.push((format!("pass@{k}"), values(story, name, of)));
    }
    Some(figure(story, &format!("pass@k on {name}"), curves))
}

fn figure(story: &Story, title: &str, curves: Vec<(String, Vec<(f64, f64)>)>) -> Figure {
    let mut layers = Vec::new();
    for (index, (legend, values)) in curves.into_iter().enumerate() {
        let tone = Tone::Run(index);
        let values = spread(&values, trace::MOST_BINS);
        let line = values.iter().copied().filter(|(x, _)| *x > 0.0).collect();
        let dots = values.iter().map(|(x, y)| Dot {
            x: *x,
            y: *y,
            hover: format!("{legend}\nat {}: {y:.4}", short(*x)),
        });
        let dots = dots.collect();
        let stroke = Stroke::Solid;
        layers.push(Layer::Line(Line { tone, stroke, legend: legend.clone(), points: line }));
        layers.push(Layer::Points(Points { tone, role: Role::Used, legend, dots }));
    }
    Figure {
        title: title.to_owned(),
        subtitle: String::new(),
        x: Axis::log(story.axis.label()),
        y: Axis::linear("pass rate"),
        layers,
    }
}

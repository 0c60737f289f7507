//! The figures and the page of a study.

use scalerl_board::plots::{self, Captions, Outcome};
use scalerl_board::{Block, Figure, Page, Section};
use scalerl_study::Plan;
use scalerl_study::analysis::{Analysis, RunAnalysis};
use scalerl_study::race::RaceReport;
use scalerl_study::tuning::Sweep;

use super::{race as race_table, tables};
use crate::figures;
use crate::figures::Labels;
use crate::table::block_table;

fn captions(plan: &Plan, title: &str, subtitle: String) -> Captions {
    let labels =
        Labels { compute: plan.budget.axis.label().to_owned(), value: "pass rate".to_owned() };
    figures::captions(&labels, title, subtitle)
}

/// All variants: fitted on the first half, extrapolated, later points drawn apart.
pub fn curves(plan: &Plan, analysis: &Analysis) -> Option<Figure> {
    let drawn: Vec<plots::RunCurve> = analysis
        .variants
        .iter()
        .map(|variant| {
            // Too early for a half: what there is.
            let fit = variant.half.as_ref().unwrap_or(&variant.fit);
            let end = variant.series.last_compute();
            figures::run(&variant.name, fit, &[fit.forecast(end)])
        })
        .collect();
    if drawn.is_empty() {
        return None;
    }
    let subtitle = "fitted on the first half (filled), extrapolated to the end (dashed)".to_owned();
    Some(plots::compare(&drawn, &captions(plan, &plan.name, subtitle)))
}

/// The leave-one-out plot at the shared ceiling.
pub fn slopes(plan: &Plan, analysis: &Analysis) -> Option<Figure> {
    let slopes: Vec<plots::Slope> = analysis
        .variants
        .iter()
        .filter_map(|one| one.shared.as_ref().map(|shared| figures::slope(&one.name, shared)))
        .collect();
    let ceiling = analysis.shared_ceiling.filter(|_| !slopes.is_empty())?;
    let subtitle = format!("F(R) at the shared ceiling {ceiling:.3}; the slope is the steepness");
    let mut captions = captions(plan, &plan.name, subtitle);
    "F(R)".clone_into(&mut captions.value);
    Some(plots::slopes(&slopes, &captions))
}

/// Forecasts against what came, one colour a variant.
fn agreement(plan: &Plan, analysis: &Analysis) -> Option<Figure> {
    let mut groups: Vec<(String, Vec<Outcome>)> = Vec::new();
    for run in &analysis.runs {
        let Some((prediction, ending)) = run.prediction.zip(run.ending.as_ref()) else { continue };
        let outcome = Outcome {
            name: run.name.clone(),
            predicted: prediction.value,
            low: prediction.low,
            high: prediction.high,
            actual: ending.value,
        };
        match groups.iter_mut().find(|(name, _)| *name == run.variant) {
            Some((_, outcomes)) => outcomes.push(outcome),
            None => groups.push((run.variant.clone(), vec![outcome])),
        }
    }
    let subtitle = "made at half of each run's compute".to_owned();
    (!groups.is_empty())
        .then(|| plots::agreement(&groups, &captions(plan, "Forecasts and what came", subtitle)))
}

fn run_figure(plan: &Plan, run: &RunAnalysis) -> Option<Block> {
    let fit = run.half.as_ref().or(run.whole.as_ref())?;
    let forecasts: Vec<_> = run.prediction.iter().map(|one| fit.forecast(one.at)).collect();
    let drawn = figures::run(&run.name, fit, &forecasts);
    let subtitle = format!("{}. Verdict of the fit: {}.", run.record.meta.status, fit.verdict);
    Some(Block::figure(plots::fit(&drawn, &captions(plan, &run.name, subtitle))))
}

/// `report.html`.
pub fn page(
    plan: &Plan,
    analysis: &Analysis,
    found: &[(String, Sweep)],
    race: Option<&RaceReport>,
) -> Page {
    let section = |heading: &str, blocks: Vec<Block>| Section { heading: heading.into(), blocks };
    let mut headlines = tables::sentences(analysis);
    headlines.extend(race.map(race_table::sentences).unwrap_or_default());
    let mut sections = vec![section("What came out", vec![Block::Headlines(headlines)])];
    let table = |caption: &str, rows: Vec<Vec<String>>| {
        (rows.len() > 1).then(|| block_table(caption, rows))
    };
    let mut part = |heading: &str, blocks: Vec<Option<Block>>| {
        let blocks: Vec<Block> = blocks.into_iter().flatten().collect();
        if !blocks.is_empty() {
            sections.push(section(heading, blocks));
        }
    };
    part(
        "Curves",
        vec![
            curves(plan, analysis).map(Block::figure),
            table("90 % intervals", tables::variants(analysis)),
        ],
    );
    let raced = race.map(race_table::rows).unwrap_or_default();
    part("The race", vec![table("Paused where little is expected to be lost", raced)]);
    part(
        "Forecasts",
        vec![
            agreement(plan, analysis).map(Block::figure),
            table("From the first half of each run", tables::forecasts(analysis)),
        ],
    );
    part("At a shared ceiling", vec![slopes(plan, analysis).map(Block::figure)]);
    part("Sweeps", vec![table("Short runs; the best goes on", tables::sweeps(plan, found))]);
    part("What each variant changes", vec![table("", tables::changes(plan))]);
    let runs: Vec<Block> = analysis
        .runs
        .iter()
        .filter_map(|run| Some(Block::Fold(run.name.clone(), vec![run_figure(plan, run)?])))
        .collect();
    part("Runs", runs.into_iter().map(Some).collect());
    sections.push(made(analysis));
    Page {
        title: plan.name.clone(),
        subtitle: format!(
            "{} Each run may spend {}.",
            plan.description,
            tables::budget(plan.budget)
        ),
        sections,
    }
}

fn made(analysis: &Analysis) -> Section {
    let mut commits: Vec<String> = analysis
        .runs
        .iter()
        .map(|run| {
            let meta = &run.record.meta;
            let commit = meta.commit.as_deref().unwrap_or("unknown");
            format!("scalerl {}, commit {commit}, on {}", meta.scalerl, meta.devices.join(" + "))
        })
        .collect();
    commits.sort();
    commits.dedup();
    Section {
        heading: "How this was made".into(),
        blocks: vec![
            Block::Code(crate::command::line()),
            Block::Prose(format!("Runs by: {}.", commits.join("; "))),
        ],
    }
}

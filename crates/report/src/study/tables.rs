//! What a study found, as tables and sentences.

use std::fmt::Write as _;

use scalerl_board::number::short;
use scalerl_curve::{Estimate, Separation};
use scalerl_study::analysis::{Analysis, Comparison, RunAnalysis, VariantAnalysis};
use scalerl_study::margin::Spread;
use scalerl_study::race::RaceReport;
use scalerl_study::tuning::Sweep;
use scalerl_study::{Budget, Plan, StudyError};

use super::race as race_table;
use crate::table::row;
use crate::words;

/// A difference in the end value that a study should be able to see.
const WANTED: f64 = 0.02;
const NOTHING: &str = "–";

pub fn budget(budget: Budget) -> String {
    format!("{} {}", short(budget.amount), budget.axis.label())
}

fn estimate(estimate: &Estimate) -> String {
    words::interval(estimate.value, estimate.low, estimate.high)
}

/// One row a variant.
pub fn variants(analysis: &Analysis) -> Vec<Vec<String>> {
    let shared = analysis.shared_ceiling.map_or(NOTHING.into(), |a| format!("{a:.3}"));
    let mut rows = vec![row([
        "variant",
        "runs",
        "ceiling A",
        "steepness B",
        "midpoint",
        &format!("B at A = {shared}"),
        &format!("midpoint at A = {shared}"),
        "end",
        "end − base",
        "verdict",
    ])];
    rows.extend(analysis.variants.iter().map(variant));
    // Against a base that was paused there is no verdict.
    let is_base_paused = analysis.variants.first().is_some_and(|base| base.is_paused);
    for row in rows.iter_mut().skip(2).filter(|_| is_base_paused) {
        if let Some(verdict) = row.last_mut().filter(|verdict| *verdict == "base") {
            NOTHING.clone_into(verdict);
        }
    }
    rows
}

fn variant(variant: &VariantAnalysis) -> Vec<String> {
    let shared = variant.shared.as_ref();
    let comparison = variant.comparison.as_ref();
    let difference = comparison.and_then(|one| one.end_difference);
    vec![
        variant.name.clone(),
        variant.runs.to_string(),
        words::ceiling(&variant.fit.ceiling),
        estimate(&variant.fit.steepness),
        words::computes(&variant.fit.midpoint),
        shared.map_or(NOTHING.into(), |fit| estimate(&fit.steepness)),
        shared.map_or(NOTHING.into(), |fit| words::computes(&fit.midpoint)),
        variant.end.map_or(NOTHING.into(), |end| format!("{:.3} ± {:.3}", end.value, end.error)),
        difference
            .map_or(NOTHING.into(), |d| format!("{:+.3} [{:+.3}, {:+.3}]", d.value, d.low, d.high)),
        verdict(variant),
    ]
}

fn verdict(variant: &VariantAnalysis) -> String {
    match &variant.comparison {
        _ if variant.is_paused => "paused".into(),
        Some(one) if one.verdict == Separation::Undecided => undecided(one).into(),
        Some(one) => one.verdict.to_string(),
        None => "base".into(),
    }
}

/// Runs that differ, where the points do not tell whether by the ceiling or on the way there.
fn undecided(one: &Comparison) -> &'static str {
    match &one.end_difference {
        Some(end) if end.high < 0.0 => "behind",
        Some(end) if end.low > 0.0 => "ahead",
        _ => "undecided",
    }
}

/// One row a run: the forecast from its first half, and what came.
pub fn forecasts(analysis: &Analysis) -> Vec<Vec<String>> {
    let heading = [
        "run",
        "status",
        "points",
        "fitted until",
        "forecast",
        "measured",
        "error",
        "inside",
        "fit",
    ];
    let mut rows = vec![row(heading)];
    rows.extend(analysis.runs.iter().map(forecast));
    rows
}

fn forecast(run: &RunAnalysis) -> Vec<String> {
    let status = &run.record.meta.status;
    let status = status.split_once(':').map_or(status.as_str(), |(word, _)| word);
    let (prediction, ending) = (run.prediction.as_ref(), run.ending.as_ref());
    let both = prediction.zip(ending);
    let cell = |text: Option<String>| text.unwrap_or_else(|| NOTHING.into());
    vec![
        run.name.clone(),
        status.to_owned(),
        run.record.points.len().to_string(),
        cell(prediction.map(|one| short(one.fitted_until.0))),
        cell(prediction.map(|one| words::interval(one.value, one.low, one.high))),
        cell(ending.map(|ending| match ending.error {
            Some(error) => format!("{:.3} ± {error:.3}", ending.value),
            None => format!("{:.3}", ending.value),
        })),
        cell(both.map(|(one, ending)| format!("{:+.3}", one.value - ending.value))),
        cell(both.map(|(one, end)| if one.covers(end.value) { "yes" } else { "no" }.into())),
        cell(prediction.map(|one| one.verdict.to_string())),
    ]
}

/// What the tables mean.
pub fn sentences(analysis: &Analysis) -> Vec<String> {
    let mut lines = Vec::new();
    let is_open = |run: &&RunAnalysis| !run.record.meta.is_finished && !run.record.is_paused();
    let open = analysis.runs.iter().filter(is_open).count();
    if open > 0 {
        lines.push(format!(
            "Provisional: {open} of {} runs have not reached their end.",
            analysis.runs.len()
        ));
    }
    let Some(base) = analysis.variants.first() else {
        lines.push("No variant has points enough for a fit yet.".into());
        return lines;
    };
    let mut like_base: Vec<&str> = Vec::new();
    for variant in &analysis.variants {
        match &variant.comparison {
            Some(one) if one.pair.verdict == Separation::Indistinguishable => {
                like_base.push(&variant.name);
            }
            Some(one) => lines.push(against_base(&variant.name, &base.name, one)),
            None => {}
        }
    }
    if !like_base.is_empty() {
        lines.push(format!("Cannot be told apart from {}: {}.", base.name, like_base.join(", ")));
    }
    lines.extend(margins(analysis));
    lines.extend(power(analysis));
    lines
}

fn against_base(name: &str, base: &str, comparison: &Comparison) -> String {
    let judged = comparison.pair.with_verdict(comparison.verdict);
    let text = words::pair(name, base, &judged);
    let was_more = comparison.pair.verdict != comparison.verdict
        && comparison.pair.verdict != Separation::Indistinguishable;
    if was_more {
        format!("{text} The curves alone differ more, but not beyond the margin between seeds.")
    } else {
        text
    }
}

/// How much seeds differ: the paper has this for A alone.
fn margins(analysis: &Analysis) -> Vec<String> {
    let of = |name: &str, spread: Option<Spread>, digits: usize| {
        spread.map(|spread| {
            format!("{name} ±{:.digits$} (at most {:.digits$})", spread.deviation, spread.largest)
        })
    };
    let margins = &analysis.margins;
    let parts: Vec<String> = [
        of("A", margins.ceiling, 3),
        of("B at the shared A", margins.steepness, 2),
        of("ln midpoint", margins.midpoint, 2),
        of("end", margins.end, 3),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        let text = "Every variant has one run: how much runs differ by seed alone is not known, \
                    and a verdict may be luck.";
        return vec![text.into()];
    }
    let freedom = margins.end.or(margins.ceiling).map_or(0, |spread| spread.freedom);
    vec![format!(
        "Between runs that differ only in their seed (one standard deviation, {freedom} degrees of \
         freedom): {}.",
        parts.join(", ")
    )]
}

/// Whether a difference of 0.02 could have been seen.
fn power(analysis: &Analysis) -> Option<String> {
    let widths = analysis.variants.iter().filter_map(|variant| {
        let difference = variant.comparison?.end_difference?;
        Some(difference.high - difference.value)
    });
    let widest = widths.fold(f64::NAN, f64::max);
    if widest.is_nan() {
        return None;
    }
    if analysis.margins.end.is_none() {
        return Some(format!(
            "Whether a difference of {WANTED} in the end value could be seen is not known without \
             repeated seeds; sampling noise alone makes it ±{widest:.3}."
        ));
    }
    let answer = if widest <= WANTED { "can" } else { "cannot" };
    Some(format!(
        "A difference of {WANTED} in the end value {answer} be seen here: the widest margin is \
         ±{widest:.3}."
    ))
}

/// What each variant changes.
pub fn changes(plan: &Plan) -> Vec<Vec<String>> {
    let mut rows = vec![row(["variant", "key", "base", "here"])];
    for variant in &plan.variants {
        for one in &variant.differences {
            rows.push(vec![
                variant.name.clone(),
                one.key.clone(),
                one.left.clone(),
                one.right.clone(),
            ]);
        }
    }
    rows
}

/// What the sweeps tried and chose.
pub fn sweeps(plan: &Plan, sweeps: &[(String, Sweep)]) -> Vec<Vec<String>> {
    let mut rows = vec![row(["variant", "key", "value", "end", "goes on"])];
    for (name, sweep) in sweeps {
        let Sweep::Chosen { value, tried } = sweep else { continue };
        let tune =
            plan.variants.iter().find(|one| one.name == *name).and_then(|one| one.tune.as_ref());
        for one in tried {
            let error = one.error.map(|error| format!(" ± {error:.3}")).unwrap_or_default();
            rows.push(vec![
                name.clone(),
                tune.map(|tune| tune.key.clone()).unwrap_or_default(),
                one.value.clone(),
                one.end.map_or("failed".into(), |end| format!("{end:.3}{error}")),
                if one.value == *value { "yes" } else { "" }.to_owned(),
            ]);
        }
    }
    rows
}

/// The runs that a study would make.
pub fn planned(plan: &Plan) -> Result<Vec<Vec<String>>, StudyError> {
    let mut rows = vec![row(["run", "budget", "differs from the base in"])];
    for variant in &plan.variants {
        let keys: Vec<&str> = variant.differences.iter().map(|one| one.key.as_str()).collect();
        for job in variant.tuning()?.into_iter().chain(variant.runs(None)?) {
            rows.push(vec![job.name, budget(job.budget), keys.join(", ")]);
        }
    }
    Ok(rows)
}

/// `table.md`.
pub fn markdown(
    plan: &Plan,
    analysis: &Analysis,
    found: &[(String, Sweep)],
    race: Option<&RaceReport>,
) -> String {
    let mut text = format!(
        "# {}\n\n{}\n\nEach run may spend {}. Intervals are 90 %; ends are means of the last three \
         evaluations with their sampling error.\n\n",
        plan.name,
        plan.description,
        budget(plan.budget)
    );
    for line in sentences(analysis) {
        let _ = writeln!(text, "- {line}");
    }
    for line in race.map(race_table::sentences).unwrap_or_default() {
        let _ = writeln!(text, "- {line}");
    }
    let mut part = |heading: &str, rows: &[Vec<String>]| {
        if rows.len() > 1 {
            let _ = write!(text, "\n## {heading}\n\n{}", pipes(rows));
        }
    };
    part("Variants", &variants(analysis));
    part("The race", &race.map(race_table::rows).unwrap_or_default());
    part("Forecast from the first half of each run, and what came", &forecasts(analysis));
    part("What each variant changes", &changes(plan));
    part("Sweeps", &sweeps(plan, found));
    if !analysis.variants.is_empty() {
        text.push_str("\n![curves](curves.png)\n\n![slopes](slopes.png)\n");
    }
    text
}

/// A Markdown table; the first row is its heading.
pub fn pipes(rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = |cells: &[String]| format!("|{}\n", "---|".repeat(cells.len()));
    let mut text = rows.first().map(|row| line(row) + &rule(row)).unwrap_or_default();
    text.extend(rows.iter().skip(1).map(|row| line(row)));
    text
}

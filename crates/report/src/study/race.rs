//! What a race did, as a table and sentences.

use scalerl_study::race::{Leader, RaceReport, VariantReport};

use crate::table::row;
use crate::words;

const NOTHING: &str = "–";

/// One row a variant.
pub fn rows(race: &RaceReport) -> Vec<Vec<String>> {
    let heading =
        ["variant", "compute", "judged at", "forecast of its end", "expected to add", "why"];
    let mut rows = vec![row(heading)];
    rows.extend(race.variants.iter().map(variant));
    rows
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn variant(one: &VariantReport) -> Vec<String> {
    let judged = &one.judged;
    let forecast = judged.forecast.map(|one| words::interval(one.value, one.low, one.high));
    let why = if one.is_paused {
        format!("paused: without all that are paused {:.4} is expected to be lost", one.loss)
    } else if one.spent >= 1.0 {
        "ran to its end".into()
    } else if judged.is_kept {
        "goes on".into()
    } else {
        "out".into()
    };
    vec![
        judged.variant.clone(),
        percent(one.spent),
        if judged.share > 0.0 { percent(judged.share) } else { NOTHING.into() },
        forecast.unwrap_or_else(|| NOTHING.into()),
        judged.adds.map_or(NOTHING.into(), |adds| format!("{adds:.4}")),
        why,
    ]
}

/// What was stopped, what was saved, and who leads.
pub fn sentences(race: &RaceReport) -> Vec<String> {
    let paused: Vec<&str> = race
        .variants
        .iter()
        .filter(|one| one.is_paused)
        .map(|one| one.judged.variant.as_str())
        .collect();
    let mut lines = Vec::new();
    if paused.is_empty() {
        lines.push(format!("The race has paused no variant; {} was saved.", percent(race.saved)));
    } else {
        lines.push(format!(
            "The race has paused {} of {} variants ({}) and saved {} of the study's compute; their \
             runs are kept, and --resume without --race takes them to their end.",
            paused.len(),
            race.variants.len(),
            paused.join(", "),
            percent(race.saved)
        ));
    }
    if race.added_runs > 0 {
        lines.push(format!("What was saved went to {} more runs.", race.added_runs));
    }
    lines.extend(race.leader.as_ref().map(leader));
    lines
}

fn leader(leader: &Leader) -> String {
    let Leader { variant, end, runs, ahead_of, not_told_from, knows_seeds } = leader;
    let mut parts = vec![format!("The highest end is that of {variant}: {end:.3}.")];
    if !not_told_from.is_empty() {
        parts.push(format!("It cannot be told apart from {}.", not_told_from.join(", ")));
    }
    if !ahead_of.is_empty() {
        parts.push(format!("It lies beyond the margin above {}.", ahead_of.join(", ")));
    }
    if *runs == 1 {
        parts.push("This is the winner of one seed: another seed may have another.".into());
    }
    if !knows_seeds {
        let text = "The margin has no seeds in it: no variant has two runs that ended.";
        parts.push(text.into());
    }
    parts.join(" ")
}

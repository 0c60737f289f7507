//! What went wrong, or nearly: warnings of the stability watch, verifier errors, sessions.

use scalerl_board::number::short;
use scalerl_board::{Block, Section, Table};

use super::story::{Story, Warning};

/// Rows of a table of errors; the rest are in `events.jsonl`.
const MOST_ROWS: usize = 50;
const SECONDS_PER_DAY: f64 = 86_400.0;

pub(crate) fn section(story: &Story) -> Section {
    let blocks = vec![
        warnings(story),
        unmeasured(story),
        verifier_errors(story),
        set_aside(story),
        damage(story),
        sessions(story),
    ];
    Section {
        heading: "Warnings, errors, sessions".to_owned(),
        blocks: blocks.into_iter().flatten().collect(),
    }
}

fn warnings(story: &Story) -> Vec<Block> {
    if story.warnings.is_empty() {
        return vec![Block::Prose("The stability watch has warned of nothing.".to_owned())];
    }
    let row = |warning: &Warning| {
        vec![
            warning.step.to_string(),
            warning.sign.description().to_owned(),
            short(warning.value),
            short(warning.threshold),
            warning.steps.to_string(),
            warning.sign.advice().to_owned(),
        ]
    };
    let columns = ["step", "sign", "value", "threshold", "steps in a row", "what to do"];
    vec![Block::Table(table(
        "Warnings of the stability watch",
        &columns,
        story.warnings.iter().map(row).collect(),
    ))]
}

fn unmeasured(story: &Story) -> Vec<Block> {
    if story.unmeasured.is_empty() {
        return Vec::new();
    }
    let rows = story.unmeasured.iter().map(|one| {
        vec![one.step.to_string(), one.set.clone(), one.failed.to_string(), one.reason.clone()]
    });
    let caption = "Evaluations without a single verdict: their pass rate is not known";
    let columns = ["step", "set", "failed", "last reason"];
    vec![Block::Table(table(caption, &columns, rows.collect()))]
}

fn verifier_errors(story: &Story) -> Vec<Block> {
    let mut blocks = Vec::new();
    if story.verifier_failures.is_empty() {
        blocks.push(Block::Prose("The verifier failed on no completion.".to_owned()));
    } else {
        let kinds = story.failures.by_count();
        let rows = kinds.iter().map(|one| vec![one.count.to_string(), one.kind.clone()]);
        blocks.push(Block::Table(table(
            "Completions and episodes without a verdict, by reason (N: a number)",
            &["how many", "reason"],
            rows.collect(),
        )));
        let rows = story.verifier_failures.iter().map(|failure| {
            vec![failure.group.to_string(), failure.completion.to_string(), failure.reason.clone()]
        });
        let caption = "Completions whose verifier failed; they left their batch and count as \
                       neither right nor wrong";
        blocks.push(Block::Table(table(
            caption,
            &["group", "completion", "reason"],
            rows.collect(),
        )));
    }
    if story.environment_restarts > 0 {
        let count = story.environment_restarts;
        let text = format!(
            "{count} processes of environments ended before their time and were started again."
        );
        blocks.push(Block::Prose(text));
    }
    if story.generator_retries > 0 {
        let text =
            format!("The generator failed and was asked again {} times.", story.generator_retries);
        blocks.push(Block::Prose(text));
    }
    blocks
}

fn set_aside(story: &Story) -> Vec<Block> {
    if story.set_aside.is_empty() {
        return Vec::new();
    }
    let rows = story.set_aside.iter().map(|one| {
        let file = one.file.clone().unwrap_or_else(|| "-".to_owned());
        vec![one.step.to_string(), one.group.to_string(), one.reason.clone(), file]
    });
    let caption = "Groups that no step could use; they left their batch for good";
    let columns = ["after step", "group", "reason", "kept in"];
    vec![Block::Table(table(caption, &columns, rows.collect()))]
}

fn damage(story: &Story) -> Vec<Block> {
    if story.damaged.is_empty() {
        return Vec::new();
    }
    let rows = story
        .damaged
        .iter()
        .map(|one| vec![one.found.clone(), one.reason.clone(), one.kept_as.clone()]);
    let caption = "Found damaged when the run was resumed, and not used";
    vec![Block::Table(table(caption, &["what", "reason", "kept as"], rows.collect()))]
}

fn sessions(story: &Story) -> Vec<Block> {
    let [first, resumed @ ..] = &story.sessions[..] else {
        return vec![Block::Prose("No session has begun.".to_owned())];
    };
    if resumed.is_empty() {
        return vec![Block::Prose("One session, never resumed.".to_owned())];
    }
    let rows = story.sessions.iter().map(|session| {
        vec![
            since(session.at - first.at),
            session.resumed_from.map_or("start".to_owned(), |step| format!("resumed at {step}")),
            format!("{:.4}", session.lost_hours),
            session.buffered_groups.to_string(),
        ]
    });
    let columns = ["after", "step", "device-hours undone", "groups kept in the buffer"];
    vec![Block::Table(table("Sessions", &columns, rows.collect()))]
}

/// 1 d 02:03:04.
fn since(seconds: f64) -> String {
    let whole = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 } as u64;
    let days = whole / SECONDS_PER_DAY as u64;
    let rest = whole % SECONDS_PER_DAY as u64;
    let day = if days > 0 { format!("{days} d ") } else { String::new() };
    format!("{day}{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

fn table(caption: &str, columns: &[&str], mut rows: Vec<Vec<String>>) -> Table {
    let all = rows.len();
    rows.truncate(MOST_ROWS);
    let caption = if all > rows.len() {
        format!("{caption} (the first {} of {all})", rows.len())
    } else {
        caption.to_owned()
    };
    Table { caption, columns: columns.iter().map(ToString::to_string).collect(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_days_and_a_clock() {
        assert_eq!(since(3_723.9), "01:02:03");
        assert_eq!(since(90_000.0), "1 d 01:00:00");
        assert_eq!(since(f64::NAN), "00:00:00");
    }
}

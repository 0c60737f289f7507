//! Warnings of the stability watch, verifier failures, sessions, and the processes of a run.

use std::time::{SystemTime, UNIX_EPOCH};

use scalerl_board::number::short;
use scalerl_board::{Block, Table};
use scalerl_journal::FleetMember;

use super::Subject;

fn table(caption: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Block {
    let columns = columns.iter().map(ToString::to_string).collect();
    Block::Table(Table { caption: caption.to_owned(), columns, rows })
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// 3 min ago.
pub(crate) fn ago(at: f64) -> String {
    match (now() - at).max(0.0) {
        s if s < 100.0 => format!("{s:.0} s ago"),
        s if s < 6000.0 => format!("{:.0} min ago", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h ago", s / 3600.0),
        s => format!("{:.0} days ago", s / 86_400.0),
    }
}

pub(super) fn blocks(subject: &Subject<'_>) -> Vec<Block> {
    let digest = subject.digest;
    let mut blocks = Vec::new();
    if digest.warnings.count() == 0 {
        blocks.push(Block::Prose("The stability watch has warned of nothing.".to_owned()));
    } else {
        let rows = digest.warnings.newest().map(|warning| {
            vec![
                warning.step.to_string(),
                warning.sign.description().to_owned(),
                short(warning.value),
                short(warning.threshold),
                warning.sign.advice().to_owned(),
            ]
        });
        let caption = format!("{} warnings of the stability watch", digest.warnings.count());
        let columns = ["step", "sign", "value", "threshold", "what to do"];
        blocks.push(table(&caption, &columns, rows.collect()));
    }
    if digest.verifier_failures.count() > 0 {
        let kinds = digest.verifier_failures.by_count().into_iter().take(20);
        let rows = kinds.map(|one| vec![one.count.to_string(), one.last.clone()]);
        let count = digest.verifier_failures.count();
        let caption = format!("{count} completions or episodes without a verdict, by reason");
        blocks.push(table(&caption, &["how many", "the last such reason"], rows.collect()));
    }
    let counts = [
        ("batches in which nothing carried loss", digest.empty_batches),
        ("groups that no step could use", digest.set_aside),
        ("times the generator was asked again", digest.generator_retries),
        ("processes of environments that were restarted", digest.environment_restarts),
    ];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<(String, String)> =
        counts.map(|(name, count)| ((*name).to_owned(), count.to_string())).collect();
    if !counts.is_empty() {
        blocks.push(Block::KeyValues(counts));
    }
    if digest.sessions.count() > 1 {
        let rows = digest.sessions.newest().map(|session| {
            let from = session.resumed_from;
            vec![
                ago(session.at),
                from.map_or("started".to_owned(), |step| format!("resumed from step {step}")),
                format!("{:.4}", session.lost_hours),
            ]
        });
        let columns = ["when", "session", "device-hours undone"];
        blocks.push(table("Sessions, newest first", &columns, rows.collect()));
    }
    blocks
}

pub(super) fn fleet(subject: &Subject<'_>) -> Vec<Block> {
    let Some(fleet) = subject.fleet else {
        return vec![Block::Prose("One process generates and trains.".to_owned())];
    };
    let mut blocks = Vec::new();
    if let Some(trouble) = &fleet.trouble {
        blocks.push(Block::Headlines(vec![format!("Redis: {trouble}")]));
    }
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let row = |member: &FleetMember| {
        vec![
            member.name.clone(),
            member.role.clone(),
            member.host.clone(),
            member.state.to_string(),
            or_dash(member.version.map(|version| version.0.to_string())),
            or_dash(member.lag.map(|lag| lag.to_string())),
            short(member.tokens_per_second),
            ago(member.heard_at),
        ]
    };
    let columns = ["process", "role", "host", "state", "version", "lag", "tokens/s", "heard"];
    blocks.push(table("", &columns, fleet.members.iter().map(row).collect()));
    let changes = &subject.digest.fleet_changes;
    if changes.count() > 0 {
        let rows = changes.newest().take(20).map(|(at, change)| {
            let from = change.from.map_or("new".to_owned(), |state| state.to_string());
            let states = format!("{from} → {}", change.to);
            vec![ago(*at), change.name.clone(), states, change.reason.clone()]
        });
        let columns = ["when", "process", "state", "reason"];
        blocks.push(Block::Fold(
            format!("{} changes of state", changes.count()),
            vec![table("", &columns, rows.collect())],
        ));
    }
    blocks
}

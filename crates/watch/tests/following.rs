//! Following journals: what the follower says is what the journal's own reader says, however the file
//! grows, tears or is resumed; and memory does not grow with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod journal;

use std::io::Write as _;

use journal::{Writer, evaluation, step};
use scalerl_journal::Reading;
use scalerl_watch::{Follower, Metric};

/// Everything that both say.
fn same(follower: &mut Follower, path: &std::path::Path) {
    let digest = follower.catch_up().unwrap();
    let reading = Reading::load(path).unwrap();
    assert_eq!(digest.summary(&reading.name), reading.summary());
    assert_eq!(digest.points, reading.points());
    let forecasts: Vec<_> = reading.forecasts().cloned().collect();
    assert_eq!(digest.forecasts, forecasts);
    assert_eq!(follower.damaged(), None);
}

#[test]
fn a_growing_and_resumed_journal_reads_as_the_journal_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut writer = Writer::create(&path);
    let mut follower = Follower::open(&path).unwrap();
    same(&mut follower, &path);
    writer.steps(1..=20);
    writer.trouble(20);
    same(&mut follower, &path);
    let kept = writer.log.count();
    writer.steps(21..=34);
    same(&mut follower, &path);
    assert_eq!(follower.digest().unwrap().version, 34);
    // Killed, and resumed from step 20: what came after disappears.
    writer.resume(kept, 20);
    same(&mut follower, &path);
    let digest = follower.digest().unwrap();
    assert_eq!((digest.version, digest.points.len()), (20, 2));
    assert_eq!(digest.steps.bins().last().unwrap().last, 20);
    assert_eq!(digest.sessions.count(), 2);
    writer.steps(21..=50);
    writer.resume(kept, 20);
    writer.steps(21..=30);
    writer.stop(30);
    same(&mut follower, &path);
    same(&mut Follower::open(&path).unwrap(), &path);
    assert_eq!(follower.digest().unwrap().sessions.count(), 3);
}

#[test]
fn a_torn_end_is_left_out_until_it_is_whole_or_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut writer = Writer::create(&path);
    writer.steps(1..=3);
    let mut follower = Follower::open(&path).unwrap();
    same(&mut follower, &path);
    let mut file = std::fs::OpenOptions::new().append(true).open(writer.folder.events()).unwrap();
    file.write_all(b"{\"v\":1,\"at\":1.0,\"type\":\"st").unwrap();
    same(&mut follower, &path);
    file.write_all(b"\n\0\0\0\n").unwrap();
    same(&mut follower, &path);
    // As a resumed writer does it.
    let name = writer.folder.path().to_owned();
    drop(writer);
    let (mut log, _) = scalerl_journal::EventLog::open(&name.join("events.jsonl")).unwrap();
    log.append(9e9, step(4)).unwrap();
    log.append(9e9, evaluation(4)).unwrap();
    same(&mut follower, &path);
    assert_eq!(follower.digest().unwrap().version, 4);
    log.append(9e9, step(5)).unwrap();
    file.write_all(b"this is no event\n").unwrap();
    log.append(9e9, step(6)).unwrap();
    assert_eq!(follower.catch_up().unwrap().version, 6, "what can be read is shown");
    assert!(follower.damaged().is_some(), "and the damage is said");
}

/// Kilobytes that this process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn fifty_megabytes_are_read_in_a_few() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut writer = Writer::create(&path);
    writer.steps(1..=100);
    // The same hundred steps' lines over and over, as many groups as a long run has.
    let text = std::fs::read(writer.folder.events()).unwrap();
    let groups: Vec<u8> = text
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.windows(14).any(|window| window == b"\"type\":\"group\""))
        .flatten()
        .copied()
        .collect();
    let mut file = std::fs::OpenOptions::new().append(true).open(writer.folder.events()).unwrap();
    let rounds = (50 << 20) / groups.len() + 1;
    for _ in 0..rounds {
        file.write_all(&groups).unwrap();
    }
    drop((text, groups));
    writer.steps(101..=110);
    assert!(std::fs::metadata(writer.folder.events()).unwrap().len() > 50 << 20);
    let before = resident();
    let digest = Follower::open(&path).unwrap().catch_up().unwrap();
    let grown = resident().saturating_sub(before);
    assert_eq!((digest.version, digest.points.len()), (110, 11));
    assert_eq!(digest.groups, 880 + rounds * 800);
    assert!(grown < 16 << 10, "{grown} KiB for a journal of 50 MiB");
    assert_eq!(digest.steps.bins().last().unwrap().stat(Metric::Lag).mean().to_bits(), 0);
}

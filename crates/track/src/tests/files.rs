//! TensorBoard, W&B and JSON lines: read back and compared, over kills, resumes and a full disk.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use scalerl_journal::StopReason;
use scalerl_recipe::TrackerChoice;
use serde_json::Value;

use super::journal::Journal;
use super::{Shown, counts, expected, export, export_all, sorted, target};
use crate::wandb::log;
use crate::{Delivery, Target, TrackError};

/// The one event file of a run.
fn event_file(run: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(run.join("track/tensorboard")).unwrap().flatten().collect();
    assert_eq!(files.len(), 1, "files of earlier generations are removed");
    files[0].path()
}

/// Scalars by our own reader of other people's event files, which has columns by tag.
fn tensorboard(run: &Path) -> Shown {
    let bytes = fs::read(event_file(run)).unwrap();
    let mut values = Vec::new();
    for record in tfrecords(&bytes) {
        let fields = fields(record);
        let step = fields.iter().find(|(number, _)| *number == 2).map_or(0, |(_, one)| one.int());
        for (_, summary) in fields.iter().filter(|(number, _)| *number == 5) {
            for (_, value) in self::fields(summary.bytes()) {
                let value = self::fields(value.bytes());
                let number = value.iter().find(|(number, _)| *number == 2);
                let Some((_, number)) = number else { continue };
                let name = String::from_utf8(value[0].1.bytes().to_vec()).unwrap();
                let number = f32::from_le_bytes(number.bytes().try_into().unwrap());
                values.push((name, step, f64::from(number)));
            }
        }
    }
    sorted(values)
}

fn tfrecords(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let data = &bytes[12..12 + length];
        assert_eq!(scalerl_ingest::frame(data), bytes[..16 + length], "length and checksums");
        records.push(data);
        bytes = &bytes[16 + length..];
    }
    records
}

/// A field of a message: a number, or bytes of a fixed or given length.
enum Field<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn int(&self) -> u64 {
        let Self::Int(value) = self else { panic!("not a number") };
        *value
    }

    fn bytes(&self) -> &'a [u8] {
        let Self::Bytes(bytes) = self else { panic!("not bytes") };
        bytes
    }
}

fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, Field::Int(varint(&mut message))));
                continue;
            }
            1 => 8,
            2 => varint(&mut message) as usize,
            5 => 4,
            kind => panic!("wire type {kind}"),
        };
        found.push((key >> 3, Field::Bytes(&message[..length])));
        message = &message[length..];
    }
    found
}

fn wandb_folder(run: &Path) -> PathBuf {
    let folders: Vec<_> = fs::read_dir(run.join("track/wandb")).unwrap().flatten().collect();
    assert_eq!(folders.len(), 1);
    folders[0].path()
}

/// Records by their field number, in order.
fn wandb_records(run: &Path) -> Vec<(u64, Vec<u8>)> {
    let folder = wandb_folder(run);
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let id = name.rsplit_once('-').unwrap().1.to_owned();
    let file = fs::read(folder.join(format!("run-{id}.wandb"))).unwrap();
    let records = log::read(&file);
    let content = |(index, record): (usize, &Vec<u8>)| {
        let fields = fields(record);
        assert_eq!(fields[0].1.int(), index as u64 + 1, "records are numbered");
        (fields[1].0, fields[1].1.bytes().to_vec())
    };
    records.iter().enumerate().map(content).collect()
}

fn wandb(run: &Path) -> Shown {
    let mut values = Vec::new();
    for (row, (_, history)) in
        wandb_records(run).iter().filter(|(number, _)| *number == 2).enumerate()
    {
        let items: Vec<(String, Value)> = fields(history)
            .iter()
            .filter(|(number, _)| *number == 1)
            .map(|(_, item)| {
                let item = fields(item.bytes());
                let text =
                    |index: usize| String::from_utf8(item[index].1.bytes().to_vec()).unwrap();
                (text(0), serde_json::from_str(&text(1)).unwrap())
            })
            .collect();
        let find = |name: &str| items.iter().find(|(key, _)| key == name).unwrap().1.clone();
        assert_eq!(find("_step"), row as u64, "W&B's own step only grows");
        let step = find("step").as_u64().unwrap();
        for (name, value) in &items {
            let is_own = name.starts_with('_') || name == "step";
            if let (false, Some(value)) = (is_own, value.as_f64()) {
                values.push((name.clone(), step, value));
            }
        }
    }
    sorted(values)
}

fn jsonl(run: &Path) -> Shown {
    let text = fs::read_to_string(run.join("track/metrics.jsonl")).unwrap();
    let mut values = Vec::new();
    for line in text.lines() {
        let Value::Object(line) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
        let step = line["step"].as_u64().unwrap();
        for (name, value) in line.iter().skip(2) {
            values.push((name.clone(), step, value.as_f64().unwrap()));
        }
    }
    sorted(values)
}

fn rounded(values: Shown) -> Shown {
    let to_float = |(name, step, value): (String, u64, f64)| (name, step, f64::from(value as f32));
    sorted(values.into_iter().map(to_float).collect())
}

fn targets() -> [Target; 3] {
    [TrackerChoice::TensorBoard, TrackerChoice::Wandb, TrackerChoice::Jsonl].each_ref().map(target)
}

fn compare(run: &Path) {
    let expected = expected(run);
    assert_eq!(jsonl(run), expected);
    assert_eq!(wandb(run), expected);
    assert_eq!(tensorboard(run), rounded(expected.clone()));
    assert!(counts(&expected).values().all(|count| *count == 1), "nothing twice");
}

#[test]
fn every_value_is_in_every_file_once_after_kills_and_resumes() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 7);
    let kept = journal.lines();
    journal.train(8, 12);
    export_all(&journal.path, &targets());
    compare(&journal.path);
    // Killed: steps 8 to 12 are taken back, and the run gets less far before it is looked at.
    let mut journal = journal.resume(7, kept);
    journal.train(8, 9);
    export_all(&journal.path, &targets());
    compare(&journal.path);
    // Stopped in order and resumed: the end is taken back, nothing else.
    let kept = journal.lines();
    journal.stop(9, StopReason::Asked);
    export_all(&journal.path, &targets());
    let mut journal = journal.resume(9, kept);
    journal.train(10, 11);
    journal.stop(11, StopReason::Steps);
    export_all(&journal.path, &targets());
    compare(&journal.path);
    let exits = wandb_records(&journal.path).iter().filter(|(number, _)| *number == 18).count();
    assert_eq!(exits, 1, "one end");
}

#[test]
fn completions_and_recipe_are_where_each_tracker_has_them() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 5);
    export_all(&journal.path, &targets());
    let text = String::from_utf8_lossy(&fs::read(event_file(&journal.path)).unwrap()).into_owned();
    assert!(text.contains("lr = 0.001"), "the recipe");
    assert!(text.contains("How many &lt;b>&#124;<br>are there?"), "text stays in its cell");
    let records = wandb_records(&journal.path);
    let run = String::from_utf8_lossy(&records[1].1).into_owned();
    assert!(run.contains("run-1") && run.contains("{\"lr\":0.001}"), "{run}");
    let files = wandb_folder(&journal.path).join("files/media/table");
    let table = fs::read_dir(files).unwrap().flatten().next().unwrap().path();
    let table: Value = serde_json::from_slice(&fs::read(table).unwrap()).unwrap();
    assert_eq!(table["columns"][5], "completion");
    assert_eq!(table["data"][0][5], "There are 5.");
}

#[test]
fn what_a_kill_left_behind_the_cursor_is_cut_off_and_what_is_gone_is_written_anew() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 3);
    export_all(&journal.path, &targets());
    let garbage = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes.extend(b"half a rec");
        fs::write(path, bytes).unwrap();
    };
    garbage(&event_file(&journal.path));
    garbage(&journal.path.join("track/metrics.jsonl"));
    journal.train(4, 5);
    export_all(&journal.path, &targets());
    compare(&journal.path);
    // A power cut took the end of a file that had been synced, or somebody removed it.
    fs::write(journal.path.join("track/metrics.jsonl"), "").unwrap();
    fs::remove_file(event_file(&journal.path)).unwrap();
    journal.train(6, 6);
    export_all(&journal.path, &targets());
    compare(&journal.path);
}

#[test]
fn a_journal_that_lost_lines_in_a_power_cut_is_noticed() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 3);
    let bytes = fs::read(journal.path.join("events.jsonl")).unwrap();
    journal.train(4, 6);
    export_all(&journal.path, &targets());
    fs::write(journal.path.join("events.jsonl"), bytes).unwrap();
    let kept = 2;
    let mut journal = journal.resume(1, kept);
    journal.train(2, 9);
    export_all(&journal.path, &targets());
    compare(&journal.path);
}

#[test]
fn a_folder_that_cannot_be_written_is_trouble_and_nothing_is_missing_after_it() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 3);
    // A file where the tracker's folder should be: root may write anywhere else.
    fs::create_dir_all(journal.path.join("track")).unwrap();
    fs::write(journal.path.join("track/tensorboard"), "in the way").unwrap();
    let target = target(&TrackerChoice::TensorBoard);
    let mut delivery = Delivery::new(&journal.path, target).unwrap();
    let error = delivery.pass().unwrap_err();
    assert!(matches!(error, TrackError::Io { .. }), "{error}");
    assert!(error.to_string().contains("track/tensorboard"), "{error}");
    journal.train(4, 4);
    fs::remove_file(journal.path.join("track/tensorboard")).unwrap();
    super::deliver(&mut delivery);
    assert_eq!(tensorboard(&journal.path), rounded(expected(&journal.path)));
}

#[test]
fn two_processes_do_not_send_the_same() {
    let parent = tempfile::tempdir().unwrap();
    let journal = Journal::create(parent.path());
    let first = Delivery::new(&journal.path, target(&TrackerChoice::Jsonl)).unwrap();
    let second = Delivery::new(&journal.path, target(&TrackerChoice::Jsonl));
    assert!(matches!(second, Err(TrackError::Busy { .. })));
    drop(first);
    assert!(Delivery::new(&journal.path, target(&TrackerChoice::Jsonl)).is_ok());
}

#[test]
fn our_own_reader_of_logs_reads_the_event_file() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    journal.train(1, 30);
    export(&journal.path, &target(&TrackerChoice::TensorBoard));
    let request = scalerl_ingest::Request {
        x: Some("steps".into()),
        y: Some("eval/pass_rate".into()),
        ..scalerl_ingest::Request::default()
    };
    let logs = scalerl_ingest::read(&[event_file(&journal.path)], &request).unwrap();
    assert_eq!(logs[0].points.len(), 6, "steps 5, 10 … 30");
    assert!((logs[0].points[0].value - 0.05).abs() < 1e-7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Any order of training, looking, killing and resuming ends in the history that counts.
    #[test]
    fn whatever_happens_the_files_end_as_the_history_that_counts(
        acts in prop::collection::vec((0_u8..4, 1_u64..6), 1..10),
    ) {
        let parent = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(parent.path());
        let (mut step, mut checkpoint) = (0, (0, journal.lines()));
        for (act, count) in acts {
            match act {
                0 => {
                    journal.train(step + 1, step + count);
                    step += count;
                }
                1 => targets().iter().for_each(|target| export(&journal.path, target)),
                2 => checkpoint = (step, journal.lines()),
                _ => {
                    journal = journal.resume(checkpoint.0, checkpoint.1);
                    step = checkpoint.0;
                }
            }
        }
        journal.train(step + 1, step + 1);
        export_all(&journal.path, &targets());
        compare(&journal.path);
    }
}

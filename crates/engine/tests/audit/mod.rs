//! No prompt lost, none trained on twice: what must be true of every folder that a run leaves.
//!
//! Used by the engine's tests with fakes and by those of the program (`crates/cli/tests`).

use std::collections::BTreeSet;

use scalerl_journal::{Checkpoint, Event, Fate, History, Reading, What, read_events};
use scalerl_rollout::Draw;

/// What must be true of every run that has ended: steps follow each other, each group is judged
/// once and then trained on once or set aside once, what was handed out and not judged is in the last checkpoint.
/// Returns all hand-outs.
pub(crate) fn audit(reading: &Reading, steps_behind: u64) -> BTreeSet<Draw> {
    let newest = reading.checkpoints.last().expect("a run that ends leaves a checkpoint");
    let (mut steps, mut places, mut waiting) = (0, BTreeSet::new(), BTreeSet::new());
    for Event { what, .. } in &until(newest).events {
        match what {
            What::Group(report) => {
                assert!(places.insert(report.draw), "{:?} was judged twice", report.draw);
                if report.fate == Fate::Batch {
                    waiting.insert(report.group);
                }
            }
            What::Step { lag, batch, report, .. } => {
                steps += 1;
                assert_eq!(report.version.0, steps, "steps follow each other");
                assert!(*lag <= steps_behind, "lag {lag} at step {steps}");
                for group in &batch.groups {
                    assert!(waiting.remove(group), "{group:?} was trained on twice");
                }
            }
            What::SetAside { group, reason, .. } => {
                assert!(waiting.remove(group), "{group:?} was set aside twice: {reason}");
            }
            What::EmptyBatch { batch, .. } => {
                for group in &batch.groups {
                    assert!(waiting.remove(group), "{group:?} was used twice");
                }
            }
            _ => {}
        }
    }
    for checkpoint in &reading.checkpoints {
        checkpoint.verify().unwrap();
    }
    assert_eq!(newest.version.0, steps, "the checkpoint is of the step it names");
    let is_step = |event: &&Event| matches!(event.what, What::Step { .. });
    let taken = reading.history.events.iter().filter(is_step).count() as u64;
    assert_eq!(steps, taken, "the last step is saved");
    for line in String::from_utf8(newest.read("groups.jsonl").unwrap()).unwrap().lines() {
        let group: serde_json::Value = serde_json::from_str(line).unwrap();
        if group["judged"].is_null() || group["stage"] == "arrived" {
            let place = serde_json::from_value(group["handout"]["place"].clone()).unwrap();
            assert!(places.insert(place), "{place:?} is judged and in flight");
        } else {
            let id = serde_json::from_value(group["id"].clone()).unwrap();
            assert!(waiting.remove(&id), "{id:?} is trained on and still buffered");
        }
    }
    assert!(waiting.is_empty(), "judged, never trained on and not buffered: {waiting:?}");
    places
}

/// The journal at the moment of a checkpoint: groups judged while it was being written come after,
/// and are in flight in it.
fn until(checkpoint: &Checkpoint) -> History {
    let state: serde_json::Value =
        serde_json::from_slice(&checkpoint.read("state.json").unwrap()).unwrap();
    let kept = state["kept"].as_u64().unwrap() as usize;
    let run = checkpoint.path.parent().unwrap().parent().unwrap();
    let mut lines = read_events(&run.join("events.jsonl")).unwrap();
    lines.truncate(kept);
    History::of(lines)
}

/// Every position of the epochs was handed out, none left out.
pub(crate) fn assert_none_skipped(places: &BTreeSet<Draw>, prompts: u64) {
    for (index, place) in places.iter().enumerate() {
        assert_eq!(place.epoch * prompts + place.position, index as u64, "a prompt was skipped");
    }
}

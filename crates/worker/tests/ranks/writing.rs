//! Checkpoints that are written while steps go on: slow disks, full ones, ranks that are lost meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use scalerl_rollout::{PolicyVersion, Trainer as _, TrainerError, Writing};
use tch::Tensor;

use crate::crew::{Crew, Disk, PATIENT, batches, full, local, row};

/// For each tensor of a file. The model here has about twenty of them, twice more in its moments.
const SLOW: Duration = Duration::from_millis(20);
const SCHEMES: [&str; 2] = ["cispo", "full cispo"];

/// What a resume finds: its version and its weights.
fn found(folder: &Path) -> (PolicyVersion, Tensor) {
    let mut resumed = local("cispo");
    let version = resumed.restore(folder).unwrap();
    (version, row(resumed.masters()))
}

fn drafts(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".saving-")).collect()
}

/// Finishes it on another thread; how long it took, and how it ended.
fn finish(writing: Writing) -> std::thread::JoinHandle<(Duration, Result<(), TrainerError>)> {
    std::thread::spawn(move || {
        let begun = Instant::now();
        let ended = writing.finish();
        (begun.elapsed(), ended)
    })
}

#[test]
fn steps_go_on_while_files_are_written_and_files_are_of_the_step_they_began_at() {
    let (slow, fast) = (Disk::Slow(SLOW), Disk::Fast);
    let batches = batches("cispo", 3);
    for (scheme, disks) in [
        (SCHEMES[0], [slow, fast, fast]),
        (SCHEMES[0], [fast, slow, fast]),
        (SCHEMES[1], [fast, fast, slow]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut crew = Crew::start_on(&disks, scheme, PATIENT);
        crew.trainer().step(&batches[0]).unwrap();
        let expected = row(&crew.masters());
        let writing = finish(crew.trainer().snapshot(folder.path()).unwrap());
        crew.trainer().step(&batches[1]).unwrap();
        crew.trainer().publish().unwrap();
        let steps_done_first = !writing.is_finished();
        // One at a time: the file before is not there yet.
        let error = crew.trainer().snapshot(folder.path()).unwrap_err();
        assert!(error.to_string().contains("still being written"), "{error}");
        crew.trainer().step(&batches[2]).unwrap();
        let (took, ended) = writing.join().unwrap();
        ended.unwrap();
        println!("{scheme}: written within {took:?}, first step before: {steps_done_first}");
        assert!(steps_done_first, "a step has waited for a disk");
        assert!(drafts(folder.path()).is_empty());
        let (version, weights) = found(folder.path());
        assert_eq!(version, PolicyVersion(1));
        assert!(weights.equal(&expected), "later steps are not in it");
        crew.trainer().save(folder.path()).unwrap();
        assert_eq!(found(folder.path()).0, PolicyVersion(3), "and the next one is taken");
        crew.end();
    }
}

/// The engine waits for files before it ends a run; one that is given up does not.
#[test]
fn a_trainer_dropped_while_files_are_written_leaves_the_checkpoint_before() {
    let batches = batches("cispo", 2);
    for scheme in SCHEMES {
        let folder = tempfile::tempdir().unwrap();
        let disks = [Disk::Fast, Disk::Slow(SLOW), Disk::Fast];
        let mut crew = Crew::start_on(&disks, scheme, PATIENT);
        crew.trainer().step(&batches[0]).unwrap();
        crew.trainer().save(folder.path()).unwrap();
        crew.trainer().step(&batches[1]).unwrap();
        let writing = finish(crew.trainer().snapshot(folder.path()).unwrap());
        crew.end();
        let (took, ended) = writing.join().unwrap();
        let error = ended.unwrap_err();
        println!("{scheme}: after {took:?}: {error}");
        assert!(matches!(error, TrainerError::RankLost { .. }), "{error}");
        assert!(drafts(folder.path()).is_empty(), "drafts are removed");
        assert_eq!(found(folder.path()).0, PolicyVersion(1), "{scheme}");
    }
}

#[test]
fn a_rank_lost_while_files_are_written_leaves_the_checkpoint_before() {
    let batches = batches("cispo", 2);
    for (scheme, signal) in [
        (SCHEMES[0], Signal::KILL),
        (SCHEMES[1], Signal::KILL),
        (SCHEMES[0], Signal::STOP),
        (SCHEMES[1], Signal::STOP),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let disks = [Disk::Fast, Disk::Fast, Disk::Slow(10 * SLOW)];
        let operation = Duration::from_secs(4);
        let mut crew = Crew::start_on(&disks, scheme, operation);
        crew.trainer().step(&batches[0]).unwrap();
        crew.trainer().save(folder.path()).unwrap();
        let before = found(folder.path());
        crew.trainer().step(&batches[1]).unwrap();
        let writing = finish(crew.trainer().snapshot(folder.path()).unwrap());
        std::thread::sleep(SLOW);
        crew.signal(2, signal);
        // No step is asked for: what keeps the pulse finds out.
        let (took, ended) = writing.join().unwrap();
        let error = ended.unwrap_err();
        println!("{scheme}, {signal:?}: after {took:?}: {error}");
        assert!(matches!(error, TrainerError::RankLost { .. }), "{error}");
        assert!(took < 3 * operation, "{took:?}");
        assert!(drafts(folder.path()).is_empty(), "drafts are removed");
        let after = found(folder.path());
        assert!(after.0 == before.0 && after.1.equal(&before.1), "{scheme}");
        assert!(crew.trainer().step(&batches[0]).is_err());
    }
}

/// What was copied before a step is whole, whatever becomes of the step. (With weights in parts a rank
/// without memory cannot keep pace with the others: it is lost.)
#[test]
fn files_under_way_are_finished_when_a_step_fails_on_a_rank_that_lives() {
    let batches = batches("cispo", 2);
    let folder = tempfile::tempdir().unwrap();
    let disks = [Disk::Fast, Disk::SlowWithoutMemory(SLOW), Disk::Slow(SLOW)];
    let mut crew = Crew::start_on(&disks, "cispo", PATIENT);
    crew.trainer().step(&batches[0]).unwrap();
    let writing = finish(crew.trainer().snapshot(folder.path()).unwrap());
    std::thread::sleep(5 * SLOW);
    let error = crew.trainer().step(&batches[1]).unwrap_err();
    assert!(!writing.is_finished(), "the step has failed in the middle");
    let said = error.to_string();
    println!("{said}");
    assert!(matches!(error, TrainerError::OutOfMemory { .. }), "{said}");
    assert!(said.contains("trainer rank 1") && said.contains("most is held by"), "{said}");
    let (took, ended) = writing.join().unwrap();
    ended.unwrap();
    println!("written within {took:?}");
    crew.wait();
    assert!(drafts(folder.path()).is_empty());
    let (version, weights) = found(folder.path());
    let mut alone = local("cispo");
    alone.step(&batches[0]).unwrap();
    let apart = (weights - row(alone.masters())).abs().max().double_value(&[]);
    assert!(version == PolicyVersion(1) && apart < 1e-4, "{apart}");
}

#[test]
fn a_full_disk_of_one_rank_is_told_by_rank_0_and_the_ranks_stay_together() {
    let batches = batches("cispo", 2);
    for scheme in ["cispo".to_owned(), full("cispo")] {
        let folder = tempfile::tempdir().unwrap();
        let mut crew = Crew::start_on(&[Disk::Fast, Disk::Full], &scheme, PATIENT);
        crew.trainer().step(&batches[0]).unwrap();
        let error = crew.trainer().save(folder.path()).unwrap_err();
        println!("{scheme}: {error}");
        assert!(matches!(error, TrainerError::Storage { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("rank 1") && said.contains("disk full"), "{said}");
        assert!(drafts(folder.path()).is_empty(), "drafts are removed");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no half of one");
        crew.trainer().step(&batches[1]).unwrap();
        crew.end();
    }
}

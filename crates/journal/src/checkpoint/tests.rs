//! A checkpoint under every kill.

use super::*;

fn killed() -> JournalError {
    JournalError::BadFile { path: "killed".into(), problem: "here".into() }
}

fn draft(checkpoints: &Checkpoints, version: u64) -> Draft {
    let draft = checkpoints.begin(PolicyVersion(version)).unwrap();
    let trainer = draft.subfolder("trainer").unwrap();
    fs::write(trainer.join("weights"), [7; 4096]).unwrap();
    draft.write("state.json", b"{}").unwrap();
    draft
}

fn versions(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().iter().map(|checkpoint| checkpoint.version.0).collect()
}

#[test]
fn a_kill_at_any_write_leaves_the_old_checkpoint_and_no_half_one() {
    let mut acts = 0;
    for kill_at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        draft(&checkpoints, 1).commit().unwrap();
        let mut count = 0;
        let mut was_renamed = false;
        let result = draft(&checkpoints, 2).commit_watched(|act| {
            was_renamed |= act == "sync the parent";
            count += 1;
            if count > kill_at { Err(killed()) } else { Ok(()) }
        });
        // What the next process sees, before and after it cleans up.
        for checkpoints in
            [Checkpoints::at(folder.path()), Checkpoints::open(folder.path()).unwrap()]
        {
            let expected: &[u64] = if was_renamed { &[1, 2] } else { &[1] };
            assert_eq!(versions(&checkpoints), expected, "killed at act {kill_at}");
            let (newest, damaged) = checkpoints.newest_sound().unwrap();
            assert_eq!(newest.unwrap().version.0, expected[expected.len() - 1]);
            assert!(damaged.is_empty());
        }
        let rest = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(rest, versions(&checkpoints).len(), "nothing half is left behind");
        if result.is_ok() {
            acts = kill_at;
            break;
        }
    }
    assert!(acts >= 6, "only {acts} acts were watched");
}

#[test]
fn a_changed_or_missing_file_is_found_and_the_checkpoint_before_it_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    for version in 1..=3 {
        draft(&checkpoints, version).commit().unwrap();
    }
    let list = checkpoints.list().unwrap();
    fs::write(list[2].path.join("trainer/weights"), [8; 4096]).unwrap();
    fs::remove_file(list[1].path.join("state.json")).unwrap();
    let (newest, damaged) = checkpoints.newest_sound().unwrap();
    assert_eq!(newest.unwrap().version.0, 1);
    let problems: Vec<String> = damaged.iter().map(|one| one.error.to_string()).collect();
    assert!(problems[0].contains("trainer/weights is not the file"), "{problems:?}");
    assert!(problems[1].contains("state.json"), "{problems:?}");
}

#[test]
fn pruning_keeps_the_latest_and_the_best() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    for version in [1, 2, 3, 4, 5, 1_000_000] {
        draft(&checkpoints, version).commit().unwrap();
    }
    checkpoints.prune(2, Some(PolicyVersion(3))).unwrap();
    assert_eq!(versions(&checkpoints), [3, 5, 1_000_000]);
}

#[test]
fn one_step_has_one_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    draft(&checkpoints, 1).commit().unwrap();
    draft(&checkpoints, 2).commit().unwrap();
    assert!(checkpoints.begin(PolicyVersion(2)).is_err());
    checkpoints.remove_after(PolicyVersion(1)).unwrap();
    draft(&checkpoints, 2).commit().unwrap();
    assert_eq!(versions(&checkpoints), [1, 2]);
}

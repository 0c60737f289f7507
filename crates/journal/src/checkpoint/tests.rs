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
            let (newest, damaged) = checkpoints.newest_sound(&["state.json", "trainer"]).unwrap();
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
    let (newest, damaged) = checkpoints.newest_sound(&[]).unwrap();
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
}

#[test]
fn a_manifest_that_lists_nothing_or_not_everything_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    let checkpoint = draft(&checkpoints, 1).commit().unwrap();
    let path = checkpoint.path.join(MANIFEST);
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let (all, parts) = (manifest["files"].clone(), ["state.json", "trainer"]);
    checkpoint.verify_parts(&parts).unwrap();
    for (kept, expected) in [
        (serde_json::json!([]), "lists no files"),
        (serde_json::json!([all[0]]), "does not list trainer"),
        (serde_json::json!([all[1]]), "does not list state.json"),
    ] {
        manifest["files"] = kept;
        fs::write(&path, manifest.to_string()).unwrap();
        let said = checkpoint.verify_parts(&parts).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
        assert!(checkpoints.newest_sound(&parts).unwrap().0.is_none());
    }
}

#[test]
fn damaged_checkpoints_are_kept_out_of_the_way_until_there_are_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    for number in 0..MOST_DAMAGED {
        let checkpoint = draft(&checkpoints, 2).commit().unwrap();
        checkpoints.may_keep_damaged(1).unwrap();
        let name = checkpoints.name_for_damaged(&checkpoint);
        checkpoints.keep_damaged(&checkpoint, &name).unwrap();
        assert!(versions(&checkpoints).is_empty(), "it is no checkpoint any more");
        let kept = folder.path().join(&name).join("trainer/weights");
        assert_eq!(fs::read(kept).unwrap(), [7; 4096], "{name}, number {number}");
    }
    checkpoints.may_keep_damaged(0).unwrap();
    let error = checkpoints.may_keep_damaged(1).unwrap_err();
    let count = MOST_DAMAGED;
    assert!(matches!(error, JournalError::TooManyDamaged { count: found, .. } if found == count));
    assert!(error.hint().contains("the disk may be failing"), "{}", error.hint());
}

#[test]
fn a_full_disk_is_named_leaves_no_draft_and_the_checkpoint_before() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    draft(&checkpoints, 1).commit().unwrap();
    let draft = draft(&checkpoints, 2);
    // Whatever is written there finds no room.
    std::os::unix::fs::symlink("/dev/full", draft.folder().join("groups.jsonl")).unwrap();
    let said = draft.write("groups.jsonl", b"{}").unwrap_err();
    assert!(matches!(said, JournalError::DiskFull { .. }), "{said:?}");
    assert!(said.to_string().starts_with("disk full: cannot write "), "{said}");
    assert!(said.to_string().ends_with("groups.jsonl"), "{said}");
    assert!(said.hint().contains("--resume"), "{}", said.hint());
    draft.discard();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the draft is gone");
    assert_eq!(checkpoints.newest_sound(&[]).unwrap().0.unwrap().version.0, 1);
}

#[test]
fn going_back_keeps_the_newest_of_what_is_undone_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    for version in 1..=4 {
        draft(&checkpoints, version).commit().unwrap();
    }
    let point = |step, pass_rate| EvaluationPoint {
        run: "r".into(),
        step,
        gpu_hours: 0.0,
        tokens: 0,
        flops: 0.0,
        pass_rate,
        samples: 64,
        at: None,
    };
    let points = [point(0, 0.2), point(2, 0.6), point(4, 0.3)];
    let best = checkpoints.best(&points).unwrap().unwrap();
    assert_eq!(best.version.0, 2, "and not 3, which was measured no better");
    for round in 0..2 {
        let kept = checkpoints.undo_after(&best).unwrap().unwrap();
        assert!(kept.join("trainer/weights").is_file(), "round {round}");
        assert_eq!(versions(&checkpoints), [1, 2]);
        draft(&checkpoints, 4).commit().unwrap();
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    assert!(checkpoints.undo_after(&checkpoints.list().unwrap()[2]).unwrap().is_none());
}

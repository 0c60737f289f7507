//! Who may write, how a run starts, and starts that fail.

use super::*;

#[test]
fn a_folder_is_held_as_long_as_its_writer_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let writer = RunFolder::create(&path, "", &Environment::default()).unwrap();
    let reader = RunFolder::open(&path).unwrap();
    assert!(reader.is_held().unwrap());
    assert_eq!(reader.holder(), Some(std::process::id()));
    let refused = RunFolder::claim(&path).unwrap_err();
    assert!(matches!(refused, JournalError::Locked { .. }), "{refused}");
    assert_eq!(reader.holder(), Some(std::process::id()), "who is refused leaves it as it was");
    drop(writer);
    assert!(!reader.is_held().unwrap());
    std::fs::remove_file(path.join("run.lock")).unwrap();
    assert!(!reader.is_held().unwrap(), "a copy without the lock");
}

fn start(path: &Path) -> RunFolder {
    let folder = RunFolder::create(path, "", &Environment::default()).unwrap();
    folder.write_history(&[]).unwrap();
    for name in ["held_out.json", "policy.json", "events.jsonl"] {
        std::fs::write(path.join(name), "").unwrap();
    }
    folder
}

#[test]
fn a_start_that_failed_is_undone_and_one_that_began_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    assert!(!RunFolder::undo_start(&path).unwrap(), "nothing is there");
    let writer = start(&path);
    assert!(RunFolder::undo_start(&path).unwrap(), "somebody is just starting");
    drop(writer);
    assert!(!RunFolder::undo_start(&path).unwrap());
    assert!(!path.exists(), "no folder is left");

    // What is somebody's own stays.
    start(&path);
    std::fs::write(path.join("notes.txt"), "mine").unwrap();
    assert!(!RunFolder::undo_start(&path).unwrap());
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    start(&path);
    std::fs::write(path.join("events.jsonl"), "{}\n").unwrap();
    assert!(RunFolder::undo_start(&path).unwrap(), "it has begun");
    assert!(path.join("policy.json").exists());
    let error = RunFolder::create(&path, "", &Environment::default()).unwrap_err();
    assert!(matches!(error, JournalError::Exists { .. }));
}

#[test]
fn a_lost_or_empty_history_is_refused_where_there_are_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let run = start(&path);
    drop(run);
    RunFolder::claim(&path).expect("nothing has happened yet");
    for version in [2, 4] {
        let checkpoints = Checkpoints::open(path.join("checkpoints")).unwrap();
        let draft = checkpoints.begin(PolicyVersion(version)).unwrap();
        draft.write("state.json", b"{}").unwrap();
        draft.commit().unwrap();
    }
    let events = path.join("events.jsonl");
    let torn = "{\"v\":1,\"at\":1.0,\"type\":\"adop";
    for text in [None, Some(""), Some(torn), Some("{}\n")] {
        match text {
            Some(text) => std::fs::write(&events, text).unwrap(),
            None => std::fs::remove_file(&events).unwrap(),
        }
        let error = RunFolder::claim(&path).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("missing or empty, and there are 2 checkpoints"), "{said}");
        assert!(said.ends_with("the newest of step 4"), "{said}");
        assert!(error.hint().contains("model.path"), "{}", error.hint());
        assert_eq!(std::fs::read_to_string(&events).ok().as_deref(), text, "left as it was");
    }
    let whole = "{\"v\":1,\"at\":1.0,\"type\":\"adopted\",\"version\":1}\n";
    std::fs::write(&events, whole).unwrap();
    RunFolder::claim(&path).unwrap();
}

#[test]
fn groups_are_set_aside_up_to_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let run = start(&folder.path().join("run"));
    for number in 0..MOST_SET_ASIDE as u64 {
        let name = run.write_set_aside(GroupId(number), &number).unwrap().unwrap();
        assert!(run.path().join(name).is_file());
    }
    assert_eq!(run.write_set_aside(GroupId(1000), &0).unwrap(), None);
    assert!(run.write_set_aside(GroupId(3), &0).unwrap().is_some(), "the same again");
}

#[test]
fn somebody_who_asks_whether_a_run_lives_does_not_keep_it_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    drop(start(&path));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = RunFolder::open(&path).unwrap();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                reader.is_held().unwrap();
            }
        });
        for _ in 0..50 {
            drop(RunFolder::claim(&path).unwrap());
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

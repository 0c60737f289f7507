//! Things that are no logs under the names of logs: each is an error that names it, and none is waited
//! for. `make test-hostile` adds up the cases.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use scalerl_ingest::{IngestError, Request, read};

fn refused(path: &Path) -> IngestError {
    let error = read(&[path.to_owned()], &Request::default()).expect_err("this is no log");
    assert!(!error.hint().is_empty());
    error
}

fn named_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

#[test]
fn devices_and_named_pipes_are_no_logs() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe.csv");
    named_pipe(&pipe);
    let link = folder.path().join("link.csv");
    std::os::unix::fs::symlink("/dev/zero", &link).expect("a link");
    let cases = [pipe, link, PathBuf::from("/dev/zero"), PathBuf::from("/dev/null")];
    for path in &cases {
        let error = refused(path);
        assert!(matches!(error, IngestError::NotAFile { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    println!("hostile cases: {}", cases.len());
}

#[test]
fn a_file_of_terabytes_is_refused_without_reading_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.csv");
    File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("holes");
    assert!(matches!(refused(&path), IngestError::TooLarge { .. }));
    println!("hostile cases: 1");
}

#[test]
fn event_files_and_points_are_regular_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = folder.path().join("events");
    std::fs::create_dir(&events).expect("a folder");
    named_pipe(&events.join("events.out.tfevents.1.host"));
    assert!(matches!(refused(&events), IngestError::NotAFile { .. }));
    let run = folder.path().join("run");
    std::fs::create_dir(&run).expect("a folder");
    for name in ["recipe.toml", "events.jsonl"] {
        std::fs::write(run.join(name), "").expect("a file");
    }
    named_pipe(&run.join("points.jsonl"));
    assert!(matches!(refused(&run), IngestError::NoEvaluations { .. }));
    println!("hostile cases: 2");
}

#[test]
fn one_line_of_megabytes_is_read_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("line.csv");
    let cases = [
        "x".repeat(32 << 20),
        ",".repeat(8 << 20),
        format!("\"{}", "x".repeat(32 << 20)),
        "{".repeat(8 << 20),
        "[".repeat(8 << 20),
        format!("{{\"a\": \"{}", "x".repeat(32 << 20)),
    ];
    for text in &cases {
        std::fs::write(&path, text).expect("a file");
        assert!(refused(&path).to_string().contains("line.csv"));
    }
    println!("hostile cases: {}", cases.len());
}

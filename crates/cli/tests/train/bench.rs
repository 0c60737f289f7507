//! How the tests run the program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use scalerl_journal::{Event, GroupReport, Reading, What};

pub(crate) use crate::audit::{assert_none_skipped, audit};

/// Laid over a recipe; also by the tests of other generators.
const SMALL: &str = include_str!("small.toml");

/// Nothing here takes longer, however slow the machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// The folder all tests of this process work in; the one of the last process is removed.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        // Missing at the first time.
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("small.toml"), SMALL).unwrap();
        folder
    })
}

/// `scalerl ARGUMENTS` in the tests' folder.
pub(crate) fn scalerl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command.current_dir(folder()).env("OMP_WAIT_POLICY", "passive").args(arguments);
    // Nothing of whoever runs the tests.
    command.env("XDG_DATA_HOME", folder().join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `scalerl train RECIPE small.toml --run NAME`, with settings. Runs of other tests lie beside it and
/// end whenever they do, so it does not learn from them.
pub(crate) fn train(recipe: &str, run: &str, set: &[&str]) -> Command {
    let mut command = train_with_history(recipe, run, set);
    command.arg("--no-history");
    command
}

/// The same, learning from the finished runs beside it.
pub(crate) fn train_with_history(recipe: &str, run: &str, set: &[&str]) -> Command {
    let mut command = scalerl(&["train", recipe, "small.toml", "--device", "cpu", "--run", run]);
    for one in set {
        command.args(["--set", one]);
    }
    command
}

pub(crate) fn resume(run: &str, set: &[&str]) -> Command {
    let mut command = scalerl(&["train", "--device", "cpu", "--resume", run]);
    for one in set {
        command.args(["--set", one]);
    }
    command
}

/// What a command said, with its exit code.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

pub(crate) fn said(mut command: Command) -> Said {
    command.output().unwrap().into()
}

/// Runs to the end, which must be a good one.
pub(crate) fn succeed(command: Command) -> Said {
    let said = said(command);
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    said
}

/// Runs to the end and reads the folder.
pub(crate) fn finish(run: &str, command: Command) -> Reading {
    succeed(command);
    reading(run)
}

pub(crate) fn reading(run: &str) -> Reading {
    Reading::load(&folder().join(run)).unwrap()
}

/// Lines of the journal so far.
pub(crate) fn lines(run: &str) -> usize {
    let text = std::fs::read(folder().join(run).join("events.jsonl")).unwrap_or_default();
    text.split(|byte| *byte == b'\n').count() - 1
}

/// Waits until something is true of a run that is alive.
pub(crate) fn wait_until(child: &mut Child, what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before {what}");
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn events(reading: &Reading) -> impl Iterator<Item = &What> {
    reading.history.events.iter().map(|event: &Event| &event.what)
}

pub(crate) fn groups(reading: &Reading) -> impl Iterator<Item = &GroupReport> {
    events(reading).filter_map(|what| match what {
        What::Group(report) => Some(report),
        _ => None,
    })
}

/// All files below a folder, by their path in it.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_path_buf();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

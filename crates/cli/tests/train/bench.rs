//! How the tests run the program, and what must be true of every folder it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use scalerl_journal::{
    Checkpoint, Event, Fate, GroupReport, History, Place, Reading, What, read_events,
};

/// Laid over a recipe: chains of one to three operations, the last of which does not fit the budget
/// of thinking and is interrupted. The warm-up has wrong steps in it, which is what RL can take back.
const SMALL: &str = r#"
[model]
weights = { type = "new", layers = 2, width = 64, heads = 4, kv_heads = 4, feed_forward = 128 }

[[task.datasets]]
name = "chain"
source = { type = "chain", min_steps = 1, max_steps = 3, count = 1216 }

[task]
held_out = 192

[warm_up]
examples = { type = "chain", min_steps = 1, max_steps = 3, noise = 0.2, cut = 0.1 }
steps = 1000
examples_per_step = 40

[format]
interruption = ""

[sampling]
max_prompt_tokens = 16
max_thinking_tokens = 12
max_answer_tokens = 3

[pipeline]
groups_per_step = 16
group_size = 8
micro_batch_tokens = 2048

[objective]
length_control = { type = "interruption", earliest = 12, latest = 12 }

[optimizer]
lr = 5e-4
warmup_steps = 2

[evaluation]
every_steps = 10
generations = 4

[budget]
steps = 100

[output]
folder = "runs"
checkpoint_every_steps = 10
sampled_completions = 64
"#;

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
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `scalerl train RECIPE small.toml --run NAME`, with settings.
pub(crate) fn train(recipe: &str, run: &str, set: &[&str]) -> Command {
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

/// What must be true of every run that has ended: steps follow each other, each group is judged
/// once and trained on once, what was handed out and not judged is in the last checkpoint.
/// Returns all hand-outs.
pub(crate) fn audit(reading: &Reading, steps_behind: u64) -> BTreeSet<Place> {
    let newest = reading.checkpoints.last().expect("a run that ends leaves a checkpoint");
    let (mut steps, mut places, mut waiting) = (0, BTreeSet::new(), BTreeSet::new());
    for event in &until(newest).events {
        match &event.what {
            What::Group(report) => {
                assert!(places.insert(report.place), "{:?} was judged twice", report.place);
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
    let taken = events(reading).filter(|what| matches!(what, What::Step { .. })).count() as u64;
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
pub(crate) fn assert_none_skipped(places: &BTreeSet<Place>, prompts: u64) {
    for (index, place) in places.iter().enumerate() {
        assert_eq!(place.epoch * prompts + place.position, index as u64, "a prompt was skipped");
    }
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

//! Plays a recorded run again as if it were alive, with the trackers of a real one beside it.
//!
//! ```text
//! cargo run -p scalerl-track --example replay -- RECORDED RUN LINES_PER_SECOND [TRACKER[=URL] …]
//! ```
//!
//! Lines of RECORDED's journal are appended to RUN's one by one; samples are copied before. Kill it
//! anywhere and give the same command again: it goes on as a resumed run does, from the last multiple
//! of 100 lines, so lines are taken back and written again. For tests with real servers.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_journal::{Environment, EventLog, Ledger, RunFolder, What, read_events};
use scalerl_recipe::TrackerChoice;
use scalerl_rollout::PolicyVersion;
use scalerl_track::{Following, Say, Target};

/// Lines between two checkpoints.
const CHECKPOINT: usize = 100;

#[expect(clippy::print_stderr, clippy::print_stdout, reason = "this is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recorded, run, speed, trackers @ ..] = &arguments[..] else {
        return Err("give RECORDED RUN LINES_PER_SECOND [TRACKER[=URL] …]".into());
    };
    let (recorded, run, speed) = (Path::new(recorded), Path::new(run), speed.parse::<f64>()?);
    let events = read_events(&RunFolder::open(recorded)?.events())?;
    let folder = if run.join("recipe.toml").exists() {
        RunFolder::claim(run)?
    } else {
        let recipe = fs::read_to_string(recorded.join("recipe.toml"))?;
        let environment = Environment { started_at: 1_763_000_000.0, ..Environment::default() };
        let folder = RunFolder::create(run, &recipe, &environment)?;
        for sample in fs::read_dir(recorded.join("samples"))? {
            let sample = sample?;
            fs::copy(sample.path(), folder.samples_folder().join(sample.file_name()))?;
        }
        folder
    };
    let mut targets = Vec::new();
    for text in trackers {
        let (name, url) =
            text.split_once('=').map_or((text.as_str(), None), |(a, b)| (a, Some(b.into())));
        let choice = match name {
            "tensorboard" => TrackerChoice::TensorBoard,
            "wandb" => TrackerChoice::Wandb,
            "mlflow" => TrackerChoice::Mlflow { url },
            "trackio" => TrackerChoice::Trackio { url },
            _ => TrackerChoice::Jsonl,
        };
        targets.push(Target::new(&choice, "replayed")?);
    }
    let say: Say = Arc::new(|line: &str| eprintln!("{line}"));
    let following = Following::start(run, &targets, &say);
    let (mut log, before) = EventLog::open(&folder.events())?;
    // Which recorded event comes next: those that count, one line of the beginning apart.
    let done = scalerl_journal::History::of(before.clone());
    let counted =
        done.events.iter().filter(|event| !matches!(event.what, What::Resumed { .. })).count();
    let next = counted / CHECKPOINT * CHECKPOINT;
    if !before.is_empty() {
        let kept = kept_lines(&before, next);
        let (version, lost) = (PolicyVersion(0), Ledger::default());
        log.append(1_763_000_000.0, What::Resumed { version, kept, lost, buffered_groups: 0 })?;
        println!("resumed after {next} events: {kept} lines of {} count", before.len());
    }
    let started = Instant::now();
    for (index, event) in events.iter().enumerate().skip(next) {
        log.append(1_763_000_000.0 + event.at, event.what.clone())?;
        let due = Duration::from_secs_f64((index + 1 - next) as f64 / speed);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
    }
    for line in following.end(Duration::from_secs(30)) {
        println!("{line}");
    }
    println!("ended after {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The number of lines after which so many recorded events count.
fn kept_lines(lines: &[scalerl_journal::Event], wanted: usize) -> usize {
    let count = |lines: &[scalerl_journal::Event]| {
        let history = scalerl_journal::History::of(lines.to_vec());
        history.events.iter().filter(|event| !matches!(event.what, What::Resumed { .. })).count()
    };
    // The last place where exactly these count.
    (0..=lines.len()).rev().find(|kept| count(&lines[..*kept]) == wanted).unwrap_or(0)
}

//! A disk that is full: a small one of its own, in a namespace of mounts, so that nobody else's is.

use std::fs;
use std::process::Command;

use crate::bench::{Said, audit, folder, reading, train};
use crate::hostile::with;

/// Mounts a disk, runs a command there, makes the disk larger, runs another, and copies what is left.
struct SmallDisk {
    name: &'static str,
    kib: u32,
}

impl SmallDisk {
    /// What both commands said; `None`, with a word about it, where the machine allows no mounts.
    fn run(&self, first: &Command, second: &Command) -> Option<(Said, Said)> {
        let (mount, kept) =
            (folder().join(self.name), folder().join(format!("{}-kept", self.name)));
        fs::create_dir_all(&mount).unwrap();
        fs::create_dir_all(&kept).unwrap();
        let [first, second] = [first, second].map(words);
        let script = format!(
            "mount -t tmpfs -o size={}k tmpfs '{mount}' || exit 99\n\
             {first} >'{kept}/first.out' 2>'{kept}/first.err'; echo $? >'{kept}/first.code'\n\
             ls '{mount}' >'{kept}/left'; mount -o remount,size=64m '{mount}' || exit 99\n\
             {second} >'{kept}/second.out' 2>'{kept}/second.err'; echo $? >'{kept}/second.code'\n\
             cp -r '{mount}/.' '{kept}/'",
            self.kib,
            mount = mount.display(),
            kept = kept.display(),
        );
        let mut shell = Command::new("unshare");
        shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        let done = shell.current_dir(folder()).env("OMP_WAIT_POLICY", "passive").output();
        match done {
            Ok(done) if done.status.success() => {}
            Ok(done) if !matches!(done.status.code(), Some(1 | 99)) => panic!("{done:?}"),
            refused => {
                println!("SKIPPED: this machine mounts no disk for a test: {refused:?}");
                return None;
            }
        }
        let said = |which: &str| {
            let text = |kind: &str| {
                fs::read_to_string(kept.join(format!("{which}.{kind}"))).unwrap_or_default()
            };
            Said { code: text("code").trim().parse().ok(), out: text("out"), err: text("err") }
        };
        Some((said("first"), said("second")))
    }
}

/// A command as words of a shell.
fn words(command: &Command) -> String {
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_string_lossy());
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    all.map(quoted).collect::<Vec<_>>().join(" ")
}

fn resume(run: &str, set: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command.args(["train", "--device", "cpu", "--resume", run, "--set", set]);
    command
}

fn assert_full(said: &Said, words: &[&str]) {
    assert_eq!(said.code, Some(1), "{said:?}");
    for word in ["error: disk full: cannot ", "hint: make room", "--resume"].iter().chain(words) {
        assert!(said.err.contains(word), "`{word}` is missing in: {}", said.err);
    }
    for word in ["bug", "not a whole safetensors", "learning rate"] {
        assert!(!said.err.contains(word), "`{word}` in: {}", said.err);
    }
}

#[test]
fn a_checkpoint_that_finds_no_room_ends_the_run_and_the_one_before_is_whole() {
    // Room for one checkpoint of 1.4 MiB and not for two, however many are made.
    let disk = SmallDisk { name: "disk-for-checkpoints", kib: 2400 };
    let run = format!("{}/run", disk.name);
    let first = train("scalerl", &run, &with(&["budget.steps=8"]));
    let Some((full, resumed)) = disk.run(&first, &resume(&run, "budget.steps=8")) else { return };
    assert_full(&full, &[&run, "what was saved before is whole"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.err.contains("going on after step "), "{}", resumed.err);
    assert!(!resumed.err.contains("DAMAGED"), "{}", resumed.err);
    let reading = reading(&format!("{}-kept/run", disk.name));
    assert_eq!(reading.summary().version.0, 8);
    audit(&reading, 8);
}

#[test]
fn an_event_that_finds_no_room_ends_the_run_and_leaves_no_half_line() {
    let disk = SmallDisk { name: "disk-for-events", kib: 260 };
    let run = format!("{}/run", disk.name);
    let set = [
        "budget.steps=200",
        "output.checkpoint_every_steps=1000",
        "evaluation.at_start=false",
        "objective.filter=\"none\"",
    ];
    let first = train("scalerl", &run, &with(&set));
    let Some((full, resumed)) = disk.run(&first, &resume(&run, "budget.steps=20")) else { return };
    assert_full(&full, &["cannot append to ", "events.jsonl"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let reading = reading(&format!("{}-kept/run", disk.name));
    assert_eq!(reading.summary().version.0, 20);
    audit(&reading, 8);
}

#[test]
fn supervised_steps_that_find_no_room_say_so_and_go_on() {
    let model = super::warm_model();
    let examples = model.parent().unwrap().parent().unwrap().join("examples.jsonl");
    let text = fs::read_to_string(examples).unwrap();
    let few: Vec<&str> = text.lines().take(200).collect();
    fs::write(folder().join("few.jsonl"), few.join("\n") + "\n").unwrap();
    let disk = SmallDisk { name: "disk-for-sft", kib: 1800 };
    let sft = |is_resumed: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
        command.args(["sft", "--model"]).arg(model).args([
            "--train",
            "few.jsonl",
            "--device",
            "cpu",
        ]);
        command.args([
            "--out",
            &format!("{}/sft", disk.name),
            "--steps",
            "12",
            "--save-every",
            "3",
        ]);
        command.args(["--batch", "4"]).args(is_resumed.then_some("--resume"));
        command
    };
    let Some((full, resumed)) = disk.run(&sft(false), &sft(true)) else { return };
    assert_full(&full, &["disk-for-sft/sft"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.out.contains("going on after step "), "{}", resumed.out);
}

#[test]
fn a_start_that_finds_no_room_says_so() {
    let disk = SmallDisk { name: "disk-for-nothing", kib: 40 };
    let run = format!("{}/run", disk.name);
    let first = train("scalerl", &run, &with(&["budget.steps=1"]));
    let Some((full, again)) = disk.run(&first, &first) else { return };
    assert!(matches!(full.code, Some(1 | 2)), "{full:?}");
    assert!(full.err.contains("disk full") && full.err.contains(&run), "{}", full.err);
    assert!(full.err.contains("hint: ") && !full.err.contains("from a copy"), "{}", full.err);
    let left = fs::read_to_string(folder().join("disk-for-nothing-kept/left")).unwrap();
    assert_eq!(left, "", "something was left");
    assert_eq!(again.code, Some(0), "the same command goes through: {again:?}");
}

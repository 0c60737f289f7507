//! The same processes started by hand and by torchrun, and wrong starts refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use scalerl_journal::{Status, StopReason};

use crate::bench::{audit, reading, said, scalerl, train};
use crate::run::{Alive, ENDLESS, audit_run, resume_and_audit, until_all_have_ended};
use crate::server::{Redis, free_port};

const PARTS: [&str; 2] = ["cluster.trainers=2", "cluster.generators=1"];

fn with_rank(mut command: Command, rank: usize, world: usize, port: u16) -> Command {
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("OMP_NUM_THREADS", "1");
    command
}

#[test]
fn processes_started_by_hand_find_their_parts() {
    let Some(redis) = Redis::start() else { return };
    let (run, port) = ("by-hand", free_port());
    let set = [&PARTS[..], &["budget.steps=4", "evaluation.generations=1"]].concat();
    let start = |rank: usize| {
        let mut command = with_rank(train("scalerl", run, &set), rank, 3, port);
        command.env("SCALERL_REDIS", redis.url()).env("SCALERL_TOKEN", "the same for all of them");
        let name = if rank == 0 { run.to_owned() } else { format!("{run}-{rank}") };
        Alive::start(&name, command)
    };
    let [lead, second, generator] = [0, 1, 2].map(start);
    let lead = lead.end();
    assert_eq!(lead.code, Some(0), "{}", lead.err);
    for (one, expected) in [(second, "rank 1: done"), (generator, "the run is over")] {
        let said = one.end();
        assert!(said.code == Some(0) && said.err.contains(expected), "{said:?}");
    }
    until_all_have_ended(run);
    audit(&reading(run), 8);
}

/// torchrun of $TORCHRUN or of the path; `None`, with a word about it, where there is none.
fn torchrun() -> Option<PathBuf> {
    let named = std::env::var_os("TORCHRUN").filter(|named| !named.is_empty());
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    folders.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/venv/bin"));
    let found = folders.iter().map(|folder| folder.join("torchrun")).find(|path| path.is_file());
    let found = named.map(PathBuf::from).or(found);
    if found.is_none() {
        let is_needed = std::env::var_os("SCALERL_REQUIRE_TORCHRUN").is_some();
        assert!(!is_needed, "there is no torchrun");
        println!("SKIPPED: there is no torchrun (pip install torch brings it); set TORCHRUN");
    }
    found
}

/// `torchrun --no-python scalerl train …` for two trainers and one generator.
fn launch(torchrun: &Path, run: &str, redis: &Redis, set: &[&str]) -> Alive {
    let train = train("scalerl", run, &[&PARTS[..], set].concat());
    let mut command = Command::new(torchrun);
    command.args(["--nnodes", "1", "--nproc-per-node", "3", "--master-addr", "127.0.0.1"]);
    // Behind `--`: torchrun takes options that begin like its own for its own, wherever they stand.
    command.args(["--master-port", &free_port().to_string(), "--no-python", "--"]);
    command.arg(train.get_program()).args(train.get_args());
    command.current_dir(train.get_current_dir().unwrap()).env("OMP_WAIT_POLICY", "passive");
    command.env("SCALERL_REDIS", redis.url());
    Alive::start(run, command)
}

#[test]
fn torchrun_starts_all_parts() {
    let (Some(torchrun), Some(redis)) = (torchrun(), Redis::start()) else { return };
    let run = "by-torchrun";
    let set = ["budget.steps=4", "evaluation.generations=1"];
    let said = launch(&torchrun, run, &redis, &set).end();
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    assert!(said.err.contains("trainer rank 1: done"), "{}", said.err);
    until_all_have_ended(run);
    audit(&reading(run), 8);
}

#[test]
fn a_run_stops_in_order_when_its_launcher_is_killed() {
    let (Some(torchrun), Some(redis)) = (torchrun(), Redis::start()) else { return };
    for (run, how) in [("torchrun-killed", Signal::KILL), ("torchrun-ended", Signal::TERM)] {
        let mut alive = launch(&torchrun, run, &redis, &ENDLESS);
        alive.until_healthy(&["trainer-1", "generator-0"]);
        alive.go_on(4);
        alive.signal(how);
        let code = alive.end().code;
        assert_ne!(code, Some(0), "torchrun says that it was ended");
        until_all_have_ended(run);
        audit_run(run);
        let last = reading(run).summary().status;
        println!("{run}: {last:?}");
        // Where torchrun is asked to end it ends its processes one after the other, and some at once.
        assert!(how == Signal::TERM || last == Status::Stopped { reason: StopReason::Asked });
        resume_and_audit(run, &redis, 4, &[]);
    }
}

#[test]
fn starts_that_cannot_work_are_refused_at_once() {
    let without = said(train("scalerl", "refused", &["cluster.generators=2"]));
    assert!(without.code == Some(2) && without.err.contains("SCALERL_REDIS"), "{without:?}");
    let many = said(with_rank(train("scalerl", "refused", &PARTS), 0, 7, 29500));
    assert!(many.code == Some(2) && many.err.contains("7 processes"), "{many:?}");
    let mut open = with_rank(train("scalerl", "refused", &PARTS), 0, 3, 29500);
    let open = said({
        open.env("MASTER_ADDR", "a-machine-that-others-reach");
        open
    });
    assert!(open.code == Some(2) && open.err.contains("SCALERL_TOKEN"), "{open:?}");
    let generator = || {
        let mut generator = scalerl(&["generator", "--name", "x", "--patience", "0"]);
        generator.env("SCALERL_REDIS", "redis://127.0.0.1:1");
        generator
    };
    let unknown = said(generator());
    assert!(unknown.code == Some(2) && unknown.err.contains("SCALERL_TOKEN"), "{unknown:?}");
    let mut alone = generator();
    alone.env("SCALERL_TOKEN", "0123456789abcdef");
    let alone = said(alone);
    assert!(alone.code == Some(1) && alone.err.contains("Redis"), "{alone:?}");
}

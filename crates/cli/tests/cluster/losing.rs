//! A trainer rank killed or frozen, the first process killed: the run ends within its deadline with
//! a good checkpoint, nothing is left behind, and resuming loses nothing.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use scalerl_journal::What;

use crate::bench::{events, reading};
use crate::ranks::FULL;
use crate::run::{Alive, PATIENCE, pid_of, resume_and_audit, signal, until_all_have_ended};
use crate::server::Redis;

/// The recipe's `cluster.rank_deadline_s`, and what ending takes beside it on a slow machine.
const DEADLINE: Duration = Duration::from_secs(20 + 60);
const ALL: [&str; 2] = ["cluster.trainers=2", "cluster.generators=2"];

fn lose_rank(run: &str, how: Signal, scheme: &[&str]) {
    let Some(redis) = Redis::start() else { return };
    let mut alive = Alive::endless(run, &redis, &[&ALL[..], scheme].concat());
    alive.until_healthy(&["trainer-0", "trainer-1", "generator-0", "generator-1"]);
    alive.go_on(6);
    let rank = pid_of(run, "trainer-1").unwrap();
    let begun = Instant::now();
    signal(rank, how);
    let said = alive.end();
    println!("{run}: ended {:.1} s after the signal", begun.elapsed().as_secs_f64());
    assert!(begun.elapsed() < DEADLINE, "it took {:?}", begun.elapsed());
    assert!(said.code == Some(1) && said.err.contains("a trainer rank is lost"), "{}", said.err);
    until_all_have_ended(run);
    let failed = reading(run);
    let Some(What::Failed { error, .. }) = events(&failed).last() else { panic!("no reason") };
    assert!(error.contains("a trainer rank is lost"), "{error}");
    failed.checkpoints.last().unwrap().verify().unwrap();
    resume_and_audit(run, &redis, 6, &["cluster.trainers=1"]);
}

#[test]
fn a_killed_trainer_rank_ends_the_run_and_resuming_loses_nothing() {
    lose_rank("rank-killed", Signal::KILL, &[]);
}

#[test]
fn a_killed_rank_of_weights_in_parts_ends_the_run_and_resuming_loses_nothing() {
    lose_rank("rank-in-parts-killed", Signal::KILL, &FULL);
}

#[test]
fn a_frozen_rank_of_weights_in_parts_ends_the_run_at_its_deadline() {
    lose_rank("rank-in-parts-frozen", Signal::STOP, &FULL);
}

#[test]
fn a_frozen_trainer_rank_ends_the_run_at_its_deadline() {
    lose_rank("rank-frozen", Signal::STOP, &[]);
}

#[test]
fn all_processes_end_with_the_one_that_started_them() {
    let Some(redis) = Redis::start() else { return };
    let run = "first-killed";
    let mut alive = Alive::endless(run, &redis, &ALL);
    alive.until_healthy(&["trainer-1", "generator-0", "generator-1"]);
    alive.go_on(6);
    let begun = Instant::now();
    alive.signal(Signal::KILL);
    assert_eq!(alive.end().code, None, "killed");
    assert!(begun.elapsed() < PATIENCE);
    until_all_have_ended(run);
    println!("{run}: all had ended after {:.1} s", begun.elapsed().as_secs_f64());
    resume_and_audit(run, &redis, 6, &[]);
}

#[test]
fn an_interrupt_for_the_whole_group_stops_in_order() {
    let Some(redis) = Redis::start() else { return };
    let run = "interrupted";
    let mut alive = Alive::endless(run, &redis, &ALL);
    alive.until_healthy(&["trainer-1", "generator-0", "generator-1"]);
    alive.go_on(3);
    let pids =
        ["trainer-0", "trainer-1", "generator-0", "generator-1"].map(|name| pid_of(run, name));
    // Twice in a row, as from a launcher that is killed with all its threads: that is one request.
    for _ in 0..2 {
        for pid in pids {
            signal(pid.unwrap(), Signal::INT);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = alive.end();
    assert_eq!(said.code, Some(0), "{}", said.err);
    crate::run::audit_run(run);
    until_all_have_ended(run);
}

//! Generators killed and frozen, Redis restarted, a trainer rank killed: nothing is lost, nothing is
//! trained on twice, and the journal says what happened.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use scalerl_journal::{FleetState, What};

use crate::bench::{
    assert_none_skipped, audit, events, reading, resume, succeed, train, wait_until,
};
use crate::server::{Alive, Redis, pid_of, ranks_of, signal, states, steps};

/// Prompts of the small task that are trained on.
const PROMPTS: u64 = 1200;

/// Small steps for as long as the test needs, and short deadlines.
fn endless(run: &str, redis: &Redis, set: &[&str]) -> Alive {
    let address = format!("cluster.redis=\"{}\"", redis.url());
    let common = [
        "pipeline.groups_per_step=4",
        "pipeline.group_size=4",
        "task.held_out=16",
        "evaluation.every_steps=20",
        "output.checkpoint_every_steps=2",
        "objective.curriculum=\"none\"",
        "objective.off_policy.steps_behind=3",
        "budget.axis=\"steps\"",
        "budget.steps=100000",
        "cluster.generators=2",
        "cluster.heartbeat_s=0.2",
        "cluster.suspect_s=1.0",
        "cluster.dead_s=3.0",
        "cluster.rank_deadline_s=20",
        address.as_str(),
    ];
    Alive(Some(train("scalerl", run, &[&common[..], set].concat()).spawn().unwrap()))
}

/// Asks a run to stop, which it does in order; everything is then accounted for.
fn stop_and_audit(run: &str, child: Alive) {
    signal(child.id(), Signal::TERM);
    let said = child.end();
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    let reading = reading(run);
    let places = audit(&reading, 3);
    assert_none_skipped(&places, PROMPTS);
    let largest = reading.summary().largest_lag;
    println!("{run}: {} steps, {} groups, lag {largest}", steps(run), reading.summary().groups);
}

fn go_on(run: &str, child: &mut Alive, more: u64) {
    let enough = steps(run) + more;
    wait_until(child.child(), "further steps", || steps(run) >= enough);
}

#[test]
fn a_generator_that_is_killed_is_started_again() {
    let Some(redis) = Redis::start() else { return };
    let mut child = endless("generator-killed", &redis, &[]);
    let run = "generator-killed";
    go_on(run, &mut child, 5);
    for _ in 0..2 {
        let before = pid_of(run, "generator-0").unwrap();
        signal(before, Signal::KILL);
        go_on(run, &mut child, 5);
        wait_until(child.child(), "a new process", || {
            pid_of(run, "generator-0").is_some_and(|pid| pid != before)
                && states(run, "generator-0").last() == Some(&FleetState::Healthy)
        });
    }
    let seen = states(run, "generator-0");
    assert!(seen.contains(&FleetState::Dead) && seen.contains(&FleetState::Restarting), "{seen:?}");
    stop_and_audit(run, child);
}

#[test]
fn a_generator_that_is_frozen_is_given_up_and_comes_back() {
    let Some(redis) = Redis::start() else { return };
    let run = "generator-frozen";
    let mut child = endless(run, &redis, &[]);
    go_on(run, &mut child, 5);
    let pid = pid_of(run, "generator-1").unwrap();
    signal(pid, Signal::STOP);
    wait_until(child.child(), "the frozen one to be given up", || {
        states(run, "generator-1").contains(&FleetState::Dead)
    });
    go_on(run, &mut child, 10);
    signal(pid, Signal::CONT);
    wait_until(child.child(), "the frozen one to come back", || {
        states(run, "generator-1").last() == Some(&FleetState::Healthy)
    });
    go_on(run, &mut child, 5);
    stop_and_audit(run, child);
}

#[test]
fn redis_may_forget_everything() {
    let Some(mut redis) = Redis::start() else { return };
    let run = "redis-restarted";
    let mut child = endless(run, &redis, &[]);
    go_on(run, &mut child, 5);
    for pause in [Duration::ZERO, Duration::from_secs(3)] {
        redis.restart_after(pause);
        go_on(run, &mut child, 10);
    }
    wait_until(child.child(), "Redis in the journal", || {
        states(run, "redis").contains(&FleetState::Suspect)
            && states(run, "redis").last() == Some(&FleetState::Healthy)
    });
    stop_and_audit(run, child);
}

#[test]
fn a_lost_trainer_rank_ends_the_run_and_resuming_loses_nothing() {
    let Some(redis) = Redis::start() else { return };
    let run = "rank-lost";
    let mut child = endless(run, &redis, &["cluster.trainers=2"]);
    go_on(run, &mut child, 6);
    let ranks = ranks_of(child.id());
    assert_eq!(ranks.len(), 1, "one rank beside the first");
    let killed = Instant::now();
    signal(ranks[0], Signal::KILL);
    let said = child.end();
    println!("ended {:.1} s after the kill", killed.elapsed().as_secs_f64());
    assert!(killed.elapsed() < Duration::from_secs(60), "it took {:?}", killed.elapsed());
    assert!(said.code == Some(1) && said.err.contains("a trainer rank is lost"), "{}", said.err);
    let failed = reading(run);
    let is_failure = |what: &What| matches!(what, What::Failed { .. });
    assert!(events(&failed).last().is_some_and(is_failure), "the journal says so");
    let good = failed.checkpoints.last().unwrap();
    good.verify().unwrap();

    let steps = good.version.0 + 6;
    let budget = format!("budget.steps={steps}");
    succeed(resume(run, &[budget.as_str(), "cluster.trainers=1"]));
    let reading = reading(run);
    assert_eq!(reading.summary().version.0, steps);
    let places = audit(&reading, 3);
    assert_none_skipped(&places, PROMPTS);
}

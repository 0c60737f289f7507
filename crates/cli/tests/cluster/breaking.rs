//! Generators killed and frozen, Redis restarted: training goes on, nothing is lost, nothing is
//! trained on twice, and the journal says what happened.

use rustix::process::Signal;
use scalerl_journal::FleetState::{Dead, Healthy, Restarting, Suspect};

use crate::bench::{scalerl, succeed};
use crate::run::{Alive, changes, pid_of, signal, states, until_all_have_ended};
use crate::server::{Kind, Redis};

const BOTH: [&str; 2] = ["generator-0", "generator-1"];
const TWO: [&str; 1] = ["cluster.generators=2"];

#[test]
fn a_generator_that_is_killed_is_started_again() {
    let Some(redis) = Redis::start() else { return };
    let run = "generator-killed";
    let mut alive = Alive::endless(run, &redis, &TWO);
    alive.until_healthy(&BOTH);
    for _ in 0..2 {
        let before = pid_of(run, "generator-0").unwrap();
        signal(before, Signal::KILL);
        alive
            .until("a new process", || pid_of(run, "generator-0").is_some_and(|pid| pid != before));
        alive.until_healthy(&BOTH);
        alive.go_on(5);
    }
    let seen = states(run, "generator-0");
    // Not healthy before there is another process, whatever the dead one had said last.
    let after_death: Vec<_> = seen.windows(2).filter(|two| two[0] == Dead).collect();
    assert!(after_death.iter().all(|two| two[1] == Restarting), "{seen:?}");
    assert_eq!(after_death.len(), 2, "{seen:?}");
    let death = changes(run, "generator-0").into_iter().find(|change| change.to == Dead).unwrap();
    assert!(death.reason.contains("signal 9"), "{death:?}");
    alive.stop_and_audit();
    until_all_have_ended(run);
}

#[test]
fn a_generator_that_is_frozen_is_given_up_and_comes_back() {
    let Some(redis) = Redis::start() else { return };
    let run = "generator-frozen";
    let mut alive = Alive::endless(run, &redis, &TWO);
    alive.until_healthy(&BOTH);
    let pid = pid_of(run, "generator-1").unwrap();
    signal(pid, Signal::STOP);
    alive.until("the frozen one to be given up", || states(run, "generator-1").contains(&Dead));
    let death = changes(run, "generator-1").into_iter().find(|change| change.to == Dead).unwrap();
    assert!(death.reason.contains("silent for"), "{death:?}");
    alive.go_on(10);
    let status = succeed(scalerl(&["status", run])).out;
    let line = status.lines().find(|line| line.contains("generator-1")).unwrap();
    assert!(line.contains("dead"), "{status}");
    signal(pid, Signal::CONT);
    alive.until("the frozen one to come back", || {
        states(run, "generator-1").last() == Some(&Healthy)
    });
    assert_eq!(pid_of(run, "generator-1"), Some(pid), "it is the same process");
    alive.go_on(5);
    alive.stop_and_audit();
    until_all_have_ended(run);
}

fn restart_redis(run: &str, kind: Kind) {
    let Some(mut redis) = Redis::of(kind) else { return };
    let mut alive = Alive::endless(run, &redis, &TWO);
    alive.until_healthy(&BOTH);
    alive.go_on(5);
    // Back at once, then away until the run has noticed.
    redis.kill();
    redis.start_again();
    alive.go_on(10);
    redis.kill();
    let is_away = || states(run, "redis").last() == Some(&Suspect);
    alive.until("Redis' absence in the journal", is_away);
    redis.start_again();
    alive.until("its return in the journal", || states(run, "redis").last() == Some(&Healthy));
    alive.go_on(10);
    alive.until_healthy(&BOTH);
    let seen = changes(run, "redis");
    assert!(seen.iter().all(|change| !change.reason.is_empty()), "{seen:?}");
    alive.stop_and_audit();
    until_all_have_ended(run);
}

#[test]
fn redis_may_forget_everything() {
    restart_redis("redis-forgets", Kind::default());
}

#[test]
fn redis_may_come_back_with_all_it_had() {
    restart_redis("redis-remembers", Kind { is_durable: true, ..Kind::default() });
}

//! Ranks killed and frozen, in both schemes: an error in time for everybody.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use scalerl_rollout::{TrainBatch, Trainer as _, TrainerError};
use scalerl_worker::WeightStore;
use scalerl_worker::ranks::{Deadlines, RankedTrainer, Team, follow};
use tch::Device;

use crate::crew::{
    Crew, PATIENT, batches, deadlines, free_port, launch, spawn, untrained, variant,
};

/// The optimizer's memory in parts, everything, and experts that stay with their owners.
const SCHEMES: [&str; 3] = ["cispo", "full cispo", "full owned experts"];

/// Steps until one fails; how long that one took, and what it said.
fn failing_step(trainer: &mut RankedTrainer, batch: &TrainBatch) -> (Duration, TrainerError) {
    for _ in 0..1000 {
        let started = Instant::now();
        if let Err(error) = trainer.step(batch) {
            return (started.elapsed(), error);
        }
    }
    panic!("a thousand steps without the rank that is gone");
}

#[test]
fn a_killed_rank_ends_the_step_with_an_error_within_the_deadline() {
    let operation = Duration::from_secs(10);
    for scheme in SCHEMES {
        kill_in_a_step(scheme, operation);
    }
}

fn kill_in_a_step(scheme: &str, operation: Duration) {
    let batch = batches("cispo", 1).remove(0);
    // Four experts are two ranks' or four's.
    let size = if scheme.contains("owned") { 4 } else { 3 };
    let mut crew = Crew::start(scheme, size, operation);
    crew.trainer().step(&batch).unwrap();
    // In the middle of steps, wherever that finds them.
    let victim = Pid::from_child(&crew.others[1]);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        kill_process(victim, Signal::KILL).unwrap();
    });
    let (took, error) = failing_step(crew.trainer(), &batch);
    killer.join().unwrap();
    println!("after {took:?}: {error}");
    assert!(took < operation, "{took:?}");
    assert!(matches!(error, TrainerError::RankLost { .. }), "{error}");
    let said = crew.trainer().step(&batch).unwrap_err().to_string();
    assert!(said.contains("a trainer rank is lost: earlier"), "{said}");
    // The other rank that is left must not stay behind.
    drop(crew.trainer.take());
    let started = Instant::now();
    assert!(!crew.others[0].wait().unwrap().success(), "it says that something was wrong");
    assert!(started.elapsed() < 2 * operation, "{:?}", started.elapsed());
}

#[test]
fn a_frozen_rank_ends_the_step_at_the_deadline() {
    let operation = Duration::from_secs(2);
    let batch = batches("cispo", 1).remove(0);
    for scheme in SCHEMES {
        let mut crew = Crew::start(scheme, 2, operation);
        crew.trainer().step(&batch).unwrap();
        crew.signal(1, Signal::STOP);
        let (took, error) = failing_step(crew.trainer(), &batch);
        println!("{scheme}: after {took:?}: {error}");
        assert!(took < 4 * operation, "{took:?}");
        assert!(error.to_string().contains("not done within 2.0 s"), "{error}");
    }
}

/// Frozen in the middle of a pass: the operation that is under way ends at its deadline.
#[test]
fn a_rank_frozen_in_the_middle_of_a_pass_ends_the_step_at_the_deadline() {
    let operation = Duration::from_secs(2);
    let batch = batches("cispo", 1).remove(0);
    for (scheme, size) in [("full cispo", 3), ("full owned experts", 4)] {
        let mut crew = Crew::start(scheme, size, operation);
        crew.trainer().step(&batch).unwrap();
        let victim = Pid::from_child(&crew.others[0]);
        let freezer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            kill_process(victim, Signal::STOP).unwrap();
        });
        let (took, error) = failing_step(crew.trainer(), &batch);
        freezer.join().unwrap();
        println!("{scheme}: after {took:?}: {error}");
        assert!(took < 4 * operation, "{took:?}");
        assert!(matches!(error, TrainerError::RankLost { .. }), "{error}");
    }
}

#[test]
fn a_rank_that_dies_between_steps_is_noticed_before_the_next() {
    let mut crew = Crew::start("cispo", 2, PATIENT);
    assert_eq!(crew.trainer().lost(), None);
    crew.signal(1, Signal::KILL);
    let started = Instant::now();
    while crew.trainer().lost().is_none() {
        assert!(started.elapsed() < Duration::from_secs(10), "nobody noticed");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("noticed after {:?}: {}", started.elapsed(), crew.trainer().lost().unwrap());
}

#[test]
fn the_other_ranks_end_when_rank_0_is_killed_or_frozen() {
    for (signal, scheme) in
        [Signal::KILL, Signal::STOP].into_iter().flat_map(|how| SCHEMES.map(|scheme| (how, scheme)))
    {
        let (port, operation) = (free_port(), Duration::from_secs(2));
        let leader = spawn(scheme, 0, 2, port, operation);
        let crew = Crew { trainer: None, others: vec![leader], weight_store: WeightStore::new() };
        let patience = Deadlines { silence: Duration::from_secs(3), ..deadlines(operation) };
        let team = Team::join(&launch(1, 2, port), Device::Cpu, patience).unwrap();
        let followed =
            std::thread::spawn(move || follow(&variant(scheme), untrained(scheme, 5), team));
        std::thread::sleep(Duration::from_millis(300));
        crew.signal(1, signal);
        let started = Instant::now();
        let error = followed.join().unwrap().unwrap_err();
        println!("after {:?}: {error}", started.elapsed());
        assert!(started.elapsed() < 3 * patience.silence, "{:?}", started.elapsed());
    }
}

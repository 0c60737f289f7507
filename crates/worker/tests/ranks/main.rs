//! Trainer ranks as real processes over Gloo: the numbers of one, checkpoints for any number, and
//! what happens when one of them is killed or frozen.
//!
//! The test is rank 0; the others are this very binary, asked for its one ignored test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "tests say by how much they hold")]

#[path = "../batches/mod.rs"]
mod batches;
mod checkpoints;
mod crew;
mod full;
mod losing;
mod numbers;
mod owned;
mod writing;

use std::time::Duration;

use batches::{batch, trained_as};
use crew::{deadlines, untrained, variant, with_room, writing_slowly, writing_without_memory};
use scalerl_rollout::Trainer as _;
use scalerl_worker::WeightStore;
use scalerl_worker::ranks::{Launch, RankedTrainer, Team, follow};
use tch::Device;

#[test]
#[ignore = "the other tests of this file start it as a process of its own"]
fn a_rank_that_another_test_has_started() {
    let launch = Launch::from_environment().unwrap().expect("started by another test");
    let operation = std::env::var("SCALERL_TEST_OPERATION_MS").unwrap().parse().unwrap();
    let recipe = variant(&std::env::var("SCALERL_TEST_VARIANT").unwrap());
    let mut team =
        Team::join(&launch, Device::Cpu, deadlines(Duration::from_millis(operation))).unwrap();
    if let Ok(each) = std::env::var("SCALERL_TEST_WRITE_MS") {
        let each = Duration::from_millis(each.parse().unwrap());
        team = match std::env::var("SCALERL_TEST_NO_MEMORY") {
            Ok(_) => writing_without_memory(team, each),
            Err(_) => writing_slowly(team, each),
        };
    }
    if let Ok(bytes) = std::env::var("SCALERL_TEST_ROOM") {
        team = with_room(team, bytes.parse().unwrap());
    }
    if launch.rank == 0 {
        let start = untrained(&std::env::var("SCALERL_TEST_VARIANT").unwrap(), 1);
        let mut trainer = RankedTrainer::lead(&recipe, start, team, WeightStore::new()).unwrap();
        let batch = batch(&recipe, 2);
        loop {
            trainer.step(&batch).unwrap();
        }
    }
    // Another model than rank 0's: its weights must be the ones that count.
    let name = std::env::var("SCALERL_TEST_VARIANT").unwrap();
    let model = trained_as(&recipe, untrained(&name, 100 + launch.rank as i64));
    follow(&recipe, model, team).unwrap();
}

//! Two trainer ranks and two generators learn what one process learns.

use scalerl_journal::{FleetState, What};

use crate::bench::{audit, events, reading, scalerl, succeed, train};
use crate::run::{Alive, states, until_all_have_ended};
use crate::server::Redis;

/// Standard errors of a difference that chance does not make.
const SURE: f64 = 4.0;

#[test]
fn two_trainers_and_two_generators_learn() {
    let Some(redis) = Redis::start() else { return };
    let run = "several";
    // Two generators are so much quicker here that everything would be eight steps old.
    let set = [
        "cluster.trainers=2",
        "cluster.generators=2",
        "objective.off_policy.steps_behind=2",
        "budget.steps=150",
    ];
    let mut command = train("scalerl", run, &set);
    command.env("SCALERL_REDIS", redis.url());
    let said = Alive::start(run, command).end();
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    until_all_have_ended(run);
    let reading = reading(run);
    audit(&reading, 2);
    let rates: Vec<f64> = reading.points().iter().map(|point| point.pass_rate).collect();
    let last = &rates[rates.len() - rates.len() / 3..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    // The same 192 prompts with 4 completions each at every evaluation: what is left is sampling.
    let variance = |rate: f64, samples: f64| rate * (1.0 - rate) / samples;
    let error = (variance(rates[0], 768.0) + variance(mean, 768.0 * last.len() as f64)).sqrt();
    let errors = (mean - rates[0]) / error;
    println!("2 trainers, 2 generators: {:.3} to {mean:.3}, {errors:.1} standard errors", rates[0]);
    assert!(errors > SURE, "{rates:?}");
    for name in ["generator-0", "generator-1"] {
        assert!(states(run, name).contains(&FleetState::Healthy), "{name}");
    }
    assert!(reading.checkpoints.last().unwrap().verify().is_ok());
    let What::Started { devices, .. } = events(&reading).next().unwrap() else { panic!() };
    assert!((devices - 4.0).abs() < 1e-9, "four processes are paid for");
    let status = succeed(scalerl(&["status", run])).out;
    println!("{status}");
    let names = ["trainer-0", "trainer-1", "generator-0", "generator-1"];
    for word in names.iter().chain(&["role", "host", "version", "lag", "tokens/s", "heard"]) {
        assert!(status.contains(word), "{status}");
    }
}

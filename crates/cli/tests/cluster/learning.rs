//! Two trainer ranks and two generators learn what one process learns.

use scalerl_journal::{FleetState, What};

use crate::bench::{audit, events, finish, scalerl, succeed, train};
use crate::server::{Redis, states};

#[test]
fn two_trainers_and_two_generators_learn() {
    let Some(redis) = Redis::start() else { return };
    let address = format!("cluster.redis=\"{}\"", redis.url());
    let set = ["cluster.trainers=2", "cluster.generators=2", address.as_str()];
    let reading = finish("several", train("scalerl", "several", &set));
    audit(&reading, 8);
    let rates: Vec<f64> = reading.points().iter().map(|point| point.pass_rate).collect();
    let last = &rates[rates.len() - rates.len() / 3..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    println!("two trainers, two generators: {:.3} to {mean:.3}", rates[0]);
    // Three standard errors of 192 prompts with 4 completions each, and of several times as many.
    let variance = |rate: f64, samples: f64| rate * (1.0 - rate) / samples;
    let error = (variance(rates[0], 768.0) + variance(mean, 768.0 * last.len() as f64)).sqrt();
    assert!(mean > rates[0] + 3.0 * error, "{rates:?}");
    for name in ["generator-0", "generator-1"] {
        assert!(states("several", name).contains(&FleetState::Healthy), "{name}");
    }
    let checkpoint = reading.checkpoints.last().unwrap();
    assert!(checkpoint.verify().is_ok());
    let What::Started { devices, .. } = events(&reading).next().unwrap() else { panic!() };
    assert!((devices - 4.0).abs() < 1e-9, "four processes are paid for");
    let status = succeed(scalerl(&["status", "several"])).out;
    for word in ["trainer-0", "generator-0", "generator-1", "tokens/s"] {
        assert!(status.contains(word), "{status}");
    }
}

#[test]
fn trainer_ranks_need_no_server() {
    let set = ["cluster.trainers=2", "budget.steps=3", "evaluation.generations=1"];
    let reading = finish("ranks", train("scalerl", "ranks", &set));
    audit(&reading, 8);
}

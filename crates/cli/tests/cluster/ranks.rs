//! Trainer ranks without Redis: the losses of one, two and three in both schemes, and a run that goes on
//! with another number of them and in another scheme.

use scalerl_journal::{Reading, What};

use crate::bench::{audit, events, finish, reading, resume, scalerl, succeed, train};

/// Sums of 32-bit numbers in another order. Later steps may draw other tokens.
const ROUNDING: f64 = 1e-4;

/// Weights and gradients in parts too.
pub(crate) const FULL: [&str; 2] =
    ["cluster.sharding=\"full\"", "model.activation_checkpointing=true"];

fn numbers(reading: &Reading) -> Vec<(f64, f64)> {
    let step = |what: &What| match what {
        What::Step { report, .. } => Some((report.loss, report.gradient_norm)),
        _ => None,
    };
    events(reading).filter_map(step).collect()
}

#[test]
fn one_two_and_three_ranks_have_the_same_losses() {
    let small = [
        "pipeline.groups_per_step=8",
        "task.held_out=16",
        "evaluation.generations=1",
        "objective.off_policy.steps_behind=0",
        "budget.steps=2",
    ];
    let of = |ranks: u32, scheme: &[&str]| {
        let run = format!("losses-{ranks}-{}", scheme.len());
        let trainers = format!("cluster.trainers={ranks}");
        let set = [&small[..], &[trainers.as_str()], scheme].concat();
        let reading = finish(&run, train("scalerl", &run, &set));
        audit(&reading, 0);
        numbers(&reading)
    };
    let one = of(1, &[]);
    for (ranks, scheme) in [(2, &[][..]), (3, &[]), (2, &FULL), (3, &FULL)] {
        let several = of(ranks, scheme);
        println!("{ranks} ranks, {scheme:?}: {several:?}, one: {one:?}");
        // The second step's tokens come from weights that differ in the last bits.
        let (loss, norm) = (several[0].0 - one[0].0, several[0].1 - one[0].1);
        assert!(loss.abs() <= ROUNDING * one[0].0.abs().max(1e-3), "{several:?} {one:?}");
        assert!(norm.abs() <= ROUNDING * one[0].1, "{several:?} {one:?}");
    }
}

/// A mixture's experts gathered by all ranks, and owned by two and by four of them: the same losses, and
/// the run goes on with another number of owners, and with ranks that gather.
#[test]
fn ranks_that_own_experts_have_the_losses_of_one_process() {
    let small = [
        "model.weights={type=\"new\",layers=2,width=64,heads=4,kv_heads=4,feed_forward=64,experts=4,\
         active_experts=2}",
        "warm_up.steps=50",
        "pipeline.groups_per_step=8",
        "task.held_out=16",
        "evaluation.generations=1",
        "objective.off_policy.steps_behind=0",
        "objective.filter=\"none\"",
        "objective.curriculum=\"none\"",
    ];
    let owned = [&FULL[..], &["cluster.experts=\"owned\""]].concat();
    let of = |ranks: u32, scheme: &[&str]| {
        let run = format!("owners-{ranks}-{}", scheme.len());
        let trainers = format!("cluster.trainers={ranks}");
        let set = [&small[..], &[trainers.as_str(), "budget.steps=2"], scheme].concat();
        let reading = finish(&run, train("scalerl", &run, &set));
        audit(&reading, 0);
        numbers(&reading)
    };
    let one = of(1, &[]);
    for (ranks, scheme) in [(2, &owned), (4, &owned)] {
        let several = of(ranks, scheme);
        println!("{ranks} ranks, {scheme:?}: {several:?}, one: {one:?}");
        let (loss, norm) = (several[0].0 - one[0].0, several[0].1 - one[0].1);
        assert!(loss.abs() <= ROUNDING * one[0].0.abs().max(1e-3), "{several:?} {one:?}");
        assert!(norm.abs() <= ROUNDING * one[0].1, "{several:?} {one:?}");
    }
    let run = "owners-4-3";
    let gathered = ["cluster.trainers=3", "cluster.experts=\"gathered\"", "budget.steps=3"];
    succeed(resume(run, &gathered));
    let two = ["cluster.trainers=2", "cluster.experts=\"owned\"", "budget.steps=4"];
    succeed(resume(run, &two));
    assert_eq!(reading(run).summary().version.0, 4);
    audit(&reading(run), 0);
}

#[test]
fn a_run_of_three_ranks_goes_on_with_two_with_one_and_with_three() {
    let run = "ranks-change";
    let small = [
        "pipeline.groups_per_step=4",
        "pipeline.group_size=4",
        "task.held_out=16",
        "evaluation.generations=1",
        "objective.curriculum=\"none\"",
        "cluster.trainers=3",
        "budget.steps=2",
    ];
    finish(run, train("scalerl", run, &[&small[..], &FULL].concat()));
    let status = succeed(scalerl(&["status", run])).out;
    for name in ["trainer-0", "trainer-1", "trainer-2"] {
        assert!(status.contains(name), "{status}");
    }
    let optimizer = ["cluster.sharding=\"optimizer\""];
    for (ranks, steps, scheme) in [(2, 4, &optimizer[..]), (1, 6, &[]), (3, 8, &FULL), (2, 10, &[])]
    {
        let (trainers, budget) =
            (format!("cluster.trainers={ranks}"), format!("budget.steps={steps}"));
        succeed(resume(run, &[&[trainers.as_str(), &budget][..], scheme].concat()));
        assert_eq!(reading(run).summary().version.0, steps);
    }
    let reading = reading(run);
    let places = audit(&reading, 8);
    crate::bench::assert_none_skipped(&places, crate::run::PROMPTS);
    let resumed = events(&reading).filter(|what| matches!(what, What::Resumed { .. })).count();
    assert_eq!(resumed, 4);
}

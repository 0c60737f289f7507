//! Without lag nothing depends on time: generator and trainer agree on every token, and looking
//! at a run does not change it.

use scalerl_journal::What;

use crate::bench::{audit, events, finish, train};

/// Mean |log ratio| of two float32 passes over the same weights.
const SAME_WEIGHTS: f64 = 1e-5;

const LOCKSTEP: &str = "objective.off_policy.steps_behind=0";

/// Groups and steps without times and ledger: what training saw and did.
fn training(reading: &scalerl_journal::Reading) -> Vec<String> {
    let lines = events(reading).filter_map(What::without_times).filter_map(|what| match what {
        What::Group(report) => Some(serde_json::to_string(&report).unwrap()),
        What::Step { lag, batch, report, ledger } => {
            let spent = (ledger.tokens_generated, ledger.tokens_trained, ledger.flops);
            Some(serde_json::to_string(&(lag, batch, report, spent)).unwrap())
        }
        _ => None,
    });
    lines.collect()
}

#[test]
fn log_probs_agree_and_evaluations_change_nothing() {
    let run = |name: &str, every: &str| {
        let set = [LOCKSTEP, "budget.steps=12", every, "objective.curriculum.threshold=0.5"];
        finish(name, train("scalerl", name, &set))
    };
    let often = run("often", "evaluation.every_steps=2");
    let seldom = run("seldom", "evaluation.every_steps=5");
    let mut steps = 0;
    for what in events(&often) {
        if let What::Step { lag, report, .. } = what {
            let ratio = &report.ratio;
            assert_eq!(*lag, 0);
            assert!(ratio.mean_abs_log <= SAME_WEIGHTS, "{ratio:?}");
            assert!(ratio.mean_abs_log > 0.0, "two passes never round alike everywhere: {ratio:?}");
            steps += 1;
        }
    }
    assert_eq!(steps, 12);
    audit(&often, 0);
    let looks = |reading| events(reading).filter(|w| matches!(w, What::Evaluation { .. })).count();
    assert_eq!((looks(&often), looks(&seldom)), (7, 4));
    assert_eq!(training(&often), training(&seldom));
}

#[test]
fn with_lag_the_difference_is_seen() {
    let set = ["budget.steps=12", "objective.off_policy.steps_behind=4"];
    let reading = finish("lagging", train("scalerl", "lagging", &set));
    let apart = events(&reading).filter_map(|what| match what {
        What::Step { lag, report, .. } if *lag > 0 => Some(report.ratio.mean_abs_log),
        _ => None,
    });
    assert!(apart.fold(0.0, f64::max) > 100.0 * SAME_WEIGHTS);
}

/// bf16, so that the weights that are computed with are others than those that are trained.
#[test]
fn one_set_of_weights_changes_no_token_and_no_number() {
    for (scheme, off_policy) in [
        ("lockstep", "objective.off_policy={ type = \"pipeline\", steps_behind = 0 }"),
        ("phases", "objective.off_policy={ type = \"ppo-off-policy\", steps_per_phase = 2 }"),
    ] {
        let run = |weights: &str| {
            let name = format!("{scheme}-{weights}");
            let weights = format!("pipeline.weights={weights}");
            let set = [
                off_policy,
                "budget.steps=6",
                "model.compute=bf16",
                "evaluation.every_steps=4",
                &weights,
            ];
            finish(&name, train("scalerl", &name, &set))
        };
        let (copied, shared) = (run("copied"), run("shared"));
        assert_eq!(training(&copied), training(&shared), "{scheme}");
        audit(&shared, u64::from(scheme == "phases"));
    }
}

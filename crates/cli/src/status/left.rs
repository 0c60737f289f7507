//! What is left of a run: until the first of its budgets is met, at the speed it has had so far.

use scalerl_journal::Summary;
use scalerl_recipe::Budget;
use serde::Serialize;

/// Until the run ends.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Left {
    pub(super) seconds: f64,
    pub(super) device_hours: f64,
    /// The budget that ends it.
    pub(super) key: &'static str,
}

impl Left {
    /// `None` where nothing is known yet, or no budget ends the run.
    pub(super) fn of(budget: &Budget, summary: &Summary) -> Option<Self> {
        let spent = &summary.ledger;
        let (wall, hours) = (spent.wall_s, spent.device_hours());
        // How many times what was done is left to do.
        let times = |limit: f64, done: f64| (done > 0.0).then(|| (limit / done - 1.0).max(0.0));
        let ends = [
            ("budget.steps", budget.steps.and_then(|n| times(n as f64, summary.version.0 as f64))),
            ("budget.device_hours", budget.device_hours.and_then(|limit| times(limit, hours))),
            ("budget.wall_hours", budget.wall_hours.and_then(|limit| times(limit * 3600.0, wall))),
            (
                "budget.tokens",
                budget.tokens.and_then(|n| times(n as f64, spent.tokens_generated as f64)),
            ),
        ];
        let known = ends.into_iter().filter_map(|(key, times)| Some((key, times?)));
        let (key, times) = known.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Self { seconds: times * wall, device_hours: times * hours, key })
    }
}

/// Seconds for a reader.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scalerl_journal::{Ledger, Status};
    use scalerl_rollout::PolicyVersion;

    fn summary(steps: u64, wall_s: f64, tokens_generated: u64) -> Summary {
        let mut ledger = Ledger { wall_s, tokens_generated, ..Ledger::default() };
        ledger.device_seconds.train = wall_s;
        Summary {
            run: "r".into(),
            status: Status::Open,
            version: PolicyVersion(steps),
            ledger,
            lost: Ledger::default(),
            groups: 0,
            verifier_failures: 0,
            failures: scalerl_journal::FailureKinds::default(),
            environment_restarts: 0,
            set_aside: 0,
            largest_lag: 0,
            pass_rate: None,
        }
    }

    #[test]
    fn the_budget_that_is_met_first_says_when() {
        let budget = Budget { steps: Some(100), wall_hours: Some(1.0), ..Budget::default() };
        let left = Left::of(&budget, &summary(50, 600.0, 0)).unwrap();
        assert_eq!((left.seconds, left.key), (600.0, "budget.steps"));
        let left = Left::of(&budget, &summary(10, 1800.0, 0)).unwrap();
        assert_eq!((left.seconds, left.key), (1800.0, "budget.wall_hours"));
        assert!((left.device_hours - 0.5).abs() < 1e-12, "{left:?}");
    }

    #[test]
    fn before_the_first_step_nothing_is_known() {
        let budget = Budget { steps: Some(100), ..Budget::default() };
        assert_eq!(Left::of(&budget, &summary(0, 10.0, 0)), None);
        assert_eq!(Left::of(&Budget::default(), &summary(10, 10.0, 0)), None);
    }

    proptest! {
        #[test]
        fn what_was_done_and_what_is_left_are_the_budget(done in 1_u64..1000, more in 0_u64..1000) {
            let budget = Budget { steps: Some(done + more), ..Budget::default() };
            let left = Left::of(&budget, &summary(done, 60.0, 0)).unwrap();
            let whole = 60.0 * (done + more) as f64 / done as f64;
            prop_assert!((left.seconds + 60.0 - whole).abs() < 1e-6 * whole);
        }
    }
}

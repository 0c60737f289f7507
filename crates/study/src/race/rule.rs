//! The rule: pause while the expected loss stays small; of the kept, those furthest behind run on.

use super::outlook::{Outlook, best};

/// What the rule may lose, in pass rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Variants are paused while the expected loss of doing without them stays within this.
    pub pause: f64,
    /// Paused ones come back while the expected loss of doing without all of them is above this.
    pub back: f64,
}

/// Where a variant stands when the rule is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It goes on so far.
    Open,
    /// It was paused before.
    Paused,
    /// It has come to its end: there is nothing left to save.
    Ended,
}

/// What the rule says of a set of outlooks.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Which variants go on; one at least.
    pub kept: Vec<bool>,
    /// E[best of all − best of the kept].
    pub loss: f64,
    /// What each variant is expected to add to the best of the (other) kept ones.
    pub adds: Vec<f64>,
}

/// Pauses, one after another, the open variant whose absence costs least; then brings back, one
/// after another, the paused variant that helps most. One must not be paused yet.
pub fn choose(outlooks: &[Outlook], stages: &[Stage], limits: Limits) -> Choice {
    let best_of = |which: &[bool]| {
        best(&outlooks.iter().zip(which).filter(|(_, is_in)| **is_in).map(|(one, _)| one))
    };
    let mut kept: Vec<bool> = stages.iter().map(|stage| *stage != Stage::Paused).collect();
    let top = best_of(&kept);
    while kept.iter().filter(|kept| **kept).count() > 1 {
        let pausable = |index: usize| kept[index] && stages[index] == Stage::Open;
        let Some((index, rest)) = best_change(&kept, pausable, &best_of) else { break };
        if top - rest > limits.pause {
            break;
        }
        kept[index] = false;
    }
    let top = best(&outlooks.iter());
    while top - best_of(&kept) > limits.back {
        let Some((index, _)) = best_change(&kept, |index| !kept[index], &best_of) else { break };
        kept[index] = true;
    }
    let adds = |index: usize| {
        let with_and_without = [true, false].map(|is_in| {
            let mut changed = kept.clone();
            changed[index] = is_in;
            best_of(&changed)
        });
        (with_and_without[0] - with_and_without[1]).max(0.0)
    };
    let adds = (0..outlooks.len()).map(adds).collect();
    Choice { loss: (top - best_of(&kept)).max(0.0), adds, kept }
}

/// The variant whose change leaves the best end highest, of those that may; the last of several that
/// do the same: a study names its base first.
fn best_change(
    kept: &[bool],
    may: impl Fn(usize) -> bool,
    best_of: &impl Fn(&[bool]) -> f64,
) -> Option<(usize, f64)> {
    let mut found: Option<(usize, f64)> = None;
    for index in (0..kept.len()).filter(|index| may(*index)) {
        let mut changed = kept.to_vec();
        changed[index] = !kept[index];
        let best = best_of(&changed);
        if found.is_none_or(|(_, highest)| best >= highest) {
            found = Some((index, best));
        }
    }
    found
}

/// Of the kept variants those that have come least far run to their next rung; none when the kept
/// have all reached the last of `rungs`. `reached` counts the rungs behind each.
pub fn next_to_run(kept: &[bool], reached: &[usize], rungs: usize) -> Vec<usize> {
    let of_kept = || kept.iter().zip(reached).enumerate().filter(|(_, (kept, _))| **kept);
    let least = of_kept().map(|(_, (_, reached))| *reached).min().unwrap_or(rungs);
    if least >= rungs {
        return Vec::new();
    }
    of_kept().filter(|(_, (_, reached))| **reached == least).map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::outlook::tests::draws;
    use super::*;

    fn outlooks() -> impl Strategy<Value = Vec<Outlook>> {
        prop::collection::vec((0.4..0.8_f64, 0.003..0.05_f64), 1..7)
            .prop_map(|ends| ends.iter().map(|(mean, sd)| Outlook::normal(*mean, *sd)).collect())
    }

    fn all(outlooks: &[Outlook]) -> Vec<Stage> {
        vec![Stage::Open; outlooks.len()]
    }

    /// Nothing comes back.
    fn pause(limit: f64) -> Limits {
        Limits { pause: limit, back: 1.0 }
    }

    /// E[best of all − best of the kept] by draws, read off its sentence.
    fn plain_loss(outlooks: &[Outlook], kept: &[bool]) -> f64 {
        const DRAWS: usize = 4000;
        let ends: Vec<Vec<f64>> =
            outlooks.iter().enumerate().map(|(i, one)| draws(one, DRAWS, 5 + i as u64)).collect();
        let best = |kept: &[bool], i: usize| {
            ends.iter().zip(kept).filter(|(_, k)| **k).map(|(e, _)| e[i]).fold(f64::MIN, f64::max)
        };
        let all = vec![true; outlooks.len()];
        (0..DRAWS).map(|i| best(&all, i) - best(kept, i)).sum::<f64>() / DRAWS as f64
    }

    proptest! {
        #[test]
        fn the_last_variant_is_never_paused(
            outlooks in outlooks(), limit in 0.0..1.0_f64, back in 0.0..1.0_f64,
        ) {
            let choice = choose(&outlooks, &all(&outlooks), Limits { pause: limit, back });
            prop_assert!(choice.kept.contains(&true));
        }

        #[test]
        fn the_expected_loss_stays_within_its_limits(
            ends in prop::collection::vec((0.4..0.8_f64, 0.003..0.05_f64, 0..3_usize), 2..7),
            pause in 0.0..0.01_f64, back in 0.0..0.02_f64,
        ) {
            let outlooks: Vec<Outlook> =
                ends.iter().map(|(mean, sd, _)| Outlook::normal(*mean, *sd)).collect();
            let stage = |index: usize| [Stage::Open, Stage::Paused, Stage::Ended][index];
            let mut stages: Vec<Stage> = ends.iter().map(|(_, _, s)| stage(*s)).collect();
            stages[0] = Stage::Open;
            let choice = choose(&outlooks, &stages, Limits { pause, back });
            prop_assert!(choice.loss <= back + 1e-12 || !choice.kept.contains(&false));
            let without_return = choose(&outlooks, &stages, self::pause(pause));
            for (index, stage) in stages.iter().enumerate() {
                prop_assert!(*stage != Stage::Ended || choice.kept[index]);
                prop_assert!(*stage != Stage::Paused || !without_return.kept[index]);
                prop_assert!(choice.kept[index] || !without_return.kept[index]);
            }
        }

        #[test]
        fn pausing_one_more_would_cost_too_much(outlooks in outlooks(), limit in 0.0..0.01_f64) {
            let choice = choose(&outlooks, &all(&outlooks), pause(limit));
            prop_assert!(choice.loss <= limit + 1e-12);
            let several = choice.kept.iter().filter(|kept| **kept).count() > 1;
            for index in (0..outlooks.len()).filter(|index| several && choice.kept[*index]) {
                prop_assert!(choice.loss + choice.adds[index] > limit);
            }
        }

        #[test]
        fn a_larger_limit_keeps_no_variant_more(outlooks in outlooks(), limit in 0.0..0.01_f64) {
            let open = all(&outlooks);
            let strict = choose(&outlooks, &open, pause(limit));
            let lax = choose(&outlooks, &open, pause(2.0 * limit));
            for (strict, lax) in strict.kept.iter().zip(&lax.kept) {
                prop_assert!(*strict || !lax);
            }
        }

        #[test]
        fn the_expected_loss_is_that_of_many_draws(
            outlooks in outlooks(), limit in 0.001..0.02_f64,
        ) {
            let choice = choose(&outlooks, &all(&outlooks), pause(limit));
            let plain = plain_loss(&outlooks, &choice.kept);
            prop_assert!((plain - choice.loss).abs() < 1e-3, "{plain} {}", choice.loss);
        }

        #[test]
        fn only_the_kept_that_are_furthest_behind_run(
            state in prop::collection::vec((any::<bool>(), 0..=5_usize), 1..8),
        ) {
            let (kept, reached): (Vec<bool>, Vec<usize>) = state.into_iter().unzip();
            let next = next_to_run(&kept, &reached, 5);
            let behind = (0..kept.len()).filter(|i| kept[*i]).map(|i| reached[i]).min();
            for index in 0..kept.len() {
                let is_behind = kept[index] && Some(reached[index]) == behind && reached[index] < 5;
                prop_assert_eq!(next.contains(&index), is_behind);
            }
        }
    }

    #[test]
    fn of_two_that_end_alike_the_later_named_is_paused_when_their_ends_are_known() {
        let twins = [Outlook::normal(0.7, 0.004), Outlook::normal(0.7, 0.004)];
        let choice = choose(&twins, &all(&twins), pause(0.003));
        assert_eq!(choice.kept, [true, false]);
        // E[max of two normals] − mean = sd / √π.
        assert!((choice.loss - 0.004 / std::f64::consts::PI.sqrt()).abs() < 2e-5, "{choice:?}");
        let wide = [Outlook::normal(0.7, 0.02), Outlook::normal(0.7, 0.02)];
        assert_eq!(choose(&wide, &all(&wide), pause(0.003)).kept, [true, true]);
    }

    #[test]
    fn a_paused_variant_comes_back_when_the_leader_falls() {
        let limits = Limits { pause: 0.003, back: 0.008 };
        let paused = Outlook::normal(0.70, 0.01);
        let leading = [Outlook::normal(0.75, 0.008), paused.clone()];
        assert_eq!(choose(&leading, &all(&leading), limits).kept, [true, false]);
        let fallen = [Outlook::normal(0.66, 0.01), paused];
        let choice = choose(&fallen, &[Stage::Open, Stage::Paused], limits);
        assert!(choice.kept[1]);
        assert_eq!(next_to_run(&choice.kept, &[3, 1], 5), [1]);
    }
}

//! Which finished groups make the next batch.
//!
//! A group that was admitted while the generator held version v must be trained on in a step from
//! version v + k or earlier: that is its deadline. Batches are filled in order of arrival, so a
//! slow group does not hold up the fast ones, until one more step without it would make some
//! deadline impossible; then the batch waits for it.
//!
//! "Impossible" is counted, not guessed: when `batch` steps have been taken, the groups with
//! deadline ≤ d must fit into the batches `batch ..= d`, `size` groups each. The proof that
//! admission never makes that impossible by itself is docs/design/staleness.md.
//!
//! Pure: numbers in, indices out.

/// Chooses `size` of the finished groups for the step from version `batch`; `None` means wait.
///
/// `ready` has the deadlines of finished groups in order of arrival, `unfinished` those of groups
/// still being sampled. With `is_closing` a smaller batch may go, as long as no deadline suffers.
pub(crate) fn choose(
    ready: &[u64],
    unfinished: &[u64],
    batch: u64,
    size: usize,
    is_closing: bool,
) -> Option<Vec<usize>> {
    if ready.len() < size && !is_closing {
        return None;
    }
    let mut deadlines: Vec<u64> = ready.iter().chain(unfinished).copied().collect();
    deadlines.sort_unstable();
    deadlines.dedup();
    let mut taken = vec![false; ready.len()];
    let mut count = 0;
    for deadline in deadlines {
        let due = |of: &[u64]| of.iter().filter(|other| **other <= deadline).count();
        // Batches left for them after this one.
        let later = size * usize::try_from(deadline.saturating_sub(batch)).unwrap_or(usize::MAX);
        let needed = (due(ready) + due(unfinished)).saturating_sub(later);
        let mut have =
            (0..ready.len()).filter(|index| taken[*index] && ready[*index] <= deadline).count();
        for index in 0..ready.len() {
            if have >= needed {
                break;
            }
            if !taken[index] && ready[index] <= deadline {
                taken[index] = true;
                have += 1;
                count += 1;
            }
        }
        if have < needed {
            return None;
        }
    }
    // Deadlines are safe; the rest goes by arrival.
    for is_taken in taken.iter_mut().filter(|is_taken| !**is_taken) {
        if count >= size {
            break;
        }
        *is_taken = true;
        count += 1;
    }
    Some((0..ready.len()).filter(|index| taken[*index]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fast_groups_pass_a_slow_one_until_its_deadline() {
        // k = 1, two groups a step. One of the four groups of version 0 is slow.
        assert_eq!(choose(&[1, 1, 1], &[1], 0, 2, false), Some(vec![0, 1]));
        // Now it is due: two finished ones must wait for it.
        assert_eq!(choose(&[1, 2], &[1], 1, 2, false), None);
        assert_eq!(choose(&[1, 2, 1], &[2], 1, 2, false), Some(vec![0, 2]));
    }

    #[test]
    fn without_lag_a_batch_waits_for_all_its_groups() {
        assert_eq!(choose(&[3], &[3], 3, 2, false), None);
        assert_eq!(choose(&[3, 3], &[], 3, 2, false), Some(vec![0, 1]));
    }

    #[test]
    fn a_closing_batch_goes_short_only_if_nobody_is_late_for_it() {
        assert_eq!(choose(&[4], &[5, 5], 4, 2, true), Some(vec![0]));
        assert_eq!(choose(&[4], &[4], 4, 2, true), None);
        assert_eq!(choose(&[4], &[5, 5, 5], 4, 2, true), None);
    }

    /// A pipeline in miniature: groups finish in any order, hand-over comes late, and the
    /// admission rule is the slots'.
    fn simulate(k: u64, size: usize, choices: &[(u8, u16)]) -> (u64, u64, bool) {
        let slots = (k as usize + 1) * size;
        let (mut version, mut adopted, mut largest, mut admitted_total) = (0_u64, 0_u64, 0, 0_u64);
        let (mut ready, mut unfinished): (Vec<u64>, Vec<u64>) = (vec![], vec![]);
        let mut is_stuck = false;
        for (act, pick) in choices {
            let unadopted = usize::try_from(version - adopted).unwrap() * size;
            while ready.len() + unfinished.len() + unadopted < slots {
                unfinished.push(adopted + k);
                admitted_total += 1;
            }
            match act % 3 {
                0 if !unfinished.is_empty() => {
                    let index = usize::from(*pick) % unfinished.len();
                    ready.push(unfinished.remove(index));
                }
                1 if adopted < version => adopted += 1 + u64::from(*pick) % (version - adopted),
                _ => {}
            }
            if let Some(chosen) = choose(&ready, &unfinished, version, size, false) {
                assert_eq!(chosen.len(), size);
                for index in chosen.into_iter().rev() {
                    let deadline = ready.remove(index);
                    assert!(deadline >= version, "a deadline was missed");
                    largest = largest.max(version - (deadline - k));
                }
                version += 1;
            }
            // With everything finished and adopted there must be a batch.
            is_stuck |= unfinished.is_empty() && adopted == version && ready.len() >= slots;
        }
        (largest, admitted_total, is_stuck)
    }

    proptest! {
        #[test]
        fn no_group_is_ever_trained_on_after_its_deadline(
            k in 0_u64..6,
            size in 1_usize..5,
            choices in prop::collection::vec(any::<(u8, u16)>(), 1..400),
        ) {
            let (largest, _, is_stuck) = simulate(k, size, &choices);
            prop_assert!(largest <= k);
            prop_assert!(!is_stuck);
        }
    }
}

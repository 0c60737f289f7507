//! Completions and episodes without a verdict, counted by what went wrong.
//!
//! Reasons quote what they met: numbers, a worker's last words, a traceback. Two are of one kind when
//! their first lines agree apart from that. Not here: the single failures, which stay in the events.

use serde::Serialize;

/// Kinds that are kept apart; what is of none of them is counted together.
const MOST_KINDS: usize = 64;
/// Characters of a kind.
const LONGEST: usize = 160;

/// How often something went wrong in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureKind {
    /// What the reasons have in common; `N` stands for a number.
    pub kind: String,
    /// How many there were.
    pub count: u64,
    /// The last of the reasons, whole.
    pub last: String,
}

/// Failures by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct FailureKinds {
    /// In the order they were first met.
    kinds: Vec<FailureKind>,
}

impl FailureKinds {
    /// Adds one; how many of its kind there are now.
    pub fn add(&mut self, reason: &str) -> u64 {
        let kind = kind_of_reason(reason);
        let place = self.kinds.iter().position(|one| one.kind == kind);
        let place = place.unwrap_or_else(|| {
            let is_full = self.kinds.len() >= MOST_KINDS;
            if !is_full {
                self.kinds.push(FailureKind { kind, count: 0, last: String::new() });
            } else if self.kinds.len() == MOST_KINDS {
                let kind = "other reasons".to_owned();
                self.kinds.push(FailureKind { kind, count: 0, last: String::new() });
            }
            self.kinds.len() - 1
        });
        let one = &mut self.kinds[place];
        one.count += 1;
        reason.clone_into(&mut one.last);
        one.count
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|one| one.count).sum()
    }

    /// The kinds, most frequent first.
    pub fn by_count(&self) -> Vec<&FailureKind> {
        let mut kinds: Vec<&FailureKind> = self.kinds.iter().collect();
        kinds.sort_by_key(|one| std::cmp::Reverse(one.count));
        kinds
    }
}

/// The first line up to a worker's last words, every number an `N`.
fn kind_of_reason(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    let line = line.split(" (its log ends:").next().unwrap_or_default();
    let mut kind = String::new();
    let mut in_number = false;
    for character in line.chars().take(LONGEST) {
        // A decimal point belongs to its number; any other full stop ends it.
        let is_digit = character.is_ascii_digit() || (in_number && character == '.');
        if !is_digit {
            kind.push(character);
        } else if !in_number {
            kind.push('N');
        }
        in_number = is_digit;
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reasons_that_differ_in_numbers_and_last_words_are_of_one_kind() {
        let mut kinds = FailureKinds::default();
        for reason in [
            "no answer within 2.5 s; its worker was ended (its log ends: ValueError: 17)",
            "no answer within 30 s; its worker was ended",
            "its worker ended with exit status: 4",
            "no answer within 3 s; its worker was ended\nTraceback: line 12",
        ] {
            kinds.add(reason);
        }
        let found: Vec<(u64, &str)> =
            kinds.by_count().iter().map(|one| (one.count, one.kind.as_str())).collect();
        let expected = [
            (3, "no answer within N s; its worker was ended"),
            (1, "its worker ended with exit status: N"),
        ];
        assert_eq!(found, expected);
        assert!(kinds.by_count()[0].last.contains("Traceback"));
    }

    proptest! {
        #[test]
        fn every_failure_is_counted_once_however_many_kinds_there_are(
            reasons in prop::collection::vec("[a-z]{1,2}[0-9]{0,3}", 0..400),
        ) {
            let mut kinds = FailureKinds::default();
            for reason in &reasons {
                kinds.add(reason);
            }
            prop_assert_eq!(kinds.count(), reasons.len() as u64);
            prop_assert!(kinds.by_count().len() <= MOST_KINDS + 1);
        }
    }
}

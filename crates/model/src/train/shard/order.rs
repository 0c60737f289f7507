//! What all ranks do in a pass, in the order in which it is started.
//!
//! It is written down when a pass begins, so that a rank without a batch of its own, or one whose own work
//! has failed, can do the rest of it all the same.

use std::collections::VecDeque;

use super::units::PassKind;

/// One operation of a pass on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Gather(usize),
    Scatter(usize),
    /// Rows go to the owners of the unit's experts and come back.
    Serve(usize),
    /// The same again, and then their gradients.
    ServeBack(usize),
}

/// A model's units, as far as the order asks.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    /// Layers are units 1 to this.
    pub(super) layers: usize,
    pub(super) norm: usize,
    /// The embedding's, where it is tied.
    pub(super) head: usize,
    /// Of each unit, whether its experts stay with their owners.
    pub(super) serves: Vec<bool>,
    /// Whether weights have gradients.
    pub(super) is_trained: bool,
}

impl Sequence {
    pub(super) fn of(&self, kind: PassKind) -> VecDeque<Operation> {
        use Operation::{Gather, Scatter, Serve, ServeBack};
        if kind == PassKind::Reading {
            return (0..self.serves.len()).map(Gather).collect();
        }
        let mut order = VecDeque::new();
        let mut before = None;
        for unit in (0..=self.layers).chain([self.norm, self.head]) {
            order.push_back(Gather(unit));
            // The next unit is on its way by the time that rows are.
            order.extend(before.filter(|unit| self.serves[*unit]).map(Serve));
            before = Some(unit);
        }
        if kind == PassKind::Reference {
            return order;
        }
        let scatter = |order: &mut VecDeque<Operation>, unit| {
            if self.is_trained {
                order.push_back(Scatter(unit));
            }
        };
        // The last layer comes back while the head computes.
        order.push_back(Gather(self.layers));
        scatter(&mut order, self.head);
        scatter(&mut order, self.norm);
        for layer in (1..=self.layers).rev() {
            if layer > 1 {
                order.push_back(Gather(layer - 1));
            }
            if self.serves[layer] {
                order.push_back(ServeBack(layer));
            }
            scatter(&mut order, layer);
        }
        scatter(&mut order, 0);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(is_head_tied: bool, is_trained: bool) -> Sequence {
        let head = if is_head_tied { 0 } else { 5 };
        let serves = vec![false; if is_head_tied { 5 } else { 6 }];
        Sequence { layers: 3, norm: 4, head, serves, is_trained }
    }

    /// Every unit is asked for while the one before it computes, and a scatter is never before its
    /// gather.
    #[test]
    fn a_pass_gathers_one_unit_ahead_and_scatters_what_it_has_used() {
        use Operation::{Gather, Scatter};
        let (norm, head) = (4, 5);
        let expected = [
            [Gather(0), Gather(1), Gather(2), Gather(3), Gather(norm), Gather(head)].as_slice(),
            // Starts as the head begins; each next one before the scatter of the one that computes.
            &[Gather(3), Scatter(head), Scatter(norm)],
            &[Gather(2), Scatter(3), Gather(1), Scatter(2), Scatter(1), Scatter(0)],
        ]
        .concat();
        assert_eq!(sequence(false, true).of(PassKind::Training), expected);
        let frozen = sequence(false, false).of(PassKind::Training);
        let gathers = expected.iter().filter(|operation| matches!(operation, Gather(_)));
        assert!(frozen.iter().eq(gathers), "a frozen base has no gradients");
        assert_eq!(sequence(false, true).of(PassKind::Reference), &expected[..6]);
        let tied = sequence(true, true).of(PassKind::Training);
        let of_embedding = tied.iter().filter(|operation| **operation == Scatter(0)).count();
        assert_eq!(of_embedding, 2, "once as the head and once as the embedding");
    }

    /// Rows travel while the next unit is gathered, in both directions.
    #[test]
    fn owners_are_served_while_the_next_unit_is_on_its_way() {
        use Operation::{Gather, Scatter, Serve, ServeBack};
        let (norm, head) = (4, 5);
        let mut sequence = sequence(false, true);
        (sequence.serves[1], sequence.serves[3]) = (true, true);
        let forward = [
            [Gather(0), Gather(1), Gather(2), Serve(1), Gather(3)].as_slice(),
            &[Gather(norm), Serve(3), Gather(head)],
        ]
        .concat();
        let backward = [
            [Gather(3), Scatter(head), Scatter(norm)].as_slice(),
            &[Gather(2), ServeBack(3), Scatter(3), Gather(1), Scatter(2)],
            &[ServeBack(1), Scatter(1), Scatter(0)],
        ]
        .concat();
        assert_eq!(sequence.of(PassKind::Reference), forward);
        assert_eq!(sequence.of(PassKind::Training), [forward, backward].concat());
        let read = sequence.of(PassKind::Reading);
        assert!(read.iter().all(|operation| matches!(operation, Gather(_))), "all of it is shown");
    }
}

//! Which prompt comes next.
//!
//! Every data set is visited epoch by epoch, each epoch in its own order (a function of seed, data
//! set and epoch). Between data sets the one that is furthest behind its weight goes next. The
//! sampler is a cursor: what it has drawn is the engine's to remember, by its [`Draw`].

use scalerl_rollout::Draw;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::data::Pool;
use crate::random::{hash, permutation};

/// What a resumed sampler needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerState {
    /// The seed of all orders.
    pub seed: u64,
    /// Fingerprint of the pool.
    pub data: String,
    /// The next draw of each data set.
    pub frontier: Vec<Draw>,
    /// Draws from each data set so far, for the weights.
    pub handed: Vec<u64>,
}

/// The state belongs to other data.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the saved state belongs to other data (fingerprint {recorded}, now {found})")]
#[expect(missing_docs, reason = "the message names the fields")]
pub struct OtherData {
    pub recorded: String,
    pub found: String,
}

/// One data set, as far as the order is concerned.
#[derive(Debug, Clone)]
struct Set {
    /// What its orders are drawn from, beside the seed of the run.
    name_hash: u64,
    weight: f64,
    rows: usize,
    /// The next draw.
    frontier: Draw,
    /// Rows in the order of the frontier's epoch.
    order: Vec<u32>,
    drawn: u64,
}

impl Set {
    fn enter_epoch(&mut self, seed: u64, epoch: u64) {
        self.frontier.epoch = epoch;
        self.order = permutation(seed ^ self.name_hash, epoch, self.rows);
    }

    fn advance(&mut self, seed: u64) {
        self.frontier.position += 1;
        if self.frontier.position == self.rows as u64 {
            self.frontier.position = 0;
            self.enter_epoch(seed, self.frontier.epoch + 1);
        }
    }
}

/// A prompt that was drawn: which draw it is, and where in the pool it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The draw.
    pub draw: Draw,
    /// Index of the data set.
    pub dataset: usize,
    /// Row in it.
    pub row: usize,
}

/// Draws prompts of a pool.
#[derive(Debug, Clone)]
pub struct Sampler {
    seed: u64,
    data: String,
    sets: Vec<Set>,
}

impl Sampler {
    /// Starts at the beginning.
    pub fn new(pool: &Pool, seed: u64) -> Self {
        let set = |(dataset, set): (usize, &crate::data::Set)| {
            let mut set = Set {
                name_hash: hash(set.name.as_bytes()),
                weight: set.weight,
                rows: set.problems.len(),
                frontier: Draw { dataset: dataset as u32, epoch: 0, position: 0 },
                order: Vec::new(),
                drawn: 0,
            };
            set.enter_epoch(seed, 0);
            set
        };
        let sets = pool.sets.iter().enumerate().map(set).collect();
        Self { seed, data: pool.fingerprint(), sets }
    }

    /// Goes on where the state was saved.
    pub fn restore(&mut self, state: &SamplerState) -> Result<(), OtherData> {
        let is_same = state.data == self.data
            && [state.frontier.len(), state.handed.len()] == [self.sets.len(); 2];
        if !is_same {
            return Err(OtherData { recorded: state.data.clone(), found: self.data.clone() });
        }
        self.seed = state.seed;
        for ((set, frontier), drawn) in self.sets.iter_mut().zip(&state.frontier).zip(&state.handed)
        {
            set.frontier = *frontier;
            set.drawn = *drawn;
            set.enter_epoch(state.seed, frontier.epoch);
        }
        Ok(())
    }

    /// What to save.
    pub fn state(&self) -> SamplerState {
        SamplerState {
            seed: self.seed,
            data: self.data.clone(),
            frontier: self.sets.iter().map(|set| set.frontier).collect(),
            handed: self.sets.iter().map(|set| set.drawn).collect(),
        }
    }

    /// The next prompt that is not excluded, by data set and row; `None` when every prompt is.
    pub fn next(&mut self, is_excluded: impl Fn(usize, usize) -> bool) -> Option<Drawn> {
        let mut is_spent = vec![false; self.sets.len()];
        while let Some(dataset) = self.furthest_behind(&is_spent) {
            let set = &mut self.sets[dataset];
            // One whole epoch without a prompt: this data set has nothing left.
            for _ in 0..=set.rows {
                let draw = set.frontier;
                let row = set.order[draw.position as usize] as usize;
                set.advance(self.seed);
                if !is_excluded(dataset, row) {
                    set.drawn += 1;
                    return Some(Drawn { draw, dataset, row });
                }
            }
            is_spent[dataset] = true;
        }
        None
    }

    fn furthest_behind(&self, is_spent: &[bool]) -> Option<usize> {
        let share = |i: usize| (self.sets[i].drawn as f64 + 1.0) / self.sets[i].weight;
        (0..is_spent.len()).filter(|i| !is_spent[*i]).min_by(|a, b| share(*a).total_cmp(&share(*b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(name: &str, weight: f64, count: usize) -> (String, f64, Vec<Problem>) {
        let problem = |row: usize| Problem::plain(format!("{name} {row}"), "").named(name, row);
        (name.to_owned(), weight, (0..count).map(problem).collect())
    }

    fn pool() -> Pool {
        Pool::try_new(vec![set("a", 1.0, 7), set("b", 3.0, 5)]).unwrap()
    }

    fn take(sampler: &mut Sampler, count: usize) -> Vec<Drawn> {
        (0..count).map(|_| sampler.next(|_, _| false).unwrap()).collect()
    }

    #[test]
    fn weights_decide_how_often_each_set_comes() {
        let drawn = take(&mut Sampler::new(&pool(), 1), 400);
        assert_eq!(drawn.iter().filter(|one| one.dataset == 1).count(), 300);
    }

    #[test]
    fn an_epoch_has_every_prompt_once_and_the_next_another_order() {
        let pool = Pool::try_new(vec![set("a", 1.0, 30)]).unwrap();
        let mut sampler = Sampler::new(&pool, 5);
        let mut epoch =
            || -> Vec<usize> { take(&mut sampler, 30).into_iter().map(|one| one.row).collect() };
        let (first, second) = (epoch(), epoch());
        assert_ne!(first, second);
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 30);
        assert_eq!(first.iter().collect::<BTreeSet<_>>(), second.iter().collect::<BTreeSet<_>>());
    }

    #[test]
    fn excluded_prompts_are_passed_over_until_none_is_left() {
        let mut sampler = Sampler::new(&pool(), 2);
        for _ in 0..20 {
            assert_eq!(sampler.next(|dataset, _| dataset == 1).unwrap().dataset, 0);
        }
        assert!(sampler.next(|_, _| true).is_none());
    }

    #[test]
    fn a_state_of_other_data_is_refused() {
        let state = Sampler::new(&pool(), 2).state();
        let other = Pool::try_new(vec![set("a", 1.0, 8), set("b", 3.0, 5)]).unwrap();
        assert!(Sampler::new(&other, 2).restore(&state).is_err());
    }

    /// As releases wrote it that kept a list of prompts in flight, which was always empty.
    #[test]
    fn a_state_of_an_earlier_release_is_read() {
        let state = Sampler::new(&pool(), 2).state();
        let mut text = serde_json::to_value(&state).unwrap();
        text["in_flight"] = serde_json::json!([]);
        assert_eq!(serde_json::from_value::<SamplerState>(text).unwrap(), state);
    }

    proptest! {
        #[test]
        fn a_stop_skips_nothing_and_repeats_nothing(stop in 0_usize..48) {
            let straight = take(&mut Sampler::new(&pool(), 9), 48);
            let mut first = Sampler::new(&pool(), 9);
            let mut drawn = take(&mut first, stop);
            let text = serde_json::to_string(&first.state()).unwrap();
            let mut second = Sampler::new(&pool(), 0);
            second.restore(&serde_json::from_str(&text).unwrap()).unwrap();
            drawn.extend(take(&mut second, 48 - stop));
            prop_assert_eq!(drawn, straight);
        }
    }
}

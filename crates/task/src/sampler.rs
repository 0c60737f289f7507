//! Which prompt comes next.
//!
//! Every data set is visited epoch by epoch, each epoch in its own order (a function of seed, data
//! set and epoch). Between data sets the one that is furthest behind its weight goes next. What was
//! handed out is in flight until it is consumed or given back; prompts given back come first.
//!
//! ```text
//! order of the epoch ──next──▶ in flight ──consume──▶ done
//!                        ▲          │
//!                        └─give back┘
//! ```
//!
//! A [`Place`] (data set, epoch, position) names one hand-out for ever. A sampler is rebuilt from
//! its saved state or from the places a journal says were consumed: all others before the frontier
//! are handed out again, so nothing is skipped and nothing is repeated.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::data::{Pool, Prompt};
use crate::random::{hash, permutation};

/// One hand-out: where in which epoch of which data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Index of the data set in the pool.
    pub dataset: usize,
    /// Epoch of that data set, from 0.
    pub epoch: u64,
    /// Position in the epoch's order.
    pub position: usize,
}

/// What a resumed sampler needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerState {
    /// The seed of all orders.
    pub seed: u64,
    /// Fingerprint of the pool.
    pub data: String,
    /// The next place of each data set.
    pub frontier: Vec<Place>,
    /// Handed out and neither consumed nor given back: handed out again after a resume.
    pub in_flight: Vec<Place>,
    /// Hand-outs of each data set so far, for the weights.
    pub handed: Vec<u64>,
}

/// Why a sampler cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SamplerError {
    /// The state belongs to other data.
    #[error("the saved state belongs to other data (fingerprint {recorded}, now {found})")]
    OtherData { recorded: String, found: String },
    /// A place that is not in flight.
    #[error("{place:?} is not in flight")]
    NotInFlight { place: Place },
    /// A consumed place that the data cannot have.
    #[error("{place:?} lies outside the data")]
    Outside { place: Place },
}

/// Hands out prompts.
#[derive(Debug, Clone)]
pub struct Sampler {
    pool: Pool,
    seed: u64,
    frontier: Vec<Place>,
    orders: Vec<Vec<u32>>,
    handed: Vec<u64>,
    in_flight: BTreeSet<Place>,
    again: VecDeque<Place>,
}

impl Sampler {
    /// Starts at the beginning.
    pub fn new(pool: Pool, seed: u64) -> Self {
        let count = pool.sets.len();
        let frontier = (0..count).map(|dataset| Place { dataset, epoch: 0, position: 0 }).collect();
        let mut sampler = Self {
            pool,
            seed,
            frontier,
            orders: Vec::new(),
            handed: vec![0; count],
            in_flight: BTreeSet::new(),
            again: VecDeque::new(),
        };
        sampler.orders = (0..count).map(|dataset| sampler.order(dataset, 0)).collect();
        sampler
    }

    /// Goes on where the state was saved; what was in flight then comes first.
    pub fn resume(pool: Pool, state: &SamplerState) -> Result<Self, SamplerError> {
        let found = pool.fingerprint();
        if state.data != found || state.frontier.len() != pool.sets.len() {
            return Err(SamplerError::OtherData { recorded: state.data.clone(), found });
        }
        let mut sampler = Self::new(pool, state.seed);
        sampler.frontier.clone_from(&state.frontier);
        sampler.handed.clone_from(&state.handed);
        sampler.again = state.in_flight.iter().copied().collect();
        sampler.orders =
            state.frontier.iter().map(|place| sampler.order(place.dataset, place.epoch)).collect();
        Ok(sampler)
    }

    /// Rebuilds the sampler from what was consumed alone. Places before the frontier that were not
    /// consumed are handed out again (an excluded prompt is then excluded again).
    pub fn rebuild(pool: Pool, seed: u64, consumed: &[Place]) -> Result<Self, SamplerError> {
        let mut sampler = Self::new(pool, seed);
        let mut by_set: BTreeMap<usize, BTreeSet<Place>> = BTreeMap::new();
        for place in consumed {
            let rows = sampler.pool.sets.get(place.dataset).map_or(0, |(_, _, p)| p.len());
            if place.position >= rows {
                return Err(SamplerError::Outside { place: *place });
            }
            by_set.entry(place.dataset).or_default().insert(*place);
        }
        for (dataset, done) in by_set {
            let Some(last) = done.last() else { continue };
            let rows = sampler.pool.sets[dataset].2.len();
            let all = (0..=last.epoch).flat_map(|epoch| {
                (0..rows).map(move |position| Place { dataset, epoch, position })
            });
            let gaps = all.take_while(|place| place < last).filter(|place| !done.contains(place));
            sampler.again.extend(gaps);
            sampler.handed[dataset] = done.len() as u64;
            sampler.frontier[dataset] = *last;
            sampler.orders[dataset] = sampler.order(dataset, last.epoch);
            sampler.advance(dataset);
        }
        Ok(sampler)
    }

    /// What to save.
    pub fn state(&self) -> SamplerState {
        let waiting = self.again.iter().copied();
        SamplerState {
            seed: self.seed,
            data: self.pool.fingerprint(),
            frontier: self.frontier.clone(),
            in_flight: self.in_flight.iter().copied().chain(waiting).collect(),
            handed: self.handed.clone(),
        }
    }

    /// The next prompt that is not excluded; `None` when every prompt is.
    pub fn next(&mut self, is_excluded: impl Fn(&Prompt) -> bool) -> Option<(Place, &Prompt)> {
        let place = self.next_place(&is_excluded)?;
        self.in_flight.insert(place);
        Some((place, self.prompt(place)))
    }

    fn next_place(&mut self, is_excluded: &impl Fn(&Prompt) -> bool) -> Option<Place> {
        while let Some(place) = self.again.pop_front() {
            if !is_excluded(self.prompt(place)) {
                return Some(place);
            }
        }
        let mut spent = vec![false; self.frontier.len()];
        while let Some(dataset) = self.furthest_behind(&spent) {
            // One whole epoch without a prompt: this data set has nothing left.
            for _ in 0..=self.pool.sets[dataset].2.len() {
                let place = self.frontier[dataset];
                let is_out = is_excluded(self.prompt(place));
                self.advance(dataset);
                if !is_out {
                    self.handed[dataset] += 1;
                    return Some(place);
                }
            }
            spent[dataset] = true;
        }
        None
    }

    /// The prompt of a place.
    pub fn prompt(&self, place: Place) -> &Prompt {
        let row = if self.frontier[place.dataset].epoch == place.epoch {
            self.orders[place.dataset][place.position]
        } else {
            self.order(place.dataset, place.epoch)[place.position]
        };
        self.pool.prompt(place.dataset, row as usize)
    }

    /// Its group was trained on, or filtered out for good.
    pub fn consume(&mut self, place: Place) -> Result<(), SamplerError> {
        let was_there = self.in_flight.remove(&place);
        if was_there { Ok(()) } else { Err(SamplerError::NotInFlight { place }) }
    }

    /// Its group was lost; it comes again, before new ones.
    pub fn give_back(&mut self, place: Place) -> Result<(), SamplerError> {
        self.consume(place)?;
        self.again.push_back(place);
        Ok(())
    }

    /// What is handed out and not yet consumed.
    pub fn in_flight(&self) -> impl Iterator<Item = Place> + '_ {
        self.in_flight.iter().copied()
    }

    /// The epoch each data set is in, by name.
    pub fn epochs(&self) -> impl Iterator<Item = (&str, u64)> + '_ {
        self.pool
            .sets
            .iter()
            .zip(&self.frontier)
            .map(|((name, _, _), place)| (name.as_str(), place.epoch))
    }

    fn furthest_behind(&self, spent: &[bool]) -> Option<usize> {
        let share = |i: usize| (self.handed[i] as f64 + 1.0) / self.pool.sets[i].1;
        (0..spent.len()).filter(|i| !spent[*i]).min_by(|a, b| share(*a).total_cmp(&share(*b)))
    }

    fn order(&self, dataset: usize, epoch: u64) -> Vec<u32> {
        let (name, _, prompts) = &self.pool.sets[dataset];
        permutation(self.seed ^ hash(name.as_bytes()), epoch, prompts.len())
    }

    fn advance(&mut self, dataset: usize) {
        let rows = self.pool.sets[dataset].2.len();
        let place = &mut self.frontier[dataset];
        place.position += 1;
        if place.position == rows {
            place.position = 0;
            place.epoch += 1;
            let epoch = place.epoch;
            self.orders[dataset] = self.order(dataset, epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Message;
    use crate::question::Question;
    use proptest::prelude::*;

    fn set(name: &str, weight: f64, count: usize) -> (String, f64, Vec<Prompt>) {
        let prompt = |row: usize| Prompt {
            id: format!("{name}/{row}"),
            dataset: name.to_owned(),
            messages: vec![Message { role: "user".into(), content: format!("{name} {row}") }],
            question: Question::default(),
        };
        (name.to_owned(), weight, (0..count).map(prompt).collect())
    }

    fn pool() -> Pool {
        Pool::try_new(vec![set("a", 1.0, 7), set("b", 3.0, 5)]).unwrap()
    }

    fn take(sampler: &mut Sampler, count: usize) -> Vec<(Place, String)> {
        (0..count)
            .map(|_| sampler.next(|_| false).map(|(place, p)| (place, p.id.clone())).unwrap())
            .collect()
    }

    #[test]
    fn weights_decide_how_often_each_set_comes() {
        let ids = take(&mut Sampler::new(pool(), 1), 400);
        let from_b = ids.iter().filter(|(_, id)| id.starts_with("b/")).count();
        assert_eq!(from_b, 300);
    }

    #[test]
    fn an_epoch_has_every_prompt_once_and_the_next_another_order() {
        let pool = Pool::try_new(vec![set("a", 1.0, 30)]).unwrap();
        let mut sampler = Sampler::new(pool, 5);
        let first: Vec<String> = take(&mut sampler, 30).into_iter().map(|(_, id)| id).collect();
        let second: Vec<String> = take(&mut sampler, 30).into_iter().map(|(_, id)| id).collect();
        assert_ne!(first, second);
        assert_eq!(first.iter().collect::<BTreeSet<_>>(), second.iter().collect::<BTreeSet<_>>());
    }

    #[test]
    fn excluded_prompts_are_passed_over_until_none_is_left() {
        let mut sampler = Sampler::new(pool(), 2);
        for _ in 0..20 {
            let (_, prompt) = sampler.next(|p| p.dataset == "b").unwrap();
            assert_eq!(prompt.dataset, "a");
        }
        assert!(sampler.next(|_| true).is_none());
    }

    #[test]
    fn a_prompt_given_back_comes_first() {
        let mut sampler = Sampler::new(pool(), 2);
        let handed = take(&mut sampler, 3);
        sampler.give_back(handed[1].0).unwrap();
        assert_eq!(take(&mut sampler, 1)[0], handed[1]);
        sampler.consume(handed[0].0).unwrap();
        assert!(sampler.consume(handed[0].0).is_err());
    }

    #[test]
    fn a_state_of_other_data_is_refused() {
        let state = Sampler::new(pool(), 2).state();
        let other = Pool::try_new(vec![set("a", 1.0, 8), set("b", 3.0, 5)]).unwrap();
        assert!(matches!(Sampler::resume(other, &state), Err(SamplerError::OtherData { .. })));
    }

    /// Runs to 48 hand-outs with a stop after `stop`; some are in flight at the stop.
    fn with_stop(stop: usize, lost: &[usize]) -> Vec<String> {
        let mut sampler = Sampler::new(pool(), 9);
        let mut done = Vec::new();
        for (index, (place, id)) in take(&mut sampler, stop).into_iter().enumerate() {
            if !lost.contains(&index) {
                sampler.consume(place).unwrap();
                done.push(id);
            }
        }
        let state: SamplerState =
            serde_json::from_str(&serde_json::to_string(&sampler.state()).unwrap()).unwrap();
        let mut sampler = Sampler::resume(pool(), &state).unwrap();
        let missing = 48 - done.len();
        done.extend(take(&mut sampler, missing).into_iter().map(|(_, id)| id));
        done.sort();
        done
    }

    proptest! {
        #[test]
        fn a_stop_skips_nothing_and_repeats_nothing(
            stop in 1_usize..40,
            lost in prop::collection::vec(0_usize..40, 0..6),
        ) {
            let straight = with_stop(0, &[]);
            prop_assert_eq!(&with_stop(stop, &lost), &straight);
        }

        #[test]
        fn a_sampler_rebuilt_from_the_journal_hands_out_exactly_what_is_missing(
            stop in 1_usize..60,
            lost in prop::collection::vec(0_usize..60, 0..8),
        ) {
            let mut sampler = Sampler::new(pool(), 9);
            let mut consumed = Vec::new();
            for (index, (place, _)) in take(&mut sampler, stop).into_iter().enumerate() {
                if !lost.contains(&index) {
                    consumed.push(place);
                }
            }
            let mut rebuilt = Sampler::rebuild(pool(), 9, &consumed).unwrap();
            let mut places: BTreeSet<Place> = consumed.iter().copied().collect();
            for (place, _) in take(&mut rebuilt, 30) {
                prop_assert!(places.insert(place), "{:?} twice", place);
            }
            // No hole: the places of each set are a prefix of its epochs.
            for dataset in 0..2 {
                let rows = [7, 5][dataset];
                let of_set: Vec<&Place> = places.iter().filter(|p| p.dataset == dataset).collect();
                for (index, place) in of_set.iter().enumerate() {
                    prop_assert_eq!((place.epoch as usize) * rows + place.position, index);
                }
            }
        }
    }
}

//! The scheduler alone, with pages that hold what was written instead of tensors.

use std::sync::Arc;

use super::super::request::{Interruption, Request, Token};
use super::*;

const SIZE: usize = 4;

/// Small, seeded, good enough to shuffle lengths.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// Runs a scheduler and keeps what each place of each page would hold: the token written there.
struct Simulation {
    scheduler: Scheduler,
    memory: Vec<[i64; SIZE]>,
    finished: usize,
    steps: usize,
    /// Whether steps begin before the tokens of the last one are known, and the one that has.
    is_ahead: bool,
    flight: Option<Vec<AheadRow>>,
    begun_ahead: usize,
    /// Whether completions end at tokens that nobody can foresee.
    has_stops: bool,
    /// What each sequence had when it ended.
    written: BTreeMap<u64, Vec<i64>>,
}

/// Unlike any other token, so that a mix-up is seen.
fn token_of(order: u64, position: usize) -> i64 {
    (order as i64 + 1) * 1_000_000 + position as i64
}

impl Simulation {
    fn new(pages: usize, limits: Limits) -> Self {
        let scheduler = Scheduler::new(PagePool::new(pages, SIZE), limits);
        Self {
            scheduler,
            memory: vec![[-1; SIZE]; pages],
            finished: 0,
            steps: 0,
            is_ahead: false,
            flight: None,
            begun_ahead: 0,
            has_stops: false,
            written: BTreeMap::new(),
        }
    }

    fn submit(&mut self, number: u64, prompt: usize, completions: usize, max_tokens: usize) {
        let tokens = (0..prompt as i64).map(|i| number as i64 * 1000 + i).collect();
        let request = Arc::new(Request { completions, ..Request::new(tokens, max_tokens) });
        for index in 0..completions {
            let order = number * 100 + index as u64;
            self.scheduler.push(Sequence::new(RequestId(number), index, request.clone(), order));
        }
    }

    fn submit_interrupted(&mut self, number: u64, prompt: usize, completions: usize, most: usize) {
        let tokens = (0..prompt as i64).map(|i| number as i64 * 1000 + i).collect();
        let forced = |index| Interruption {
            after: 1 + (number as usize + index) % most,
            tokens: vec![7; 1 + index],
            answer_tokens: 5,
        };
        let interruptions = (0..completions).map(forced).collect();
        let request = Request { completions, interruptions, ..Request::new(tokens, most) };
        let request = Arc::new(request);
        for index in 0..completions {
            let order = number * 100 + index as u64;
            self.scheduler.push(Sequence::new(RequestId(number), index, request.clone(), order));
        }
    }

    /// One step, planned or begun ahead; then its tokens.
    fn step(&mut self) {
        self.steps += 1;
        let rows = self.flight.take().unwrap_or_default();
        let mut drawing: Vec<usize> =
            rows.iter().filter_map(|row| self.scheduler.confirm(row)).collect();
        for &place in &drawing {
            self.check(place);
        }
        if drawing.is_empty() {
            drawing = self.planned();
        }
        if self.is_ahead {
            self.flight = self.scheduler.ahead(drawing.len());
            self.write_ahead();
        }
        self.accept(&drawing);
    }

    /// Plans and computes; the places that are drawn for.
    fn planned(&mut self) -> Vec<usize> {
        let step = self.scheduler.schedule();
        assert!(!step.chunks.is_empty(), "a step without work never ends");
        let reads: Vec<_> =
            step.copies.iter().map(|(from, _)| self.memory[*from as usize]).collect();
        for ((_, to), content) in step.copies.iter().zip(reads) {
            self.memory[*to as usize] = content;
        }
        for chunk in &step.chunks {
            for position in chunk.from..chunk.from + chunk.count {
                let token = self.scheduler.running[chunk.place].tokens[position];
                self.write(chunk.place, position, token);
            }
        }
        self.scheduler.computed(&step);
        for chunk in &step.chunks {
            self.check(chunk.place);
        }
        step.chunks.iter().filter(|chunk| chunk.is_last).map(|chunk| chunk.place).collect()
    }

    fn write(&mut self, place: usize, position: usize, token: i64) {
        let page = self.scheduler.running[place].pages[position / SIZE];
        assert!(!self.scheduler.pool.is_shared(page), "wrote into a shared page");
        self.memory[page as usize][position % SIZE] = token;
    }

    /// The device writes what it has drawn, whether the host will want it or not.
    fn write_ahead(&mut self) {
        let rows = self.flight.clone().unwrap_or_default();
        self.begun_ahead += usize::from(!rows.is_empty());
        for row in rows {
            let order = self.scheduler.running[row.place].order;
            self.write(row.place, row.position, token_of(order, row.position));
        }
    }

    /// A sequence finds its own tokens on its pages.
    fn check(&self, place: usize) {
        let sequence = &self.scheduler.running[place];
        for position in 0..sequence.computed {
            let held = self.memory[sequence.pages[position / SIZE] as usize][position % SIZE];
            assert_eq!(held, sequence.tokens[position], "position {position} was lost");
        }
    }

    fn accept(&mut self, drawing: &[usize]) {
        for &place in drawing.iter().rev() {
            let has_stops = self.has_stops;
            let sequence = &mut self.scheduler.running[place];
            let id = token_of(sequence.order, sequence.tokens.len());
            let token = Token { id, logprob: Some(0.0), version: 0, is_injected: false };
            let length = sequence.written.len() as u64 + 1;
            let is_stopped = has_stops && (sequence.order * 7 + length).is_multiple_of(9);
            if sequence.accept(token, None).unwrap().is_some() || is_stopped {
                let sequence = self.scheduler.remove(place);
                self.written.insert(sequence.order, sequence.tokens);
                self.finished += 1;
            }
        }
    }

    fn run(&mut self, most: usize) {
        while !self.scheduler.running.is_empty() || self.scheduler.waiting() > 0 {
            self.step();
            assert!(self.steps < most, "no end after {most} steps");
        }
        assert_eq!(self.scheduler.free_pages(), self.scheduler.pool.pages(), "pages leaked");
        assert!(self.scheduler.groups.is_empty());
    }
}

#[test]
fn random_loads_in_a_small_pool_all_finish_on_their_own_pages() {
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let mut simulation = Simulation::new(24, Limits { running: 8, chunk: 7, gather: 0 });
        let mut expected = 0;
        for number in 0..40 {
            let (prompt, completions) = (1 + dice.below(30), 1 + dice.below(5));
            simulation.submit(number, prompt, completions, 1 + dice.below(60));
            expected += completions;
            for _ in 0..dice.below(6) {
                simulation.step();
            }
            if dice.below(4) == 0 {
                simulation.scheduler.weights_changed(dice.below(2) == 0);
            }
        }
        simulation.run(100_000);
        assert_eq!(simulation.finished, expected);
        assert!(simulation.scheduler.usage().set_aside > 0, "the pool was never short");
    }
}

/// Conversations whose turns begin with all that was said before, in a pool too small to keep it all.
#[test]
fn turns_go_on_from_kept_pages_and_always_find_their_own_tokens() {
    let mut reused = 0;
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let mut simulation = Simulation::new(40, Limits { running: 6, chunk: 9, gather: 0 });
        simulation.scheduler = simulation.scheduler.keeping_prefixes();
        simulation.is_ahead = seed % 2 == 0;
        let mut said: Vec<Vec<i64>> =
            (0..4).map(|talk| vec![talk + 1; 1 + dice.below(9)]).collect();
        for number in 0..40_u64 {
            let talk = dice.below(said.len());
            // Somebody starts over now and then.
            let keep = if dice.below(5) == 0 {
                dice.below(said[talk].len()) + 1
            } else {
                said[talk].len()
            };
            let mut prompt = said[talk][..keep].to_vec();
            prompt.extend((0..dice.below(7)).map(|_| dice.below(50) as i64));
            if prompt.len() > 90 {
                prompt.truncate(5);
            }
            let completions = 1 + dice.below(3);
            let request = Request { completions, ..Request::new(prompt, 1 + dice.below(12)) };
            let request = Arc::new(request);
            for index in 0..completions {
                let order = number * 100 + index as u64;
                let sequence = Sequence::new(RequestId(number), index, request.clone(), order);
                simulation.scheduler.push(sequence);
            }
            for _ in 0..dice.below(20) {
                if !simulation.scheduler.running.is_empty() || simulation.scheduler.waiting() > 0 {
                    simulation.step();
                }
            }
            if let Some((_, tokens)) = simulation.written.last_key_value() {
                said[talk].clone_from(tokens);
            }
            if dice.below(12) == 0 {
                simulation.flight = None;
                simulation.scheduler.weights_changed(dice.below(2) == 0);
                assert_eq!(simulation.scheduler.usage().kept_pages, 0, "nothing survives weights");
            }
        }
        simulation.run(100_000);
        reused += simulation.scheduler.usage().reused_tokens;
    }
    assert!(reused > 10_000, "only {reused} tokens were reused");
}

#[test]
fn a_request_that_fills_the_whole_pool_finishes_beside_its_siblings() {
    let mut simulation = Simulation::new(5, Limits { running: 4, chunk: 64, gather: 0 });
    simulation.submit(0, 7, 4, 5 * SIZE - 7);
    simulation.run(10_000);
    assert_eq!(simulation.finished, 4);
}

#[test]
fn completions_of_one_prompt_compute_it_once_and_share_its_pages() {
    let mut simulation = Simulation::new(64, Limits { running: 8, chunk: 64, gather: 0 });
    simulation.submit(0, 4 * SIZE + 2, 4, 3);
    let first = simulation.scheduler.schedule();
    assert_eq!(first.chunks.len(), 1, "the leader alone computes the prompt");
    simulation.scheduler.computed(&first);
    let second = simulation.scheduler.schedule();
    let counts: Vec<usize> = second.chunks.iter().map(|chunk| chunk.count).collect();
    assert_eq!(counts, [1, 1, 1], "the others run the last token only");
    assert!(simulation.scheduler.pool.usage(0, 0).shared_pages >= 4);
    // Four whole pages once, and a last page each.
    assert_eq!(simulation.scheduler.pool.usage(0, 0).pages_in_use, 4 + 4);
}

#[test]
fn a_long_prompt_does_not_hold_up_those_who_decode() {
    let mut simulation = Simulation::new(100, Limits { running: 4, chunk: 8, gather: 0 });
    simulation.submit(0, 2, 1, 50);
    simulation.step();
    simulation.submit(1, 80, 1, 2);
    for _ in 0..5 {
        let step = simulation.scheduler.schedule();
        assert_eq!(step.chunks[0].count, 1, "the old one decodes in every step");
        assert!(step.chunks.iter().map(|chunk| chunk.count).sum::<usize>() <= 9);
        simulation.step();
    }
}

#[test]
fn no_prefix_survives_a_change_of_weights() {
    let mut simulation = Simulation::new(64, Limits { running: 2, chunk: 64, gather: 0 });
    simulation.submit(0, 9, 4, 30);
    simulation.step();
    simulation.step();
    assert!(simulation.scheduler.groups[&RequestId(0)].prefix.is_some());
    simulation.scheduler.weights_changed(false);
    assert!(simulation.scheduler.groups[&RequestId(0)].prefix.is_none());
    simulation.run(1000);
}

#[test]
fn a_cancelled_request_leaves_no_trace() {
    let mut simulation = Simulation::new(16, Limits { running: 3, chunk: 64, gather: 0 });
    simulation.submit(0, 9, 5, 30);
    simulation.submit(1, 3, 1, 4);
    simulation.step();
    assert_eq!(simulation.scheduler.cancel(RequestId(0)).len(), 5);
    simulation.run(100);
    assert_eq!(simulation.finished, 1);
}

#[test]
fn free_places_wait_for_company_but_not_for_long_and_never_when_all_fit() {
    let limits = Limits { running: 4, chunk: 64, gather: 6 };
    let mut scheduler = Scheduler::new(PagePool::new(64, 4), limits);
    let mut order = 0;
    let mut push = |scheduler: &mut Scheduler| {
        let request = std::sync::Arc::new(Request::new(vec![1, 2, 3], 100));
        scheduler.push(Sequence::new(RequestId(order), 0, request, order));
        order += 1;
    };
    (0..10).for_each(|_| push(&mut scheduler));
    let step = scheduler.schedule();
    assert_eq!(step.chunks.len(), 4, "an empty generator fills up at once");
    scheduler.computed(&step);
    drop(scheduler.remove(0));
    for _ in 0..PATIENCE {
        assert_eq!(scheduler.schedule().chunks.len(), 0, "three tokens are not worth a step");
        assert_eq!(scheduler.running.len(), 3);
    }
    assert_eq!(scheduler.schedule().chunks.len(), 1, "patience has an end");
    drop(scheduler.remove(0));
    drop(scheduler.remove(0));
    assert_eq!(scheduler.schedule().chunks.len(), 3, "six tokens are worth it");
    drop(scheduler.remove(0));
    drop(scheduler.remove(0));
    let _ = scheduler.schedule();
    assert_eq!(scheduler.waiting(), 1);
    drop(scheduler.remove(0));
    let _ = scheduler.schedule();
    assert_eq!(scheduler.waiting(), 0, "the last one has nobody to wait for");
}

#[test]
fn steps_begun_ahead_write_what_steps_in_turn_write() {
    let mut begun_ahead = 0;
    for seed in 0..60 {
        let runs = [false, true].map(|is_ahead| {
            let mut dice = Dice(seed);
            let gather = dice.below(2) * 6;
            let limits = Limits { running: 6, chunk: 9, gather };
            let mut simulation = Simulation::new(24 + dice.below(80), limits);
            simulation.is_ahead = is_ahead;
            simulation.has_stops = dice.below(2) == 0;
            for number in 0..25 {
                let completions = 1 + dice.below(3);
                let (prompt, most) = (1 + dice.below(9), 12 + dice.below(24));
                if dice.below(3) == 0 {
                    simulation.submit_interrupted(number, prompt, completions, most);
                } else {
                    simulation.submit(number, prompt, completions, most);
                }
            }
            for _ in 0..10 {
                simulation.step();
            }
            drop(simulation.scheduler.cancel(RequestId(3)));
            simulation.run(20_000);
            begun_ahead += simulation.begun_ahead;
            simulation.written
        });
        for (order, tokens) in &runs[0] {
            // Cancelled after as many steps, which is not after as many tokens.
            assert!(order / 100 == 3 || runs[1].get(order) == Some(tokens), "sequence {order}");
        }
    }
    assert!(begun_ahead > 1000, "{begun_ahead} steps were begun ahead");
}

#[test]
fn nothing_begins_ahead_of_a_change_of_who_runs() {
    let limits = Limits { running: 2, chunk: 64, gather: 0 };
    let mut simulation = Simulation::new(64, limits);
    simulation.submit(0, 3, 1, 3);
    simulation.submit(1, 3, 1, 9);
    simulation.submit(2, 3, 1, 9);
    assert_eq!(simulation.planned(), [0, 1]);
    let positions = |rows: Option<Vec<AheadRow>>| -> Vec<usize> {
        rows.expect("plain decoding").iter().map(|row| row.position).collect()
    };
    assert_eq!(simulation.scheduler.ahead(1), None, "one of the two is not drawn for");
    assert_eq!(positions(simulation.scheduler.ahead(2)), [3, 3]);
    simulation.accept(&[0, 1]);
    let _ = simulation.planned();
    assert_eq!(positions(simulation.scheduler.ahead(2)), [4, 4]);
    simulation.accept(&[0, 1]);
    let _ = simulation.planned();
    // The first ends with its third token, and somebody waits for its place.
    assert_eq!(simulation.scheduler.ahead(2), None);
    drop(simulation.scheduler.cancel(RequestId(2)));
    let rows = simulation.scheduler.ahead(2).expect("nobody waits");
    assert_eq!(rows.iter().map(|row| row.place).collect::<Vec<_>>(), [1]);
    simulation.accept(&[0, 1]);
    assert_eq!(simulation.scheduler.confirm(&rows[0]), Some(0), "where it is by now");
    assert_eq!(simulation.scheduler.confirm(&rows[0]), None, "only once");
}

//! The scheduler alone, with pages that hold what was written instead of tensors.

use std::sync::Arc;

use super::super::request::{Finish, Request, Token};
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
}

impl Simulation {
    fn new(pages: usize, limits: Limits) -> Self {
        let scheduler = Scheduler::new(PagePool::new(pages, SIZE), limits);
        Self { scheduler, memory: vec![[-1; SIZE]; pages], finished: 0, steps: 0 }
    }

    fn submit(&mut self, number: u64, prompt: usize, completions: usize, max_tokens: usize) {
        let tokens = (0..prompt as i64).map(|i| number as i64 * 1000 + i).collect();
        let request = Arc::new(Request { completions, ..Request::new(tokens, max_tokens) });
        for index in 0..completions {
            let order = number * 100 + index as u64;
            self.scheduler.push(Sequence::new(RequestId(number), index, request.clone(), order));
        }
    }

    /// One step; checks that every sequence finds its own tokens on its pages.
    fn step(&mut self) {
        self.steps += 1;
        let plan = self.scheduler.plan();
        assert!(!plan.chunks.is_empty(), "a step without work never ends");
        let reads: Vec<_> =
            plan.copies.iter().map(|(from, _)| self.memory[*from as usize]).collect();
        for ((_, to), content) in plan.copies.iter().zip(reads) {
            self.memory[*to as usize] = content;
        }
        for chunk in &plan.chunks {
            let sequence = &self.scheduler.running[chunk.place];
            for position in chunk.from..chunk.from + chunk.count {
                let page = sequence.pages[position / SIZE];
                assert!(!self.scheduler.pool.is_shared(page), "wrote into a shared page");
                self.memory[page as usize][position % SIZE] = sequence.tokens[position];
            }
        }
        for chunk in &plan.chunks {
            let sequence = &self.scheduler.running[chunk.place];
            for position in 0..chunk.from + chunk.count {
                let held = self.memory[sequence.pages[position / SIZE] as usize][position % SIZE];
                assert_eq!(held, sequence.tokens[position], "position {position} was lost");
            }
        }
        self.scheduler.computed(&plan);
        for chunk in plan.chunks.iter().rev().filter(|chunk| chunk.is_last) {
            let sequence = &mut self.scheduler.running[chunk.place];
            // Unlike any other token, so that a mix-up is seen.
            let id = (sequence.order as i64 + 1) * 1_000_000 + sequence.tokens.len() as i64;
            let token = Token { id, logprob: Some(0.0), version: 0, is_injected: false };
            if sequence.accept(token, |_| false) == Some(Finish::Length) {
                drop(self.scheduler.remove(chunk.place));
                self.finished += 1;
            }
        }
    }

    fn run(&mut self, most: usize) {
        while !self.scheduler.running.is_empty() || self.scheduler.waiting() > 0 {
            self.step();
            assert!(self.steps < most, "no end after {most} steps");
        }
        assert_eq!(self.scheduler.pool.free_pages(), self.scheduler.pool.pages(), "pages leaked");
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
        assert!(simulation.scheduler.set_aside_so_far() > 0, "the pool was never short");
    }
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
    let first = simulation.scheduler.plan();
    assert_eq!(first.chunks.len(), 1, "the leader alone computes the prompt");
    simulation.scheduler.computed(&first);
    let second = simulation.scheduler.plan();
    let counts: Vec<usize> = second.chunks.iter().map(|chunk| chunk.count).collect();
    assert_eq!(counts, [1, 1, 1], "the others run the last token only");
    assert!(simulation.scheduler.pool.usage(0).shared_pages >= 4);
    // Four whole pages once, and a last page each.
    assert_eq!(simulation.scheduler.pool.usage(0).pages_in_use, 4 + 4);
}

#[test]
fn a_long_prompt_does_not_hold_up_those_who_decode() {
    let mut simulation = Simulation::new(100, Limits { running: 4, chunk: 8, gather: 0 });
    simulation.submit(0, 2, 1, 50);
    simulation.step();
    simulation.submit(1, 80, 1, 2);
    for _ in 0..5 {
        let plan = simulation.scheduler.plan();
        assert_eq!(plan.chunks[0].count, 1, "the old one decodes in every step");
        assert!(plan.chunks.iter().map(|chunk| chunk.count).sum::<usize>() <= 9);
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
    let plan = scheduler.plan();
    assert_eq!(plan.chunks.len(), 4, "an empty generator fills up at once");
    scheduler.computed(&plan);
    drop(scheduler.remove(0));
    for _ in 0..PATIENCE {
        assert_eq!(scheduler.plan().chunks.len(), 0, "three tokens are not worth a step");
        assert_eq!(scheduler.running.len(), 3);
    }
    assert_eq!(scheduler.plan().chunks.len(), 1, "patience has an end");
    drop(scheduler.remove(0));
    drop(scheduler.remove(0));
    assert_eq!(scheduler.plan().chunks.len(), 3, "six tokens are worth it");
    drop(scheduler.remove(0));
    drop(scheduler.remove(0));
    let _ = scheduler.plan();
    assert_eq!(scheduler.waiting(), 1);
    drop(scheduler.remove(0));
    let _ = scheduler.plan();
    assert_eq!(scheduler.waiting(), 0, "the last one has nobody to wait for");
}

//! Who runs in the next step, and on which pages.
//!
//! ```text
//! submit --> waiting --admit--> running --finish--> out
//!               ^                  |
//!               +---- set aside ---+   the youngest, when pages run out; computed again later
//! ```
//! Sequences are served oldest first, and a sequence takes pages only from younger ones. So the
//! oldest always gets on, whatever the load, and a request that fits alone is always finished.
//!
//! Completions of one prompt share its pages. The first to compute the prompt is its *leader*; the
//! others wait for it, then hold the same pages and copy the last, half-filled one when they write
//! into it. The shared prefix is let go when nobody waits for it, when pages run out, and always
//! when weights change: no prefix survives a policy version. Where conversations go on, pages of
//! sequences that have ended are kept as well (`prefixes.rs`), as long as nobody needs them.
//!
//! Plain numbers: tensors follow the [`ScheduledStep`] in `generator.rs`.

use std::collections::{BTreeMap, VecDeque};

use super::pool::{Page, PagePool, PoolUsage};
use super::request::RequestId;
use super::sequence::Sequence;
use prefixes::Prefixes;

/// What limits a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most sequences that run at once.
    pub(crate) running: usize,
    /// Most tokens of one step beside one per decoding sequence: a long prompt is computed in
    /// chunks and holds nobody up.
    pub(crate) chunk: usize,
    /// Prompt tokens that are worth a step: while more sequences wait than there is room for,
    /// places stay free until prompts of this many tokens can begin together, for a few steps.
    pub(crate) gather: usize,
}

mod ahead;
mod prefixes;

pub(crate) use ahead::AheadRow;

/// Steps that a free place waits for others, at most.
const PATIENCE: usize = 16;

/// Tokens of one running sequence that run in this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Place among the running sequences.
    pub(crate) place: usize,
    pub(crate) from: usize,
    pub(crate) count: usize,
    /// Whether the next token can be drawn after it.
    pub(crate) is_last: bool,
}

/// One step. Copies come before anything else.
#[derive(Debug, Default)]
pub(crate) struct ScheduledStep {
    pub(crate) copies: Vec<(Page, Page)>,
    pub(crate) chunks: Vec<Chunk>,
}

/// What the completions of one prompt share.
#[derive(Default)]
struct SharedPrompt {
    /// Order of the sequence that computes the prompt now.
    leader: Option<u64>,
    /// Pages of the computed prefix.
    prefix: Option<Vec<Page>>,
    /// Sequences that hold no pages.
    unstarted: usize,
    live: usize,
}

pub(crate) struct Scheduler {
    pub(crate) pool: PagePool,
    pub(crate) running: Vec<Sequence>,
    /// Oldest first; those set aside are older than those never started.
    waiting: VecDeque<Sequence>,
    groups: BTreeMap<RequestId, SharedPrompt>,
    limits: Limits,
    set_aside: u64,
    /// Steps that free places have waited.
    waited: usize,
    /// `None` where nothing is kept of sequences that have ended.
    prefixes: Option<Prefixes>,
}

impl Scheduler {
    pub(crate) fn new(pool: PagePool, limits: Limits) -> Self {
        let (running, waiting) = (Vec::new(), VecDeque::new());
        let groups = BTreeMap::new();
        let (set_aside, waited, prefixes) = (0, 0, None);
        Self { pool, running, waiting, groups, limits, set_aside, waited, prefixes }
    }

    /// The same, keeping what sequences that have ended computed for those that begin alike.
    pub(crate) fn keeping_prefixes(mut self) -> Self {
        self.prefixes = Some(Prefixes::default());
        self
    }

    /// How full the cache is.
    pub(crate) fn usage(&self) -> PoolUsage {
        let reused = self.prefixes.as_ref().map_or(0, |prefixes| prefixes.reused);
        self.pool.usage(self.set_aside, reused)
    }

    /// Pages that can be taken without anybody computing anything again.
    fn free_pages(&self) -> usize {
        self.pool.free_pages() + self.pool.only_kept()
    }

    pub(crate) fn push(&mut self, sequence: Sequence) {
        let group = self.groups.entry(sequence.id).or_default();
        group.unstarted += 1;
        group.live += 1;
        self.waiting.push_back(sequence);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn group(&mut self, id: RequestId) -> &mut SharedPrompt {
        self.groups.get_mut(&id).expect("a group lives as long as its sequences")
    }

    /// Decides the next step.
    pub(crate) fn schedule(&mut self) -> ScheduledStep {
        self.admit();
        let mut step = ScheduledStep::default();
        let mut budget = self.limits.chunk;
        let mut place = 0;
        // `running` may shrink from its young end while we go.
        while place < self.running.len() {
            if let Some(count) = self.wanted(place, budget) {
                if !self.find_pages(place, count, &mut step.copies) {
                    // Nobody younger is left to give way: this one does.
                    self.set_aside(place);
                    continue;
                }
                let sequence = &self.running[place];
                let is_last = count == sequence.pending();
                if sequence.pending() > 1 {
                    budget -= count;
                }
                step.chunks.push(Chunk { place, from: sequence.computed, count, is_last });
            }
            place += 1;
        }
        step
    }

    /// Tokens that the sequence would run now; `None` when it has to wait.
    fn wanted(&mut self, place: usize, budget: usize) -> Option<usize> {
        let sequence = &self.running[place];
        if sequence.pages.is_empty() && !self.begin(place) {
            return None;
        }
        let pending = self.running[place].pending();
        if pending == 1 {
            return Some(1);
        }
        let count = pending.min(budget);
        (count > 0).then_some(count)
    }

    /// Gives a sequence without pages its prefix, or makes it the one that computes it. `false`:
    /// somebody else is computing it.
    fn begin(&mut self, place: usize) -> bool {
        let (id, order, prefix) = {
            let sequence = &self.running[place];
            (sequence.id, sequence.order, sequence.prefix())
        };
        let group = self.groups.get_mut(&id).expect("a group lives as long as its sequences");
        if let Some(pages) = group.prefix.clone() {
            self.pool.share_all(&pages);
            let sequence = &mut self.running[place];
            sequence.computed = prefix;
            sequence.pages = pages;
            group.unstarted -= 1;
            if group.unstarted == 0 {
                self.drop_prefix(id);
            }
            return true;
        }
        if prefix == 0 || group.live == 1 {
            self.reuse(place);
            return true;
        }
        let is_leader = *group.leader.get_or_insert(order) == order;
        if is_leader {
            self.reuse(place);
        }
        is_leader
    }

    /// Gives a sequence without pages those that an ended one left, as far as it begins alike. Its last
    /// token always runs: its output is what is drawn from.
    fn reuse(&mut self, place: usize) {
        let Some(prefixes) = &mut self.prefixes else { return };
        let sequence = &mut self.running[place];
        let before_last = sequence.tokens.len() - 1;
        let pages = prefixes.find(&sequence.tokens[..before_last], &mut self.pool);
        if pages.is_empty() {
            return;
        }
        sequence.computed = pages.len() * self.pool.tokens_per_page();
        sequence.pages = pages;
        let id = sequence.id;
        self.group(id).unstarted -= 1;
    }

    /// Pages for the next `count` tokens, none of them shared where they are written.
    fn find_pages(&mut self, place: usize, count: usize, copies: &mut Vec<(Page, Page)>) -> bool {
        let size = self.pool.tokens_per_page();
        let (computed, held) = {
            let sequence = &self.running[place];
            (sequence.computed, sequence.pages.len())
        };
        while computed % size != 0
            && self.pool.is_shared(self.running[place].pages[computed / size])
        {
            let Some(copy) = self.pool.take() else {
                // Room made may be another holder of this very page gone: look again.
                if self.make_room(place) {
                    continue;
                }
                return false;
            };
            let original = std::mem::replace(&mut self.running[place].pages[computed / size], copy);
            self.pool.release(original);
            copies.push((original, copy));
        }
        for _ in held..self.pool.pages_for(computed + count) {
            let Some(page) = self.take_page(place) else { return false };
            if self.running[place].pages.is_empty() {
                let id = self.running[place].id;
                self.group(id).unstarted -= 1;
            }
            self.running[place].pages.push(page);
        }
        true
    }

    fn take_page(&mut self, place: usize) -> Option<Page> {
        loop {
            if let Some(page) = self.pool.take() {
                return Some(page);
            }
            if !self.make_room(place) {
                return None;
            }
        }
    }

    /// Lets go of a shared prefix, or else sets aside the youngest sequence behind this one: those
    /// have not been planned yet, so nothing planned is lost.
    fn make_room(&mut self, place: usize) -> bool {
        if self.prefixes.as_mut().is_some_and(|prefixes| prefixes.drop_one(&mut self.pool)) {
            return true;
        }
        if self.drop_one_prefix() {
            return true;
        }
        let youngest = self.running.len() - 1;
        if youngest > place {
            self.set_aside(youngest);
        }
        youngest > place
    }

    fn drop_one_prefix(&mut self) -> bool {
        let found = self.groups.iter().rev().find(|(_, group)| group.prefix.is_some());
        let Some(id) = found.map(|(id, _)| *id) else { return false };
        self.drop_prefix(id);
        true
    }

    fn drop_prefix(&mut self, id: RequestId) {
        let pages = self.group(id).prefix.take();
        self.pool.release_all(&pages.unwrap_or_default());
    }

    /// Takes a sequence's pages away.
    fn empty(&mut self, place: usize) {
        let sequence = &mut self.running[place];
        let pages = std::mem::take(&mut sequence.pages);
        (sequence.computed, sequence.is_mixed) = (0, false);
        let (id, order) = (sequence.id, sequence.order);
        let group = self.group(id);
        group.unstarted += usize::from(!pages.is_empty());
        if group.leader == Some(order) {
            group.leader = None;
        }
        self.pool.release_all(&pages);
    }

    fn set_aside(&mut self, place: usize) {
        let had_pages = !self.running[place].pages.is_empty();
        self.empty(place);
        let sequence = self.running.remove(place);
        self.set_aside += u64::from(had_pages);
        let at = self.waiting.partition_point(|waiting| waiting.order < sequence.order);
        self.waiting.insert(at, sequence);
    }

    /// Whether it pays to let places stay free for now, beside `running` sequences.
    fn is_gathering(&self, running: usize) -> bool {
        let places = self.limits.running.saturating_sub(running);
        let is_sole = running == 0 || self.waiting.len() <= places;
        let tokens: usize = self.waiting.iter().take(places).map(Sequence::pending).sum();
        places > 0 && !is_sole && tokens < self.limits.gather && self.waited < PATIENCE
    }

    fn admit(&mut self) {
        if self.is_gathering(self.running.len()) {
            self.waited += 1;
            return;
        }
        self.waited = 0;
        // Pages that running sequences are about to take for what they already have.
        let promised: usize = self.running.iter().map(|s| self.missing(s)).sum();
        let mut room = self.free_pages().saturating_sub(promised);
        while self.running.len() < self.limits.running {
            let Some(next) = self.waiting.front() else { return };
            let needed = self.missing(next);
            // Each running sequence takes a page now and then; leave some, or the newcomer is
            // set aside at once.
            let reserve = self.running.len().div_ceil(8);
            if !self.running.is_empty() && needed + reserve > room {
                return;
            }
            room = room.saturating_sub(needed);
            let next = self.waiting.pop_front().expect("looked at above");
            let at = self.running.partition_point(|running| running.order < next.order);
            self.running.insert(at, next);
        }
    }

    /// Pages a sequence still has to take until it can draw a token, sharing counted.
    fn missing(&self, sequence: &Sequence) -> usize {
        // A step ahead may have taken the next page already.
        let all = self.pool.pages_for(sequence.tokens.len());
        let mut needed = all.saturating_sub(sequence.pages.len());
        let group = &self.groups[&sequence.id];
        let is_follower = group.leader.is_some_and(|leader| leader != sequence.order);
        if sequence.pages.is_empty() && (group.prefix.is_some() || is_follower) {
            needed -= sequence.prefix() / self.pool.tokens_per_page();
        }
        needed
    }

    /// Books what a step has computed. Call before tokens are accepted and sequences leave.
    pub(crate) fn computed(&mut self, step: &ScheduledStep) {
        for chunk in &step.chunks {
            let sequence = &mut self.running[chunk.place];
            sequence.computed = chunk.from + chunk.count;
            let (id, order) = (sequence.id, sequence.order);
            let (prefix, is_there) = (sequence.prefix(), sequence.computed >= sequence.prefix());
            let group = self.group(id);
            if group.leader != Some(order) || !is_there {
                continue;
            }
            group.leader = None;
            if group.unstarted > 0 {
                let count = self.pool.pages_for(prefix);
                let pages = self.running[chunk.place].pages[..count].to_vec();
                self.pool.share_all(&pages);
                self.group(id).prefix = Some(pages);
            }
        }
    }

    /// Removes a running sequence and gives its pages back.
    pub(crate) fn remove(&mut self, place: usize) -> Sequence {
        let sequence = &self.running[place];
        if let Some(prefixes) = self.prefixes.as_mut().filter(|_| !sequence.is_mixed) {
            let computed = &sequence.tokens[..sequence.computed];
            prefixes.keep(computed, &sequence.pages, &mut self.pool);
        }
        self.empty(place);
        let sequence = self.running.remove(place);
        self.forget(sequence.id);
        sequence
    }

    /// One sequence less, which holds no pages.
    fn forget(&mut self, id: RequestId) {
        let group = self.group(id);
        group.unstarted -= 1;
        group.live -= 1;
        let (is_gone, is_unused) = (group.live == 0, group.unstarted == 0);
        if is_unused {
            self.drop_prefix(id);
        }
        if is_gone {
            self.groups.remove(&id);
        }
    }

    /// Removes every sequence of a request.
    pub(crate) fn cancel(&mut self, id: RequestId) -> Vec<Sequence> {
        let mut gone = Vec::new();
        while let Some(place) = self.running.iter().position(|sequence| sequence.id == id) {
            gone.push(self.remove(place));
        }
        while let Some(place) = self.waiting.iter().position(|sequence| sequence.id == id) {
            gone.extend(self.waiting.remove(place));
            self.forget(id);
        }
        gone
    }

    /// Weights have changed: no prefix survives; with `is_recomputed`, nothing does.
    pub(crate) fn weights_changed(&mut self, is_recomputed: bool) {
        while self.drop_one_prefix() {}
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.clear(&mut self.pool);
        }
        for sequence in &mut self.running {
            sequence.is_mixed = sequence.computed > 0;
        }
        for group in self.groups.values_mut() {
            group.leader = None;
        }
        if is_recomputed {
            for place in 0..self.running.len() {
                self.empty(place);
            }
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;

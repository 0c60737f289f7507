//! The step after the one under way, before its tokens are known here.
//!
//! A device that has drawn a token can go on with it at once; the host learns of it a little later.
//! So the next step may begin as soon as it is certain that it will be one of plain decoding: every
//! running sequence is drawn for, nobody joins, and each has a page for its next token. Those that
//! are bound to end or to be interrupted stay out. What the host finds out too late (a stop token)
//! costs a row of the next step, whose result nobody takes.
//!
//! Beginning ahead books nothing but pages: [`Scheduler::confirm`] does, when the tokens are there.
//! A step ahead that is dropped instead was never taken.

use super::Scheduler;
use crate::pool::Page;

/// A row of a step ahead: the token at `position` of a sequence, which is being drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AheadRow {
    /// Place among the running sequences, until tokens are accepted.
    pub(crate) place: usize,
    pub(crate) position: usize,
    /// Whose row it is.
    order: u64,
}

impl Scheduler {
    /// The rows of the next step, while the one under way draws for `drawing` sequences; `None`:
    /// its tokens have to be known first.
    pub(crate) fn ahead(&mut self, drawing: usize) -> Option<Vec<AheadRow>> {
        let all = self.running.len();
        if drawing < all {
            return None;
        }
        let stays = |place: &usize| !self.running[*place].is_about_to_change();
        let staying: Vec<usize> = (0..all).filter(stays).collect();
        if staying.is_empty() || self.would_admit(all - staying.len()) {
            return None;
        }
        let size = self.pool.tokens_per_page();
        let mut rows = Vec::with_capacity(staying.len());
        for place in staying {
            let sequence = &self.running[place];
            let (position, order) = (sequence.tokens.len(), sequence.order);
            match sequence.pages.get(position / size) {
                None => {
                    let page = self.take_kept_or_free()?;
                    self.running[place].pages.push(page);
                }
                // The others of its group hold this page too: it has to be copied.
                Some(page) if self.pool.is_shared(*page) => return None,
                Some(_) => {}
            }
            rows.push(AheadRow { place, position, order });
        }
        Some(rows)
    }

    /// A page that nobody who runs is on.
    fn take_kept_or_free(&mut self) -> Option<Page> {
        loop {
            if let Some(page) = self.pool.take() {
                return Some(page);
            }
            if !self.prefixes.as_mut()?.drop_one(&mut self.pool) {
                return None;
            }
        }
    }

    /// Whether a plan would let somebody in when `leaving` sequences are gone.
    fn would_admit(&mut self, leaving: usize) -> bool {
        let running = self.running.len() - leaving;
        let Some(next) = self.waiting.front().filter(|_| running < self.limits.running) else {
            return false;
        };
        // Those that leave make room, nobody has counted how much.
        let has_room = leaving > 0 || self.missing(next) + running.div_ceil(8) <= self.free_pages();
        if has_room && self.is_gathering(running) {
            self.waited += 1;
            return false;
        }
        has_room
    }

    /// Books a row of a step ahead and says where its sequence is now; `None` where the sequence
    /// has ended or has gone another way, and what was computed is of no use.
    pub(crate) fn confirm(&mut self, row: &AheadRow) -> Option<usize> {
        let place = self.running.binary_search_by_key(&row.order, |s| s.order).ok()?;
        let sequence = &mut self.running[place];
        let is_its_next =
            sequence.computed == row.position && sequence.tokens.len() == row.position + 1;
        sequence.computed += usize::from(is_its_next);
        is_its_next.then_some(place)
    }
}

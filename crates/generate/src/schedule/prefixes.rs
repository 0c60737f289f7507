//! Pages of sequences that have ended, kept for those that begin alike: the next turn of a
//! conversation does not compute its history again.
//!
//! Whole pages only, found by their tokens and by the page before them. They count as free: whoever
//! needs a page takes the one that was used longest ago, the later of two used together first. No page
//! survives a policy version.

use std::collections::{BTreeMap, BTreeSet};

use crate::pool::{Page, PagePool};

/// Names a page that is kept; 0 stands before the first.
type Kept = u64;

/// A page by what it holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Contents {
    before: Kept,
    tokens: Box<[i64]>,
}

#[derive(Debug, Clone)]
struct Entry {
    page: Page,
    contents: Contents,
    used: u64,
    /// Pages before it.
    depth: usize,
}

/// Kept pages. Each has one holder here, beside the sequences that go on from it.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    by_contents: BTreeMap<Contents, Kept>,
    entries: BTreeMap<Kept, Entry>,
    /// Longest unused first; of one use, the deepest first.
    order: BTreeSet<(u64, std::cmp::Reverse<usize>, Kept)>,
    next: Kept,
    clock: u64,
    /// Tokens that did not have to be computed, so far.
    pub(crate) reused: u64,
}

impl Prefixes {
    /// The longest kept beginning of `tokens`, whole pages, shared with the caller.
    pub(crate) fn find(&mut self, tokens: &[i64], pool: &mut PagePool) -> Vec<Page> {
        let mut found = Vec::new();
        let mut before = 0;
        for part in tokens.chunks_exact(pool.tokens_per_page()) {
            let contents = Contents { before, tokens: part.into() };
            let Some(kept) = self.by_contents.get(&contents) else { break };
            before = *kept;
            found.push(before);
        }
        self.touch(&found);
        let pages: Vec<Page> = found.iter().map(|kept| self.entries[kept].page).collect();
        pool.share_all(&pages);
        self.reused += (pages.len() * pool.tokens_per_page()) as u64;
        pages
    }

    /// Keeps the pages of `tokens`, which a sequence is about to let go.
    pub(crate) fn keep(&mut self, tokens: &[i64], pages: &[Page], pool: &mut PagePool) {
        let mut chain = Vec::new();
        let mut before = 0;
        for (part, page) in tokens.chunks_exact(pool.tokens_per_page()).zip(pages) {
            let contents = Contents { before, tokens: part.into() };
            before = if let Some(kept) = self.by_contents.get(&contents) {
                *kept
            } else {
                pool.keep(*page);
                self.insert(contents, *page, chain.len())
            };
            chain.push(before);
        }
        self.touch(&chain);
    }

    fn insert(&mut self, contents: Contents, page: Page, depth: usize) -> Kept {
        self.next += 1;
        let (kept, used) = (self.next, self.clock);
        self.by_contents.insert(contents.clone(), kept);
        self.entries.insert(kept, Entry { page, contents, used, depth });
        self.order.insert((used, std::cmp::Reverse(depth), kept));
        kept
    }

    fn touch(&mut self, chain: &[Kept]) {
        self.clock += 1;
        for kept in chain {
            let entry = self.entries.get_mut(kept).expect("a chain is of entries");
            self.order.remove(&(entry.used, std::cmp::Reverse(entry.depth), *kept));
            entry.used = self.clock;
            self.order.insert((entry.used, std::cmp::Reverse(entry.depth), *kept));
        }
    }

    /// Lets go of the page that was used longest ago; `false` where none is kept. Another holder may
    /// still be on it.
    pub(crate) fn drop_one(&mut self, pool: &mut PagePool) -> bool {
        let Some((_, _, kept)) = self.order.pop_first() else { return false };
        let entry = self.entries.remove(&kept).expect("ordered entries are there");
        self.by_contents.remove(&entry.contents);
        pool.release_kept(entry.page);
        true
    }

    pub(crate) fn clear(&mut self, pool: &mut PagePool) {
        while self.drop_one(pool) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pool: &mut PagePool, count: usize) -> Vec<Page> {
        (0..count).map(|_| pool.take().unwrap()).collect()
    }

    #[test]
    fn the_longest_common_beginning_is_found_in_whole_pages() {
        let mut pool = PagePool::new(8, 2);
        let mut prefixes = Prefixes::default();
        let held = pages(&mut pool, 3);
        prefixes.keep(&[1, 2, 3, 4, 5], &held, &mut pool);
        pool.release_all(&held);
        assert_eq!(
            (prefixes.entries.len(), pool.free_pages()),
            (2, 6),
            "the half page is free again"
        );
        assert_eq!(prefixes.find(&[1, 2, 3, 4, 9, 9], &mut pool), held[..2]);
        assert_eq!(prefixes.find(&[1, 2, 9, 9], &mut pool), held[..1]);
        // The same tokens after others are others.
        assert!(prefixes.find(&[3, 4], &mut pool).is_empty());
        assert!(prefixes.find(&[1], &mut pool).is_empty());
        assert_eq!(prefixes.reused, 6);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_later_pages_before_earlier_ones() {
        let mut pool = PagePool::new(8, 1);
        let mut prefixes = Prefixes::default();
        for tokens in [[1, 2], [7, 8]] {
            let held = pages(&mut pool, 2);
            prefixes.keep(&tokens, &held, &mut pool);
            pool.release_all(&held);
        }
        let used = prefixes.find(&[1, 2], &mut pool);
        pool.release_all(&used);
        assert!(prefixes.drop_one(&mut pool));
        let mut length = |tokens: &[i64]| {
            let found = prefixes.find(tokens, &mut pool);
            pool.release_all(&found);
            found.len()
        };
        assert_eq!((length(&[7, 8]), length(&[1, 2])), (1, 2));
        prefixes.clear(&mut pool);
        assert_eq!((prefixes.entries.len(), pool.free_pages()), (0, 8));
    }

    #[test]
    fn a_page_that_somebody_goes_on_from_outlives_its_entry() {
        let mut pool = PagePool::new(2, 1);
        let mut prefixes = Prefixes::default();
        let held = pages(&mut pool, 1);
        prefixes.keep(&[5], &held, &mut pool);
        pool.release_all(&held);
        assert_eq!(pool.only_kept(), 1);
        let user = prefixes.find(&[5], &mut pool);
        assert_eq!(pool.only_kept(), 0, "it is in use");
        prefixes.clear(&mut pool);
        assert_eq!((pool.free_pages(), pool.only_kept()), (1, 0), "the user still holds it");
        pool.release_all(&user);
        assert_eq!(pool.free_pages(), 2);
    }
}

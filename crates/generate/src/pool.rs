//! Which pages of the KV cache are free, and how many sequences use each of the others.
//!
//! A page holds a fixed number of tokens. Sequences that begin alike hold the same pages: a page
//! is given back when its last holder lets go. Plain numbers; the tensors are in `cache.rs`.

/// Names a page.
pub(crate) type Page = u32;

/// How full the cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    pub pages: usize,
    pub tokens_per_page: usize,
    pub pages_in_use: usize,
    /// The most pages that were in use at once.
    pub peak_pages: usize,
    /// Pages with more than one holder now.
    pub shared_pages: usize,
    /// Sequences that gave up their pages to others and were computed again later, so far.
    pub set_aside: u64,
    /// Pages in use that are only kept for sequences that begin alike: free to whoever needs one.
    pub kept_pages: usize,
    /// Tokens that such pages saved from being computed, so far.
    pub reused_tokens: u64,
}

pub(crate) struct PagePool {
    holders: Vec<u32>,
    free: Vec<Page>,
    tokens_per_page: usize,
    peak: usize,
    shared: usize,
    /// Pages that are kept for later, and how many of them nobody else holds.
    is_kept: Vec<bool>,
    only_kept: usize,
}

impl PagePool {
    pub(crate) fn new(pages: usize, tokens_per_page: usize) -> Self {
        // Low pages first: easier to read in a debugger.
        let free = (0..pages as Page).rev().collect();
        let (holders, is_kept) = (vec![0; pages], vec![false; pages]);
        Self { holders, free, tokens_per_page, peak: 0, shared: 0, is_kept, only_kept: 0 }
    }

    pub(crate) fn tokens_per_page(&self) -> usize {
        self.tokens_per_page
    }

    pub(crate) fn pages(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// Pages that hold `tokens` tokens.
    pub(crate) fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.tokens_per_page)
    }

    pub(crate) fn take(&mut self) -> Option<Page> {
        let page = self.free.pop()?;
        self.holders[page as usize] = 1;
        self.peak = self.peak.max(self.holders.len() - self.free.len());
        Some(page)
    }

    /// One more holder.
    pub(crate) fn share(&mut self, page: Page) {
        let holders = &mut self.holders[page as usize];
        assert!(*holders > 0, "page {page} is free and cannot be shared");
        *holders += 1;
        self.shared += usize::from(*holders == 2);
        self.only_kept -= usize::from(*holders == 2 && self.is_kept[page as usize]);
    }

    /// One more holder, who can do without the page.
    pub(crate) fn keep(&mut self, page: Page) {
        self.share(page);
        self.is_kept[page as usize] = true;
    }

    /// That holder lets go.
    pub(crate) fn release_kept(&mut self, page: Page) {
        self.only_kept -= usize::from(self.holders[page as usize] == 1);
        self.is_kept[page as usize] = false;
        self.release(page);
    }

    /// Pages whose only holder can do without them.
    pub(crate) fn only_kept(&self) -> usize {
        self.only_kept
    }

    pub(crate) fn is_shared(&self, page: Page) -> bool {
        self.holders[page as usize] > 1
    }

    /// One holder less.
    pub(crate) fn release(&mut self, page: Page) {
        let holders = &mut self.holders[page as usize];
        assert!(*holders > 0, "page {page} was released twice");
        *holders -= 1;
        match *holders {
            0 => self.free.push(page),
            1 => {
                self.shared -= 1;
                self.only_kept += usize::from(self.is_kept[page as usize]);
            }
            _ => {}
        }
    }

    pub(crate) fn share_all(&mut self, pages: &[Page]) {
        for &page in pages {
            self.share(page);
        }
    }

    pub(crate) fn release_all(&mut self, pages: &[Page]) {
        for &page in pages {
            self.release(page);
        }
    }

    pub(crate) fn usage(&self, set_aside: u64, reused_tokens: u64) -> PoolUsage {
        PoolUsage {
            pages: self.holders.len(),
            tokens_per_page: self.tokens_per_page,
            pages_in_use: self.holders.len() - self.free.len(),
            peak_pages: self.peak,
            shared_pages: self.shared,
            set_aside,
            kept_pages: self.only_kept,
            reused_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_page_is_free_only_after_its_last_holder() {
        let mut pool = PagePool::new(2, 16);
        let page = pool.take().unwrap();
        pool.share(page);
        assert_eq!(pool.usage(0, 0).shared_pages, 1);
        pool.release(page);
        assert_eq!((pool.free_pages(), pool.usage(0, 0).shared_pages), (1, 0));
        pool.release(page);
        assert_eq!(pool.free_pages(), 2);
        assert_eq!(pool.usage(0, 0).peak_pages, 1);
    }

    #[test]
    fn an_empty_pool_says_so() {
        let mut pool = PagePool::new(1, 4);
        assert!(pool.take().is_some());
        assert!(pool.take().is_none());
        assert_eq!(pool.pages_for(9), 3);
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn releasing_twice_is_a_bug() {
        let mut pool = PagePool::new(1, 4);
        let page = pool.take().unwrap();
        pool.release(page);
        pool.release(page);
    }
}

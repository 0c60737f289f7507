//! Runs code of strangers within limits: time, memory, stack, and no panic comes out.
//!
//! A model folder brings programs along: a chat template, the patterns of a tokenizer. Neither
//! engine can bound the memory of one expression (`s ~ s` forty times is a terabyte) or the time of
//! one operation, and a thread cannot be ended from outside. So the work gets a thread of its own,
//! and the allocator of this crate keeps an account for it: a thread that asks for more than its
//! limit, from deeper down its stack than half of it, or for anything after its deadline, is parked
//! inside the allocator for good, while its caller is told. What it held (at most the limit) stays until the process ends, which is soon:
//! the caller has an error.
//!
//! Not here: code that models write (`task::sandbox`), memory that C and C++ ask for.

#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use scalerl_files::caught;
use thiserror::Error;

/// What one piece of work may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    pub(crate) memory: usize,
    /// Reserved, not used up. Recursion beyond half of it is stopped at its next allocation;
    /// beyond all of it, it would end the process.
    pub(crate) stack: usize,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Overrun {
    #[error("it needs more than {} MiB of memory", .0 >> 20)]
    Memory(usize),
    #[error("it is nested too deeply")]
    Stack,
    #[error("it takes longer than {} s", .0.as_secs())]
    Time(Duration),
    #[error("it fails: {0}")]
    Panic(String),
    #[error("no thread could be started for it: {0}")]
    NoThread(String),
}

/// Runs `work` on a thread of its own and waits for it.
pub(crate) fn run<T: Send + 'static>(
    limits: Limits,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Overrun> {
    let account = Arc::new(Account::new(limits));
    let result = Arc::new(Mutex::new(None));
    let (theirs, put) = (account.clone(), result.clone());
    let thread = std::thread::Builder::new().name("limited".into()).stack_size(limits.stack);
    let thread = thread.spawn(move || {
        theirs.deepest.set(here().saturating_sub(limits.stack / 2));
        // Alive for as long as the thread, parked or not.
        ACCOUNT.set(&raw const *theirs);
        let outcome = caught(work);
        ACCOUNT.set(std::ptr::null());
        *lock(&put) = Some(outcome);
        theirs.end(State::Ended);
    });
    thread.map_err(|error| Overrun::NoThread(error.to_string()))?;
    match account.wait(limits.time) {
        State::Running => Err(Overrun::Time(limits.time)),
        State::OverMemory => Err(Overrun::Memory(limits.memory)),
        State::OverStack => Err(Overrun::Stack),
        State::Ended => lock(&result).take().expect("put before the end").map_err(Overrun::Panic),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended,
    OverMemory,
    OverStack,
}

/// Where the stack of this thread has got to. It grows downwards.
#[inline(never)]
fn here() -> usize {
    let local = 0_u8;
    std::hint::black_box(&raw const local).addr()
}

/// What one thread has asked for, and how it ended. Shared with the thread that waits.
struct Account {
    limit: usize,
    /// These two are touched by the thread itself only.
    used: Cell<usize>,
    deepest: Cell<usize>,
    is_given_up: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

// SAFETY: the cells are touched by one thread only, the one whose `ACCOUNT` this is.
unsafe impl Sync for Account {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Account {}

impl Account {
    fn new(limits: Limits) -> Self {
        Self {
            limit: limits.memory,
            used: Cell::new(0),
            deepest: Cell::new(0),
            is_given_up: AtomicBool::new(false),
            state: Mutex::new(State::Running),
            changed: Condvar::new(),
        }
    }

    fn end(&self, state: State) {
        *lock(&self.state) = state;
        self.changed.notify_all();
    }

    fn wait(&self, time: Duration) -> State {
        let is_running = |state: &mut State| *state == State::Running;
        let waited = self.changed.wait_timeout_while(lock(&self.state), time, is_running);
        let state = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if state == State::Running {
            self.is_given_up.store(true, Ordering::Relaxed);
        }
        state
    }

    /// Returns only when the thread may go on. Allocates nothing.
    fn charge(&self, bytes: usize) {
        let used = self.used.get().saturating_add(bytes);
        if used > self.limit {
            self.end(State::OverMemory);
        } else if here() < self.deepest.get() {
            self.end(State::OverStack);
        } else if !self.is_given_up.load(Ordering::Relaxed) {
            self.used.set(used);
            return;
        }
        loop {
            std::thread::park();
        }
    }

    fn refund(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The account of this thread; null for all but those of [`run`].
    static ACCOUNT: Cell<*const Account> = const { Cell::new(std::ptr::null()) };
}

fn account() -> Option<&'static Account> {
    // SAFETY: set by `run` to an account that its thread owns, and to null before it is dropped.
    unsafe { ACCOUNT.get().as_ref() }
}

/// The system's allocator, with an account for threads of [`run`].
struct Accounting;

#[global_allocator]
static ALLOCATOR: Accounting = Accounting;

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Accounting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        account().inspect(|account| account.charge(layout.size()));
        // SAFETY: as ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        account().inspect(|account| account.charge(layout.size()));
        // SAFETY: as ours.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        account().inspect(|account| account.refund(layout.size()));
        // SAFETY: as ours.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if let Some(account) = account() {
            account.charge(size.saturating_sub(layout.size()));
            account.refund(layout.size().saturating_sub(size));
        }
        // SAFETY: as ours.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limits = Limits { time: Duration::from_mins(1), memory: 8 << 20, stack: 1 << 20 };

    #[test]
    fn work_within_its_limits_gives_its_result() {
        // Each round is freed before the next: the account goes down again.
        let sum = run(SMALL, || (0..100).map(|i| vec![i; 1 << 18].len()).sum::<usize>());
        assert_eq!(sum, Ok(100 << 18));
    }

    #[test]
    fn work_that_asks_for_too_much_is_parked() {
        let doubled = || (0..40).fold("x".to_owned(), |text, _| format!("{text}{text}")).len();
        assert_eq!(run(SMALL, doubled), Err(Overrun::Memory(8 << 20)));
        assert_eq!(run(SMALL, || vec![0_u8; 1 << 40].len()), Err(Overrun::Memory(8 << 20)));
    }

    #[test]
    fn work_that_recurses_without_end_is_parked() {
        #[expect(unconditional_recursion, reason = "that is the attack")]
        fn deeper(level: usize) -> usize {
            let held = std::hint::black_box(vec![level]);
            deeper(level + 1) + held.len()
        }
        assert_eq!(run(SMALL, || deeper(0)), Err(Overrun::Stack));
    }

    #[test]
    fn work_that_does_not_end_is_given_up_and_parked() {
        let time = Duration::from_millis(50);
        let may_allocate = Arc::new(AtomicBool::new(false));
        let theirs = may_allocate.clone();
        let thread = Arc::new(Mutex::new(None));
        let (put, limits) = (thread.clone(), Limits { time, ..SMALL });
        let endless = move || {
            *lock(&put) = std::fs::read_link("/proc/thread-self").ok();
            while !theirs.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            loop {
                drop(std::hint::black_box(vec![0_u8; 64]));
            }
        };
        assert_eq!(run::<()>(limits, endless), Err(Overrun::Time(time)));
        may_allocate.store(true, Ordering::SeqCst);
        let thread = lock(&thread).clone().unwrap();
        // It never sleeps but in the allocator: spinning, its state is R.
        let state = std::path::Path::new("/proc").join(thread).join("stat");
        let is_parked = || std::fs::read_to_string(&state).unwrap().contains(") S ");
        while !is_parked() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_panic_becomes_its_message() {
        let said = run(SMALL, || -> usize { panic!("number {}", 7) });
        assert_eq!(said, Err(Overrun::Panic("number 7".to_owned())));
    }

    #[test]
    fn other_threads_have_no_limit() {
        assert_eq!(vec![1_u8; 32 << 20].len(), 32 << 20);
    }
}

//! Verifiers behind a deadline.
//!
//! A pool of threads, each with a channel of its own. A caller takes an idle worker, hands it the
//! question and waits until the deadline. A worker that answers goes back to the pool; one that
//! does not is left to itself and replaced, so a hung verification costs one thread and never the
//! pool. A panic is caught in the worker. Both are [`Outcome::Error`] and counted.
//!
//! A verifier with limits of its own ([`Verifier::longest`]) is given at least that long: an answer
//! that uses them up is wrong, and must not become an error because we lost patience first.
//!
//! Not here: killing. Threads cannot be killed; verifiers that start processes kill those
//! themselves (`process.rs`), the native ones have budgets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::verifier::Verifier;

struct Job {
    problem: Arc<Problem>,
    answer: Answer,
    reply: Sender<Outcome>,
}

/// One thread; dropping its sender ends it.
type Worker = Sender<Job>;

struct Shared {
    verifier: Box<dyn Verifier>,
    /// Idle workers; `returned` wakes a caller that waits for one.
    idle: Mutex<Vec<Worker>>,
    returned: Condvar,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    correct: AtomicU64,
    incorrect: AtomicU64,
    undecided: AtomicU64,
    errors: AtomicU64,
    timeouts: AtomicU64,
    panics: AtomicU64,
}

/// What a pool has judged so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    /// Right answers.
    pub correct: u64,
    /// Wrong answers.
    pub incorrect: u64,
    /// Answers the verifier could not judge.
    pub undecided: u64,
    /// Failures of the verifier, among them the next two.
    pub errors: u64,
    /// Verifications that did not end in time.
    pub timeouts: u64,
    /// Verifications that panicked.
    pub panics: u64,
}

/// After a verifier's own limits, before it counts as hung.
const GRACE: Duration = Duration::from_secs(2);

/// A verifier with workers and a deadline. Shared by reference between any number of threads.
pub struct VerifierPool {
    shared: Arc<Shared>,
    deadline: Duration,
    at_once: usize,
}

impl VerifierPool {
    /// Starts `workers` threads (at least one), or as many as the verifier can use. The deadline of a
    /// verifier with limits of its own comes after them, if need be later than `deadline`.
    pub fn new(verifier: Box<dyn Verifier>, workers: usize, deadline: Duration) -> Self {
        let own = verifier.longest().map_or(Duration::ZERO, |longest| longest + GRACE);
        let deadline = deadline.max(own);
        let shared = Arc::new(Shared {
            verifier,
            idle: Mutex::new(Vec::new()),
            returned: Condvar::new(),
            counts: Counts::default(),
        });
        let at_once = shared.verifier.at_once().unwrap_or(workers).max(1);
        for _ in 0..at_once {
            give_back(&shared, start_worker(&shared));
        }
        Self { shared, deadline, at_once }
    }

    /// Verdicts it works on at once.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// The verifier itself.
    pub(crate) fn verifier(&self) -> &dyn Verifier {
        &*self.shared.verifier
    }

    /// Judges one completion, within the deadline once a worker is free. One without an answer is
    /// wrong, unless the verifier wants to see those too.
    pub fn verify(&self, problem: Arc<Problem>, answer: Answer) -> Outcome {
        if answer.text().is_none() && !self.shared.verifier.reads_all() {
            return self.count(Outcome::Incorrect);
        }
        let worker = self.take_idle();
        let (reply, verdict) = channel();
        if worker.send(Job { problem, answer, reply }).is_err() {
            give_back(&self.shared, start_worker(&self.shared));
            return self.count(Outcome::error("the verifier's worker has ended"));
        }
        match verdict.recv_timeout(self.deadline) {
            Ok(outcome) => {
                give_back(&self.shared, worker);
                self.count(outcome)
            }
            Err(problem) => {
                // The worker keeps its job; a fresh one takes its place.
                drop(worker);
                give_back(&self.shared, start_worker(&self.shared));
                if problem == RecvTimeoutError::Timeout {
                    self.shared.counts.timeouts.fetch_add(1, Ordering::Relaxed);
                }
                let seconds = self.deadline.as_secs_f64();
                self.count(Outcome::error(format!("no verdict within {seconds} s")))
            }
        }
    }

    /// The most time a verdict takes once a worker is free.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// What was judged so far.
    pub fn counts(&self) -> VerdictCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.shared.counts;
        VerdictCounts {
            correct: read(&counts.correct),
            incorrect: read(&counts.incorrect),
            undecided: read(&counts.undecided),
            errors: read(&counts.errors),
            timeouts: read(&counts.timeouts),
            panics: read(&counts.panics),
        }
    }

    fn take_idle(&self) -> Worker {
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(worker) = idle.pop() {
                return worker;
            }
            // Woken by `give_back`: every taken worker or its replacement comes back within the
            // deadline.
            idle = self.shared.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn count(&self, outcome: Outcome) -> Outcome {
        let counts = &self.shared.counts;
        let counter = match outcome {
            Outcome::Correct | Outcome::Scored { is_correct: true, .. } => &counts.correct,
            Outcome::Incorrect | Outcome::Scored { is_correct: false, .. } => &counts.incorrect,
            Outcome::Undecided { .. } => &counts.undecided,
            Outcome::Error { .. } => &counts.errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        outcome
    }
}

fn give_back(shared: &Shared, worker: Worker) {
    shared.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    shared.returned.notify_one();
}

fn start_worker(shared: &Arc<Shared>) -> Worker {
    let (sender, jobs): (Sender<Job>, Receiver<Job>) = channel();
    let shared = Arc::clone(shared);
    // Ends when its sender is dropped: with the pool, or after a timeout.
    thread::spawn(move || {
        for job in jobs {
            let judged = catch_unwind(AssertUnwindSafe(|| {
                shared.verifier.verify(&job.problem, &job.answer)
            }));
            let outcome = judged.unwrap_or_else(|_| {
                shared.counts.panics.fetch_add(1, Ordering::Relaxed);
                Outcome::error("the verifier panicked")
            });
            // Nobody listens any more after a timeout.
            let _ = job.reply.send(outcome);
        }
    });
    sender
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    struct FakeVerifier;

    impl Verifier for FakeVerifier {
        fn verify(&self, _: &Problem, answer: &Answer) -> Outcome {
            match answer.completion() {
                "hang" => {
                    thread::sleep(Duration::from_hours(1));
                    Outcome::Correct
                }
                "panic" => panic!("as asked"),
                other => Outcome::of(other == "right"),
            }
        }
    }

    fn ask(pool: &VerifierPool, completion: &str) -> Outcome {
        pool.verify(Arc::new(Problem::with_answer("")), Answer::whole(completion))
    }

    #[test]
    fn a_hung_verification_is_an_error_and_the_pool_goes_on() {
        let pool = VerifierPool::new(Box::new(FakeVerifier), 1, Duration::from_millis(100));
        let start = Instant::now();
        for _ in 0..3 {
            assert!(matches!(ask(&pool, "hang"), Outcome::Error { .. }));
        }
        assert_eq!(ask(&pool, "right"), Outcome::Correct);
        assert!(start.elapsed() < Duration::from_mins(10), "nobody waits for what hangs");
        assert_eq!(
            (pool.counts().timeouts, pool.counts().errors, pool.counts().correct),
            (3, 3, 1)
        );
    }

    /// Needs longer than its pool would wait, and says so.
    struct SlowVerifier;

    impl Verifier for SlowVerifier {
        fn verify(&self, _: &Problem, _: &Answer) -> Outcome {
            thread::sleep(Duration::from_millis(300));
            Outcome::Incorrect
        }

        fn longest(&self) -> Option<Duration> {
            Some(Duration::from_millis(300))
        }
    }

    #[test]
    fn a_verifier_may_use_up_its_own_limits() {
        let pool = VerifierPool::new(Box::new(SlowVerifier), 1, Duration::from_millis(10));
        assert_eq!(pool.deadline(), Duration::from_millis(300) + GRACE);
        assert_eq!(ask(&pool, "loops"), Outcome::Incorrect);
        let patient = VerifierPool::new(Box::new(SlowVerifier), 1, Duration::from_mins(1));
        assert_eq!(patient.deadline(), Duration::from_mins(1));
    }

    #[test]
    fn a_panic_is_an_error_not_a_wrong_answer() {
        let pool = VerifierPool::new(Box::new(FakeVerifier), 2, Duration::from_secs(5));
        assert!(matches!(ask(&pool, "panic"), Outcome::Error { .. }));
        assert_eq!(ask(&pool, "wrong"), Outcome::Incorrect);
        assert_eq!((pool.counts().panics, pool.counts().incorrect), (1, 1));
    }

    #[test]
    fn many_callers_share_few_workers() {
        let pool = VerifierPool::new(Box::new(FakeVerifier), 2, Duration::from_secs(5));
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| assert_eq!(ask(&pool, "right"), Outcome::Correct));
            }
        });
        assert_eq!(pool.counts().correct, 16);
    }
}

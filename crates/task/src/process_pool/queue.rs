//! Questions that wait for a process.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::Reply;

/// How long a process that takes several waits for the rest of a group whose first completion is there.
const LINGER: Duration = Duration::from_millis(2);

pub(super) struct Question {
    pub(super) body: Map<String, Value>,
    pub(super) reply: Sender<Reply>,
    since: Instant,
    /// Asked again after a call with others failed.
    is_alone: bool,
}

/// Filled by whoever asks, emptied by the threads that own processes.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Wakes a thread that waits for a question.
    arrived: Condvar,
    /// After which nobody waits for a question any longer.
    patience: Duration,
}

#[derive(Default)]
struct Waiting {
    questions: VecDeque<Question>,
    /// Threads that wait for questions, and share what comes.
    idle: usize,
    is_closed: bool,
}

impl Queue {
    pub(super) fn new(patience: Duration) -> Self {
        Self { waiting: Mutex::default(), arrived: Condvar::new(), patience }
    }

    pub(super) fn push(&self, body: Map<String, Value>, reply: Sender<Reply>) {
        let question = Question { body, reply, since: Instant::now(), is_alone: false };
        self.waiting().questions.push_back(question);
        self.arrived.notify_one();
    }

    /// Puts questions back, each to be asked alone, before all others.
    pub(super) fn ask_again(&self, questions: Vec<Question>) {
        let mut waiting = self.waiting();
        for question in questions.into_iter().rev() {
            waiting.questions.push_front(Question { is_alone: true, ..question });
        }
        self.arrived.notify_all();
    }

    /// A share of what waits, at most `most`, as soon as there is something; `None` when the pool is
    /// closed. Questions that nobody waits for any longer are dropped.
    pub(super) fn take(&self, most: usize) -> Option<Vec<Question>> {
        let mut waiting = self.waiting();
        waiting.idle += 1;
        let (mut waiting, taken) = self.share(waiting, most);
        waiting.idle -= 1;
        if taken.is_some() && !waiting.questions.is_empty() {
            self.arrived.notify_one();
        }
        taken
    }

    /// Waits for questions and takes as many as leave the other idle threads as many: a group that is
    /// judged one completion after the other is not one process's burst while others stand by.
    fn share<'a>(
        &'a self,
        mut waiting: MutexGuard<'a, Waiting>,
        most: usize,
    ) -> (MutexGuard<'a, Waiting>, Option<Vec<Question>>) {
        loop {
            if waiting.is_closed {
                return (waiting, None);
            }
            waiting.questions.retain(|question| question.since.elapsed() < self.patience);
            let Some(first) = waiting.questions.front() else {
                waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = LINGER.saturating_sub(first.since.elapsed());
            if !first.is_alone && waiting.questions.len() < most && !left.is_zero() {
                let waited = self.arrived.wait_timeout(waiting, left);
                waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let fair = waiting.questions.len().div_ceil(waiting.idle.max(1)).min(most);
            let together = waiting.questions.iter().take(fair).take_while(|one| !one.is_alone);
            let count = together.count().max(1);
            let taken = waiting.questions.drain(..count).collect();
            return (waiting, Some(taken));
        }
    }

    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.arrived.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn queue(count: u64) -> Queue {
        let queue = Queue::new(Duration::from_hours(1));
        for n in 0..count {
            queue.push([("n".to_owned(), n.into())].into_iter().collect(), channel().0);
        }
        queue
    }

    fn numbers(taken: Option<Vec<Question>>) -> Vec<u64> {
        let number = |question: Question| question.body["n"].as_u64().unwrap();
        taken.unwrap().into_iter().map(number).collect()
    }

    #[test]
    fn what_waits_is_taken_together_and_what_failed_alone_and_first() {
        let queue = queue(5);
        let first = queue.take(3).unwrap();
        queue.ask_again(first);
        for n in 0..3 {
            assert_eq!(numbers(queue.take(3)), [n]);
        }
        assert_eq!(numbers(queue.take(3)), [3, 4]);
        queue.close();
        assert!(queue.take(3).is_none());
    }

    #[test]
    fn what_waits_is_shared_among_those_who_stand_by() {
        let queue = queue(0);
        std::thread::scope(|scope| {
            let takers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| numbers(queue.take(64)).len())).collect();
            while queue.waiting().idle < 4 {
                std::thread::yield_now();
            }
            let mut waiting = queue.waiting();
            for n in 0..16_u64 {
                let body = [("n".to_owned(), n.into())].into_iter().collect();
                let (reply, since) = (channel().0, Instant::now());
                waiting.questions.push_back(Question { body, reply, since, is_alone: false });
            }
            drop(waiting);
            queue.arrived.notify_one();
            let counts: Vec<usize> = takers.into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(counts, [4, 4, 4, 4]);
        });
    }

    #[test]
    fn one_that_nobody_waits_for_is_dropped() {
        let queue = Queue { patience: Duration::ZERO, ..queue(3) };
        assert_eq!(queue.waiting().questions.len(), 3);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take(1).is_none());
            queue.close();
            assert!(taken.join().unwrap(), "an answer that would reach nobody");
        });
    }
}

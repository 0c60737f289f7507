//! Trackers beside a run that is alive: one thread for each, which reads files and nothing else.
//!
//! The engine does not know of them; they end when [`Following::end`] is called, after a bounded last
//! effort. A tracker's trouble gets one line when it begins and one when it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use scalerl_journal::{RunFolder, read_events};

use crate::delivery::{Delivery, Outcome};
use crate::error::TrackError;
use crate::tracker::Target;

/// Time between two looks at the journal.
const EVERY: Duration = Duration::from_secs(2);

/// First pause after trouble; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Pause in the last effort.
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// Shows a line to whoever watches the run.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The trackers of a run that is alive.
pub struct Following {
    run: PathBuf,
    threads: Vec<Followed>,
    /// Gets the number of each thread that is up to date at the end.
    done: Receiver<usize>,
}

struct Followed {
    name: &'static str,
    /// Gets the deadline of the last effort.
    end: Sender<Instant>,
}

impl Following {
    /// Starts a thread for each tracker. Cannot fail: what is wrong is said, and tried again.
    pub fn start(run: &Path, targets: &[Target], say: &Say) -> Self {
        // Of a run that goes on, lines may be about to be taken back.
        let lines = RunFolder::open(run).and_then(|folder| read_events(&folder.events()));
        let hold = lines.map_or(0, |lines| lines.len());
        let (tell, done) = mpsc::channel();
        let mut threads = Vec::new();
        for target in targets {
            let (end, ended) = mpsc::channel();
            let (run, target, say, tell) =
                (run.to_owned(), target.clone(), say.clone(), tell.clone());
            let (name, index, shown) = (target.name(), threads.len(), say.clone());
            let follow = move || {
                let mut follower =
                    Follower { run, target, hold, delivery: None, trouble: None, say };
                if follower.follow(&ended) {
                    // Nobody listens after the deadline.
                    tell.send(index).ok();
                }
            };
            match thread::Builder::new().name(format!("track-{name}")).spawn(follow) {
                Ok(_) => threads.push(Followed { name, end }),
                Err(error) => (*shown)(&format!("{name}: no thread for it: {error}")),
            }
        }
        Self { run: run.to_owned(), threads, done }
    }

    /// Lets every tracker catch up, for at most this long; a line for each that could not.
    pub fn end(self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        for thread in &self.threads {
            // A thread that is gone has said why.
            thread.end.send(deadline).ok();
        }
        let mut behind: Vec<Option<&'static str>> =
            self.threads.iter().map(|thread| Some(thread.name)).collect();
        while behind.iter().any(Option::is_some) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.done.recv_timeout(left) {
                Ok(index) => behind[index] = None,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let line = |name: &'static str| {
            let run = self.run.display();
            format!(
                "{name} has not got everything; scalerl export {run} --to {name} sends the rest"
            )
        };
        behind.into_iter().flatten().map(line).collect()
    }
}

/// One thread.
struct Follower {
    run: PathBuf,
    target: Target,
    hold: usize,
    delivery: Option<Delivery>,
    /// When it began, and the last error.
    trouble: Option<(Instant, String)>,
    say: Say,
}

impl Follower {
    /// Until told to end and up to date, or out of time. Whether everything was sent.
    fn follow(&mut self, ended: &Receiver<Instant>) -> bool {
        let (mut pause, mut deadline) = (FIRST_PAUSE, None);
        loop {
            let wait = match self.step(deadline.is_some()) {
                Ok(Outcome::Sent) => Duration::ZERO,
                Ok(Outcome::UpToDate) if deadline.is_some() => return true,
                Ok(Outcome::UpToDate) => EVERY,
                Err(_) if deadline.is_some() => LAST_PAUSE,
                Err(_) => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    pause / 2
                }
            };
            if self.trouble.is_none() {
                pause = FIRST_PAUSE;
            }
            if deadline.is_some_and(|deadline| Instant::now() + wait > deadline) {
                return false;
            }
            match ended.recv_timeout(wait) {
                Ok(last) => deadline = Some(last),
                Err(RecvTimeoutError::Timeout) => {}
                // The run is gone without an end: so is this process, soon.
                Err(RecvTimeoutError::Disconnected) if deadline.is_none() => return false,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(wait),
            }
        }
    }

    fn step(&mut self, is_last: bool) -> Result<Outcome, TrackError> {
        let done = self.try_step(is_last);
        match (&done, self.trouble.take()) {
            (Err(error), None) => {
                let name = self.target.name();
                (self.say)(&format!("{name}: {error}; the run goes on, and this is tried again"));
                self.trouble = Some((Instant::now(), error.to_string()));
            }
            (Err(error), Some((since, _))) => self.trouble = Some((since, error.to_string())),
            (Ok(_), Some((since, _))) => {
                let (name, seconds) = (self.target.name(), since.elapsed().as_secs());
                (self.say)(&format!("{name}: works again after {seconds} s; nothing is missing"));
            }
            (Ok(_), None) => {}
        }
        done
    }

    fn try_step(&mut self, is_last: bool) -> Result<Outcome, TrackError> {
        if self.delivery.is_none() {
            let mut delivery = Delivery::new(&self.run, self.target.clone())?;
            delivery.hold(self.hold);
            self.delivery = Some(delivery);
        }
        let Some(delivery) = &mut self.delivery else { return Ok(Outcome::Sent) };
        if is_last && self.hold > 0 {
            self.hold = 0;
            delivery.hold(0);
        }
        let outcome = delivery.pass()?;
        if is_last && outcome == Outcome::UpToDate {
            delivery.finish()?;
        }
        Ok(outcome)
    }
}

//! Progress of long work: a bar on a terminal, a plain line now and then otherwise.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work shorter than this is not reported on.
const QUIET: Duration = Duration::from_secs(1);
/// Time between plain lines.
const EVERY: Duration = Duration::from_secs(5);

/// Counts finished pieces of work; shared by worker threads.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    label: &'static str,
    total: usize,
    lines: Mutex<Lines>,
}

struct Lines {
    done: usize,
    last: Instant,
    start: Instant,
}

impl Progress {
    pub(crate) fn new(label: &'static str, total: usize) -> Self {
        let bar = (std::io::stderr().is_terminal() && total > 1).then(|| {
            let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {eta}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total as u64).with_style(style).with_prefix(label)
        });
        let start = Instant::now();
        Self { bar, label, total, lines: Mutex::new(Lines { done: 0, last: start, start }) }
    }

    /// One more piece is done.
    pub(crate) fn tick(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            return;
        }
        let mut lines = self.lines.lock().expect("a panic elsewhere ends the command anyway");
        lines.done += 1;
        let is_due = lines.last.elapsed() > EVERY && lines.start.elapsed() > QUIET;
        if is_due && lines.done < self.total {
            lines.last = Instant::now();
            let line = format!("{}: {} of {}", self.label, lines.done, self.total);
            // Progress is a courtesy: a closed standard error must not end the work.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

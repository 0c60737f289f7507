//! Following one run: from the lines of its journal to a digest, also through resumes.
//!
//! A `resumed` event takes back lines before it, and a digest cannot forget. So a run is read twice:
//! first only for its resumes, which says which lines count, then for all else. A resume that comes
//! while a run is followed starts both readings anew; what was known stays on show until they are
//! done.
//!
//! ```text
//! Scan (resumes) --end--> Fold (digest) --more lines--> Fold …
//!   ^                        '-- a new resume, another file --.
//!   '---------------------------------------------------------'
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;

use scalerl_journal::{Event, RunFolder, What};

use crate::digest::{self, Digest, Line};
use crate::tail::{Reached, Tail, Verdict};

/// Lines that resumes have taken back, as ranges.
#[derive(Debug, Clone, Default)]
struct Undone {
    ranges: Vec<(usize, usize)>,
    /// Lines of the resumes themselves.
    resumes: Vec<usize>,
}

impl Undone {
    fn holds(&self, line: usize) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..*to).contains(&line))
    }
}

enum Phase {
    Scan(Tail),
    Fold(Tail),
}

/// Follows one run folder.
pub struct Follower {
    name: String,
    events: std::path::PathBuf,
    phase: Phase,
    undone: Undone,
    building: Digest,
    /// The last digest of all that was there; `None` until the first.
    shown: Option<Arc<Digest>>,
    generation: u64,
}

impl Follower {
    /// Begins with nothing read.
    pub fn new(folder: &RunFolder) -> Self {
        let events = folder.events();
        Self {
            name: folder.name(),
            phase: Phase::Scan(Tail::new(events.clone())),
            events,
            undone: Undone::default(),
            building: Digest::default(),
            shown: None,
            generation: 0,
        }
    }

    /// Begins with nothing read, of a folder by its path.
    pub fn open(path: &Path) -> Result<Self, scalerl_journal::JournalError> {
        Ok(Self::new(&RunFolder::open(path)?))
    }

    /// The digest of everything that was there at the last whole reading.
    pub fn digest(&self) -> Option<Arc<Digest>> {
        self.shown.clone()
    }

    /// Rises with every new digest.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Share of the work of a first reading that is done.
    pub fn progress(&self) -> f64 {
        match &self.phase {
            // Looking for resumes is the lighter part.
            Phase::Scan(tail) => 0.2 * tail.progress(),
            Phase::Fold(tail) => 0.2 + 0.8 * tail.progress(),
        }
    }

    /// First line that is no event though events follow it.
    pub fn damaged(&self) -> Option<usize> {
        match &self.phase {
            Phase::Scan(_) => None,
            Phase::Fold(tail) => tail.damaged(),
        }
    }

    fn restart(&mut self) {
        self.phase = Phase::Scan(Tail::new(self.events.clone()));
        self.undone = Undone::default();
        self.building = Digest::default();
    }

    /// Reads about `budget` bytes on. True when all that is there has been read.
    pub fn advance(&mut self, budget: u64) -> io::Result<bool> {
        let reached = match &mut self.phase {
            Phase::Scan(tail) => {
                let undone = &mut self.undone;
                let reached = tail.read(budget, |index, line| scan(undone, index, line))?;
                if reached == Reached::End {
                    self.phase = Phase::Fold(Tail::new(self.events.clone()));
                    return Ok(false);
                }
                reached
            }
            Phase::Fold(tail) => {
                let (undone, building, name) = (&self.undone, &mut self.building, &self.name);
                let mut is_changed = self.shown.is_none();
                let reached = tail.read(budget, |index, line| {
                    is_changed = true;
                    fold(undone, building, name, index, line)
                })?;
                if reached == Reached::End && is_changed {
                    self.shown = Some(Arc::new(self.building.clone()));
                    self.generation += 1;
                }
                reached
            }
        };
        match reached {
            Reached::End => Ok(true),
            Reached::Budget => Ok(false),
            Reached::Halted | Reached::Replaced => {
                self.restart();
                Ok(false)
            }
        }
    }

    /// Reads to the end of what is there.
    pub fn catch_up(&mut self) -> io::Result<Arc<Digest>> {
        loop {
            if self.advance(u64::MAX)?
                && let Some(digest) = &self.shown
            {
                return Ok(digest.clone());
            }
        }
    }
}

fn scan(undone: &mut Undone, index: usize, line: &[u8]) -> Verdict {
    let is_object = line.first() == Some(&b'{') && line.last() == Some(&b'}');
    if digest::kind(line) != Some(b"resumed") {
        return if is_object { Verdict::Whole } else { Verdict::Broken };
    }
    let Ok(Event { what: What::Resumed { kept, .. }, .. }) = serde_json::from_slice(line) else {
        return Verdict::Broken;
    };
    if kept < index {
        undone.ranges.push((kept, index));
    }
    undone.resumes.push(index);
    Verdict::Whole
}

fn fold(undone: &Undone, building: &mut Digest, name: &str, index: usize, line: &[u8]) -> Verdict {
    let Some(line) = digest::parse(line) else { return Verdict::Broken };
    if let Line::Parsed(event) = &line
        && matches!(event.what, What::Resumed { .. })
        && !undone.resumes.contains(&index)
    {
        return Verdict::Halt;
    }
    if undone.holds(index) {
        building.add_undone(line);
    } else {
        building.add(name, line);
    }
    Verdict::Whole
}

//! Following one run: from the lines of its journal to a digest, also through resumes.
//!
//! A digest cannot forget, so a run is read twice: first only for its resumes, then for all else
//! (`scalerl_journal`'s `Resumes`). A resume that comes while a run is followed starts both readings
//! anew; what was known stays on show until they are done.

use std::io;
use std::path::Path;
use std::sync::Arc;

use scalerl_journal::{Reached, Resumes, RunFolder, Tail, Verdict, What};

use crate::digest::{self, Digest, Line};

enum Phase {
    Scan(Tail),
    Fold(Tail),
}

/// Follows one run folder.
pub struct Follower {
    name: String,
    events: std::path::PathBuf,
    phase: Phase,
    resumes: Resumes,
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
            resumes: Resumes::default(),
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
        self.resumes = Resumes::default();
        self.building = Digest::default();
    }

    /// Reads about `budget` bytes on. True when all that is there has been read.
    pub fn advance(&mut self, budget: u64) -> io::Result<bool> {
        let reached = match &mut self.phase {
            Phase::Scan(tail) => {
                let resumes = &mut self.resumes;
                let reached = tail.read(budget, |index, line| resumes.look(index, line))?;
                if reached == Reached::End {
                    self.phase = Phase::Fold(Tail::new(self.events.clone()));
                    return Ok(false);
                }
                reached
            }
            Phase::Fold(tail) => {
                let (resumes, building, name) = (&self.resumes, &mut self.building, &self.name);
                let mut is_changed = self.shown.is_none();
                let reached = tail.read(budget, |index, line| {
                    is_changed = true;
                    fold(resumes, building, name, index, line)
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

fn fold(
    resumes: &Resumes,
    building: &mut Digest,
    name: &str,
    index: usize,
    line: &[u8],
) -> Verdict {
    let Some(line) = digest::parse(line) else { return Verdict::Broken };
    if let Line::Parsed(event) = &line
        && matches!(event.what, What::Resumed { .. })
        && !resumes.is_known(index)
    {
        return Verdict::Halt;
    }
    if resumes.take_back(index) {
        building.add_undone(line);
    } else {
        building.add(name, line);
    }
    Verdict::Whole
}

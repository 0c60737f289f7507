//! A library of finished runs: one readable file that outlives their folders.
//!
//! JSON lines, one [`HistoryEntry`] each, oldest first. It is small (a few kilobytes a run), can be
//! shared in a team, and is changed under a lock and written whole: a reader sees the old file or
//! the new one, and two writers do not lose each other's runs.
//!
//! Not here: where the file is (the command line knows), and what an entry says (`curve`).

use std::{
    fs::File,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use scalerl_curve::HistoryEntry;

use crate::{
    durable::{create_folder, json_lines, parent, write_whole},
    error::JournalError,
};

/// The library in one file.
#[derive(Debug, Clone)]
pub struct Library {
    path: PathBuf,
}

/// What became of an entry that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is in the library now.
    New,
    /// One of this name with the same points was there: nothing changed.
    Known,
    /// One of this name with other points was there: nothing changed.
    NameTaken,
}

impl Library {
    /// The library in `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every entry, oldest first; none where there is no file yet.
    pub fn entries(&self) -> Result<Vec<HistoryEntry>, JournalError> {
        let text = match scalerl_files::read_to_string(&self.path, scalerl_files::DOCUMENT) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(JournalError::io("read", &self.path)(error)),
        };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines.map(|(index, line)| self.entry(index + 1, line)).collect()
    }

    fn entry(&self, line: usize, text: &str) -> Result<HistoryEntry, JournalError> {
        serde_json::from_str(text).map_err(|error| JournalError::Damaged {
            path: self.path.clone(),
            line,
            problem: error.to_string(),
        })
    }

    /// Adds entries that are not there; says of each what became of it.
    pub fn add(&self, new: Vec<HistoryEntry>) -> Result<Vec<Added>, JournalError> {
        self.change(|entries| {
            let add = |entry: HistoryEntry| {
                let known = entries.iter().find(|known| known.name == entry.name);
                let outcome = match known {
                    None => Added::New,
                    Some(known) if known.measured == entry.measured => Added::Known,
                    Some(_) => Added::NameTaken,
                };
                if outcome == Added::New {
                    entries.push(entry);
                }
                outcome
            };
            new.into_iter().map(add).collect()
        })
    }

    /// Removes the entries of these names; says of each name whether it was there.
    pub fn remove(&self, names: &[String]) -> Result<Vec<bool>, JournalError> {
        self.change(|entries| {
            let was_there = |name: &String| entries.iter().any(|entry| entry.name == *name);
            let found = names.iter().map(was_there).collect();
            entries.retain(|entry| !names.contains(&entry.name));
            found
        })
    }

    /// Reads, changes and writes under a lock; an unchanged library is not written.
    fn change<T>(&self, act: impl FnOnce(&mut Vec<HistoryEntry>) -> T) -> Result<T, JournalError> {
        create_folder(&parent(&self.path))?;
        let lock = self.path.with_extension("lock");
        let held = File::create(&lock).map_err(JournalError::io("create", &lock))?;
        // Held for as long as it takes to write a small file; freed when `held` is dropped.
        held.lock().map_err(JournalError::io("lock", &lock))?;
        let mut entries = self.entries()?;
        let before = entries.len();
        let outcome = act(&mut entries);
        if entries.len() != before {
            write_whole(&self.path, &json_lines(&self.path, &entries)?)?;
        }
        Ok(outcome)
    }
}

/// Does this text look like a library rather than a log?
pub fn is_library(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| serde_json::from_str::<HistoryEntry>(line).is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use scalerl_curve::{Compute, Point, Series};

    use super::*;

    fn entry(name: &str, ceiling: f64) -> HistoryEntry {
        let value = |i: f64| 0.3 + (ceiling - 0.3) * i / (i + 6.0);
        let points = (1..30).map(f64::from).map(|i| Point::new(Compute(i), value(i)));
        HistoryEntry::summarise(name, &Series::try_new(points.collect()).unwrap()).unwrap()
    }

    #[test]
    fn runs_are_added_once_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let library = Library::new(folder.path().join("deep/history.jsonl"));
        assert_eq!(library.entries().unwrap(), []);
        let new = || vec![entry("a", 0.6), entry("b", 0.7)];
        assert_eq!(library.add(new()).unwrap(), [Added::New, Added::New]);
        assert_eq!(library.add(new()).unwrap(), [Added::Known, Added::Known]);
        assert_eq!(library.add(vec![entry("a", 0.5)]).unwrap(), [Added::NameTaken]);
        assert_eq!(library.entries().unwrap(), new());
        assert!(is_library(&fs::read_to_string(library.path()).unwrap()));
        let removed = library.remove(&["a".into(), "c".into()]).unwrap();
        assert_eq!(removed, [true, false]);
        assert_eq!(library.entries().unwrap(), [entry("b", 0.7)]);
    }

    #[test]
    fn a_damaged_line_is_named_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let library = Library::new(folder.path().join("history.jsonl"));
        library.add(vec![entry("a", 0.6)]).unwrap();
        let mut text = fs::read_to_string(library.path()).unwrap();
        text.push_str("{\"name\": \"half");
        fs::write(library.path(), &text).unwrap();
        let error = library.add(vec![entry("b", 0.7)]).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
        assert_eq!(fs::read_to_string(library.path()).unwrap(), text);
    }

    #[test]
    fn writers_at_the_same_time_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let library = Library::new(folder.path().join("history.jsonl"));
        let made = entry("x", 0.6);
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (library, made) = (&library, &made);
                scope.spawn(move || {
                    let entry = HistoryEntry { name: format!("run-{i}"), ..made.clone() };
                    library.add(vec![entry]).unwrap();
                });
            }
        });
        assert_eq!(library.entries().unwrap().len(), 8);
    }
}

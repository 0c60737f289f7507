//! Which runs there are: found by looking through the folders that were named at the start, never by
//! what a client says.
//!
//! A client knows a run by its slug alone. A run folder that is a link out of the named folders is
//! passed over.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use scalerl_journal::RunFolder;

/// Folders below a named one that are looked into: a study has its runs in `runs`.
const DEPTH: usize = 3;
/// Runs that are listed.
pub const MOST_RUNS: usize = 5000;
/// Entries of folders that are looked at in one round.
const MOST_ENTRIES: usize = 100_000;

/// Runs by their slugs.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    roots: Vec<PathBuf>,
    slugs: BTreeMap<PathBuf, String>,
}

impl Catalog {
    /// Of the folders, each a run's or one of runs.
    pub(crate) fn new(roots: &[PathBuf]) -> Self {
        let whole = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        Self { roots: roots.iter().map(whole).collect(), slugs: BTreeMap::new() }
    }

    /// Looks again: every run that is there, by its slug. A run keeps its slug for as long as the
    /// program runs, also where it goes away and comes back.
    pub(crate) fn scan(&mut self) -> Vec<(String, PathBuf)> {
        let mut found = Vec::new();
        let mut entries = 0;
        for root in &self.roots {
            look(root, root, DEPTH, &mut entries, &mut found);
        }
        found.sort();
        found.dedup();
        found.truncate(MOST_RUNS);
        found
            .into_iter()
            .map(|path| {
                let slug = match self.slugs.get(&path) {
                    Some(slug) => slug.clone(),
                    None => self.name(&path),
                };
                (slug, path)
            })
            .collect()
    }

    fn name(&mut self, path: &Path) -> String {
        let root = self.roots.iter().find(|root| path.starts_with(root) && *root != path);
        let inner = root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path);
        let text = if root.is_some() {
            inner.to_string_lossy().into_owned()
        } else {
            path.file_name().unwrap_or_default().to_string_lossy().into_owned()
        };
        let base = slug(&text);
        let is_free = |slug: &String| !self.slugs.values().any(|taken| taken == slug);
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let slug = std::iter::once(base.clone()).chain(numbered).find(is_free).unwrap_or(base);
        self.slugs.insert(path.to_owned(), slug.clone());
        slug
    }
}

fn look(root: &Path, folder: &Path, depth: usize, entries: &mut usize, found: &mut Vec<PathBuf>) {
    if RunFolder::open(folder).is_ok() {
        found.push(folder.to_owned());
        return;
    }
    let Ok(inner) = fs::read_dir(folder) else { return };
    for entry in inner.flatten() {
        *entries += 1;
        if depth == 0 || *entries > MOST_ENTRIES || found.len() >= MOST_RUNS {
            return;
        }
        let path = entry.path();
        // A link is followed only to what lies in the named folder anyway.
        let Ok(kind) = entry.file_type() else { continue };
        let is_inside = kind.is_dir()
            || (kind.is_symlink()
                && fs::canonicalize(&path).is_ok_and(|real| real.starts_with(root)));
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if is_inside && !is_hidden && path.is_dir() {
            look(root, &path, depth - 1, entries, found);
        }
    }
}

/// Letters and digits, dots inside, everything else a dash: safe in an address.
fn slug(name: &str) -> String {
    let safe = |letter: char| {
        let is_safe = letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if is_safe { letter } else { '-' }
    };
    let slug: String = name.chars().map(safe).take(120).collect();
    let slug = slug.trim_matches(['.', '-']);
    if slug.is_empty() { "run".to_owned() } else { slug.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_with_slugs_that_stay_and_links_out_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let make = |path: PathBuf| {
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("recipe.toml"), "").unwrap();
        };
        make(folder.path().join("a b"));
        make(folder.path().join("a-b"));
        make(folder.path().join("study/runs/x"));
        make(outside.path().join("secret"));
        std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("link"))
            .unwrap();
        let mut catalog = Catalog::new(&[folder.path().to_owned()]);
        let slugs = |catalog: &mut Catalog| -> Vec<String> {
            catalog.scan().into_iter().map(|(slug, _)| slug).collect()
        };
        assert_eq!(slugs(&mut catalog), ["a-b", "a-b-2", "study-runs-x"]);
        fs::remove_dir_all(folder.path().join("a b")).unwrap();
        assert_eq!(slugs(&mut catalog), ["a-b-2", "study-runs-x"], "a slug is not handed on");
        assert_eq!(slug("../../etc/passwd"), "etc-passwd");
        assert_eq!(slug("…"), "run");
    }
}

//! Completions and episodes to read and to search: the files of `samples/`, newest first.
//!
//! A search reads on until it has found enough, read enough, or taken long enough, and says which.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use scalerl_files::open_own;
use scalerl_journal::{RunFolder, Sample};

/// Files of samples that are known of one run.
const MOST_FILES: usize = 10_000;
/// Samples on one page.
pub(crate) const PAGE: usize = 20;
/// Bounds of one reading.
const MOST_BYTES: u64 = 256 << 20;
const LONGEST_LINE: u64 = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

/// A file of samples.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SampleFile {
    pub(crate) step: u64,
    /// Of training, not of an evaluation.
    pub(crate) is_training: bool,
    path: PathBuf,
}

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    pub(crate) step: Option<u64>,
    pub(crate) is_training: Option<bool>,
    /// In prompt, completion, answer or reason; letters large and small alike.
    pub(crate) text: String,
    /// `Some(true)`: only right ones.
    pub(crate) is_right: Option<bool>,
    /// Matches to pass over.
    pub(crate) skip: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) samples: Vec<(SampleFile, Sample)>,
    /// There may be more after these.
    pub(crate) has_more: bool,
    /// Why the search ended before its time.
    pub(crate) cut: Option<&'static str>,
    /// Lines that are no samples.
    pub(crate) broken: usize,
}

/// Files of samples, newest first.
pub(crate) fn files(folder: &RunFolder) -> Vec<SampleFile> {
    let Ok(entries) = std::fs::read_dir(folder.samples_folder()) else { return Vec::new() };
    let named = entries.flatten().take(MOST_FILES).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let stem = name.strip_suffix(".jsonl")?;
        let (is_training, step) = match stem.strip_prefix("step-") {
            Some(step) => (false, step),
            None => (true, stem.strip_prefix("train-")?),
        };
        Some(SampleFile { step: step.parse().ok()?, is_training, path: entry.path() })
    });
    let mut files: Vec<SampleFile> = named.collect();
    files.sort_by(|a, b| b.cmp(a));
    files
}

/// Reads what is wished for. `until` is the last step that counts: files of steps that a resume has
/// taken back are written anew, and until then they are not shown.
pub(crate) fn find(folder: &RunFolder, wish: &Wish, until: u64) -> Found {
    let (start, mut left) = (Instant::now(), MOST_BYTES);
    let (mut found, mut skip) = (Found::default(), wish.skip);
    let needle = wish.text.to_lowercase();
    for file in files(folder) {
        let is_wanted = wish.step.is_none_or(|step| step == file.step)
            && wish.is_training.is_none_or(|is_training| is_training == file.is_training)
            && file.step <= until;
        if !is_wanted {
            continue;
        }
        let Ok(Some(open)) = open_own(&file.path) else { continue };
        let mut reader = BufReader::new(open);
        loop {
            if found.samples.len() >= PAGE {
                found.has_more = true;
                return found;
            }
            if left == 0 || start.elapsed() > PATIENCE {
                found.cut = Some("the search was ended after two seconds or 256 MB");
                return found;
            }
            let Ok(Some(line)) = next(&mut reader, &mut left) else { break };
            let Ok(sample) = serde_json::from_slice::<Sample>(&line) else {
                found.broken += 1;
                continue;
            };
            if !matches(&sample, &needle, wish.is_right) {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            found.samples.push((file.clone(), sample));
        }
    }
    found
}

fn next(reader: &mut impl io::BufRead, left: &mut u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let room = LONGEST_LINE.min(*left);
    let read = reader.by_ref().take(room).read_until(b'\n', &mut line)? as u64;
    *left -= read;
    let is_whole = line.last() == Some(&b'\n');
    if read == 0 || !is_whole { Ok(None) } else { Ok(Some(line)) }
}

fn matches(sample: &Sample, needle: &str, is_right: Option<bool>) -> bool {
    let right = sample.reward.is_some_and(|reward| reward.is_correct);
    if is_right.is_some_and(|wanted| wanted != right) {
        return false;
    }
    let texts = [&sample.completion, &sample.prompt_text, &sample.answer, &sample.prompt.0];
    let parts = sample.parts.iter().map(|part| &part.text);
    needle.is_empty()
        || texts
            .into_iter()
            .chain(parts)
            .chain(sample.error.as_ref())
            .any(|text| text.to_lowercase().contains(needle))
}

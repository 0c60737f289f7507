//! Makes broken logs out of good ones: the mutator behind `examples/fuzz.rs` and `tests/fuzz.rs`.
//!
//! Blind byte changes die at the first checksum or magic number. So some mutations keep a file's
//! frame: event records get their checksums back, Parquet footers their length, text files are
//! changed line by line and number by number.
//!
//! Runs on the stable toolchain and is deterministic: the same seed makes the same inputs.

use scalerl_ingest::{Format, Request, masked_crc32c};

/// SplitMix64; quality does not matter here, repeatability does.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// A reader under test: its name, the format given to it, and good files to start from.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) format: Option<Format>,
    pub(crate) seeds: Vec<&'static [u8]>,
}

macro_rules! fixtures {
    ($($name:literal),*) => {
        vec![$(include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/", $name)).as_slice()),*]
    };
}

/// Every format, and recognition on top.
pub(crate) fn targets() -> Vec<Target> {
    let seeds = |format: Format| match format {
        Format::Csv => fixtures!("runs.csv", "history.csv"),
        Format::Tsv => vec![b"run\tstep\tacc\na\t1\t0.5\na\t2\t0.6\n\"b c\"\t1\t\n".as_slice()],
        Format::Jsonl => fixtures!("nested.jsonl", "metrics.jsonl"),
        Format::Parquet => fixtures!(
            "plain.parquet",
            "snappy.parquet",
            "zstd_v2.parquet",
            "gzip.parquet",
            "delta.parquet",
            "polars.parquet"
        ),
        Format::WandbCsv => fixtures!("chart.csv", "history.csv"),
        Format::TensorBoard => fixtures!(
            "tensorboard/simple/events.out.tfevents.1700000000.host",
            "tensorboard/tensor/events.out.tfevents.1700000002.host"
        ),
        Format::Verl => fixtures!("verl_new.log", "verl_old.log"),
        Format::TrainerState => fixtures!("trainer_state.json"),
        Format::PrimeRl => fixtures!("metrics.jsonl"),
        other => unreachable!("{other} has no seeds"),
    };
    let mut targets: Vec<Target> = Format::all()
        .iter()
        .map(|format| Target {
            name: format.to_string(),
            format: Some(*format),
            seeds: seeds(*format),
        })
        .collect();
    let all = targets.iter().flat_map(|target| target.seeds.clone()).collect();
    targets.push(Target { name: "recognition".to_owned(), format: None, seeds: all });
    targets
}

/// A broken file and something to ask of it.
pub(crate) fn input(target: &Target, rng: &mut Rng) -> (Vec<u8>, Request) {
    let mut bytes = target.seeds[rng.below(target.seeds.len())].to_vec();
    for _ in 0..=rng.below(4) {
        if bytes.starts_with(b"PAR1") && rng.below(4) > 0 {
            mutate_parquet(&mut bytes, rng);
        } else if masked_crc32c(bytes.get(..8).unwrap_or_default()).to_le_bytes()
            == bytes.get(8..12).unwrap_or_default()
            && rng.below(4) > 0
        {
            mutate_events(&mut bytes, rng);
        } else if rng.below(3) > 0 && std::str::from_utf8(&bytes).is_ok() {
            mutate_text(&mut bytes, rng);
        } else {
            let end = bytes.len();
            mutate_bytes(&mut bytes, 0, end, rng);
        }
    }
    let word = |rng: &mut Rng, words: &[&str]| match rng.below(words.len() + 4) {
        place if place < words.len() => Some(words[place].to_owned()),
        _ => None,
    };
    let request = Request {
        format: target.format,
        x: word(rng, &["steps", "gpu_hours", "tokens", "flops", "nothing"]),
        y: word(rng, &["pass_rate", "nothing"]),
        by: word(rng, &["run", "split"]),
        gpus: (rng.below(2) == 0).then_some(8.0),
        samples: (rng.below(4) == 0).then_some(1000.0),
    };
    (bytes, request)
}

const TOKENS: [&str; 30] = [
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e308",
    "-1",
    "0",
    "99999999999999999999",
    "1e-320",
    "",
    ",",
    ";",
    "\t",
    "\"",
    "\n",
    "\r",
    "\u{1b}[36m",
    "{",
    "}",
    "[",
    "]",
    ":",
    " - ",
    "step:",
    "step:0 - a:1",
    "null",
    "np.float64(",
    ")",
    "Initial validation metrics: {'a': 1",
    "\u{feff}",
];

fn mutate_text(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut lines: Vec<&str> = text.split('\n').collect();
    let (a, b) = (rng.below(lines.len()), rng.below(lines.len()));
    match rng.below(6) {
        0 => lines.swap(a, b),
        1 => drop(lines.remove(a)),
        2 => lines.insert(b, lines[a]),
        3 => lines.truncate(a + 1),
        _ => {
            // Replace a number, or put a token anywhere.
            let numbers: Vec<usize> = text
                .char_indices()
                .filter(|(_, c)| c.is_ascii_digit())
                .map(|(place, _)| place)
                .collect();
            let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
            let from = if rng.below(2) == 0 && !numbers.is_empty() { numbers } else { places };
            let Some(start) = from.get(rng.below(from.len())).copied() else { return };
            let length = text[start..].find(|c: char| !c.is_ascii_digit() && c != '.');
            let end = if rng.below(2) == 0 { start } else { start + length.unwrap_or(0) };
            *bytes = [&text[..start], rng.pick(&TOKENS), &text[end..]].concat().into_bytes();
            return;
        }
    }
    *bytes = lines.join("\n").into_bytes();
}

fn mutate_bytes(bytes: &mut Vec<u8>, from: usize, to: usize, rng: &mut Rng) {
    let to = to.min(bytes.len());
    if from >= to {
        bytes.insert(from.min(bytes.len()), rng.next() as u8);
        return;
    }
    let place = from + rng.below(to - from);
    let length = 1 + rng.below((to - place).min(16));
    match rng.below(8) {
        0 => bytes[place] ^= 1 << rng.below(8),
        1 => bytes[place] = rng.next() as u8,
        2 => bytes[place] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5)],
        3 => drop(bytes.drain(place..place + length)),
        4 => {
            let copy = bytes[place..place + length].to_vec();
            let target = from + rng.below(to - from);
            bytes.splice(target..target, copy);
        }
        5 => {
            let value =
                [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 31, i64::MAX as u64][rng.below(6)];
            let width = [2, 4, 8][rng.below(3)];
            for (byte, new) in bytes[place..].iter_mut().zip(&value.to_le_bytes()[..width]) {
                *byte = *new;
            }
        }
        6 => bytes[place..place + length].fill(0xff),
        _ => bytes.truncate(place),
    }
}

/// Changes the inside of one record and gives it its checksums back.
fn mutate_events(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let mut records = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((header, after)) = rest.split_first_chunk::<12>() {
        let length = u64::from_le_bytes(*header.first_chunk().expect("twelve bytes hold eight"));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(data) = after.get(..length) else { break };
        records.push(data.to_vec());
        rest = after.get(length + 4..).unwrap_or_default();
    }
    if records.is_empty() {
        return;
    }
    let place = rng.below(records.len());
    match rng.below(8) {
        0 => records.insert(place, records[rng.below(records.len())].clone()),
        1 => drop(records.remove(place)),
        _ => {
            let end = records[place].len();
            mutate_bytes(&mut records[place], 0, end, rng);
        }
    }
    bytes.clear();
    for record in records {
        let length = (record.len() as u64).to_le_bytes();
        bytes.extend(length);
        bytes.extend(masked_crc32c(&length).to_le_bytes());
        bytes.extend(&record);
        bytes.extend(masked_crc32c(&record).to_le_bytes());
    }
}

/// Changes the footer or a page and keeps the frame of magic bytes and footer length.
fn mutate_parquet(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let Some(tail) = bytes.last_chunk::<8>() else { return };
    let footer = u32::from_le_bytes(*tail.first_chunk().expect("eight bytes hold four")) as usize;
    let Some(start) = bytes.len().checked_sub(footer.saturating_add(8)) else { return };
    bytes.truncate(bytes.len() - 8);
    let before = bytes.len();
    if rng.below(3) == 0 && start > 4 {
        // In place only: pages are found by their offsets.
        let place = 4 + rng.below(start - 4);
        bytes[place] = rng.next() as u8;
    } else {
        mutate_bytes(bytes, start.max(4), before, rng);
    }
    let footer = (footer + bytes.len()).saturating_sub(before) as u32;
    bytes.extend(footer.to_le_bytes());
    bytes.extend(b"PAR1");
}

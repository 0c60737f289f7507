//! Data files made to hurt: devices and pipes in their place, lines and records of gigabytes, broken
//! Parquet. Each is an error that names the file, in bounded memory. `make test-hostile` adds up the
//! cases.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use scalerl_task::data::read_rows;
use scalerl_task::grade::GradeFile;

fn said(path: &Path) -> String {
    let error = read_rows(path, "train").expect_err("this is no data");
    assert!(!error.hint().is_empty());
    let said = error.to_string();
    let name = path.file_name().expect("a name").to_string_lossy();
    assert!(said.contains(&*name), "{said}");
    said
}

/// A file of that size that takes no room on the disk: it reads as zeros.
fn holes(path: &Path, start: &str, size: u64) {
    let mut file = File::create(path).expect("a file");
    file.write_all(start.as_bytes()).expect("its start");
    file.set_len(size).expect("holes");
}

#[test]
fn only_regular_files_are_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut count = 0;
    for ending in ["jsonl", "json", "csv", "parquet"] {
        let path = folder.path().join(format!("pipe.{ending}"));
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success() && said(&path).contains("a named pipe"));
        let path = folder.path().join(format!("zero.{ending}"));
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        assert!(said(&path).contains("a device"));
        let path = folder.path().join(format!("large.{ending}"));
        holes(&path, "", 1 << 40);
        assert!(said(&path).contains("larger than 8 GiB"));
        count += 3;
    }
    println!("hostile cases: {count}");
}

#[test]
fn a_line_or_record_of_gigabytes_is_refused_by_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let jsonl = folder.path().join("a.jsonl");
    holes(&jsonl, "{\"q\": 1}\n", 4 << 30);
    let error = said(&jsonl);
    assert!(error.contains("line 2: this line is larger than 64 MiB"), "{error}");
    let csv = folder.path().join("a.csv");
    holes(&csv, "q,a\n1,2\n\"", 4 << 30);
    let error = said(&csv);
    assert!(error.contains("line 3: this record is larger than 64 MiB"), "{error}");
    println!("hostile cases: 2");
}

#[test]
fn a_graded_file_has_lines_that_end() {
    let endless = std::io::BufReader::new(std::io::repeat(b'x'));
    let error = GradeFile::read(endless).expect_err("no line ends");
    let source = std::error::Error::source(&error).expect("its reason").to_string();
    assert!(source.contains("this line is larger than 64 MiB"), "{error}: {source}");
    println!("hostile cases: 1");
}

/// Numbers from a fixed seed: the same files every time.
struct Changes(u64);

impl Changes {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn broken_parquet_is_an_error_and_no_panic() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ingest/testdata");
    let sound: Vec<Vec<u8>> = ["plain", "snappy", "gzip", "delta", "polars", "zstd_v2"]
        .map(|name| std::fs::read(fixtures.join(format!("{name}.parquet"))).expect("a fixture"))
        .into();
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("a.parquet");
    let mut changes = Changes(88_172_645_463_325_252);
    let rounds = 3_000;
    for _ in 0..rounds {
        let mut bytes = sound[changes.below(sound.len())].clone();
        for _ in 0..=changes.below(4) {
            // Half of the changes go to the end, where the footer is.
            let length = bytes.len();
            let tail = changes.below(length.min(1500));
            let at = if changes.below(2) == 0 { changes.below(length) } else { length - 1 - tail };
            bytes[at] = if changes.below(3) == 0 { 0xff } else { changes.below(256) as u8 };
        }
        std::fs::write(&path, &bytes).expect("a file");
        // A changed value may leave a sound file.
        if let Err(error) = read_rows(&path, "train") {
            assert!(error.to_string().contains("a.parquet"), "{error}");
        }
    }
    println!("hostile cases: {rounds}");
}

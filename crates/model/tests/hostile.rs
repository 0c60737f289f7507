//! Model folders made to hurt: each is refused with an error that names the file, in bounded time
//! and memory, and never by a panic. `make test-hostile` adds up the cases.

#![expect(clippy::print_stdout, reason = "the cases are counted")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "hostile/folders.rs"]
mod folders;
#[path = "hostile/templates.rs"]
mod templates;
#[path = "hostile/tokenizers.rs"]
mod tokenizers;

use std::path::Path;

/// A file of a model folder that holds nothing else.
fn folder_with(name: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), text).unwrap();
    folder
}

/// The most memory this process has used, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn testdata(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// A copy of a sound folder, to be broken.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(testdata(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

//! Model folders made to hurt: each is refused with an error that names the file, in bounded time
//! and memory, and never by a panic. `make test-hostile` adds up the cases.

#![expect(clippy::print_stdout, reason = "the cases are counted")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "hostile/folders.rs"]
mod folders;
#[path = "hostile/templates.rs"]
mod templates;
mod to_break;
#[path = "hostile/tokenizers.rs"]
mod tokenizers;

use to_break::{copy, testdata};

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

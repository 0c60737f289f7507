//! The command line that a page was made by, for its last section.
//!
//! Not read from the process: within Python the process is the interpreter.

use std::ffi::OsString;
use std::sync::OnceLock;

static GIVEN: OnceLock<Vec<String>> = OnceLock::new();

/// Keeps the arguments of this process, the program's name first; only the first call counts.
pub fn remember(arguments: &[OsString]) {
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    GIVEN.get_or_init(|| words.collect());
}

/// `scalerl` and what it was given; `scalerl` alone where it is used as a library.
pub fn line() -> String {
    let given = GIVEN.get().into_iter().flatten();
    let words: Vec<&str> = std::iter::once("scalerl").chain(given.map(String::as_str)).collect();
    words.join(" ")
}

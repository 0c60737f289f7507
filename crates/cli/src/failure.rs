//! How a command fails: `error:` with its causes, `hint:` where one is known, and the exit code.
//!
//! 0 done, 1 the work failed, 2 wrong use or bad input.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Wrong use or bad input, with what to do about it.
#[derive(Debug)]
pub struct BadInput {
    message: String,
    hint: Option<String>,
}

impl BadInput {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// What to do about it, where that is known.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadInput {}

/// Work that failed, with what to do about it.
#[derive(Debug)]
pub(crate) struct Failed {
    error: Box<dyn std::error::Error + Send + Sync>,
    hint: String,
}

impl Failed {
    #[cfg_attr(
        not(any(feature = "track", feature = "train")),
        expect(dead_code, reason = "only training and export fail with one")
    )]
    pub(crate) fn new(
        error: impl std::error::Error + Send + Sync + 'static,
        hint: impl Into<String>,
    ) -> Self {
        Self { error: Box::new(error), hint: hint.into() }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Where nothing better is known to say about a full disk.
const FULL: &str = "disk full: make room there (or raise the quota), then give the command again";

fn is_disk_full(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<std::io::Error>().is_some_and(scalerl_files::is_disk_full)
}

/// Prints a failure and gives its exit code.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    let is_closed_pipe = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe);
    if is_closed_pipe {
        return 0;
    }
    let mut err = std::io::stderr().lock();
    // Nothing is left to tell anyone if standard error is gone.
    let _ = writeln!(err, "error: {error}");
    for cause in error.chain().skip(1) {
        let _ = writeln!(err, "  because: {cause}");
    }
    let bad_input = error.chain().find_map(|cause| cause.downcast_ref::<BadInput>());
    let failed = error.chain().find_map(|cause| cause.downcast_ref::<Failed>());
    let hint = bad_input.and_then(|bad| bad.hint.as_ref()).or(failed.map(|failed| &failed.hint));
    let full = error.chain().any(is_disk_full).then(|| FULL.to_owned());
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()).or(full.as_ref()) {
        let _ = writeln!(err, "hint: {hint}");
    }
    if bad_input.is_some() { 2 } else { 1 }
}

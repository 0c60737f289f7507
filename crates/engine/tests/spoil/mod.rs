//! A file of a checkpoint rewritten with the right sums: what an earlier release may have left.
//!
//! Used by the engine's tests with fakes and by those of the program (`crates/cli/tests`).

use std::fmt::Write as _;
use std::fs;

use scalerl_journal::Checkpoint;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Changes a file of a checkpoint, and its line in the manifest.
pub(crate) fn rewrite(checkpoint: &Checkpoint, name: &str, change: impl FnOnce(String) -> String) {
    let text = change(String::from_utf8(checkpoint.read(name).unwrap()).unwrap());
    fs::write(checkpoint.path.join(name), &text).unwrap();
    let path = checkpoint.path.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let files = manifest["files"].as_array_mut().unwrap();
    let entry = files.iter_mut().find(|entry| entry["path"] == name).unwrap();
    let mut sum = String::new();
    for byte in Sha256::digest(&text) {
        write!(sum, "{byte:02x}").unwrap();
    }
    (entry["bytes"], entry["sha256"]) = (json!(text.len()), json!(sum));
    fs::write(&path, manifest.to_string()).unwrap();
    checkpoint.verify().unwrap();
}

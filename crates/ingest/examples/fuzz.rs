//! Feeds broken logs to every reader and watches for panics, hangs and growing memory.
//!
//! ```text
//! cargo run --release -p scalerl-ingest --example fuzz -- [INPUTS PER READER] [READER…]
//! ```
//!
//! Resident memory is printed at ten checkpoints per reader; the run fails when a reader panics,
//! when one input takes longer than [`SLOWEST`], or when memory grows over the later nine tenths
//! by more than [`GROWTH`]. A failing input is written to the temporary folder. To see overflows
//! too, set `CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true`.

#![expect(clippy::print_stdout, reason = "the report is the purpose")]

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use scalerl_ingest::read_bytes;

#[path = "../fuzz/mutate.rs"]
mod mutate;

use mutate::{Rng, Target};

const SLOWEST: Duration = Duration::from_secs(2);

/// Allocators keep some pages; a leak of a few bytes per input is far more than this.
const GROWTH: f64 = 8.0;

const CHECKPOINTS: usize = 10;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let wanted: Vec<String> = arguments.collect();
    std::panic::set_hook(Box::new(|_| {}));
    let mut is_good = true;
    for target in mutate::targets() {
        if wanted.is_empty() || wanted.contains(&target.name) {
            is_good &= fuzz(&target, count);
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fuzz(target: &Target, count: usize) -> bool {
    let mut rng = Rng(0x05ca_1e71);
    let (mut read, mut panics) = (0_usize, 0_usize);
    let mut slowest = Duration::ZERO;
    let mut memory = Vec::new();
    let start = Instant::now();
    for index in 0..count {
        let (bytes, request) = mutate::input(target, &mut rng);
        let begin = Instant::now();
        if let Ok(is_read) = catch_unwind(|| read_bytes("fuzz", &bytes, &request).is_ok()) {
            read += usize::from(is_read);
        } else {
            panics += 1;
            keep(target, index, &bytes, &format!("panics with {request:?}"));
        }
        let mut taken = begin.elapsed();
        if taken > SLOWEST {
            // A busy machine stalls anything once; what is slow by itself is slow again.
            let begin = Instant::now();
            drop(catch_unwind(|| read_bytes("fuzz", &bytes, &request).is_ok()));
            taken = taken.min(begin.elapsed());
        }
        if taken > SLOWEST {
            keep(target, index, &bytes, &format!("takes {taken:?} with {request:?}"));
        }
        slowest = slowest.max(taken);
        if (index + 1) * CHECKPOINTS / count > index * CHECKPOINTS / count {
            memory.push(resident_mib());
        }
    }
    let growth = memory.last().copied().unwrap_or(0.0) - memory.first().copied().unwrap_or(0.0);
    let report: Vec<String> = memory.iter().map(|mib| format!("{mib:.1}")).collect();
    println!(
        "{:<14} {count} inputs in {:.1?}, {read} read, {panics} panics, slowest {slowest:.1?}\n\
         {:<14} resident MiB: {}",
        target.name,
        start.elapsed(),
        "",
        report.join(" ")
    );
    let is_good = panics == 0 && slowest <= SLOWEST && growth <= GROWTH;
    if !is_good {
        println!("{:<14} FAILED", "");
    }
    is_good
}

fn keep(target: &Target, index: usize, bytes: &[u8], what: &str) {
    let path = std::env::temp_dir().join(format!("fuzz-{}-{index}", target.name));
    match std::fs::write(&path, bytes) {
        Ok(()) => println!("{what}: {}", path.display()),
        Err(error) => println!("{what}; cannot be written to {}: {error}", path.display()),
    }
}

/// Resident memory by the kernel's account; zero where there is no /proc.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

//! A stand-in for `scalerl train`: the same command line, a simulated run (`scalerl_study::fake`).
//!
//! For tests of what starts, stops and resumes runs. `PRETEND_DELAY_MS` is the pause before each
//! evaluation; with `PRETEND_WARM_UP` a new run waits for a signal and makes nothing; a run whose folder's name is `PRETEND_BREAK` fails at its third one. The numbers
//! are of no model.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scalerl_recipe::{Recipe, Source};
use scalerl_study::fake::{self, Next};

#[expect(clippy::print_stderr, reason = "what it says goes into a log")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["train", recipe, "--run", folder] => Recipe::load(&[Source::named(recipe)], &[])
            .map_err(|error| error.to_string())
            .and_then(|recipe| pretend(Path::new(folder), Some(&recipe))),
        ["train", "--resume", folder] => pretend(Path::new(folder), None),
        _ => Err(format!("unexpected command line: {arguments:?}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "what it says goes into a log")]
fn pretend(folder: &Path, recipe: Option<&scalerl_recipe::Resolved>) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| error.to_string())?;
    }
    if std::env::var_os("PRETEND_WARM_UP").is_some() && recipe.is_some() {
        eprintln!("warm-up");
        // Ends with a signal, as a warm-up that is asked to stop: in order, and without a folder.
        while !stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        return Ok(());
    }
    let delay = std::env::var("PRETEND_DELAY_MS").ok().and_then(|text| text.parse().ok());
    let breaks = std::env::var("PRETEND_BREAK").ok();
    let is_broken = breaks.is_some_and(|name| folder.ends_with(name));
    let mut evaluations = 0;
    let next = || {
        std::thread::sleep(Duration::from_millis(delay.unwrap_or(0)));
        evaluations += 1;
        match (stop.load(Ordering::SeqCst), is_broken && evaluations == 3) {
            (true, _) => Next::Stop,
            (_, true) => Next::Break,
            _ => Next::GoOn,
        }
    };
    fake::run(folder, recipe, next).map(|_| ()).map_err(|error| error.to_string())
}

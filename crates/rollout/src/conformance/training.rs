//! Duties of a trainer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Subject, ask};
use crate::{
    Completion, PolicyVersion, SampleRequest, StepReport, TrainBatch, TrainSequence, Trainer,
};

/// What a step would be given for these completions, every other one rewarded.
pub(super) fn batch_of(request: &SampleRequest, completions: &[Completion]) -> TrainBatch {
    let tokens: usize = completions.iter().map(Completion::sampled_tokens).sum();
    let weight = 1.0 / tokens as f64;
    let sequence = |(index, one): (usize, &Completion)| TrainSequence {
        prompt_token_ids: request.prompt_token_ids.clone(),
        completion_token_ids: one.token_ids.clone(),
        generator_logprobs: one.logprobs.clone(),
        weights: one.is_injected.iter().map(|flag| if *flag { 0.0 } else { weight }).collect(),
        advantage: if index % 2 == 0 { 1.0 } else { -1.0 },
    };
    TrainBatch {
        temperature: request.sampling.temperature,
        sequences: completions.iter().enumerate().map(sequence).collect(),
    }
}

fn step<T: Trainer>(trainer: &mut T, batch: &TrainBatch) -> StepReport {
    match trainer.step(batch) {
        Ok(report) => StepReport { seconds: 0.0, peak_memory_bytes: None, ..report },
        Err(error) => panic!("a step on what the generator wrote failed: {error}"),
    }
}

pub(super) async fn a_step_makes_the_next_version<S: Subject>(subject: &S) {
    let (generator, mut trainer) = subject.pair();
    let request = subject.request();
    let completions = ask(&generator, &request).await;
    let batch = batch_of(&request, &completions);
    for version in 1..4 {
        let report = step(&mut trainer, &batch);
        assert_eq!(report.version, PolicyVersion(version), "a step adds one to the version");
        assert!(report.loss.is_finite() && report.gradient_norm.is_finite());
        assert!(report.tokens >= report.trained_tokens && report.trained_tokens > 0);
        match trainer.publish() {
            Ok(weights) => assert_eq!(weights.version, report.version, "the last step's weights"),
            Err(error) => panic!("weights cannot be published: {error}"),
        }
    }
}

/// An empty folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Suites run side by side in one process.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("scalerl-{name}-{process}-{number}"));
        // Left behind by a test that was killed.
        let _ = std::fs::remove_dir_all(&path);
        if let Err(error) = std::fs::create_dir_all(&path) {
            panic!("cannot make {}: {error}", path.display());
        }
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) async fn what_was_saved_goes_on_as_if_nothing_had_happened<S: Subject>(subject: &S) {
    let (generator, mut trainer) = subject.pair();
    let request = subject.request();
    let batch = batch_of(&request, &ask(&generator, &request).await);
    let _ = step(&mut trainer, &batch);
    let folder = Folder::new("conformance");
    if let Err(error) = trainer.save(folder.path()) {
        panic!("the trainer cannot be saved: {error}");
    }
    let expected = step(&mut trainer, &batch);
    let (_, mut other) = subject.pair();
    match other.restore(folder.path()) {
        Ok(version) => assert_eq!(version, PolicyVersion(1), "the version that was saved"),
        Err(error) => panic!("what was saved cannot be taken back: {error}"),
    }
    assert_eq!(step(&mut other, &batch), expected, "the next step, saved and not");
}

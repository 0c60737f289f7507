//! A checkpoint is written while steps go on, and the run's end waits for it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rig::{Rig, audit};
use scalerl_engine::{OwnThread, fake, never, run};
use scalerl_journal::{Reading, What};
use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle, Writing,
};

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Its first checkpoint is written when two more steps were taken, and not before.
struct Unhurried {
    inner: fake::FakeTrainer,
    stepped: Sender<()>,
    first: Option<Receiver<()>>,
}

impl Unhurried {
    fn new(inner: fake::FakeTrainer) -> Self {
        let (stepped, first) = channel();
        Self { inner, stepped, first: Some(first) }
    }
}

impl Trainer for Unhurried {
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
        let report = self.inner.step(batch);
        // Whoever waits may have waited long enough.
        let _ = self.stepped.send(());
        report
    }

    fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        self.inner.publish()
    }

    fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
        self.inner.save(folder)
    }

    fn snapshot(&mut self, folder: &Path) -> Result<Writing, TrainerError> {
        let (mut state, folder) = (self.inner.clone(), folder.to_owned());
        let first = self.first.take();
        Ok(Writing::new(move || {
            if let Some(steps) = first {
                // Those before it are there already.
                for _ in 0..state.version.0 + 2 {
                    let reason = "no step was taken meanwhile".to_owned();
                    steps.recv_timeout(PATIENCE).map_err(|_| TrainerError::Device { reason })?;
                }
            }
            state.save(&folder)
        }))
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        self.inner.restore(folder)
    }
}

fn real_run(rig: &Rig, path: &Path) -> Result<scalerl_engine::RunEnd, scalerl_engine::EngineError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let own_thread =
            |trainer, _: fake::Delays| OwnThread::start(Unhurried::new(trainer)).unwrap();
        run(Rig::folder(path), rig.parts(own_thread, never())).await
    })
}

#[test]
fn steps_go_on_while_a_checkpoint_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig { slowness_ms: 2, ..Rig::pipeline(3) };
    let rig = rig.with(&["evaluation.every_steps=1000", "evaluation.at_start=false"]);
    real_run(&rig, folder.path()).unwrap();
    audit(folder.path(), 3);
    let reading = Reading::load(folder.path()).unwrap();
    let places = |wanted: &dyn Fn(&What) -> bool| {
        reading.history.events.iter().position(|event| wanted(&event.what)).unwrap()
    };
    let first = |what: &What| matches!(what, What::Checkpoint { .. });
    let fifth = |what: &What| matches!(what, What::Step { report, .. } if report.version.0 == 5);
    assert!(places(&fifth) < places(&first), "the step after the next came first");
    let saved: Vec<u64> = reading.checkpoints.iter().map(|one| one.version.0).collect();
    assert_eq!(saved.last(), Some(&14), "the end waits for the last one: {saved:?}");
    let What::Checkpoint { version, .. } = &reading.history.events[places(&first)].what else {
        unreachable!("looked for")
    };
    assert_eq!(version.0, 3, "it is of the step it was taken at");
}

#[test]
fn what_cannot_be_written_ends_the_run_and_leaves_the_last_whole_one() {
    struct Full(fake::FakeTrainer);

    impl Trainer for Full {
        fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
            self.0.step(batch)
        }

        fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
            self.0.publish()
        }

        fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
            self.0.save(folder)
        }

        fn snapshot(&mut self, folder: &Path) -> Result<Writing, TrainerError> {
            if self.0.version.0 < 6 {
                return self.save(folder).map(|()| Writing::done());
            }
            let (path, reason) = (folder.join("trainer.json"), "no space left".to_owned());
            Ok(Writing::new(move || Err(TrainerError::DiskFull { path, reason })))
        }

        fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
            self.0.restore(folder)
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let rig = Rig { slowness_ms: 2, ..Rig::pipeline(0) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let own_thread = |trainer, _: fake::Delays| OwnThread::start(Full(trainer)).unwrap();
        run(Rig::folder(folder.path()), rig.parts(own_thread, never())).await
    });
    let said = ended.unwrap_err().to_string();
    assert!(said.contains("disk full"), "{said}");
    let reading = Reading::load(folder.path()).unwrap();
    assert_eq!(reading.checkpoints.last().map(|one| one.version.0), Some(3));
    // And from there it goes on.
    real_run(&rig, folder.path()).unwrap();
    audit(folder.path(), 0);
}

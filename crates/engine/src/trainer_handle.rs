//! The trainer, as the engine waits for it.
//!
//! A step owns its device for seconds, so a trainer is not async. [`OwnThread`] gives it a thread
//! for the whole run, because device libraries keep state by thread; commands go over a channel,
//! answers come back over one that is made for the question. The thread ends when the handle is
//! dropped; a handle whose thread has died answers every question with an error.
//!
//! [`Simulated`] is for tests and simulations: it lets time pass on tokio's clock, which a thread
//! cannot do, then calls the trainer in place.

use std::{path::PathBuf, sync::mpsc, thread, time::Duration};

use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle, Writing,
};
use tokio::sync::oneshot;

/// A trainer that can be waited for. One question at a time.
pub trait TrainerHandle: Send + 'static {
    /// One optimizer step.
    fn step(
        &mut self,
        batch: TrainBatch,
    ) -> impl Future<Output = Result<StepReport, TrainerError>> + Send;

    /// Makes the weights of the last step readable by generators.
    fn publish(&mut self) -> impl Future<Output = Result<WeightHandle, TrainerError>> + Send;

    /// Takes everything the next step depends on, to be written into a folder by another thread.
    fn save(
        &mut self,
        folder: PathBuf,
    ) -> impl Future<Output = Result<Writing, TrainerError>> + Send;

    /// Takes back what was saved.
    fn restore(
        &mut self,
        folder: PathBuf,
    ) -> impl Future<Output = Result<PolicyVersion, TrainerError>> + Send;
}

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A trainer on a thread of its own.
#[derive(Debug)]
pub struct OwnThread<T> {
    jobs: mpsc::Sender<Job<T>>,
}

impl<T: Trainer> OwnThread<T> {
    /// Starts the thread.
    pub fn start(mut trainer: T) -> std::io::Result<Self> {
        // The other end is the trainer; dropping it ends the loop.
        let (jobs, inbox) = mpsc::channel::<Job<T>>();
        thread::Builder::new().name("trainer".into()).spawn(move || {
            for job in inbox {
                job(&mut trainer);
            }
        })?;
        Ok(Self { jobs })
    }

    async fn ask<A: Send + 'static>(
        &self,
        act: impl FnOnce(&mut T) -> Result<A, TrainerError> + Send + 'static,
    ) -> Result<A, TrainerError> {
        let gone = || TrainerError::Device {
            reason: "the trainer's thread has ended (it panicked)".into(),
        };
        let (reply, answer) = oneshot::channel();
        let job: Job<T> = Box::new(move |trainer| {
            // Nobody listens any more when the run is ending.
            let _ = reply.send(act(trainer));
        });
        self.jobs.send(job).map_err(|_| gone())?;
        // A panic in the job drops `reply`, which ends this wait.
        answer.await.map_err(|_| gone())?
    }
}

impl<T: Trainer> TrainerHandle for OwnThread<T> {
    async fn step(&mut self, batch: TrainBatch) -> Result<StepReport, TrainerError> {
        self.ask(move |trainer| trainer.step(&batch)).await
    }

    async fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        self.ask(Trainer::publish).await
    }

    async fn save(&mut self, folder: PathBuf) -> Result<Writing, TrainerError> {
        self.ask(move |trainer| trainer.snapshot(&folder)).await
    }

    async fn restore(&mut self, folder: PathBuf) -> Result<PolicyVersion, TrainerError> {
        self.ask(move |trainer| trainer.restore(&folder)).await
    }
}

/// A trainer called in place after a simulated time.
pub struct Simulated<T> {
    trainer: T,
    /// How long each act takes.
    delay: Box<dyn FnMut() -> Duration + Send>,
}

impl<T: Trainer> Simulated<T> {
    /// `delay` is asked before every act.
    pub fn new(trainer: T, delay: impl FnMut() -> Duration + Send + 'static) -> Self {
        Self { trainer, delay: Box::new(delay) }
    }

    async fn pass(&mut self) {
        tokio::time::sleep((self.delay)()).await;
    }
}

impl<T: Trainer> TrainerHandle for Simulated<T> {
    async fn step(&mut self, batch: TrainBatch) -> Result<StepReport, TrainerError> {
        self.pass().await;
        self.trainer.step(&batch)
    }

    async fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        self.pass().await;
        self.trainer.publish()
    }

    async fn save(&mut self, folder: PathBuf) -> Result<Writing, TrainerError> {
        self.pass().await;
        self.trainer.snapshot(&folder)
    }

    async fn restore(&mut self, folder: PathBuf) -> Result<PolicyVersion, TrainerError> {
        self.trainer.restore(&folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTrainer;
    use std::path::Path;

    /// Panics in every step.
    struct Broken;

    impl Trainer for Broken {
        fn step(&mut self, _: &TrainBatch) -> Result<StepReport, TrainerError> {
            panic!("as told")
        }

        fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
            Ok(WeightHandle { version: PolicyVersion(0), location: "0".into() })
        }

        fn save(&mut self, _: &Path) -> Result<(), TrainerError> {
            Ok(())
        }

        fn restore(&mut self, _: &Path) -> Result<PolicyVersion, TrainerError> {
            Ok(PolicyVersion(0))
        }
    }

    #[tokio::test]
    async fn a_trainer_that_panics_ends_every_wait_with_an_error() {
        let mut trainer = OwnThread::start(Broken).unwrap();
        assert!(trainer.publish().await.is_ok());
        let batch = TrainBatch { temperature: 1.0, sequences: vec![] };
        let error = trainer.step(batch).await.unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        assert!(trainer.publish().await.is_err(), "the thread is gone");
    }

    #[tokio::test]
    async fn a_seat_carries_every_question_to_its_trainer() {
        let folder = tempfile::tempdir().unwrap();
        let mut trainer = OwnThread::start(FakeTrainer::new()).unwrap();
        assert_eq!(trainer.publish().await.unwrap().version, PolicyVersion(0));
        trainer.save(folder.path().to_owned()).await.unwrap().finish().unwrap();
        assert_eq!(trainer.restore(folder.path().to_owned()).await.unwrap(), PolicyVersion(0));
    }
}

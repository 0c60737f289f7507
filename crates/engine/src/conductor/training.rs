//! Steps, and the way of new weights to the generator.
//!
//! ```text
//! step --> publish --> adopt (between two decode steps) --> the step's slots are free
//!   '--> next step at once, as far as the deadlines of the groups allow
//! ```
//!
//! Where both compute with one set of weights, the next step waits for the adoption: until then the
//! weights are the last step's.
//!
//! Not here: how a batch becomes a step, and which of its groups do not (`stepping.rs`).

use scalerl_journal::{Sample, What};
use scalerl_rollout::{
    Generator, Grader, PolicyVersion, PromptSource, StepReport, TrainerError, WeightHandle,
};
use tokio::time::timeout;

use super::stepping::{Attempt, Refused, Stepped, step_over};
use super::{Conductor, Done, TrainerUse};
use crate::{
    error::EngineError,
    groups::{Formed, Ready},
    meter::Role,
    settings::Settings,
    token_list::sample_of,
    trainer_handle::TrainerHandle,
};

/// Steps in a row with groups that cannot be trained on before the run ends: one bad group is set
/// aside, but where they keep coming somebody must look.
const REFUSED_STEPS: usize = 5;

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Starts the next step if the trainer is free and there is a batch.
    pub(super) fn start_step(&mut self) -> Result<(), EngineError> {
        let progress = &self.progress;
        let version = progress.version;
        // The version to be evaluated must be published before the trainer moves on.
        let is_wanted = progress.due_now().is_some();
        let holds = (is_wanted && progress.published != Some(version))
            || progress.adopted.is_none()
            || (self.settings.recipe.shares_weights() && progress.adopted != Some(version))
            || (self.scheme.is_phased() && progress.is_measuring());
        if holds || self.trainer.is_none() || self.ending.is_some() {
            return Ok(());
        }
        let Some(formed) = self.next_batch()? else { return Ok(()) };
        let Some(mut trainer) = self.trainer.take() else { return Ok(()) };
        self.progress.trainer_use = Some(TrainerUse::Step);
        let (settings, meter) = (self.settings.clone(), self.meter.clone());
        self.work.spawn(async move {
            let attempt = step_over(&mut trainer, formed, version, settings, meter).await;
            Done::Stepped { trainer, attempt }
        });
        Ok(())
    }

    pub(super) fn on_stepped(&mut self, attempt: Attempt) -> Result<(), EngineError> {
        let Attempt { formed, refused, result } = attempt;
        for Refused { group, reason } in &refused {
            self.journal.set_aside(self.progress.version, group, reason)?;
        }
        match result {
            Ok(stepped) => self.on_step(formed, stepped)?,
            Err(error) => {
                // The step did not happen: its groups are still to be trained on.
                self.put_back(formed);
                return Err(error);
            }
        }
        let Some(Refused { reason, .. }) = refused.into_iter().next_back() else {
            self.tally.refused_steps = 0;
            return Ok(());
        };
        self.tally.refused_steps += 1;
        let steps = self.tally.refused_steps;
        if steps < REFUSED_STEPS {
            return Ok(());
        }
        Err(EngineError::Untrainable { steps, reason })
    }

    fn on_step(&mut self, formed: Formed, stepped: Stepped) -> Result<(), EngineError> {
        let Stepped { counts, lag, report } = stepped;
        let batch = formed.report(&counts);
        let Some(report) = report else {
            drop(formed);
            return self.on_empty_batch(batch);
        };
        let version = match check(self.progress.version, &report) {
            Ok(version) => version,
            Err(error) => {
                // The weights are past what the journal knows: they must not be saved.
                self.trainer = None;
                return Err(error);
            }
        };
        self.tally.empty_batches = 0;
        self.progress.version = version;
        self.meter.add_trained(report.tokens, report.model_flops);
        let ledger = self.meter.ledger();
        if self.is_evaluation_time(&ledger) {
            let samples = self.training_samples(&formed);
            self.journal.folder.write_training_samples(version, &samples)?;
        }
        self.unadopted.push((version, formed.into_slots()));
        self.record(What::Step { lag, batch, report, ledger })?;
        let every = u64::from(self.settings.recipe.output.checkpoint_every_steps);
        self.progress.is_checkpoint_due |= version.0.is_multiple_of(every);
        if self.is_evaluation_time(&ledger) {
            self.progress.mark_evaluation(ledger);
        }
        self.check_budget();
        Ok(())
    }

    /// Some of what a step was trained on, for people to read; one completion a group.
    fn training_samples(&self, formed: &Formed) -> Vec<Sample> {
        let most = self.settings.recipe.output.sampled_completions as usize;
        let first = |ready: &Ready| {
            let rollout = ready.judged.rollouts.first()?;
            let prompt = &ready.ticket.drawn.prompt;
            Some(sample_of("training", prompt, rollout, &self.settings.intake))
        };
        formed.ready.iter().take(most).filter_map(first).collect()
    }

    fn put_back(&mut self, formed: Formed) {
        if self.scheme.is_phased() {
            self.queue.push_front(formed);
        } else {
            self.pool.splice(0..0, formed.ready);
        }
    }

    /// Publishes the trainer's weights if the generator should have them, and hands them over.
    pub(super) fn start_hand_over(&mut self) {
        let progress = &self.progress;
        let version = progress.version;
        let is_phase_over = !self.scheme.is_phased() || self.queue.is_empty();
        let is_wanted = is_phase_over
            || progress.adopted.is_none()
            || progress.due_now().is_some()
            || self.settings.recipe.shares_weights();
        let has_room = progress.handle.is_none() && !progress.adopting;
        if is_wanted && has_room && progress.published != Some(version) {
            self.publish();
        }
        if self.progress.evaluating.is_none() && !self.progress.adopting {
            self.adopt();
        }
    }

    fn publish(&mut self) {
        let Some(mut trainer) = self.trainer.take() else { return };
        self.progress.trainer_use = Some(TrainerUse::Publish);
        let (settings, meter) = (self.settings.clone(), self.meter.clone());
        self.work.spawn(async move {
            let busy = meter.busy(Role::Train);
            let result = in_time(&settings, "publishing weights", trainer.publish()).await;
            drop(busy);
            Done::Published { trainer, result }
        });
    }

    pub(super) fn on_published(
        &mut self,
        result: Result<WeightHandle, EngineError>,
    ) -> Result<(), EngineError> {
        let handle = result?;
        self.progress.published = Some(handle.version);
        self.progress.handle = Some(handle);
        Ok(())
    }

    fn adopt(&mut self) {
        let Some(handle) = self.progress.handle.take() else { return };
        self.progress.adopting = true;
        let (generator, limit) = (self.floor.generator.clone(), self.settings.deadlines.adopt);
        self.work.spawn(async move {
            let version = handle.version;
            let result = match timeout(limit, generator.adopt(&handle)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(source)) => Err(EngineError::Adopting { version, source }),
                Err(_) => Err(EngineError::Late { what: "handing weights over", limit }),
            };
            Done::Adopted { version, result }
        });
    }

    pub(super) fn on_adopted(
        &mut self,
        version: PolicyVersion,
        result: Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.progress.adopting = false;
        result?;
        self.progress.adopted = Some(version);
        // The slots of every step that these weights contain are free now.
        self.unadopted.retain(|(step, _)| *step > version);
        self.journal.write(What::Adopted { version })
    }
}

/// A trainer's answer within its deadline.
pub(super) async fn in_time<A>(
    settings: &Settings,
    what: &'static str,
    answer: impl Future<Output = Result<A, TrainerError>>,
) -> Result<A, EngineError> {
    let limit = settings.deadlines.trainer;
    match timeout(limit, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(EngineError::Late { what, limit }),
    }
}

/// A report that can be believed and written down.
fn check(from: PolicyVersion, report: &StepReport) -> Result<PolicyVersion, EngineError> {
    if report.version != from.next() {
        return Err(EngineError::WrongVersion { from, reported: report.version });
    }
    let ratio = &report.ratio;
    let numbers = [
        ("the loss", report.loss),
        ("the gradient norm", report.gradient_norm),
        ("the entropy", report.entropy),
        ("the KL to the reference", report.reference_kl.unwrap_or(0.0)),
        ("the learning rate", report.learning_rate),
        ("the number of operations", report.model_flops),
        ("the time", report.seconds),
        ("the mean ratio", ratio.mean),
        ("the smallest ratio", ratio.min),
        ("the largest ratio", ratio.max),
        ("the clipped share", ratio.clip_fraction),
        ("the effective sample share", ratio.effective_sample_share),
        ("the KL (k1)", ratio.kl_k1),
        ("the KL (k3)", ratio.kl_k3),
        ("the mean |log ratio|", ratio.mean_abs_log),
    ];
    match numbers.into_iter().find(|(_, value)| !value.is_finite()) {
        Some((quantity, value)) => {
            Err(TrainerError::NotFinite { version: from, quantity, value }.into())
        }
        None => Ok(report.version),
    }
}

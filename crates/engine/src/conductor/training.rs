//! Steps, and the way of new weights to the generator.
//!
//! ```text
//! step --> publish --> adopt (between two decode steps) --> the step's slots are free
//!   '--> next step at once, as far as the deadlines of the groups allow
//! ```

use scalerl_journal::What;
use scalerl_objective::plan::{PlanReport, plan};
use scalerl_recipe::WhenUnstable;
use scalerl_rollout::{
    Generator, Grader, PolicyVersion, PromptSource, StepReport, TrainerError, WeightHandle,
};
use tokio::time::timeout;

use super::{Conductor, Done, Ending, SeatUse};
use crate::{error::EngineError, groups::Formed, meter::Role, seat::Seat, settings::Settings};
use scalerl_journal::StopReason;

/// What a batch became.
#[derive(Debug)]
pub(super) struct Stepped {
    plan: PlanReport,
    lag: u64,
    /// `None` when nothing carried loss.
    report: Option<StepReport>,
}

impl<G: Generator, S: Seat, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Starts the next step if the trainer is free and there is a batch.
    pub(super) fn start_step(&mut self) -> Result<(), EngineError> {
        let progress = &self.progress;
        let version = progress.version;
        // The version to be evaluated must be published before the trainer moves on.
        let is_wanted = progress.due_now().is_some();
        let holds = (is_wanted && progress.published != Some(version))
            || progress.adopted.is_none()
            || (self.scheme.is_phased() && progress.is_measuring());
        if holds || self.seat.is_none() || self.ending.is_some() {
            return Ok(());
        }
        let Some(formed) = self.next_batch()? else { return Ok(()) };
        let Some(mut seat) = self.seat.take() else { return Ok(()) };
        self.progress.seat_use = Some(SeatUse::Step);
        let (settings, meter) = (self.settings.clone(), self.meter.clone());
        self.work.spawn(async move {
            let planned = tokio::task::spawn_blocking(move || {
                let batch = formed.batch(version);
                let temperature = settings.recipe.sampling.temperature;
                let planned = plan(&settings.recipe.objective, temperature, &batch);
                (formed, batch.lag(), planned, settings)
            });
            let (formed, lag, planned, settings) = match planned.await {
                Ok(planned) => planned,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            let result = match planned {
                Err(error) => Err(error.into()),
                Ok(planned) if planned.train.sequences.is_empty() => {
                    Ok(Stepped { plan: planned.report, lag, report: None })
                }
                Ok(planned) => {
                    let _busy = meter.busy(Role::Train);
                    let step = seat.step(planned.train);
                    in_time(&settings, "a step", step).await.map(|report| Stepped {
                        plan: planned.report,
                        lag,
                        report: Some(report),
                    })
                }
            };
            Done::Stepped { seat, formed, result }
        });
        Ok(())
    }

    pub(super) fn on_stepped(
        &mut self,
        formed: Formed,
        result: Result<Stepped, EngineError>,
    ) -> Result<(), EngineError> {
        let Stepped { plan, lag, report } = match result {
            Ok(stepped) => stepped,
            Err(error) => {
                // The step did not happen: its groups are still to be trained on.
                self.put_back(formed);
                return Err(error);
            }
        };
        let batch = formed.report(&plan);
        let Some(report) = report else {
            drop(formed);
            return self.on_empty_batch(batch);
        };
        let version = match check(self.progress.version, &report) {
            Ok(version) => version,
            Err(error) => {
                // The weights are past what the journal knows: they must not be saved.
                self.seat = None;
                return Err(error);
            }
        };
        self.tally.empty_batches = 0;
        self.progress.version = version;
        self.unadopted.push((version, formed.into_slots()));
        self.meter.add_trained(report.tokens, report.model_flops);
        let stopping = &self.settings.recipe.stopping;
        let warnings = self.watch.observe(stopping, &batch, &report);
        let is_stopped = stopping.when_unstable == WhenUnstable::Stop && !warnings.is_empty();
        let ledger = self.meter.ledger();
        self.pen.write(What::Step { lag, batch, report, ledger })?;
        for warning in warnings {
            let (sign, value, threshold) = (warning.sign, warning.value, warning.threshold);
            self.pen.write(What::Warning {
                version,
                sign,
                value,
                threshold,
                steps: warning.steps,
            })?;
        }
        let every = u64::from(self.settings.recipe.output.checkpoint_every_steps);
        self.progress.is_checkpoint_due |= version.0.is_multiple_of(every);
        if self.is_evaluation_time(&ledger) {
            self.progress.mark_evaluation(ledger);
        }
        if is_stopped && self.ending.is_none() {
            self.ending = Some(Ending::Stop(StopReason::Unstable));
        }
        self.check_budget();
        Ok(())
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
        let is_wanted = is_phase_over || progress.adopted.is_none() || progress.due_now().is_some();
        let has_room = progress.handle.is_none() && !progress.adopting;
        if is_wanted && has_room && progress.published != Some(version) {
            self.publish();
        }
        if self.progress.evaluating.is_none() && !self.progress.adopting {
            self.adopt();
        }
    }

    fn publish(&mut self) {
        let Some(mut seat) = self.seat.take() else { return };
        self.progress.seat_use = Some(SeatUse::Publish);
        let (settings, meter) = (self.settings.clone(), self.meter.clone());
        self.work.spawn(async move {
            let busy = meter.busy(Role::Train);
            let result = in_time(&settings, "publishing weights", seat.publish()).await;
            drop(busy);
            Done::Published { seat, result }
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
        self.pen.write(What::Adopted { version })
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

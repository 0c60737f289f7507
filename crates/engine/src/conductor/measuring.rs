//! Evaluation, forecast, and reasons to stop that follow from numbers.

use std::time::Duration;

use scalerl_curve::Verdict;
use scalerl_journal::{EvaluationPoint, ForecastReport, Ledger, StopReason, What};
use scalerl_rollout::{Generator, Grader, PolicyVersion, PromptSource};
use tokio::time::Instant;

use super::{Conductor, Done, Ending};
use crate::{
    error::EngineError,
    evaluate::{Evaluated, Unmeasured, evaluate},
    forecast::forecast,
    trainer_handle::TrainerHandle,
};

/// Evaluations in a row without a single verdict on the primary set before the run ends.
const UNMEASURED: usize = 3;

const SECONDS_PER_HOUR: f64 = 3600.0;
const MINUTES_PER_HOUR: f64 = 60.0;

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Whether the version just made is one to measure.
    pub(super) fn is_evaluation_time(&self, ledger: &Ledger) -> bool {
        let evaluation = &self.settings.recipe.evaluation;
        let version = self.progress.version.0;
        let by_steps =
            evaluation.every_steps.is_some_and(|every| version.is_multiple_of(u64::from(every)));
        let minutes =
            (ledger.training_hours() - self.progress.evaluated_at_hours) * MINUTES_PER_HOUR;
        let by_time = evaluation.every_device_minutes.is_some_and(|every| minutes >= every);
        (by_steps || by_time) && !self.settings.evaluation_sets.is_empty()
    }

    /// Starts the evaluation that is due once the generator has exactly that version.
    pub(super) fn start_evaluation(&mut self) {
        let progress = &mut self.progress;
        let Some(due) = progress.evaluations_due.front().copied() else { return };
        let version = due.version;
        if progress.adopted != Some(version) || progress.adopting || progress.evaluating.is_some() {
            return;
        }
        progress.evaluations_due.pop_front();
        progress.evaluating = Some(due);
        let (floor, at_once) = (self.floor.clone(), self.scheme.slots());
        let task = self
            .work
            .spawn(async move { Done::Evaluated(evaluate(floor, version, at_once).await) });
        progress.evaluation = Some(task);
    }

    pub(super) fn on_evaluated(
        &mut self,
        result: Result<Evaluated, EngineError>,
    ) -> Result<(), EngineError> {
        let due = self.progress.evaluating.take();
        self.progress.evaluation = None;
        let Evaluated { version, sets, unmeasured, samples, tokens, retried } = result?;
        for (attempt, reason) in retried {
            self.journal.write(What::GeneratorRetried { group: None, attempt, reason })?;
        }
        self.record_restarts()?;
        self.meter.add_evaluated(tokens);
        let ledger = self.meter.ledger();
        let spent = due.map_or(ledger, |due| due.spent);
        self.progress.evaluated = Some(version);
        self.progress.evaluated_at_hours = spent.training_hours();
        let primary = self.settings.recipe.evaluation.primary.clone();
        // The files beside the journal first: what they say is made anew from it after a kill.
        self.journal.folder.write_samples(version, &samples)?;
        for set in &sets {
            let point = EvaluationPoint::new(self.journal.name(), version, &spent, set);
            let other = (set.name != primary).then_some(set.name.as_str());
            self.journal.add_point(other, &point)?;
            if other.is_none() {
                self.points.push(point);
            }
        }
        let mut broken = None;
        for Unmeasured { set, failed, reason } in unmeasured {
            if set == primary {
                broken = Some(reason.clone());
            }
            self.record(What::NotMeasured { version, set, failed, reason })?;
        }
        let reached = sets.iter().find(|set| set.name == primary).map(|set| set.pass_rate);
        let set = primary.clone();
        self.record(What::Evaluation { version, primary, sets, spent, ledger })?;
        let target = self.settings.recipe.stopping.target;
        if reached.zip(target).is_some_and(|(reached, target)| reached >= target) {
            self.stop_because(StopReason::Target);
        }
        let Some(reason) = broken else {
            self.tally.unmeasured = 0;
            self.start_forecast();
            return Ok(());
        };
        self.tally.unmeasured += 1;
        let evaluations = self.tally.unmeasured;
        if evaluations < UNMEASURED {
            return Ok(());
        }
        Err(EngineError::EvaluationBroken { evaluations, set, reason })
    }

    /// Fits on a thread of its own kind: a fit takes up to a second of a processor.
    fn start_forecast(&mut self) {
        let axis = self.settings.recipe.budget.axis;
        let (points, history) = (self.points.clone(), self.settings.history.clone());
        self.progress.is_forecasting = true;
        self.work.spawn(async move {
            let fitted =
                tokio::task::spawn_blocking(move || forecast(&points, axis, &history)).await;
            match fitted {
                Ok(report) => Done::Forecast(report),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        });
    }

    pub(super) fn on_forecast(
        &mut self,
        report: Option<ForecastReport>,
    ) -> Result<(), EngineError> {
        self.progress.is_forecasting = false;
        let Some(report) = report else { return Ok(()) };
        // A handful of points can look flat by chance.
        let is_sound = report.verdict != Verdict::TooFewPoints;
        let gain = report.gain.0;
        self.journal.write(What::Forecast(report))?;
        let least = self.settings.recipe.stopping.forecast_gain;
        if is_sound && least.is_some_and(|least| gain < least) {
            self.stop_because(StopReason::ForecastGain);
        }
        Ok(())
    }

    pub(super) fn stop_because(&mut self, reason: StopReason) {
        self.ending.get_or_insert(Ending::Stop(reason));
    }

    /// Stops when a budget that is counted has been spent.
    pub(super) fn check_budget(&mut self) {
        let budget = &self.settings.recipe.budget;
        let (version, ledger) = (self.progress.version, self.meter.ledger());
        if budget.steps.is_some_and(|steps| version >= PolicyVersion(steps)) {
            self.stop_because(StopReason::Steps);
        } else if budget.tokens.is_some_and(|tokens| ledger.tokens_generated >= tokens) {
            self.stop_because(StopReason::Tokens);
        } else if let Some(reason) = self.spent_time() {
            self.stop_because(reason);
        }
    }

    fn spent_time(&self) -> Option<StopReason> {
        let (device, wall) = self.time_left_s();
        let is_over = |left: Option<f64>| left.is_some_and(|left| left <= 0.0);
        if is_over(device) {
            Some(StopReason::DeviceHours)
        } else {
            is_over(wall).then_some(StopReason::WallHours)
        }
    }

    /// Seconds by the clock until each budget of time is spent; work lost to kills counts.
    fn time_left_s(&self) -> (Option<f64>, Option<f64>) {
        let budget = &self.settings.recipe.budget;
        let spent = self.meter.ledger() + self.lost;
        let device = budget.device_hours.map(|hours| {
            (hours - spent.device_hours()) * SECONDS_PER_HOUR / self.settings.devices.count()
        });
        let wall = budget.wall_hours.map(|hours| hours * SECONDS_PER_HOUR - spent.wall_s);
        (device, wall)
    }

    /// When the first budget of time is spent, for the wait.
    pub(super) fn time_limit(&self) -> Option<Instant> {
        if self.ending.is_some() {
            return None;
        }
        let (device, wall) = self.time_left_s();
        let left = device.into_iter().chain(wall).reduce(f64::min)?;
        // Rounded up, so that the budget is spent when the sleep is over.
        let left = Duration::try_from_secs_f64(left.max(0.0) + 1e-3).ok()?;
        Instant::now().checked_add(left)
    }

    pub(super) fn on_time_limit(&mut self) {
        if let Some(reason) = self.spent_time() {
            self.stop_because(reason);
        }
    }
}

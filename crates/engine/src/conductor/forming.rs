//! From prompts to batches: admission, what a judged group is worth, cutting batches.

use scalerl_journal::{BatchReport, Fate, GroupReport, What};
use scalerl_objective::filter::keeps;
use scalerl_recipe::Filter;
use scalerl_rollout::{
    Generator, Grader, GroupId, PassRecord, PolicyVersion, PromptSource, Restart,
};
use tokio::task::JoinError;

use super::{Conductor, Ending};
use crate::{
    error::EngineError,
    groups::{Formed, Ready, Ticket},
    sampling::Sampled,
    trainer_handle::TrainerHandle,
    window::choose,
};
use scalerl_journal::StopReason;

/// Batches in a row with nothing to learn from before the run ends.
const EMPTY_BATCHES: usize = 20;

/// Batches' worth of groups in a row without a single verdict before the run ends.
const UNJUDGED_BATCHES: usize = 2;

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Starts sampling as many groups as there are slots.
    pub(super) fn admit(&mut self) -> Result<(), EngineError> {
        let Some(adopted) = self.progress.adopted else { return Ok(()) };
        if !self.may_sample() {
            return Ok(());
        }
        while let Some(ticket) = self.again.pop_front() {
            self.sample(ticket);
        }
        while !self.tally.is_dry && !self.is_over_limit() {
            let Some(slot) = self.slots.take() else { break };
            let Some(drawn) = self.source.next()? else {
                self.tally.is_dry = true;
                break;
            };
            let id = GroupId(self.next_group);
            self.next_group += 1;
            self.sample(Ticket { id, drawn, admitted: adopted, slot });
        }
        let is_empty = self.in_flight.is_empty() && self.arrived.is_empty() && self.pool.is_empty();
        let is_idle = self.queue.is_empty() && !self.progress.is_stepping();
        if self.tally.is_dry && is_empty && is_idle {
            self.ending = Some(Ending::Stop(StopReason::NoPrompts));
        }
        Ok(())
    }

    /// Phased schemes sample only between training phases, and not while measuring, so that the
    /// order of events is a function of the seed.
    fn may_sample(&self) -> bool {
        let is_between_phases = self.queue.is_empty()
            && !self.progress.is_stepping()
            && self.progress.adopted == Some(self.progress.version)
            && !self.progress.is_measuring();
        !self.scheme.is_phased() || is_between_phases
    }

    fn sample(&mut self, ticket: Ticket) {
        let (floor, id) = (self.floor.clone(), ticket.id);
        let prompt = ticket.drawn.prompt.clone();
        self.rollouts.spawn(floor.sample_group(id, prompt));
        self.in_flight.insert(id, ticket);
    }

    pub(super) fn on_sampled(
        &mut self,
        sampled: Result<Sampled, JoinError>,
    ) -> Result<(), EngineError> {
        let sampled = match sampled {
            Ok(sampled) => sampled,
            Err(error) if error.is_cancelled() => return Ok(()),
            Err(error) => {
                let reason = error.to_string();
                return Err(EngineError::Panicked { what: "a sampling task", reason });
            }
        };
        for (attempt, reason) in sampled.retried {
            let group = Some(sampled.group);
            self.journal.write(What::GeneratorRetried { group, attempt, reason })?;
        }
        let judged = sampled.result?;
        let Some(ticket) = self.in_flight.remove(&sampled.group) else { return Ok(()) };
        let ready = Ready { ticket, judged };
        if self.scheme.is_phased() {
            self.arrived.push(ready);
            Ok(())
        } else {
            self.examine(ready)
        }
    }

    /// Books a judged group, tells the source, and decides whether it may be trained on.
    fn examine(&mut self, ready: Ready) -> Result<(), EngineError> {
        let group = ready.ticket.id;
        self.meter
            .add_generated(ready.ticket.drawn.prompt.token_ids.len() as u64, ready.judged.tokens);
        let (passed, judged) = (ready.passed(), ready.judged.rollouts.len() as u32);
        let record = PassRecord { step: self.progress.version.0, passed, judged };
        let previous = self.source.record(&ready.ticket.drawn.prompt.id, record)?;
        self.record_restarts()?;
        for failure in &ready.judged.failures {
            let (completion, reason) = (failure.completion, failure.reason.clone());
            self.journal.write(What::VerifierFailed { group, completion, reason })?;
        }
        let objective = &self.settings.recipe.objective;
        let is_refilled = matches!(objective.filter, Filter::ZeroVarianceRefill { .. });
        let fate = if judged == 0 {
            Fate::NotJudged
        } else if is_refilled && !keeps(objective, &ready.group()) {
            Fate::ZeroVariance
        } else {
            Fate::Batch
        };
        let previous_pass_rate = previous.and_then(|record| record.rate());
        self.record(What::Group(GroupReport { previous_pass_rate, ..ready.report(fate) }))?;
        self.tally.examined += 1;
        self.tally.unjudged_groups = if judged == 0 { self.tally.unjudged_groups + 1 } else { 0 };
        if self.tally.unjudged_groups >= UNJUDGED_BATCHES * self.scheme.groups_per_step {
            let reason =
                ready.judged.failures.last().map_or_else(String::new, |f| f.reason.clone());
            let groups = self.tally.unjudged_groups;
            return Err(EngineError::VerifierBroken { groups, reason });
        }
        if fate == Fate::Batch {
            self.pool.push(ready);
        }
        Ok(())
    }

    /// Writes down which processes of environments have ended meanwhile.
    pub(super) fn record_restarts(&mut self) -> Result<(), EngineError> {
        let environment = self.floor.environment.as_ref();
        for Restart { dataset, reason } in environment.map_or_else(Vec::new, |one| one.restarts()) {
            self.journal.write(What::EnvironmentRestarted { dataset, reason })?;
        }
        Ok(())
    }

    /// So many groups were dropped for this batch that it goes as it is.
    fn is_over_limit(&self) -> bool {
        match self.settings.recipe.objective.filter {
            Filter::ZeroVarianceRefill { limit } => {
                self.tally.examined >= limit as usize * self.scheme.groups_per_cut()
            }
            _ => false,
        }
    }

    /// In phased schemes: once nothing is in flight, looks at all groups by their numbers and cuts
    /// the batches of the phase.
    pub(super) fn form_phase(&mut self) -> Result<(), EngineError> {
        let is_sampling = !self.in_flight.is_empty() || !self.again.is_empty();
        if !self.scheme.is_phased() || is_sampling || !self.queue.is_empty() {
            return Ok(());
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.sort_by_key(|ready| ready.ticket.id);
        for ready in arrived {
            self.examine(ready)?;
        }
        let wanted = self.scheme.groups_per_cut();
        let goes_short = self.is_over_limit() || (self.tally.is_dry && !self.pool.is_empty());
        if self.pool.len() < wanted && !goes_short {
            return Ok(());
        }
        let mut pool = std::mem::take(&mut self.pool);
        pool.sort_by_key(|ready| ready.ticket.id);
        let size = self.scheme.groups_per_step;
        if pool.is_empty() {
            return self.on_empty_batch(BatchReport::default());
        }
        self.tally.examined = 0;
        while !pool.is_empty() {
            let rest = pool.split_off(size.min(pool.len()));
            let formed = self.padded(std::mem::replace(&mut pool, rest));
            self.queue.push_back(formed);
        }
        Ok(())
    }

    /// The next batch, if there is one to train on.
    pub(super) fn next_batch(&mut self) -> Result<Option<Formed>, EngineError> {
        if self.scheme.is_phased() {
            return Ok(self.queue.pop_front());
        }
        let deadline = |admitted: PolicyVersion| admitted.0 + self.scheme.steps_behind;
        let ready: Vec<u64> = self.pool.iter().map(|one| deadline(one.ticket.admitted)).collect();
        let sampling = self.in_flight.values().chain(&self.again);
        let unfinished: Vec<u64> = sampling.map(|one| deadline(one.admitted)).collect();
        let is_last = self.tally.is_dry && unfinished.is_empty() && !ready.is_empty();
        let (version, size) = (self.progress.version.0, self.scheme.groups_per_step);
        let goes_short = is_last || self.is_over_limit();
        let Some(chosen) = choose(&ready, &unfinished, version, size, goes_short) else {
            return Ok(None);
        };
        self.tally.examined = 0;
        if chosen.is_empty() {
            self.on_empty_batch(BatchReport::default())?;
            return Ok(None);
        }
        let mut batch = Vec::new();
        for index in chosen.into_iter().rev() {
            batch.push(self.pool.remove(index));
        }
        batch.reverse();
        Ok(Some(self.padded(batch)))
    }

    fn padded(&self, ready: Vec<Ready>) -> Formed {
        let missing = self.scheme.groups_per_step.saturating_sub(ready.len());
        let padding = (0..missing).map_while(|_| self.slots.take()).collect();
        Formed { ready, padding }
    }

    /// A batch without a step: its groups are done with, their slots are free.
    pub(super) fn on_empty_batch(&mut self, batch: BatchReport) -> Result<(), EngineError> {
        let (version, ledger) = (self.progress.version, self.meter.ledger());
        self.journal.write(What::EmptyBatch { version, batch, ledger })?;
        self.tally.examined = 0;
        self.tally.empty_batches += 1;
        if self.tally.empty_batches >= EMPTY_BATCHES {
            self.ending = Some(Ending::Stop(StopReason::NothingToLearn));
        }
        Ok(())
    }
}

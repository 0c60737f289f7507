//! Events of the history, and what the stability watch makes of each.

use scalerl_journal::{StopReason, What};
use scalerl_recipe::WhenUnstable;
use scalerl_rollout::{Generator, Grader, PromptSource};

use super::Conductor;
use crate::{error::EngineError, stability, trainer_handle::TrainerHandle};

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Writes an event down, then the bad signs that it completes; ends the run if the recipe says so.
    pub(super) fn record(&mut self, what: What) -> Result<(), EngineError> {
        let stopping = &self.settings.recipe.stopping;
        let warnings = self.watch.observe(stopping, &what);
        let is_ended = stopping.when_unstable != WhenUnstable::Warn
            && warnings.iter().any(|warning| warning.sign.is_instability());
        self.journal.write(what)?;
        let version = self.progress.version;
        for stability::Warning { sign, value, threshold, steps, .. } in warnings {
            self.journal.write(What::Warning { version, sign, value, threshold, steps })?;
        }
        if is_ended {
            self.stop_because(StopReason::Unstable);
        }
        Ok(())
    }
}

//! The engine's hand on the run folder: events with their times, points, samples, groups set aside.

use std::path::Path;

use scalerl_journal::{EvaluationPoint, Event, EventLog, RunFolder, What};
use scalerl_rollout::PolicyVersion;
use tokio::{sync::mpsc, time::Instant};

use crate::{error::EngineError, groups::SavedGroup};

/// Writes what happens. Whoever observes a run gets every event as it is written.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    pub(crate) folder: RunFolder,
    pub(crate) log: EventLog,
    name: String,
    started: Instant,
    now: f64,
    /// The other end is the terminal's; it may be gone.
    observer: Option<mpsc::UnboundedSender<Event>>,
}

impl JournalWriter {
    pub(crate) fn new(
        folder: RunFolder,
        log: EventLog,
        now: f64,
        observer: Option<mpsc::UnboundedSender<Event>>,
    ) -> Self {
        let name = folder.name();
        Self { folder, log, name, started: Instant::now(), now, observer }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Unix time in seconds.
    pub(crate) fn now(&self) -> f64 {
        self.now + self.started.elapsed().as_secs_f64()
    }

    pub(crate) fn write(&mut self, what: What) -> Result<(), EngineError> {
        let event = self.log.append(self.now(), what)?;
        if let Some(observer) = &self.observer {
            // An observer that has gone must not end the run.
            let _ = observer.send(event);
        }
        Ok(())
    }

    /// Records that a group is in no step, and keeps it to be looked at.
    pub(crate) fn set_aside(
        &mut self,
        version: PolicyVersion,
        group: &SavedGroup,
        reason: &str,
    ) -> Result<(), EngineError> {
        let kept = serde_json::json!({ "version": version, "reason": reason, "group": group });
        let file = self.folder.write_set_aside(group.id, &kept)?;
        self.write(What::SetAside {
            version,
            group: group.id,
            prompt: group.drawn.prompt.id.clone(),
            draw: group.drawn.draw,
            reason: reason.to_owned(),
            file,
        })
    }

    pub(crate) fn add_point(
        &self,
        other_set: Option<&str>,
        point: &EvaluationPoint,
    ) -> Result<(), EngineError> {
        Ok(self.folder.add_point(other_set, point)?)
    }
}

//! Which events count.
//!
//! A `resumed` event takes back everything after the checkpoint it goes on from. The lines stay in
//! the file; here they are sorted into what counts and what was undone.

use std::collections::BTreeMap;

use crate::{
    error::JournalError,
    event::{Event, What},
    ledger::Ledger,
    points::EvaluationPoint,
    reading::points_by_set,
};

/// The events of a run after all resumes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// Events that count, in order, those of sessions included.
    pub events: Vec<Event>,
    /// Events that a resume has taken back.
    pub undone: Vec<Event>,
    /// What the undone work had cost.
    pub lost: Ledger,
}

impl History {
    /// Sorts the lines of a file.
    pub fn of(lines: Vec<Event>) -> Self {
        let mut kept_lines: Vec<(usize, Event)> = Vec::new();
        let (mut undone, mut lost) = (Vec::new(), Ledger::default());
        for (index, event) in lines.into_iter().enumerate() {
            if let What::Resumed { kept, lost: cost, .. } = &event.what {
                let (kept, cost) = (*kept, *cost);
                let from = kept_lines.partition_point(|(line, _)| *line < kept);
                undone.extend(kept_lines.split_off(from).into_iter().map(|(_, event)| event));
                lost += cost;
            }
            kept_lines.push((index, event));
        }
        Self { events: kept_lines.into_iter().map(|(_, event)| event).collect(), undone, lost }
    }

    /// The evaluations of every set; `None` is the primary one.
    pub fn points_by_set(&self, run: &str) -> BTreeMap<Option<String>, Vec<EvaluationPoint>> {
        points_by_set(run, &self.events)
    }

    /// The ledger at the end.
    pub fn ledger(&self) -> Ledger {
        self.events.iter().rev().find_map(|event| event.what.ledger()).copied().unwrap_or_default()
    }

    /// The history as text, one line per event: without times and without the events of sessions.
    /// Two deterministic runs of the same recipe have the same text, however often they were killed.
    pub fn timeless_text(&self) -> Result<String, JournalError> {
        let mut text = String::new();
        for event in self.events.iter().filter(|event| !event.what.is_of_session()) {
            let Some(what) = event.what.without_times() else { continue };
            let line = serde_json::to_string(&what).map_err(|error| JournalError::BadFile {
                path: "events.jsonl".into(),
                problem: error.to_string(),
            })?;
            text.push_str(&line);
            text.push('\n');
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::BatchReport;
    use scalerl_rollout::PolicyVersion;

    fn event(what: What) -> Event {
        Event { v: 1, at: 0.0, what }
    }

    fn happened(version: u64) -> Event {
        let (batch, ledger) = (BatchReport::default(), Ledger::default());
        event(What::EmptyBatch { version: PolicyVersion(version), batch, ledger })
    }

    fn resumed(kept: usize, wall_s: f64) -> Event {
        let lost = Ledger { wall_s, ..Ledger::default() };
        let version = PolicyVersion(0);
        event(What::Resumed { version, kept, lost, buffered_groups: 0 })
    }

    fn versions(events: &[Event]) -> Vec<u64> {
        let version = |event: &Event| match event.what {
            What::EmptyBatch { version, .. } => Some(version.0),
            _ => None,
        };
        events.iter().filter_map(version).collect()
    }

    #[test]
    fn each_resume_takes_back_what_came_after_its_checkpoint() {
        let lines = vec![
            happened(0),
            happened(1),
            happened(2),
            resumed(2, 3.0), // line 3: takes back version 2
            happened(20),
            happened(21),
            resumed(5, 4.0), // line 6: takes back version 21
            happened(30),
            resumed(2, 5.0), // an older checkpoint: takes back 20, 30 and both resumes
            happened(40),
        ];
        let history = History::of(lines);
        assert_eq!(versions(&history.events), [0, 1, 40]);
        assert_eq!(versions(&history.undone), [2, 21, 20, 30]);
        assert!((history.lost.wall_s - 12.0).abs() < 1e-12, "what was lost stays lost");
    }

    #[test]
    fn a_deterministic_history_reads_the_same_with_and_without_a_resume() {
        let straight = History::of(vec![happened(0), happened(1), happened(2)]);
        let killed =
            History::of(vec![happened(0), happened(1), resumed(1, 1.0), happened(1), happened(2)]);
        assert_eq!(straight.timeless_text().unwrap(), killed.timeless_text().unwrap());
    }
}

//! `scalerl alarms`: the stability watch over recorded runs, held against how they ended.
//!
//! Each run is looked at event by event, as the watch would have seen it. Where a folder keeps only the
//! evaluations (docs/results), the held-out fall is the one sign that can be looked for.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use scalerl_engine::stability::Watch;
use scalerl_journal::{BadSign, Ledger, Reading, SetReport, What};
use scalerl_recipe::Stopping;
use scalerl_rollout::PolicyVersion;
use scalerl_study::export;
use scalerl_study::record::{self, RunRecord};

use crate::failure::BadInput;
use crate::forecast::output::say;
use crate::study::bad_input;
use scalerl_report::table;

/// Evaluations that are averaged for best and end.
const AVERAGED: usize = 3;
/// A run has fallen if it ends this far below its best.
const FALL: f64 = 0.03;

/// Options of `scalerl alarms`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run folders, study folders, or folders with such inside.
    #[arg(value_name = "RUN_OR_STUDY", required = true)]
    paths: Vec<PathBuf>,
    /// Also write the tables as a page.
    #[arg(long, value_name = "OUT.md")]
    out: Option<PathBuf>,
}

/// One run, its first alarm that training harms the policy, and how it ended.
struct Looked {
    group: String,
    run: String,
    evaluations: usize,
    /// The evaluation after which it was told, from 1, and the sign.
    alarm: Option<(usize, BadSign)>,
    /// The other signs.
    remarks: Vec<BadSign>,
    best: f64,
    end: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Told,
    Missed,
    CameBack,
    LeftAlone,
}

impl Case {
    const ALL: [Self; 4] = [Self::Told, Self::Missed, Self::CameBack, Self::LeftAlone];

    fn name(self) -> &'static str {
        match self {
            Self::Told => "fell, and was told",
            Self::Missed => "fell, and was not told",
            Self::CameBack => "was told, and came back by itself",
            Self::LeftAlone => "did not fall, and was left alone",
        }
    }
}

impl Looked {
    fn case(&self) -> Case {
        match (self.best - self.end >= FALL, self.alarm) {
            (true, Some(_)) => Case::Told,
            (true, None) => Case::Missed,
            (false, Some(_)) => Case::CameBack,
            (false, None) => Case::LeftAlone,
        }
    }

    fn cells(&self) -> Vec<String> {
        let alarm = self.alarm.map_or("-".into(), |(at, sign)| {
            let name = serde_json::to_value(sign).unwrap_or_default();
            format!("{} after evaluation {at}", name.as_str().unwrap_or_default())
        });
        vec![
            self.group.clone(),
            self.run.clone(),
            self.evaluations.to_string(),
            alarm,
            format!("{:.3}", self.best),
            format!("{:.3}", self.end),
            self.case().name().into(),
        ]
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let mut looked = Vec::new();
    for path in &args.paths {
        looked.extend(look(path)?);
    }
    if looked.is_empty() {
        let hint = format!("give folders of runs with {} evaluations and more", AVERAGED + 1);
        return Err(BadInput::new("no run among these has enough evaluations").hint(hint).into());
    }
    let (counts, rows) = (counts(&looked), rows(&looked));
    table::write(out, &counts)?;
    writeln!(out)?;
    table::write(out, &rows)?;
    if let Some(page) = &args.out {
        export::replace(page, text(&counts, &rows).as_bytes())?;
        say(&format!("wrote {}", page.display()));
    }
    Ok(())
}

fn look(path: &Path) -> Result<Vec<Looked>> {
    if path.join("events.jsonl").is_file() {
        let reading = Reading::load(path).map_err(|error| bad_input(&error.into()))?;
        let events = reading.history.events.iter().map(|event| event.what.clone());
        return Ok(replay(String::new(), reading.name.clone(), events).into_iter().collect());
    }
    let records = record::find(path).map_err(|error| bad_input(&error))?;
    let one = |record: &RunRecord| {
        let events = record
            .points
            .iter()
            .map(|point| evaluation(point.step, point.pass_rate, point.samples));
        replay(record.meta.study.clone(), record.meta.run.clone(), events)
    };
    Ok(records.iter().filter_map(one).collect())
}

fn evaluation(step: u64, pass_rate: f64, samples: u64) -> What {
    let set = SetReport {
        name: String::new(),
        pass_rate,
        prompts: 0,
        samples,
        failed: 0,
        mean_reward: None,
        pass_at: Vec::new(),
        truncated_share: 0.0,
        mean_tokens: 0.0,
    };
    let (spent, ledger) = (Ledger::default(), Ledger::default());
    let version = PolicyVersion(step);
    What::Evaluation { version, primary: String::new(), sets: vec![set], spent, ledger }
}

/// Shows the watch one event after the other; `None` for runs of too few evaluations.
fn replay(group: String, run: String, events: impl Iterator<Item = What>) -> Option<Looked> {
    let (mut watch, stopping) = (Watch::default(), Stopping::default());
    let (mut rates, mut alarm, mut remarks) = (Vec::new(), None, Vec::new());
    for what in events {
        if let What::Evaluation { primary, sets, .. } = &what {
            rates.extend(sets.iter().filter(|set| set.name == *primary).map(|set| set.pass_rate));
        }
        for warning in watch.observe(&stopping, &what) {
            if warning.sign.is_instability() {
                alarm.get_or_insert((rates.len(), warning.sign));
            } else {
                remarks.push(warning.sign);
            }
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let best = rates.windows(AVERAGED).map(mean).reduce(f64::max)?;
    let end = mean(&rates[rates.len() - AVERAGED..]);
    let evaluations = rates.len();
    (evaluations > AVERAGED).then_some(Looked {
        group,
        run,
        evaluations,
        alarm,
        remarks,
        best,
        end,
    })
}

fn counts(looked: &[Looked]) -> Vec<Vec<String>> {
    let mut lines = vec![table::row(["outcome", "runs"])];
    for case in Case::ALL {
        let count = looked.iter().filter(|one| one.case() == case).count();
        lines.push(vec![case.name().into(), count.to_string()]);
    }
    for sign in BadSign::ALL.into_iter().filter(|sign| !sign.is_instability()) {
        let count = looked.iter().filter(|one| one.remarks.contains(&sign)).count();
        if count > 0 {
            lines.push(vec![format!("remark: {}", sign.description()), count.to_string()]);
        }
    }
    lines
}

fn rows(looked: &[Looked]) -> Vec<Vec<String>> {
    let mut lines =
        vec![table::row(["study", "run", "evaluations", "first alarm", "best", "end", "outcome"])];
    let told = looked.iter().filter(|one| one.case() != Case::LeftAlone);
    lines.extend(told.map(Looked::cells));
    lines
}

fn text(counts: &[Vec<String>], rows: &[Vec<String>]) -> String {
    let mut page = String::from("# Alarms of the stability watch over recorded runs\n\n");
    let _ = writeln!(
        page,
        "Made by `scalerl alarms`. Every run is shown to the watch evaluation by evaluation. Best and \
         end are means of {AVERAGED} evaluations; a run has fallen if it ends {FALL} or more below its \
         best. A run that was told and came back had fallen beyond noise at that moment: the alarm \
         was right about the past and wrong about the end.\n"
    );
    for table in [counts, rows] {
        for (index, line) in table.iter().enumerate() {
            let _ = writeln!(page, "| {} |", line.join(" | "));
            if index == 0 {
                let _ = writeln!(page, "|{}", "---|".repeat(line.len()));
            }
        }
        page.push('\n');
    }
    page.push_str("Runs that did not fall and were left alone are counted and not listed.\n");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(rates: &[f64]) -> Case {
        let events =
            rates.iter().enumerate().map(|(step, rate)| evaluation(step as u64, *rate, 4096));
        replay(String::new(), "run".into(), events).unwrap().case()
    }

    #[test]
    fn runs_are_told_apart_by_alarm_and_end() {
        let up = [0.2, 0.3, 0.4, 0.5, 0.5, 0.5];
        assert_eq!(case(&up), Case::LeftAlone);
        assert_eq!(case(&[&up[..], &[0.3, 0.3, 0.3]].concat()), Case::Told);
        assert_eq!(case(&[&up[..], &[0.3, 0.3, 0.5, 0.5, 0.5]].concat()), Case::CameBack);
        // Slowly, and too late to be seen.
        assert_eq!(case(&[&up[..], &[0.5, 0.47, 0.43]].concat()), Case::Missed);
        assert!(
            replay(String::new(), "short".into(), [evaluation(0, 0.1, 9)].into_iter()).is_none()
        );
    }
}

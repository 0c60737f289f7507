//! Progress over all runs of a study: a bar on a terminal, plain lines otherwise.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use scalerl_study::state::{Glance, glance};
use scalerl_study::{Budget, Plan};

use super::outcome::Study;
use crate::forecast::output::say;

/// The bar's length: progress is a share.
const TICKS: f64 = 1000.0;
const BAR_EVERY: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(15);

pub(crate) struct Show<'a> {
    study: &'a Study,
    plan: &'a Plan,
    bar: Option<ProgressBar>,
    last: Instant,
    jobs: Vec<Seen>,
}

/// A run and whether it was seen to have ended; such a one is not looked at again.
struct Seen {
    name: String,
    budget: Budget,
    is_finished: bool,
}

impl<'a> Show<'a> {
    pub(crate) fn new(study: &'a Study, plan: &'a Plan) -> Result<Self> {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{prefix} {bar:30} {percent} % {elapsed}, {eta} left {wide_msg}";
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(TICKS as u64).with_style(style).with_prefix(plan.name.clone())
        });
        let mut jobs = Vec::new();
        for variant in &plan.variants {
            for job in variant.tuning()?.into_iter().chain(variant.runs(None)?) {
                jobs.push(Seen { name: job.name, budget: job.budget, is_finished: false });
            }
        }
        Ok(Self { study, plan, bar, last: Instant::now(), jobs })
    }

    pub(crate) fn started(&self, run: &str, is_new: bool) {
        self.line(&format!("{run}: {}", if is_new { "started" } else { "goes on" }));
    }

    pub(crate) fn ended(&self, run: &str, failure: Option<&str>) {
        match failure {
            None => self.line(&format!("{run}: {}", self.stand(run))),
            Some(reason) => self.line(&format!("{run}: failed: {reason}")),
        }
    }

    /// Shows where the running ones and the whole are, now and then.
    pub(crate) fn look<'b>(&mut self, running: impl Iterator<Item = &'b str>) -> Result<()> {
        let every = if self.bar.is_some() { BAR_EVERY } else { LINE_EVERY };
        if self.last.elapsed() < every {
            return Ok(());
        }
        self.last = Instant::now();
        let (mut share, mut total) = (0.0, 0.0);
        for job in &mut self.jobs {
            total += job.budget.amount;
            if job.is_finished {
                share += job.budget.amount;
                continue;
            }
            let seen = glance(&self.study.runs().join(&job.name), job.budget)?;
            share += seen.share * job.budget.amount;
            job.is_finished = seen.is_finished();
        }
        let share = share / total;
        let done = self.jobs.iter().filter(|job| job.is_finished).count();
        let stands: Vec<String> = running.map(|run| format!("{run} {}", self.stand(run))).collect();
        let whole = format!("{done} of {} runs", self.jobs.len());
        match &self.bar {
            Some(bar) => {
                bar.set_position((share * TICKS) as u64);
                bar.set_message(format!("{whole}, {}", stands.join(", ")));
            }
            None => say(&format!(
                "{}: {:.0} %, {whole} done, {}",
                self.plan.name,
                100.0 * share,
                stands.join(", ")
            )),
        }
        Ok(())
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn stand(&self, run: &str) -> String {
        // Only steps and the pass rate are shown, and those need no budget.
        match glance(&self.study.runs().join(run), self.plan.budget) {
            Ok(Glance { step, pass_rate: Some(rate), .. }) => {
                format!("step {step}, pass rate {rate:.3}")
            }
            Ok(Glance { is_under_way: false, .. }) => self.last_word(run),
            Ok(Glance { step, .. }) => format!("step {step}"),
            Err(error) => error.to_string(),
        }
    }

    /// Before its first step a run may warm up for minutes; its log tells how far it is.
    fn last_word(&self, run: &str) -> String {
        let text = std::fs::read_to_string(self.study.log(run)).unwrap_or_default();
        let words: Vec<&str> = text.lines().last().unwrap_or("").split_whitespace().collect();
        if words.is_empty() { "begins".into() } else { words.join(" ") }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(text),
        }
    }
}

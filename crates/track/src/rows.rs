//! From events to rows: the one list of metrics that every tracker gets.
//!
//! A row is what one event says in numbers, at an optimizer step. Counters and speeds are over the
//! events that count, so a run that was killed and resumed has the rows of one that was not.

use std::borrow::Cow;
use std::collections::BTreeMap;

use scalerl_journal::{
    BatchReport, Event, Fate, ForecastReport, GroupReport, Ledger, Sample, SetReport, What,
};
use scalerl_rollout::StepReport;

/// One metric: its name, with placeholders in braces, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// `eval/{set}/pass_rate`.
    pub name: &'static str,
    /// In words.
    pub meaning: &'static str,
}

const fn metric(name: &'static str, meaning: &'static str) -> Metric {
    Metric { name, meaning }
}

/// Every metric there is, in the order of docs/tracking.md.
pub const METRICS: &[Metric] = &[
    metric("eval/pass_rate", "pass rate of the primary evaluation set"),
    metric("eval/training_hours", "device-hours without evaluations when that policy was made"),
    metric("eval/tokens_generated", "tokens generated for training when that policy was made"),
    metric(
        "eval/{set}/pass_rate",
        "pass rate of an evaluation set (mean over prompts and generations)",
    ),
    metric("eval/{set}/reward", "mean reward of the set"),
    metric("eval/{set}/pass_at_{k}", "pass@k of the set, unbiased"),
    metric("eval/{set}/truncated_share", "share of its completions that ran out of their budget"),
    metric("eval/{set}/mean_tokens", "mean tokens of its completions"),
    metric("eval/{set}/verifier_failures", "its completions whose verifier failed"),
    metric("forecast/compute", "compute of the last evaluation, on the recipe's axis"),
    metric("forecast/value", "the fitted curve there"),
    metric("forecast/at_twice", "forecast of a measurement at twice the compute"),
    metric("forecast/at_twice_low", "lower end of its 90 % interval"),
    metric("forecast/at_twice_high", "upper end of its 90 % interval"),
    metric("forecast/gain", "what twice the compute buys"),
    metric("forecast/gain_low", "lower end of its 90 % interval"),
    metric("forecast/gain_high", "upper end of its 90 % interval"),
    metric("forecast/ceiling", "forecast ceiling"),
    metric("forecast/ceiling_low", "lower end of its 90 % interval"),
    metric("forecast/ceiling_high", "upper end, where the points bound it"),
    metric("forecast/history_weight", "share of the forecast that rests on finished runs"),
    metric("train/reward", "mean reward of the batch"),
    metric("train/pass_rate", "share of right completions of the batch"),
    metric("train/pass_rate/{dataset}", "of the groups judged since the step before, by data set"),
    metric("train/loss", "loss, KL and entropy terms included"),
    metric("train/entropy", "mean entropy of the policy, in nats"),
    metric("train/gradient_norm", "norm of the gradient before clipping"),
    metric("train/learning_rate", "learning rate of the step"),
    metric("train/advantage_deviation", "standard deviation of the advantages"),
    metric(
        "train/lag",
        "steps between the policy that wrote a rollout and the one trained, at most",
    ),
    metric("train/groups", "groups with a token that carries loss: the effective batch"),
    metric("train/zero_variance_share", "share of the batch's groups whose rewards were all equal"),
    metric("train/trained_tokens", "tokens that carry loss"),
    metric("length/mean_tokens", "mean tokens of a completion of the batch"),
    metric("length/truncated_share", "share of completions that ran out of their budget"),
    metric("length/interrupted_share", "share of completions whose thinking was cut"),
    metric("ratio/mean", "trainer's probability over generator's: mean"),
    metric("ratio/min", "smallest"),
    metric("ratio/max", "largest"),
    metric("ratio/clip_fraction", "share of tokens whose ratio was capped or clipped"),
    metric("ratio/effective_sample_share", "1 when all ratios are equal"),
    metric("ratio/mean_abs_log", "mean of |log ratio|"),
    metric("kl/generator_k1", "KL between generator and trainer, unbiased estimate"),
    metric("kl/generator_k3", "the same, estimate that is never negative"),
    metric("kl/reference", "KL to the reference model, where the recipe asks for one"),
    metric("groups/judged", "groups judged so far"),
    metric("groups/set_aside", "judged groups that no step could use, so far"),
    metric("groups/refilled", "groups replaced because all rewards were equal, so far"),
    metric("groups/empty_batches", "batches without anything to learn, so far"),
    metric("groups/verifier_failures", "completions whose verifier failed, so far"),
    metric("groups/environment_restarts", "processes of environments that were restarted, so far"),
    metric("warning/{sign}", "value of a bad sign that has lasted"),
    metric("idle/generator_share", "share of the time without work for the generator"),
    metric("idle/trainer_share", "share of the time without work for the trainer"),
    metric(
        "speed/tokens_per_second",
        "tokens generated a second of the clock, since the step before",
    ),
    metric("speed/step_seconds", "seconds of the optimizer step"),
    metric(
        "speed/trained_tokens_per_second",
        "tokens run through the trainer a second of its step",
    ),
    metric("speed/trainer_tflops", "10^12 operations of the model a second of the step"),
    metric(
        "memory/peak_gib",
        "peak memory of the trainer's device, or of the process on a CPU, GiB",
    ),
    metric("compute/device_hours", "device-hours held"),
    metric("compute/training_hours", "the same without evaluations: the axis of the curve"),
    metric("compute/generate_hours", "device-hours that generated"),
    metric("compute/train_hours", "device-hours that trained"),
    metric("compute/evaluate_hours", "device-hours that evaluated"),
    metric("compute/idle_hours", "device-hours held and not used"),
    metric("compute/wall_hours", "hours by the clock"),
    metric("compute/tokens_generated", "tokens generated for training"),
    metric("compute/tokens_trained", "tokens run through the trainer"),
    metric("compute/flops", "operations of the model"),
];

/// What one event says in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Line of the event in `events.jsonl`, from 0.
    pub line: usize,
    /// Optimizer steps taken.
    pub step: u64,
    /// Unix time in seconds.
    pub at: f64,
    /// Names and values, all finite.
    pub metrics: Vec<(Cow<'static, str>, f64)>,
    /// Completions of an evaluation, where some are kept.
    pub samples: Vec<Sample>,
}

impl Row {
    fn set(&mut self, name: impl Into<Cow<'static, str>>, value: f64) {
        if value.is_finite() {
            self.metrics.push((name.into(), value));
        }
    }
}

/// Makes rows; knows what must be known of the events before.
#[derive(Debug, Default)]
pub(crate) struct RowMaker {
    before: Ledger,
    judged: u64,
    set_aside: u64,
    refilled: u64,
    empty_batches: u64,
    verifier_failures: u64,
    environment_restarts: u64,
    /// Right and judged completions since the last step, by data set.
    by_dataset: BTreeMap<String, (u64, u64)>,
}

impl RowMaker {
    /// The row of the event in this line, if it has one. Events come in order, only those that count.
    pub(crate) fn row(&mut self, line: usize, event: &Event) -> Option<Row> {
        let at = event.at;
        let row = |step: u64| Row { line, step, at, metrics: Vec::new(), samples: Vec::new() };
        match &event.what {
            What::Group(group) => self.group(group),
            What::SetAside { .. } => self.set_aside += 1,
            What::VerifierFailed { .. } => self.verifier_failures += 1,
            What::EnvironmentRestarted { .. } => self.environment_restarts += 1,
            What::EmptyBatch { version, ledger, .. } => {
                self.empty_batches += 1;
                let mut row = row(version.0);
                row.set("groups/empty_batches", self.empty_batches as f64);
                compute(&mut row, ledger);
                return Some(row);
            }
            What::Step { lag, batch, report, ledger } => {
                let mut row = row(report.version.0);
                row.set("train/lag", *lag as f64);
                of_batch(&mut row, batch);
                of_report(&mut row, report);
                self.of_groups(&mut row);
                self.of_ledger(&mut row, ledger);
                return Some(row);
            }
            What::Evaluation { version, primary, sets, spent, .. } => {
                let mut row = row(version.0);
                for set in sets {
                    of_set(&mut row, set, *primary == set.name);
                }
                row.set("eval/training_hours", spent.training_hours());
                row.set("eval/tokens_generated", spent.tokens_generated as f64);
                return Some(row);
            }
            What::Forecast(report) => {
                let mut row = row(report.version.0);
                of_forecast(&mut row, report);
                return Some(row);
            }
            What::Warning { version, sign, value, .. } => {
                let mut row = row(version.0);
                let sign = serde_json::to_value(sign).unwrap_or_default();
                row.set(format!("warning/{}", spelled(sign.as_str().unwrap_or("sign"))), *value);
                return Some(row);
            }
            _ => {}
        }
        None
    }

    fn group(&mut self, group: &GroupReport) {
        self.judged += 1;
        self.refilled += u64::from(group.fate == Fate::ZeroVariance);
        // A prompt's name is its data set's and a row.
        let dataset = group.prompt.0.rsplit_once('/').map_or("", |(dataset, _)| dataset);
        let counts = self.by_dataset.entry(dataset.to_owned()).or_default();
        counts.0 += u64::from(group.passed);
        counts.1 += u64::from(group.judged);
    }

    fn of_groups(&mut self, row: &mut Row) {
        for (dataset, (passed, judged)) in std::mem::take(&mut self.by_dataset) {
            if judged > 0 && !dataset.is_empty() {
                let name = format!("train/pass_rate/{}", spelled(&dataset));
                row.set(name, passed as f64 / judged as f64);
            }
        }
        row.set("groups/judged", self.judged as f64);
        row.set("groups/set_aside", self.set_aside as f64);
        row.set("groups/refilled", self.refilled as f64);
        row.set("groups/verifier_failures", self.verifier_failures as f64);
        row.set("groups/environment_restarts", self.environment_restarts as f64);
    }

    fn of_ledger(&mut self, row: &mut Row, ledger: &Ledger) {
        let since = ledger.since(&self.before);
        self.before = *ledger;
        if since.wall_s > 0.0 {
            row.set("speed/tokens_per_second", since.tokens_generated as f64 / since.wall_s);
        }
        row.set("idle/generator_share", ledger.generator_idle_share());
        row.set("idle/trainer_share", ledger.trainer_idle_share());
        compute(row, ledger);
    }
}

const SECONDS_PER_HOUR: f64 = 3600.0;
const GIB: f64 = (1_u64 << 30) as f64;

fn compute(row: &mut Row, ledger: &Ledger) {
    let held = &ledger.device_seconds;
    row.set("compute/device_hours", ledger.device_hours());
    row.set("compute/training_hours", ledger.training_hours());
    row.set("compute/generate_hours", held.generate / SECONDS_PER_HOUR);
    row.set("compute/train_hours", held.train / SECONDS_PER_HOUR);
    row.set("compute/evaluate_hours", held.evaluate / SECONDS_PER_HOUR);
    row.set("compute/idle_hours", held.idle / SECONDS_PER_HOUR);
    row.set("compute/wall_hours", ledger.wall_s / SECONDS_PER_HOUR);
    row.set("compute/tokens_generated", ledger.tokens_generated as f64);
    row.set("compute/tokens_trained", ledger.tokens_trained as f64);
    row.set("compute/flops", ledger.flops);
}

fn of_batch(row: &mut Row, batch: &BatchReport) {
    row.set("train/reward", batch.mean_reward);
    row.set("train/pass_rate", batch.pass_rate);
    row.set("train/advantage_deviation", batch.advantage_deviation);
    row.set("train/groups", f64::from(batch.trained_groups));
    if !batch.groups.is_empty() {
        let share = batch.zero_variance.len() as f64 / batch.groups.len() as f64;
        row.set("train/zero_variance_share", share);
    }
    row.set("train/trained_tokens", batch.trained_tokens as f64);
    row.set("length/mean_tokens", batch.mean_tokens);
    row.set("length/truncated_share", batch.truncated_share);
    row.set("length/interrupted_share", batch.interrupted_share);
}

fn of_report(row: &mut Row, report: &StepReport) {
    row.set("train/loss", report.loss);
    row.set("train/entropy", report.entropy);
    row.set("train/gradient_norm", report.gradient_norm);
    row.set("train/learning_rate", report.learning_rate);
    let ratio = &report.ratio;
    row.set("ratio/mean", ratio.mean);
    row.set("ratio/min", ratio.min);
    row.set("ratio/max", ratio.max);
    row.set("ratio/clip_fraction", ratio.clip_fraction);
    row.set("ratio/effective_sample_share", ratio.effective_sample_share);
    row.set("ratio/mean_abs_log", ratio.mean_abs_log);
    row.set("kl/generator_k1", ratio.kl_k1);
    row.set("kl/generator_k3", ratio.kl_k3);
    if let Some(kl) = report.reference_kl {
        row.set("kl/reference", kl);
    }
    row.set("speed/step_seconds", report.seconds);
    if report.seconds > 0.0 {
        row.set("speed/trained_tokens_per_second", report.tokens as f64 / report.seconds);
        row.set("speed/trainer_tflops", report.model_flops / report.seconds / 1e12);
    }
    if let Some(bytes) = report.peak_memory_bytes {
        row.set("memory/peak_gib", bytes as f64 / GIB);
    }
}

fn of_set(row: &mut Row, set: &SetReport, is_primary: bool) {
    if is_primary {
        row.set("eval/pass_rate", set.pass_rate);
    }
    let name = spelled(&set.name);
    row.set(format!("eval/{name}/pass_rate"), set.pass_rate);
    if let Some(reward) = set.mean_reward {
        row.set(format!("eval/{name}/reward"), reward);
    }
    for at in &set.pass_at {
        row.set(format!("eval/{name}/pass_at_{}", at.k), at.value);
    }
    row.set(format!("eval/{name}/truncated_share"), set.truncated_share);
    row.set(format!("eval/{name}/mean_tokens"), set.mean_tokens);
    row.set(format!("eval/{name}/verifier_failures"), set.failed as f64);
}

fn of_forecast(row: &mut Row, report: &ForecastReport) {
    row.set("forecast/compute", report.compute);
    row.set("forecast/value", report.value);
    let (best, low, high) = report.at_twice;
    row.set("forecast/at_twice", best);
    row.set("forecast/at_twice_low", low);
    row.set("forecast/at_twice_high", high);
    let (best, low, high) = report.gain;
    row.set("forecast/gain", best);
    row.set("forecast/gain_low", low);
    row.set("forecast/gain_high", high);
    let (best, low, high) = report.ceiling;
    row.set("forecast/ceiling", best);
    row.set("forecast/ceiling_low", low);
    if let Some(high) = high {
        row.set("forecast/ceiling_high", high);
    }
    if let Some(history) = &report.history {
        row.set("forecast/history_weight", history.weight);
    }
}

/// A name as every tracker takes it: MLflow knows letters, digits, `_-. :/` only.
fn spelled(name: &str) -> String {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "_-. :".contains(letter);
    name.chars().map(|letter| if is_known(letter) { letter } else { '_' }).collect()
}

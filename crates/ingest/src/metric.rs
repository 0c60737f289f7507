//! Finds the validation pass rate among the columns of a log.
//!
//! A column is judged by its name. Its first part says whether it is a validation (`eval/…`,
//! `val-core/…`, `test_…`), its words say what was measured (pass rate, accuracy, score, reward),
//! and what is left names the validation set. Losses, spreads, lengths, times and best-of-k
//! figures are not pass rates. For each set the best measure is kept: an accuracy before a
//! score before a reward, the mean over more samples before the mean over fewer.

use crate::axis::normalise;
use crate::table::Table;

/// A column that holds a pass rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) column: String,
    /// The validation set, empty where the name has none.
    pub(crate) set: String,
    /// A training signal, taken because there is no validation.
    pub(crate) is_training: bool,
}

/// What a name says; the fields are compared in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Quality {
    measure: Measure,
    /// An average over repetitions, `mean@k`, is the pass rate by definition.
    is_mean: bool,
    /// The k of `mean@k`.
    samples: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Measure {
    PassAtK,
    Reward,
    Score,
    Accuracy,
}

/// The pass rates of a table: one, or one per validation set.
pub(crate) fn find(table: &Table) -> Vec<Metric> {
    let names: Vec<&str> = table
        .columns()
        .iter()
        .filter(|column| column.is_numeric())
        .map(|column| column.name.as_str())
        .collect();
    let validations: Vec<(Judged, &str)> =
        names.iter().filter_map(|name| Some((judge(name, true)?, *name))).collect();
    let others: Vec<(Judged, &str)> =
        names.iter().filter_map(|name| Some((judge(name, false)?, *name))).collect();
    let is_sure =
        |judged: &Judged| judged.quality.measure >= Measure::Score || judged.quality.is_mean;
    let is_accuracy =
        |judged: &Judged| judged.quality.measure == Measure::Accuracy && !judged.is_training;
    for (candidates, is_training) in [
        (keep(&validations, is_sure), false),
        (keep(&others, is_accuracy), false),
        (keep(&validations, |_| true), false),
        (keep(&others, |_| true), true),
    ] {
        let sets = best_per_set(&candidates, is_training);
        if !sets.is_empty() {
            // Outside validations, several names are several views of one thing.
            return if is_training { sets.into_iter().take(1).collect() } else { sets };
        }
    }
    Vec::new()
}

fn keep<'a>(
    from: &[(Judged, &'a str)],
    is_wanted: impl Fn(&Judged) -> bool,
) -> Vec<(Judged, &'a str)> {
    from.iter().filter(|(judged, _)| is_wanted(judged)).cloned().collect()
}

fn best_per_set(candidates: &[(Judged, &str)], is_training: bool) -> Vec<Metric> {
    let mut order: Vec<&str> = Vec::new();
    let mut best = std::collections::HashMap::new();
    for (judged, name) in candidates {
        let set = judged.set.as_str();
        let known = best.entry(set).or_insert_with(|| {
            order.push(set);
            (judged.quality, *name)
        });
        if judged.quality > known.0 {
            *known = (judged.quality, *name);
        }
    }
    order
        .into_iter()
        .map(|set| {
            let (_, column) = best[set];
            Metric { column: column.to_owned(), set: set.to_owned(), is_training }
        })
        .collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Judged {
    quality: Quality,
    set: String,
    is_training: bool,
}

const VALIDATION: [&str; 11] = [
    "val_core",
    "val",
    "valid",
    "validation",
    "eval",
    "evals",
    "evaluation",
    "test",
    "dev",
    "heldout",
    "holdout",
];

/// First parts under which frameworks log what happens on training prompts.
const TRAINING: [&str; 8] =
    ["train", "training", "critic", "actor", "rollout", "batch", "rewards", "reward"];

/// Words that say what a column is not.
const NOT_A_RATE: [&str; 50] = [
    "loss",
    "std",
    "stderr",
    "var",
    "time",
    "timing",
    "runtime",
    "second",
    "seconds",
    "length",
    "len",
    "lengths",
    "token",
    "tokens",
    "entropy",
    "kl",
    "clip",
    "clipped",
    "min",
    "max",
    "median",
    "lr",
    "grad",
    "norm",
    "count",
    "num",
    "n",
    "samples",
    "epoch",
    "step",
    "steps",
    "memory",
    "best",
    "worst",
    "maj",
    "frac",
    "truncated",
    "perplexity",
    "ppl",
    "advantage",
    "advantages",
    "value",
    "values",
    "format",
    "throughput",
    "low",
    "high",
    "lower",
    "upper",
    "ci",
];

/// Words for what was measured; longer ones stand before those they contain.
const WORDS: [(&str, Measure); 17] = [
    ("pass_rate", Measure::Accuracy),
    ("passrate", Measure::Accuracy),
    ("pass_at_1", Measure::Accuracy),
    ("solve_rate", Measure::Accuracy),
    ("success_rate", Measure::Accuracy),
    ("accuracy_reward", Measure::Accuracy),
    ("accuracy", Measure::Accuracy),
    ("exact_match", Measure::Accuracy),
    ("correctness", Measure::Accuracy),
    ("correct", Measure::Accuracy),
    ("acc", Measure::Accuracy),
    ("test_score", Measure::Score),
    ("score", Measure::Score),
    ("scores", Measure::Score),
    ("rewards", Measure::Reward),
    ("reward", Measure::Reward),
    ("return", Measure::Reward),
];

/// Judges a column name, as a validation or as anything else; `None` if it is no pass rate.
fn judge(name: &str, as_validation: bool) -> Option<Judged> {
    let spelled = name.trim();
    let name = normalise(name);
    let separator = if name.contains('/') { '/' } else { '.' };
    let mut parts: Vec<&str> = name.split(separator).filter(|part| !part.is_empty()).collect();
    // verl's own name for measures beside the one that counts.
    if parts.first() == Some(&"val_aux") {
        return None;
    }
    let head = VALIDATION.iter().find_map(|head| {
        let rest = parts.first()?.strip_prefix(head)?;
        if rest.is_empty() { Some("") } else { rest.strip_prefix('_') }
    });
    match (head, as_validation) {
        (Some(""), true) => drop(parts.remove(0)),
        (Some(rest), true) => parts[0] = rest,
        (None, false) => {}
        _ => return None,
    }
    let is_training = TRAINING.contains(parts.first()?);
    let words: Vec<&str> = parts.iter().flat_map(|part| part.split('_')).collect();
    if words.iter().any(|word| NOT_A_RATE.contains(&word.split('@').next().unwrap_or(word))) {
        return None;
    }
    let mut quality: Option<Quality> = None;
    let mut set = Vec::new();
    for part in parts {
        match measure(part) {
            Some((found, rest)) => {
                quality = Some(quality.map_or(found, |known| Quality {
                    measure: known.measure.max(found.measure),
                    is_mean: known.is_mean || found.is_mean,
                    samples: known.samples.max(found.samples),
                }));
                set.extend(rest);
            }
            None if !matches!(part, "mean" | "avg" | "all" | "overall" | "average") => {
                set.push(part);
            }
            None => {}
        }
    }
    // Normalising keeps the length of every character: places in one are places in the other.
    let as_spelled = |part: &str| {
        let place = part.as_ptr().addr() - name.as_ptr().addr();
        spelled.get(place..place + part.len()).unwrap_or(part).to_owned()
    };
    let set = set.into_iter().map(as_spelled).collect::<Vec<_>>().join("/");
    Some(Judged { quality: quality?, set, is_training })
}

/// What a part of a name measures, and what of it names the set (`gsm8k_accuracy`).
fn measure(part: &str) -> Option<(Quality, Option<&str>)> {
    if let Some((statistic, count)) = part.split_once('@') {
        let samples = count.parse().ok()?;
        let quality = match statistic {
            "mean" | "avg" => Quality { measure: Measure::Reward, is_mean: true, samples },
            "pass" if samples == 1 => {
                Quality { measure: Measure::Accuracy, is_mean: false, samples }
            }
            // Among pass@k the smallest k is nearest to the pass rate.
            "pass" => {
                let samples = u32::MAX - samples;
                Quality { measure: Measure::PassAtK, is_mean: false, samples }
            }
            _ => return None,
        };
        return Some((quality, None));
    }
    let trimmed = part.strip_prefix("mean_").or_else(|| part.strip_suffix("_mean")).unwrap_or(part);
    WORDS.iter().find_map(|(word, measure)| {
        let quality = Quality { measure: *measure, is_mean: false, samples: 1 };
        if trimmed == *word {
            return Some((quality, None));
        }
        let set =
            trimmed.strip_suffix(word).and_then(|rest| rest.strip_suffix('_')).or_else(|| {
                // `reward_model` and `return_code` are no measures; `acc_gsm8k` is one.
                let rest = trimmed.strip_prefix(word).filter(|_| *measure > Measure::Reward);
                rest.and_then(|rest| rest.strip_prefix('_'))
            })?;
        Some((quality, Some(set)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cell;

    fn found(names: &[&str]) -> Vec<(String, String)> {
        let mut table = Table::default();
        table.push_row(1);
        for name in names {
            table.set(name, Cell::Number(0.5));
        }
        find(&table).into_iter().map(|metric| (metric.column, metric.set)).collect()
    }

    fn one(column: &str, set: &str) -> Vec<(String, String)> {
        vec![(column.to_owned(), set.to_owned())]
    }

    #[test]
    fn a_plain_table_has_its_pass_rate() {
        assert_eq!(found(&["run", "gpu_hours", "pass_rate"]), one("pass_rate", ""));
        assert_eq!(found(&["step", "loss", "Accuracy"]), one("Accuracy", ""));
        assert_eq!(found(&["step", "pass@1", "pass@8"]), one("pass@1", ""));
    }

    #[test]
    fn verl_has_one_measure_per_validation_set() {
        assert_eq!(
            found(&[
                "critic/score/mean",
                "val-core/openai/gsm8k/reward/mean@1",
                "val-core/MATH/acc/mean@4",
                "val-core/MATH/acc/mean@8",
                "val-core/MATH/acc/best@8/mean",
                "val-core/MATH/acc/maj@8/mean",
                "val-aux/MATH/score/mean@8",
            ]),
            [
                one("val-core/openai/gsm8k/reward/mean@1", "openai/gsm8k"),
                one("val-core/MATH/acc/mean@8", "MATH")
            ]
            .concat()
        );
        assert_eq!(
            found(&["critic/score/mean", "val/test_score/openai/gsm8k"]),
            one("val/test_score/openai/gsm8k", "openai/gsm8k")
        );
    }

    #[test]
    fn trainers_of_hugging_face_and_prime_rl_are_understood() {
        assert_eq!(
            found(&[
                "loss",
                "eval_loss",
                "eval_runtime",
                "eval_samples_per_second",
                "eval_reward",
                "eval_reward_std",
                "eval_rewards/accuracy_reward/mean",
                "eval_rewards/accuracy_reward/std",
                "eval_completions/mean_length",
            ]),
            one("eval_rewards/accuracy_reward/mean", "")
        );
        assert_eq!(
            found(&[
                "reward/mean",
                "eval/aime2024/avg@32",
                "eval/aime2024/pass@32",
                "eval/aime2024/time"
            ]),
            one("eval/aime2024/avg@32", "aime2024")
        );
    }

    #[test]
    fn a_training_reward_is_the_last_resort() {
        let mut table = Table::default();
        table.push_row(1);
        table.set("train/reward", Cell::Number(0.1));
        table.set("train/loss", Cell::Number(0.1));
        let metrics = find(&table);
        assert_eq!(metrics[0].column, "train/reward");
        assert!(metrics[0].is_training);
        assert_eq!(found(&["loss", "lr", "step", "reward_model/target"]), Vec::new());
    }
}

//! Pass rate rises with each recipe; interruptions, curriculum and ledger do what they say; the
//! other commands read the folders.

use std::collections::BTreeMap;

use scalerl_journal::{Reading, Sample, What};

use crate::bench::{audit, events, finish, folder, groups, scalerl, succeed, train};

/// Standard errors of a difference that chance does not make: one in a thousand, one-sided.
const SURE: f64 = 3.0;

/// The first evaluation, the mean of the last third of them, and how many standard errors lie between.
pub(crate) fn rise(reading: &Reading) -> (f64, f64, f64) {
    let sets: Vec<(f64, f64)> = events(reading)
        .filter_map(|what| match what {
            What::Evaluation { sets, .. } => Some((sets[0].pass_rate, sets[0].samples as f64)),
            _ => None,
        })
        .collect();
    let (first, samples) = sets[0];
    let last = &sets[sets.len() - sets.len() / 3..];
    let mean = last.iter().map(|(rate, _)| rate).sum::<f64>() / last.len() as f64;
    // The prompts are the same at each evaluation, so what is left is the noise of sampling.
    let variance = |rate: f64, samples: f64| rate * (1.0 - rate) / samples;
    let error = (variance(first, samples) + variance(mean, samples * last.len() as f64)).sqrt();
    (first, mean, (mean - first) / error)
}

pub(crate) fn assert_rises(reading: &Reading, name: &str) {
    let (first, mean, errors) = rise(reading);
    println!("{name}: {first:.3} to {mean:.3}, {errors:.1} standard errors");
    assert!(errors > SURE, "{name}: {first:.3} to {mean:.3}, {errors:.1} standard errors");
}

/// Interruptions happen in training, and answers after them are graded like any other.
fn assert_interruptions(reading: &Reading, run: &str) {
    let interrupted: u32 = groups(reading).map(|group| group.interrupted).sum();
    let all: u32 = groups(reading).map(|group| group.judged).sum();
    let share = f64::from(interrupted) / f64::from(all);
    assert!((0.1..0.6).contains(&share), "a third of the prompts do not fit: {share}");
    let mut verdicts: BTreeMap<(bool, bool), usize> = BTreeMap::new();
    for entry in std::fs::read_dir(folder().join(run).join("samples")).unwrap() {
        for line in std::fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
            let sample: Sample = serde_json::from_str(line).unwrap();
            let is_correct = sample.reward.expect("nothing fails here").is_correct;
            *verdicts.entry((sample.is_interrupted, is_correct)).or_default() += 1;
            let answer = sample.completion.split_once("</think>").map(|(_, answer)| answer);
            assert_eq!(is_correct, answer == Some(&sample.answer), "{sample:?}");
        }
    }
    let count = |kind| verdicts.get(&kind).copied().unwrap_or_default();
    assert!(count((true, true)) > 0 && count((true, false)) > 0, "{verdicts:?}");
}

/// A prompt that was solved never comes again, but for those under way at that moment.
fn assert_solved_prompts_leave(reading: &Reading, slots: u64) {
    let mut solved_at: BTreeMap<&str, u64> = BTreeMap::new();
    let mut second_epoch = 0;
    for (judged, group) in (1..).zip(groups(reading)) {
        let prompt = group.prompt.0.as_str();
        if let Some(handed_out) = solved_at.get(prompt) {
            assert!(group.group.0 < *handed_out, "{prompt} is solved and came again: {group:?}");
        }
        second_epoch += usize::from(group.draw.epoch > 0);
        if f64::from(group.passed) >= 0.9 * f64::from(group.judged) {
            solved_at.entry(prompt).or_insert(judged + slots);
        }
    }
    assert!(second_epoch > 100, "only {second_epoch} prompts could have come again");
    assert!(solved_at.len() > 100, "only {} prompts were solved", solved_at.len());
}

/// Role seconds add up to the time held, by the clock that wrote the events.
fn assert_ledger_adds_up(reading: &Reading) {
    let (first, last) =
        (reading.history.events.first().unwrap(), reading.history.events.last().unwrap());
    assert!(matches!(first.what, What::Started { .. }));
    let What::Stopped { ledger, .. } = &last.what else { panic!("{last:?}") };
    let (held, booked) = (last.at - first.at, ledger.device_seconds.total());
    assert!((held - booked).abs() <= 0.01 * held, "{booked} s booked of {held} s held");
    let roles = ledger.device_seconds;
    assert!(roles.generate > 0.0 && roles.train > 0.0 && roles.evaluate > 0.0, "{roles:?}");
}

#[test]
fn scalerl_learns_with_all_its_parts() {
    let reading = finish("scalerl", train("scalerl", "scalerl", &[]));
    assert_rises(&reading, "scalerl");
    assert_interruptions(&reading, "scalerl");
    assert_solved_prompts_leave(&reading, 9 * 16);
    assert_ledger_adds_up(&reading);
    audit(&reading, 8);
    let largest = reading.summary().largest_lag;
    assert!(largest > 0, "generator and trainer worked at the same time");

    let fit = succeed(scalerl(&["fit", "scalerl", "--x", "steps"]));
    assert!(fit.out.contains("scalerl"), "{}", fit.out);
    let report = succeed(scalerl(&["report", "scalerl"]));
    let page = folder().join("scalerl/report.html");
    assert!(page.is_file(), "{}", report.out);
    assert!(std::fs::read_to_string(page).unwrap().contains("held-out"));
}

#[test]
fn grpo_and_dapo_learn_from_the_same_start() {
    let grpo = finish("grpo", train("grpo-deepseek", "grpo", &[]));
    assert_rises(&grpo, "grpo-deepseek");
    let places = audit(&grpo, 7);
    crate::bench::assert_none_skipped(&places, 1024);
    let refill = ["objective.filter=zero-variance-refill", "objective.surrogate.high=0.28"];
    let dapo = finish("dapo", train("dapo-qwen2.5", "dapo", &refill));
    assert_rises(&dapo, "dapo-qwen2.5");
    audit(&dapo, 7);
    let dropped = groups(&dapo).filter(|group| group.fate == scalerl_journal::Fate::ZeroVariance);
    assert!(dropped.count() > 0, "groups without variance were replaced");
    for what in events(&dapo) {
        if let What::Step { batch, .. } = what {
            assert_eq!((batch.groups.len(), batch.trained_groups), (16, 16), "a full batch");
        }
    }
    assert_eq!(grpo.points()[0].pass_rate.to_bits(), dapo.points()[0].pass_rate.to_bits());
    let compared = succeed(scalerl(&["compare", "grpo", "dapo", "--x", "steps"]));
    assert!(compared.out.contains("grpo") && compared.out.contains("dapo"), "{}", compared.out);
}

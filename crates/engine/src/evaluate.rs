//! Measures a version on prompts that are never trained on.
//!
//! Runs on the generator beside training, with the weights of exactly one version: the conductor
//! hands no other weights over while an evaluation lasts, and every token is checked for it. It has
//! prompts, seeds and ledger lines of its own, so training sees the same with and without it.

use std::sync::Arc;

use scalerl_journal::{PassAt, Sample, SamplePart, SetReport};
use scalerl_rollout::{Completion, Generator, Grader, Intake, PolicyVersion, Rollout};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    error::EngineError,
    meter::Role,
    sampling::{Answer, Floor},
    token_list::sample_of,
};

/// What an evaluation found.
#[derive(Debug)]
pub(crate) struct Evaluated {
    pub(crate) version: PolicyVersion,
    /// Those with at least one verdict.
    pub(crate) sets: Vec<SetReport>,
    pub(crate) unmeasured: Vec<Unmeasured>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) tokens: u64,
    /// Attempts of the generator that failed and why.
    pub(crate) retried: Vec<(u32, String)>,
}

/// A set without a single verdict.
#[derive(Debug)]
pub(crate) struct Unmeasured {
    pub(crate) set: String,
    pub(crate) failed: u64,
    /// Why the last of them has none.
    pub(crate) reason: String,
}

/// The completions or episodes of one prompt with their verdicts.
type Answers = Vec<Answer>;

/// Measures every set with the weights the generator holds, which must be `version`.
/// At most `at_once` prompts are with the generator at a time.
pub(crate) async fn evaluate<G: Generator, R: Grader>(
    floor: Floor<G, R>,
    version: PolicyVersion,
    at_once: usize,
) -> Result<Evaluated, EngineError> {
    let settings = floor.settings.clone();
    let room = Arc::new(Semaphore::new(at_once));
    let mut tasks = JoinSet::new();
    for (set, one) in settings.evaluation_sets.iter().enumerate() {
        for index in 0..one.prompts.len() {
            let (floor, room) = (floor.clone(), room.clone());
            tasks.spawn(async move {
                let _permit = room.acquire().await.ok();
                let mut retried = Vec::new();
                let answers = answer(&floor, version, set, index, &mut retried).await?;
                Ok::<_, EngineError>((set, index, answers, retried))
            });
        }
    }
    let mut answers: Vec<Vec<Answers>> =
        settings.evaluation_sets.iter().map(|set| vec![Vec::new(); set.prompts.len()]).collect();
    let mut retried = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (set, index, found, again) = done.map_err(|error| EngineError::Panicked {
            what: "an evaluation",
            reason: error.to_string(),
        })??;
        answers[set][index] = found;
        retried.extend(again);
    }
    let pass_at = &settings.recipe.evaluation.pass_at;
    let named = settings.evaluation_sets.iter().zip(&answers);
    let (mut sets, mut unmeasured) = (Vec::new(), Vec::new());
    for (set, answers) in named.clone() {
        match report(&set.name, answers, pass_at) {
            Ok(report) => sets.push(report),
            Err(without) => unmeasured.push(without),
        }
    }
    let mut samples = Vec::new();
    for (set, answers) in named {
        let wanted = settings.recipe.output.sampled_completions as usize;
        for (prompt, answers) in set.prompts.iter().zip(answers).take(wanted) {
            let Some(answer) = answers.first() else { continue };
            let Some(rollout) = answer.rollout() else { continue };
            let mut sample = sample_of(&set.name, prompt, &rollout, &settings.intake);
            sample.reward = answer.verdict.as_ref().ok().copied();
            sample.error = answer.verdict.as_ref().err().cloned();
            sample.metrics = answer.metrics.clone();
            sample.parts = parts(&settings.intake, &rollout);
            samples.push(sample);
        }
    }
    let rollouts = answers.iter().flatten().flatten().filter_map(Answer::rollout);
    let tokens = rollouts.map(|one| one.tokens() as u64).sum();
    Ok(Evaluated { version, sets, unmeasured, samples, tokens, retried })
}

async fn answer<G: Generator, R: Grader>(
    floor: &Floor<G, R>,
    version: PolicyVersion,
    set: usize,
    index: usize,
    retried: &mut Vec<(u32, String)>,
) -> Result<Answers, EngineError> {
    let prompt = &floor.settings.evaluation_sets[set].prompts[index];
    let request = floor.settings.evaluation_request(version.0, set, index, prompt);
    let (answers, _) = floor
        .answers(prompt, request, Role::Evaluate, retried)
        .await
        .map_err(|error| error.into_engine(|source| EngineError::Evaluating { version, source }))?;
    let rollouts: Vec<Rollout> = answers.iter().filter_map(Answer::rollout).collect();
    let versions = rollouts.iter().flat_map(Rollout::completions).flat_map(|one| &one.versions);
    if let Some(found) = versions.copied().find(|found| *found != version) {
        return Err(EngineError::MixedEvaluation { version, found });
    }
    Ok(answers)
}

/// An episode as it was written, stretch by stretch; empty for a single completion.
fn parts(intake: &Intake, rollout: &Rollout) -> Vec<SamplePart> {
    if rollout.episode.is_none() {
        return Vec::new();
    }
    let mut parts = Vec::new();
    for completion in rollout.completions() {
        let mut from = 0;
        for stretch in completion.is_injected.chunk_by(|a, b| a == b) {
            let range = from..from + stretch.len();
            from = range.end;
            // Injected in name, so that an end token in it is shown like any other.
            let alone = Completion {
                token_ids: completion.token_ids[range.clone()].to_vec(),
                logprobs: completion.logprobs[range.clone()].to_vec(),
                versions: completion.versions[range.clone()].to_vec(),
                is_injected: vec![true; range.len()],
                ..completion.clone()
            };
            let text = intake.text_of(&alone).unwrap_or_default();
            parts.push(SamplePart { is_injected: stretch[0], text });
        }
    }
    parts
}

/// What the verdicts say, where there are any: a pass rate of no verdict is not 0.
fn report(name: &str, answers: &[Answers], pass_at: &[u32]) -> Result<SetReport, Unmeasured> {
    let (mut judged, mut passed, mut failed, mut truncated, mut tokens) = (0_u64, 0, 0, 0, 0);
    let (mut rewards, mut last_failure) = (0.0, None);
    let mut by_prompt: Vec<(u64, u64)> = Vec::new();
    for answers in answers {
        let (mut of_prompt, mut right) = (0, 0);
        for answer in answers {
            if let Some(rollout) = answer.rollout() {
                tokens += rollout.tokens() as u64;
                truncated += u64::from(rollout.is_truncated());
            }
            match &answer.verdict {
                Ok(reward) => {
                    of_prompt += 1;
                    right += u64::from(reward.is_correct);
                    rewards += reward.value;
                }
                Err(reason) => {
                    failed += 1;
                    last_failure = Some(reason);
                }
            }
        }
        judged += of_prompt;
        passed += right;
        if of_prompt > 0 {
            by_prompt.push((of_prompt, right));
        }
    }
    if judged == 0 {
        let reason = last_failure.map_or("the set is empty", String::as_str).to_owned();
        return Err(Unmeasured { set: name.to_owned(), failed, reason });
    }
    let all = (judged + failed) as f64;
    let at = |k: &u32| Some(PassAt { k: *k, value: pass_at_k(&by_prompt, *k)? });
    Ok(SetReport {
        name: name.to_owned(),
        pass_rate: passed as f64 / judged as f64,
        prompts: by_prompt.len() as u32,
        samples: judged,
        failed,
        mean_reward: Some(rewards / judged as f64),
        pass_at: pass_at.iter().filter_map(at).collect(),
        truncated_share: truncated as f64 / all,
        mean_tokens: tokens as f64 / all,
    })
}

/// 1 − C(n − c, k) / C(n, k), averaged over prompts (Chen et al., arXiv 2107.03374): the chance
/// that one of k of the n completions is right. Prompts with fewer than k verdicts are left out;
/// `None` where that leaves none.
fn pass_at_k(prompts: &[(u64, u64)], k: u32) -> Option<f64> {
    let k = u64::from(k);
    let (mut sum, mut count) = (0.0, 0);
    for (judged, right) in prompts.iter().filter(|(judged, _)| *judged >= k) {
        let wrong = judged - right;
        let none_right: f64 = if wrong < k {
            0.0
        } else {
            (0..k).map(|i| (wrong - i) as f64 / (judged - i) as f64).product()
        };
        sum += 1.0 - none_right;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C(n − c, k) / C(n, k) by listing every choice of k completions.
    fn by_counting(judged: u64, right: u64, k: u32) -> f64 {
        let (mut all, mut hit) = (0, 0);
        for choice in 0_u64..1 << judged {
            if choice.count_ones() == k {
                all += 1;
                hit += u64::from(choice & ((1 << right) - 1) != 0);
            }
        }
        hit as f64 / f64::from(all)
    }

    #[test]
    fn pass_at_k_is_the_share_of_choices_with_a_right_one() {
        for judged in 1..=6 {
            for right in 0..=judged {
                for k in 1..=judged as u32 {
                    let found = pass_at_k(&[(judged, right)], k).unwrap();
                    let expected = by_counting(judged, right, k);
                    assert!((found - expected).abs() < 1e-12, "{judged} {right} {k}");
                }
            }
        }
    }
    #[test]
    fn pass_at_k_of_prompts_with_fewer_verdicts_is_not_known() {
        assert_eq!(pass_at_k(&[(2, 0), (3, 3)], 4), None);
    }
}

//! What makes two runs comparable: a hash of the weights they start from, and one of what they are
//! measured on and how.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use scalerl_curve::Provenance;
use scalerl_recipe::{LengthControl, Recipe, Verifier};
use scalerl_rollout::EvaluationSet;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::policy::Policy;

/// Files up to this size are hashed whole.
const WHOLE: u64 = 256 << 20;
/// Of larger ones so many blocks are, evenly spread, first and last among them: training changes
/// nearly every weight, so a part tells two models apart, and a large model is not read twice.
const BLOCKS: u64 = 64;
const BLOCK: u64 = 1 << 20;
/// Letters of a hash that are kept.
const LETTERS: usize = 16;

/// Of a run that starts from this policy and is judged by its primary set.
pub(crate) fn of(policy: &Policy, recipe: &Recipe, sets: &[EvaluationSet]) -> Result<Provenance> {
    let primary = sets.iter().find(|set| set.name == recipe.evaluation.primary);
    let evaluation = primary.map(|set| evaluation(recipe, set)).transpose()?;
    Ok(Provenance { model: Some(model(policy)?), evaluation })
}

/// The starting weights.
fn model(policy: &Policy) -> Result<String> {
    let mut hasher = Sha256::new();
    if let Some(seed) = policy.random() {
        hasher.update(format!("drawn from seed {seed}"));
        add_file(&mut hasher, &policy.folder.join("config.json"))?;
        return Ok(text(hasher));
    }
    let adapter = policy.adapter().map(weight_files).transpose()?.unwrap_or_default();
    for path in weight_files(&policy.folder)?.into_iter().chain(adapter) {
        hasher.update(path.file_name().unwrap_or_default().to_string_lossy().as_bytes());
        add_file(&mut hasher, &path)?;
    }
    Ok(text(hasher))
}

fn weight_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_weights = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "safetensors" || ending == "bin")
    };
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_weights).collect();
    files.sort();
    Ok(files)
}

fn add_file(hasher: &mut Sha256, path: &Path) -> Result<()> {
    let add = |hasher: &mut Sha256| -> std::io::Result<()> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        hasher.update(size.to_le_bytes());
        if size <= WHOLE {
            return copy(&mut file, hasher);
        }
        for block in 0..BLOCKS {
            file.seek(SeekFrom::Start((size - BLOCK) * block / (BLOCKS - 1)))?;
            copy(&mut (&mut file).take(BLOCK), hasher)?;
        }
        Ok(())
    };
    add(hasher).with_context(|| format!("cannot read {}", path.display()))
}

fn copy(from: &mut impl Read, hasher: &mut Sha256) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// The prompts as the model reads them, their answers, how they are judged, and how completions are
/// drawn. How many are drawn moves the noise and not the scale, so it does not count.
fn evaluation(recipe: &Recipe, set: &EvaluationSet) -> Result<String> {
    let (evaluation, sampling) = (&recipe.evaluation, &recipe.sampling);
    let cut = match recipe.objective.length_control {
        LengthControl::Interruption { latest, .. } => Some(latest),
        _ => None,
    };
    let own_judges = recipe.task.datasets.iter().chain(&evaluation.datasets);
    let own_judges: Vec<_> = own_judges.map(|dataset| &dataset.verifier).collect();
    let choices = own_judges.iter().copied().flatten().chain([&recipe.task.verifier]);
    let mut how = json!({
        "temperature": evaluation.temperature,
        "top_p": evaluation.top_p,
        "thinking": sampling.max_thinking_tokens,
        "answer": sampling.max_answer_tokens,
        "cut": cut,
        "format": recipe.format,
        "judge": recipe.task.verifier,
        "own_judges": own_judges,
    });
    for choice in choices {
        // Another text under the same name is another judge. One that no data set uses may be missing.
        if let Verifier::Python { file, .. } = choice
            && let Ok(text) = std::fs::read_to_string(file)
        {
            how["files"][file] = text.into();
        }
    }
    let mut hasher = Sha256::new();
    hasher.update(serde_json::to_vec(&how)?);
    for prompt in &set.prompts {
        hasher.update(serde_json::to_vec(&(&prompt.text, &prompt.answer))?);
    }
    Ok(text(hasher))
}

fn text(hasher: Sha256) -> String {
    hasher.finalize().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
        [..LETTERS]
        .to_owned()
}

#[cfg(test)]
mod tests {
    use scalerl_recipe::Override;
    use scalerl_rollout::{Prompt, PromptId};

    use super::*;

    fn hash(set: &[&str], texts: &[&str]) -> String {
        let overrides: Vec<Override> =
            set.iter().map(|one| Override::parse(one).unwrap()).collect();
        let recipe = Recipe::load(&[], &overrides).unwrap();
        let prompt = |text: &&str| Prompt {
            id: PromptId((*text).into()),
            dataset: "made up".into(),
            text: (*text).into(),
            token_ids: Vec::new(),
            answer: "4".into(),
        };
        let prompts = texts.iter().map(prompt).collect();
        evaluation(&recipe, &EvaluationSet { name: "held-out".into(), prompts }).unwrap()
    }

    #[test]
    fn prompts_and_their_sampling_make_an_evaluation_and_its_size_does_not() {
        let usual = hash(&[], &["2 + 2?"]);
        assert_eq!(usual.len(), LETTERS);
        assert_eq!(
            hash(&["evaluation.generations=9", "seed=7", "optimizer.lr=1e-4"], &["2 + 2?"]),
            usual
        );
        assert_ne!(hash(&[], &["2 + 3?"]), usual);
        assert_ne!(hash(&["evaluation.temperature=0.5"], &["2 + 2?"]), usual);
        assert_ne!(hash(&["sampling.max_answer_tokens=77"], &["2 + 2?"]), usual);
    }

    #[test]
    fn another_reward_in_the_same_file_is_another_evaluation() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reward.py");
        let set = format!("task.verifier={{type=\"python\",file=\"{}\"}}", file.display());
        let hash = |text: &str| {
            std::fs::write(&file, text).unwrap();
            hash(&[&set], &["2 + 2?"])
        };
        assert_ne!(hash("score = 1"), hash("score = 2"));
        assert_eq!(hash("score = 1"), hash("score = 1"));
    }

    #[test]
    fn large_files_are_told_apart_by_their_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let hash = |last: u8| {
            let file = File::create(&path).unwrap();
            file.set_len(WHOLE + 5).unwrap();
            std::os::unix::fs::FileExt::write_at(&file, &[last], WHOLE + 4).unwrap();
            let mut hasher = Sha256::new();
            add_file(&mut hasher, &path).unwrap();
            text(hasher)
        };
        assert_ne!(hash(1), hash(2));
        assert_eq!(hash(1), hash(1));
    }
}

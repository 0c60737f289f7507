//! Completions to read, from the first and from the last evaluation that kept any.
//!
//! What an interruption put into a completion is marked. The journal keeps the text, not the
//! tokens, so the phrase is looked for: it ends with the closing tag, and thinking that has been
//! closed before is not interrupted, so the first place where it stands is where it was put in. Of an
//! episode the journal keeps every stretch, and what the policy did not write is marked as it stands.

use scalerl_board::number::short;
use scalerl_board::{Block, Piece, Section};
use scalerl_journal::{Sample, SamplePart, read_samples};
use scalerl_recipe::Resolved;
use scalerl_rollout::{FinishReason, PolicyVersion};

use super::story::Story;

/// Completions shown of the last evaluation, and of the first.
const MOST_LAST: usize = 24;
const MOST_FIRST: usize = 6;
/// A longer text is shown by its two ends, in characters.
const LONGEST: usize = 20_000;
const ENVIRONMENT: &str = "put in by the environment, not written by the model";
const INJECTED: &str = "put in by the interruption, not written by the model";

pub(crate) fn section(story: &Story) -> Section {
    let heading = "Completions to read".to_owned();
    let versions: Vec<PolicyVersion> =
        story.evaluations.iter().map(|evaluation| evaluation.version).collect();
    let kept = |version: &PolicyVersion| story.folder.samples(*version).is_file();
    let Some(last) = versions.iter().rev().copied().find(kept) else {
        let text = "No completions were kept (output.sampled_completions, or no evaluation yet).";
        return Section { heading, blocks: vec![Block::Prose(text.to_owned())] };
    };
    let first = versions.iter().copied().find(kept).filter(|first| *first != last);
    let phrase = story.recipe.as_ref().ok().map(phrase).filter(|phrase| !phrase.is_empty());
    let mut blocks = evaluation(story, last, MOST_LAST, phrase.as_deref());
    if let Some(first) = first {
        let inner = evaluation(story, first, MOST_FIRST, phrase.as_deref());
        blocks.push(Block::Fold(format!("At step {}, for comparison", first.0), inner));
    }
    Section { heading, blocks }
}

/// What an interruption appends: the recipe's text and the closing tag.
fn phrase(recipe: &Resolved) -> String {
    let close = recipe.format.thinking_close().unwrap_or_default();
    format!("{}{close}", recipe.format.interruption)
}

fn evaluation(
    story: &Story,
    version: PolicyVersion,
    most: usize,
    phrase: Option<&str>,
) -> Vec<Block> {
    let samples = match read_samples(&story.folder.samples(version)) {
        Ok(samples) => samples,
        Err(error) => return vec![Block::Prose(format!("They cannot be read: {error}."))],
    };
    let right = samples.iter().filter(|sample| is_right(sample)).count();
    let mut blocks = vec![Block::Prose(format!(
        "Step {}: {} completions were kept, {right} of them right{}.",
        version.0,
        samples.len(),
        if samples.len() > most { format!("; the first {most}") } else { String::new() },
    ))];
    blocks.extend(samples.iter().take(most).map(|sample| shown(sample, phrase)));
    blocks
}

fn is_right(sample: &Sample) -> bool {
    sample.reward.is_some_and(|reward| reward.is_correct)
}

fn shown(sample: &Sample, phrase: Option<&str>) -> Block {
    let verdict = match sample.reward {
        Some(reward) if reward.is_correct => "right",
        Some(_) => "wrong",
        None if sample.parts.is_empty() => "verifier failed",
        None => "episode failed",
    };
    let reward = sample.reward.map_or("none".to_owned(), |reward| short(reward.value));
    let mut ended = match sample.finish {
        FinishReason::Stop => "by itself".to_owned(),
        FinishReason::Length => "cut off: its budget ran out".to_owned(),
    };
    let is_episode = !sample.parts.is_empty();
    let completion = if is_episode {
        episode(sample)
    } else {
        marked(&sample.completion, phrase.filter(|_| sample.is_interrupted))
    };
    if sample.is_interrupted && !is_episode {
        ended.push_str(", after an interruption");
        if completion.iter().all(|piece| piece.mark.is_none()) {
            ended.push_str(" (the phrase put in does not stand in the text as the recipe has it)");
        }
    }
    let set = if sample.prompt.0.starts_with(&sample.set) {
        String::new()
    } else {
        format!("{}: ", sample.set)
    };
    let summary = format!(
        "{set}{} · {verdict} · reward {reward} · {}{} tokens",
        sample.prompt.0,
        if is_episode { format!("{} turns · ", sample.turns) } else { String::new() },
        sample.tokens
    );
    let text = |text: &str| vec![Piece { text: shortened(text), mark: None }];
    let mut facts = vec![
        ("answer".to_owned(), sample.answer.clone()),
        ("verdict".to_owned(), verdict.to_owned()),
        ("reward".to_owned(), reward),
        ("ended".to_owned(), ended),
    ];
    facts.extend(sample.error.iter().map(|error| ("error".to_owned(), shortened(error))));
    facts.extend(sample.metrics.iter().map(|(name, value)| (name.clone(), short(*value))));
    let heading = if is_episode { "Episode" } else { "Completion" };
    Block::Fold(
        summary,
        vec![
            Block::KeyValues(facts),
            Block::Prose("Prompt".to_owned()),
            Block::Passage(text(&sample.prompt_text)),
            Block::Prose(heading.to_owned()),
            Block::Passage(completion),
        ],
    )
}

/// An episode with the environment's part marked.
fn episode(sample: &Sample) -> Vec<Piece> {
    let piece = |part: &SamplePart| Piece {
        text: shortened(&part.text),
        mark: part.is_injected.then(|| ENVIRONMENT.to_owned()),
    };
    sample.parts.iter().map(piece).collect()
}

/// The text with the phrase marked where it first stands.
fn marked(text: &str, phrase: Option<&str>) -> Vec<Piece> {
    let plain = |text: &str| Piece { text: shortened(text), mark: None };
    let found = phrase.and_then(|phrase| Some((text.find(phrase)?, phrase)));
    let Some((at, phrase)) = found else { return vec![plain(text)] };
    let mark = Some(INJECTED.to_owned());
    let pieces = [
        plain(&text[..at]),
        Piece { text: phrase.to_owned(), mark },
        plain(&text[at + phrase.len()..]),
    ];
    pieces.into_iter().filter(|piece| !piece.text.is_empty()).collect()
}

/// Both ends of a text that is too long to show.
pub fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= LONGEST {
        return text.to_owned();
    }
    let half = LONGEST / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    format!("{head}\n[… {} characters left out …]\n{tail}", count - 2 * half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phrase_put_in_is_marked_once_and_nothing_is_lost() {
        let pieces = marked(
            "let me see. Time is up.</think> 4. Time is up.</think>",
            Some("Time is up.</think>"),
        );
        let marks: Vec<bool> = pieces.iter().map(|piece| piece.mark.is_some()).collect();
        assert_eq!(marks, [false, true, false]);
        let text: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(text, "let me see. Time is up.</think> 4. Time is up.</think>");
        assert_eq!(marked("no phrase", Some("Time is up.")).len(), 1);
        assert_eq!(marked("Time is up.", None)[0].mark, None, "it was not interrupted");
    }

    #[test]
    fn a_long_text_keeps_both_ends_whatever_its_characters() {
        let text = format!("ä{}ü", "漢".repeat(30_000));
        let short = shortened(&text);
        assert!(short.starts_with('ä') && short.ends_with('ü'));
        assert!(short.contains("[… 10002 characters left out …]"), "{}", short.len());
    }
}

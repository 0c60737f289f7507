//! Log-probs as clients read them: chat's list of objects, completions' parallel lists.
//!
//! A token's own log-prob is that of the distribution it was drawn from, temperature included; those
//! of the most likely tokens, and of a prompt, are at temperature 1.

use scalerl_rollout::TokenScore;
use serde_json::{Value, json};

use crate::chat_format::{ChatError, ChatFormat, Special};
use crate::choice::Drawn;

/// What a log-prob of minus infinity is written as: JSON has no such number.
const LEAST: f32 = -9999.0;

/// How tokens are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    Text,
    /// `token_id:ID`, which two tokens of the same text do not share.
    Id,
}

impl Spelling {
    pub(crate) fn of(self, chat: &dyn ChatFormat, id: u32) -> Result<String, ChatError> {
        match self {
            Self::Text => chat.decode(&[id], Special::Show),
            Self::Id => Ok(format!("token_id:{id}")),
        }
    }
}

/// A token with what else could have stood in its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scored {
    pub(crate) id: u32,
    /// `None` for the first token of a prompt.
    pub(crate) logprob: Option<f32>,
    pub(crate) top: Vec<(u32, f32)>,
}

impl From<&Drawn> for Scored {
    fn from(drawn: &Drawn) -> Self {
        Self { id: drawn.id, logprob: Some(drawn.logprob), top: Vec::new() }
    }
}

/// Tokens of a given text.
pub(crate) fn given(ids: &[u32], scores: &[TokenScore]) -> Vec<Scored> {
    let of = |(id, score): (&u32, &TokenScore)| Scored {
        id: *id,
        logprob: score.logprob,
        top: score.top.clone(),
    };
    ids.iter().zip(scores).map(of).collect()
}

/// Drawn tokens, with the most likely ones from a later look where one was taken.
pub(crate) fn drawn(tokens: &[Drawn], scores: Option<&[TokenScore]>) -> Vec<Scored> {
    let of = |(place, token): (usize, &Drawn)| {
        let top = scores.and_then(|scores| Some(scores.get(place)?.top.clone()));
        Scored { top: top.unwrap_or_default(), ..Scored::from(token) }
    };
    tokens.iter().enumerate().map(of).collect()
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LEAST }
}

/// `choices[i].logprobs` of chat.
pub(crate) fn chat(
    chat: &dyn ChatFormat,
    spelling: Spelling,
    tokens: &[Scored],
) -> Result<Value, ChatError> {
    let entry = |id: u32, logprob: f32| -> Result<Value, ChatError> {
        let token = spelling.of(chat, id)?;
        Ok(json!({"token": token, "logprob": finite(logprob), "bytes": token.as_bytes()}))
    };
    let of = |token: &Scored| -> Result<Value, ChatError> {
        let mut one = entry(token.id, token.logprob.unwrap_or(0.0))?;
        let top = token.top.iter().map(|(id, logprob)| entry(*id, *logprob));
        one["top_logprobs"] = top.collect::<Result<Vec<Value>, ChatError>>()?.into();
        Ok(one)
    };
    let content = tokens.iter().map(of).collect::<Result<Vec<Value>, ChatError>>()?;
    Ok(json!({"content": content, "refusal": null}))
}

/// `choices[i].logprobs` of completions. `offset` is where the first token stands in the text, in
/// characters, and is moved past the last.
pub(crate) fn legacy(
    chat: &dyn ChatFormat,
    spelling: Spelling,
    tokens: &[Scored],
    offset: &mut usize,
) -> Result<Value, ChatError> {
    let (mut texts, mut logprobs) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for token in tokens {
        let mut top = serde_json::Map::new();
        for (id, logprob) in &token.top {
            // The likelier of two tokens with one text.
            top.entry(spelling.of(chat, *id)?).or_insert_with(|| json!(finite(*logprob)));
        }
        let has_top = token.logprob.is_some() && !top.is_empty();
        texts.push(json!(spelling.of(chat, token.id)?));
        logprobs.push(json!(token.logprob.map(finite)));
        tops.push(if has_top { Value::Object(top) } else { Value::Null });
        offsets.push(*offset);
        *offset += chat.decode(&[token.id], Special::Show)?.chars().count();
    }
    Ok(json!({
        "tokens": texts,
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": offsets,
    }))
}

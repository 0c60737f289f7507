//! The end of thinking and the end of the answer, read as text.
//!
//! A tag that is no token of its own has many spellings: `</think>` before a line break may end in
//! the token `>\n`, and after a full stop begin with `.</`. So the text of the last tokens is
//! looked at; but only after tokens that can hold the tag's last character, because decoding after
//! every token would cost more than the model.

use std::sync::Arc;

use scalerl_rollout::AnswerEnd;

use scalerl_model::error::LoadError;
use scalerl_model::tokenizer::Tokenizer;

/// A text that may be complete with a token, in whatever tokens it is written.
struct Ending {
    text: String,
    tokenizer: Arc<Tokenizer>,
    /// By token: whether it holds the text's last character, or a piece of a character.
    can_end: Vec<bool>,
}

impl Ending {
    /// Looks at every token once. `text` must not be empty.
    fn new(text: &str, tokenizer: Arc<Tokenizer>) -> Result<Self, LoadError> {
        let last = text.chars().next_back().unwrap_or_default();
        let can_end = (0..tokenizer.vocabulary() as i64)
            .map(|id| {
                let text = tokenizer.decode_all(&[id])?;
                Ok(text.contains([last, char::REPLACEMENT_CHARACTER]))
            })
            .collect::<Result<_, LoadError>>()?;
        Ok(Self { text: text.to_owned(), tokenizer, can_end })
    }

    /// What follows the text, where the last of these tokens completes it. `before` is text that
    /// stands in front of the first.
    fn after(&self, before: &str, tokens: &[i64]) -> Option<String> {
        let can_end = |id: i64| self.can_end.get(id as usize).is_some_and(|can_end| *can_end);
        if tokens.last().is_some_and(|last| !can_end(*last)) {
            return None;
        }
        // No token is shorter than a byte, so the text lies within as many as it has bytes; a few
        // more for characters that are cut.
        let start = tokens.len().saturating_sub(self.text.len() + 4);
        let mut text = self.tokenizer.decode_all(&tokens[start..]).ok()?;
        if start == 0 {
            text.insert_str(0, before);
        }
        text.split_once(&self.text).map(|(_, after)| after.to_owned())
    }
}

/// A tag that ends thinking.
pub struct EndTag(Ending);

impl std::fmt::Debug for EndTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EndTag").field(&self.0.text).finish()
    }
}

impl PartialEq for EndTag {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for EndTag {}

impl EndTag {
    /// Looks at every token once. `text` must not be empty.
    pub fn new(text: &str, tokenizer: Arc<Tokenizer>) -> Result<Self, LoadError> {
        Ok(Self(Ending::new(text, tokenizer)?))
    }

    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// What follows the tag, where the last of these tokens completes it.
    pub(super) fn after(&self, tokens: &[i64]) -> Option<String> {
        self.0.after("", tokens)
    }
}

/// What ends a completion once its answer is complete.
pub struct AnswerStop {
    end: AnswerEnd,
    closing: Ending,
}

impl std::fmt::Debug for AnswerStop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AnswerStop").field(&self.end).finish()
    }
}

impl PartialEq for AnswerStop {
    fn eq(&self, other: &Self) -> bool {
        self.end == other.end
    }
}

impl Eq for AnswerStop {}

impl AnswerStop {
    /// Looks at every token once. The closing text must not be empty.
    pub fn new(end: AnswerEnd, tokenizer: Arc<Tokenizer>) -> Result<Self, LoadError> {
        let closing = Ending::new(&end.closing, tokenizer)?;
        Ok(Self { end, closing })
    }

    pub fn end(&self) -> &AnswerEnd {
        &self.end
    }

    /// Whether the last of the answer's tokens completes it. `before` is text of the answer that
    /// stands in front of the first.
    pub(super) fn is_complete(&self, before: &str, tokens: &[i64]) -> bool {
        if self.closing.after(before, tokens).is_none() {
            return false;
        }
        if self.end.opening.is_empty() && !self.end.braces_nest {
            return true;
        }
        let text = self.closing.tokenizer.decode_all(tokens).unwrap_or_default();
        self.end.find(&format!("{before}{text}")).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_where_its_last_character_is_cut_into_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [],
            "model": {"type": "WordLevel", "unk_token": "x",
                      "vocab": {"x": 0, "<0xE3>": 1, "<0x80>": 2, "<0x91>": 3, "<0x90>": 4}},
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        });
        std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
        let tag = EndTag::new("】", Arc::new(Tokenizer::load(folder.path()).unwrap())).unwrap();
        assert_eq!(tag.after(&[0, 1, 2, 3]).as_deref(), Some(""));
        assert_eq!(tag.after(&[0, 1, 2, 4]), None, "another character");
        assert_eq!(tag.after(&[0, 1, 2]), None, "half of it");
    }
}

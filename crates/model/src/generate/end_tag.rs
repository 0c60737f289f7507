//! The end of thinking and the end of the answer, read as text.
//!
//! A tag that is no token of its own has many spellings: `</think>` before a line break may end in
//! the token `>\n`, and after a full stop begin with `.</`. So the text of the last tokens is
//! looked at; but only after tokens that can hold the tag's last character, because decoding after
//! every token would cost more than the model.

use std::sync::Arc;

use crate::error::LoadError;
use crate::tokenizer::Tokenizer;

/// A tag that ends thinking or the answer, in whatever tokens it is written.
pub struct EndTag {
    text: String,
    tokenizer: Arc<Tokenizer>,
    /// By token: whether it holds the tag's last character, or a piece of a character.
    can_end: Vec<bool>,
}

impl std::fmt::Debug for EndTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndTag").field("text", &self.text).finish_non_exhaustive()
    }
}

impl PartialEq for EndTag {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for EndTag {}

impl EndTag {
    /// Looks at every token once. `text` must not be empty.
    pub fn new(text: &str, tokenizer: Arc<Tokenizer>) -> Result<Self, LoadError> {
        let last = text.chars().next_back().unwrap_or_default();
        let can_end = (0..tokenizer.vocabulary() as i64)
            .map(|id| {
                let text = tokenizer.decode_all(&[id])?;
                Ok(text.contains([last, char::REPLACEMENT_CHARACTER]))
            })
            .collect::<Result<_, LoadError>>()?;
        Ok(Self { text: text.to_owned(), tokenizer, can_end })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// What follows the tag, where the last of these tokens completes it. `before` is text that
    /// stands in front of the first.
    pub(super) fn after(&self, before: &str, tokens: &[i64]) -> Option<String> {
        let can_end = |id: i64| self.can_end.get(id as usize).is_some_and(|can_end| *can_end);
        if tokens.last().is_some_and(|last| !can_end(*last)) {
            return None;
        }
        // No token is shorter than a byte, so the tag lies within as many as it has bytes; a few
        // more for characters that are cut.
        let start = tokens.len().saturating_sub(self.text.len() + 4);
        let mut text = self.tokenizer.decode_all(&tokens[start..]).ok()?;
        if start == 0 {
            text.insert_str(0, before);
        }
        text.split_once(&self.text).map(|(_, after)| after.to_owned())
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
        assert_eq!(tag.after("", &[0, 1, 2, 3]).as_deref(), Some(""));
        assert_eq!(tag.after("", &[0, 1, 2, 4]), None, "another character");
        assert_eq!(tag.after("", &[0, 1, 2]), None, "half of it");
    }
}

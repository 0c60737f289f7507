//! The end of thinking, read as text.
//!
//! A tag that is no token of its own has many spellings: `</think>` before a line break may end in
//! the token `>\n`, and after a full stop begin with `.</`. So the text of the last tokens is
//! looked at; but only after tokens that hold the tag's last character, because decoding after
//! every token would cost more than the model.

use std::sync::Arc;

use crate::error::LoadError;
use crate::tokenizer::Tokenizer;

/// A tag that ends thinking, in whatever tokens it is written.
pub struct EndTag {
    text: String,
    tokenizer: Arc<Tokenizer>,
    /// By token: whether it holds the tag's last character.
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
            .map(|id| Ok(tokenizer.decode_all(&[id])?.contains(last)))
            .collect::<Result<_, LoadError>>()?;
        Ok(Self { text: text.to_owned(), tokenizer, can_end })
    }

    /// Whether the last of these tokens completes the tag.
    pub(super) fn ends(&self, tokens: &[i64]) -> bool {
        let Some((&last, before)) = tokens.split_last() else { return false };
        if !self.can_end.get(last as usize).is_some_and(|can_end| *can_end) {
            return false;
        }
        // No token is shorter than a byte, so the tag lies within as many as it has bytes; a few
        // more for characters that are cut.
        let start = before.len().saturating_sub(self.text.len() + 3);
        let text = self.tokenizer.decode_all(&tokens[start..]);
        text.is_ok_and(|text| text.contains(&self.text))
    }
}

//! From tokens to text, piece by piece: characters that several tokens share are held back until
//! they are whole, and so is what may be the beginning of a stop text.
//!
//! Whole answers go the same way as streamed ones, so both have the same text.

use crate::chat_format::{ChatError, ChatFormat, Special};

/// What does not show in a text, and what ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextRules {
    /// Tokens that end a completion and are no part of its text.
    pub(crate) ends: Vec<u32>,
    pub(crate) stop: Vec<String>,
    pub(crate) keeps_stop: bool,
    pub(crate) special: Special,
}

/// Text that grows by tokens.
#[derive(Debug, Default)]
pub(crate) struct TextStream {
    ids: Vec<u32>,
    /// Tokens before this place give context only: a tokenizer may write a token differently at the
    /// start of a text.
    context: usize,
    /// Tokens before this place are in the text already.
    read: usize,
    /// Text that may yet turn out to be a stop.
    held: String,
    is_stopped: bool,
}

impl TextStream {
    /// Adds tokens and returns the text that is certain now.
    pub(crate) fn push(
        &mut self,
        chat: &dyn ChatFormat,
        rules: &TextRules,
        ids: impl IntoIterator<Item = u32>,
    ) -> Result<String, ChatError> {
        self.ids.extend(ids);
        let new = self.whole_characters(chat, rules)?;
        Ok(self.release(rules, &new))
    }

    /// The rest, where no more tokens come.
    pub(crate) fn finish(
        &mut self,
        chat: &dyn ChatFormat,
        rules: &TextRules,
    ) -> Result<String, ChatError> {
        let (before, after) = self.decoded(chat, rules)?;
        self.read = self.ids.len();
        let mut text = self.release(rules, after.get(before.len()..).unwrap_or_default());
        if !self.is_stopped {
            text.push_str(&std::mem::take(&mut self.held));
        }
        Ok(text)
    }

    fn decoded(
        &self,
        chat: &dyn ChatFormat,
        rules: &TextRules,
    ) -> Result<(String, String), ChatError> {
        let window = &self.ids[self.context..];
        let before = chat.decode(&window[..self.read - self.context], rules.special)?;
        Ok((before, chat.decode(window, rules.special)?))
    }

    fn whole_characters(
        &mut self,
        chat: &dyn ChatFormat,
        rules: &TextRules,
    ) -> Result<String, ChatError> {
        let (before, after) = self.decoded(chat, rules)?;
        // A character that is not whole yet reads as this one.
        if after.len() <= before.len() || after.ends_with('\u{fffd}') {
            return Ok(String::new());
        }
        let new = after.get(before.len()..).unwrap_or_default().to_owned();
        (self.context, self.read) = (self.read, self.ids.len());
        Ok(new)
    }

    fn release(&mut self, rules: &TextRules, new: &str) -> String {
        if self.is_stopped {
            return String::new();
        }
        self.held.push_str(new);
        let place = |stop: &String| self.held.find(stop).map(|at| (at + stop.len(), at));
        // The one that is whole first has ended the completion, though another may begin before it.
        if let Some((end, at)) = rules.stop.iter().filter_map(place).min() {
            self.is_stopped = true;
            self.held.truncate(if rules.keeps_stop { end } else { at });
            return std::mem::take(&mut self.held);
        }
        let begun = |stop: &String| {
            let ends = stop.char_indices().map(|(at, _)| at).skip(1);
            ends.filter(|end| self.held.ends_with(&stop[..*end])).max()
        };
        let kept = rules.stop.iter().filter_map(begun).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat_format::Extras;
    use crate::tools::Family;

    /// A token is a byte.
    struct Bytes;

    impl ChatFormat for Bytes {
        fn render(&self, _: &[serde_json::Value], _: &Extras) -> Result<String, ChatError> {
            Err(ChatError::NoTemplate)
        }
        fn encode(&self, text: &str) -> Result<Vec<u32>, ChatError> {
            Ok(text.bytes().map(u32::from).collect())
        }
        fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ChatError> {
            self.encode(text)
        }
        fn decode(&self, ids: &[u32], _: Special) -> Result<String, ChatError> {
            let bytes: Vec<u8> = ids.iter().map(|id| *id as u8).collect();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        fn end_tokens(&self) -> &[u32] {
            &[]
        }
        fn tool_family(&self) -> Option<Family> {
            None
        }
    }

    fn rules(stop: &[&str], keeps_stop: bool) -> TextRules {
        let stop = stop.iter().map(|&text| text.to_owned()).collect();
        TextRules { ends: Vec::new(), stop, keeps_stop, special: Special::Hide }
    }

    fn all(text: &[u8], cut: usize, rules: &TextRules) -> (String, Vec<String>) {
        let mut stream = TextStream::default();
        let ids: Vec<u32> = text.iter().copied().map(u32::from).collect();
        let push = |ids: &[u32]| stream.push(&Bytes, rules, ids.iter().copied()).unwrap();
        let mut pieces: Vec<String> = ids.chunks(cut).map(push).collect();
        pieces.push(stream.finish(&Bytes, rules).unwrap());
        (pieces.concat(), pieces)
    }

    #[test]
    fn a_character_of_several_tokens_comes_whole() {
        let (text, pieces) = all("aé中🙂".as_bytes(), 1, &rules(&[], false));
        assert_eq!(text, "aé中🙂");
        assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
        // One that never becomes whole is shown for what it is.
        assert_eq!(all(&"é".as_bytes()[..1], 1, &rules(&[], false)).0, "\u{fffd}");
    }

    proptest! {
        #[test]
        fn text_ends_with_the_stop_that_is_whole_first_however_it_is_cut(
            text in "[ab中]{0,12}", stops in prop::collection::vec("[ab中]{1,3}", 0..3), cut in 1_usize..5,
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
            let longest = |end: usize| {
                let ending = stops.iter().filter(|stop| text[..end].ends_with(**stop));
                ending.map(|stop| stop.len()).max().map(|length| (end - length, end))
            };
            let first = { ends }.find_map(longest);
            let (without, with) = first.unwrap_or((text.len(), text.len()));
            prop_assert_eq!(all(text.as_bytes(), cut, &rules(&stops, false)).0, &text[..without]);
            prop_assert_eq!(all(text.as_bytes(), cut, &rules(&stops, true)).0, &text[..with]);
        }
    }
}

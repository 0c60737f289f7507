//! One answer while it is being written: tokens go in, text, calls and the reason of its end come out.

use scalerl_rollout::{Completion, FinishReason, LiveToken, PolicyVersion};

use crate::chat_format::{ChatError, ChatFormat};
use crate::text::{TextRules, TextStream};
use crate::tools::{self, Family, Message, ToolCall};

/// A token as it was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) id: u32,
    pub(crate) logprob: f32,
    pub(crate) is_injected: bool,
    /// The policy that chose or read it.
    pub(crate) version: PolicyVersion,
}

impl From<&LiveToken> for Drawn {
    fn from(token: &LiveToken) -> Self {
        let LiveToken { token_id, logprob, is_injected, version, .. } = *token;
        Self { id: token_id, logprob, is_injected, version }
    }
}

impl Drawn {
    /// The tokens of a completion from some place on.
    pub(crate) fn from_place(completion: &Completion, place: usize) -> Vec<Self> {
        let one = |at: usize| Self {
            id: completion.token_ids[at],
            logprob: completion.logprobs[at],
            is_injected: completion.is_injected[at],
            version: completion.versions[at],
        };
        (place..completion.len()).map(one).collect()
    }
}

/// Why an answer has ended, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
    ToolCalls,
}

impl Finish {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// What is new since the last piece.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Drawn>,
    /// Tokens of the answer before these.
    pub(crate) begin: usize,
    /// At the end only.
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) finish: Option<Finish>,
}

/// An answer half written.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    text: TextStream,
    seen: usize,
    /// Everything so far, calls included.
    whole: String,
    /// Bytes of `whole` that went out as content.
    released: usize,
}

impl Choice {
    /// Adds tokens.
    pub(crate) fn push(
        &mut self,
        chat: &dyn ChatFormat,
        rules: &TextRules,
        family: Option<Family>,
        tokens: Vec<Drawn>,
    ) -> Result<Piece, ChatError> {
        let begin = self.seen;
        self.seen += tokens.len();
        // An end token that the model chose shows nowhere.
        let shown = tokens.iter().filter(|one| one.is_injected || !rules.ends.contains(&one.id));
        let new = self.text.push(chat, rules, shown.map(|token| token.id))?;
        self.whole.push_str(&new);
        let certain = family.map_or(self.whole.len(), |family| tools::certain(family, &self.whole));
        let certain = certain.max(self.released);
        let text = self.whole[self.released..certain].to_owned();
        self.released = certain;
        Ok(Piece { text, tokens, begin, tool_calls: Vec::new(), finish: None })
    }

    /// Ends the answer with all its tokens, of which some may have come before.
    pub(crate) fn finish(
        mut self,
        chat: &dyn ChatFormat,
        rules: &TextRules,
        family: Option<Family>,
        completion: &Completion,
    ) -> Result<(Piece, Message), ChatError> {
        let late = Drawn::from_place(completion, self.seen);
        let mut piece = self.push(chat, rules, family, late)?;
        self.whole.push_str(&self.text.finish(chat, rules)?);
        let message = match family {
            Some(family) => tools::parse(family, &self.whole),
            None => Message { content: self.whole, tool_calls: Vec::new() },
        };
        piece.text.push_str(message.content.get(self.released..).unwrap_or_default());
        piece.tool_calls.clone_from(&message.tool_calls);
        piece.finish = Some(match completion.finish {
            _ if !message.tool_calls.is_empty() => Finish::ToolCalls,
            FinishReason::Stop => Finish::Stop,
            FinishReason::Length => Finish::Length,
        });
        Ok((piece, message))
    }
}

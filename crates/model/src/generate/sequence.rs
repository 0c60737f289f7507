//! One completion while it is being written.
//!
//! `tokens` is everything the model sees, `computed` how much of it is in the cache. Whatever lies
//! between the two runs through the network next: one token in an ordinary decode step, more after
//! admission, after an interruption, or after the cache was given up. There is no other state, so
//! being set aside is `computed = 0` and nothing else.

use std::sync::Arc;

use super::pool::Page;
use super::request::{Completion, Finish, Interruption, Request, RequestId, Thinking, Token};

pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    pub(crate) index: usize,
    pub(crate) request: Arc<Request>,
    /// Arrival: lower is older, and older never gives way to younger.
    pub(crate) order: u64,
    /// Prompt and completion.
    pub(crate) tokens: Vec<i64>,
    /// Tokens whose keys and values are in the cache.
    pub(crate) computed: usize,
    pub(crate) pages: Vec<Page>,
    pub(crate) written: Vec<Token>,
    /// Sampled in this phase: while thinking, or for the answer.
    sampled: usize,
    /// Sampled since the start, or since the interruption.
    own: usize,
    /// The answer's budget, once thinking has ended.
    answer_tokens: Option<usize>,
    /// Tokens written when it had.
    thinking_tokens: Option<usize>,
    is_interrupted: bool,
}

impl Sequence {
    pub(crate) fn new(id: RequestId, index: usize, request: Arc<Request>, order: u64) -> Self {
        let tokens = request.prompt.clone();
        Self {
            id,
            index,
            request,
            order,
            tokens,
            computed: 0,
            pages: Vec::new(),
            written: Vec::new(),
            sampled: 0,
            own: 0,
            answer_tokens: None,
            thinking_tokens: None,
            is_interrupted: false,
        }
    }

    /// Tokens that must run through the network before the next one can be drawn.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Tokens that all completions of the prompt have in common and need not compute themselves.
    /// The last token of the prompt runs in every sequence: its output is what they draw from.
    pub(crate) fn prefix(&self) -> usize {
        self.request.prompt.len() - 1
    }

    /// Sampled tokens after the last injected one.
    pub(crate) fn own_tail(&self) -> &[i64] {
        &self.tokens[self.tokens.len() - self.own..]
    }

    /// Takes a sampled token; `is_stopped` says whether a stop string ends here.
    pub(crate) fn accept(
        &mut self,
        token: Token,
        is_stopped: impl FnOnce(&Self) -> bool,
    ) -> Option<Finish> {
        self.tokens.push(token.id);
        self.written.push(token);
        self.sampled += 1;
        self.own += 1;
        if self.request.stop_tokens.contains(&token.id) || is_stopped(self) {
            return Some(Finish::Stop);
        }
        if let Some(budget) = self.answer_tokens {
            return (self.sampled == budget).then_some(Finish::Length);
        }
        let request = self.request.clone();
        if let Some(thinking) = &request.thinking
            && self.has_ended_thinking(thinking)
        {
            self.begin_answer(self.written.len(), thinking.answer_tokens);
            return None;
        }
        match request.interruptions.get(self.index) {
            Some(forced) if self.sampled == forced.after => {
                self.interrupt(forced, token.version);
                None
            }
            _ => (self.sampled == request.max_tokens).then_some(Finish::Length),
        }
    }

    /// Whether the next token, whatever it is, ends the completion or has others injected after it.
    /// (Thinking that ends with that very token may prevent it.)
    pub(crate) fn is_about_to_change(&self) -> bool {
        let sampled = self.sampled + 1;
        let forced = self.request.interruptions.get(self.index);
        match self.answer_tokens {
            Some(budget) => sampled == budget,
            None => {
                sampled == self.request.max_tokens || forced.is_some_and(|f| f.after == sampled)
            }
        }
    }

    /// Tokens that may be sampled before a budget or an interruption has a say.
    pub(crate) fn room(&self) -> usize {
        let forced = self.request.interruptions.get(self.index).map(|forced| forced.after);
        let most = self
            .answer_tokens
            .unwrap_or_else(|| forced.unwrap_or(usize::MAX).min(self.request.max_tokens));
        most.saturating_sub(self.sampled)
    }

    fn begin_answer(&mut self, thinking_tokens: usize, answer_tokens: usize) {
        self.thinking_tokens = Some(thinking_tokens);
        self.answer_tokens = Some(answer_tokens);
        self.sampled = 0;
    }

    fn interrupt(&mut self, forced: &Interruption, version: u64) {
        let before = self.written.len();
        self.tokens.extend(&forced.tokens);
        self.written.extend(forced.tokens.iter().map(|&id| Token {
            id,
            logprob: None,
            version,
            is_injected: true,
        }));
        self.is_interrupted = true;
        self.own = 0;
        let end = self.request.thinking.as_ref().and_then(|t| self.end_of_thinking(&t.end, before));
        // A phrase without the tokens that end thinking ends it all the same.
        self.begin_answer(end.unwrap_or(self.written.len()), forced.answer_tokens);
    }

    /// Whether the last token written ends thinking.
    fn has_ended_thinking(&self, thinking: &Thinking) -> bool {
        self.end_of_thinking(&thinking.end, self.written.len() - 1).is_some()
            || thinking.tag.as_ref().is_some_and(|tag| tag.ends(self.own_tail()))
    }

    /// Tokens written up to the first `end` whose last token is at place `from` or later.
    fn end_of_thinking(&self, end: &[i64], from: usize) -> Option<usize> {
        let is_end = |count: &usize| {
            let written = self.written[..*count].iter().rev().map(|token| token.id);
            *count >= end.len() && written.zip(end.iter().rev()).all(|(id, wanted)| id == *wanted)
        };
        (from + 1..=self.written.len()).find(is_end)
    }

    pub(crate) fn finish(self, finish: Finish) -> Completion {
        Completion {
            request: self.id,
            index: self.index,
            tokens: self.written,
            finish,
            is_interrupted: self.is_interrupted,
            thinking_tokens: self.thinking_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(id: i64) -> Token {
        Token { id, logprob: Some(-1.0), version: 3, is_injected: false }
    }

    #[test]
    fn an_interruption_appends_its_tokens_and_starts_the_answer_budget() {
        let mut request = Request::new(vec![1, 2], 3);
        let forced = Interruption { after: 2, tokens: vec![7, 8], answer_tokens: 2 };
        request.interruptions = vec![forced];
        let mut sequence = Sequence::new(RequestId(0), 0, Arc::new(request), 0);
        let ends: Vec<Option<Finish>> =
            (10..14).map(|id| sequence.accept(sampled(id), |_| false)).collect();
        assert_eq!(ends, [None, None, None, Some(Finish::Length)]);
        assert_eq!(sequence.tokens, [1, 2, 10, 11, 7, 8, 12, 13]);
        let completion = sequence.finish(Finish::Length);
        let injected: Vec<bool> = completion.tokens.iter().map(|t| t.is_injected).collect();
        assert_eq!(injected, [false, false, true, true, false, false]);
        assert!(completion.tokens.iter().all(|t| t.is_injected == t.logprob.is_none()));
        assert!(completion.is_interrupted);
        assert_eq!(completion.thinking_tokens, Some(4));
    }

    /// Prompt of one token, thinking of 4 that `8 9` ends, answer of 2.
    fn thinker(interruption: Option<Interruption>) -> Sequence {
        let mut request = Request::new(vec![1], 4);
        request.thinking = Some(Thinking { end: vec![8, 9], tag: None, answer_tokens: 2 });
        request.interruptions = interruption.into_iter().collect();
        Sequence::new(RequestId(0), 0, Arc::new(request), 0)
    }

    /// Writes until the end: how it ended, and what was written.
    fn write(mut sequence: Sequence, ids: &[i64]) -> (Option<Finish>, Completion) {
        let finish = ids.iter().find_map(|&id| sequence.accept(sampled(id), |_| false));
        (finish, sequence.finish(finish.unwrap_or(Finish::Cancelled)))
    }

    #[test]
    fn thinking_that_ends_by_itself_starts_the_answer_and_is_not_interrupted() {
        let forced = Interruption { after: 3, tokens: vec![7, 8, 9], answer_tokens: 1 };
        // Ends exactly where the interruption would have come.
        let (finish, completion) = write(thinker(Some(forced.clone())), &[8, 8, 9, 20, 21, 22]);
        assert_eq!((finish, completion.tokens.len()), (Some(Finish::Length), 5));
        assert_eq!((completion.thinking_tokens, completion.is_interrupted), (Some(3), false));
        // Half of the end is not an end.
        let (finish, completion) = write(thinker(Some(forced)), &[9, 9, 8, 20]);
        let ids: Vec<i64> = completion.tokens.iter().map(|token| token.id).collect();
        assert_eq!((finish, ids), (Some(Finish::Length), vec![9, 9, 8, 7, 8, 9, 20]));
        assert_eq!((completion.thinking_tokens, completion.is_interrupted), (Some(6), true));
    }

    #[test]
    fn a_tag_ends_thinking_however_its_tokens_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = ["</", "t", ">", ">\n", ".</", "</t>", "x", "<s>"];
        let made = crate::fresh::FreshTokens {
            tokens: &tokens,
            start: "<s>",
            end: "<s>",
            visible: &tokens,
        };
        let shape = crate::fresh::FreshShape {
            layers: 1,
            width: 4,
            heads: 1,
            kv_heads: 1,
            feed_forward: 4,
            experts: None,
        };
        crate::fresh::write(folder.path(), &shape, &made).unwrap();
        let tokenizer = Arc::new(crate::tokenizer::Tokenizer::load(folder.path()).unwrap());
        let tag = super::super::EndTag::new("</t>", tokenizer).unwrap();
        for spelling in [&[6_i64, 0, 1, 2][..], &[4, 1, 3], &[6, 5], &[0, 1, 3]] {
            assert!(tag.ends(spelling), "{spelling:?}");
        }
        for other in [&[][..], &[2], &[0, 1], &[0, 6, 2], &[6, 0, 1, 2, 6]] {
            assert!(!tag.ends(other), "{other:?}");
        }
    }

    #[test]
    fn thinking_that_never_ends_is_cut_at_its_own_budget() {
        let (finish, completion) = write(thinker(None), &[3; 9]);
        assert_eq!((finish, completion.tokens.len()), (Some(Finish::Length), 4));
        assert_eq!(completion.thinking_tokens, None);
        // The last token it may think with can still end it.
        let (finish, completion) = write(thinker(None), &[3, 3, 8, 9, 5, 6, 7]);
        assert_eq!((finish, completion.tokens.len()), (Some(Finish::Length), 6));
        assert_eq!(completion.thinking_tokens, Some(4));
    }

    #[test]
    fn a_phrase_ends_thinking_where_its_tag_stands_or_where_it_ends() {
        let phrase = |tokens| Interruption { after: 1, tokens, answer_tokens: 5 };
        let (_, completion) = write(thinker(Some(phrase(vec![8, 9, 4]))), &[3]);
        assert_eq!(completion.thinking_tokens, Some(3));
        let (_, completion) = write(thinker(Some(phrase(vec![4, 4, 4]))), &[3]);
        assert_eq!(completion.thinking_tokens, Some(4));
        // The tag may begin in what was sampled.
        let (_, completion) = write(thinker(Some(phrase(vec![9, 4]))), &[8]);
        assert_eq!(completion.thinking_tokens, Some(2));
    }

    #[test]
    fn a_stop_token_before_the_interruption_ends_the_completion() {
        let mut request = Request::new(vec![1], 5);
        request.stop_tokens = vec![9];
        request.interruptions = vec![Interruption { after: 1, tokens: vec![7], answer_tokens: 2 }];
        let mut sequence = Sequence::new(RequestId(0), 0, Arc::new(request), 0);
        assert_eq!(sequence.accept(sampled(9), |_| false), Some(Finish::Stop));
        assert!(!sequence.finish(Finish::Stop).is_interrupted);
    }
}

//! One completion while it is being written.
//!
//! `tokens` is everything the model sees, `computed` how much of it is in the cache. Whatever lies
//! between the two runs through the network next: one token in an ordinary decode step, more after
//! admission, after an interruption, or after the cache was given up. There is no other state, so
//! being set aside is `computed = 0` and nothing else.

use std::sync::Arc;

use super::pool::Page;
use super::request::{Completion, Finish, Request, RequestId, Token};

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
    /// Sampled since the start, or since the interruption.
    sampled: usize,
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
        &self.tokens[self.tokens.len() - self.sampled..]
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
        if self.request.stop_tokens.contains(&token.id) || is_stopped(self) {
            return Some(Finish::Stop);
        }
        let interruption = self.request.interruptions.get(self.index);
        match interruption {
            Some(forced) if !self.is_interrupted && self.sampled == forced.after => {
                self.tokens.extend(&forced.tokens);
                self.written.extend(forced.tokens.iter().map(|&id| Token {
                    id,
                    logprob: None,
                    version: token.version,
                    is_injected: true,
                }));
                self.is_interrupted = true;
                self.sampled = 0;
                None
            }
            Some(forced) if self.is_interrupted => {
                (self.sampled == forced.answer_tokens).then_some(Finish::Length)
            }
            _ => (self.sampled == self.request.max_tokens).then_some(Finish::Length),
        }
    }

    pub(crate) fn finish(self, finish: Finish) -> Completion {
        Completion {
            request: self.id,
            index: self.index,
            tokens: self.written,
            finish,
            is_interrupted: self.is_interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Interruption;
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

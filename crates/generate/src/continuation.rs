//! A completion whose tokens another engine draws, kept by the rules of our own.
//!
//! Budgets, the ends of thinking and answer, interruptions and stop texts are decided in one place
//! (`sequence.rs`). Here that place is opened to a client of a server: it asks what the model has
//! to see, how many tokens may come before the next decision, and hands over what came.

use std::sync::Arc;

use super::request::{Completion, Finish, Request, RequestId, Token};
use super::sequence::Sequence;
use scalerl_model::error::LoadError;
use scalerl_model::tokenizer::Tokenizer;

/// One completion of a request, half written.
pub struct Continuation {
    sequence: Sequence,
    tokenizer: Arc<Tokenizer>,
    finish: Option<Finish>,
}

impl std::fmt::Debug for Continuation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let written = self.sequence.written.len();
        f.debug_struct("Continuation").field("written", &written).finish_non_exhaustive()
    }
}

impl Continuation {
    /// Completion `index` of a request, with nothing written.
    pub fn new(request: Arc<Request>, index: usize, tokenizer: Arc<Tokenizer>) -> Self {
        let sequence = Sequence::new(RequestId(0), index, request, 0);
        Self { sequence, tokenizer, finish: None }
    }

    /// Prompt, and everything written so far.
    pub fn context(&self) -> &[i64] {
        &self.sequence.tokens
    }

    /// Tokens written so far, injected ones included.
    pub fn written(&self) -> usize {
        self.sequence.written.len()
    }

    /// Most tokens that may be sampled before a budget or an interruption has a say; 0 once it has
    /// ended.
    pub fn room(&self) -> usize {
        if self.finish.is_some() { 0 } else { self.sequence.room() }
    }

    /// Takes one sampled token; true when the completion has ended with it. Tokens after the end
    /// are not taken.
    pub fn accept(&mut self, token: Token) -> Result<bool, LoadError> {
        if self.finish.is_some() {
            return Ok(true);
        }
        self.finish = self.sequence.accept(token, Some(&self.tokenizer))?;
        Ok(self.finish.is_some())
    }

    /// A text that may end the completion from here on, once its answer has begun.
    pub fn end_of_answer(&self) -> Option<&str> {
        let stop = self.sequence.request.end_of_answer.as_ref();
        stop.filter(|_| self.sequence.is_answering()).map(|stop| stop.end().closing.as_str())
    }

    /// What was written; cut off where it had not ended.
    pub fn into_completion(self) -> Completion {
        self.sequence.finish(self.finish.unwrap_or(Finish::Length))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AnswerStop, Interruption, Thinking};
    use super::*;
    use scalerl_rollout::AnswerEnd;

    fn tokenizer() -> Arc<Tokenizer> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/testdata/tiny_chat");
        Arc::new(Tokenizer::load(folder.as_ref()).unwrap())
    }

    fn token(id: i64) -> Token {
        Token { id, logprob: Some(-1.0), version: 0, is_injected: false }
    }

    #[test]
    fn the_room_is_that_of_the_next_decision() {
        let mut request = Request::new(vec![1], 6);
        request.thinking = Some(Thinking { end: vec![9], tag: None, answer_tokens: 3 });
        request.interruptions =
            vec![Interruption { after: 4, tokens: vec![8, 9], answer_tokens: 2 }];
        request.stop_tokens = vec![2];
        let mut one = Continuation::new(Arc::new(request.clone()), 0, tokenizer());
        assert_eq!(one.room(), 4, "the interruption comes first");
        for id in 10..14 {
            assert!(!one.accept(token(id)).unwrap());
        }
        assert_eq!(one.context(), [1, 10, 11, 12, 13, 8, 9], "the phrase was appended");
        assert_eq!(one.room(), 2, "then the answer's budget");
        assert!(!one.accept(token(3)).unwrap());
        assert!(one.accept(token(2)).unwrap(), "the end token");
        assert!(one.accept(token(7)).unwrap(), "nothing is taken after the end");
        assert_eq!(one.room(), 0);
        assert_eq!(one.into_completion().tokens.len(), 8);

        let mut other = Continuation::new(Arc::new(request), 0, tokenizer());
        assert!(!other.accept(token(9)).unwrap());
        assert_eq!(other.room(), 3, "thinking that ended by itself");
    }

    /// `>` ends thinking and `ab` the answer.
    #[test]
    fn a_closing_text_ends_the_answer_and_is_known_once_that_has_begun() {
        let mut request = Request::new(vec![1], 6);
        request.thinking = Some(Thinking { end: vec![27], tag: None, answer_tokens: 5 });
        request.end_of_answer =
            Some(Arc::new(AnswerStop::new(AnswerEnd::at("ab"), tokenizer()).unwrap()));
        let mut one = Continuation::new(Arc::new(request.clone()), 0, tokenizer());
        for id in [15, 16, 27, 16, 15] {
            assert_eq!(one.end_of_answer().is_some(), one.written() > 2, "{}", one.written());
            assert!(!one.accept(token(id)).unwrap());
        }
        assert_eq!(one.end_of_answer(), Some("ab"));
        assert!(one.accept(token(16)).unwrap());
        assert!(one.accept(token(17)).unwrap(), "nothing is taken after the end");
        let one = one.into_completion();
        assert_eq!((one.tokens.len(), one.finish), (6, Finish::Stop));

        request.thinking = None;
        let answer = Continuation::new(Arc::new(request), 0, tokenizer());
        assert_eq!(answer.end_of_answer(), Some("ab"), "all of it is the answer");
    }
}

//! One completion while it is being written.
//!
//! `tokens` is everything the model sees, `computed` how much of it is in the cache. Whatever lies
//! between the two runs through the network next: one token in an ordinary decode step, more after
//! admission, after an interruption, or after the cache was given up. There is no other state, so
//! being set aside is `computed = 0` and nothing else.

use std::sync::Arc;

use super::pool::Page;
use super::request::{Completion, Finish, Interruption, Request, RequestId, Thinking, Token};
use super::stop;
use scalerl_model::error::LoadError;
use scalerl_model::tokenizer::Tokenizer;

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
    /// Whether weights have changed since some of them were computed.
    pub(crate) is_mixed: bool,
    pub(crate) written: Vec<Token>,
    /// Sampled in this phase: while thinking, or for the answer.
    sampled: usize,
    /// Sampled since the start, or since the interruption.
    own: usize,
    /// The answer's budget, once thinking has ended.
    answer_tokens: Option<usize>,
    /// Tokens written when it had.
    thinking_tokens: Option<usize>,
    /// What the token that ended thinking holds of the answer already.
    answer_head: String,
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
            is_mixed: false,
            written: Vec::new(),
            sampled: 0,
            own: 0,
            answer_tokens: None,
            thinking_tokens: None,
            answer_head: String::new(),
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

    /// Whether what is sampled now is the answer's.
    pub(crate) fn is_answering(&self) -> bool {
        self.answer_tokens.is_some() || self.request.thinking.is_none()
    }

    /// Takes a sampled token; stop strings are found where there is a tokenizer.
    pub(crate) fn accept(
        &mut self,
        token: Token,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Option<Finish>, LoadError> {
        self.tokens.push(token.id);
        self.written.push(token);
        self.sampled += 1;
        self.own += 1;
        if self.request.stop_tokens.contains(&token.id)
            || self.is_stopped(tokenizer)?
            || self.has_ended_answer()
        {
            return Ok(Some(Finish::Stop));
        }
        Ok(self.advance(token.version))
    }

    /// Budgets, the end of thinking and interruptions, after a token that did not stop it.
    fn advance(&mut self, version: u64) -> Option<Finish> {
        if let Some(budget) = self.answer_tokens {
            return (self.sampled == budget).then_some(Finish::Length);
        }
        let request = self.request.clone();
        if let Some(thinking) = &request.thinking
            && let Some(head) = self.after_thinking(thinking)
        {
            self.begin_answer(self.written.len(), thinking.answer_tokens);
            self.answer_head = head;
            return self.has_ended_answer().then_some(Finish::Stop);
        }
        match request.interruptions.get(self.index) {
            Some(forced) if self.sampled == forced.after => {
                self.interrupt(forced, version);
                None
            }
            _ => (self.sampled == request.max_tokens).then_some(Finish::Length),
        }
    }

    fn is_stopped(&self, tokenizer: Option<&Tokenizer>) -> Result<bool, LoadError> {
        let stops = &self.request.stop_strings;
        match tokenizer.filter(|_| !stops.is_empty()) {
            Some(tokenizer) => stop::is_stopped(tokenizer, self.own_tail(), stops),
            None => Ok(false),
        }
    }

    /// Whether the text that ends the answer stands in it. What was written while thinking, and
    /// the phrase of an interruption, are not looked at.
    fn has_ended_answer(&self) -> bool {
        let answer = &self.tokens[self.tokens.len() - self.sampled..];
        let end = self.request.end_of_answer.as_ref().filter(|_| self.is_answering());
        end.is_some_and(|end| end.is_complete(&self.answer_head, answer))
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

    /// Where the last token written ends thinking: what it holds beyond that.
    fn after_thinking(&self, thinking: &Thinking) -> Option<String> {
        if self.end_of_thinking(&thinking.end, self.written.len() - 1).is_some() {
            return Some(String::new());
        }
        thinking.tag.as_ref()?.after(self.own_tail())
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
    use super::super::{AnswerStop, EndTag};
    use super::*;
    use scalerl_rollout::AnswerEnd;

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
            (10..14).map(|id| sequence.accept(sampled(id), None).unwrap()).collect();
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
        let finish = ids.iter().find_map(|&id| sequence.accept(sampled(id), None).unwrap());
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

    /// One token for each of these texts.
    fn tokenizer(tokens: &[&str]) -> Arc<Tokenizer> {
        let folder = tempfile::tempdir().unwrap();
        let (start, end) = (tokens[0], tokens[0]);
        let made = scalerl_model::fresh::FreshTokens { tokens, start, end, visible: tokens };
        let shape = scalerl_model::fresh::FreshShape {
            layers: 1,
            width: 4,
            heads: 1,
            kv_heads: 1,
            feed_forward: 4,
            experts: None,
        };
        scalerl_model::fresh::write(folder.path(), &shape, &made).unwrap();
        Arc::new(Tokenizer::load(folder.path()).unwrap())
    }

    #[test]
    fn a_tag_ends_thinking_however_its_tokens_are_cut() {
        let tokens = ["</", "t", ">", ">\n", ".</", "</t>", "x", "<s>"];
        let tag = EndTag::new("</t>", tokenizer(&tokens)).unwrap();
        for (spelling, rest) in
            [(&[6_i64, 0, 1, 2][..], ""), (&[4, 1, 3], "\n"), (&[6, 5], ""), (&[0, 1, 3], "\n")]
        {
            assert_eq!(tag.after(spelling).as_deref(), Some(rest), "{spelling:?}");
        }
        for other in [&[][..], &[2], &[0, 1], &[0, 6, 2], &[6, 0, 1, 2, 6]] {
            assert_eq!(tag.after(other), None, "{other:?}");
        }
    }

    /// Thinks until `box{`, its answer ends with `}}`: 6 tokens for the one, 5 for the other.
    const BOXES: [&str; 8] = ["<s>", "box", "{", "}", "x", "{}", "}}", "x}"];

    fn boxer(interruption: Option<Interruption>, thinks: bool) -> Sequence {
        ending(interruption, thinks, AnswerEnd::at("}}"))
    }

    fn ending(interruption: Option<Interruption>, thinks: bool, end: AnswerEnd) -> Sequence {
        let tokenizer = tokenizer(&BOXES);
        let tag = |text| Arc::new(EndTag::new(text, tokenizer.clone()).unwrap());
        let mut request = Request::new(vec![0], 6);
        request.thinking =
            thinks.then(|| Thinking { end: vec![1, 2], tag: Some(tag("box{")), answer_tokens: 5 });
        request.end_of_answer = Some(Arc::new(AnswerStop::new(end, tokenizer.clone()).unwrap()));
        request.interruptions = interruption.into_iter().collect();
        Sequence::new(RequestId(0), 0, Arc::new(request), 0)
    }

    /// How it ended, and the text of what was written.
    fn boxed(sequence: Sequence, ids: &[i64]) -> (Option<Finish>, String) {
        let (finish, completion) = write(sequence, ids);
        (finish, completion.tokens.iter().map(|token| BOXES[token.id as usize]).collect())
    }

    #[test]
    fn the_first_closing_text_after_thinking_ends_the_completion_and_stays_in_it() {
        let stopped = |text: &str| (Some(Finish::Stop), text.to_owned());
        // The same text while it thinks ends nothing, nor does half of it.
        assert_eq!(boxed(boxer(None, true), &[6, 1, 2, 4, 3, 4, 6, 4]), stopped("}}box{x}x}}"));
        // Cut across tokens; the budget's last token may still close it.
        assert_eq!(boxed(boxer(None, true), &[1, 2, 4, 7, 3, 4]), stopped("box{xx}}"));
        assert_eq!(boxed(boxer(None, true), &[1, 2, 4, 4, 4, 3, 3]), stopped("box{xxx}}"));
        let (finish, _) = boxed(boxer(None, true), &[1, 2, 4, 4, 4, 4, 3, 3]);
        assert_eq!(finish, Some(Finish::Length), "closed too late");
        // Thinking's own characters do not count for the answer's.
        let (finish, _) = boxed(boxer(None, true), &[3, 1, 2, 3, 4]);
        assert_eq!(finish, None);
    }

    #[test]
    fn a_token_that_ends_thinking_may_begin_to_close_the_answer() {
        let closed = boxed(boxer(None, true), &[1, 5, 3, 4]);
        assert_eq!(closed, (Some(Finish::Stop), "box{}}".to_owned()));
        let (finish, text) = boxed(boxer(None, true), &[1, 5, 4, 3, 4]);
        assert_eq!((finish, text.as_str()), (None, "box{}x}x"));
    }

    #[test]
    fn a_closing_text_ends_the_completion_after_an_interruption_too() {
        let forced = Interruption { after: 2, tokens: vec![3, 1, 2], answer_tokens: 5 };
        let (finish, text) = boxed(boxer(Some(forced.clone()), true), &[6, 4, 4, 3, 3, 4]);
        assert_eq!((finish, text.as_str()), (Some(Finish::Stop), "}}x}box{x}}"));
        // What the phrase holds was not written by the policy.
        let forced = Interruption { tokens: vec![1, 2, 3], ..forced };
        let (finish, text) = boxed(boxer(Some(forced), true), &[4, 4, 3, 4, 6]);
        assert_eq!((finish, text.as_str()), (Some(Finish::Stop), "xxbox{}}x}}"));
    }

    #[test]
    fn without_thinking_the_first_closing_text_ends_the_completion() {
        let (finish, text) = boxed(boxer(None, false), &[4, 3, 4, 7, 3, 4]);
        assert_eq!((finish, text.as_str()), (Some(Finish::Stop), "x}xx}}"));
    }

    #[test]
    fn a_box_ends_the_completion_at_its_matching_brace() {
        let end = |opening: &str| AnswerEnd {
            opening: opening.into(),
            closing: "}".into(),
            braces_nest: true,
        };
        // Thinking has consumed the opening text; the first brace closes one inside.
        let closed = boxed(ending(None, true, end("")), &[3, 1, 2, 4, 2, 3, 3, 4]);
        assert_eq!(closed, (Some(Finish::Stop), "}box{x{}}".to_owned()));
        // The token that ends thinking may hold the answer's end.
        let closed = boxed(ending(None, true, end("")), &[4, 1, 5, 4]);
        assert_eq!(closed, (Some(Finish::Stop), "xbox{}".to_owned()));
        // Without thinking braces before the box end nothing.
        let closed = boxed(ending(None, false, end("box{")), &[5, 3, 1, 2, 7, 4]);
        assert_eq!(closed, (Some(Finish::Stop), "{}}box{x}".to_owned()));
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
        assert_eq!(sequence.accept(sampled(9), None).unwrap(), Some(Finish::Stop));
        assert!(!sequence.finish(Finish::Stop).is_interrupted);
    }
}

//! A chat format whose texts have several tokenizations, and a policy that writes what it is told.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scalerl_rollout::{
    Completion, FinishReason, GeneratorError, Live, LiveToken, Pending, Policy, PolicyVersion,
    SampleRequest, TokenScore,
};
use scalerl_serve::tools::Family;
use scalerl_serve::{ChatError, ChatFormat, Extras, Special};
use serde_json::Value;

pub(crate) const END: u32 = 2;
const SPECIAL: [&str; 7] =
    ["<pad>", "<s>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"];
/// Pairs that are one token where text is encoded.
const PAIRS: [&str; 4] = ["ab", "ba", "aa", "12"];
const FIRST_PAIR: u32 = 50;
const FIRST_CHARACTER: u32 = 100;

/// Characters, some pairs of them, and special tokens.
pub(crate) struct FakeChat;

/// A character as a token of its own.
pub(crate) fn single(c: char) -> u32 {
    FIRST_CHARACTER + c as u32
}

/// A text as one token per character, which is not how it is encoded.
pub(crate) fn singles(text: &str) -> Vec<u32> {
    text.chars().map(single).collect()
}

impl ChatFormat for FakeChat {
    fn render(&self, messages: &[Value], extras: &Extras) -> Result<String, ChatError> {
        let mut text = String::from("<s>");
        if !extras.tools.is_empty() {
            write!(text, "<|system|>{}<|end|>", Value::Array(extras.tools.clone())).unwrap();
        }
        for message in messages {
            let content = message["content"].as_str().unwrap();
            if content == "refuse me" {
                return Err(ChatError::Template("no".to_owned()));
            }
            write!(text, "<|{}|>{content}", message["role"].as_str().unwrap()).unwrap();
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let function = &call["function"];
                write!(
                    text,
                    "<tool_call>{{\"name\": {}, \"arguments\": {}}}</tool_call>",
                    function["name"], function["arguments"]
                )
                .unwrap();
            }
            text += "<|end|>";
        }
        Ok(text + "<|assistant|>")
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        let (mut ids, mut rest) = (Vec::new(), text);
        while let Some(first) = rest.chars().next() {
            let place = |all: &[&str]| all.iter().position(|token| rest.starts_with(token));
            let (id, length) = if let Some(at) = place(&SPECIAL) {
                (at as u32, SPECIAL[at].len())
            } else if let Some(at) = place(&PAIRS) {
                (FIRST_PAIR + at as u32, 2)
            } else {
                (single(first), first.len_utf8())
            };
            ids.push(id);
            rest = &rest[length..];
        }
        Ok(ids)
    }

    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        self.encode(&format!("<s>{text}"))
    }

    fn decode(&self, ids: &[u32], special: Special) -> Result<String, ChatError> {
        let text = |id: u32| match id {
            0..FIRST_PAIR if special == Special::Hide => String::new(),
            0..FIRST_PAIR => SPECIAL[id as usize].to_owned(),
            FIRST_PAIR..FIRST_CHARACTER => PAIRS[(id - FIRST_PAIR) as usize].to_owned(),
            _ => char::from_u32(id - FIRST_CHARACTER).unwrap().to_string(),
        };
        Ok(ids.iter().map(|id| text(*id)).collect())
    }

    fn end_tokens(&self) -> &[u32] {
        &[END]
    }

    fn tool_family(&self) -> Option<Family> {
        Some(Family::Hermes)
    }
}

/// What a policy writes to a request, as its completion of some index.
pub(crate) type Script = dyn Fn(&SampleRequest, u32) -> Vec<u32> + Send + Sync;

/// Writes as told, within the request's limits; remembers what it was asked.
pub(crate) struct FakePolicy {
    script: Box<Script>,
    hangs: bool,
    /// Between two tokens.
    pace: Duration,
    pub(crate) asked: Mutex<Vec<SampleRequest>>,
    pub(crate) running: Arc<AtomicUsize>,
}

impl FakePolicy {
    pub(crate) fn new(
        script: impl Fn(&SampleRequest, u32) -> Vec<u32> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with(Box::new(script), false)
    }

    /// Always the same text, a token per character, then the end.
    pub(crate) fn says(text: &str) -> Arc<Self> {
        let tokens = [singles(text), vec![END]].concat();
        Self::new(move |_, _| tokens.clone())
    }

    /// Writes one token and then nothing.
    pub(crate) fn hangs() -> Arc<Self> {
        Self::with(Box::new(|_, _| singles("a")), true)
    }

    fn with(script: Box<Script>, hangs: bool) -> Arc<Self> {
        Arc::new(Self::at_pace(script, hangs, Duration::ZERO))
    }

    fn at_pace(script: Box<Script>, hangs: bool, pace: Duration) -> Self {
        Self { script, hangs, pace, asked: Mutex::default(), running: Arc::default() }
    }

    /// Says the same, a token at a time.
    pub(crate) fn says_slowly(text: &str, pace: Duration) -> Arc<Self> {
        let tokens = [singles(text), vec![END]].concat();
        Arc::new(Self::at_pace(Box::new(move |_, _| tokens.clone()), false, pace))
    }

    pub(crate) fn prompt(&self, call: usize) -> Vec<u32> {
        self.asked.lock().unwrap()[call].prompt_token_ids.clone()
    }
}

pub(crate) fn logprob(id: u32) -> f32 {
    -0.25 - (id % 8) as f32 / 8.0
}

/// New weights came after the second token.
pub(crate) fn version(place: usize) -> PolicyVersion {
    PolicyVersion(if place < 2 { 3 } else { 4 })
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn write(request: &SampleRequest, script: Vec<u32>) -> Completion {
    let (mut ids, mut finish) = (Vec::new(), FinishReason::Length);
    for id in script.into_iter().take(request.max_answer_tokens as usize) {
        ids.push(id);
        let text = FakeChat.decode(&ids, Special::Show).unwrap();
        let is_stop = id == END || request.stop_token_ids.contains(&id);
        if is_stop || request.stop.iter().any(|stop| text.contains(stop)) {
            finish = FinishReason::Stop;
            break;
        }
    }
    Completion {
        logprobs: ids.iter().copied().map(logprob).collect(),
        versions: (0..ids.len()).map(version).collect(),
        is_injected: vec![false; ids.len()],
        text: FakeChat.decode(&ids, Special::Show).unwrap(),
        thinking_tokens: 0,
        finish,
        token_ids: ids,
    }
}

impl Policy for FakePolicy {
    fn generate(
        &self,
        request: SampleRequest,
        live: Option<Live>,
    ) -> Pending<'_, Result<Vec<Completion>, GeneratorError>> {
        Box::pin(async move {
            assert!(!request.prompt_token_ids.contains(&single('?')), "a policy that panics");
            if request.prompt_token_ids.contains(&single('!')) {
                return Err(GeneratorError::Refused { reason: "not that".to_owned() });
            }
            self.running.fetch_add(1, Ordering::SeqCst);
            let _running = Running(self.running.clone());
            self.asked.lock().unwrap().push(request.clone());
            let make = |index| write(&request, (self.script)(&request, index));
            let completions: Vec<Completion> = (0..request.count).map(make).collect();
            for (index, one) in completions.iter().enumerate() {
                for at in 0..one.len() {
                    if let Some(live) = &live {
                        live(LiveToken {
                            completion: index as u32,
                            token_id: one.token_ids[at],
                            logprob: one.logprobs[at],
                            version: one.versions[at],
                            is_injected: false,
                        });
                    }
                    if self.pace.is_zero() {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(self.pace).await;
                    }
                }
            }
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(completions)
        })
    }

    fn score(
        &self,
        sequences: Vec<Vec<u32>>,
        top: usize,
    ) -> Pending<'_, Result<Vec<Vec<TokenScore>>, GeneratorError>> {
        let of = move |(place, id): (usize, &u32)| TokenScore {
            logprob: (place > 0).then(|| logprob(*id)),
            top: (0..top as u32).map(|k| (single('p') + k, -0.125 * (k + 1) as f32)).collect(),
        };
        let scores = sequences.iter().map(|one| one.iter().enumerate().map(of).collect());
        let scores = scores.collect();
        Box::pin(async move { Ok(scores) })
    }
}

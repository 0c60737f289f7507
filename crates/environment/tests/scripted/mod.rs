//! A policy that says what it is told to, and a chat whose tokens are bytes.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scalerl_environment::{Chat, Environments, Surroundings};
use scalerl_recipe::{Recipe, Source};
use scalerl_rollout::{
    Completion, Environment as _, EnvironmentError, FinishReason, GeneratorError, Live, Outcome,
    Pending, Policy, PolicyVersion, Prompt, PromptId, SampleRequest,
};
use scalerl_serve::tools::Family;
use scalerl_serve::{ChatError, ChatFormat, Extras, Special};
use scalerl_task::Problem;
use serde_json::Value;
use tokio::sync::Semaphore;

/// `role:text\n`, one byte a token.
pub(crate) struct ByteChat;

impl ChatFormat for ByteChat {
    fn render(&self, messages: &[Value], _extras: &Extras) -> Result<String, ChatError> {
        let line = |message: &Value| {
            let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
            format!("{}:{}\n", text("role"), text("content"))
        };
        Ok(messages.iter().map(line).collect())
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        self.encode(text)
    }

    fn decode(&self, token_ids: &[u32], _special: Special) -> Result<String, ChatError> {
        let bytes: Vec<u8> = token_ids.iter().map(|id| *id as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn end_tokens(&self) -> &[u32] {
        &[]
    }

    fn tool_family(&self) -> Option<Family> {
        Some(Family::Hermes)
    }
}

/// Says its lines one after the other, and keeps what it was shown.
#[derive(Default)]
pub(crate) struct Scripted {
    pub(crate) lines: Vec<String>,
    pub(crate) shown: Mutex<Vec<String>>,
    /// Refuses turns from here on, as an episode without room does.
    pub(crate) room: Option<usize>,
}

impl Scripted {
    pub(crate) fn saying(lines: &[&str]) -> Arc<Self> {
        let lines = lines.iter().map(ToString::to_string).collect();
        Arc::new(Self { lines, ..Self::default() })
    }

    pub(crate) fn shown(&self) -> Vec<String> {
        self.shown.lock().unwrap().clone()
    }

    fn answer(&self, request: &SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        let bytes: Vec<u8> = request.prompt_token_ids.iter().map(|id| *id as u8).collect();
        let mut shown = self.shown.lock().unwrap();
        if self.room.is_some_and(|room| shown.len() >= room) {
            return Err(GeneratorError::Refused { reason: "the episode has had its turns".into() });
        }
        let text = self.lines[shown.len() % self.lines.len()].clone();
        shown.push(String::from_utf8(bytes).unwrap());
        let token_ids: Vec<u32> = text.bytes().map(u32::from).collect();
        let count = token_ids.len();
        Ok(vec![Completion {
            token_ids,
            logprobs: vec![-0.5; count],
            versions: vec![PolicyVersion(0); count],
            is_injected: vec![false; count],
            text,
            thinking_tokens: 0,
            finish: FinishReason::Stop,
        }])
    }
}

impl Policy for Scripted {
    fn generate(
        &self,
        request: SampleRequest,
        _live: Option<Live>,
    ) -> Pending<'_, Result<Vec<Completion>, GeneratorError>> {
        Box::pin(std::future::ready(self.answer(&request)))
    }
}

/// The same, but each turn needs a permit.
pub(crate) struct Gated {
    pub(crate) inner: Arc<Scripted>,
    pub(crate) gate: Semaphore,
}

impl Policy for Gated {
    fn generate(
        &self,
        request: SampleRequest,
        live: Option<Live>,
    ) -> Pending<'_, Result<Vec<Completion>, GeneratorError>> {
        Box::pin(async move {
            self.gate.acquire().await.unwrap().forget();
            self.inner.generate(request, live).await
        })
    }
}

/// Environments of a recipe whose one data set is `games`, whatever its problem; quick to lose patience.
pub(crate) fn environments(environment: &str, folder: &Path) -> Result<Environments, String> {
    environments_within(Duration::from_secs(3), environment, folder)
}

/// The same, with other patience for a turn.
pub(crate) fn environments_within(
    turn_timeout: Duration,
    environment: &str,
    folder: &Path,
) -> Result<Environments, String> {
    let row = serde_json::json!({"prompt": "Play.", "seed": 5, "word": "tree"});
    environments_of(&row, turn_timeout, environment, folder)
}

/// The same, with another row behind every prompt.
pub(crate) fn environments_of(
    row: &Value,
    turn_timeout: Duration,
    environment: &str,
    folder: &Path,
) -> Result<Environments, String> {
    let fields = row.as_object().unwrap().clone();
    let text = format!(
        "[[task.datasets]]\nname = \"games\"\nsource = {{ type = \"seeds\", count = 3, prompt = \
         \"Play.\" }}\nenvironment = {environment}\n"
    );
    let source = Source::Text { name: "test".into(), text };
    let recipe = Recipe::load(&[source], &[]).map_err(|error| error.to_string())?;
    let surroundings = Surroundings {
        chat: Chat::new(Arc::new(ByteChat)),
        turn_timeout,
        timeout: Duration::from_secs(20),
        longest: 1 << 16,
        folder: folder.to_owned(),
    };
    let problem = move |id: &PromptId| {
        let problem = Problem::plain("Play.", "42").named("games", &id.0);
        Some(Arc::new(Problem { id: id.clone(), fields: fields.clone(), ..problem }))
    };
    let made = Environments::of(&recipe, problem, &surroundings);
    made.map(Option::unwrap).map_err(|error| format!("{error}; {}", error.hint))
}

/// Plays one episode.
pub(crate) async fn play<P: Policy>(
    environments: &Environments,
    policy: Arc<P>,
) -> Result<Outcome, EnvironmentError> {
    let prompt = Prompt {
        id: PromptId("games/0".into()),
        dataset: "games".into(),
        text: "Play.".into(),
        token_ids: ByteChat.encode("Play.").unwrap(),
        answer: "42".into(),
    };
    environments.play(&prompt, 9, policy).await
}

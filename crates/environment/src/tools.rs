//! Built-in tools, called in the form that the model's chat template teaches; the data set's verifier
//! reads the last turn.
//!
//! A turn that calls tools is answered with what they say, one message each; a turn that calls none is
//! the last. A call that cannot be read stays text, so it ends the episode: the template has said how a
//! call is written.

use std::sync::Arc;

use scalerl_recipe::EnvironmentChoice;
use scalerl_rollout::{EnvironmentError, EpisodeVerdict, Outcome, Pending};
use scalerl_serve::tools::ToolCall;
use scalerl_task::{Interpreter, SandboxLimits};
use serde_json::{Value, json};

use crate::{Chat, Conversation, Driver, Refusal, Surroundings, Task, Written};

/// What the model is told of the one tool there is.
fn python_tool() -> Value {
    json!({"type": "function", "function": {
        "name": "python",
        "description": "Runs a Python program and answers with what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The whole program."}},
            "required": ["code"],
        },
    }})
}

/// Plays with built-in tools.
pub struct ToolsDriver {
    python: Arc<Interpreter>,
    chat: Chat,
}

impl ToolsDriver {
    /// Finds a sandbox and tries it out.
    pub fn start(choice: &EnvironmentChoice, surroundings: &Surroundings) -> Result<Self, Refusal> {
        let EnvironmentChoice::Tools { time_s, memory_mib, allow_without_sandbox, .. } = choice
        else {
            return Err(("type", "it is not \"tools\"".to_owned(), ""));
        };
        if surroundings.chat.tool_family().is_none() {
            let problem = "the model's chat template knows no tools".to_owned();
            return Err((
                "type",
                problem,
                "choose a model that was taught tool calls (Qwen, Llama 3)",
            ));
        }
        let limits = SandboxLimits {
            time_s: *time_s,
            time_per_test_s: *time_s,
            memory_mib: u64::from(*memory_mib),
            ..SandboxLimits::default()
        };
        let python = Interpreter::find(limits, *allow_without_sandbox).map_err(|problem| {
            ("type", problem, "install bubblewrap, or set allow_without_sandbox = true")
        })?;
        Ok(Self { python: Arc::new(python), chat: surroundings.chat.clone() })
    }

    async fn episode(&self, task: Task) -> Result<Outcome, EnvironmentError> {
        let messages: Vec<Value> =
            task.problem.messages.iter().map(|message| json!(message)).collect();
        let tools = vec![python_tool()];
        let mut conversation =
            Conversation::open(messages, tools, task.policy, self.chat.clone()).await?;
        let (mut turns, mut calls) = (0_u32, 0_u32);
        let is_truncated = loop {
            let Written::Turn(turn) = conversation.turn().await? else { break true };
            turns += 1;
            // What was cut off in the middle is no call.
            let called = self.chat.parse(&turn.text).tool_calls;
            if called.is_empty() || turn.is_truncated() {
                break turn.is_truncated();
            }
            let mut said = Vec::new();
            for call in called {
                calls += 1;
                let answer = self.answer(call).await?;
                said.push(json!({"role": "tool", "name": "python", "content": answer}));
            }
            conversation.say_all(said).await?;
        };
        let metrics = [("turns", turns), ("tool_calls", calls)];
        Ok(Outcome {
            verdict: EpisodeVerdict::AskVerifier,
            is_truncated,
            metrics: metrics.map(|(name, count)| (name.to_owned(), f64::from(count))).into(),
        })
    }

    async fn answer(&self, call: ToolCall) -> Result<String, EnvironmentError> {
        let code = call.arguments.get("code").and_then(Value::as_str).map(str::to_owned);
        let Some(code) = code.filter(|_| call.name == "python") else {
            return Ok("error: the one tool is python, with the program in `code`".to_owned());
        };
        let python = self.python.clone();
        // It has limits of its own, so this thread comes back.
        let run = tokio::task::spawn_blocking(move || python.run(&code)).await;
        run.map_err(EnvironmentError::new)?.map_err(EnvironmentError::new)
    }
}

impl Driver for ToolsDriver {
    fn play(&self, task: Task) -> Pending<'_, Result<Outcome, EnvironmentError>> {
        Box::pin(self.episode(task))
    }
}

//! OpenEnv environments: a server of them, one WebSocket an episode, and the loop is ours.
//!
//! ```text
//! we    {"type":"reset","data":{"seed":7}}            {"type":"step","data":{"message":"…"}}
//! they  {"type":"observation","data":{"observation":{…},"reward":0.0,"done":false}}
//! ```
//!
//! A server that has no place free says `CAPACITY_REACHED` and is asked again for as long as a turn may
//! take. Any other error is one of the episode.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use scalerl_rollout::{EnvironmentError, EpisodeVerdict, Outcome, Pending};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::{Chat, Conversation, Driver, Refusal, Surroundings, Task, Written, scored};

/// Between two tries for a place.
const PAUSE: Duration = Duration::from_millis(100);

/// What the recipe says of it.
pub struct Settings<'a> {
    /// Where the server is.
    pub url: &'a str,
    /// Key of the action that a turn's text goes into.
    pub action_key: Option<&'a str>,
    /// Key of the observation that the policy is shown.
    pub observation_key: Option<&'a str>,
}

/// Plays environments of an OpenEnv server.
pub struct OpenEnvDriver {
    url: String,
    action_key: String,
    observation_key: Option<String>,
    pass_score: f64,
    chat: Chat,
    turn_timeout: Duration,
}

/// What the server says of a step.
#[derive(Debug, Deserialize)]
struct Observed {
    #[serde(default)]
    observation: Value,
    reward: Option<f64>,
    #[serde(default)]
    done: bool,
}

impl OpenEnvDriver {
    /// Asks the server for its schema; nothing is played yet.
    pub fn start(
        settings: &Settings<'_>,
        pass_score: f64,
        surroundings: &Surroundings,
    ) -> Result<Self, Refusal> {
        let (socket, http) = addresses(settings.url);
        let action_key = match settings.action_key {
            Some(key) => key.to_owned(),
            None => only_text(&schema(&http)?)?,
        };
        Ok(Self {
            url: socket,
            action_key,
            observation_key: settings.observation_key.map(ToOwned::to_owned),
            pass_score,
            chat: surroundings.chat.clone(),
            turn_timeout: surroundings.turn_timeout,
        })
    }

    async fn episode(&self, task: Task) -> Result<Outcome, EnvironmentError> {
        let seed = task.problem.fields.get("seed").cloned();
        let seed = seed.unwrap_or_else(|| (task.seed % (1 << 31)).into());
        let (mut link, first) = self.begin(&json!({"seed": seed})).await?;
        let outcome = self.turns(&mut link, task, &first).await;
        // A server that is gone has nothing left to close.
        link.send(&json!({"type": "close"})).await.ok();
        outcome
    }

    /// A place on the server, and what its environment says first.
    async fn begin(&self, reset: &Value) -> Result<(Link, Observed), EnvironmentError> {
        let until = Instant::now() + self.turn_timeout;
        loop {
            let mut link = Link::open(&self.url, self.turn_timeout).await?;
            match link.ask("reset", reset).await {
                Ok(observed) => return Ok((link, observed)),
                Err(error) if error.is_full && Instant::now() < until => sleep(PAUSE).await,
                Err(error) => return Err(EnvironmentError::new(error.reason)),
            }
        }
    }

    async fn turns(
        &self,
        link: &mut Link,
        task: Task,
        first: &Observed,
    ) -> Result<Outcome, EnvironmentError> {
        let asked = task.problem.messages.iter().map(|message| json!(message));
        let said = json!({"role": "user", "content": self.shown(&first.observation)});
        let messages: Vec<Value> = asked.chain([said]).collect();
        let chat = self.chat.clone();
        let mut conversation = Conversation::open(messages, Vec::new(), task.policy, chat).await?;
        let mut score = first.reward.unwrap_or(0.0);
        let mut turns = 0.0;
        let is_truncated = loop {
            let Written::Turn(turn) = conversation.turn().await? else { break true };
            turns += 1.0;
            let action = Map::from_iter([(self.action_key.clone(), Value::from(turn.text))]);
            let observed = link.ask("step", &Value::Object(action)).await;
            let observed = observed.map_err(|error| EnvironmentError::new(error.reason))?;
            score += observed.reward.unwrap_or(0.0);
            if observed.done {
                break false;
            }
            conversation.say("user", &self.shown(&observed.observation)).await?;
        };
        let verdict = EpisodeVerdict::Reward(scored(score, self.pass_score));
        let metrics = BTreeMap::from([("turns".to_owned(), turns)]);
        Ok(Outcome { verdict, is_truncated, metrics })
    }

    /// What the policy is shown of an observation.
    fn shown(&self, observation: &Value) -> String {
        let chosen = match &self.observation_key {
            Some(key) => &observation[key],
            None => observation,
        };
        match chosen {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

impl Driver for OpenEnvDriver {
    fn play(&self, task: Task) -> Pending<'_, Result<Outcome, EnvironmentError>> {
        Box::pin(self.episode(task))
    }
}

/// The WebSocket and the HTTP address of a server, whichever was given.
fn addresses(url: &str) -> (String, String) {
    let plain = url.trim_end_matches('/').trim_end_matches("/ws");
    let socket = plain.replacen("http", "ws", 1);
    let http =
        if plain.starts_with("ws") { plain.replacen("ws", "http", 1) } else { plain.to_owned() };
    let socket = if socket.starts_with("ws") { socket } else { format!("ws://{socket}") };
    let http = if http.starts_with("http") { http } else { format!("http://{http}") };
    (format!("{socket}/ws"), http)
}

fn schema(http: &str) -> Result<Value, Refusal> {
    let failed = |error: ureq::Error| {
        let problem = format!("{http}/schema: {error}");
        ("url", problem, "start the environment's server first; url is ws://HOST:PORT/ws")
    };
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(30)));
    let agent: ureq::Agent = config.build().into();
    let mut answer = agent.get(format!("{http}/schema")).call().map_err(failed)?;
    answer.body_mut().read_json().map_err(failed)
}

/// The key of an action that a text goes into: its only required one, or its only text.
fn only_text(schema: &Value) -> Result<String, Refusal> {
    let action = &schema["action"];
    let none = Map::new();
    let properties = action["properties"].as_object().unwrap_or(&none);
    let is_text = |key: &&String| properties[*key]["type"] == "string";
    let texts: Vec<&String> = properties.keys().filter(is_text).collect();
    let required = action["required"].as_array();
    let is_required =
        |key: &&&String| required.is_some_and(|all| all.iter().any(|one| one == **key));
    let needed: Vec<&&String> = texts.iter().filter(is_required).collect();
    match (&needed[..], &texts[..]) {
        ([one], _) => Ok((**one).clone()),
        (_, [one]) => Ok((*one).clone()),
        _ => {
            let keys: Vec<&String> = properties.keys().collect();
            let problem = format!("which of the action's keys takes the text? They are {keys:?}");
            Err((
                "action_key",
                problem,
                "name it; actions of other shapes need a `python` environment",
            ))
        }
    }
}

struct LinkError {
    reason: String,
    /// The server has no place free.
    is_full: bool,
}

/// One WebSocket: one instance of the environment.
struct Link {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    limit: Duration,
}

impl Link {
    async fn open(url: &str, limit: Duration) -> Result<Self, EnvironmentError> {
        let failed = |reason: String| EnvironmentError::new(format!("{url}: {reason}"));
        match timeout(limit, connect_async(url)).await {
            Ok(Ok((socket, _))) => Ok(Self { socket, limit }),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no connection within {} s", limit.as_secs_f64()))),
        }
    }

    async fn send(&mut self, message: &Value) -> Result<(), String> {
        let text = Message::text(message.to_string());
        self.socket.send(text).await.map_err(|error| error.to_string())
    }

    async fn ask(&mut self, kind: &str, data: &Value) -> Result<Observed, LinkError> {
        let late = format!("no answer to {kind} within {} s", self.limit.as_secs_f64());
        let answer = timeout(self.limit, self.exchange(kind, data)).await;
        answer.unwrap_or(Err(LinkError { reason: late, is_full: false }))
    }

    async fn exchange(&mut self, kind: &str, data: &Value) -> Result<Observed, LinkError> {
        let failed = |reason: String| LinkError { reason, is_full: false };
        self.send(&json!({"type": kind, "data": data})).await.map_err(failed)?;
        let answer: Value = loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let answer = serde_json::from_str(&text);
                    break answer.map_err(|error| failed(format!("its answer: {error}")))?;
                }
                Some(Ok(Message::Close(why))) => {
                    let why = why.map_or_else(String::new, |frame| format!(": {}", frame.reason));
                    return Err(failed(format!("the server closed the episode{why}")));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(failed(error.to_string())),
                None => return Err(failed("the server closed the episode".to_owned())),
            }
        };
        let data = &answer["data"];
        if answer["type"] == "error" {
            let is_full = data["code"] == "CAPACITY_REACHED";
            let (code, message) = (data["code"].as_str(), data["message"].as_str());
            let reason = format!("{}: {}", code.unwrap_or("error"), message.unwrap_or_default());
            return Err(LinkError { reason, is_full });
        }
        let observed: Observed = serde_json::from_value(data.clone())
            .map_err(|error| failed(format!("its answer: {error}")))?;
        match observed.reward {
            Some(reward) if !reward.is_finite() => Err(failed(format!("its reward is {reward}"))),
            _ => Ok(observed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_address_gives_both() {
        let both = ("ws://h:1/ws".to_owned(), "http://h:1".to_owned());
        for url in ["ws://h:1/ws", "http://h:1", "http://h:1/", "ws://h:1", "h:1"] {
            assert_eq!(addresses(url), both, "{url}");
        }
    }

    #[test]
    fn the_text_goes_into_the_only_text_an_action_needs() {
        let schema = |properties: Value, required: Value| json!({"action": {"properties": properties, "required": required}});
        let text = json!({"type": "string"});
        let echo =
            schema(json!({"metadata": {"type": "object"}, "message": text}), json!(["message"]));
        assert_eq!(only_text(&echo).unwrap(), "message");
        let two = schema(json!({"code": text, "note": text}), json!(["code"]));
        assert_eq!(only_text(&two).unwrap(), "code");
        let unclear = schema(json!({"a": text, "b": text}), json!(["a", "b"]));
        assert_eq!(only_text(&unclear).unwrap_err().0, "action_key");
    }
}

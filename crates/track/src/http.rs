//! Asking a tracker's server: JSON in, JSON out, every answer within a deadline and a size.

use std::time::Duration;

use serde_json::Value;

use crate::error::TrackError;

/// A connection that is not there by then is not coming.
const CONNECT: Duration = Duration::from_secs(5);

/// Whole question and answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Bytes of an answer that are read.
const MOST: u64 = 8 << 20;

/// Letters of an answer that are shown.
const SHOWN: usize = 200;

pub(crate) struct Http {
    agent: ureq::Agent,
    base: String,
    /// Name and value of the header that lets in.
    key: Option<(&'static str, String)>,
}

impl Http {
    pub(crate) fn new(base: &str, key: Option<(&'static str, String)>) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(ANSWER))
            .http_status_as_error(false)
            .max_redirects(0)
            .build()
            .into();
        Self { agent, base: base.to_owned(), key }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Answer of a GET.
    pub(crate) fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, TrackError> {
        let mut request = self.agent.get(self.url(path));
        for (name, value) in query {
            request = request.query(name, value);
        }
        if let Some((name, value)) = &self.key {
            request = request.header(*name, value);
        }
        self.answer(path, request.call())
    }

    /// Answer of a POST.
    pub(crate) fn post(&self, path: &str, question: &Value) -> Result<Value, TrackError> {
        let mut request = self.agent.post(self.url(path));
        if let Some((name, value)) = &self.key {
            request = request.header(*name, value);
        }
        self.answer(path, request.send_json(question))
    }

    /// Uploads a file.
    pub(crate) fn put(&self, path: &str, content: &[u8]) -> Result<Value, TrackError> {
        let mut request = self.agent.put(self.url(path));
        if let Some((name, value)) = &self.key {
            request = request.header(*name, value);
        }
        self.answer(path, request.content_type("application/json").send(content))
    }

    fn answer(
        &self,
        path: &str,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, TrackError> {
        let url = self.url(path);
        let unreachable = |error: ureq::Error| TrackError::Unreachable {
            url: url.clone(),
            problem: error.to_string(),
        };
        let mut answer = answer.map_err(unreachable)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(MOST).read_to_string();
        let text = text.map_err(unreachable)?;
        if !(200..300).contains(&status) {
            let answer = text.chars().take(SHOWN).collect();
            return Err(TrackError::Refused { url, status, answer });
        }
        // An upload is answered with nothing at all.
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text)
            .map_err(|error| TrackError::Garbage { url, problem: error.to_string() })
    }
}

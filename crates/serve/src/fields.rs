//! The fields of a request: each route takes those it knows; what is left must be harmless.
//!
//! A field that would change which tokens are drawn and that nobody here carries out is refused by
//! its name, unless it has the value that changes nothing.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// Ignored: they change nothing about the answer.
const HARMLESS: [&str; 16] = [
    "cache_salt",
    "kv_transfer_params",
    "metadata",
    "parallel_tool_calls",
    "priority",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "request_id",
    "safety_identifier",
    "service_tier",
    "spaces_between_special_tokens",
    "store",
    "stream_interval",
    "user",
    "verbosity",
];

/// What is not carried out, and the value that asks for nothing.
fn neutral(name: &str) -> Option<Value> {
    Some(match name {
        "frequency_penalty" | "min_p" | "min_tokens" | "presence_penalty" => json!(0),
        "length_penalty" | "repetition_penalty" | "typical_p" | "best_of" => json!(1),
        "echo" | "ignore_eos" | "use_beam_search" | "continue_final_message" | "stream" => {
            json!(false)
        }
        "add_generation_prompt" | "detokenize" => json!(true),
        "response_format" => json!({"type": "text"}),
        "modalities" => json!(["text"]),
        "suffix" => json!(""),
        "logit_bias" => json!({}),
        "bad_words" | "functions" | "stop_regex" => json!([]),
        _ => return None,
    })
}

fn is_same(given: &Value, neutral: &Value) -> bool {
    // 0 and 0.0 are one number.
    given == neutral || given.as_f64().is_some_and(|given| neutral.as_f64() == Some(given))
}

/// What a client has written, less what was taken.
#[derive(Debug)]
pub(crate) struct Fields {
    rest: Map<String, Value>,
    /// In front of names in messages: the object that the fields are in.
    within: &'static str,
}

impl Fields {
    pub(crate) fn new(rest: Map<String, Value>, within: &'static str) -> Self {
        Self { rest, within }
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.within)
    }

    /// The value of a field; `None` where it is missing or null.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.rest.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value).map(Some).map_err(|error| {
                let name = self.name(name);
                ApiError::field(&name, format!("{name}: {error}"))
            }),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        Ok(self.take(name)?.unwrap_or(false))
    }

    /// Refuses what is left and would change the answer.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        for (name, value) in &self.rest {
            if value.is_null() || HARMLESS.contains(&name.as_str()) {
                continue;
            }
            let full = self.name(name);
            match neutral(name) {
                Some(neutral) if is_same(value, &neutral) => {}
                Some(neutral) => {
                    let message = format!("{full} is not supported; leave it out (or {neutral})");
                    return Err(ApiError::field(&full, message));
                }
                None => {
                    let message = format!("{full} is not supported; leave it out");
                    return Err(ApiError::field(&full, message));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(body: &Value) -> Result<(), ApiError> {
        Fields::new(body.as_object().unwrap().clone(), "").finish()
    }

    #[test]
    fn harmless_and_neutral_fields_pass_and_others_are_named() {
        assert_eq!(
            finish(&json!({"user": "me", "min_p": 0.0, "logit_bias": null, "n": null})),
            Ok(())
        );
        assert_eq!(finish(&json!({"response_format": {"type": "text"}})), Ok(()));
        for (name, value) in [
            ("min_p", json!(0.1)),
            ("presence_penalty", json!(-1)),
            ("logit_bias", json!({"5": 100})),
            ("response_format", json!({"type": "json_object"})),
            ("guided_json", json!({})),
            ("never_heard_of", json!(1)),
        ] {
            let error = finish(&json!({name: value})).unwrap_err().body();
            assert_eq!(error["error"]["param"], name);
            assert!(error["error"]["message"].as_str().unwrap().contains(name), "{error}");
        }
    }

    #[test]
    fn a_wrong_type_names_its_field() {
        let mut fields = Fields::new(json!({"n": "two"}).as_object().unwrap().clone(), "inner.");
        let error = fields.take::<u32>("n").unwrap_err().body();
        assert_eq!(error["error"]["param"], "inner.n");
    }
}

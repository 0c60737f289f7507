//! Chat templates: the Jinja that models carry, rendered as transformers renders it.
//!
//! Beside plain Jinja, templates use Python's string methods, `tojson` in Python's spelling,
//! `raise_exception`, `strftime_now`, loop controls and the `generation` tag; all are here.
//!
//! A template is a program that came with a model, so it runs within limits: [`FUEL`] bounds the
//! steps it takes, [`LIMITS`] what one of them can cost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value as JinjaValue, context};
use serde_json::Value;

use crate::error::LoadError;
use crate::json;
use crate::limited::{self, Limits};

/// Instructions of one rendering. A long conversation with tools takes a hundred thousand.
const FUEL: u64 = 2_000_000;

/// For one rendering, and for reading a template. The largest that models carry have 30 KiB and
/// render in a millisecond.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(10), memory: 256 << 20, stack: 512 << 20 };

/// Deeper recursion of the reader than this many bytes can ask for fits the stack of `LIMITS`.
const LONGEST_SOURCE: u64 = 512 << 10;

/// Spaces that `tojson(indent=…)` can be asked for.
const WIDEST_INDENT: usize = 64;

/// A model's chat template.
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    source: String,
    path: PathBuf,
    tokens: serde_json::Map<String, Value>,
}

/// What a conversation has beside its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras {
    /// What the model may call: `{"type": "function", "function": {…}}` each.
    pub tools: Vec<Value>,
    /// Variables that some templates look at, such as `enable_thinking`.
    pub variables: serde_json::Map<String, Value>,
}

/// Whether the text ends where the assistant is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// Ends with the opening of an assistant's turn.
    Open,
    /// Ends with the last message.
    Closed,
}

impl ChatTemplate {
    /// From chat_template.jinja, or `chat_template` in tokenizer_config.json. `None` without one.
    pub fn load(folder: &Path) -> Result<Option<Self>, LoadError> {
        let config_path = folder.join("tokenizer_config.json");
        let config = json::read_if_there(&config_path)?.unwrap_or_default();
        let file = folder.join("chat_template.jinja");
        let (source, path) = match scalerl_files::read_to_string(&file, LONGEST_SOURCE) {
            Ok(source) => (source, file),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LoadError::io(&file)(error));
            }
            Err(_) => match in_config(&config) {
                Some(source) => (source, config_path),
                None => return Ok(None),
            },
        };
        Self::parse(&source, path, special_tokens(&config)).map(Some)
    }

    fn parse(
        source: &str,
        path: PathBuf,
        tokens: serde_json::Map<String, Value>,
    ) -> Result<Self, LoadError> {
        let failed = |problem: String| LoadError::Template { path: path.clone(), problem };
        if source.len() as u64 > LONGEST_SOURCE {
            return Err(failed(format!("it is longer than {LONGEST_SOURCE} bytes")));
        }
        let plain = without_generation_tags(source);
        let environment = within_limits(move || environment(plain)).map_err(failed)?;
        Ok(Self { environment: Arc::new(environment), source: source.to_owned(), path, tokens })
    }

    /// The template itself: it tells which form of tool calls the model was taught.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages, each an object with `role` and `content`.
    pub fn render(&self, messages: &[Value], prompt: Prompt) -> Result<String, LoadError> {
        self.render_with(messages, prompt, &Extras::default())
    }

    /// The same with tools and variables. Messages may have `tool_calls`, whose arguments are
    /// objects, and the role `tool`.
    pub fn render_with(
        &self,
        messages: &[Value],
        prompt: Prompt,
        extras: &Extras,
    ) -> Result<String, LoadError> {
        let failed = |problem: String| LoadError::Template { path: self.path.clone(), problem };
        let mut rest = self.tokens.clone();
        rest.extend(extras.variables.clone());
        // As transformers has it: `none` where there are no tools, and never an empty list.
        let tools = (!extras.tools.is_empty()).then_some(&extras.tools);
        let context = context! {
            messages => Serde(messages),
            tools => Serde(&tools),
            add_generation_prompt => prompt == Prompt::Open,
            ..JinjaValue::from(Serde(&rest))
        };
        let environment = self.environment.clone();
        within_limits(move || environment.get_template("chat")?.render(context)).map_err(failed)
    }
}

/// Errors are explained inside: they hold values of the template, which may be too deep for the
/// stack of the caller.
fn within_limits<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, String> {
    let outcome = limited::run(LIMITS, move || work().map_err(|error| explain(&error)));
    outcome.unwrap_or_else(|overrun| Err(overrun.to_string()))
}

/// Everything that transformers gives a template, and the template itself as `chat`.
fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", |text: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, text))
    });
    environment.add_function("strftime_now", |format: String| crate::calendar::now(&format));
    environment.add_template_owned("chat", source)?;
    Ok(environment)
}

fn explain(error: &Error) -> String {
    use std::error::Error as _;
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("it takes more than {FUEL} steps");
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// A string, or a list of named templates of which `default` is the one for chat.
fn in_config(config: &Value) -> Option<String> {
    match config.get("chat_template")? {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str().map(str::to_owned)),
        _ => None,
    }
}

/// bos_token and its like, each a string or an object with `content`.
fn special_tokens(config: &Value) -> serde_json::Map<String, Value> {
    ["bos_token", "eos_token", "pad_token", "unk_token"]
        .into_iter()
        .filter_map(|key| {
            let text = match config.get(key)? {
                Value::String(text) => text.clone(),
                other => other.get("content")?.as_str()?.to_owned(),
            };
            Some((key.to_owned(), Value::String(text)))
        })
        .collect()
}

/// `{% generation %}` marks answers for transformers and prints nothing: a block that is always on.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let tag = &rest[start..start + length + 2];
        let word = tag[2..tag.len() - 2].trim_matches(['-', '+']).trim();
        out.push_str(&rest[..start]);
        match word {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}

/// Python's `json.dumps(value, ensure_ascii=False)`, with `indent` where given.
#[expect(clippy::needless_pass_by_value, reason = "filters take their arguments by value")]
fn to_json(value: &JinjaValue, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if indent.is_some_and(|indent| indent > WIDEST_INDENT) {
        let problem = format!("tojson: an indent of more than {WIDEST_INDENT}");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    for ignored in ["ensure_ascii", "separators", "sort_keys"] {
        let _: Option<JinjaValue> = options.get(ignored)?;
    }
    options.assert_all_used()?;
    let value = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let mut out = String::new();
    write_json(&value, indent, 0, &mut out);
    Ok(out)
}

fn write_json(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) {
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.push_str(&" ".repeat(indent * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(comma);
                }
                line(out, depth + 1);
                write_json(item, indent, depth + 1, out);
            }
            line(out, depth);
            out.push(']');
        }
        Value::Object(map) if !map.is_empty() => {
            out.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push_str(comma);
                }
                line(out, depth + 1);
                out.push_str(&Value::String(key.clone()).to_string());
                out.push_str(": ");
                write_json(item, indent, depth + 1, out);
            }
            line(out, depth);
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(source: &str, messages: &[Value], prompt: Prompt) -> Result<String, LoadError> {
        let tokens = special_tokens(&json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>"}));
        ChatTemplate::parse(source, "template".into(), tokens)?.render(messages, prompt)
    }

    #[test]
    fn a_chatml_template_renders_as_in_transformers() {
        let source = "{% for message in messages %}{% if loop.first and messages[0]['role'] != \
                      'system' %}{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}\
                      {{'<|im_start|>' + message['role'] + '\n' + message['content'] + \
                      '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
                      {{ '<|im_start|>assistant\n' }}{% endif %}";
        let text = render(source, &[json!({"role": "user", "content": "Hi"})], Prompt::Open);
        assert_eq!(
            text.unwrap(),
            "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
             <|im_start|>assistant\n"
        );
    }

    #[test]
    fn the_extras_of_transformers_are_there() {
        let source = "{{ bos_token }}{%- set ns = namespace(n=0) %}\
                      {%- for m in messages %}{%- if m.role == 'skip' %}{% continue %}{% endif %}\
                      {%- set ns.n = ns.n + 1 %}{% generation %}{{ m.content.strip() }}\
                      {%- endgeneration %}{{ m.extra | tojson }}{% endfor %}{{ ns.n }}{{ eos_token }}";
        let messages = [
            json!({"role": "skip", "content": "x"}),
            json!({"role": "user", "content": "  hé ", "extra": {"a": [1, "<b>"], "ü": null}}),
        ];
        let text = render(source, &messages, Prompt::Closed).unwrap();
        assert_eq!(text, "<s>hé{\"a\": [1, \"<b>\"], \"ü\": null}1</s>");
    }

    #[test]
    fn a_template_can_refuse_and_its_words_are_passed_on() {
        let said = render("{{ raise_exception('roles must alternate') }}", &[], Prompt::Closed);
        assert!(said.unwrap_err().to_string().contains("roles must alternate"));
        assert!(render("{% if %}", &[], Prompt::Closed).is_err());
    }
}

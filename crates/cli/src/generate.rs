//! `scalerl generate`: continue prompts with a model, to see that it works.
//!
//! One prompt streams its text as it comes. Several are generated together and printed whole, in
//! the order given. Without any it is a conversation (`generate/chat.rs`).

mod chat;

use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scalerl_generate::{Completion, Finish, Generator, GeneratorOptions, Interruption, Request};
use scalerl_model::adapter::Place;
use scalerl_model::folder::Model;
use scalerl_model::hub;
use scalerl_model::template::{ChatTemplate, Prompt};
use scalerl_model::tokenizer::{Markers, Tokenizer};
use serde_json::{Value, json};

use crate::arithmetic::ArithmeticArgs;
use crate::failure::BadInput;
use crate::sampling::SamplingArgs;
use crate::train::policy::bad_model;

/// Options of `generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the model (or of an adapter), or a name on the Hugging Face hub.
    #[arg(long)]
    model: String,
    /// Base of an adapter, where it is not the one it names.
    #[arg(long, value_name = "MODEL")]
    base: Option<String>,
    /// The text to continue; `-` reads it from standard input. Without any prompt: a chat.
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// The same as an option; may be given several times.
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// A file with a prompt per line: JSON objects with "prompt" or "messages" (.jsonl), else text; `-` reads
    /// standard input.
    #[arg(long)]
    prompts: Option<PathBuf>,
    /// Put the prompt into the model's chat template, as a user's message.
    #[arg(long)]
    chat: bool,
    /// The system message in front, with --chat or in a conversation.
    #[arg(long)]
    system: Option<String>,
    #[arg(long, default_value_t = 256)]
    max_tokens: usize,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Completions of each prompt.
    #[arg(short, long, default_value_t = 1)]
    n: usize,
    /// Text that ends a completion; may be given several times.
    #[arg(long)]
    stop: Vec<String>,
    /// After this many tokens force --interrupt-with, then allow --answer-tokens.
    #[arg(long)]
    interrupt_after: Option<usize>,
    #[arg(
        long,
        default_value = "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"
    )]
    interrupt_with: String,
    #[arg(long, default_value_t = 256)]
    answer_tokens: usize,
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// Tokens in the KV cache.
    #[arg(long)]
    cache_tokens: Option<usize>,
    /// A JSON object per completion instead of text: tokens, log-probs, versions.
    #[arg(long)]
    json: bool,
}

/// Generates and prints.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let device = args.arithmetic.device()?;
    let folder = hub::resolve(&args.model).map_err(|error| bad_model(&error))?;
    let place = Place::find(&folder, args.base.as_deref()).map_err(|error| bad_model(&error))?;
    let tokenizer = Tokenizer::load(&place.base).map_err(|error| bad_model(&error))?;
    let tokenizer = Arc::new(tokenizer);
    let template = ChatTemplate::load(&place.base).map_err(|error| bad_model(&error))?;
    let texts = texts(args)?;
    // Known before the weights are read.
    let encode = |text| encode(args, text, template.as_ref(), &tokenizer);
    let prompts: Vec<Vec<i64>> = texts.iter().map(encode).collect::<anyhow::Result<_>>()?;
    let kind = args.arithmetic.kind(device);
    let model = Model::load_at(&place, kind, device).map_err(|error| bad_model(&error))?;
    let mut options = GeneratorOptions::of(device);
    options.cache_tokens = args.cache_tokens.unwrap_or(options.cache_tokens);
    options.head = args.arithmetic.head().unwrap_or(options.head);
    let mut generator = Generator::new(model, options)
        .map_err(|error| BadInput::new(&error).hint(error.hint()))?
        .with_tokenizer(tokenizer.clone());
    if prompts.is_empty() {
        let mut speaker = Speaker { generator, tokenizer };
        return chat::run(args, &mut speaker, template.as_ref(), out);
    }
    for tokens in &prompts {
        let request = request(args, tokens, &tokenizer, args.seed)?;
        generator.submit(request).map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    }
    if prompts.len() == 1 && args.n == 1 && !args.json {
        return stream(&mut generator, &tokenizer, out).map(drop);
    }
    print_all(args, &mut generator, &tokenizer, out)
}

/// A model that answers, one prompt after the other.
struct Speaker {
    generator: Generator,
    tokenizer: Arc<Tokenizer>,
}

impl Speaker {
    /// Prints the answer to a prompt as it comes, and returns it.
    fn answer(
        &mut self,
        args: &Args,
        prompt: &Value,
        template: Option<&ChatTemplate>,
        seed: u64,
        out: &mut dyn Write,
    ) -> anyhow::Result<String> {
        let tokens = encode(args, prompt, template, &self.tokenizer)?;
        let request = request(args, &tokens, &self.tokenizer, seed)?;
        let submitted = self.generator.submit(request);
        submitted.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
        stream(&mut self.generator, &self.tokenizer, out)
    }
}

fn request(
    args: &Args,
    prompt: &[i64],
    tokenizer: &Tokenizer,
    seed: u64,
) -> anyhow::Result<Request> {
    let interruptions = match args.interrupt_after {
        Some(after) => {
            let tokens = tokenizer.encode(&args.interrupt_with, Markers::Leave);
            let tokens = tokens.map_err(|error| bad_model(&error))?;
            vec![Interruption { after, tokens, answer_tokens: args.answer_tokens }; args.n]
        }
        None => Vec::new(),
    };
    Ok(Request {
        completions: args.n,
        sampling: args.sampling.sampling(),
        stop_tokens: tokenizer.ends().to_vec(),
        stop_strings: args.stop.clone(),
        seed,
        interruptions,
        ..Request::new(prompt.to_vec(), args.max_tokens)
    })
}

/// Every prompt that was given, as text or as a list of messages; none asks for a conversation.
fn texts(args: &Args) -> anyhow::Result<Vec<Value>> {
    let mut texts = Vec::new();
    for text in args.texts.iter().chain(&args.prompt) {
        texts.push(match text.as_str() {
            "-" => json!(standard_input()?.trim_end_matches(['\n', '\r'])),
            text => json!(text),
        });
    }
    if let Some(path) = &args.prompts {
        texts.extend(read(path)?);
    }
    let is_asked = !args.texts.is_empty() || !args.prompt.is_empty() || args.prompts.is_some();
    if texts.iter().all(|text| text == "") && is_asked {
        return Err(BadInput::new("there is no prompt").hint("give a text to continue").into());
    }
    Ok(texts)
}

fn standard_input() -> anyhow::Result<String> {
    let bytes = std::io::stdin().lock().take(scalerl_files::RECORD + 1);
    let mut text = String::new();
    let read = std::io::BufReader::new(bytes).read_to_string(&mut text);
    read.map_err(|error| BadInput::new(format!("standard input: {error}")))?;
    if text.len() as u64 > scalerl_files::RECORD {
        return Err(BadInput::new("standard input has more text than a prompt can have").into());
    }
    Ok(text)
}

fn encode(
    args: &Args,
    prompt: &Value,
    template: Option<&ChatTemplate>,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<i64>> {
    let messages = match prompt {
        Value::Array(messages) => messages.clone(),
        Value::String(text) if args.chat => {
            let system = args.system.iter().map(|text| json!({"role": "system", "content": text}));
            system.chain([json!({"role": "user", "content": text})]).collect()
        }
        Value::String(text) => {
            return Ok(tokenizer.encode(text, Markers::Add).map_err(|error| bad_model(&error))?);
        }
        other => return Err(BadInput::new(format!("{other} is not a prompt")).into()),
    };
    let Some(template) = template else {
        return Err(BadInput::new("the model has no chat template")
            .hint("leave out --chat, or use a model that was tuned for chat")
            .into());
    };
    let text = template.render(&messages, Prompt::Open).map_err(|error| bad_model(&error))?;
    Ok(tokenizer.encode(&text, Markers::Leave).map_err(|error| bad_model(&error))?)
}

/// A prompt per line, as text or as a list of messages.
fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let is_piped = path == Path::new("-");
    let name = if is_piped { "standard input".into() } else { path.display().to_string() };
    let named = |line: usize| format!("{name}, line {}", line + 1);
    let text = if is_piped {
        standard_input()?
    } else {
        scalerl_files::read_input_to_string(path, scalerl_files::TABLE).map_err(|error| {
            BadInput::new(format!("{name}: {error}")).hint("give a file of prompts")
        })?
    };
    // A pipe has no name to tell its format.
    let is_json = path.extension().is_some_and(|extension| extension == "jsonl")
        || is_piped && text.trim_start().starts_with('{');
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            if !is_json {
                return Ok(json!(line));
            }
            let value: Value = serde_json::from_str(line)
                .map_err(|error| BadInput::new(format!("{}: {error}", named(number))))?;
            match (value.get("messages"), value.get("prompt")) {
                (Some(messages @ Value::Array(_)), _) => Ok(messages.clone()),
                (_, Some(prompt @ Value::String(_))) => Ok(prompt.clone()),
                _ => Err(BadInput::new(format!("{}: neither messages nor prompt", named(number)))
                    .hint("each line is {\"prompt\": TEXT} or {\"messages\": [...]}")
                    .into()),
            }
        })
        .collect()
}

/// Prints text as soon as it is whole, since a character may need several tokens; returns all of it.
fn stream(
    generator: &mut Generator,
    tokenizer: &Tokenizer,
    out: &mut dyn Write,
) -> anyhow::Result<String> {
    let (mut ids, mut printed, mut said) = (Vec::new(), 0, String::new());
    while !generator.is_idle() {
        let report = generator.step()?;
        ids.extend(report.tokens.iter().map(|(_, _, token)| token.id));
        let text = tokenizer.decode(&ids)?;
        let whole = text.trim_end_matches('\u{fffd}');
        if whole.len() > printed && whole.is_char_boundary(printed) {
            write!(out, "{}", &whole[printed..])?;
            out.flush()?;
            printed = whole.len();
        }
        for completion in report.finished {
            writeln!(out, "{}", &text[printed.min(text.len())..])?;
            if completion.finish == Finish::Length {
                writeln!(out, "[cut off after {} tokens]", completion.tokens.len())?;
            }
            said.clone_from(&text);
        }
    }
    Ok(said)
}

fn print_all(
    args: &Args,
    generator: &mut Generator,
    tokenizer: &Tokenizer,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    for completion in generator.finish_all()? {
        let ids: Vec<i64> = completion.tokens.iter().map(|token| token.id).collect();
        let text = tokenizer.decode(&ids)?;
        if args.json {
            writeln!(out, "{}", as_json(&completion, &text))?;
        } else {
            writeln!(
                out,
                "--- prompt {}, completion {}",
                completion.request.0 + 1,
                completion.index + 1
            )?;
            writeln!(out, "{text}")?;
        }
    }
    Ok(())
}

fn as_json(completion: &Completion, text: &str) -> Value {
    json!({
        "prompt": completion.request.0,
        "completion": completion.index,
        "text": text,
        "finish": format!("{:?}", completion.finish).to_lowercase(),
        "is_interrupted": completion.is_interrupted,
        "tokens": completion.tokens.iter().map(|token| token.id).collect::<Vec<_>>(),
        "logprobs": completion.tokens.iter().map(|token| token.logprob).collect::<Vec<_>>(),
        "injected": completion.tokens.iter().map(|token| token.is_injected).collect::<Vec<_>>(),
    })
}

//! `scalerl bench serve`: tokens per second over HTTP beside the generator alone, and the time to the
//! first token.
//!
//! Both sides write the same requests with the same model: random prompts, nothing stops early. Alone,
//! all of them are submitted at once; served, every connection sends one after the other. Client and
//! server share the machine, as they would in a run.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use scalerl_generate::{CacheAfterExchange, Generator, GeneratorOptions, Request};
use scalerl_model::folder::Model;
use scalerl_model::hub;
use scalerl_rollout::Policy;
use scalerl_serve::{Limits, Server, ServerOptions};
use scalerl_worker::{LocalGenerator, LocalGeneratorSetup, WeightStore};
use serde::Serialize;
use serde_json::{Value, json};

use crate::arithmetic::ArithmeticArgs;
use crate::failure::BadInput;
use crate::serve::chat::ModelChat;
use crate::serve::threads;
use crate::train::policy::bad_model;

/// Rounds of everything before the clock runs.
const WARM_UPS: usize = 1;

/// Options of `bench serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the model, or a name on the Hugging Face hub.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Connections at once, and sequences that the generator writes at once.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Requests of each connection, one after the other.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Tokens of each prompt.
    #[arg(long, default_value_t = 32)]
    prompt: usize,
    /// Tokens to generate.
    #[arg(long, default_value_t = 256)]
    new: usize,
    /// Milliseconds whose tokens share an event of a stream, as in `serve`.
    #[arg(long, value_name = "MS", default_value_t = Limits::default().stream_window.as_millis() as u64)]
    stream_window: u64,
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Timing {
    connections: usize,
    requests: usize,
    /// New tokens per second, prompts included in the time.
    alone_tokens_per_s: f64,
    streamed_tokens_per_s: f64,
    whole_tokens_per_s: f64,
    first_token_ms_p50: f64,
    first_token_ms_p99: f64,
    /// Of the streams.
    events_per_token: f64,
    /// Of the server's threads, without the generator's and the client's; where the system tells.
    streamed_server_us_per_token: Option<f64>,
    whole_server_us_per_token: Option<f64>,
}

impl Args {
    fn options(&self, device: scalerl_torch::tch::Device) -> GeneratorOptions {
        let mut options = GeneratorOptions::of(device);
        options.running = self.connections;
        let whole = (self.prompt + self.new).next_multiple_of(options.page_tokens);
        options.cache_tokens = (whole + options.page_tokens) * self.connections;
        options.head = self.arithmetic.head().unwrap_or(options.head);
        options
    }

    /// Tokens of one prompt: of any vocabulary, all different.
    fn prompt_of(&self, request: usize, vocabulary: i64) -> Vec<i64> {
        let token = |place: usize| (request * 7919 + place * 104_729 + 3) as i64 % vocabulary;
        (0..self.prompt).map(token).collect()
    }
}

/// Times and prints.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let sizes = [args.connections, args.rounds, args.prompt, args.new];
    if sizes.contains(&0) {
        return Err(BadInput::new("a size is 0").hint("give at least 1 of everything").into());
    }
    let folder = hub::resolve(&args.model).map_err(|error| bad_model(&error))?;
    let requests = args.connections * args.rounds;
    let alone = alone(args, &folder)?;
    let (streamed, whole) = served(args, &folder)?;
    let tokens = (requests * args.new) as f64;
    let timing = Timing {
        connections: args.connections,
        requests,
        alone_tokens_per_s: tokens / alone.as_secs_f64(),
        streamed_tokens_per_s: tokens / streamed.seconds.as_secs_f64(),
        whole_tokens_per_s: tokens / whole.seconds.as_secs_f64(),
        first_token_ms_p50: streamed.first_token_ms(0.5),
        first_token_ms_p99: streamed.first_token_ms(0.99),
        events_per_token: streamed.events as f64 / tokens,
        streamed_server_us_per_token: streamed.server.map(|time| time.as_secs_f64() * 1e6 / tokens),
        whole_server_us_per_token: whole.server.map(|time| time.as_secs_f64() * 1e6 / tokens),
    };
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&timing)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "serve connections={} requests={} prompt={} new={} alone={:.0}tokens/s streamed={:.0}tokens/s ({:.0}%) \
         whole={:.0}tokens/s ({:.0}%) first_token_p50={:.1}ms p99={:.1}ms events_per_token={:.3} \
         server_cpu_per_token={}us (whole {}us)",
        timing.connections,
        timing.requests,
        args.prompt,
        args.new,
        timing.alone_tokens_per_s,
        timing.streamed_tokens_per_s,
        1e2 * timing.streamed_tokens_per_s / timing.alone_tokens_per_s,
        timing.whole_tokens_per_s,
        1e2 * timing.whole_tokens_per_s / timing.alone_tokens_per_s,
        timing.first_token_ms_p50,
        timing.first_token_ms_p99,
        timing.events_per_token,
        known(timing.streamed_server_us_per_token),
        known(timing.whole_server_us_per_token),
    )?;
    Ok(())
}

fn known(microseconds: Option<f64>) -> String {
    microseconds.map_or_else(|| "?".to_owned(), |time| format!("{time:.2}"))
}

/// CPU time of the server's threads so far, which are known by their name.
fn server_time() -> Option<Duration> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let folder = task.ok()?.path();
        if std::fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim() == "server") {
            let spent = std::fs::read_to_string(folder.join("schedstat")).ok()?;
            nanoseconds += spent.split_whitespace().next()?.parse::<u64>().ok()?;
        }
    }
    Some(Duration::from_nanos(nanoseconds))
}

fn model(args: &Args, folder: &Path) -> Result<Model> {
    let device = args.arithmetic.device()?;
    let kind = args.arithmetic.kind(device);
    let model = Model::load(folder, kind, device).map_err(|error| bad_model(&error))?;
    let longest = (args.prompt + args.new) as i64;
    if longest > model.config.max_positions {
        let positions = model.config.max_positions;
        let message = format!("{longest} tokens are asked for, the model knows {positions}");
        return Err(BadInput::new(message).hint("lower --prompt or --new").into());
    }
    Ok(model)
}

/// The generator without a server: the second run, when all graphs are there.
fn alone(args: &Args, folder: &Path) -> Result<Duration> {
    let model = model(args, folder)?;
    let (vocabulary, options) = (model.config.vocabulary, args.options(model.device()));
    let mut generator = Generator::new(model, options)?;
    let mut seconds = Duration::ZERO;
    for _ in 0..2 {
        let begun = Instant::now();
        for request in 0..args.connections * args.rounds {
            let prompt = args.prompt_of(request, vocabulary);
            generator.submit(Request { seed: request as u64, ..Request::new(prompt, args.new) })?;
        }
        let tokens: usize = generator.finish_all()?.iter().map(|one| one.tokens.len()).sum();
        ensure!(
            tokens == args.connections * args.rounds * args.new,
            "{tokens} tokens were written"
        );
        seconds = begun.elapsed();
    }
    Ok(seconds)
}

/// A run of all connections.
struct Run {
    seconds: Duration,
    /// Sorted.
    first_tokens: Vec<Duration>,
    /// Lines of `data:` that came.
    events: usize,
    /// CPU time of the server's threads.
    server: Option<Duration>,
}

impl Run {
    fn first_token_ms(&self, share: f64) -> f64 {
        let place = (share * (self.first_tokens.len() - 1) as f64).round() as usize;
        self.first_tokens[place].as_secs_f64() * 1e3
    }
}

/// Streamed and whole answers over loopback.
fn served(args: &Args, folder: &Path) -> Result<(Run, Run)> {
    let chat = ModelChat::load(folder).map_err(|error| bad_model(&error))?;
    let model = model(args, folder)?;
    let threads = threads(model.device());
    let (vocabulary, options) = (model.config.vocabulary, args.options(model.device()));
    let max_model_len = (args.prompt + args.new) as u32;
    let generator = LocalGenerator::start(LocalGeneratorSetup {
        model,
        options,
        tokenizer: chat.tokenizer(),
        // Nothing ends early.
        stop_tokens: Vec::new(),
        cache_after_exchange: CacheAfterExchange::Stale,
        weight_store: WeightStore::new(),
        threads,
        is_warmed_up: true,
    })?;
    let options = ServerOptions {
        address: "127.0.0.1:0".to_owned(),
        api_key: None,
        model: "bench".to_owned(),
        max_model_len,
        load: None,
        limits: Limits {
            requests: args.connections,
            connections: 2 * args.connections,
            deadline: Duration::from_hours(1),
            stream_window: Duration::from_millis(args.stream_window),
            ..Limits::default()
        },
    };
    let policy: Arc<dyn Policy> = Arc::new(generator);
    let server = Server::start(options, Arc::new(chat), Some(policy))?;
    let url = format!("{}/v1/completions", server.url());
    let prompts = |request: usize| args.prompt_of(request, vocabulary);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // To warm up: connections, and graphs of longer tables than the server records when it starts.
    for _ in 0..WARM_UPS {
        runtime.block_on(all(args, &url, true, &prompts))?;
    }
    let streamed = runtime.block_on(all(args, &url, true, &prompts))?;
    let whole = runtime.block_on(all(args, &url, false, &prompts))?;
    Ok((streamed, whole))
}

async fn all(
    args: &Args,
    url: &str,
    streams: bool,
    prompt_of: &dyn Fn(usize) -> Vec<i64>,
) -> Result<Run> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut tasks = tokio::task::JoinSet::new();
    let (begun, server) = (Instant::now(), server_time());
    for connection in 0..args.connections {
        let body = |round: usize| {
            let request = round * args.connections + connection;
            json!({"prompt": prompt_of(request), "max_tokens": args.new, "seed": request, "stream": streams,
                "stream_options": {"include_usage": true}})
        };
        let bodies: Vec<Value> = (0..args.rounds).map(body).collect();
        let (client, url, new) = (client.clone(), url.to_owned(), args.new);
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for body in bodies {
                let answer = one(&client, &url, &body).await?;
                let tokens = answer.tokens;
                ensure!(tokens == new as u64, "{tokens} tokens came, {new} were asked for");
                answers.push(answer);
            }
            Ok(answers)
        });
    }
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.extend(done.context("a connection's task ended")??);
    }
    let seconds = begun.elapsed();
    let server = server_time().zip(server).map(|(after, before)| after.saturating_sub(before));
    let events = answers.iter().map(|answer| answer.events).sum();
    let mut first_tokens: Vec<Duration> = answers.iter().map(|answer| answer.first).collect();
    first_tokens.sort_unstable();
    Ok(Run { seconds, first_tokens, events, server })
}

struct Answer {
    /// Until its first piece.
    first: Duration,
    tokens: u64,
    events: usize,
}

async fn one(client: &reqwest::Client, url: &str, body: &Value) -> Result<Answer> {
    let begun = Instant::now();
    let mut response = client.post(url).body(body.to_string()).send().await?;
    let status = response.status();
    let (mut first, mut text) = (None, Vec::new());
    while let Some(bytes) = response.chunk().await? {
        first.get_or_insert_with(|| begun.elapsed());
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8_lossy(&text);
    ensure!(status == 200, "{status}: {text}");
    // An event is a line, and no text inside it breaks one.
    let events = || text.lines().filter_map(|line| line.strip_prefix("data: "));
    let last = events().rfind(|event| event.starts_with('{'));
    let last: Value = serde_json::from_str(last.unwrap_or(&text).trim())?;
    let tokens = last["usage"]["completion_tokens"].as_u64().context("no usage came")?;
    Ok(Answer { first: first.unwrap_or_default(), tokens, events: events().count() })
}

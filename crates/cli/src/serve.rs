//! `scalerl serve`: a model behind HTTP, as OpenAI's clients speak it.
//!
//! Not here: the server (`scalerl_serve`) and the generator behind it (`scalerl_worker`); how
//! conversations become text is in `serve/chat.rs`.

pub(crate) mod chat;
#[cfg(test)]
mod llama3_tests;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use scalerl_generate::{CacheAfterExchange, GeneratorOptions};
use scalerl_model::adapter::Place;
use scalerl_model::error::LoadError;
use scalerl_model::folder::Model;
use scalerl_model::hub;
use scalerl_serve::{Limits, Load, LoadOf, Server, ServerOptions, StartError};
use scalerl_torch::tch::Device;
use scalerl_worker::{LocalGenerator, LocalGeneratorSetup, WeightStore};

use crate::arithmetic::ArithmeticArgs;
use crate::failure::BadInput;
use crate::interrupt::Interrupt;
use crate::train::policy::bad_model;
use chat::ModelChat;

/// Where a key may be, so that it does not stand in the list of processes.
const KEY: &str = "SCALERL_API_KEY";
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the model (or of an adapter), or a name on the Hugging Face hub.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Base of an adapter, where it is not the one it names.
    #[arg(long, value_name = "MODEL")]
    base: Option<String>,
    /// Where to listen; other than loopback needs a key.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    address: String,
    /// What clients must send as `Authorization: Bearer KEY`; without it the variable SCALERL_API_KEY.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// The model's name, as clients write it [default: MODEL].
    #[arg(long)]
    name: Option<String>,
    /// Sequences written at once; others wait [default: 64 on the CPU, 256 on CUDA].
    #[arg(long, value_name = "N")]
    running: Option<usize>,
    /// Tokens in the KV cache.
    #[arg(long, value_name = "N")]
    cache_tokens: Option<usize>,
    /// Most tokens of one answer [default: what the model's length leaves].
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,
    /// Requests under way at once; further ones are refused with 429.
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests)]
    requests: usize,
    /// Connections at once; further ones wait.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    connections: usize,
    /// Seconds that one request may take.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().deadline.as_secs())]
    deadline: u64,
    /// Milliseconds whose tokens share an event of a stream; 0: every token goes out as it is drawn.
    #[arg(long, value_name = "MS", default_value_t = Limits::default().stream_window.as_millis() as u64)]
    stream_window: u64,
    /// Answer at once, and set up for each size of step when it first comes up (on a GPU, tens of
    /// seconds in all that the first clients wait for instead).
    #[arg(long)]
    no_warm_up: bool,
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
}

/// Serves until it is asked to stop.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let mut options = options(args)?;
    // Known before a model is loaded.
    options.check().map_err(|error| refused(&error))?;
    let interrupt = Interrupt::listen()?;
    let Loaded { generator, chat, max_model_len } = load(args)?;
    options.max_model_len = max_model_len;
    options.load = Some(load_of(&generator));
    let server = Server::start(options, chat, Some(generator.clone()));
    let server = server.map_err(|error| refused(&error))?;
    let name = args.name.as_ref().unwrap_or(&args.model);
    writeln!(out, "serving {name} at {}/v1 ({max_model_len} tokens at most)", server.url())?;
    out.flush()?;
    while !interrupt.is_asked() {
        if let Some(reason) = generator.why_gone() {
            anyhow::bail!("the generator is gone: {reason}");
        }
        std::thread::sleep(LOOK);
    }
    drop(server);
    writeln!(out, "stopped")?;
    Ok(())
}

fn options(args: &Args) -> Result<ServerOptions> {
    for (name, value) in [("--requests", args.requests), ("--connections", args.connections)] {
        if value == 0 {
            return Err(BadInput::new(format!("{name} must be at least 1")).into());
        }
    }
    let api_key = args.api_key.clone().or_else(|| std::env::var(KEY).ok());
    Ok(ServerOptions {
        address: args.address.clone(),
        api_key: api_key.filter(|key| !key.is_empty()),
        model: args.name.clone().unwrap_or_else(|| args.model.clone()),
        max_model_len: 0,
        load: None,
        limits: Limits {
            requests: args.requests,
            connections: args.connections,
            max_tokens: args.max_tokens,
            deadline: Duration::from_secs(args.deadline.max(1)),
            stream_window: Duration::from_millis(args.stream_window),
            ..Limits::default()
        },
    })
}

fn refused(error: &StartError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

struct Loaded {
    generator: Arc<LocalGenerator>,
    chat: Arc<ModelChat>,
    max_model_len: u32,
}

fn load(args: &Args) -> Result<Loaded> {
    let bad = |error: LoadError| bad_model(&error);
    let device = args.arithmetic.device()?;
    let folder = hub::resolve(&args.model).map_err(bad)?;
    let place = Place::find(&folder, args.base.as_deref()).map_err(bad)?;
    let chat = ModelChat::load(&place.base).map_err(bad)?;
    let model = Model::load_at(&place, args.arithmetic.kind(device), device).map_err(bad)?;
    let mut options = GeneratorOptions::of(device);
    // A turn of a conversation does not compute its history again.
    options.keeps_prefixes = true;
    options.running = args.running.unwrap_or(options.running).max(1);
    options.cache_tokens = args.cache_tokens.unwrap_or(options.cache_tokens);
    options.head = args.arithmetic.head().unwrap_or(options.head);
    if options.cache_tokens < options.page_tokens {
        return Err(BadInput::new("--cache-tokens is less than a page of the cache")
            .hint(format!("give at least {}", options.page_tokens))
            .into());
    }
    let max_model_len = (options.cache_tokens as i64).min(model.config.max_positions) as u32;
    if device != Device::Cpu && !args.no_warm_up {
        writeln!(
            std::io::stderr(),
            "setting up for every size of step: tens of seconds, --no-warm-up leaves it"
        )?;
    }
    let generator = LocalGenerator::start(LocalGeneratorSetup {
        model,
        options,
        tokenizer: chat.tokenizer(),
        stop_tokens: chat.ends().to_vec(),
        cache_after_exchange: CacheAfterExchange::Stale,
        weight_store: WeightStore::new(),
        threads: threads(device),
        is_warmed_up: !args.no_warm_up,
    })?;
    Ok(Loaded { generator: Arc::new(generator), chat: Arc::new(chat), max_model_len })
}

/// On a CPU one core is left to the connections: threads of a product that wait for one another are
/// slow where something else runs.
pub(crate) fn threads(device: Device) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (device == Device::Cpu).then_some(cores.saturating_sub(1).max(1))
}

/// The load of a generator, for `/metrics` and `/health`.
pub(crate) fn load_of(generator: &Arc<LocalGenerator>) -> LoadOf {
    let generator = generator.clone();
    Arc::new(move || {
        let stats = generator.stats();
        let pages = stats.pool.pages.max(1);
        // What is only kept for requests that begin alike is free to whoever needs it.
        let needed = stats.pool.pages_in_use - stats.pool.kept_pages;
        Load {
            running: stats.running,
            waiting: stats.waiting,
            cache_usage: needed as f64 / pages as f64,
            why_gone: generator.why_gone().map(str::to_owned),
        }
    })
}

//! `scalerl generator`: one more generator for a run, on this machine or another.
//!
//! It finds the run by its name in Redis, which also holds the recipe, and believes what is signed
//! with the run's token; it needs the files of the starting model, and takes the current weights from the trainer before it serves. When the trainer
//! goes away it waits for it to come back, for as long as it has patience.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use scalerl_recipe::{Recipe, Source};
use scalerl_torch::collective::{Token, Transport};
use scalerl_torch::device;
use scalerl_torch::tch::Device;
use scalerl_worker::channel::WeightMember;
use scalerl_worker::host::host;
use scalerl_worker::options::{cache_after_exchange, compute_kind, generator_options};
use scalerl_worker::remote::{
    Announcement, Broker, Ended, Found, RemoteError, RemoteOptions, ServeSetup, find, serve,
};
use scalerl_worker::{Form, LocalGenerator, LocalGeneratorSetup, WeightStore};

use crate::failure::BadInput;
use crate::train::cluster::processes::end_with_owner;
use crate::train::cluster::remote::{LOOK, Recruit, failed};
use crate::train::cluster::token::TokenSource;
use crate::train::cluster::{REDIS, channel_options, own_device};
use crate::train::rendering::Renderer;

/// For the trainer's store to be reached: its announcement may be older than its death.
const MEETING: Duration = Duration::from_secs(30);
/// For a trainer that lives to accept a connection.
const REACH: Duration = Duration::from_secs(3);
/// Between two lines that say that nobody is there.
const REMIND: Duration = Duration::from_secs(30);

/// Options of `generator`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run's name in Redis: cluster.name, or what the trainer prints when it starts.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Address of the Redis server; without it the variable SCALERL_REDIS.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// File with the run's token: RUN/session.token; without it the variable SCALERL_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What this generator is called; without it host and process.
    #[arg(long = "as", value_name = "NAME")]
    own_name: Option<String>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Which of the GPUs to take where the device names none.
    #[arg(long, default_value_t = 0, hide = true)]
    local_rank: usize,
    /// Seconds to wait for a trainer, at the start and when it goes away.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    patience: u64,
}

pub(crate) fn run(args: &Args, _out: &mut dyn Write) -> Result<()> {
    end_with_owner()?;
    let device = device::parse(&args.device).map_err(BadInput::new)?;
    let device = own_device(&args.device, device, args.local_rank);
    let url = args.redis.clone().or_else(|| std::env::var(REDIS).ok());
    let url = url.ok_or_else(|| {
        BadInput::new("no Redis server is named")
            .hint(format!("--redis redis://HOST:PORT, or set {REDIS}"))
    })?;
    let own_name = args.own_name.clone();
    let own_name = own_name.unwrap_or_else(|| format!("{}-{}", host(), std::process::id()));
    let patience = Duration::from_secs(args.patience);
    let token = TokenSource::find(args.token_file.as_deref(), None)?;
    Role { url, name: args.name.clone(), token, own_name, device, patience }.play()
}

/// The session that was served last.
struct Last {
    nonce: String,
    token: Token,
    /// Its trainer may live: the network between may have been down.
    may_go_on: bool,
}

/// What one look has found.
enum Look {
    Found(Box<Announcement>, Token),
    Over,
    /// Nothing to serve yet, and why.
    Missing(anyhow::Error),
}

/// Whether anybody listens there: an announcement outlives its trainer for a while, and to prepare
/// for one that is gone costs the loading of a model.
async fn is_open((address, port): &(String, u16)) -> bool {
    let reached = tokio::net::TcpStream::connect((address.as_str(), *port));
    matches!(tokio::time::timeout(REACH, reached).await, Ok(Ok(_)))
}

/// A generator of a run.
pub(crate) struct Role {
    pub(crate) url: String,
    /// Of the session.
    pub(crate) name: String,
    pub(crate) token: TokenSource,
    pub(crate) own_name: String,
    pub(crate) device: Device,
    pub(crate) patience: Duration,
}

impl Role {
    /// Until the run is over.
    pub(crate) fn play(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let outcome = runtime.block_on(self.serve_sessions());
        // A thread that waits for weights must not keep the process.
        runtime.shutdown_background();
        outcome
    }

    async fn serve_sessions(&self) -> Result<()> {
        let mut broker = Broker::new(&self.url, RemoteOptions::default().reply).map_err(failed)?;
        let mut last: Option<Last> = None;
        loop {
            let Some((found, token)) = self.wait(&mut broker, last.as_ref()).await? else {
                self.say("the run is over");
                return Ok(());
            };
            let nonce = found.nonce.clone();
            let ended = self.serve(&broker, *found, token.clone()).await?;
            let may_go_on = matches!(ended, Ended::TrainerGone { .. });
            last = Some(Last { nonce, token, may_go_on });
            match ended {
                Ended::Over => {
                    self.say("the run is over");
                    return Ok(());
                }
                Ended::Replaced => self.say("the trainer was started again"),
                Ended::TrainerGone { reason } => {
                    self.say(&format!("the trainer cannot be reached: {reason}"));
                }
            }
        }
    }

    fn say(&self, line: &str) {
        // Nobody has to listen.
        let _ = writeln!(std::io::stderr(), "{}: {line}", self.own_name);
    }

    /// A session other than the last, or that one where it has only been lost; `None` when it is over.
    async fn wait(
        &self,
        broker: &mut Broker,
        last: Option<&Last>,
    ) -> Result<Option<(Box<Announcement>, Token)>> {
        let (started, mut reminded) = (Instant::now(), None::<Instant>);
        loop {
            let missing = match self.look(broker, last).await? {
                Look::Found(found, token) => return Ok(Some((found, token))),
                Look::Over => return Ok(None),
                Look::Missing(missing) => missing,
            };
            if started.elapsed() >= self.patience.max(LOOK) {
                // One that has served is not needed any more.
                return if last.is_some() { Ok(None) } else { Err(missing) };
            }
            if reminded.unwrap_or(started).elapsed() >= REMIND {
                reminded = Some(Instant::now());
                self.say(&format!("waiting: {missing}"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// One look for a session.
    async fn look(&self, broker: &mut Broker, last: Option<&Last>) -> Result<Look> {
        let Some(token) = self.token.read(last.map(|last| &last.token))? else {
            let message = format!("{} is not there", self.token.place());
            let hint = "start the trainer, which writes it, or set SCALERL_TOKEN for both";
            return Ok(Look::Missing(BadInput::new(message).hint(hint).into()));
        };
        let found = match find(broker, &self.name, &token).await {
            Ok(found) => found,
            Err(error) => return Ok(Look::Missing(failed(error))),
        };
        Ok(match found {
            Found::Session(found) => {
                let is_other = last.is_none_or(|last| last.nonce != found.nonce || last.may_go_on);
                if is_other && is_open(&found.weights).await {
                    return Ok(Look::Found(found, token));
                }
                Look::Missing(self.nobody())
            }
            Found::Over { nonce } if last.is_some_and(|last| last.nonce == nonce) => Look::Over,
            Found::Unusable { reason } => {
                let name = self.name.clone();
                Look::Missing(failed(RemoteError::Session { name, reason }))
            }
            Found::Nothing | Found::Over { .. } => Look::Missing(self.nobody()),
        })
    }

    fn nobody(&self) -> anyhow::Error {
        let message = format!("no trainer has announced itself as `{}`", self.name);
        let hint = "start the trainer, or see whether name and server are the same";
        BadInput::new(message).hint(hint).into()
    }

    async fn serve(
        &self,
        broker: &Broker,
        announcement: Announcement,
        token: Token,
    ) -> Result<Ended> {
        let recruit: Recruit = serde_json::from_value(announcement.material.clone())
            .context("the trainer's announcement has another form: is it of another build?")?;
        let text = Source::Text { name: "the trainer's recipe".to_owned(), text: recruit.recipe };
        let recipe = Recipe::load(&[text], &[]);
        let recipe = recipe.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
        let kind = compute_kind(&recipe, self.device);
        let model = recruit.policy.load(&recipe, kind, self.device)?;
        let (config, form) = (model.config.clone(), Form::of(model.trained()));
        let renderer = Renderer::load(&recipe, &recruit.policy.folder)?;
        let weight_store = WeightStore::new();
        let local = LocalGenerator::start(LocalGeneratorSetup {
            options: generator_options(&recipe, &config, self.device),
            model,
            tokenizer: renderer.tokenizer(),
            stop_tokens: renderer.ends(),
            cache_after_exchange: cache_after_exchange(&recipe),
            weight_store: weight_store.clone(),
            threads: None,
            is_warmed_up: false,
        })?;
        let mut options = channel_options(&recipe);
        options.meeting = MEETING;
        options.transport = recruit.is_sharing.then_some(Transport::Gloo);
        let ((address, port), own_name) = (announcement.weights.clone(), self.own_name.clone());
        let key = token.clone();
        // Waits for the trainer: not on a thread of the runtime.
        let joined = tokio::task::spawn_blocking(move || {
            WeightMember::join((&address, port, &key), &own_name, form, weight_store, options)
        });
        let member = match joined.await.context("joining panicked")? {
            Ok(member) => member,
            // The announcement has outlived its trainer.
            Err(error) => return Ok(Ended::TrainerGone { reason: error.to_string() }),
        };
        self.say(&format!("joined `{}`", self.name));
        let served = serve(ServeSetup {
            broker: broker.another(),
            name: self.name.clone(),
            token,
            announcement,
            own_name: self.own_name.clone(),
            host: host(),
            local: Arc::new(local),
            member,
            most_at_once: usize::MAX,
        });
        let served = served.await.map_err(failed)?;
        self.say(&format!("{} requests answered", served.answered));
        Ok(served.ended)
    }
}

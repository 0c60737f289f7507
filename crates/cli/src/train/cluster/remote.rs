//! The leading process's way to generators: weights out, a session announced, processes started.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use scalerl_recipe::Resolved;
use scalerl_torch::collective::{Token, Transport};
use scalerl_torch::tch::Device;
use scalerl_worker::WeightStore;
use scalerl_worker::channel::WeightChannel;
use scalerl_worker::ranks::TOKEN;
use scalerl_worker::remote::{Announcement, Broker, RedisGenerator, RemoteError, RemoteOptions};
use serde::{Deserialize, Serialize};

use super::processes::{Processes, threads_each};
use super::{Lead, REDIS, channel_options, redis, requests_at_once, seconds};
use crate::failure::Failed;
use crate::train::policy::Policy;

/// What a generator is made of: all it needs beside Redis' address and the files of the model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Recruit {
    /// The recipe as TOML.
    pub(crate) recipe: String,
    /// Where the policy's files are; a path that all machines of the run can open.
    pub(crate) policy: Policy,
    /// Weights travel over Gloo although they are on GPUs: processes share one.
    pub(crate) is_sharing: bool,
}

pub(crate) fn failed(error: RemoteError) -> anyhow::Error {
    let hint = error.hint();
    Failed::new(error, hint).into()
}

/// The leading process's side, once the session is announced.
pub(crate) async fn open(
    recipe: &Resolved,
    policy: &Policy,
    lead: &Lead,
    (name, token): (&str, &Token),
    device: Device,
    weight_store: Arc<WeightStore>,
) -> Result<RedisGenerator> {
    let broker = Broker::new(&redis(recipe)?, RemoteOptions::default().reply).map_err(failed)?;
    // Other machines come by the launcher's address; without a launcher there are none.
    let address = match (&lead.ranks, lead.is_starting) {
        (Some(launch), false) => launch.address.clone(),
        (None, false) => std::env::var("MASTER_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned()),
        (_, true) => "127.0.0.1".to_owned(),
    };
    let is_sharing = lead.shared_gpus(device).is_some();
    let mut options = channel_options(recipe);
    options.transport = is_sharing.then_some(Transport::Gloo);
    let channel = WeightChannel::open(&address, 0, token, options).map_err(|e| failed(e.into()))?;
    let policy = policy.everywhere()?;
    let material = serde_json::to_value(Recruit { recipe: recipe.to_toml(), policy, is_sharing })?;
    let at_once = requests_at_once(recipe, lead.generators);
    let mut announcement = Announcement::new((address, channel.port()), at_once, material);
    announcement.heartbeat = seconds(recipe.cluster.heartbeat_s);
    announcement.claim = seconds(recipe.cluster.dead_s);
    let session = (name, token.clone());
    RedisGenerator::open(broker, session, announcement, channel, weight_store).await.map_err(failed)
}

/// Starts the generators that nobody else starts.
pub(crate) fn start_generators(
    processes: &mut Processes,
    recipe: &Resolved,
    lead: &Lead,
    (name, token): (&str, &Token),
    device: &str,
) -> Result<()> {
    let arguments = ["generator", "--name", name, "--device", device];
    let trainers = lead.ranks.as_ref().map_or(1, |launch| launch.world);
    let threads = threads_each(trainers + lead.generators as usize);
    let variables = vec![
        // Not among the arguments, which everybody on this machine can read.
        (REDIS.to_owned(), redis(recipe)?),
        (TOKEN.to_owned(), token.secret().to_owned()),
        ("OMP_NUM_THREADS".to_owned(), threads.to_string()),
    ];
    let arguments = arguments.map(str::to_owned).to_vec();
    processes.start_generators(lead.generators, arguments, variables)
}

/// How long a generator looks for a session before it says that it waits.
pub(crate) const LOOK: Duration = Duration::from_millis(300);

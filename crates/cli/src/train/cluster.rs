//! Which part of a run this process is, and what it needs for it.
//!
//! ```text
//! no [cluster], no launcher        one process: trainer and generator, no server
//! [cluster], no launcher           rank 0, which starts the other processes on this machine
//! launcher (torchrun, srun, hand)  ranks 0..T train, rank 0 leads; ranks T.. generate
//! scalerl generator                one more generator, from anywhere
//! ```
//!
//! Not here: what ranks and generators do (`scalerl_worker`).

pub(crate) mod follow;
pub(crate) mod processes;
pub(crate) mod remote;
pub(crate) mod roles;
pub(crate) mod token;
pub(crate) mod watch;

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use scalerl_recipe::{OffPolicy, Recipe};
use scalerl_torch::collective::Token;
use scalerl_torch::tch::{Cuda, Device};
use scalerl_worker::channel::ChannelOptions;
use scalerl_worker::ranks::{Deadlines, Launch, StoreHost};

use crate::failure::BadInput;

/// Where an address with a password belongs.
pub(crate) const REDIS: &str = "SCALERL_REDIS";

/// What this process is.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// It has the engine, the journal and the disk.
    Lead(Lead),
    /// One of the trainer's other ranks.
    Follow(Launch),
    /// A generator that was started together with the trainer.
    Generate { name: String, own_name: String, local_rank: usize },
}

/// What the leading process has beside it.
#[derive(Debug, PartialEq, Default)]
pub(crate) struct Lead {
    /// Trainer ranks, this one first; `None` where it trains alone.
    pub(crate) ranks: Option<Launch>,
    /// Generators in other processes; 0 generates in this one.
    pub(crate) generators: u32,
    /// Nobody else starts the other processes.
    pub(crate) is_starting: bool,
    /// The launcher's name for all of this.
    pub(crate) name: Option<String>,
}

impl Lead {
    /// The GPUs of this machine, where its processes are more than these: `None` where each has one
    /// of its own, or none.
    pub(crate) fn shared_gpus(&self, device: Device) -> Option<u32> {
        let trainers = self.ranks.as_ref().map_or(1, |launch| launch.world as u64);
        let gpus = u32::try_from(Cuda::device_count()).unwrap_or_default();
        let is_sharing = matches!(device, Device::Cuda(_))
            && self.is_starting
            && trainers + u64::from(self.generators) > u64::from(gpus);
        is_sharing.then_some(gpus)
    }
}

impl Part {
    /// From the recipe and what a launcher says.
    pub(crate) fn of(recipe: &Recipe) -> Result<Self> {
        let launch = Launch::from_environment();
        let launch = launch.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
        if launch.as_ref().is_some_and(|launch| launch.host == StoreHost::Launcher) {
            processes::stop_with_launcher()?;
        }
        let part = Self::choose(recipe, launch)?;
        if !matches!(part, Self::Lead(_)) {
            processes::leave_signals_to_leader()?;
        }
        Ok(part)
    }

    fn choose(recipe: &Recipe, launch: Option<Launch>) -> Result<Self> {
        let cluster = &recipe.cluster;
        let Some(launch) = launch else {
            let ranks = (cluster.trainers > 1).then(|| on_this_machine(cluster.trainers));
            let (generators, is_starting) = (cluster.generators, !cluster.is_alone());
            return Ok(Self::Lead(Lead {
                ranks: ranks.transpose()?,
                generators,
                is_starting,
                name: None,
            }));
        };
        // A launcher and a recipe without [cluster]: everybody trains.
        let trainers = if cluster.is_alone() { launch.world } else { cluster.trainers as usize };
        let generators = cluster.generators as usize;
        if launch.world != trainers && launch.world != trainers + generators {
            let message = format!(
                "{} processes were started, and the recipe wants {trainers} trainers and \
                 {generators} generators",
                launch.world
            );
            let hint = "start as many as both together, or as many as trainers and each generator \
                        with `scalerl generator`; or change cluster.trainers and cluster.generators";
            return Err(BadInput::new(message).hint(hint).into());
        }
        recipe
            .goes_with_trainers(u32::try_from(trainers).unwrap_or(u32::MAX))
            .map_err(|(message, remedy)| BadInput::new(message).hint(remedy))?;
        let name = cluster.name.clone();
        let name = name.unwrap_or_else(|| format!("{}:{}", launch.address, launch.port));
        let (rank, local_rank) = (launch.rank, launch.local_rank);
        let launch = Launch { world: trainers, ..launch };
        Ok(if rank >= trainers {
            let own_name = format!("generator-{}", rank - trainers);
            Self::Generate { name, own_name, local_rank }
        } else if rank > 0 {
            Self::Follow(launch)
        } else {
            Self::Lead(Lead {
                ranks: (trainers > 1).then_some(launch),
                generators: cluster.generators,
                is_starting: false,
                name: Some(name),
            })
        })
    }
}

/// Ranks that this process will start beside itself.
fn on_this_machine(world: u32) -> Result<Launch> {
    // Free a moment ago; rank 0 takes it at once.
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
    let port = listener.local_addr()?.port();
    let address = "127.0.0.1".to_owned();
    let (world, host) = (world as usize, StoreHost::RankZero);
    // Others who use this machine reach its loopback address too.
    let token = Some(Token::random().context("no random numbers")?);
    Ok(Launch { rank: 0, world, local_rank: 0, address, port, host, attempt: 0, token })
}

/// The GPU of a process among several on its machine; others are as they were named.
pub(crate) fn own_device(named: &str, device: Device, local_rank: usize) -> Device {
    match device {
        Device::Cuda(_) if !named.contains(':') => {
            let count = usize::try_from(Cuda::device_count()).unwrap_or(1).max(1);
            Device::Cuda(local_rank % count)
        }
        device => device,
    }
}

/// Redis' address.
pub(crate) fn redis(recipe: &Recipe) -> Result<String> {
    let named = recipe.cluster.redis.clone().or_else(|| std::env::var(REDIS).ok());
    Ok(named.filter(|url| !url.is_empty()).ok_or_else(|| {
        BadInput::new("cluster.generators needs a Redis server, and none is named").hint(format!(
            "start redis-server and set cluster.redis or {REDIS} to redis://HOST:PORT"
        ))
    })?)
}

/// The name of a session that no launcher has named.
pub(crate) fn session_name(recipe: &Recipe, lead: &Lead, run: &Path) -> String {
    let of_folder = || {
        let folder = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{folder}-{}", std::process::id())
    };
    recipe.cluster.name.clone().or_else(|| lead.name.clone()).unwrap_or_else(of_folder)
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX)
}

/// Deadlines between trainer ranks.
pub(crate) fn rank_deadlines(recipe: &Recipe) -> Deadlines {
    let usual = Deadlines::default();
    let operation = seconds(recipe.cluster.rank_deadline_s);
    let (silence, pulse) = (operation.saturating_mul(3), usual.pulse.min(operation / 4));
    Deadlines { operation, silence, pulse, ..usual }
}

/// Deadlines of the exchange of weights, the same at both ends.
pub(crate) fn channel_options(recipe: &Recipe) -> ChannelOptions {
    let usual = ChannelOptions::default();
    let transfer = usual.transfer.min(seconds(recipe.cluster.rank_deadline_s));
    ChannelOptions { answer: seconds(recipe.cluster.dead_s), transfer, ..usual }
}

/// Groups that one generator works on at once, so that all have some.
pub(crate) fn requests_at_once(recipe: &Recipe, generators: u32) -> u32 {
    let steps = match recipe.objective.off_policy {
        OffPolicy::Pipeline { steps_behind } => steps_behind + 1,
        OffPolicy::PpoOffPolicy { steps_per_phase } => steps_per_phase,
    };
    steps.saturating_mul(recipe.pipeline.groups_per_step).div_ceil(generators.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_recipe::WeightSets;

    fn recipe(trainers: u32, generators: u32) -> Recipe {
        let mut recipe = Recipe::default();
        (recipe.cluster.trainers, recipe.cluster.generators) = (trainers, generators);
        recipe
    }

    fn launch(rank: usize, world: usize) -> Launch {
        let (address, host) = ("node".to_owned(), StoreHost::RankZero);
        let (port, attempt, token) = (29500, 0, None);
        Launch { rank, world, local_rank: rank, address, port, host, attempt, token }
    }

    #[test]
    fn one_process_is_the_default_and_needs_nothing() {
        let part = Part::choose(&recipe(1, 0), None).unwrap();
        assert_eq!(part, Part::Lead(Lead::default()));
    }

    #[test]
    fn a_launchers_ranks_are_trainers_first() {
        let recipe = recipe(2, 2);
        let Part::Lead(lead) = Part::choose(&recipe, Some(launch(0, 4))).unwrap() else { panic!() };
        assert_eq!((lead.ranks.unwrap().world, lead.is_starting), (2, false));
        assert_eq!(lead.name.as_deref(), Some("node:29500"));
        let Part::Follow(second) = Part::choose(&recipe, Some(launch(1, 4))).unwrap() else {
            panic!()
        };
        assert_eq!((second.rank, second.world), (1, 2));
        let third = Part::choose(&recipe, Some(launch(3, 4))).unwrap();
        let (name, own_name) = ("node:29500".to_owned(), "generator-1".to_owned());
        assert_eq!(third, Part::Generate { name, own_name, local_rank: 3 });
        let error = Part::choose(&recipe, Some(launch(0, 3))).unwrap_err().to_string();
        assert!(error.contains("3 processes") && error.contains("2 generators"), "{error}");
    }

    #[test]
    fn trainers_that_a_launcher_started_do_not_share_one_set_of_weights() {
        let mut recipe = recipe(1, 0);
        recipe.pipeline.weights = WeightSets::Shared;
        assert!(Part::choose(&recipe, Some(launch(0, 1))).is_ok());
        for rank in 0..2 {
            let error = Part::choose(&recipe, Some(launch(rank, 2))).unwrap_err().to_string();
            assert!(error.contains("pipeline.weights") && error.contains("2 trainers"), "{error}");
        }
    }

    #[test]
    fn without_a_launcher_the_first_process_starts_the_others() {
        let Part::Lead(lead) = Part::choose(&recipe(3, 0), None).unwrap() else { panic!() };
        assert!(lead.is_starting && lead.ranks.unwrap().world == 3);
        let Part::Lead(lead) = Part::choose(&recipe(1, 2), None).unwrap() else { panic!() };
        assert!(lead.is_starting && lead.ranks.is_none());
    }
}

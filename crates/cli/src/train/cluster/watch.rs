//! Watches the fleet while a run goes on: signs of life into the state machine, its changes into the
//! journal, the table into the run folder, dead generators started again.

pub(crate) mod servers;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_engine::fleet::{Fleet, Heard, Silence};
use scalerl_journal::{FleetChange, FleetMember, FleetState, FleetTable};
use scalerl_recipe::Recipe;
use scalerl_worker::channel::{ChannelEvent, MemberStatus};
use scalerl_worker::host::host;
use scalerl_worker::ranks::Roll;
use scalerl_worker::remote::{RedisGenerator, Signs};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use super::processes::{Fate, Processes};
use super::seconds;
use crate::train::environment::now;
use crate::train::live::is_round;
use servers::ServerWatch;

/// Between two looks at processes.
const LOOK: Duration = Duration::from_millis(200);
/// What Redis is called among the members.
const REDIS: &str = "redis";

/// Whoever works on a run beside this process.
#[derive(Default)]
pub(crate) struct Others {
    /// Where generators are in other processes.
    pub(crate) generator: Option<Arc<RedisGenerator>>,
    /// Where vLLM generates.
    pub(crate) servers: Option<ServerWatch>,
    /// Where several train.
    pub(crate) roll: Option<Arc<Roll>>,
    /// Those that this process has started.
    pub(crate) processes: Processes,
}

pub(crate) struct Watch {
    others: Others,
    is_lost_told: bool,
    fleet: Fleet,
    /// Names of members of the weight channel, also of those that are gone.
    names: BTreeMap<u64, String>,
    started: Instant,
    tell: mpsc::UnboundedSender<FleetChange>,
    run: PathBuf,
    heartbeat: Duration,
    trouble: Option<String>,
    /// Answers that were not used.
    refused: u64,
}

impl Watch {
    pub(crate) fn new(
        recipe: &Recipe,
        others: Others,
        tell: mpsc::UnboundedSender<FleetChange>,
        run: PathBuf,
    ) -> Self {
        let cluster = &recipe.cluster;
        let silence =
            Silence { suspect: seconds(cluster.suspect_s), dead: seconds(cluster.dead_s) };
        Self {
            others,
            is_lost_told: false,
            fleet: Fleet::new(silence),
            names: BTreeMap::new(),
            started: Instant::now(),
            tell,
            run,
            heartbeat: seconds(cluster.heartbeat_s),
            trouble: None,
            refused: 0,
        }
    }

    /// Until `stop` has a word or is dropped; gives the processes back.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) -> Processes {
        let mut ticks = interval(LOOK.min(self.heartbeat));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut shown = Instant::now();
        loop {
            tokio::select! {
                _ = &mut stop => {
                    // The last word on everybody.
                    self.show();
                    return self.others.processes;
                }
                _ = ticks.tick() => {}
            }
            self.look();
            if shown.elapsed() >= self.heartbeat {
                shown = Instant::now();
                self.show();
            }
        }
    }

    fn look(&mut self) {
        let now = self.started.elapsed();
        let mut changes = Vec::new();
        for fate in self.others.processes.look() {
            changes.extend(match fate {
                Fate::Ended { name, reason } => self.fleet.ended(&name, &reason),
                Fate::Restarted { name, pid } => self.fleet.restarted(&name, pid, now),
            });
        }
        changes.extend(self.see_ranks());
        changes.extend(self.others.servers.iter_mut().flat_map(ServerWatch::changes));
        if let Some(generator) = self.others.generator.clone() {
            let signs = generator.signs();
            self.fleet.adopted(generator.adopted());
            changes.extend(self.see_redis(&signs));
            changes.extend(self.see_generators(signs, now));
        }
        for change in changes {
            // The engine is ending: nobody writes any more.
            let _ = self.tell.send(change);
        }
    }

    fn see_generators(&mut self, signs: Signs, now: Duration) -> Vec<FleetChange> {
        let mut changes = Vec::new();
        self.names.extend(signs.members.iter().filter_map(named));
        for event in &signs.channel {
            if let ChannelEvent::Dropped { member, reason } = event
                && let Some(name) = self.names.get(member)
            {
                changes.extend(self.fleet.dropped(name, reason));
            }
        }
        for beat in signs.beats {
            // What was confirmed since; a generator that may not serve says so itself.
            let is_same = |member: &&MemberStatus| member.name.as_ref() == Some(&beat.name);
            let confirmed =
                signs.members.iter().filter(is_same).filter_map(|one| one.version).max();
            let version =
                beat.version.map(|version| confirmed.map_or(version, |it| it.max(version)));
            let heard = Heard {
                name: beat.name,
                role: beat.role,
                host: beat.host,
                pid: beat.pid,
                count: beat.count,
                version,
                tokens_per_second: beat.tokens_per_second,
            };
            changes.extend(self.fleet.hear(heard, now));
        }
        changes.extend(self.fleet.tick(now));
        for reason in signs.refused {
            self.refused += 1;
            if is_round(self.refused) {
                let count = self.refused;
                // A closed standard error must not end the run.
                let _ = writeln!(std::io::stderr(), "answer number {count} not used: {reason}");
            }
        }
        changes
    }

    /// Trainer ranks, once when they are lost; which one is known where this process started them.
    fn see_ranks(&mut self) -> Option<FleetChange> {
        let roll = self.others.roll.as_ref().filter(|_| !self.is_lost_told)?;
        let (rank, reason) = match self.others.processes.dead_rank() {
            Some((rank, reason)) => (Some(rank), reason),
            None => (None, roll.state().lost?),
        };
        self.is_lost_told = true;
        let process = rank.and_then(|rank| roll.processes.get(rank));
        Some(FleetChange {
            name: rank.map_or_else(|| "trainers".to_owned(), trainer),
            host: process.map(|process| process.host.clone()).unwrap_or_default(),
            from: Some(FleetState::Healthy),
            to: FleetState::Dead,
            reason,
        })
    }

    /// Redis itself, when it goes and when it is back.
    fn see_redis(&mut self, signs: &Signs) -> Vec<FleetChange> {
        let was = self.trouble.is_some();
        self.trouble.clone_from(&signs.trouble);
        let change = |from, to, reason: &str| FleetChange {
            name: REDIS.to_owned(),
            host: String::new(),
            from: Some(from),
            to,
            reason: reason.to_owned(),
        };
        let (away, back) = (FleetState::Suspect, FleetState::Healthy);
        let gone = signs.had_trouble.as_ref().or(signs.trouble.as_ref()).filter(|_| !was);
        let mut changes: Vec<_> =
            gone.map(|reason| change(back, away, reason)).into_iter().collect();
        if (was || gone.is_some()) && signs.trouble.is_none() {
            changes.push(change(away, back, "it answers again"));
        }
        changes
    }

    fn show(&mut self) {
        let at = now();
        let mut members = self.trainers(at);
        members.extend(self.others.servers.iter_mut().flat_map(|servers| servers.members(at)));
        members.extend(self.fleet.members(self.started.elapsed(), at));
        let table = FleetTable { at, trouble: self.trouble.clone(), members };
        // For people; the next one may succeed.
        let _ = table.write(&self.run);
    }

    /// This process, and the ranks beside it.
    fn trainers(&self, at: f64) -> Vec<FleetMember> {
        let state = self.others.roll.as_ref().map(|roll| roll.state());
        let adopted = || match &self.others {
            Others { generator: Some(generator), .. } => Some(generator.adopted()),
            Others { servers, .. } => servers.as_ref().and_then(ServerWatch::newest),
        };
        let line = |rank: usize, host: String, pid: u32| FleetMember {
            name: trainer(rank),
            role: "trainer".to_owned(),
            host,
            pid,
            state: match &state {
                Some(state) if rank > 0 && state.lost.is_some() => FleetState::Suspect,
                _ => FleetState::Healthy,
            },
            version: state.as_ref().map(|state| state.version).or_else(adopted),
            lag: Some(0),
            tokens_per_second: 0.0,
            heard_at: match &state {
                Some(state) if rank > 0 => at - state.heard.elapsed().as_secs_f64(),
                _ => at,
            },
        };
        let mut members = vec![line(0, host(), std::process::id())];
        let others =
            self.others.roll.iter().flat_map(|roll| roll.processes.iter().enumerate().skip(1));
        members.extend(others.map(|(rank, one)| line(rank, one.host.clone(), one.pid)));
        members
    }
}

/// What a trainer rank is called.
fn trainer(rank: usize) -> String {
    format!("trainer-{rank}")
}

fn named(member: &MemberStatus) -> Option<(u64, String)> {
    Some((member.member, member.name.clone()?))
}

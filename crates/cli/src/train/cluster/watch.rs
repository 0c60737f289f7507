//! Watches the fleet while a run goes on: signs of life into the state machine, its changes into the
//! journal, the table into the run folder, dead generators started again.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_engine::fleet::{Fleet, Heard, Silence};
use scalerl_journal::{FleetChange, FleetMember, FleetState, FleetTable};
use scalerl_recipe::Recipe;
use scalerl_worker::channel::{ChannelEvent, MemberStatus};
use scalerl_worker::remote::{RedisGenerator, Signs};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use super::processes::{Fate, Processes};
use super::seconds;
use crate::generator::host;
use crate::train::environment::now;

/// Between two looks at processes.
const LOOK: Duration = Duration::from_millis(200);
/// What Redis is called among the members.
const REDIS: &str = "redis";

pub(crate) struct Watch {
    generator: Arc<RedisGenerator>,
    processes: Processes,
    fleet: Fleet,
    /// Names of members of the weight channel, also of those that are gone.
    names: BTreeMap<u64, String>,
    started: Instant,
    tell: mpsc::UnboundedSender<FleetChange>,
    run: PathBuf,
    heartbeat: Duration,
    trouble: Option<String>,
}

impl Watch {
    pub(crate) fn new(
        recipe: &Recipe,
        generator: Arc<RedisGenerator>,
        processes: Processes,
        tell: mpsc::UnboundedSender<FleetChange>,
        run: PathBuf,
    ) -> Self {
        let cluster = &recipe.cluster;
        let silence =
            Silence { suspect: seconds(cluster.suspect_s), dead: seconds(cluster.dead_s) };
        Self {
            generator,
            processes,
            fleet: Fleet::new(silence),
            names: BTreeMap::new(),
            started: Instant::now(),
            tell,
            run,
            heartbeat: seconds(cluster.heartbeat_s),
            trouble: None,
        }
    }

    /// Until `stop` has a word or is dropped; gives the processes back.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) -> Processes {
        let mut ticks = interval(LOOK.min(self.heartbeat));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut shown = Instant::now();
        loop {
            tokio::select! {
                _ = &mut stop => return self.processes,
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
        for fate in self.processes.look() {
            changes.extend(match fate {
                Fate::Ended { name, reason } => self.fleet.ended(&name, &reason),
                Fate::Restarted { name } => self.fleet.restarted(&name, now),
            });
        }
        let signs = self.generator.signs();
        changes.extend(self.see_redis(&signs));
        self.fleet.adopted(self.generator.adopted());
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
            // A closed standard error must not end the run.
            let _ = writeln!(std::io::stderr(), "an answer was not used: {reason}");
        }
        for change in changes {
            // The engine is ending: nobody writes any more.
            let _ = self.tell.send(change);
        }
    }

    /// Redis itself, when it goes and when it is back.
    fn see_redis(&mut self, signs: &Signs) -> Option<FleetChange> {
        let (was, is) = (self.trouble.is_some(), signs.trouble.is_some());
        self.trouble.clone_from(&signs.trouble);
        let state = |is_away| if is_away { FleetState::Suspect } else { FleetState::Healthy };
        (was != is).then(|| FleetChange {
            name: REDIS.to_owned(),
            host: String::new(),
            from: Some(state(was)),
            to: state(is),
            reason: signs.trouble.clone().unwrap_or_else(|| "it answers again".to_owned()),
        })
    }

    fn show(&self) {
        let at = now();
        let adopted = self.generator.adopted();
        let own = FleetMember {
            name: "trainer-0".to_owned(),
            role: "trainer".to_owned(),
            host: host(),
            pid: std::process::id(),
            state: FleetState::Healthy,
            version: Some(adopted),
            lag: Some(0),
            tokens_per_second: 0.0,
            heard_at: at,
        };
        let mut members = vec![own];
        members.extend(self.fleet.members(self.started.elapsed(), at));
        let table = FleetTable { at, trouble: self.trouble.clone(), members };
        // For people; the next one may succeed.
        let _ = table.write(&self.run);
    }
}

fn named(member: &MemberStatus) -> Option<(u64, String)> {
    Some((member.member, member.name.clone()?))
}

//! What the signs of a run's other processes mean: a pure machine with the clock handed in.
//!
//! ```text
//!             silent                silent
//! healthy ───suspect_s──► suspect ───dead_s──► dead
//!    ▲  ▲                    │                  │ heard again, or started again
//!    │  └────── heard ───────┘                  ▼
//!    └──────── heard with the current weights ── stale ◄── restarting
//! ```
//! Also: `stale` when the trainer has stopped sending it weights, `dead` at once when its process is
//! known to have ended. What such a process had said before it ended may be read later; it is no sign of
//! life, only another process's is. Every change has a reason and is an event of the journal.
//!
//! Not here: reading signs (`worker::remote`), starting processes (`cli`). What a generator may
//! serve is not decided here either but where tokens are made and taken: this is for people.

use std::collections::BTreeMap;
use std::time::Duration;

use scalerl_journal::{FleetChange, FleetMember, FleetState};
use scalerl_rollout::PolicyVersion;

/// Lengths of silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// After which a process is suspect.
    pub suspect: Duration,
    /// After which it is dead.
    pub dead: Duration,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// What it calls itself.
    pub name: String,
    /// `trainer` or `generator`.
    pub role: String,
    /// Where it runs.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Grows with every sign of one process.
    pub count: u64,
    /// The policy it has; `None` while it has none to serve with.
    pub version: Option<PolicyVersion>,
    /// How fast it is.
    pub tokens_per_second: f64,
}

#[derive(Debug, Clone)]
struct Member {
    heard: Heard,
    state: FleetState,
    /// When it was heard last, by the caller's clock.
    at: Duration,
    /// What it must have to be healthy: the policy of the moment when it was last given up. Signs are
    /// seconds apart and steps may be quicker, so to be a little behind is no fault.
    needs: PolicyVersion,
}

/// The fleet as one process sees it. Times are since any fixed moment, and never go back.
#[derive(Debug, Clone)]
pub struct Fleet {
    silence: Silence,
    /// What everybody who serves must have.
    current: PolicyVersion,
    members: BTreeMap<String, Member>,
    /// The process of those that this one starts again, once the first has ended; `None` between an
    /// end and the next start. What others had said may still be read and is no sign of life.
    processes: BTreeMap<String, Option<u32>>,
}

impl Fleet {
    /// Nobody is there yet.
    pub fn new(silence: Silence) -> Self {
        let (members, processes) = (BTreeMap::new(), BTreeMap::new());
        Self { silence, current: PolicyVersion(0), members, processes }
    }

    /// The trainer no longer waits for members that do not have this version.
    pub fn adopted(&mut self, version: PolicyVersion) {
        self.current = self.current.max(version);
    }

    /// A sign of life was read; the same one may be read again and again.
    pub fn hear(&mut self, heard: Heard, now: Duration) -> Option<FleetChange> {
        let name = heard.name.clone();
        if self.processes.get(&name).is_some_and(|process| *process != Some(heard.pid)) {
            return None;
        }
        let Some(member) = self.members.get_mut(&name) else {
            let is_serving = heard.version.is_some();
            let state = if is_serving { FleetState::Healthy } else { FleetState::Stale };
            let (host, to) = (heard.host.clone(), state);
            let needs = PolicyVersion(0);
            self.members.insert(name.clone(), Member { heard, state, at: now, needs });
            return Some(FleetChange { name, host, from: None, to, reason: "joined".to_owned() });
        };
        let is_other = (heard.pid, &heard.host) != (member.heard.pid, &member.heard.host);
        if !is_other && heard.count <= member.heard.count {
            return None;
        }
        let is_current = heard.version.is_some_and(|version| version >= member.needs);
        (member.heard, member.at) = (heard, now);
        let (to, reason) = match member.state {
            FleetState::Healthy if !is_other => return None,
            FleetState::Suspect if !is_other => (FleetState::Healthy, "heard again"),
            FleetState::Stale if is_current => (FleetState::Healthy, "has the current weights"),
            FleetState::Stale => return None,
            _ if is_current => (FleetState::Healthy, "back with the current weights"),
            _ => (FleetState::Stale, "back, without the current weights"),
        };
        member.change(to, reason.to_owned())
    }

    /// The trainer no longer waits for it when it sends weights.
    pub fn dropped(&mut self, name: &str, reason: &str) -> Option<FleetChange> {
        let member = self.members.get_mut(name)?;
        member.needs = self.current;
        match member.state {
            FleetState::Healthy | FleetState::Suspect => member
                .change(FleetState::Stale, format!("no more weights are sent to it: {reason}")),
            _ => None,
        }
    }

    /// Its process has ended.
    pub fn ended(&mut self, name: &str, reason: &str) -> Option<FleetChange> {
        self.processes.insert(name.to_owned(), None);
        let member = self.members.get_mut(name)?;
        member.needs = self.current;
        member.change(FleetState::Dead, reason.to_owned())
    }

    /// A new process has been started for it.
    pub fn restarted(&mut self, name: &str, pid: u32, now: Duration) -> Option<FleetChange> {
        self.processes.insert(name.to_owned(), Some(pid));
        let member = self.members.get_mut(name)?;
        member.at = now;
        member.change(FleetState::Restarting, "started again".to_owned())
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<FleetChange> {
        let (Silence { suspect, dead }, current) = (self.silence, self.current);
        let look = |member: &mut Member| {
            let silent = now.saturating_sub(member.at);
            let reason = format!("silent for {:.1} s", silent.as_secs_f64());
            match member.state {
                FleetState::Dead => None,
                _ if silent >= dead => {
                    member.needs = current;
                    member.change(FleetState::Dead, reason)
                }
                FleetState::Healthy | FleetState::Stale if silent >= suspect => {
                    member.change(FleetState::Suspect, reason)
                }
                _ => None,
            }
        };
        self.members.values_mut().filter_map(look).collect()
    }

    /// Everybody, for the table. `unix` is the time that `now` is.
    pub fn members(&self, now: Duration, unix: f64) -> Vec<FleetMember> {
        let line = |member: &Member| FleetMember {
            name: member.heard.name.clone(),
            role: member.heard.role.clone(),
            host: member.heard.host.clone(),
            pid: member.heard.pid,
            state: member.state,
            version: member.heard.version,
            lag: member.heard.version.map(|version| self.current.steps_since(version)),
            tokens_per_second: member.heard.tokens_per_second,
            heard_at: unix - now.saturating_sub(member.at).as_secs_f64(),
        };
        self.members.values().map(line).collect()
    }
}

impl Member {
    fn change(&mut self, to: FleetState, reason: String) -> Option<FleetChange> {
        let from = std::mem::replace(&mut self.state, to);
        let (name, host) = (self.heard.name.clone(), self.heard.host.clone());
        (from != to).then_some(FleetChange { name, host, from: Some(from), to, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FleetState::{Dead, Healthy, Restarting, Stale, Suspect};
    use proptest::prelude::*;

    const SILENCE: Silence =
        Silence { suspect: Duration::from_secs(5), dead: Duration::from_secs(20) };

    fn heard(pid: u32, count: u64, version: Option<u64>) -> Heard {
        Heard {
            name: "gen-0".into(),
            role: "generator".into(),
            host: "node".into(),
            pid,
            count,
            version: version.map(PolicyVersion),
            tokens_per_second: 1.0,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fleet() -> Fleet {
        let mut fleet = Fleet::new(SILENCE);
        fleet.adopted(PolicyVersion(3));
        assert_eq!(fleet.hear(heard(1, 1, Some(3)), at(0)).unwrap().to, Healthy);
        fleet
    }

    #[test]
    fn silence_makes_suspect_then_dead_and_a_sign_makes_well() {
        let mut fleet = fleet();
        assert!(fleet.tick(at(4)).is_empty());
        let change = fleet.tick(at(5)).remove(0);
        assert_eq!((change.from, change.to), (Some(Healthy), Suspect));
        assert!(fleet.hear(heard(1, 1, Some(3)), at(6)).is_none(), "an old sign is none");
        assert!(fleet.hear(heard(1, 0, Some(3)), at(6)).is_none(), "nor an older one");
        assert_eq!(fleet.hear(heard(1, 2, Some(3)), at(7)).unwrap().to, Healthy);
        assert_eq!(fleet.tick(at(12)).remove(0).to, Suspect);
        let change = fleet.tick(at(27)).remove(0);
        assert_eq!((change.to, change.reason.as_str()), (Dead, "silent for 20.0 s"));
        assert!(fleet.tick(at(100)).is_empty(), "it dies once");
    }

    #[test]
    fn who_comes_back_is_stale_until_it_has_the_current_weights() {
        let mut fleet = fleet();
        fleet.adopted(PolicyVersion(7));
        fleet.tick(at(30));
        assert_eq!(fleet.hear(heard(1, 2, Some(3)), at(31)).unwrap().to, Stale);
        assert!(fleet.hear(heard(1, 3, None), at(32)).is_none());
        assert_eq!(fleet.hear(heard(1, 4, Some(7)), at(33)).unwrap().to, Healthy);
        assert_eq!(fleet.dropped("gen-0", "late").unwrap().to, Stale);
        assert_eq!(fleet.members(at(34), 1000.0)[0].lag, Some(0));
        fleet.adopted(PolicyVersion(9));
        assert_eq!(fleet.hear(heard(1, 5, Some(8)), at(35)).unwrap().to, Healthy, "since 7");
        assert!(fleet.hear(heard(1, 6, Some(8)), at(36)).is_none(), "a step behind is no fault");
    }

    #[test]
    fn a_process_that_ended_is_dead_at_once_and_restarting_until_heard() {
        let mut fleet = fleet();
        assert_eq!(fleet.ended("gen-0", "signal 9").unwrap().to, Dead);
        assert_eq!(fleet.restarted("gen-0", 2, at(1)).unwrap().to, Restarting);
        assert!(fleet.tick(at(10)).is_empty(), "it loads its model");
        assert_eq!(fleet.hear(heard(2, 1, None), at(11)).unwrap().to, Stale);
        assert_eq!(fleet.hear(heard(2, 2, Some(3)), at(12)).unwrap().to, Healthy);
        assert_eq!(fleet.restarted("gen-0", 3, at(13)).unwrap().to, Restarting);
        assert_eq!(fleet.tick(at(33)).remove(0).to, Dead, "it never came");
        assert!(fleet.ended("nobody", "").is_none());
    }

    #[test]
    fn what_a_killed_process_had_said_does_not_bring_it_back() {
        let mut fleet = fleet();
        assert_eq!(fleet.ended("gen-0", "signal 9").unwrap().to, Dead);
        // Its last sign was in Redis and is read only now.
        assert_eq!(fleet.hear(heard(1, 2, Some(3)), at(1)), None, "dead, and not healthy");
        assert_eq!(fleet.restarted("gen-0", 2, at(2)).unwrap().to, Restarting);
        assert_eq!(fleet.hear(heard(1, 3, Some(3)), at(3)), None, "still the old one's");
        assert!(fleet.tick(at(4)).is_empty());
        assert_eq!(fleet.hear(heard(2, 1, Some(3)), at(5)).unwrap().to, Healthy);
        // One that ends before anybody has heard of it is not heard of afterwards.
        assert_eq!(fleet.ended("gen-1", "signal 9"), None);
        let late = Heard { name: "gen-1".into(), ..heard(7, 1, Some(3)) };
        assert_eq!(fleet.hear(late, at(6)), None);
    }

    proptest! {
        /// Whatever happens: who has ended lives again only by what another process says.
        #[test]
        fn nobody_comes_back_from_the_dead(
            acts in prop::collection::vec((0_u8..4, 0_u64..3, any::<bool>()), 1..80),
        ) {
            let (mut fleet, mut now) = (Fleet::new(SILENCE), Duration::ZERO);
            // The process that runs or ran last, its signs so far, and the last sign of all.
            let (mut pid, mut count, mut lives, mut said) = (1, 0, true, None);
            for (act, wait, is_late) in acts {
                now += at(wait);
                let mut changes: Vec<FleetChange> = Vec::new();
                match act {
                    0 if lives => {
                        count += 1;
                        said = Some(heard(pid, count, Some(0)));
                    }
                    1 if lives => {
                        lives = false;
                        changes.extend(fleet.ended("gen-0", "gone"));
                    }
                    2 if !lives => {
                        (pid, count, lives) = (pid + 1, 0, true);
                        changes.extend(fleet.restarted("gen-0", pid, now));
                    }
                    _ => {}
                }
                // Signs are read when they are read.
                if !is_late && let Some(newest) = said.clone() {
                    let is_of_the_living = lives && newest.pid == pid;
                    let change = fleet.hear(newest, now);
                    prop_assert!(change.is_none() || is_of_the_living, "{:?}", change);
                    changes.extend(change);
                }
                changes.extend(fleet.tick(now));
                let is_well = |change: &FleetChange| matches!(change.to, Healthy | Stale);
                prop_assert!(lives || !changes.iter().any(is_well), "{:?}", changes);
            }
        }

        /// Whatever happens: changes are chained, and nobody is healthy who has been silent for long
        /// or has joined without weights.
        #[test]
        fn states_follow_from_signs(acts in prop::collection::vec((0_u8..6, 0_u64..12), 1..80)) {
            let (mut fleet, mut now, mut count) = (Fleet::new(SILENCE), Duration::ZERO, 0);
            let (mut last, mut last_heard, mut current) = (None, Duration::ZERO, 0);
            for (act, value) in acts {
                now += at(value);
                count += 1;
                let version = value.checked_sub(1);
                let changes: Vec<FleetChange> = match act {
                    0 | 1 => {
                        last_heard = now;
                        fleet.hear(heard(1, count, version), now).into_iter().collect()
                    }
                    2 => fleet.dropped("gen-0", "late").into_iter().collect(),
                    3 => fleet.ended("gen-0", "gone").into_iter().collect(),
                    4 => {
                        current = current.max(value);
                        fleet.adopted(PolicyVersion(current));
                        Vec::new()
                    }
                    _ => Vec::new(),
                };
                for change in changes.into_iter().chain(fleet.tick(now)) {
                    prop_assert_eq!(change.from, last, "each change starts where the last ended");
                    prop_assert_ne!(change.from, Some(change.to));
                    last = Some(change.to);
                }
                if last == Some(Healthy) {
                    prop_assert!(now < last_heard + SILENCE.suspect);
                }
            }
        }
    }
}

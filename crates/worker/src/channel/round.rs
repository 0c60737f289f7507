//! The trainer's side of a delivery: rounds until everybody has the weights or is dropped.

use std::time::{Duration, Instant};

use scalerl_rollout::PolicyVersion;
use scalerl_torch::collective::{CollectiveError, ProcessGroup, Store, Transport};

use super::leader::ChannelEvent;
use super::notes::{self, Answer, Done, Go, Note, Offer};
use super::{ChannelError, ChannelOptions};
use crate::weight_store::{Form, Weights};

/// A member as the trainer knows it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) name: Option<String>,
    pub(super) version: Option<PolicyVersion>,
    round: u64,
    /// Times in a row that it said it had failed.
    failures: u32,
}

/// A member that fails this often in a row fails by itself, not for another's sake.
const MOST_FAILURES: u32 = 3;

/// Members at once.
const MOST_MEMBERS: usize = 4096;

/// What the channel's thread works with.
pub(super) struct Rounds {
    pub(super) store: Store,
    pub(super) members: Vec<Member>,
    pub(super) events: Vec<ChannelEvent>,
    options: ChannelOptions,
    tickets: u64,
    epoch: u64,
    /// The group and whom it joins, as long as it works.
    group: Option<(Vec<u64>, ProcessGroup)>,
}

impl Rounds {
    pub(super) fn new(store: Store, options: ChannelOptions) -> Self {
        let (members, events) = (Vec::new(), Vec::new());
        Self { store, members, events, options, tickets: 0, epoch: 0, group: None }
    }

    /// Lets in whoever has taken a number since. More numbers than there is room for are nobody's.
    pub(super) fn admit(&mut self) -> Result<(), ChannelError> {
        let given = self.store.add(notes::TICKETS, 0)?.max(0) as u64;
        let (room, come) =
            (MOST_MEMBERS.saturating_sub(self.members.len()), given.saturating_sub(self.tickets));
        if come > room as u64 {
            self.tickets = given;
            let reason = format!("{come} came at once, and there is room for {room}");
            self.events.push(ChannelEvent::Dropped { member: given, reason });
            return Ok(());
        }
        for id in self.tickets + 1..=given {
            self.members.push(Member { id, name: None, version: None, round: 0, failures: 0 });
            self.events.push(ChannelEvent::Joined { member: id });
        }
        self.tickets = self.tickets.max(given);
        Ok(())
    }

    /// Members that do not have these weights.
    pub(super) fn needy(&self, version: PolicyVersion) -> Vec<u64> {
        let lacks = |member: &&Member| member.version.is_none_or(|has| has < version);
        self.members.iter().filter(lacks).map(|member| member.id).collect()
    }

    /// Sends weights to everybody who lacks them. Members that fail are dropped on the way; an error
    /// is of the channel itself.
    pub(super) fn deliver(&mut self, weights: &Weights) -> Result<(), ChannelError> {
        let started = Instant::now();
        // Every failed attempt is followed by one that drops whoever is to blame.
        let most = 2 * self.members.len() + 2;
        for _ in 0..most {
            let needy = self.needy(weights.version);
            if needy.is_empty() {
                break;
            }
            let ready = self.ask(&needy, weights)?;
            if ready.is_empty() {
                continue;
            }
            let sent = self.send(&ready, weights);
            match sent {
                Ok(()) => {
                    let taken = self.confirm(&ready, weights.version)?;
                    let (version, seconds) = (weights.version, started.elapsed().as_secs_f64());
                    self.events.push(ChannelEvent::Delivered { version, members: taken, seconds });
                }
                Err(error) => {
                    self.group = None;
                    let (version, reason) = (weights.version, error.to_string());
                    self.events.push(ChannelEvent::Failed { version, reason });
                }
            }
            self.next_round(&ready)?;
        }
        Ok(())
    }

    fn member(&mut self, id: u64) -> &mut Member {
        let found = self.members.iter_mut().find(|member| member.id == id);
        found.expect("asked for a member that is there")
    }

    fn key(&mut self, id: u64, note: Note) -> String {
        let round = self.member(id).round;
        notes::key(id, round, note)
    }

    /// Offers the weights; returns who is ready for them. The others are dropped.
    fn ask(&mut self, asked: &[u64], weights: &Weights) -> Result<Vec<u64>, ChannelError> {
        let form = Form::of(&weights.parameters);
        let (version, kind) = (weights.version.0, format!("{:?}", form.kind));
        let offer = Offer { version, kind, shapes: form.shapes };
        for &id in asked {
            let key = self.key(id, Note::Offer);
            notes::write(&self.store, &key, &offer)?;
        }
        let deadline = Instant::now() + self.options.answer;
        let mut ready = Vec::new();
        for &id in asked {
            if self.member(id).failures >= MOST_FAILURES {
                let reason = format!("it failed {MOST_FAILURES} times in a row");
                self.drop_member(id, reason)?;
                continue;
            }
            let key = self.key(id, Note::Answer);
            let answer = match notes::read(&self.store, &key, left(deadline)) {
                // One member's nonsense is no fault of the channel.
                Err(error @ ChannelError::Unreadable { .. }) => {
                    self.drop_member(id, error.to_string())?;
                    continue;
                }
                answer => timely(answer)?,
            };
            match answer {
                Some(Answer::Ready { name }) => {
                    self.member(id).name = Some(name);
                    ready.push(id);
                }
                Some(Answer::Refused { name, reason }) => {
                    self.member(id).name = Some(name);
                    self.drop_member(id, reason)?;
                }
                None => self.drop_member(id, late("did not answer", self.options.answer))?,
            }
        }
        Ok(ready)
    }

    fn drop_member(&mut self, id: u64, reason: String) -> Result<(), ChannelError> {
        let key = self.key(id, Note::Go);
        notes::write(&self.store, &key, &Go::Dropped { reason: reason.clone() })?;
        self.members.retain(|member| member.id != id);
        self.events.push(ChannelEvent::Dropped { member: id, reason });
        Ok(())
    }

    /// Meets the members and sends; the group is kept for the next time.
    fn send(&mut self, ready: &[u64], weights: &Weights) -> Result<(), ChannelError> {
        let is_same = self.group.as_ref().is_some_and(|(members, _)| members == ready);
        if !is_same {
            self.group = None;
            self.epoch += 1;
        }
        let (epoch, size) = (self.epoch, ready.len() + 1);
        let usual = Transport::of(Form::of(&weights.parameters).device);
        let transport = self.options.transport.unwrap_or(usual);
        let is_nccl = transport == Transport::Nccl;
        for (place, &id) in ready.iter().enumerate() {
            let key = self.key(id, Note::Go);
            notes::write(&self.store, &key, &Go::Meet { epoch, rank: place + 1, size, is_nccl })?;
        }
        if self.group.is_none() {
            let name = notes::group(epoch);
            let forming = self.options.forming();
            let mut group = ProcessGroup::form(&self.store, &name, (0, size), transport, forming)?;
            group.set_timeout(self.options.transfer);
            self.group = Some((ready.to_vec(), group));
        }
        let (_, group) = self.group.as_ref().expect("formed above");
        Ok(group.broadcast(&weights.parameters, 0)?)
    }

    /// Hears from each member that it has the weights; returns how many do.
    fn confirm(&mut self, sent: &[u64], version: PolicyVersion) -> Result<usize, ChannelError> {
        let deadline = Instant::now() + self.options.transfer;
        let mut taken = 0;
        for &id in sent {
            let key = self.key(id, Note::Done);
            let done = match notes::read(&self.store, &key, left(deadline)) {
                Err(error @ ChannelError::Unreadable { .. }) => {
                    Some(Done::Failed { reason: error.to_string() })
                }
                done => timely(done)?,
            };
            match done {
                Some(Done::Taken) => {
                    let member = self.member(id);
                    (member.version, member.failures) = (Some(version), 0);
                    taken += 1;
                }
                // It says so itself, hence it is there: the next attempt is for it.
                Some(Done::Failed { reason }) => {
                    self.group = None;
                    self.member(id).failures += 1;
                    self.events.push(ChannelEvent::Failed { version, reason });
                }
                // The next offer finds out whether it is still there.
                None => self.group = None,
            }
        }
        Ok(taken)
    }

    /// Counts a round that had its `go`, and forgets the notes of the one before.
    fn next_round(&mut self, ready: &[u64]) -> Result<(), ChannelError> {
        for &id in ready {
            let member = self.member(id);
            member.round += 1;
            let round = member.round;
            if round >= 2 {
                notes::forget(&self.store, id, round - 2)?;
            }
        }
        Ok(())
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn late(what: &str, deadline: Duration) -> String {
    format!("it {what} within {:.1} s", deadline.as_secs_f64())
}

/// A note that did not come in time is no error of the channel's.
fn timely<T>(note: Result<T, ChannelError>) -> Result<Option<T>, ChannelError> {
    match note {
        Ok(note) => Ok(Some(note)),
        Err(ChannelError::Collective(CollectiveError::Late { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

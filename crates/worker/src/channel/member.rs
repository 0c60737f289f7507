//! A generator's end: a thread of its process asks for weights and puts them into the process's weight store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_rollout::{PolicyVersion, WeightHandle};
use scalerl_torch::collective::{CollectiveError, ProcessGroup, Store, Token, Transport};
use scalerl_torch::shim;

use super::notes::{self, Answer, Done, Go, Note, Offer};
use super::{ChannelError, ChannelOptions};
use crate::weight_store::{Form, WeightStore};

/// What came of waiting for weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// New weights are in the weight store.
    Weights(WeightHandle),
    /// Nothing new so far.
    Nothing,
    /// The trainer has given this member up and it has joined again: its weights may be old. It must
    /// not serve until it has been sent the current ones.
    Dropped { reason: String },
}

/// Which group to meet in.
struct Meeting {
    epoch: u64,
    place: (usize, usize),
    transport: Transport,
}

/// A member of a channel.
pub struct WeightMember {
    store: Store,
    name: String,
    options: ChannelOptions,
    form: Form,
    weight_store: Arc<WeightStore>,
    id: u64,
    round: u64,
    newest: Option<PolicyVersion>,
    /// The group and its number, as long as it works.
    group: Option<(u64, ProcessGroup)>,
}

impl WeightMember {
    /// Joins the channel at `address:port` to receive weights of this form; `name` is for people.
    pub fn join(
        (address, port, token): (&str, u16, &Token),
        name: &str,
        form: Form,
        weight_store: Arc<WeightStore>,
        options: ChannelOptions,
    ) -> Result<Self, ChannelError> {
        let store = Store::connect(address, port, Some(token), options.meeting)?;
        let id = store.add(notes::TICKETS, 1)? as u64;
        let name = name.to_owned();
        let (round, newest, group) = (0, None, None);
        Ok(Self { store, name, options, form, weight_store, id, round, newest, group })
    }

    /// The number it has at the moment.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits for weights; a transfer that has begun by then is seen through. Not for the thread that
    /// decodes. An error means that the trainer is gone, or that this member is none of its kind.
    pub fn receive(&mut self, timeout: Duration) -> Result<Received, ChannelError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let key = notes::key(self.id, self.round, Note::Offer);
            let offer: Offer = match notes::read(&self.store, &key, left) {
                Ok(offer) => offer,
                Err(ChannelError::Collective(CollectiveError::Late { .. })) => {
                    return Ok(Received::Nothing);
                }
                Err(error) => return Err(error),
            };
            if let Some(received) = self.take(&offer)? {
                return Ok(received);
            }
        }
    }

    /// One round; `None` where it brought nothing new.
    fn take(&mut self, offer: &Offer) -> Result<Option<Received>, ChannelError> {
        let (id, round) = (self.id, self.round);
        let key = |note| notes::key(id, round, note);
        let name = self.name.clone();
        if let Some(reason) = self.mismatch(offer) {
            let refused = Answer::Refused { name, reason: reason.clone() };
            notes::write(&self.store, &key(Note::Answer), &refused)?;
            return Err(ChannelError::OtherModel { reason });
        }
        notes::write(&self.store, &key(Note::Answer), &Answer::Ready { name })?;
        // The trainer waits for others first, and may be at work with another group.
        let patience = self.options.answer + self.options.transfer;
        let go = match notes::read(&self.store, &key(Note::Go), patience) {
            Err(ChannelError::Collective(CollectiveError::Late { .. })) => {
                return self.join_again("the trainer went quiet".to_owned()).map(Some);
            }
            go => go?,
        };
        let meeting = match go {
            Go::Meet { epoch, rank, size, is_nccl } => {
                let transport = if is_nccl { Transport::Nccl } else { Transport::Gloo };
                Meeting { epoch, place: (rank, size), transport }
            }
            Go::Dropped { reason } => return self.join_again(reason).map(Some),
        };
        self.round += 1;
        let version = PolicyVersion(offer.version);
        match self.transfer(meeting, version) {
            Ok(received) => {
                notes::write(&self.store, &key(Note::Done), &Done::Taken)?;
                Ok(received)
            }
            // Somebody else may be to blame: the trainer offers again.
            Err(error) => {
                self.group = None;
                let failed = Done::Failed { reason: error.to_string() };
                notes::write(&self.store, &key(Note::Done), &failed)?;
                Ok(None)
            }
        }
    }

    fn transfer(
        &mut self,
        Meeting { epoch, place, transport }: Meeting,
        version: PolicyVersion,
    ) -> Result<Option<Received>, ChannelError> {
        let memory = self.weight_store.spare(&self.form)?;
        if self.group.as_ref().is_none_or(|(number, _)| *number != epoch) {
            self.group = None;
            let (name, forming) = (notes::group(epoch), self.options.forming());
            let mut group = ProcessGroup::form(&self.store, &name, place, transport, forming)?;
            group.set_timeout(self.options.transfer);
            self.group = Some((epoch, group));
        }
        let (_, group) = self.group.as_ref().expect("formed above");
        group.broadcast(&memory, 0)?;
        // The generator reads on a stream of its own.
        shim::synchronize_stream(self.form.device)?;
        // A round that was repeated for another's sake.
        if self.newest.is_some_and(|newest| newest >= version) {
            return Ok(None);
        }
        self.newest = Some(version);
        Ok(Some(Received::Weights(self.weight_store.place(version, memory))))
    }

    /// Takes a new number.
    fn join_again(&mut self, reason: String) -> Result<Received, ChannelError> {
        self.group = None;
        self.id = self.store.add(notes::TICKETS, 1)? as u64;
        self.round = 0;
        // The current weights are sent again, and they are news for whoever serves.
        self.newest = None;
        Ok(Received::Dropped { reason })
    }

    fn mismatch(&self, offer: &Offer) -> Option<String> {
        let kind = format!("{:?}", self.form.kind);
        if offer.kind != kind {
            return Some(format!("{} numbers, {kind} expected", offer.kind));
        }
        let (theirs, ours) = (&offer.shapes, &self.form.shapes);
        if theirs.len() != ours.len() {
            return Some(format!("{} tensors, {} expected", theirs.len(), ours.len()));
        }
        let differs = theirs.iter().zip(ours).position(|(theirs, ours)| theirs != ours)?;
        let (theirs, ours) = (&theirs[differs], &ours[differs]);
        Some(format!("tensor {differs} has shape {theirs:?}, {ours:?} expected"))
    }
}

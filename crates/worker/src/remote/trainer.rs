//! The trainer's end: to the engine a generator like any other.

use std::sync::Arc;
use std::time::Duration;

use scalerl_rollout::{
    Completion, Generator, GeneratorError, PolicyVersion, SampleRequest, WeightHandle,
};
use scalerl_torch::collective::Token;
use tokio::task::JoinHandle;

use super::dispatch::Dispatch;
use super::dispatcher;
use super::session::{Announcement, Session, announce};
use super::wire::{Beat, MOST_REQUEST, encode};
use super::{Broker, RemoteError};
use crate::channel::{ChannelEvent, MemberStatus, WeightChannel};
use crate::weight_store::WeightStore;

/// How often `adopt` looks who has the weights.
const LOOK: Duration = Duration::from_millis(5);

/// What can be seen of the fleet, for whoever watches it.
#[derive(Debug, Clone, Default)]
pub struct Signs {
    /// The last sign of life of everybody who ever gave one.
    pub beats: Vec<Beat>,
    /// Who takes part in the exchange of weights.
    pub members: Vec<MemberStatus>,
    /// What has happened there since the last call.
    pub channel: Vec<ChannelEvent>,
    /// Answers that were not used, and why, since the last call.
    pub refused: Vec<String>,
    /// Why Redis cannot be reached at the moment.
    pub trouble: Option<String>,
    /// Whether it could not be reached at some moment since the last call, and why.
    pub had_trouble: Option<String>,
}

/// Generates on whatever generators have joined. Lives in a tokio runtime.
pub struct RedisGenerator {
    dispatch: Arc<Dispatch>,
    channel: Arc<WeightChannel>,
    weight_store: Arc<WeightStore>,
    broker: Broker,
    name: String,
    session: Session,
    announcement: Announcement,
    tasks: Vec<JoinHandle<()>>,
}

impl RedisGenerator {
    /// Announces a session under `name` and begins to serve it, for whoever knows the token. Fails
    /// where Redis cannot be reached now; what happens to it later is waited for.
    pub async fn open(
        mut broker: Broker,
        (name, token): (&str, Token),
        announcement: Announcement,
        channel: WeightChannel,
        weight_store: Arc<WeightStore>,
    ) -> Result<Self, RemoteError> {
        announce(&mut broker, name, &token, &announcement).await?;
        let session = Session::new(name, &announcement.nonce, token);
        let dispatch = Arc::new(Dispatch::new(session.clone()));
        let reader = tokio::spawn(dispatcher::read_answers(dispatch.clone(), broker.another()));
        let own = (name.to_owned(), announcement.clone());
        let dispatcher = tokio::spawn(dispatcher::keep(dispatch.clone(), broker.another(), own));
        let (name, tasks) = (name.to_owned(), vec![reader, dispatcher]);
        let channel = Arc::new(channel);
        Ok(Self { dispatch, channel, weight_store, broker, name, session, announcement, tasks })
    }

    /// What can be seen of the fleet.
    pub fn signs(&self) -> Signs {
        self.dispatch.note_events(self.channel.take_events());
        let mut signs = self.dispatch.take_signs();
        signs.members = self.channel.members();
        signs
    }

    /// The policy that all healthy generators have.
    pub fn adopted(&self) -> PolicyVersion {
        self.dispatch.floor()
    }

    /// Requests without an answer.
    pub fn pending(&self) -> usize {
        self.dispatch.pending()
    }

    /// Tells all generators that the run is over, and takes its keys out of Redis.
    pub async fn close(&self) {
        self.dispatch.close("the run is over");
        self.tasks.iter().for_each(JoinHandle::abort);
        let over = Announcement { is_over: true, ..self.announcement.clone() };
        let mut broker = self.broker.another();
        // Where it cannot be said, the closed weight channel says it.
        let _ = announce(&mut broker, &self.name, self.session.token(), &over).await;
        let _ = broker.ask::<()>(redis::cmd("DEL").arg(&self.session.all()[..])).await;
    }
}

impl Generator for RedisGenerator {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        let bytes = encode(&request).len();
        if bytes > MOST_REQUEST {
            let reason = format!("{bytes} bytes, more than the {MOST_REQUEST} allowed");
            return Err(GeneratorError::Refused { reason });
        }
        let mut waiting = self.dispatch.enter(request)?;
        // Ends with an answer, with the dispatch, or by being dropped at the engine's deadline.
        match waiting.answer().await {
            Ok(answer) => answer,
            Err(_) => Err(self.dispatch.gone()),
        }
    }

    async fn adopt(&self, handle: &WeightHandle) -> Result<(), GeneratorError> {
        let version = handle.version;
        let weights = self.weight_store.take(handle);
        let weights = weights
            .map_err(|error| GeneratorError::Weights { version, reason: error.to_string() })?;
        self.dispatch.publish(version);
        self.channel.publish(weights);
        // Ends when everybody who is not given up has them: the channel has deadlines for each. With
        // nobody there it is the engine's deadline that ends it.
        loop {
            self.dispatch.note_events(self.channel.take_events());
            if let Some(reason) = self.dispatch.broken() {
                return Err(GeneratorError::Gone { reason });
            }
            if has_reached(&self.channel.members(), version) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        self.dispatch.adopt(version);
        Ok(())
    }
}

impl Drop for RedisGenerator {
    fn drop(&mut self) {
        self.dispatch.close("it was closed");
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Whether somebody has this version and nobody an older one. Newcomers without any weights serve
/// nobody before they have the current ones.
fn has_reached(members: &[MemberStatus], version: PolicyVersion) -> bool {
    let is_old = |member: &MemberStatus| member.version.is_some_and(|has| has < version);
    members.iter().any(|member| member.version.is_some()) && !members.iter().any(is_old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_arrived_when_somebody_has_them_and_nobody_is_behind() {
        let member = |version: Option<u64>| MemberStatus {
            member: 1,
            name: None,
            version: version.map(PolicyVersion),
        };
        let reached = |versions: &[Option<u64>]| {
            let members: Vec<_> = versions.iter().copied().map(member).collect();
            has_reached(&members, PolicyVersion(3))
        };
        assert!(!reached(&[]), "nobody is there");
        assert!(!reached(&[None]), "a newcomer without weights");
        assert!(!reached(&[Some(3), Some(2)]), "one is behind");
        assert!(reached(&[Some(3), None]) && reached(&[Some(3), Some(4)]));
    }
}

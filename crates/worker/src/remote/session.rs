//! How processes of one run find each other: the trainer announces itself under a name, again and
//! again, and whoever has Redis' address and that name can join. An announcement that nobody repeats
//! is gone after a while; one that says the run is over sends everybody home.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use redis::cmd;
use scalerl_model::collective::Token;
use serde::{Deserialize, Serialize};

use super::wire::{MOST_ANNOUNCEMENT, decode, encode};
use super::{Broker, RemoteError};

/// Number of the format this release speaks.
const FORMAT: u32 = 1;
/// The one group that consumes requests.
pub(super) const GROUP: &str = "generators";
/// How long the keys of a session outlive a trainer that was killed.
pub(super) const KEPT: Duration = Duration::from_hours(1);
/// How long an announcement holds without being repeated.
pub(super) const HOLDS: Duration = Duration::from_secs(20);

/// What a trainer says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// The format's number.
    pub format: u32,
    /// Another for every start of a trainer.
    pub nonce: String,
    /// Nothing more is to be done.
    pub is_over: bool,
    /// Where its weights are to be had.
    pub weights: (String, u16),
    /// What lets generators in there: whoever may read this session in Redis may join it.
    pub token: Token,
    /// Requests that one generator should work on at once.
    pub requests_at_once: u32,
    /// Between two signs of life.
    pub heartbeat: Duration,
    /// After which an untouched request is another's.
    pub claim: Duration,
    /// What a generator is made of, in words of whoever starts it.
    pub material: serde_json::Value,
}

impl Announcement {
    /// A new session.
    pub fn new(
        weights: (String, u16),
        token: Token,
        requests_at_once: u32,
        material: serde_json::Value,
    ) -> Self {
        let defaults = super::RemoteOptions::default();
        Self {
            format: FORMAT,
            nonce: nonce(),
            is_over: false,
            weights,
            token,
            requests_at_once,
            heartbeat: defaults.heartbeat,
            claim: defaults.claim,
            material,
        }
    }
}

/// Different every time.
pub(super) fn nonce() -> String {
    // Seeded by the system.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// The keys of one start of one trainer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    prefix: String,
}

impl Session {
    pub(super) fn new(name: &str, nonce: &str) -> Self {
        Self { prefix: format!("scalerl:{name}:{nonce}") }
    }

    /// A stream of ids, each in Redis until its answer is in the trainer's hands.
    pub(super) fn requests(&self) -> String {
        format!("{}:requests", self.prefix)
    }

    /// What the ids stand for.
    pub(super) fn bodies(&self) -> String {
        format!("{}:bodies", self.prefix)
    }

    pub(super) fn answers(&self) -> String {
        format!("{}:answers", self.prefix)
    }

    /// The last sign of life of each generator.
    pub(super) fn fleet(&self) -> String {
        format!("{}:fleet", self.prefix)
    }

    pub(super) fn all(&self) -> [String; 4] {
        [self.requests(), self.bodies(), self.answers(), self.fleet()]
    }
}

fn key(name: &str) -> String {
    format!("scalerl:{name}:session")
}

/// Says that this session is there.
pub(super) async fn announce(
    broker: &mut Broker,
    name: &str,
    announcement: &Announcement,
) -> Result<(), RemoteError> {
    let mut set = cmd("SET");
    set.arg(key(name)).arg(encode(announcement)).arg("EX").arg(HOLDS.as_secs());
    Ok(broker.ask(&set).await?)
}

/// What was found under a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Nothing,
    /// The last session has ended in order.
    Over {
        nonce: String,
    },
    Session(Box<Announcement>),
}

/// Looks for a session.
pub async fn find(broker: &mut Broker, name: &str) -> Result<Found, RemoteError> {
    let bytes: Option<Vec<u8>> = broker.ask(cmd("GET").arg(key(name))).await?;
    let Some(bytes) = bytes else { return Ok(Found::Nothing) };
    let bad = |reason: String| RemoteError::Session { name: name.to_owned(), reason };
    let found: Announcement = decode("the announcement", &bytes, MOST_ANNOUNCEMENT)
        .map_err(|error| bad(error.to_string()))?;
    if found.format != FORMAT {
        return Err(bad(format!("format {}, this release speaks {FORMAT}", found.format)));
    }
    if found.is_over {
        return Ok(Found::Over { nonce: found.nonce });
    }
    Ok(Found::Session(Box::new(found)))
}

//! How processes of one run find each other and know each other's words.
//!
//! The trainer announces itself under a name, again and again, and whoever has Redis' address, that
//! name and the session's token can join. An announcement that nobody repeats is gone after a while;
//! one that says the run is over sends everybody home.
//!
//! The token is handed on by whoever starts processes and is never in Redis. Everything that is there
//! is signed with it (HMAC-SHA-256): for its kind, the session's name and, beside the announcement,
//! this start of the trainer. So whoever can write to Redis can lose messages and delay the run, but
//! can say nothing in anybody's name, and what was said once cannot be said again elsewhere: answers
//! carry the id of their request, and ids are never used twice.
//!
//! ```text
//! 32 bytes of signature | JSON
//! ```

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use redis::cmd;
use scalerl_torch::collective::Token;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::wire::{MOST_ANNOUNCEMENT, Unusable, decode, encode};
use super::{Broker, RemoteError};

/// Number of the format this release speaks.
const FORMAT: u32 = 2;
/// The one group that consumes requests.
pub(super) const GROUP: &str = "generators";
/// How long the keys of a session outlive a trainer that was killed.
pub(super) const KEPT: Duration = Duration::from_hours(1);
/// How long an announcement holds without being repeated.
pub(super) const HOLDS: Duration = Duration::from_secs(20);
/// Bytes of a signature.
const SIGNATURE: usize = 32;

/// What a trainer says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// The format's number.
    pub format: u32,
    /// Another for every start of a trainer.
    pub nonce: String,
    /// Nothing more is to be done.
    pub is_over: bool,
    /// Where its weights are to be had, with the session's token.
    pub weights: (String, u16),
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
    pub fn new(weights: (String, u16), requests_at_once: u32, material: serde_json::Value) -> Self {
        let defaults = super::RemoteOptions::default();
        Self {
            format: FORMAT,
            nonce: nonce(),
            is_over: false,
            weights,
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

/// What a message is, which is part of its signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Answer,
    SignOfLife,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "a request",
            Self::Answer => "an answer",
            Self::SignOfLife => "a sign of life",
        }
    }
}

/// The keys of one start of one trainer, and what signs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    prefix: String,
    token: Token,
}

impl Session {
    pub(super) fn new(name: &str, nonce: &str, token: Token) -> Self {
        Self { prefix: format!("scalerl:{name}:{nonce}"), token }
    }

    pub(super) fn token(&self) -> &Token {
        &self.token
    }

    /// A message for Redis.
    pub(super) fn seal(&self, kind: Kind, message: &impl Serialize) -> Vec<u8> {
        seal(&self.token, kind.name(), &self.prefix, message)
    }

    /// A message out of Redis, if it is of this session and this kind. What is larger than `limit` is
    /// not looked at.
    pub(super) fn open<T: DeserializeOwned>(
        &self,
        kind: Kind,
        bytes: &[u8],
        limit: usize,
    ) -> Result<T, Unusable> {
        open(&self.token, (kind.name(), &self.prefix), bytes, limit)
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

/// `what` and `place` are what the signature is good for.
fn seal(token: &Token, what: &str, place: &str, message: &impl Serialize) -> Vec<u8> {
    let body = encode(message);
    let mut sealed = token.sign(&[what, place], &body).to_vec();
    sealed.extend(body);
    sealed
}

fn open<T: DeserializeOwned>(
    token: &Token,
    (what, place): (&'static str, &str),
    bytes: &[u8],
    limit: usize,
) -> Result<T, Unusable> {
    if bytes.len() > limit + SIGNATURE {
        return Err(Unusable::TooLarge { what, bytes: bytes.len(), limit });
    }
    let (signature, body) = bytes.split_at_checked(SIGNATURE).unwrap_or((&[], bytes));
    if !token.has_signed(&[what, place], body, signature) {
        return Err(Unusable::Unsigned { what });
    }
    decode(what, body)
}

const ANNOUNCEMENT: &str = "the announcement";

fn key(name: &str) -> String {
    format!("scalerl:{name}:session")
}

/// Says that this session is there.
pub(super) async fn announce(
    broker: &mut Broker,
    name: &str,
    token: &Token,
    announcement: &Announcement,
) -> Result<(), RemoteError> {
    let sealed = seal(token, ANNOUNCEMENT, name, announcement);
    let mut set = cmd("SET");
    set.arg(key(name)).arg(sealed).arg("EX").arg(HOLDS.as_secs());
    Ok(broker.ask(&set).await?)
}

/// What was found under a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Nothing,
    /// Something that is not believed: of another token, another release, or nobody's.
    Unusable {
        reason: String,
    },
    /// The last session has ended in order.
    Over {
        nonce: String,
    },
    Session(Box<Announcement>),
}

/// Looks for a session.
pub async fn find(broker: &mut Broker, name: &str, token: &Token) -> Result<Found, RemoteError> {
    let bytes: Option<Vec<u8>> = broker.ask(cmd("GET").arg(key(name))).await?;
    let Some(bytes) = bytes else { return Ok(Found::Nothing) };
    let found: Announcement = match open(token, (ANNOUNCEMENT, name), &bytes, MOST_ANNOUNCEMENT) {
        Ok(found) => found,
        Err(error) => return Ok(Found::Unusable { reason: error.to_string() }),
    };
    if found.format != FORMAT {
        let reason = format!("format {}, this release speaks {FORMAT}", found.format);
        return Ok(Found::Unusable { reason });
    }
    if found.is_over {
        return Ok(Found::Over { nonce: found.nonce });
    }
    Ok(Found::Session(Box::new(found)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1000;

    fn session(name: &str, nonce: &str, token: &str) -> Session {
        Session::new(name, nonce, Token::chosen(token).unwrap())
    }

    fn own() -> Session {
        session("run", "1", "the token of this run")
    }

    #[test]
    fn a_message_is_believed_in_its_own_session_as_what_it_is_and_nowhere_else() {
        let sealed = own().seal(Kind::Answer, &[1, 2, 3]);
        let opened = |by: &Session, kind| by.open::<Vec<u32>>(kind, &sealed, LIMIT);
        assert_eq!(opened(&own(), Kind::Answer), Ok(vec![1, 2, 3]));
        for (by, kind) in [
            (own(), Kind::Request),
            (session("run", "2", "the token of this run"), Kind::Answer),
            (session("other", "1", "the token of this run"), Kind::Answer),
            (session("run", "1", "the token of another"), Kind::Answer),
        ] {
            assert_eq!(opened(&by, kind), Err(Unusable::Unsigned { what: kind.name() }));
        }
    }

    #[test]
    fn what_is_too_large_is_not_looked_at() {
        let sealed = own().seal(Kind::SignOfLife, &"x".repeat(LIMIT));
        let error = own().open::<String>(Kind::SignOfLife, &sealed, LIMIT).unwrap_err();
        assert!(matches!(error, Unusable::TooLarge { .. }), "{error}");
        assert!(own().open::<String>(Kind::SignOfLife, &sealed, LIMIT + 2).is_ok());
    }

    proptest! {
        /// Whatever somebody writes who does not know the token.
        #[test]
        fn nothing_unsigned_is_believed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let opened = own().open::<serde_json::Value>(Kind::Answer, &bytes, LIMIT);
            prop_assert_eq!(opened, Err(Unusable::Unsigned { what: "an answer" }));
        }

        #[test]
        fn one_changed_byte_is_enough(place in any::<prop::sample::Index>(), with in any::<u8>()) {
            let sealed = own().seal(Kind::Request, &"what is asked");
            let mut changed = sealed.clone();
            let place = place.index(changed.len());
            changed[place] = with;
            let opened = own().open::<String>(Kind::Request, &changed, LIMIT);
            prop_assert_eq!(opened.is_ok(), changed == sealed);
        }
    }
}

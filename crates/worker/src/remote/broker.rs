//! One connection to Redis that comes back: each command has a deadline, and after a failure the
//! next one connects anew. Nothing is repeated here; callers know what may be.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisError};

use super::RemoteError;

/// For a connection to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to Redis. Commands that block want one of their own.
pub struct Broker {
    client: Client,
    reply: Duration,
    connection: Option<MultiplexedConnection>,
}

impl Broker {
    /// Remembers the address: `redis://`, or `rediss://` for TLS, with user and password where
    /// there are any. Does not connect yet.
    pub fn new(url: &str, reply: Duration) -> Result<Self, RemoteError> {
        let client = Client::open(url).map_err(|error| RemoteError::Address {
            url: without_password(url),
            reason: error.to_string(),
        })?;
        Ok(Self { client, reply, connection: None })
    }

    /// Another connection to the same server.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { client: self.client.clone(), reply: self.reply, connection: None }
    }

    pub(super) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        let mut connection = self.connect().await?;
        let answer = command.query_async(&mut connection).await;
        self.see(answer)
    }

    pub(super) async fn ask_all<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
    ) -> Result<T, RedisError> {
        let mut connection = self.connect().await?;
        let answer = commands.query_async(&mut connection).await;
        self.see(answer)
    }

    async fn connect(&mut self) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(self.reply));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// After anything but the server's own word the connection is not trusted any more.
    fn see<T>(&mut self, answer: Result<T, RedisError>) -> Result<T, RedisError> {
        if let Err(error) = &answer
            && error.code().is_none()
        {
            self.connection = None;
        }
        answer
    }
}

/// Whether the stream or its group is not there: never made, or lost with the server's memory.
pub(super) fn is_no_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP")
}

/// An address that may be shown.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}***{}", &url[..scheme + 3], &url[at..])
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let Err(error) = Broker::new("radish://:secret@host:1", CONNECT) else {
            panic!("radish is no scheme");
        };
        let said = error.to_string();
        assert!(said.contains("radish://***@host:1") && !said.contains("secret"), "{said}");
        assert_eq!(without_password("redis://host:6379"), "redis://host:6379");
    }
}

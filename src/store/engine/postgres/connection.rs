//! A connection to the database, which is made when it is needed and made again after it broke.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};

use super::errors::{Failure, unreachable};
use super::tls::Connector;
use crate::random::Random;
use crate::store::Address;
use crate::store::{OpenError, StoreError};

/// How long the making of a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses between two attempts to connect: they grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

impl Address {
    /// The settings of connections.
    pub(super) fn target(&self) -> Result<Target, OpenError> {
        let invalid = |what: String| OpenError::Store(StoreError::Unreachable(what));
        let mut config: Config = self
            .reveal_url()
            .parse()
            .map_err(|error| OpenError::Store(unreachable(&error)))?;
        config.application_name("idsvc");
        // A standby would answer reads with an older state.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => None,
            _ => Some(Connector::new(self).map_err(invalid)?),
        };
        Ok(Target {
            config,
            tls,
            random: Random::system(),
        })
    }
}

/// How to connect.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    /// `None` if TLS is off.
    pub(super) tls: Option<Connector>,
    pub(super) random: Random,
}

impl Target {
    /// Connects once.
    pub(super) async fn connect(&self) -> Result<Client, StoreError> {
        let connecting = async {
            match &self.tls {
                Some(tls) if self.config.get_ssl_mode() != SslMode::Disable => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    tokio::spawn(connection);
                    Ok(client)
                }
                _ => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    tokio::spawn(connection);
                    Ok(client)
                }
            }
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(|error| unreachable(&error)),
            Err(_) => Err(StoreError::Unreachable(format!(
                "{} did not answer within {} seconds",
                self.names(),
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    /// The names of the hosts.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        names.join(", ")
    }
}

/// The parameters of a call with their types.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A connection, or the lack of one.
pub(super) struct Connection {
    target: Target,
    client: Option<Client>,
    pause: Duration,
}

impl Connection {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            client: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Calls a function. Connects first if there is no connection, and tries again until `deadline`.
    pub(super) async fn call(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        deadline: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let client = self.client(deadline).await.map_err(Failure::Disconnected)?;
        let limit = deadline.saturating_duration_since(Instant::now());
        let failure = match timeout(limit, client.query_typed(sql, parameters)).await {
            Ok(Ok(rows)) => {
                self.pause = FIRST_PAUSE;
                return Ok(rows);
            }
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => Failure::Disconnected(StoreError::Unreachable(format!(
                "{} did not answer in time",
                self.target.names()
            ))),
        };
        if matches!(failure, Failure::Disconnected(_)) {
            self.client = None;
        }
        Err(failure)
    }

    async fn client(&mut self, deadline: Instant) -> Result<&Client, StoreError> {
        if self.client.as_ref().is_some_and(Client::is_closed) {
            self.client = None;
        }
        while self.client.is_none() {
            match self.target.connect().await {
                Ok(client) => self.client = Some(client),
                Err(error) => {
                    // Nodes that lost the same server do not come back at the same moment.
                    let [jitter] = self.target.random.bytes();
                    let pause = self.pause.mul_f32(0.5 + f32::from(jitter) / 255.0);
                    self.pause = (self.pause * 2).min(LAST_PAUSE);
                    if Instant::now() + pause >= deadline {
                        return Err(error);
                    }
                    sleep(pause).await;
                }
            }
        }
        self.client.as_ref().ok_or(StoreError::Closed)
    }
}

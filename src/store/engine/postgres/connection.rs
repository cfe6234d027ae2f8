//! A connection to the database, which is made when it is needed and made again after it broke.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Row};

use super::errors::{CallError, unreachable};
use super::tls::Connector;
use crate::random::Random;
use crate::store::Address;
use crate::store::{OpenError, StoreError};

/// How long the making of a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one of several hosts may take to accept a connection, before the next one is tried.
const HOST_TIMEOUT: Duration = Duration::from_secs(2);
/// The pauses between two attempts to connect: they grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

impl Address {
    /// The settings of connections.
    pub(super) fn connection_settings(&self) -> Result<ConnectionSettings, OpenError> {
        let invalid = |what: String| OpenError::Store(StoreError::Unreachable(what));
        let mut config: Config = self
            .reveal_url()
            .parse()
            .map_err(|error| OpenError::Store(unreachable(&error)))?;
        config.application_name("idsvc");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(HOST_TIMEOUT);
        }
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            // A standby would answer reads that are too old.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => None,
            _ => Some(Connector::new(self).map_err(invalid)?),
        };
        Ok(ConnectionSettings {
            config,
            tls,
            random: Random::system(),
        })
    }
}

/// How to connect.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    pub(super) config: Config,
    /// `None` if TLS is off.
    pub(super) tls: Option<Connector>,
    pub(super) random: Random,
}

impl ConnectionSettings {
    /// Connects once.
    pub(super) async fn connect(&self) -> Result<OpenConnection, StoreError> {
        let is_unreplicated = Arc::new(AtomicBool::new(false));
        let notices = Arc::clone(&is_unreplicated);
        let connecting = async {
            match &self.tls {
                Some(tls) if self.config.get_ssl_mode() != SslMode::Disable => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    tokio::spawn(drive(connection, notices));
                    Ok(client)
                }
                _ => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    tokio::spawn(drive(connection, notices));
                    Ok(client)
                }
            }
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(client)) => Ok(OpenConnection {
                client,
                is_unreplicated,
            }),
            Ok(Err(error)) => Err(unreachable(&error)),
            Err(_) => Err(self.silence()),
        }
    }

    /// The error of a server that has not answered.
    pub(super) fn silence(&self) -> StoreError {
        StoreError::Unreachable(format!("{} did not answer in time", self.names()))
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

/// An open connection.
pub(super) struct OpenConnection {
    pub(super) client: Client,
    /// Whether the server has committed without waiting for its standby.
    is_unreplicated: Arc<AtomicBool>,
}

/// Serves a connection until it is closed.
async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, is_unreplicated: Arc<AtomicBool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        // The text of a warning is in the language of the server, the name of the routine is not.
        if let AsyncMessage::Notice(notice) = message
            && notice.routine() == Some("SyncRepWaitForLSN")
        {
            is_unreplicated.store(true, Ordering::Release);
        }
    }
}

/// The parameters of a call with their types.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A connection, or the lack of one.
pub(super) struct Connection {
    settings: ConnectionSettings,
    open: Option<OpenConnection>,
    /// What failed last. After it, a pause comes before the next attempt to connect.
    failure: Option<StoreError>,
    pause: Duration,
    /// Whether the database has another isolation level by default, so that each call names its own.
    names_isolation: bool,
}

impl Connection {
    pub(super) fn new(settings: ConnectionSettings) -> Self {
        Self {
            settings,
            open: None,
            failure: None,
            pause: FIRST_PAUSE,
            names_isolation: false,
        }
    }

    /// Calls a function. Connects first if there is no connection, and tries again until `deadline`.
    pub(super) async fn call(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        deadline: Instant,
    ) -> Result<Vec<Row>, CallError> {
        loop {
            let names_isolation = self.names_isolation;
            let open = self.open(deadline).await.map_err(CallError::Unconnected)?;
            let limit = deadline.saturating_duration_since(Instant::now());
            let rows = query(&open.client, sql, parameters, names_isolation);
            let failure = match timeout(limit, rows).await {
                Ok(Ok(_)) if open.is_unreplicated.swap(false, Ordering::AcqRel) => {
                    return Err(CallError::Disconnected(StoreError::Unreachable(
                        "the server did not wait for its synchronous standby".to_owned(),
                    )));
                }
                Ok(Ok(rows)) => {
                    self.failure = None;
                    self.pause = FIRST_PAUSE;
                    return Ok(rows);
                }
                Ok(Err(error))
                    if error.code() == Some(&SqlState::INVALID_TRANSACTION_STATE) && !names_isolation =>
                {
                    self.names_isolation = true;
                    continue;
                }
                Ok(Err(error)) => CallError::of(&error),
                Err(_) => CallError::Disconnected(self.settings.silence()),
            };
            if let CallError::Disconnected(error) = &failure {
                self.open = None;
                self.failure = Some(error.clone());
            }
            return Err(failure);
        }
    }

    async fn open(&mut self, deadline: Instant) -> Result<&OpenConnection, StoreError> {
        if self.open.as_ref().is_some_and(|open| open.client.is_closed()) {
            self.open = None;
        }
        while self.open.is_none() {
            if let Some(error) = &self.failure {
                // Nodes that lost the same server do not come back at the same moment.
                let [jitter] = self.settings.random.bytes();
                let pause = self.pause.mul_f32(0.5 + f32::from(jitter) / 255.0);
                self.pause = (self.pause * 2).min(LAST_PAUSE);
                let rest = deadline.saturating_duration_since(Instant::now());
                sleep(pause.min(rest)).await;
                if pause >= rest {
                    return Err(error.clone());
                }
            }
            let limit = deadline.saturating_duration_since(Instant::now());
            match timeout(limit, self.settings.connect()).await {
                Ok(Ok(open)) => self.open = Some(open),
                Ok(Err(error)) => self.failure = Some(error),
                Err(_) => self.failure = Some(self.settings.silence()),
            }
        }
        self.open.as_ref().ok_or(StoreError::Closed)
    }
}

/// Sends a query, in a transaction of READ COMMITTED if `names_isolation`. All messages are sent at once.
async fn query(
    client: &Client,
    sql: &str,
    parameters: Parameters<'_>,
    names_isolation: bool,
) -> Result<Vec<Row>, Error> {
    if !names_isolation {
        return client.query_typed(sql, parameters).await;
    }
    let (begun, rows, ended) = tokio::join!(
        biased;
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
        client.query_typed(sql, parameters),
        client.batch_execute("COMMIT"),
    );
    begun?;
    let rows = rows?;
    ended?;
    Ok(rows)
}

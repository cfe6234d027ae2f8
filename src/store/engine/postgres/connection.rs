//! A connection to the database, which is made when it is needed and made again after it broke.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Row};

use super::errors::{CallError, unreachable};
use super::hosts::{self, HostFailure, NewestPrimary, Server, describe, name_of};
use super::tls::Connector;
use crate::random::Random;
use crate::store::{Address, OpenError, StoreError};

/// How long the making of a connection may take, if there is one host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for each of several hosts. A longer `connect_timeout` of the address takes the place of both.
const HOST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one address of a host may take to accept a connection, before the next one is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request to cancel a call may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server's machine may leave bytes unacknowledged, and how often an idle one is probed.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// The pauses between two attempts to connect: they grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

impl Address {
    pub(super) fn connection_settings(&self) -> Result<ConnectionSettings, OpenError> {
        let invalid = |what: String| OpenError::Store(StoreError::Unreachable(what));
        let mut config: Config = self
            .reveal_url()
            .parse()
            .map_err(|error| OpenError::Store(unreachable(&error)))?;
        config.application_name("idsvc");
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT);
        }
        if config.get_keepalives_interval().is_none() {
            config
                .keepalives_idle(KEEPALIVE_INTERVAL)
                .keepalives_interval(KEEPALIVE_INTERVAL);
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
            hosts: split_by_host(&config).map_err(|what| invalid(what.to_owned()))?,
            first_host: Arc::default(),
            newest_primary: Arc::default(),
            awaits_standby: Arc::default(),
            tls,
            random: Random::system(),
        })
    }
}

/// The settings for each host alone.
fn split_by_host(all: &Config) -> Result<Vec<Config>, &'static str> {
    let (hosts, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let count = hosts.len().max(addresses.len());
    if ![0, count].contains(&hosts.len()) || ![0, count].contains(&addresses.len()) {
        return Err("store.url does not have one hostaddr for each host");
    }
    if ![0, 1, count].contains(&ports.len()) {
        return Err("store.url does not have one port for each host");
    }
    let for_host = |index: usize| {
        let mut one = Config::new();
        match hosts.get(index) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(folder)) => drop(one.host_path(folder)),
            None => {}
        }
        addresses.get(index).map(|address| one.hostaddr(*address));
        ports.get(index).or(ports.first()).map(|port| one.port(*port));
        all.get_user().map(|user| one.user(user));
        all.get_password().map(|password| one.password(password));
        all.get_dbname().map(|name| one.dbname(name));
        all.get_options().map(|options| one.options(options));
        all.get_application_name().map(|name| one.application_name(name));
        one.connect_timeout(*all.get_connect_timeout().unwrap_or(&ADDRESS_TIMEOUT));
        all.get_tcp_user_timeout().map(|time| one.tcp_user_timeout(*time));
        all.get_keepalives_interval()
            .map(|time| one.keepalives_interval(time));
        all.get_keepalives_retries()
            .map(|retries| one.keepalives_retries(retries));
        one.keepalives(all.get_keepalives())
            .keepalives_idle(all.get_keepalives_idle())
            .ssl_mode(all.get_ssl_mode())
            .ssl_negotiation(all.get_ssl_negotiation())
            .target_session_attrs(all.get_target_session_attrs())
            .channel_binding(all.get_channel_binding());
        one
    };
    Ok((0..count).map(for_host).collect())
}

/// How to connect.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    hosts: Vec<Config>,
    /// The index of the host that is tried first: the one that worked last.
    first_host: Arc<AtomicUsize>,
    newest_primary: Arc<NewestPrimary>,
    /// Whether a commit was seen to wait for a synchronous standby.
    awaits_standby: Arc<AtomicBool>,
    /// `None` if TLS is off.
    tls: Option<Connector>,
    pub(super) random: Random,
}

impl ConnectionSettings {
    /// Connects once, to the first host that lets it.
    pub(super) async fn connect(&self) -> Result<OpenConnection, StoreError> {
        let mut failures = Vec::new();
        for _ in &self.hosts {
            let index = self.first_host.load(Ordering::Relaxed);
            let Some(host) = self.hosts.get(index) else { break };
            match timeout(self.host_timeout(host), self.connect_to(host)).await {
                Ok(Ok(open)) => return Ok(open),
                Ok(Err(error)) => failures.push(HostFailure::new(host, error)),
                Err(_) => failures.push(HostFailure::new(host, silence_of(host))),
            }
            let next = (index + 1) % self.hosts.len();
            // Another connection may have found out the same.
            let _ = self
                .first_host
                .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(HostFailure::join(failures).unwrap_or_else(|| self.silence()))
    }

    pub(super) fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Looks at all hosts of the address. Fails if two of them are primaries, or if the primary is older than another host.
    pub(super) async fn check_hosts(&self) -> Result<(), StoreError> {
        if !self.has_several_hosts() {
            return Ok(());
        }
        hosts::check(&look_at(self, self.hosts.iter()).await)
    }

    /// Looks at the hosts that are not in use, and leaves the one in use if another one is a newer primary.
    pub(super) async fn compare_hosts(&self) {
        let Some(used) = self.newest_primary.name() else {
            return;
        };
        let others = self.hosts.iter().filter(|host| name_of(host) != used);
        self.newest_primary.compare(&look_at(self, others).await);
    }

    /// Whether two hosts call themselves the primary, and nothing tells which one is newer.
    pub(super) fn is_disputed(&self) -> bool {
        self.newest_primary.is_disputed()
    }

    /// How long the making of a connection to this host may take.
    fn host_timeout(&self, host: &Config) -> Duration {
        let host_timeout = match self.hosts.len() {
            1 => CONNECT_TIMEOUT,
            _ => HOST_TIMEOUT,
        };
        host_timeout.max(*host.get_connect_timeout().unwrap_or(&host_timeout))
    }

    async fn connect_to(&self, host: &Config) -> Result<OpenConnection, StoreError> {
        let mut open = self.open(host).await.map_err(|error| unreachable(&error))?;
        self.newest_primary.check(&open.client, host).await?;
        open.primary_changes = self.newest_primary.changes();
        Ok(open)
    }

    async fn open(&self, host: &Config) -> Result<OpenConnection, Error> {
        let is_unreplicated = Arc::new(AtomicBool::new(false));
        let notices = Arc::clone(&is_unreplicated);
        let (client, driver) = if let Some(tls) = &self.tls {
            let (client, connection) = host.connect(tls.clone()).await?;
            (client, tokio::spawn(drive(connection, notices)))
        } else {
            let (client, connection) = host.connect(NoTls).await?;
            (client, tokio::spawn(drive(connection, notices)))
        };
        Ok(OpenConnection {
            client,
            driver: driver.abort_handle(),
            is_unreplicated,
            primary_changes: 0,
        })
    }

    /// The error of a server that has not answered.
    pub(super) fn silence(&self) -> StoreError {
        let index = self.first_host.load(Ordering::Relaxed);
        self.hosts.get(index).map_or(StoreError::Closed, silence_of)
    }

    /// The error of a call that the server has not answered.
    pub(super) fn silence_of_call(&self) -> StoreError {
        if self.awaits_standby() {
            StoreError::StandbyAwaited
        } else {
            self.silence()
        }
    }

    pub(super) fn awaits_standby(&self) -> bool {
        self.awaits_standby.load(Ordering::Relaxed)
    }

    pub(super) fn note_standby_awaited(&self, is_awaited: bool) {
        self.awaits_standby.store(is_awaited, Ordering::Relaxed);
    }
}

/// Asks these hosts what they are. A host that does not answer is left out: it may be a standby that is off.
async fn look_at(settings: &ConnectionSettings, hosts: impl Iterator<Item = &Config>) -> Vec<Server> {
    let mut looks = JoinSet::new();
    for host in hosts {
        let (settings, mut host) = (settings.clone(), host.clone());
        host.target_session_attrs(TargetSessionAttrs::Any);
        looks.spawn(async move {
            let looked = async {
                let open = settings.open(&host).await.ok()?;
                describe(&open.client, &host).await
            };
            timeout(settings.host_timeout(&host), looked).await.ok()?
        });
    }
    looks.join_all().await.into_iter().flatten().collect()
}

/// The error of this host if it has not answered.
fn silence_of(host: &Config) -> StoreError {
    StoreError::Unreachable(format!("{} did not answer in time", name_of(host)))
}

pub(super) struct OpenConnection {
    pub(super) client: Client,
    /// The task that reads from and writes to the socket.
    driver: AbortHandle,
    /// Whether the server has committed without waiting for its standby.
    is_unreplicated: Arc<AtomicBool>,
    /// [`NewestPrimary::changes`] when it was opened.
    primary_changes: u64,
}

impl OpenConnection {
    /// Ends a call that has not been answered in time, here and on the server.
    ///
    /// A server does not notice that the socket is closed while a commit waits for a lock or for the standby. Without the
    /// request to cancel it, each attempt would leave a connection there. A commit that no longer waits for the standby
    /// is stored, but not answered.
    fn cancel(self, settings: &ConnectionSettings) {
        self.driver.abort();
        let (call, tls) = (self.client.cancel_token(), settings.tls.clone());
        tokio::spawn(async move {
            let cancelled = async {
                match tls {
                    Some(tls) => call.cancel_query(tls).await,
                    None => call.cancel_query(NoTls).await,
                }
            };
            // The server may be gone.
            drop(timeout(CANCEL_TIMEOUT, cancelled).await);
        });
    }
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
                Err(_) => {
                    if let Some(open) = self.open.take() {
                        open.cancel(&self.settings);
                    }
                    CallError::Disconnected(self.settings.silence_of_call())
                }
            };
            if let CallError::Disconnected(error) = &failure {
                self.open = None;
                self.failure = Some(error.clone());
            }
            return Err(failure);
        }
    }

    async fn open(&mut self, deadline: Instant) -> Result<&OpenConnection, StoreError> {
        let newest = self.settings.newest_primary.changes();
        let is_usable = |open: &OpenConnection| !open.client.is_closed() && open.primary_changes == newest;
        if !self.open.as_ref().is_some_and(is_usable) {
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
                // What failed before says more.
                Err(_) => drop(self.failure.get_or_insert_with(|| self.settings.silence())),
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

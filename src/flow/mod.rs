//! The use cases: one verb per file, one transaction each. Load, ask the domain, save.
//!
//! A refusal by the protocol is an answer: its transaction is committed. Only a [`Failure`] rolls back. Nothing slow happens inside a transaction: passwords are hashed before it,
//! tokens are signed after it, random bytes are drawn before it because it may run twice.

pub mod account;
mod attempt_queue;
pub mod authenticate_client;
pub mod browser;
pub mod catalog;
mod catalog_rows;
pub mod census;
pub mod check_password;
pub mod client_check;
pub mod client_lookup;
mod client_room;
pub mod clock_watermark;
pub mod deliver;
pub mod device;
pub mod dpop_nonce;
mod dry_run;
pub mod factor_wait;
pub mod factors;
pub mod failed_passwords;
pub mod grant_policy;
pub mod lease;
pub mod login;
pub mod logout_notice;
#[cfg(feature = "postgres")]
mod newest_catalog;
pub mod node_digests;
pub mod notice;
pub mod one_time_link;
pub mod outbox;
pub mod passkey_challenge;
mod passkey_index;
pub mod register_client;
mod registrants;
pub mod remove_client;
pub mod replay;
pub mod rotate_keys;
pub mod secret_uses;
pub mod sweep;
pub mod token;
pub mod totp_setup;
pub mod unknown_scopes;
mod unused_clients;
pub mod upstream_token;
pub mod user_activity;
pub mod users;
mod verified_passkey;

use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "postgres")]
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use uuid::Uuid;

use self::attempt_queue::AttemptQueue;
pub use self::catalog::Catalog;
use self::census::LastCensus;
use self::deliver::DeliveryWaiters;
use self::factors::FactorCounts;
use self::grant_policy::GrantPolicy;
use self::login::begin_federation::FederationProblem;
use self::login::finish_federation::PendingAnswers;
use self::login::transaction::LoginTransactionError;
use self::one_time_link::request_mail::SignUpProblem;
use self::secret_uses::SecretUses;
use self::unknown_scopes::UnknownScopes;
use crate::clock::{Clock, Timestamp};
use crate::federation::Upstreams;
use crate::federation::upstreams::{OutboundPolicy, SetupError};
use crate::jose::keyring::SignError;
use crate::jose::signature_cache::SignatureCache;
use crate::oauth::authorize::UntrustedRedirect;
use crate::oauth::client_certificate::ClientAuthorities;
use crate::oauth::{Policy, Refusal};
use crate::password::{NotComputed, OutOfMemory, PasswordPool};
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::engine::Snapshot;
use crate::store::tables::{APIS, CLIENTS};
use crate::store::{Store, StoreError, TxError};

/// Why a flow has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many passwords are waiting to be checked.
    #[error("too many sign-ins at once: try again in a moment")]
    Busy,
    /// There is no memory for a password hash.
    #[error(transparent)]
    OutOfMemory(OutOfMemory),
    /// The sender is over a rate limit.
    #[error("too many requests: try again in {seconds} s")]
    Throttled {
        /// In how many seconds to try again.
        seconds: u64,
    },
    /// There is no key to sign with.
    #[error("no active signing key for {0}: run idsvc key rotate")]
    NoKey(&'static str),
    /// There is no key to derive refresh tokens from.
    #[error("the key of a refresh token is missing: restore a backup")]
    NoRefreshKey,
    /// Signing failed.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// Why a flow does not return what it was asked for. `R` says why the answer is no.
#[derive(Debug)]
pub enum FlowError<R = Refusal> {
    /// The answer is no. What the flow wrote is committed.
    Refused(R),
    /// The flow has no answer.
    Failed(Failure),
}

/// Makes a type a refusal of flows and of their transactions.
macro_rules! refusals {
    ($($refusal:ty),* $(,)?) => {$(
        impl From<$refusal> for FlowError<$refusal> {
            fn from(refusal: $refusal) -> Self {
                Self::Refused(refusal)
            }
        }

        impl From<$refusal> for TxError<$refusal> {
            fn from(refusal: $refusal) -> Self {
                Self::Refused(refusal)
            }
        }
    )*};
}

refusals! {
    Refusal,
    UntrustedRedirect,
    LoginTransactionError,
    FederationProblem,
    SignUpProblem,
}

/// What a flow returned, or `None` if it refused.
fn unless_refused<T, R>(answer: Result<T, FlowError<R>>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(FlowError::Refused(_)) => Ok(None),
        Err(FlowError::Failed(failure)) => Err(failure),
    }
}

impl<R> From<Failure> for FlowError<R> {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<R> From<StoreError> for FlowError<R> {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl<R> From<NotComputed> for FlowError<R> {
    fn from(reason: NotComputed) -> Self {
        Self::Failed(reason.into())
    }
}

impl<R> From<TxError<R>> for FlowError<R> {
    fn from(error: TxError<R>) -> Self {
        match error {
            TxError::Refused(refusal) => Self::Refused(refusal),
            TxError::Failed(error) => error.into(),
        }
    }
}

impl From<NotComputed> for Failure {
    fn from(reason: NotComputed) -> Self {
        match reason {
            NotComputed::Busy => Self::Busy,
            NotComputed::OutOfMemory(error) => Self::OutOfMemory(error),
            NotComputed::Throttled(wait) => Self::Throttled {
                seconds: wait.seconds(),
            },
        }
    }
}

/// Why the core could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A signing key could not be read back.
    #[error(transparent)]
    Key(#[from] rotate_keys::KeyUnreadable),
    /// The client for requests to providers could not be built.
    #[error(transparent)]
    Outbound(#[from] SetupError),
}

/// What all flows share, built once.
pub struct Core {
    pub store: Store,
    pub clock: Clock,
    /// The source of randomness.
    pub random: Random,
    /// Encryption at rest.
    pub sealer: Arc<Sealer>,
    /// The name of this process among those that use the store.
    pub node_id: Uuid,
    /// The operator's settings.
    pub policy: Arc<Policy>,
    /// The threads that hash passwords.
    pub passwords: PasswordPool,
    /// The client for requests to upstream providers, with a cache of what they publish.
    pub upstreams: Upstreams,
    /// The authorities whose certificates authenticate clients.
    pub client_authorities: Option<ClientAuthorities>,
    /// Signatures of access tokens that were verified before.
    pub signature_cache: SignatureCache,
    /// Scope values that clients ask for and that do not exist.
    pub unknown_scopes: UnknownScopes,
    /// The uses of secrets of clients that are not stored yet.
    pub secret_uses: SecretUses,
    catalog: Arc<ArcSwap<Catalog>>,
    /// One reload at a time: if two ran at once, the older picture could replace the newer one.
    reload_lock: tokio::sync::Mutex<()>,
    catch_up_lock: Mutex<()>,
    /// When the database was last asked for a newer catalog because a request named something unknown.
    #[cfg(feature = "postgres")]
    last_catalog_check: tokio::sync::Mutex<Option<Instant>>,
    /// Notified after a commit that put a message into the outbox.
    pub outbox_filled: Notify,
    /// Notified after a commit that may have queued logout notices.
    pub logout_queued: Notify,
    /// Who waits for the result of a message.
    pub delivery_waiters: DeliveryWaiters,
    /// The answers of providers that are being checked now.
    pending_answers: PendingAnswers,
    /// The user whose name was found last; read in place of an unknown one.
    last_found_user: Mutex<Uuid>,
    /// Attempts at passwords and codes that have no place in the row yet.
    attempts: Arc<AttemptQueue>,
    /// How many users have which factor, and when they were counted.
    factor_counts: Mutex<Option<(Timestamp, FactorCounts)>>,
    last_census: LastCensus,
}

impl Core {
    /// Runs a request. The catalog in memory is always the newest, because every store is local.
    #[cfg(not(feature = "postgres"))]
    pub async fn with_newest_catalog<F: Future>(&self, request: impl Fn() -> F) -> F::Output {
        request().await
    }

    /// Reads clients, providers and keys into memory. Creates no keys.
    pub fn open(
        store: Store,
        clock: Clock,
        random: Random,
        sealer: Sealer,
        policy: Policy,
        passwords: PasswordPool,
    ) -> Result<Self, OpenError> {
        let sealer = Arc::new(sealer);
        let room = policy.registration.room;
        let catalog = Arc::new(ArcSwap::from_pointee(Catalog::load_blocking(
            &store, &sealer, room,
        )?));
        store.follow_catalog(Catalog::reader(&catalog, &sealer, room))?;
        let upstreams = Upstreams::new(&OutboundPolicy::default(), policy.registration.room, &random)?;
        Ok(Self {
            upstreams,
            client_authorities: None,
            node_id: random.uuid_v4(),
            signature_cache: SignatureCache::default(),
            unknown_scopes: UnknownScopes::default(),
            secret_uses: SecretUses::default(),
            store,
            clock,
            random,
            sealer,
            policy: Arc::new(policy),
            passwords,
            catalog,
            reload_lock: tokio::sync::Mutex::default(),
            catch_up_lock: Mutex::default(),
            #[cfg(feature = "postgres")]
            last_catalog_check: tokio::sync::Mutex::default(),
            outbox_filled: Notify::new(),
            logout_queued: Notify::new(),
            delivery_waiters: DeliveryWaiters::default(),
            pending_answers: PendingAnswers::default(),
            last_found_user: Mutex::default(),
            attempts: Arc::default(),
            factor_counts: Mutex::default(),
            last_census: LastCensus::default(),
        })
    }

    /// Replaces the client for requests to providers by one with these settings.
    pub fn reaching(mut self, terms: &OutboundPolicy) -> Result<Self, SetupError> {
        self.upstreams = Upstreams::new(terms, self.policy.registration.room, &self.random)?;
        Ok(self)
    }

    /// The same, with these authorities for the certificates of clients.
    #[must_use]
    pub fn trusting(mut self, client_authorities: Option<ClientAuthorities>) -> Self {
        self.client_authorities = client_authorities;
        self
    }

    /// The clients, providers and keys as they are now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catch_up();
        self.catalog.load_full()
    }

    /// The rule that every grant checks in its transaction.
    pub fn grant_policy(&self) -> GrantPolicy {
        self.catch_up();
        GrantPolicy::new(&self.catalog)
    }

    /// Reads clients, providers and keys again, after an administrator changed some.
    pub async fn reload_catalog(&self) -> Result<(), OpenError> {
        if self.store.reload_catalog().await? {
            return Ok(());
        }
        let _one_at_a_time = self.reload_lock.lock().await;
        let read = Catalog::load(&self.store, &self.sealer, self.policy.registration.room).await?;
        self.catalog.store(Arc::new(read));
        Ok(())
    }

    /// Reads them again after a write, even if it failed or changed nothing: a write that failed may be on the disk,
    /// and so may an earlier one.
    pub async fn reload_after<T, W, E>(&self, written: Result<T, W>) -> Result<T, E>
    where
        E: From<W> + From<OpenError>,
    {
        let reloaded = self.reload_catalog().await;
        let written = written?;
        reloaded?;
        Ok(written)
    }

    /// Reads these clients again after a write, even after a failed one. The other clients are not read again. If one
    /// was removed, the APIs are read too, because they forget it.
    pub async fn reload_clients(&self, client_ids: &[String]) -> Result<(), StoreError> {
        if self.store.reload_catalog().await? {
            return Ok(());
        }
        let _one_at_a_time = self.reload_lock.lock().await;
        let reopenings = self.store.reopenings();
        let read = self.store.read(|snapshot| -> Result<_, StoreError> {
            let rows = client_ids.iter().map(|id| CLIENTS.get(snapshot, id));
            let clients: Vec<_> = rows.filter_map(Result::transpose).collect::<Result<_, _>>()?;
            let apis = (clients.len() < client_ids.len()).then(|| APIS.scan(snapshot, .., usize::MAX));
            Ok((clients, apis.transpose()?))
        });
        let (clients, apis) = read.await?;
        let catalog = self.catalog.load();
        if catalog.is_of(&self.store) && !catalog.change_registrants(client_ids, &clients) {
            return Ok(());
        }
        let mut with_them = catalog.with_changed(client_ids, clients, reopenings);
        if let Some(apis) = apis {
            with_them.set_apis(apis);
        }
        self.catalog.store(Arc::new(with_them));
        Ok(())
    }

    /// How much of the room is used up for clients that the operator did not register, in percent. `None` if there may be
    /// none.
    pub fn registrant_room_used(&self) -> Option<u64> {
        let most = self.policy.registration.most_clients;
        let used = || self.catalog().registrants().percent_used(most);
        self.policy.takes_registrants().then(used)
    }

    /// Runs [`Store::stream`] on a thread that may block. `name` is in the error if `look` panics.
    pub async fn stream<T: Send + 'static>(
        &self,
        name: &'static str,
        look: impl FnOnce(&dyn Snapshot) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.store.clone();
        let looked = tokio::task::spawn_blocking(move || store.stream(look)).await;
        looked.unwrap_or(Err(StoreError::Panicked(name)))
    }

    /// Reads them again if the store was reopened since they were read.
    fn catch_up(&self) {
        if self.catalog.load().is_of(&self.store) {
            return;
        }
        match self.reload_reopened() {
            Ok(()) => {}
            // The store logs its own outage.
            Err(OpenError::Store(error)) if error.is_outage() => {}
            Err(error) => tracing::error!(%error, "clients and keys cannot be read again"),
        }
    }

    /// Does not wait for a reload that is under way. If that one ends first, its catalog stays.
    fn reload_reopened(&self) -> Result<(), OpenError> {
        let _one_at_a_time = self.catch_up_lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let before = self.catalog.load_full();
            if before.is_of(&self.store) {
                return Ok(());
            }
            let read = Catalog::load_blocking(&self.store, &self.sealer, self.policy.registration.room)?;
            self.catalog.compare_and_swap(&before, Arc::new(read));
        }
    }
}

//! The use cases: one verb per file, one transaction each. Load, ask the domain, save.
//!
//! A flow answers with a value when the protocol says no, and that answer is committed like any other; only
//! a [`Failure`] rolls back. Nothing slow happens inside a transaction: passwords are hashed before it,
//! tokens are signed after it, random bytes are drawn before it because it may run twice.

pub mod account;
pub mod authenticate_client;
pub mod browser;
pub mod catalog;
pub mod check_password;
pub mod clock_watermark;
pub mod grant_policy;
pub mod login;
pub mod rotate_keys;
pub mod sweep;
pub mod token;
pub mod upstream_token;

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

pub use self::catalog::Catalog;
use self::grant_policy::GrantPolicy;
use crate::clock::Clock;
use crate::federation::Upstreams;
use crate::federation::upstreams::{SetupError, Terms};
use crate::jose::keyring::SignError;
use crate::jose::signature_cache::SignatureCache;
use crate::oauth::{Policy, Refusal};
use crate::password::PasswordPool;
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::{Store, StoreError};

/// The protocol's answer: what was asked for, or a refusal.
pub type Answer<T> = Result<T, Refusal>;

/// Why a flow came to no answer at all.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The store did not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many passwords wait to be checked.
    #[error("too many sign-ins at once: try again in a moment")]
    Busy,
    /// The sender has done this too often.
    #[error("too many requests: try again in {seconds} s")]
    Throttled {
        /// When to try again.
        seconds: u64,
    },
    /// There is no key to sign with.
    #[error("no active signing key for {0}: run idsvc key rotate")]
    NoKey(&'static str),
    /// Signing failed.
    #[error(transparent)]
    Sign(#[from] SignError),
}

impl From<crate::password::Busy> for Failure {
    fn from(_: crate::password::Busy) -> Self {
        Self::Busy
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
    /// The way to providers cannot be set up.
    #[error(transparent)]
    Outbound(#[from] SetupError),
}

/// What every flow needs, built once.
pub struct Core {
    /// Where everything is kept.
    pub store: Store,
    /// Where time comes from.
    pub clock: Clock,
    /// Where randomness comes from.
    pub random: Random,
    /// Encryption at rest.
    pub sealer: Sealer,
    /// What the operator decided.
    pub policy: Arc<Policy>,
    /// The threads that hash passwords.
    pub passwords: PasswordPool,
    /// The way to upstream providers, and what they publish.
    pub upstreams: Upstreams,
    /// The signatures of access tokens that were verified before.
    pub signature_cache: SignatureCache,
    catalog: Arc<ArcSwap<Catalog>>,
    reloading: Mutex<()>,
}

impl Core {
    /// Reads clients and keys into memory. Makes nothing.
    pub fn open(
        store: Store,
        clock: Clock,
        random: Random,
        sealer: Sealer,
        policy: Policy,
        passwords: PasswordPool,
    ) -> Result<Self, OpenError> {
        let catalog = ArcSwap::from_pointee(Catalog::load(&store, &sealer, &policy)?);
        let upstreams = Upstreams::new(&Terms::default(), &random)?;
        Ok(Self {
            upstreams,
            signature_cache: SignatureCache::default(),
            store,
            clock,
            random,
            sealer,
            policy: Arc::new(policy),
            passwords,
            catalog: Arc::new(catalog),
            reloading: Mutex::new(()),
        })
    }

    /// The same core, reaching providers on these terms.
    pub fn reaching(mut self, terms: &Terms) -> Result<Self, SetupError> {
        self.upstreams = Upstreams::new(terms, &self.random)?;
        Ok(self)
    }

    /// The clients, providers and keys as they are now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catch_up();
        self.catalog.load_full()
    }

    /// The one question of every grant, for a transaction to ask.
    pub fn grant_policy(&self) -> GrantPolicy {
        self.catch_up();
        GrantPolicy::new(&self.catalog)
    }

    /// Reads clients and keys again, after an administrator changed some.
    pub fn reload_catalog(&self) -> Result<(), OpenError> {
        self.reload(|_| true)
    }

    /// The same after a write that changes some, whatever came of it: where the store failed, the change may have been
    /// kept, and where there was nothing to change, an earlier one may have been.
    pub fn reload_after<T, E>(&self, written: Result<T, StoreError>) -> Result<T, E>
    where
        E: From<StoreError> + From<OpenError>,
    {
        let reloaded = self.reload_catalog();
        let written = written?;
        reloaded?;
        Ok(written)
    }

    /// Reads clients and keys again if the store was opened afresh since they were read.
    fn catch_up(&self) {
        if self.catalog.load().is_of(&self.store) {
            return;
        }
        match self.reload(|core| !core.catalog.load().is_of(&core.store)) {
            Ok(()) => {}
            // It has failed again, and the store says so itself.
            Err(OpenError::Store(error)) if error.is_outage() => {}
            Err(error) => tracing::error!(%error, "clients and keys cannot be read again"),
        }
    }

    /// One at a time: of two that read at once, the one that saw less must not have the last word.
    fn reload(&self, is_needed: fn(&Self) -> bool) -> Result<(), OpenError> {
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        if is_needed(self) {
            let read = Catalog::load(&self.store, &self.sealer, &self.policy)?;
            self.catalog.store(Arc::new(read));
        }
        Ok(())
    }
}

//! Opens the data directory and builds the core from it: issuer, keys, password threads.

use tokio::sync::watch;

use super::StartError;
use crate::config::{Config, Tls, host_of};
use crate::data_dir::access::exposure;
use crate::data_dir::lock::{DirectoryLock, is_served, wait_and_open};
use crate::data_dir::{DATABASE, DataDir, DataDirError, IfMissing};
use crate::flow::{Core, rotate_keys};
use crate::password::PasswordPool;
use crate::random::Random;
use crate::store::{OpenError, Store};

/// The hint for a development server that is started with another address than at its first start.
pub const USE_THE_SAME_ADDRESS: &str = "start it with the --listen or --base-url that it had";

/// The open data of the service.
pub struct OpenData {
    /// The core on the store.
    pub core: Core,
    pub store: Store,
    /// The lock on the data directory, if the store has none of its own.
    pub lock: Option<DirectoryLock>,
}

/// Opens or creates the data directory, and makes missing signing keys. Returns `None` if the process is told to stop
/// while another process has the data.
pub async fn open_core(
    config: &Config,
    stop_requests: &watch::Receiver<u32>,
) -> Result<Option<OpenData>, StartError> {
    let (settings, memory, random) = (&config.settings, &config.memory, Random::system());
    let data_dir = &settings.data_dir;
    // If this process may not use the socket, it opens the data. Either that works, or its error is the better message.
    let is_stopping = || *stop_requests.borrow() > 0;
    let opened = wait_and_open(
        || Ok(is_stopping() || is_served(data_dir).unwrap_or(false)),
        || {
            DataDir::open_caching(
                data_dir,
                settings.store.as_ref(),
                IfMissing::Create,
                memory.cache_bytes,
                &random,
            )
        },
    );
    let Some(data) = opened.map_err(StartError::new)? else {
        let path = match settings.store {
            Some(_) => data_dir.clone(),
            None => data_dir.join(DATABASE),
        };
        let refused = StartError::new(OpenError::AlreadyOpen { path });
        return if is_stopping() { Ok(None) } else { Err(refused) };
    };
    if let Some(exposure) = exposure(&settings.data_dir) {
        tracing::warn!("{exposure}");
    }
    if config.is_dev {
        data.claim_for_development().map_err(StartError::new)?;
    }
    let issuer = settle_issuer(&data, config).map_err(|error| match error {
        DataDirError::IssuerChanged { stored, .. } if config.is_dev => StartError {
            message: format!("this development server was set up as {stored}"),
            hint: Some(format!("{USE_THE_SAME_ADDRESS}, or name another --data-dir")),
        },
        other => StartError::new(other),
    })?;
    let pool = PasswordPool::start_within(memory.hash_limit_kib, settings.password_params, memory.passwords)
        .map_err(|error| StartError::new(format!("the password threads cannot be started: {error}")))?;
    let (store, lock) = (data.store.clone(), data.lock);
    let core = Core::open(
        data.store,
        store.clock(),
        random,
        data.sealer,
        settings.policy(&issuer),
        pool,
    )
    .map_err(StartError::new)?
    .reaching(&settings.outbound)
    .map_err(StartError::new)?
    .trusting(settings.mtls.authorities().map_err(StartError::new)?);
    store.announce(core.node_id).map_err(StartError::new)?;
    let is_first_start = core.catalog().keyring().keys().is_empty();
    for alg in rotate_keys::ensure_keys(&core).await.map_err(StartError::new)? {
        if is_first_start {
            tracing::info!(%alg, "made a signing key");
        } else {
            tracing::warn!(
                %alg,
                "made a signing key, which signs at once: verifiers that keep older key sets refuse what it signs. \
                 To change an algorithm, make its key five minutes before, with idsvc key rotate"
            );
        }
    }
    store.try_commit().await;
    Ok(Some(OpenData { core, store, lock }))
}

/// The issuer to use: the stored one if [`keeps_stored_issuer`], else the configured one.
fn settle_issuer(data: &DataDir, config: &Config) -> Result<String, DataDirError> {
    let stored = data.fixed_issuer_or(Some(&config.issuer))?;
    if keeps_stored_issuer(config, &stored) {
        return Ok(stored);
    }
    data.fix_or_check_issuer(&config.issuer)?;
    Ok(config.issuer.clone())
}

/// Whether the configured issuer only follows from the domains of the certificate, and the stored issuer is at one of
/// them. The stored issuer is kept in that case.
pub fn keeps_stored_issuer(config: &Config, stored: &str) -> bool {
    match &config.tls {
        Tls::Acme(plan) if config.issuer_is_derived => {
            host_of(stored).is_some_and(|host| plan.domains.contains(&host))
        }
        _ => false,
    }
}

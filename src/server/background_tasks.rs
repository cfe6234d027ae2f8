//! Starts and runs the background tasks: housekeeping, backups, certificates, themes and checks of the disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::StartError;
use super::clock_guard::ClockGuard;
use super::{acme_task, backup_schedule, census, node_digests, return_memory};
use crate::app::App;
use crate::clock::{BEAT_INTERVAL, Clock, SharedClock, Timestamp, uptime};
use crate::config::{Config, Tls};
use crate::data_dir::disk::RESERVE;
use crate::flow::{Core, clock_watermark, lease, rotate_keys, secret_uses, sweep};
use crate::net::acme::folder::Folder;
use crate::net::acme::renewal::Renewal;
use crate::net::tls::Acceptor;
use crate::net::tls_error::TlsError;
use crate::net::{notify, outbound};
use crate::observe::audit_file;

const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);
const THEME_INTERVAL: Duration = Duration::from_secs(1);
/// How often the free space is measured.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a change of the free space was logged.
const SPACE_LOG_PAUSE: Duration = Duration::from_mins(1);
/// How often the store is checked for a stall.
const STALL_INTERVAL: Duration = Duration::from_secs(5);
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_mins(1);
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the tasks, which run until they are aborted.
pub(crate) fn start(
    app: &Arc<App>,
    config: &Config,
    tls: Option<&Acceptor>,
    hangup: Signal,
) -> Result<JoinSet<()>, StartError> {
    let mut tasks = JoinSet::new();
    let order_request = Arc::new(Notify::new());
    if let (Tls::Acme(plan), Some(tls)) = (&config.tls, tls) {
        let folder = Folder::of(&config.settings.data_dir);
        let client = outbound::Client::new(&config.settings.outbound).map_err(StartError::new)?;
        acme_task::report_missing_certificate(app, plan, tls);
        let renewal = Renewal::new(plan.clone(), folder, client, tls.clone());
        tasks.spawn(acme_task::renew(
            Arc::clone(app),
            renewal,
            tls.clone(),
            Arc::clone(&order_request),
        ));
    }
    if let Some(interval) = config.backups.interval {
        let data_dir = config.settings.data_dir.clone();
        tasks.spawn(backup_schedule::run(
            Arc::clone(app),
            data_dir,
            interval,
            config.backups.clone(),
        ));
    }
    tasks.spawn(housekeeping(Arc::clone(app)));
    if config.metrics_listen.is_some() {
        tasks.spawn(census::run(Arc::clone(app)));
    }
    let digests = config.shared_digests.clone();
    tasks.spawn(node_digests::run(
        Arc::clone(app),
        node_digests::name_of(config),
        digests,
    ));
    if let Clock::Shared(clock) = app.core.clock.clone() {
        tasks.spawn(beat(clock));
    }
    tasks.spawn(store_secret_uses(Arc::clone(app)));
    tasks.spawn(return_memory::run());
    tasks.spawn(watch_themes(Arc::clone(app)));
    tasks.spawn(refresh_upstreams(Arc::clone(app)));
    tasks.spawn(watch_disk(Arc::clone(app)));
    tasks.spawn(watch_space(Arc::clone(app)));
    let clock = app.core.clock.clone();
    tasks.spawn(reload(tls.cloned(), hangup, clock.clone(), order_request));
    if let Some(tls) = tls.cloned() {
        tasks.spawn(tls.watch(CERTIFICATE_INTERVAL, move || clock.now().seconds()));
    }
    Ok(tasks)
}

/// On each SIGHUP, reads the certificate files again and starts an ACME order that waits after a failure.
async fn reload(tls: Option<Acceptor>, mut hangup: Signal, clock: Clock, order_request: Arc<Notify>) {
    while hangup.recv().await.is_some() {
        notify::reloading();
        order_request.notify_one();
        if tls.is_none() {
            tracing::info!("there is no certificate to read again: tls.mode is off");
        }
        if let Some(tls) = tls.clone() {
            let now = clock.now().seconds();
            let had_certificate = tls.has_certificate();
            let reloaded = tokio::task::spawn_blocking(move || {
                let has_changed = tls.reload(now)?;
                if !has_changed {
                    tls.warn_again(now);
                }
                Ok::<_, TlsError>(has_changed)
            });
            match reloaded.await {
                Ok(Ok(true)) => tracing::info!("new certificate in use"),
                Ok(Ok(false)) if had_certificate => tracing::info!("the certificate is unchanged"),
                Ok(Ok(false)) => tracing::info!("there is no certificate to read again yet"),
                Ok(Err(error)) => tracing::error!(%error, "keeping the old certificate"),
                Err(error) => tracing::error!(%error, "keeping the old certificate"),
            }
        }
        notify::ready();
    }
}

/// Lets the clock notice when this process stands still.
async fn beat(clock: Arc<SharedClock>) {
    loop {
        clock.beat();
        tokio::time::sleep(BEAT_INTERVAL).await;
    }
}

/// Reads the themes again after the operator has changed a file.
async fn watch_themes(app: Arc<App>) {
    loop {
        tokio::time::sleep(THEME_INTERVAL).await;
        let refreshed = Arc::clone(&app);
        match tokio::task::spawn_blocking(move || refreshed.themes.refresh()).await {
            Ok(true) => tracing::info!("themes were read again"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "themes were not read"),
        }
    }
}

/// Every minute, stores which secrets of clients were used.
async fn store_secret_uses(app: Arc<App>) {
    loop {
        tokio::time::sleep(HOUSEKEEPING_INTERVAL).await;
        if let Err(error) = secret_uses::store(&app.core).await
            && !error.is_outage()
        {
            tracing::error!(%error, "the uses of client secrets were not stored");
        }
    }
}

/// Stores the uses since the last minute when the service stops, unless the database does not answer.
pub(crate) async fn store_last_secret_uses(app: &App) {
    let stored = tokio::time::timeout(LAST_WRITE_TIMEOUT, secret_uses::store(&app.core)).await;
    if !matches!(stored, Ok(Ok(()))) {
        tracing::warn!("the uses of client secrets in the last minute were not stored");
    }
}

/// Every minute, refreshes the cached metadata and keys of providers and clients.
async fn refresh_upstreams(app: Arc<App>) {
    loop {
        let catalog = app.core.catalog();
        let issuers: Vec<_> = catalog
            .providers()
            .map(|provider| provider.issuer.clone())
            .collect();
        let (upstreams, now) = (&app.core.upstreams, app.core.clock.now());
        upstreams.refresh(&issuers, &catalog.jwks_uris(), now).await;
        tokio::time::sleep(HOUSEKEEPING_INTERVAL).await;
    }
}

/// Logs when the store stalls and when it answers again. A hanging disk or a long compaction raises no error.
async fn watch_disk(app: Arc<App>) {
    let mut was_stalled = false;
    loop {
        let stalled = app.core.store.stalled();
        match stalled {
            Some(stalled) if !was_stalled => tracing::error!("{stalled}"),
            None if was_stalled => tracing::warn!("the database answers again"),
            _ => {}
        }
        was_stalled = stalled.is_some();
        tokio::time::sleep(STALL_INTERVAL).await;
    }
}

/// Logs when the disk is nearly full and when it has room again, at most once a minute.
async fn watch_space(app: Arc<App>) {
    let mut was_short = false;
    loop {
        tokio::time::sleep(SPACE_INTERVAL).await;
        let Some(space) = app.space() else { continue };
        let is_short = space.lacking() > 0;
        if is_short == was_short {
            continue;
        }
        was_short = is_short;
        if is_short {
            tracing::warn!(
                free = space.free,
                kept = RESERVE,
                "the disk is nearly full: new anonymous users and registrations of clients are answered with 503, and a scheduled backup replaces older ones, or is not made"
            );
        } else {
            tracing::info!(free = space.free, "the disk has room again");
        }
        tokio::time::sleep(SPACE_LOG_PAUSE).await;
    }
}

/// Rotates keys and removes expired records and events, every minute, while the clock is trusted. A sweep that takes
/// longer goes on in the next minute. Of several nodes, one does this for all; each removes its own events.
async fn housekeeping(app: Arc<App>) {
    let core = &app.core;
    let now = core.clock.now();
    let watermark = clock_watermark::read(core, now).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the clock watermark was not read");
        None
    });
    let mut guard = ClockGuard::new(now, uptime(), watermark);
    let mut cursor = sweep::Cursor::default();
    let started = Instant::now();
    loop {
        let begun = Instant::now();
        let now = core.clock.now();
        if guard.is_trusted(now, uptime()) {
            audit_file::remove_expired(now);
            // The first minute is left out: a time server may still correct the clock.
            let is_settled = started.elapsed() >= HOUSEKEEPING_INTERVAL;
            // A node whose clock is not trusted does not ask, so that another one takes the lease.
            if lease::acquire_or_log(core, lease::HOUSEKEEPING).await {
                keep_keys(core, is_settled.then_some(now)).await;
            }
        }
        while let Some(pause) = sweep_page(core, &mut cursor, &mut guard).await {
            tokio::time::sleep(pause).await;
            if begun.elapsed() >= HOUSEKEEPING_INTERVAL {
                break;
            }
        }
        tokio::time::sleep(HOUSEKEEPING_INTERVAL.saturating_sub(begun.elapsed())).await;
    }
}

/// Rotates keys, and stores the time if there is one.
async fn keep_keys(core: &Core, watermark: Option<Timestamp>) {
    if let Err(error) = rotate_keys::keep(core).await {
        tracing::error!(%error, "signing keys were not rotated");
    }
    if let Some(now) = watermark
        && let Err(error) = clock_watermark::advance(core, now).await
    {
        tracing::error!(%error, "the clock watermark was not stored");
    }
}

/// Sweeps a page if the clock is trusted and this node does the housekeeping. Returns the pause before the next page, or `None` if nothing is left to do
/// for now.
async fn sweep_page(core: &Core, cursor: &mut sweep::Cursor, guard: &mut ClockGuard) -> Option<Duration> {
    let now = core.clock.now();
    if !guard.is_trusted(now, uptime()) || !lease::acquire_or_log(core, lease::HOUSEKEEPING).await {
        return None;
    }
    let begun = Instant::now();
    match sweep::sweep(core, cursor, now).await {
        Ok(swept) => swept
            .pause(begun.elapsed())
            .map(|pause| pause.min(HOUSEKEEPING_INTERVAL)),
        Err(error) => {
            tracing::error!(%error, "expired records were not removed");
            None
        }
    }
}

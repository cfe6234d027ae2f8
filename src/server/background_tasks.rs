//! The tasks that run beside the answers: housekeeping, backups, certificates, themes, and a look at the disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::StartError;
use super::clock_guard::ClockGuard;
use super::{acme_task, backup_schedule};
use crate::app::App;
use crate::clock::{Clock, uptime};
use crate::config::{Config, Tls};
use crate::flow::{Core, clock_watermark, rotate_keys, sweep};
use crate::net::acme::folder::Folder;
use crate::net::acme::renewal::Renewal;
use crate::net::tls::Acceptor;
use crate::net::{notify, outbound};

const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);
const THEME_INTERVAL: Duration = Duration::from_secs(1);
const ROOM_INTERVAL: Duration = Duration::from_secs(1);
/// How often is looked whether the disk hangs.
const DISK_INTERVAL: Duration = Duration::from_secs(5);
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_mins(1);

/// Starts the tasks. They run until they are aborted.
pub(crate) fn start(
    app: &Arc<App>,
    config: &Config,
    tls: Option<&Acceptor>,
    hangup: Signal,
) -> Result<JoinSet<()>, StartError> {
    let mut tasks = JoinSet::new();
    let haste = Arc::new(Notify::new());
    if let (Tls::Acme(plan), Some(tls)) = (&config.tls, tls) {
        let folder = Folder::of(&config.settings.data_dir);
        let client = outbound::Client::new(&config.settings.outbound).map_err(StartError::new)?;
        acme_task::begin(app, plan, tls);
        let renewal = Renewal::new(plan.clone(), folder, client, tls.clone());
        tasks.spawn(acme_task::keep(
            Arc::clone(app),
            renewal,
            tls.clone(),
            Arc::clone(&haste),
        ));
    }
    if let Some(interval) = config.backups.interval {
        let data_dir = config.settings.data_dir.clone();
        tasks.spawn(backup_schedule::keep(
            Arc::clone(app),
            data_dir,
            interval,
            config.backups,
        ));
    }
    tasks.spawn(keep_house(Arc::clone(app)));
    tasks.spawn(watch_themes(Arc::clone(app)));
    tasks.spawn(keep_fresh(Arc::clone(app)));
    tasks.spawn(watch_disk(Arc::clone(app)));
    tasks.spawn(watch_room(Arc::clone(app)));
    let clock = app.core.clock.clone();
    tasks.spawn(reload(tls.cloned(), hangup, clock.clone(), haste));
    if let Some(tls) = tls.cloned() {
        tasks.spawn(tls.watch(CERTIFICATE_INTERVAL, move || clock.now().seconds()));
    }
    Ok(tasks)
}

/// Reads the certificates again whenever SIGHUP comes, and orders at once what waits to be ordered again.
async fn reload(tls: Option<Acceptor>, mut hangup: Signal, clock: Clock, haste: Arc<Notify>) {
    while hangup.recv().await.is_some() {
        notify::reloading();
        haste.notify_one();
        if tls.is_none() {
            tracing::info!("there is no certificate to read again: tls.mode is off");
        }
        if let Some(tls) = tls.clone() {
            let (now, is_there) = (clock.now().seconds(), tls.has_certificate());
            match tokio::task::spawn_blocking(move || tls.reload(now)).await {
                Ok(Ok(true)) => tracing::info!("new certificate in use"),
                Ok(Ok(false)) if is_there => tracing::info!("the certificate is unchanged"),
                Ok(Ok(false)) => tracing::info!("there is no certificate to read again yet"),
                Ok(Err(error)) => tracing::error!(%error, "keeping the old certificate"),
                Err(error) => tracing::error!(%error, "keeping the old certificate"),
            }
        }
        notify::ready();
    }
}

/// Picks up what the operator changes in themes.
async fn watch_themes(app: Arc<App>) {
    loop {
        tokio::time::sleep(THEME_INTERVAL).await;
        let looked = Arc::clone(&app);
        match tokio::task::spawn_blocking(move || looked.themes.refresh()).await {
            Ok(true) => tracing::info!("themes were read again"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "themes were not read"),
        }
    }
}

/// Fetches again, every minute, what others publish and this service remembers.
async fn keep_fresh(app: Arc<App>) {
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

/// Says when the disk hangs, which no error tells, or a compaction lasts, and when that is over.
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
        tokio::time::sleep(DISK_INTERVAL).await;
    }
}

/// Looks, while the disk is nearly full, how much of the database holds nothing any more, for others to use; at most a
/// twentieth of the time is spent on that.
async fn watch_room(app: Arc<App>) {
    let mut was_short = false;
    loop {
        let begun = Instant::now();
        let short = app.low_disk_space();
        match &short {
            Some(space) if !was_short => {
                tracing::warn!(
                    free = space.free,
                    kept = space.reserve(),
                    "the disk is nearly full: sign-ins that begin are answered with 503 unless the database file has unused room"
                );
            }
            None if was_short => tracing::info!("the disk has room again"),
            _ => {}
        }
        was_short = short.is_some();
        app.set_spare_bytes(if was_short {
            app.core.store.spare().await.unwrap_or(0)
        } else {
            0
        });
        tokio::time::sleep(ROOM_INTERVAL.max(begun.elapsed() * 20)).await;
    }
}

/// Moves keys on and removes what has expired, every minute, unless the clock is not to be believed. A round of the
/// sweep that takes longer goes on in the next minute.
async fn keep_house(app: Arc<App>) {
    let core = &app.core;
    let now = core.clock.now();
    let watermark = clock_watermark::read(core, now).unwrap_or_else(|error| {
        tracing::error!(%error, "the time to compare the clock with was not read");
        None
    });
    let mut guard = ClockGuard::new(now, uptime(), watermark);
    let mut cursor = sweep::Cursor::default();
    let started = Instant::now();
    loop {
        let begun = Instant::now();
        let now = core.clock.now();
        if guard.is_believed(now, uptime()) {
            if let Err(error) = rotate_keys::keep(core).await {
                tracing::error!(%error, "signing keys were not moved on");
            }
            // Not at the start: a time server may yet set the clock right.
            if started.elapsed() >= HOUSEKEEPING_INTERVAL
                && let Err(error) = clock_watermark::advance(core, now).await
            {
                tracing::error!(%error, "the time was not stored");
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

/// Sweeps a page if the clock is to be believed. Returns how long to wait before the next one; none when there is
/// nothing more to do for now.
async fn sweep_page(core: &Core, cursor: &mut sweep::Cursor, guard: &mut ClockGuard) -> Option<Duration> {
    let now = core.clock.now();
    if !guard.is_believed(now, uptime()) {
        return None;
    }
    let begun = Instant::now();
    match sweep::sweep(core, cursor, now).await {
        Ok(swept) => swept
            .pause(begun.elapsed())
            .map(|pause| pause.min(HOUSEKEEPING_INTERVAL)),
        Err(error) => {
            tracing::error!(%error, "what has expired was not removed");
            None
        }
    }
}

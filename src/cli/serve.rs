//! `idsvc serve`: builds the service from its settings and runs it until it is told to stop.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::Global;
use super::output::{CliError, Output};
use super::setting_flags::SettingFlags;
use crate::admin::Admin;
use crate::app::App;
use crate::clock::{Clock, uptime};
use crate::config::resolve::resolve;
use crate::config::{Config, Tls, host_of};
use crate::control;
use crate::control::server::ControlSocket;
use crate::data_dir::lock::{is_served, wait_and_open};
use crate::data_dir::{DATABASE, DataDir, DataDirError, control_socket, exposure, io_error};
use crate::flow::{Core, clock_watermark, rotate_keys, sweep};
use crate::http::error::fallback;
use crate::http::{self, respond};
use crate::net::acme::folder::Folder;
use crate::net::acme::renewal::Renewal;
use crate::net::inherited::Inherited;
use crate::net::listener::Listener;
use crate::net::notify;
use crate::net::outbound;
use crate::net::tls::Acceptor;
use crate::observe::log;
use crate::password::PasswordPool;
use crate::random::Random;
use crate::route::Route;
use crate::server::clock_guard::ClockGuard;
use crate::server::dev;
use crate::server::dev::Example;
use crate::server::{acme_task, backup_schedule, listen};
use crate::store::{OpenError, Store};
use crate::themes::theme_set::Themes;

const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);
const THEME_INTERVAL: Duration = Duration::from_secs(1);
const ROOM_INTERVAL: Duration = Duration::from_secs(1);
/// How often is looked whether the disk hangs.
const DISK_INTERVAL: Duration = Duration::from_secs(5);
/// How long the process waits at its end for what it does beside the answers.
const LAST_WAIT: Duration = Duration::from_secs(3);
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_mins(1);

/// What to do where the development server has another address than at its first start: it follows from flags, which
/// come with each start.
pub(super) const AS_IT_WAS: &str = "start it with the --listen or --base-url that it had";

/// How to run the service.
#[derive(Debug, Args)]
pub struct Serve {
    /// Start for development: on loopback, with a certificate, data directory, client and user of its own
    #[arg(long)]
    pub dev: bool,
    /// The settings.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// Runs the service until it is told to stop.
pub fn run(serve: &Serve, global: &Global, output: &mut Output<'_>) -> Result<(), CliError> {
    let mut sources = global.sources(serve.settings.clone().into_given());
    if serve.dev {
        sources = sources.for_development();
    }
    let config = resolve(&sources).map_err(CliError::refused)?;
    let inherited = Inherited::take().map_err(CliError::refused)?;
    log::start(config.log, &config.settings)
        .map_err(|error| CliError::refused(format!("the log cannot be started: {error}")))?;
    for warning in &sources.warnings {
        tracing::warn!("{warning}");
    }
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CliError::refused)?;
    run_to_end(runtime, serve_until_stopped(&config, inherited, output))
}

/// Runs what there is to run. What then still goes on beside it gets a moment to end and is left behind: checking a large
/// backup takes longer than whoever stops the process waits. The file of a backup that is not done is removed before
/// the next one is made.
fn run_to_end<T>(runtime: Runtime, service: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(service);
    runtime.shutdown_timeout(LAST_WAIT);
    ended
}

async fn serve_until_stopped(
    config: &Config,
    inherited: Inherited,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let stops = stops().map_err(CliError::refused)?;
    let hangup = signal(SignalKind::hangup()).map_err(CliError::refused)?;
    let clock = Clock::System;
    let edge = listen::edge(config);
    let listener = listen::public(config, inherited.public, edge.clone()).await?;
    let metrics = listen::metrics(config, inherited.metrics, edge).await?;
    let data_dir = &config.settings.data_dir;
    let now = clock.now().seconds();
    // What the operator's files get wrong is said before the first start fixes anything.
    let tls = match &config.tls {
        Tls::Files { cert, key } => {
            let acceptor = Acceptor::from_files(cert, key, config.host(), now);
            Some(acceptor.map_err(CliError::refused)?)
        }
        Tls::Acme(_) | Tls::SelfSigned | Tls::Off => None,
    };
    let Some((core, store)) = open_core(config, &clock, &stops).await? else {
        tracing::info!("stopped before the data could be opened");
        return Ok(());
    };
    let tls = match &config.tls {
        Tls::Acme(plan) => {
            let acceptor = Acceptor::acme(&Folder::of(data_dir), &plan.domains, now);
            Some(acceptor.map_err(CliError::refused)?)
        }
        Tls::SelfSigned => {
            let names: Vec<String> = config.host().into_iter().collect();
            Some(Acceptor::self_signed(data_dir, &names, now).map_err(CliError::refused)?)
        }
        Tls::Files { .. } | Tls::Off => tls,
    };
    let example = if config.is_dev {
        Some(dev::prepare(&core).await.map_err(CliError::refused)?)
    } else {
        None
    };
    let listening: Vec<String> = listener.local_addrs().iter().map(ToString::to_string).collect();
    if let Some(example) = &example {
        match announce(&listening, &config.issuer, example, output) {
            Err(CliError::BrokenPipe) => tracing::warn!("nobody reads how to sign in"),
            announced => announced?,
        }
    }
    let app = Arc::new(furnish(config, core, example));
    let control = take_commands(&app, config, stops.clone())?;
    let mut tasks = start_tasks(&app, config, tls.as_ref(), hangup, &clock)?;
    if let Some(metrics) = metrics {
        expose(metrics, Arc::clone(&app), tls.clone(), stops.clone());
    }
    tracing::info!(issuer = %app.core.policy.issuer, listening = listening.join(" "), data_dir = %data_dir.display(), "ready");
    notify::ready();
    let (answered, unanswered) = (Arc::clone(&app), Arc::clone(&app));
    let listener = listener.with_fallback(move |request| fallback(&unanswered, &request));
    let service = move |request, peer| respond(Arc::clone(&answered), request, peer);
    let until_told = {
        let stops = stops.clone();
        async move {
            told(stops, 1).await;
            tracing::info!("stopping: finishing what has begun");
            notify::stopping();
        }
    };
    tokio::select! {
        () = listener.serve(tls, service, until_told) => {}
        () = told(stops, 2) => tracing::warn!("told to stop again: not waiting any longer"),
    }
    tasks.abort_all();
    if control.await.is_err() {
        tracing::error!("the control socket ended in a panic");
    }
    // Closing waits for what is queued; blocking here delays nobody any more.
    store.close();
    tracing::info!("stopped");
    Ok(())
}

/// The service of this core, with the operator's proxies, themes and disk.
fn furnish(config: &Config, core: Core, example: Option<Example>) -> App {
    let settings = &config.settings;
    // A proxy may name another host than the browser did: who is sent to the right one would come back in a circle.
    let names = match &config.tls {
        Tls::Acme(plan) if config.trusted_proxies.is_empty() => plan.domains.as_slice(),
        _ => &[],
    };
    App::with_themes(
        core,
        config.trusted_proxies.clone(),
        config.limits.clone(),
        example.map(|example| example.site),
        |base_path| Themes::open(base_path, &settings.theme, Some(&settings.theme_dir)),
    )
    .with_data_in(settings.data_dir.clone())
    .with_names(names)
}

/// Answers those who collect metrics, until the process is told to stop.
fn expose(listener: Listener, app: Arc<App>, tls: Option<Acceptor>, stops: watch::Receiver<u32>) {
    let service = move |request, _| {
        let (app, not_after) = (Arc::clone(&app), tls.as_ref().and_then(Acceptor::not_after));
        async move { http::metrics::expose(&app, not_after, &request) }
    };
    tokio::spawn(async move { listener.serve(None, service, told(stops, 1)).await });
}

/// Starts what goes on beside the answers until it is broken off.
fn start_tasks(
    app: &Arc<App>,
    config: &Config,
    tls: Option<&Acceptor>,
    hangup: Signal,
    clock: &Clock,
) -> Result<JoinSet<()>, CliError> {
    let mut tasks = JoinSet::new();
    let haste = Arc::new(Notify::new());
    if let (Tls::Acme(plan), Some(tls)) = (&config.tls, tls) {
        let folder = Folder::of(&config.settings.data_dir);
        let client = outbound::Client::new(&config.settings.outbound).map_err(CliError::refused)?;
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
    tasks.spawn(reload(tls.cloned(), hangup, clock.clone(), haste));
    if let Some(tls) = tls.cloned() {
        let clock = clock.clone();
        tasks.spawn(tls.watch(CERTIFICATE_INTERVAL, move || clock.now().seconds()));
    }
    Ok(tasks)
}

/// Answers commands on the control socket, until the process is told to stop.
fn take_commands(
    app: &Arc<App>,
    config: &Config,
    stops: watch::Receiver<u32>,
) -> Result<JoinHandle<()>, CliError> {
    let path = control_socket(&config.settings.data_dir);
    let socket = ControlSocket::bind(&path).map_err(|error| CliError::refused(io_error(&path)(error)))?;
    let (commanded, poured) = (Arc::clone(app), Arc::clone(app));
    let execute = move |command| {
        let app = Arc::clone(&commanded);
        async move { control::execute(Admin { core: &app.core }, command).await }
    };
    let pour = move |command, sink: &mut dyn Write| {
        control::pour(&poured.core, command, sink)
            .inspect_err(|error| tracing::warn!(%error, "a command was not answered to the end"))
    };
    Ok(tokio::spawn(socket.serve(execute, pour, told(stops, 1))))
}

/// Opens the data directory, or makes it, and sees to it that there are keys. Nothing comes of it where the process is
/// told to stop while another one has the data.
async fn open_core(
    config: &Config,
    clock: &Clock,
    stops: &watch::Receiver<u32>,
) -> Result<Option<(Core, Store)>, CliError> {
    let (settings, random) = (&config.settings, Random::system());
    let data_dir = &settings.data_dir;
    // A socket that this process may not use was left by another user, if the data can be opened; else that says why.
    let is_told = || *stops.borrow() > 0;
    let opened = wait_and_open(
        || Ok(is_told() || is_served(data_dir).unwrap_or(false)),
        || DataDir::open(data_dir, true, &random),
    );
    let Some(data) = opened.map_err(CliError::refused)? else {
        let path = settings.data_dir.join(DATABASE);
        let refused = CliError::refused(OpenError::AlreadyOpen { path });
        return if is_told() { Ok(None) } else { Err(refused) };
    };
    if let Some(exposure) = exposure(&settings.data_dir) {
        tracing::warn!("{exposure}");
    }
    if config.is_dev {
        data.settle_development().map_err(CliError::refused)?;
    }
    let issuer = settle_issuer(&data, config).map_err(|error| match error {
        DataDirError::IssuerChanged { stored, .. } if config.is_dev => CliError::Refused {
            message: format!("this development server was set up as {stored}"),
            hint: Some(format!("{AS_IT_WAS}, or name another --data-dir")),
        },
        other => CliError::refused(other),
    })?;
    let pool = PasswordPool::start(settings.password_params, settings.password_pool_size())
        .map_err(|error| CliError::refused(format!("the password threads cannot be started: {error}")))?;
    let store = data.store.clone();
    let core = Core::open(
        data.store,
        clock.clone(),
        random,
        data.sealer,
        settings.policy(&issuer),
        pool,
    )
    .map_err(CliError::refused)?
    .reaching(&settings.outbound)
    .map_err(CliError::refused)?;
    let is_first_start = core.catalog().keyring().keys().is_empty();
    for alg in rotate_keys::ensure_keys(&core).await.map_err(CliError::refused)? {
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
    Ok(Some((core, store)))
}

/// The issuer of the first start. One that follows from the domains of the certificate gives way to it, if it is at
/// one of them.
fn settle_issuer(data: &DataDir, config: &Config) -> Result<String, DataDirError> {
    let stored = data.issuer_or(Some(&config.issuer))?;
    if gives_way(config, &stored) {
        return Ok(stored);
    }
    data.settle_issuer(&config.issuer)?;
    Ok(config.issuer.clone())
}

/// Whether the configured issuer is one that follows from the domains of the certificate, and the one that was fixed is
/// at one of them.
pub(super) fn gives_way(config: &Config, stored: &str) -> bool {
    match &config.tls {
        Tls::Acme(plan) if config.issuer_is_derived => {
            host_of(stored).is_some_and(|host| plan.domains.contains(&host))
        }
        _ => false,
    }
}

/// The three lines of the development server.
fn announce(
    listening: &[String],
    issuer: &str,
    example: &Example,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let discovery = Route::OpenidConfiguration.url(issuer);
    if output.json {
        return output.document(&serde_json::json!({
            "listen": listening,
            "issuer": issuer,
            "discovery": discovery,
            "username": dev::USER,
            "password": example.password.as_str(),
            "client_id": dev::CLIENT,
            "client_secret": example.site.client_secret.as_str(),
        }));
    }
    output.line(&format!("listening  {} ({issuer}/)", listening.join(" ")))?;
    output.line(&format!("discovery  {discovery}"))?;
    output.line(&format!(
        "sign in    {} with the password {}",
        dev::USER,
        example.password.as_str()
    ))
}

/// How often the process was told to stop, by SIGTERM or SIGINT.
fn stops() -> std::io::Result<watch::Receiver<u32>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, receiver) = watch::channel(0_u32);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            sender.send_modify(|count| *count = count.saturating_add(1));
        }
    });
    Ok(receiver)
}

/// Waits until the process has been told to stop that often.
async fn told(mut stops: watch::Receiver<u32>, times: u32) {
    if stops.wait_for(|count| *count >= times).await.is_err() {
        std::future::pending::<()>().await;
    }
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
        let short = app.short_space();
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
        app.count_on(if was_short {
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
    let mut cursor = sweep::Cursor::default();
    let now = app.core.clock.now();
    let known = clock_watermark::read(&app.core, now).unwrap_or_else(|error| {
        tracing::error!(%error, "what the clock is to be held against was not read");
        None
    });
    let mut guard = ClockGuard::new(now, uptime(), known);
    let started = Instant::now();
    loop {
        let begun = Instant::now();
        let now = app.core.clock.now();
        if guard.is_believed(now, uptime()) {
            if let Err(error) = rotate_keys::keep(&app.core).await {
                tracing::error!(%error, "signing keys were not moved on");
            }
            // Not at the start: a time server may yet set the clock right.
            if started.elapsed() >= HOUSEKEEPING_INTERVAL
                && let Err(error) = clock_watermark::advance(&app.core, now).await
            {
                tracing::error!(%error, "the time was not noted");
            }
            while let Some(pause) = sweep_page(&app.core, &mut cursor, &mut guard).await {
                tokio::time::sleep(pause).await;
                if begun.elapsed() >= HOUSEKEEPING_INTERVAL {
                    break;
                }
            }
        }
        tokio::time::sleep(HOUSEKEEPING_INTERVAL.saturating_sub(begun.elapsed())).await;
    }
}

/// Sweeps a page, and says how long to wait before the next one; none when there is nothing more to do for now.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_process_ends_whatever_goes_on_beside_it() {
        let (release, held) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            runtime.spawn_blocking(move || {
                begun.send(()).unwrap();
                held.recv()
            });
            begins.recv().unwrap();
            ended.send(run_to_end(runtime, async { 7 }))
        });
        assert_eq!(ends.recv_timeout(LAST_WAIT * 10), Ok(7));
        drop(release);
    }
}

//! Runs the service, from its settings to the last answer.

use std::future::ready;
use std::io::{self, Write};
use std::sync::Arc;

use ::http::Request;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::dev::{self, Example};
use super::open::{OpenData, open_core};
use super::shutdown::{run_to_end, stop_requested, stop_requests};
use super::{StartError, background_tasks, backup_schedule, listen, logout_sender, mail_sender};
use crate::admin::Admin;
use crate::admin::operations::{Call, StreamCall};
use crate::admin::stream::StreamError;
use crate::app::App;
use crate::clock::{Clock, uptime};
use crate::config::memory::MemoryPlan;
use crate::config::{Config, Tls};
use crate::control::server::ControlSocket;
use crate::data_dir::{control_socket, io_error};
use crate::flow::Core;
use crate::http::error::fallback;
use crate::http::{self, respond};
use crate::net::chain::KnownRoots;
use crate::net::inherited::Inherited;
use crate::net::listener::Listener;
use crate::net::notify;
use crate::net::open_connections::OpenConnections;
use crate::net::tls::Acceptor;
use crate::observe::readings::Readings;
use crate::route::Route;
use crate::themes::folder::ThemeFolder;
use crate::themes::theme_set::Themes;

/// The most requests for metrics that read the disk at the same time.
const METRICS_AT_ONCE: usize = 4;

/// The values that the development server prints once it listens.
pub struct Announcement<'a> {
    /// The addresses that it listens on.
    pub listening: &'a [String],
    pub issuer: &'a str,
    /// The page of the mails, if they are kept in memory instead of sent.
    pub mails: Option<String>,
    /// The example client and user.
    pub example: &'a Example,
}

/// Runs the service until it is told to stop. Only the development server calls `announce`.
pub fn run(
    config: &Config,
    inherited: Inherited,
    announce: impl FnOnce(&Announcement<'_>) -> Result<(), StartError>,
) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(StartError::new)?;
    run_to_end(runtime, serve_until_stopped(config, inherited, announce))
}

async fn serve_until_stopped(
    config: &Config,
    inherited: Inherited,
    announce: impl FnOnce(&Announcement<'_>) -> Result<(), StartError>,
) -> Result<(), StartError> {
    let stops = stop_requests().map_err(StartError::new)?;
    let hangup = signal(SignalKind::hangup()).map_err(StartError::new)?;
    let limits = listen::connection_limits(config);
    let max_connections = limits.max_connections;
    let listener = listen::public(config, inherited.public, limits.clone()).await?;
    let metrics = listen::metrics(config, inherited.metrics, limits.clone()).await?;
    let redirect = listen::redirect(config, inherited.redirect, limits.clone()).await?;
    let mtls = listen::mtls(config, inherited.mtls, limits).await?;
    // A fault in the operator's certificate ends the first start before it stores anything.
    let file_certificate = certificate_from_files(config)?;
    let Some(OpenData { core, store, lock }) = open_core(config, &stops).await? else {
        tracing::info!("stopped before the data could be opened");
        return Ok(());
    };
    let tls = match file_certificate {
        Some(certificate) => Some(certificate),
        None => managed_certificate(config)?,
    };
    let listening = addresses(&listener);
    let example = if config.is_dev {
        let example = dev::prepare(&core).await.map_err(StartError::new)?;
        announce(&Announcement {
            listening: &listening,
            issuer: &config.issuer,
            mails: catches_mail(config).then(|| Route::DevMail.url(&config.issuer)),
            example: &example,
        })?;
        Some(example)
    } else {
        None
    };
    let app = Arc::new(build_app(config, core, example));
    let control = serve_commands(&app, config, stops.clone())?;
    let mut tasks = background_tasks::start(&app, config, tls.as_ref(), hangup)?;
    let mails = mail_sender::start(
        &app,
        config.settings.mail.clone(),
        &config.settings.outbound,
        stops.clone(),
    )?;
    let logouts = logout_sender::start(&app, stops.clone());
    if let Some(metrics) = metrics {
        let readings = server_readings(Arc::clone(&app), config, listener.open_connections(), tls.clone());
        serve_metrics(metrics, Arc::clone(&app), readings, stops.clone());
    }
    if let Some(redirect) = redirect {
        serve_redirect(redirect, Arc::clone(&app), stops.clone());
    }
    log_memory_plan(&config.memory, max_connections);
    let mtls_address = mtls.as_ref().map(|mtls| addresses(mtls).join(" "));
    let problem = app.core.store.problem();
    let message = match &problem {
        None => "ready",
        Some(_) => "started, and not ready yet",
    };
    tracing::info!(issuer = %app.core.policy.issuer, listening = listening.join(" "), mtls = mtls_address, data_dir = %config.settings.data_dir.display(), store = config.settings.store.as_ref().map(tracing::field::display), problem, "{message}");
    notify::ready();
    serve_requests(listener, mtls, Arc::clone(&app), tls, stops).await;
    tasks.abort_all();
    let last_uses = background_tasks::store_last_secret_uses(&app);
    tokio::join!(mails.finish(), logouts.finish(), last_uses);
    drop(app);
    if control.await.is_err() {
        tracing::error!("the control socket ended in a panic");
    }
    // Closing waits for queued writes. Blocking is fine here: no request is left.
    store.close();
    drop(lock);
    tracing::info!("stopped");
    Ok(())
}

fn addresses(listener: &Listener) -> Vec<String> {
    listener.local_addrs().iter().map(ToString::to_string).collect()
}

/// Logs what memory is shared out to.
fn log_memory_plan(plan: &MemoryPlan, connections: usize) {
    let mib = plan.limit.map(|limit| limit.bytes >> 20);
    let origin = plan.limit.map(|limit| limit.origin.to_string());
    tracing::info!(
        mib,
        origin = origin.as_deref().unwrap_or("defaults"),
        connections,
        mtls_connections = (plan.mtls_connections > 0).then_some(plan.mtls_connections),
        requests = plan.requests,
        passwords_at_once = plan.passwords.threads,
        database_cache_mib = plan.cache_bytes >> 20,
        bodies_mib = plan.bodies_kib >> 10,
        "sized for the memory"
    );
}

/// The certificate in the operator's files, if the settings name any.
fn certificate_from_files(config: &Config) -> Result<Option<Acceptor>, StartError> {
    let Tls::Files { cert, key } = &config.tls else {
        return Ok(None);
    };
    let known_roots = KnownRoots::of(&config.settings.outbound);
    Acceptor::from_files(
        cert,
        key,
        config.host(),
        known_roots,
        Clock::System.now().seconds(),
    )
    .map(Some)
    .map_err(StartError::new)
}

/// The certificate that the service orders or makes itself, if the settings say so.
fn managed_certificate(config: &Config) -> Result<Option<Acceptor>, StartError> {
    let (data_dir, now) = (&config.settings.data_dir, Clock::System.now().seconds());
    match &config.tls {
        Tls::Acme(plan) => Acceptor::acme(data_dir, &plan.domains, now)
            .map(Some)
            .map_err(StartError::new),
        Tls::SelfSigned => {
            let names: Vec<String> = config.host().into_iter().collect();
            Acceptor::self_signed(data_dir, &names, now)
                .map(Some)
                .map_err(StartError::new)
        }
        Tls::Files { .. } | Tls::Off => Ok(None),
    }
}

/// Answers requests at both listeners until the process is told to stop. It finishes running requests unless it is told a
/// second time.
async fn serve_requests(
    listener: Listener,
    mtls: Option<Listener>,
    app: Arc<App>,
    tls: Option<Acceptor>,
    stops: watch::Receiver<u32>,
) {
    let first_stop = stop_requested(stops.clone(), 1);
    let until_told = async move {
        first_stop.await;
        tracing::info!("stopping: finishing running requests");
        notify::stopping();
    };
    let first_stop = stop_requested(stops.clone(), 1);
    let mtls_acceptor = tls.as_ref().map(Acceptor::with_client_certificates);
    let mtls_app = Arc::clone(&app);
    let serving = async {
        tokio::join!(serve_listener(listener, app, tls, until_told), async {
            if let Some(mtls) = mtls {
                serve_listener(mtls, mtls_app, mtls_acceptor, first_stop).await;
            }
        });
    };
    tokio::select! {
        () = serving => {}
        () = stop_requested(stops, 2) => tracing::warn!("told to stop again: not waiting any longer"),
    }
}

async fn serve_listener(
    listener: Listener,
    app: Arc<App>,
    tls: Option<Acceptor>,
    until_told: impl Future<Output = ()> + Send,
) {
    let fallback_app = Arc::clone(&app);
    let listener = listener.with_fallback(move |request| fallback(&fallback_app, &request));
    let service = move |request, peer| respond(Arc::clone(&app), request, peer);
    listener.serve(tls, service, until_told).await;
}

/// Whether mails are shown on a page of the development server, because no mail server is named.
fn catches_mail(config: &Config) -> bool {
    let mail = config.settings.mail.as_ref();
    config.is_dev && mail.is_none_or(|mail| mail.server.is_none())
}

/// Builds the app from the core and the settings: proxies, limits, themes and data directory.
fn build_app(config: &Config, core: Core, example: Option<Example>) -> App {
    let settings = &config.settings;
    // A proxy may send another host than the browser did. A redirect to the right host would then loop.
    let names = match &config.tls {
        Tls::Acme(plan) if config.trusted_proxies.is_empty() => plan.domains.as_slice(),
        _ => &[],
    };
    let brand = settings.brand.read().unwrap_or_else(|fault| {
        tracing::warn!("the logo cannot be read, the one of the default theme stands in: {fault}");
        settings.brand.without_logo()
    });
    let app = App::with_themes(
        core,
        config.trusted_proxies.clone(),
        config.limits.clone(),
        example.map(|example| example.site),
        |base_path| {
            Themes::open_branded(
                base_path,
                &settings.theme,
                Some(ThemeFolder::new(&settings.theme_dir, &settings.data_dir)),
                brand,
            )
        },
    )
    .catching_mail(catches_mail(config))
    .with_support_contact(config.support_contact.clone())
    .with_names(names);
    match settings.store {
        // The database is on another disk, which its server watches.
        Some(_) => app,
        None => app.with_data_in(settings.data_dir.clone()),
    }
}

/// Reads the metrics that only the server knows. While the disk does not answer, nothing is read from it.
fn server_readings(
    app: Arc<App>,
    config: &Config,
    open: OpenConnections,
    tls: Option<Acceptor>,
) -> impl Fn() -> Readings + Send + Sync + use<> {
    let data_dir = config.settings.data_dir.clone();
    let backup_interval = config.backups.interval.map(|interval| interval.as_secs());
    let begun = uptime();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    move || {
        // After the clock was set, the start is told by the new time.
        let started_at = Clock::System
            .since_epoch()
            .saturating_sub(uptime().saturating_sub(begun));
        let readings = Readings {
            certificate_not_after: tls.as_ref().and_then(Acceptor::not_after).unwrap_or_default(),
            connections: count(open.count()),
            connections_max: count(open.max()),
            connections_refused: open.refused(),
            backup_interval,
            started_at: started_at.as_secs(),
            ..Readings::default()
        };
        if app.core.store.stalled().is_some() {
            return readings;
        }
        let backups = backup_schedule::backups_of(&data_dir).unwrap_or_default();
        let newest = backup_schedule::newest(&backups, Clock::System.now());
        Readings {
            newest_backup: newest.map(|backup| backup.at.seconds()),
            ..readings.with_events_in(&data_dir)
        }
    }
}

/// Answers requests for metrics until the process is told to stop.
fn serve_metrics(
    listener: Listener,
    app: Arc<App>,
    readings: impl Fn() -> Readings + Send + Sync + 'static,
    stops: watch::Receiver<u32>,
) {
    let (readings, places) = (Arc::new(readings), Arc::new(Semaphore::new(METRICS_AT_ONCE)));
    let service = move |request: Request<_>, _| {
        let (app, readings, places) = (Arc::clone(&app), Arc::clone(&readings), Arc::clone(&places));
        async move {
            if request.uri().path() != "/metrics" {
                return http::metrics::expose(&app, &request, &*readings);
            }
            // A thread that waits for the disk keeps its place, and requests wait without a thread.
            let place = places.acquire_owned().await;
            let answer = tokio::task::spawn_blocking(move || {
                let _place = place;
                http::metrics::expose(&app, &request, &*readings)
            });
            answer.await.unwrap_or_else(|_| http::metrics::unread())
        }
    };
    tokio::spawn(async move { listener.serve(None, service, stop_requested(stops, 1)).await });
}

/// Redirects plain HTTP to the issuer until the process is told to stop.
fn serve_redirect(listener: Listener, app: Arc<App>, stops: watch::Receiver<u32>) {
    let service = move |request, _| ready(http::redirect::to_issuer(&app, &request));
    tokio::spawn(async move { listener.serve(None, service, stop_requested(stops, 1)).await });
}

/// Answers commands on the control socket until the process is told to stop.
fn serve_commands(
    app: &Arc<App>,
    config: &Config,
    stops: watch::Receiver<u32>,
) -> Result<JoinHandle<()>, StartError> {
    let path = control_socket(&config.settings.data_dir);
    let socket = ControlSocket::bind(&path).map_err(|error| StartError::new(io_error(&path)(error)))?;
    let (execute_app, stream_app) = (Arc::clone(app), Arc::clone(app));
    let execute = move |actor, call: Call| {
        let app = Arc::clone(&execute_app);
        async move {
            let core = &app.core;
            call.run(Admin { core, actor }).await
        }
    };
    let write_stream = move |actor, call: StreamCall, sink: &mut dyn Write| {
        let core = &stream_app.core;
        call.write(Admin { core, actor }, sink)
            .inspect_err(|error| match error {
                // Such as `idsvc user list | head`.
                StreamError::Unwritable(closed) if closed.kind() == io::ErrorKind::BrokenPipe => {}
                _ => tracing::warn!(%error, "the reply to a command was broken off"),
            })
    };
    Ok(tokio::spawn(socket.serve(
        execute,
        write_stream,
        stop_requested(stops, 1),
    )))
}

//! `idsvc serve`: builds the service from its settings and runs it until it is told to stop.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Global;
use super::output::{CliError, Output};
use super::setting_flags::SettingFlags;
use crate::admin::Admin;
use crate::app::App;
use crate::clock::Clock;
use crate::config::resolve::resolve;
use crate::config::{Config, Tls, host_of};
use crate::control;
use crate::control::server::ControlSocket;
use crate::data_dir::lock::{is_served, wait_and_open};
use crate::data_dir::{DATABASE, DataDir, DataDirError, control_socket, exposure, io_error};
use crate::flow::{Core, rotate_keys};
use crate::http::error::fallback;
use crate::http::{self, respond};
use crate::net::acme::folder::Folder;
use crate::net::inherited::Inherited;
use crate::net::listener::Listener;
use crate::net::notify;
use crate::net::tls::Acceptor;
use crate::observe::log;
use crate::password::PasswordPool;
use crate::random::Random;
use crate::route::Route;
use crate::server::dev;
use crate::server::dev::Example;
use crate::server::{background_tasks, listen};
use crate::store::{OpenError, Store};
use crate::themes::theme_set::Themes;

/// How long the process waits at its end for what it does beside the answers.
const LAST_WAIT: Duration = Duration::from_secs(3);

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
    let edge = listen::edge(config);
    let listener = listen::public(config, inherited.public, edge.clone()).await?;
    let metrics = listen::metrics(config, inherited.metrics, edge).await?;
    // Mistakes in the operator's files are said before the first start fixes anything.
    let given = given_certificate(config)?;
    let Some((core, store)) = open_core(config, &stops).await? else {
        tracing::info!("stopped before the data could be opened");
        return Ok(());
    };
    let tls = match given {
        Some(given) => Some(given),
        None => own_certificate(config)?,
    };
    let listening: Vec<String> = listener.local_addrs().iter().map(ToString::to_string).collect();
    let example = if config.is_dev {
        let example = dev::prepare(&core).await.map_err(CliError::refused)?;
        match announce(&listening, &config.issuer, &example, output) {
            Err(CliError::BrokenPipe) => tracing::warn!("nobody reads how to sign in"),
            announced => announced?,
        }
        Some(example)
    } else {
        None
    };
    let app = Arc::new(furnish(config, core, example));
    let control = take_commands(&app, config, stops.clone())?;
    let mut tasks = background_tasks::start(&app, config, tls.as_ref(), hangup)?;
    if let Some(metrics) = metrics {
        expose(metrics, Arc::clone(&app), tls.clone(), stops.clone());
    }
    tracing::info!(issuer = %app.core.policy.issuer, listening = listening.join(" "), data_dir = %config.settings.data_dir.display(), "ready");
    notify::ready();
    answer(listener, app, tls, stops).await;
    tasks.abort_all();
    if control.await.is_err() {
        tracing::error!("the control socket ended in a panic");
    }
    // Closing waits for what is queued; blocking here delays nobody any more.
    store.close();
    tracing::info!("stopped");
    Ok(())
}

/// The certificate in the operator's files, if the settings name any.
fn given_certificate(config: &Config) -> Result<Option<Acceptor>, CliError> {
    let Tls::Files { cert, key } = &config.tls else {
        return Ok(None);
    };
    Acceptor::from_files(cert, key, config.host(), Clock::System.now().seconds())
        .map(Some)
        .map_err(CliError::refused)
}

/// The certificate that the service gets or makes by itself, if it does.
fn own_certificate(config: &Config) -> Result<Option<Acceptor>, CliError> {
    let (data_dir, now) = (&config.settings.data_dir, Clock::System.now().seconds());
    match &config.tls {
        Tls::Acme(plan) => Acceptor::acme(&Folder::of(data_dir), &plan.domains, now)
            .map(Some)
            .map_err(CliError::refused),
        Tls::SelfSigned => {
            let names: Vec<String> = config.host().into_iter().collect();
            Acceptor::self_signed(data_dir, &names, now)
                .map(Some)
                .map_err(CliError::refused)
        }
        Tls::Files { .. } | Tls::Off => Ok(None),
    }
}

/// Answers requests until the process is told to stop, and finishes those that have begun unless it is told again.
async fn answer(listener: Listener, app: Arc<App>, tls: Option<Acceptor>, stops: watch::Receiver<u32>) {
    let unanswered = Arc::clone(&app);
    let listener = listener.with_fallback(move |request| fallback(&unanswered, &request));
    let service = move |request, peer| respond(Arc::clone(&app), request, peer);
    let first_stop = told(stops.clone(), 1);
    let until_told = async move {
        first_stop.await;
        tracing::info!("stopping: finishing what has begun");
        notify::stopping();
    };
    tokio::select! {
        () = listener.serve(tls, service, until_told) => {}
        () = told(stops, 2) => tracing::warn!("told to stop again: not waiting any longer"),
    }
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
async fn open_core(config: &Config, stops: &watch::Receiver<u32>) -> Result<Option<(Core, Store)>, CliError> {
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
        Clock::System,
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

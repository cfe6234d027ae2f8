//! Carries a command out: by the running server, or on the store when none runs.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, BufWriter};
use std::os::unix::net::UnixStream;

use tokio::runtime::Runtime;

use super::Global;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use crate::admin::Admin;
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::resolve::resolve_settings;
use crate::control::{self, Command, PourError, Reply, client};
use crate::data_dir::lock::{is_served, wait_and_open};
use crate::data_dir::{DataDir, DataDirError, control_socket, exposure};
use crate::flow::Core;
use crate::observe::log;
use crate::password::PasswordPool;
use crate::random::Random;
use crate::store::OpenError;

/// How commands reach the service that the flags and settings mean.
pub struct AdminConnector<'a> {
    global: &'a Global,
    said: RefCell<Vec<String>>,
}

impl<'a> AdminConnector<'a> {
    /// The service that these flags mean.
    pub fn of(global: &'a Global) -> Self {
        Self {
            global,
            said: RefCell::default(),
        }
    }

    /// The settings, with what looks like a mistake said.
    pub fn settings(&self, output: &mut Output<'_>) -> Result<Settings, CliError> {
        let sources = self.global.sources(Vec::new());
        for warning in &sources.warnings {
            self.warn(warning, output);
        }
        resolve_settings(&sources).map_err(CliError::refused)
    }

    /// Says what looks like a mistake, once.
    fn warn(&self, warning: &str, output: &mut Output<'_>) {
        let mut said = self.said.borrow_mut();
        if said.iter().all(|before| before != warning) {
            output.say(&format!("warning: {warning}"));
            said.push(warning.to_owned());
        }
    }

    /// Carries out one command and prints its reply; a refusal is the error, and so is a change that could
    /// not be shown.
    pub fn run(
        &self,
        command: Command,
        output: &mut Output<'_>,
        print: impl FnOnce(Reply, &mut Output<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let summary = ChangeSummary::of(&command);
        let reply = self.ask(command, output)?;
        print(reply, output).map_err(|stop| match summary {
            Some(summary) => summary.unshown(stop),
            None => stop,
        })
    }

    /// Carries out one command; a refusal is the error.
    pub fn ask(&self, command: Command, output: &mut Output<'_>) -> Result<Reply, CliError> {
        self.session(&command, output)?.ask(command)
    }

    /// Reaches the service for several commands, the first of which is this one.
    pub fn session(&self, first: &Command, output: &mut Output<'_>) -> Result<AdminConnection, CliError> {
        let settings = self.settings(output)?;
        AdminConnection::begin(settings, first, |warning| self.warn(warning, output))
    }
}

/// A service that was reached: one that runs, or the store of one that does not, opened once.
pub struct AdminConnection {
    settings: Settings,
    runtime: Runtime,
    core: Option<Core>,
}

impl AdminConnection {
    fn begin(settings: Settings, first: &Command, mut warn: impl FnMut(&str)) -> Result<Self, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CliError::refused)?;
        let opened = wait_and_open(|| is_served(&settings.data_dir), || open(&settings, first));
        let core = opened.map_err(|error| match error {
            DataDirError::Open(OpenError::AlreadyOpen { path }) => CliError::Refused {
                message: format!("{} is in use by a process that takes no commands", path.display()),
                hint: Some(format!(
                    "a service that is starting or stopping answers at {} soon; end any other",
                    control_socket(&settings.data_dir).display()
                )),
            },
            error => CliError::refused(error),
        })?;
        if let Some(core) = &core {
            if let Some(exposure) = exposure(&settings.data_dir) {
                warn(&exposure);
            }
            if let Some(copy) = core.store.copy() {
                warn(&format!(
                    "the data was that of an earlier release and has been brought up to this one; how it was is in {}",
                    copy.display()
                ));
            }
            log::keep_events(&settings);
        }
        Ok(Self {
            settings,
            runtime,
            core,
        })
    }

    /// Whether the service runs.
    pub fn is_running(&self) -> bool {
        self.core.is_none()
    }

    /// The settings of this command, which a running service need not share.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Carries out one command; a refusal is the error.
    pub fn ask(&self, command: Command) -> Result<Reply, CliError> {
        let reply = if let Some(core) = &self.core {
            self.runtime.block_on(control::execute(Admin { core }, command))
        } else {
            let socket = control_socket(&self.settings.data_dir);
            let asked = self.runtime.block_on(client::ask(&socket, &command));
            asked.map_err(CliError::refused)?.ok_or_else(gone)?
        };
        settled(reply)
    }

    /// Carries out one command whose reply bytes follow, and hands them to `take`.
    pub fn take_bytes<T>(
        &self,
        command: Command,
        take: impl FnOnce(&mut dyn BufRead) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let Some(core) = &self.core else {
            let socket = control_socket(&self.settings.data_dir);
            let asked = client::ask_for_bytes(&socket, &command).map_err(CliError::refused)?;
            let (reply, mut bytes) = asked.ok_or_else(gone)?;
            return match settled(reply)? {
                Reply::Bytes => take(&mut bytes),
                _ => Err(unexpected()),
            };
        };
        let (source, sink) = UnixStream::pair().map_err(CliError::refused)?;
        let mut source = BufReader::new(source);
        std::thread::scope(|scope| {
            let pouring = scope.spawn(move || control::pour(core, command, &mut BufWriter::new(sink)));
            let taken = take(&mut source);
            // Whoever still writes is not waited for when nobody reads any more.
            drop(source);
            match pouring.join() {
                Ok(Err(error)) if !matches!(error, PourError::Unwritable(_)) => Err(CliError::refused(error)),
                _ => taken,
            }
        })
    }
}

fn settled(reply: Reply) -> Result<Reply, CliError> {
    match reply {
        Reply::Refused(refusal) => Err(refusal.into()),
        Reply::Failed(message) => Err(CliError::refused(message)),
        reply => Ok(reply),
    }
}

fn gone() -> CliError {
    CliError::refused("the service has just ended: run the command again")
}

/// Opens the store of a service that does not run.
fn open(settings: &Settings, command: &Command) -> Result<Core, DataDirError> {
    let random = Random::system();
    let may_create = settings.base_url.is_some() && command.may_begin();
    let data = DataDir::open(&settings.data_dir, may_create, &random)?;
    let issuer = match command {
        Command::SetIssuer(issuer) => issuer.clone(),
        _ => data.issuer_or(settings.base_url.as_deref())?,
    };
    let pool =
        PasswordPool::start(settings.password_params, settings.password_pool_size()).map_err(|source| {
            DataDirError::Io {
                path: settings.data_dir.clone(),
                source,
            }
        })?;
    let policy = settings.policy(&issuer);
    let core = Core::open(data.store, Clock::System, random, data.sealer, policy, pool)?;
    Ok(core
        .reaching(&settings.outbound)
        .map_err(crate::flow::OpenError::from)?)
}

/// The sentence about a reply that belongs to another command.
pub(super) fn unexpected() -> CliError {
    CliError::refused("the running service gave another kind of answer: it is of another release, restart it")
}

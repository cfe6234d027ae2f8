//! Carries a command out: by the running server, or on the store when none runs.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::Global;
use super::data_dir::{DataDir, DataDirError, control_socket, exposure};
use super::deed::Deed;
use super::output::{Output, Stop};
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::resolve::resolve_settings;
use crate::control::{self, Command, Reply, client};
use crate::flow::Core;
use crate::flow::admin::Admin;
use crate::identity::password::PasswordPool;
use crate::random::Random;
use crate::store::OpenError;

/// How long a server that has just started, or is about to end, is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// How commands reach the service that the flags and settings mean.
pub struct Call<'a> {
    global: &'a Global,
    said: RefCell<Vec<String>>,
}

impl<'a> Call<'a> {
    /// The service that these flags mean.
    pub fn of(global: &'a Global) -> Self {
        Self {
            global,
            said: RefCell::default(),
        }
    }

    /// The settings, with what looks like a mistake said.
    pub fn settings(&self, output: &mut Output<'_>) -> Result<Settings, Stop> {
        let sources = self.global.sources(Vec::new());
        for warning in &sources.warnings {
            self.warn(warning, output);
        }
        resolve_settings(&sources).map_err(Stop::refused)
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
        print: impl FnOnce(Reply, &mut Output<'_>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let deed = Deed::of(&command);
        let reply = self.ask(command, output)?;
        print(reply, output).map_err(|stop| match deed {
            Some(deed) => deed.unshown(stop),
            None => stop,
        })
    }

    /// Carries out one command; a refusal is the error.
    pub fn ask(&self, command: Command, output: &mut Output<'_>) -> Result<Reply, Stop> {
        let settings = self.settings(output)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Stop::refused)?;
        match runtime.block_on(carry_out(&settings, command, |warning| {
            self.warn(warning, output);
        }))? {
            Reply::Refused(refusal) => Err(refusal.into()),
            Reply::Failed(message) => Err(Stop::refused(message)),
            reply => Ok(reply),
        }
    }
}

async fn carry_out(settings: &Settings, command: Command, warn: impl FnOnce(&str)) -> Result<Reply, Stop> {
    let socket = control_socket(&settings.data_dir);
    let begun = Instant::now();
    loop {
        if let Some(reply) = client::ask(&socket, &command).await.map_err(Stop::refused)? {
            return Ok(reply);
        }
        match open(settings, &command) {
            Ok(core) => {
                if let Some(exposure) = exposure(&settings.data_dir) {
                    warn(&exposure);
                }
                let admin = Admin {
                    core: &core,
                    password_policy: settings.password_policy,
                };
                return Ok(control::execute(admin, command).await);
            }
            Err(DataDirError::Open(OpenError::AlreadyOpen { .. })) if begun.elapsed() < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(DataDirError::Open(OpenError::AlreadyOpen { path })) => {
                return Err(Stop::Refused {
                    message: format!("{} is in use by a process that takes no commands", path.display()),
                    hint: Some(format!(
                        "a service that is starting or stopping answers at {} soon; end any other",
                        socket.display()
                    )),
                });
            }
            Err(error) => return Err(Stop::refused(error)),
        }
    }
}

/// Opens the store of a service that does not run.
fn open(settings: &Settings, command: &Command) -> Result<Core, DataDirError> {
    let random = Random::system();
    let may_create = settings.base_url.is_some() && !command.is_reading();
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
pub(super) fn unexpected() -> Stop {
    Stop::refused("the running service gave another kind of answer: it is of another release, restart it")
}

//! Carries out commands, through the running server or on the store if none runs.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, BufWriter, Read};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::Global;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use super::progress::Progress;
use crate::admin::{Actor, Admin, AdminRefusal};
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::resolve::resolve_settings;
use crate::control::protocol::{Command, Reply, ReplyLine, StreamError};
use crate::control::{self, client};
use crate::data_dir::access::exposure;
use crate::data_dir::lock::{DirectoryLock, is_served, wait_and_open};
use crate::data_dir::{DataDir, DataDirError, IfMissing, control_socket};
use crate::flow::Core;
use crate::observe::log;
use crate::password::PasswordPool;
use crate::random::Random;
use crate::store::OpenError;

/// Connects to the service that the flags and settings name.
pub struct AdminConnector<'a> {
    global: &'a Global,
    printed_warnings: RefCell<Vec<String>>,
}

impl<'a> AdminConnector<'a> {
    /// A connector to the service that these flags name.
    pub fn of(global: &'a Global) -> Self {
        Self {
            global,
            printed_warnings: RefCell::default(),
        }
    }

    /// The settings. Prints their warnings.
    pub fn settings(&self, output: &mut Output<'_>) -> Result<Settings, CliError> {
        let sources = self.global.sources(Vec::new());
        for warning in &sources.warnings {
            self.warn(warning, output);
        }
        resolve_settings(&sources).map_err(CliError::refused)
    }

    /// Prints a warning, once.
    fn warn(&self, warning: &str, output: &mut Output<'_>) {
        let mut printed = self.printed_warnings.borrow_mut();
        if printed.iter().all(|known| known != warning) {
            output.say(&format!("warning: {warning}"));
            printed.push(warning.to_owned());
        }
    }

    /// Carries out one command and prints its reply. A refusal is an error, and so is a change whose reply cannot be
    /// printed.
    pub fn run(
        &self,
        command: Command,
        output: &mut Output<'_>,
        print: impl FnOnce(Reply, &mut Output<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let summary = ChangeSummary::of(&command);
        let reply = self.ask(command, output)?;
        print(reply, output).map_err(|error| ChangeSummary::error_after(summary, error))
    }

    /// Carries out one command. A refusal is an error.
    pub fn ask(&self, command: Command, output: &mut Output<'_>) -> Result<Reply, CliError> {
        self.session(&command, output)?.ask(command)
    }

    /// Connects for several commands, the first of which is this one.
    pub fn session(&self, first: &Command, output: &mut Output<'_>) -> Result<AdminConnection, CliError> {
        let settings = self.settings(output)?;
        AdminConnection::begin(settings, first, |warning| self.warn(warning, output))
    }
}

/// A connection to a running service, or the open store of one that does not run.
pub struct AdminConnection {
    settings: Settings,
    runtime: Runtime,
    /// The core on the open store, if no service runs.
    core: Option<Core>,
    /// The lock on the data directory while the store is open, if the store has none of its own.
    _lock: Option<DirectoryLock>,
}

impl AdminConnection {
    fn begin(settings: Settings, first: &Command, mut warn: impl FnMut(&str)) -> Result<Self, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CliError::refused)?;
        let opened = wait_and_open(|| is_served(&settings.data_dir), || open(&settings, first));
        let opened = opened.map_err(|error| match error {
            DataDirError::Open(OpenError::AlreadyOpen { path }) => CliError::Refused {
                message: format!("{} is in use by a process that takes no commands", path.display()),
                hint: Some(format!(
                    "if a service is starting or stopping, it answers at {} soon; end any other process",
                    control_socket(&settings.data_dir).display()
                )),
            },
            error => CliError::refused(error),
        })?;
        let (core, lock) = opened.unzip();
        if let Some(core) = &core {
            if let Some(exposure) = exposure(&settings.data_dir) {
                warn(&exposure);
            }
            if let Some(copy) = core.store.pre_upgrade_copy() {
                warn(&format!(
                    "the data of an earlier release was upgraded; a copy of the old data is in {}",
                    copy.display()
                ));
            }
            log::keep_events(&settings);
        }
        Ok(Self {
            settings,
            runtime,
            core,
            _lock: lock.flatten(),
        })
    }

    /// Whether the service runs.
    pub fn is_running(&self) -> bool {
        self.core.is_none()
    }

    /// The settings of this command. A running service may have others.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs something on the open store. `None` if the service runs and has the store.
    pub fn with_core<T>(&self, work: impl AsyncFnOnce(&Core, &Settings) -> T) -> Option<T> {
        let core = self.core.as_ref()?;
        Some(self.runtime.block_on(work(core, &self.settings)))
    }

    /// Carries out one command. A refusal is an error.
    pub fn ask(&self, command: Command) -> Result<Reply, CliError> {
        let reply = if let Some(core) = &self.core {
            self.runtime.block_on(control::execute(admin_of(core), command))
        } else {
            let socket = control_socket(&self.settings.data_dir);
            let reply = client::ask(&socket, &command).map_err(CliError::refused)?;
            reply.ok_or_else(service_ended)?
        };
        refusal_to_error(reply)
    }

    /// Carries out one command whose reply is followed by records, and passes them to `take`.
    pub fn take_records<T: DeserializeOwned, R>(
        &self,
        command: Command,
        what: &'static str,
        take: impl FnOnce(&mut Records<'_, T>) -> Result<R, CliError>,
    ) -> Result<R, CliError> {
        self.take_bytes(command, |source| take(&mut Records::of(source, what)))
    }

    /// Carries out one command whose reply is followed by bytes, and passes them to `take`.
    pub fn take_bytes<T>(
        &self,
        command: Command,
        take: impl FnOnce(&mut dyn BufRead) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let Some(core) = &self.core else {
            let socket = control_socket(&self.settings.data_dir);
            let answer = client::ask_for_bytes(&socket, &command).map_err(CliError::refused)?;
            let (reply, mut bytes) = answer.ok_or_else(service_ended)?;
            return match refusal_to_error(reply)? {
                Reply::Bytes => take(&mut bytes),
                _ => Err(unexpected()),
            };
        };
        let (source, sink) = UnixStream::pair().map_err(CliError::refused)?;
        let mut source = BufReader::new(source);
        std::thread::scope(|scope| {
            let writer = scope
                .spawn(move || control::stream_reply(admin_of(core), command, &mut BufWriter::new(sink)));
            let taken = take(&mut source);
            // Closes the stream, so that a writer that still runs gets an error and ends.
            drop(source);
            match writer.join() {
                Ok(Err(error)) if !matches!(error, StreamError::Unwritable(_)) => {
                    Err(CliError::refused(error))
                }
                _ => taken,
            }
        })
    }
}

/// The longest line of a record, in bytes. No file or flag brings one that long in.
const RECORD_LIMIT: u64 = 16 << 20;

/// The records that follow a reply, one at a time.
pub struct Records<'a, T> {
    source: &'a mut dyn BufRead,
    what: &'static str,
    line: Vec<u8>,
    count: u64,
    is_over: bool,
    progress: Progress,
    record: PhantomData<T>,
}

impl<'a, T: DeserializeOwned> Records<'a, T> {
    /// Reads the records of a reply. `what` names it in messages.
    pub fn of(source: &'a mut dyn BufRead, what: &'static str) -> Self {
        Self {
            source,
            what,
            line: Vec::new(),
            count: 0,
            is_over: false,
            progress: Progress::of_output(what),
            record: PhantomData,
        }
    }

    /// The next record, or `None` after the last one. A reply without an end is an error.
    fn next_record(&mut self) -> Result<Option<T>, CliError> {
        if self.is_over {
            return Ok(None);
        }
        self.line.clear();
        (&mut self.source)
            .take(RECORD_LIMIT)
            .read_until(b'\n', &mut self.line)
            .map_err(|error| CliError::refused(format!("the {} was broken off: {error}", self.what)))?;
        match serde_json::from_slice(&self.line) {
            Ok(ReplyLine::Record(record)) => {
                self.count += 1;
                self.progress.show(self.count, None);
                Ok(Some(record))
            }
            Ok(ReplyLine::End) => {
                self.is_over = true;
                Ok(None)
            }
            // A whole line that is no record comes from another release.
            Err(_) if self.line.ends_with(b"\n") => Err(unexpected()),
            Err(_) => Err(CliError::Refused {
                message: format!("the {} was broken off", self.what),
                hint: Some("the log of the service says why".to_owned()),
            }),
        }
    }
}

impl<T: DeserializeOwned> Iterator for Records<'_, T> {
    type Item = Result<T, CliError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

/// The administrator who opened the store.
fn admin_of(core: &Core) -> Admin<'_> {
    Admin {
        core,
        actor: Actor::of_process(),
    }
}

fn refusal_to_error(reply: Reply) -> Result<Reply, CliError> {
    match reply {
        Reply::Refused(AdminRefusal(faults)) => Err(CliError::Faults(faults)),
        Reply::Failed(message) => Err(CliError::refused(message)),
        reply => Ok(reply),
    }
}

fn service_ended() -> CliError {
    CliError::refused("the service has just ended: run the command again")
}

/// Opens the store of a service that does not run.
fn open(settings: &Settings, command: &Command) -> Result<(Core, Option<DirectoryLock>), DataDirError> {
    let random = Random::system();
    let if_missing = if settings.base_url.is_some() && command.may_create_data_dir() {
        IfMissing::Create
    } else {
        IfMissing::Refuse
    };
    let memory = settings.memory_plan();
    let data = DataDir::open_caching(
        &settings.data_dir,
        settings.store.as_ref(),
        if_missing,
        memory.cache_bytes,
        &random,
    )?;
    let issuer = match command {
        Command::SetIssuer(issuer) => issuer.clone(),
        _ => data.fixed_issuer_or(settings.base_url.as_deref())?,
    };
    let pool = PasswordPool::start_within(memory.hash_limit_kib, settings.password_params, memory.passwords)
        .map_err(|source| DataDirError::Io {
            path: settings.data_dir.clone(),
            source,
        })?;
    let policy = settings.policy(&issuer);
    let core = Core::open(data.store, Clock::System, random, data.sealer, policy, pool)?;
    let core = core
        .reaching(&settings.outbound)
        .map_err(crate::flow::OpenError::from)?;
    Ok((core, data.lock))
}

/// The error about a reply that belongs to another command.
pub(super) fn unexpected() -> CliError {
    CliError::refused("the running service is of another release: restart it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_without_an_end_are_refused() {
        let whole = "{\"record\":7}\n{\"record\":8}\n\"end\"\n";
        let read = |text: &str| {
            let mut source = text.as_bytes();
            let records = Records::<u8>::of(&mut source, "list");
            records.collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(read(whole).unwrap(), [7, 8]);
        for end in 0..whole.len() - 2 {
            let said = read(&whole[..end]).unwrap_err().to_string();
            assert!(said.contains("the list was broken off"), "{end}: {said}");
        }
        let mut endless = BufReader::new(std::io::repeat(b'7'));
        let mut records = Records::<u8>::of(&mut endless, "list");
        assert!(records.next().unwrap().is_err());
        assert_eq!(records.line.len() as u64, RECORD_LIMIT);
    }
}

//! Carries out commands, through the running server or on the store if none runs.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, BufWriter, Read};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use super::Global;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use super::progress::Progress;
use crate::admin::operation::Operation;
use crate::admin::operations::{Call, StreamCall};
use crate::admin::stream::{RecordStream, StreamError, StreamLine, StreamOperation};
use crate::admin::{Actor, Admin, AdminRefusal};
use crate::config::Settings;
use crate::config::resolve::resolve_settings;
use crate::control::client::{self, Answer, ControlError, ReplyBytes};
use crate::control::protocol::{Command, Reply};
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

    /// Carries out an operation and prints its output. If it changed something and the output cannot be printed, the error
    /// says so.
    pub fn run<O: Operation + Into<Call>>(
        &self,
        operation: O,
        output: &mut Output<'_>,
        print: impl FnOnce(O::Output, &mut Output<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let changed = ChangeSummary::plain("the change was made");
        let summary = (!operation.changes_nothing()).then_some(changed);
        let answer = self.call(operation, output)?;
        print(answer, output).map_err(|error| ChangeSummary::error_after(summary, error))
    }

    /// Carries out an operation and prints its output. `summary` says what is lost if the output cannot be printed.
    pub fn run_with_summary<O: Operation + Into<Call>>(
        &self,
        operation: O,
        summary: ChangeSummary,
        output: &mut Output<'_>,
        print: impl FnOnce(O::Output, &mut Output<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let answer = self.call(operation, output)?;
        print(answer, output).map_err(|error| summary.unshown(error))
    }

    /// Carries out one operation. A refusal is an error.
    pub fn call<O: Operation + Into<Call>>(
        &self,
        operation: O,
        output: &mut Output<'_>,
    ) -> Result<O::Output, CliError> {
        self.connect(&Opening::of(&operation), output)?.call(operation)
    }

    /// Connects for several operations.
    pub fn connect(&self, opening: &Opening, output: &mut Output<'_>) -> Result<AdminConnection, CliError> {
        let settings = self.settings(output)?;
        AdminConnection::begin(settings, opening, |warning| self.warn(warning, output))
    }
}

/// How the store of a service that does not run is opened.
#[derive(Clone, Debug)]
pub enum Opening {
    /// A directory without data is a mistake in its name.
    Existing,
    /// The data directory is created, if it is missing and the issuer is configured.
    MayCreate,
    /// For this issuer instead of the one that the first start fixed.
    WithIssuer(String),
}

impl Opening {
    /// As this operation needs it.
    pub fn of<O: Operation>(operation: &O) -> Self {
        if O::MAY_CREATE_DATA_DIR && !operation.changes_nothing() {
            Self::MayCreate
        } else {
            Self::Existing
        }
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
    fn begin(settings: Settings, opening: &Opening, mut warn: impl FnMut(&str)) -> Result<Self, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CliError::refused)?;
        let opened = wait_and_open(|| is_served(&settings.data_dir), || open(&settings, opening));
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

    /// Carries out an operation. A refusal is an error.
    pub fn call<O: Operation + Into<Call>>(&self, operation: O) -> Result<O::Output, CliError> {
        let output = self.carry_out(operation.into())?;
        client::parse_output(&output).map_err(CliError::refused)
    }

    /// Carries out an operation in the service or on the open store. Returns its output as a line of JSON.
    fn carry_out(&self, call: Call) -> Result<Zeroizing<Vec<u8>>, CliError> {
        match &self.core {
            Some(core) => Ok(self.runtime.block_on(call.run(admin_of(core)))?),
            None => client::read_line(&mut self.send(&Command::Call(call))?).map_err(CliError::refused),
        }
    }

    /// Passes the records of an operation to `take`. `what` names them in messages.
    pub fn take_records<O: RecordStream + Into<StreamCall>, R>(
        &self,
        operation: O,
        what: &'static str,
        take: impl FnOnce(&mut Records<'_, O::Record>) -> Result<R, CliError>,
    ) -> Result<R, CliError> {
        self.take_bytes(operation, |source| take(&mut Records::of(source, what)))
    }

    /// Passes the bytes of an operation to `take`.
    pub fn take_bytes<O: StreamOperation + Into<StreamCall>, T>(
        &self,
        operation: O,
        take: impl FnOnce(&mut dyn BufRead) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let Some(core) = &self.core else {
            return take(&mut self.send(&Command::Stream(operation.into()))?);
        };
        let (source, sink) = UnixStream::pair().map_err(CliError::refused)?;
        let mut source = BufReader::new(source);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || admin_of(core).stream(operation, &mut BufWriter::new(sink)));
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

    /// Sends a command to the running service. Returns what follows the reply.
    fn send(&self, command: &Command) -> Result<ReplyBytes, CliError> {
        let socket = control_socket(&self.settings.data_dir);
        let answer = client::ask(&socket, command).map_err(CliError::refused)?;
        let Some(Answer { reply, bytes }) = answer else {
            return Err(CliError::refused(
                "the service has just ended: run the command again",
            ));
        };
        match reply {
            Reply::Done => Ok(bytes),
            Reply::Refused(AdminRefusal(faults)) => Err(CliError::Faults(faults)),
            Reply::Failed(message) => Err(CliError::refused(message)),
        }
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
            Ok(StreamLine::Record(record)) => {
                self.count += 1;
                self.progress.show(self.count, None);
                Ok(Some(record))
            }
            Ok(StreamLine::End) => {
                self.is_over = true;
                Ok(None)
            }
            // A whole line that is no record comes from another release.
            Err(_) if self.line.ends_with(b"\n") => Err(CliError::refused(ControlError::OtherRelease)),
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

/// Opens the store of a service that does not run.
fn open(settings: &Settings, opening: &Opening) -> Result<(Core, Option<DirectoryLock>), DataDirError> {
    let random = Random::system();
    let if_missing = if settings.base_url.is_some() && matches!(opening, Opening::MayCreate) {
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
    let issuer = match opening {
        Opening::WithIssuer(issuer) => issuer.clone(),
        Opening::Existing | Opening::MayCreate => data.fixed_issuer_or(settings.base_url.as_deref())?,
    };
    let pool = PasswordPool::start_within(memory.hash_limit_kib, settings.password_params, memory.passwords)
        .map_err(|source| DataDirError::Io {
            path: settings.data_dir.clone(),
            source,
        })?;
    let policy = settings.policy(&issuer);
    let clock = data.store.clock();
    let core = Core::open(data.store, clock, random, data.sealer, policy, pool)?;
    let core = core
        .reaching(&settings.outbound)
        .map_err(crate::flow::OpenError::from)?;
    Ok((core, data.lock))
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

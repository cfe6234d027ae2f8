//! Runs `idsvc backup` and `idsvc restore`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::FileType;
use serde_json::json;

use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output, moment, yes_no};
use super::progress::Progress;
use super::value_parsers::{unreadable, unwritable};
use crate::admin::backup::BackUp;
use crate::admin::{Actor, SecretString};
use crate::clock::Clock;
use crate::control::protocol::Command;
use crate::data_dir;
use crate::data_dir::atomic_file;
use crate::data_dir::atomic_file::AtomicFile;
use crate::data_dir::master_key;
use crate::data_dir::restore;
use crate::data_dir::{BACKUP_ENDING, BACKUPS, DATABASE, backup_name};
use crate::files::{Folder, owner};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::observe::log;
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::backup::{BackupError, BackupReader, Header, SIGNATURE_LEN, looks_like_backup};

/// How the names of backups begin that the operator asked for.
const STEM: &str = "idsvc";

/// The flags of `idsvc backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The file to write, - for standard output [default: a new one in backups/ of the data directory]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Put the master key into the backup: any reader of the file can then sign tokens
    #[arg(long)]
    pub with_master_key: bool,
    /// Replace the file if there is one, which has to be a backup
    #[arg(long)]
    pub replace: bool,
}

/// The flags of `idsvc restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup, - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The master key that belongs to the backup [default: master.key in the data directory, or the one in the backup]
    #[arg(long, value_name = "FILE")]
    pub master_key: Option<PathBuf>,
}

/// Copies the bytes that are read to `sink`, and counts them.
struct Tee<'a> {
    source: &'a mut dyn Read,
    sink: &'a mut dyn Write,
    bytes: u64,
    unwritable: Option<io::Error>,
}

impl Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        if let Err(error) = self.sink.write_all(buffer.get(..count).unwrap_or_default()) {
            let kind = error.kind();
            self.unwritable = Some(error);
            return Err(kind.into());
        }
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}

/// Reads a backup to its end, which verifies it, and copies every byte to `sink`. Returns the number of bytes.
fn copy(
    source: &mut dyn Read,
    sink: &mut dyn Write,
    sealer: &Sealer,
    what: &'static str,
) -> Result<(Header, u64), CliError> {
    let mut tee = Tee {
        source,
        sink,
        bytes: 0,
        unwritable: None,
    };
    let mut progress = Progress::of(what);
    let mut read = || {
        let incoming = BackupReader::open(&mut tee)?;
        let header = incoming.header().clone();
        let mut rows = incoming.rows(sealer.backup_key());
        while rows.next_row()?.is_some() {
            let (done, of) = rows.progress();
            progress.show(done, of);
        }
        Ok(header)
    };
    let header = read();
    drop(progress);
    match (header, tee.unwritable.take()) {
        (_, Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(CliError::refused(
            "the reader of the backup has closed the pipe: the backup is not whole",
        )),
        (_, Some(error)) => Err(CliError::refused(BackupError::Unwritable(error))),
        (Err(BackupError::CutOff), None) => Err(CliError::Refused {
            message: "the backup was broken off".to_owned(),
            hint: Some("the log of the service says why".to_owned()),
        }),
        (Err(error), None) => Err(CliError::refused(error)),
        (Ok(header), None) => {
            tee.sink
                .flush()
                .map_err(|error| CliError::refused(BackupError::Unwritable(error)))?;
            Ok((header, tee.bytes))
        }
    }
}

/// Runs `idsvc backup`.
pub fn run(backup: &Backup, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let is_piped = backup.file.as_deref() == Some(Path::new("-"));
    if is_piped && output.json {
        return Err(CliError::Misused(
            "with - the backup itself goes to standard output: name a file to have a document there"
                .to_owned(),
        ));
    }
    if is_piped && io::stdout().is_terminal() {
        return Err(CliError::Misused(
            "a backup is no text for a terminal: name a file, or send standard output to one".to_owned(),
        ));
    }
    let mut request = Command::BackUp(BackUp::default());
    let session = connector.session(&request, output)?;
    let data_dir = session.settings().data_dir.clone();
    let key = master_key::master_key(&data_dir).map_err(CliError::refused)?;
    let sealer = Sealer::new(&key);
    if backup.with_master_key {
        request = Command::BackUp(BackUp {
            master_key: Some(SecretString::new(master_key::to_hex(&key).as_str())),
        });
    }
    if is_piped {
        let out = &mut *output.out;
        let (header, bytes) =
            session.take_bytes(request, |mut source| copy(&mut source, out, &sealer, "backup"))?;
        output.say(&format!("the backup has {} rows, {bytes} bytes", header.rows));
        output.hint(&advice(&header, &data_dir));
        return Ok(());
    }
    let random = Random::system();
    let now = Clock::System.now();
    let is_named = backup.file.is_some();
    let mut file = if let Some(file) = &backup.file {
        file.clone()
    } else {
        data_dir::make_folder_in(&data_dir, BACKUPS).map_err(CliError::refused)?;
        data_dir.join(BACKUPS).join(backup_name(STEM, now))
    };
    let may_replace = is_named && backup.replace;
    if file.is_dir() {
        let inside = file.join(backup_name(STEM, now));
        return Err(CliError::refused(format!(
            "{} is a directory: name a file in it, as in {}",
            file.display(),
            inside.display()
        )));
    }
    let at_file = |error| unwritable(&file, &error);
    let folder = Folder::open_below(&data_dir, owner::folder_of(&file)).map_err(at_file)?;
    if is_named && is_backup_there(&folder, &file)? && !may_replace {
        return Err(exists(&file));
    }
    atomic_file::sweep(&folder, |_, left| begins_as_backup(left).unwrap_or(false));
    let mut unfinished = AtomicFile::new(&folder, name_of(&file), &random);
    let made = unfinished.create().map_err(at_file)?;
    if is_within(&file, &data_dir) {
        owner::chown_like(&made, &data_dir).map_err(at_file)?;
    }
    let mut sink = BufWriter::new(made);
    let (header, bytes) = session.take_bytes(request, |mut source| {
        copy(&mut source, &mut sink, &sealer, "backup")
    })?;
    drop(sink);
    let mut again = unfinished.open().map_err(at_file)?;
    copy(
        &mut BufReader::new(&mut again),
        &mut io::sink(),
        &sealer,
        "verify",
    )?;
    if may_replace {
        // A file that appeared during the backup is kept unless it is a backup too.
        is_backup_there(&folder, &file)?;
    }
    let mut attempt = 1_u32;
    while let Err(error) = unfinished.place(name_of(&file), may_replace) {
        match error.kind() {
            io::ErrorKind::AlreadyExists if is_named => return Err(exists(&file)),
            // Another backup has the time of the same second in its name.
            io::ErrorKind::AlreadyExists => {
                attempt = attempt.saturating_add(1);
                file.set_file_name(
                    backup_name(STEM, now).replace(BACKUP_ENDING, &format!("-{attempt}{BACKUP_ENDING}")),
                );
            }
            _ => return Err(unwritable(&file, &error)),
        }
    }
    let name = file.display().to_string();
    show(&header, &name, bytes, output)
        .map_err(|error| ChangeSummary::plain(format!("the backup {name} was made")).unshown(error))?;
    output.hint(&advice(&header, &data_dir));
    Ok(())
}

fn show(header: &Header, file: &str, bytes: u64, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&json!({
            "file": file,
            "rows": header.rows,
            "bytes": bytes,
            "created_at": header.created_at,
            "schema": header.schema,
            "issuer": header.issuer,
            "verified": true,
            "holds_master_key": header.master_key.is_some(),
            "master_key_fingerprint": header.master_key_fingerprint,
        }));
    }
    output.facts(&[
        ("file", file.to_owned()),
        ("rows", header.rows.to_string()),
        ("bytes", bytes.to_string()),
        ("created_at", moment(header.created_at)),
        ("issuer", header.issuer.clone().unwrap_or_default()),
        ("verified", yes_no(true)),
        ("holds_master_key", yes_no(header.master_key.is_some())),
        ("master_key_fingerprint", header.master_key_fingerprint.clone()),
    ])
}

fn name_of(file: &Path) -> &OsStr {
    file.file_name().unwrap_or_default()
}

fn is_within(file: &Path, data_dir: &Path) -> bool {
    match (owner::folder_of(file).canonicalize(), data_dir.canonicalize()) {
        (Ok(folder), Ok(data_dir)) => folder.starts_with(data_dir),
        _ => false,
    }
}

fn begins_as_backup(file: &mut File) -> io::Result<bool> {
    let mut beginning = Vec::new();
    file.take(SIGNATURE_LEN as u64).read_to_end(&mut beginning)?;
    Ok(looks_like_backup(&beginning))
}

/// Whether a backup or an empty file has this name. Any other file is refused, so that it is not replaced by mistake.
fn is_backup_there(folder: &Folder, file: &Path) -> Result<bool, CliError> {
    let is_backup = match folder.stat(name_of(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Ok(found) if !FileType::from_raw_mode(found.st_mode).is_file() => Ok(false),
        found => found
            .and_then(|_| folder.file(name_of(file)))
            .and_then(|mut file| begins_as_backup(&mut file)),
    };
    match is_backup {
        Ok(true) => Ok(true),
        Ok(false) => Err(CliError::refused(format!(
            "{} is no backup, and nothing else is replaced: name another file",
            file.display()
        ))),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn exists(file: &Path) -> CliError {
    CliError::refused(format!(
        "there is a file {} already: name another, or add --replace",
        file.display()
    ))
}

fn advice(header: &Header, data_dir: &Path) -> String {
    if header.master_key.is_some() {
        "\nThe master key is in the backup: any reader of the file can sign tokens. Keep it as you keep a password."
            .to_owned()
    } else {
        format!(
            "\nThe master key is not in the backup, and a restore needs it: keep a copy of {} in another place.",
            data_dir.join(master_key::MASTER_KEY).display()
        )
    }
}

/// Runs `idsvc restore`.
pub fn restore(
    request: &Restore,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let settings = connector.settings(output)?;
    let data_dir = settings.data_dir.clone();
    let stdin = io::stdin();
    let mut file;
    let mut locked;
    let (source, length): (&mut dyn Read, _) = if request.file.as_os_str() == "-" {
        locked = stdin.lock();
        (&mut locked, None)
    } else {
        let opened = File::open(&request.file).map_err(|error| unreadable(&request.file, &error))?;
        let length = opened.metadata().ok().map(|metadata| metadata.len());
        file = BufReader::new(opened);
        (&mut file, length)
    };
    let mut progress = Progress::of("restore");
    let restored = restore::restore(
        &data_dir,
        source,
        request.master_key.as_deref(),
        &Random::system(),
        &mut |done, of| progress.show(done, of),
    );
    drop(progress);
    let header = restored.map_err(CliError::refused)?;
    log::keep_events(&settings);
    audit::record(&Event::Administered {
        command: "restore",
        subject: &header.master_key_fingerprint,
        actor: &Actor::of_process().to_string(),
    });
    show_restored(&header, &data_dir, length, output).map_err(|error| {
        ChangeSummary::plain(format!("the backup was restored into {}", data_dir.display())).unshown(error)
    })?;
    output.hint(&format!(
        "\nStart the service. Changes after {} are lost: users whose tokens were refreshed since then sign in again.",
        moment(header.created_at)
    ));
    if fs::metadata(&data_dir).is_ok_and(|made| made.uid() == 0) {
        output.hint(&format!(
            "The data belongs to root. A service that runs as another user has to be given it first: chown -R USER: {}",
            data_dir.display()
        ));
    }
    Ok(())
}

fn show_restored(
    header: &Header,
    data_dir: &Path,
    length: Option<u64>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if output.json {
        return output.document(&json!({
            "data_dir": data_dir,
            "rows": header.rows,
            "bytes": length,
            "created_at": header.created_at,
            "issuer": header.issuer,
            "master_key_fingerprint": header.master_key_fingerprint,
        }));
    }
    output.facts(&[
        ("data_dir", data_dir.display().to_string()),
        ("database", data_dir.join(DATABASE).display().to_string()),
        ("rows", header.rows.to_string()),
        ("created_at", moment(header.created_at)),
        ("issuer", header.issuer.clone().unwrap_or_default()),
    ])
}

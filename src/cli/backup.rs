//! Runs `idsvc backup`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::FileType;
use serde_json::json;

use super::admin_connection::{AdminConnection, AdminConnector, Opening};
use super::backup_encryption;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output, moment, yes_no};
use super::progress::Progress;
use super::value_parsers::{unreadable, unwritable};
use crate::admin::SecretString;
use crate::admin::backup::BackUp;
use crate::age::{self, EncryptingWriter, FileKey, Recipients};
use crate::background;
use crate::clock::Clock;
use crate::data_dir;
use crate::data_dir::atomic_file;
use crate::data_dir::atomic_file::{AtomicFile, IfExists};
use crate::data_dir::master_key;
use crate::data_dir::{BACKUP_ENDING, BACKUPS, backup_name};
use crate::files::slice_writer::SliceWriter;
use crate::files::{Folder, owner};
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
    /// Put the master key into the backup: any reader of the file can then sign tokens, unless --to or --passphrase-file encrypts it
    #[arg(long)]
    pub with_master_key: bool,
    /// Replace the file, if it is a backup or a file that age encrypted
    #[arg(long)]
    pub replace: bool,
    /// Encrypt the backup to this age recipient (age1…); may be repeated. Any one of them can restore it
    #[arg(long, value_name = "RECIPIENT", conflicts_with = "passphrase_file")]
    pub to: Vec<String>,
    /// Encrypt the backup with the passphrase in this file, - for standard input
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
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
        let mut header = incoming.header().clone();
        let mut rows = incoming.rows(sealer.backup_key());
        while rows.next_row()?.is_some() {
            let so_far = rows.progress();
            progress.show(so_far.read, so_far.announced);
        }
        header.rows = Some(rows.progress().read);
        Ok(header)
    };
    let header = read();
    drop(progress);
    match (header, tee.unwritable.take()) {
        (_, Some(error)) => Err(not_written(error)),
        (Err(BackupError::CutOff), None) => Err(CliError::Refused {
            message: "the backup was broken off".to_owned(),
            hint: Some("the log of the service says why".to_owned()),
        }),
        (Err(error), None) => Err(CliError::refused(error)),
        (Ok(header), None) => {
            tee.sink.flush().map_err(not_written)?;
            Ok((header, tee.bytes))
        }
    }
}

fn not_written(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            CliError::refused("the reader of the backup has closed the pipe: the backup is not whole")
        }
        _ => CliError::refused(BackupError::Unwritable(error)),
    }
}

/// What is backed up, and for whom it is encrypted.
struct BackupJob<'a> {
    session: AdminConnection,
    request: BackUp,
    sealer: Sealer,
    recipients: Option<&'a Recipients>,
    random: Random,
}

struct Written {
    header: Header,
    /// The number of bytes, encrypted ones if it is encrypted.
    bytes: u64,
    /// The key of the encrypted file, to verify it.
    key: Option<FileKey>,
}

impl BackupJob<'_> {
    fn write(&self, sink: &mut dyn Write) -> Result<Written, CliError> {
        let Some(recipients) = self.recipients else {
            let (header, bytes) = self.write_plain(sink)?;
            return Ok(Written {
                header,
                bytes,
                key: None,
            });
        };
        let key = FileKey::generate(&self.random);
        let mut encrypted = EncryptingWriter::new(sink, recipients, &key, &self.random);
        let (header, _) = self.write_plain(&mut encrypted)?;
        Ok(Written {
            header,
            bytes: encrypted.finish().map_err(not_written)?,
            key: Some(key),
        })
    }

    fn write_plain(&self, sink: &mut dyn Write) -> Result<(Header, u64), CliError> {
        self.session.take_bytes(self.request.clone(), |mut source| {
            copy(&mut source, sink, &self.sealer, "backup")
        })
    }

    /// Reads a backup that was written to its end.
    fn verify(&self, written: &Written, file: &mut File) -> Result<(), CliError> {
        let mut source: Box<dyn Read + '_> = Box::new(BufReader::new(file));
        if let Some(key) = &written.key {
            let decrypted = age::decrypt(source, key);
            source = Box::new(decrypted.map_err(CliError::refused)?);
        }
        copy(&mut source, &mut io::sink(), &self.sealer, "verify").map(|_| ())
    }
}

/// Runs `idsvc backup`.
pub fn run(backup: &Backup, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let is_piped = backup.file.as_deref() == Some(Path::new("-"));
    if is_piped && output.json {
        return Err(CliError::Misused(
            "with - the backup goes to standard output, where --json prints its document: name a file"
                .to_owned(),
        ));
    }
    if is_piped && io::stdout().is_terminal() {
        return Err(CliError::Misused(
            "a backup is not for a terminal: name a file, or redirect standard output".to_owned(),
        ));
    }
    background::lower_priority();
    let recipients = backup_encryption::recipients(&backup.to, backup.passphrase_file.as_deref())?;
    let mut request = BackUp::default();
    let session = connector.connect(&Opening::Existing, output)?;
    let data_dir = session.settings().data_dir.clone();
    let key = master_key::master_key(&data_dir).map_err(CliError::refused)?;
    if backup.with_master_key {
        request.master_key = Some(SecretString::new(master_key::to_hex(&key).as_str()));
    }
    let job = BackupJob {
        session,
        request,
        sealer: Sealer::new(&key),
        recipients: recipients.as_ref(),
        random: Random::system(),
    };
    let header = if is_piped {
        let Written { header, bytes, .. } = job.write(output.out)?;
        output.say(&format!(
            "the backup has {} rows, {bytes} bytes",
            header.rows.unwrap_or_default()
        ));
        header
    } else {
        let (written, file) = write_file(backup, &job, &data_dir)?;
        let name = file.display().to_string();
        show(&written, &name, output)
            .map_err(|error| ChangeSummary::plain(format!("the backup {name} was made")).unshown(error))?;
        written.header
    };
    output.hint(&advice(&header, &data_dir, recipients.as_ref()));
    Ok(())
}

/// Writes a backup to the file that is named, or to a new one. Returns its path, too.
fn write_file(backup: &Backup, job: &BackupJob<'_>, data_dir: &Path) -> Result<(Written, PathBuf), CliError> {
    let now = Clock::System.now();
    let new_name = backup_name(STEM, now, job.recipients.is_some());
    let is_named = backup.file.is_some();
    let mut file = if let Some(file) = &backup.file {
        file.clone()
    } else {
        data_dir::make_folder_in(data_dir, BACKUPS).map_err(CliError::refused)?;
        data_dir.join(BACKUPS).join(&new_name)
    };
    let if_exists = if is_named && backup.replace {
        IfExists::Replace
    } else {
        IfExists::Refuse
    };
    if file.is_dir() {
        let inside = file.join(&new_name);
        return Err(CliError::refused(format!(
            "{} is a directory: name a file in it, as in {}",
            file.display(),
            inside.display()
        )));
    }
    let at_file = |error| unwritable(&file, &error);
    let folder = Folder::open_below(data_dir, owner::folder_of(&file)).map_err(at_file)?;
    if is_named && is_backup_there(&folder, &file)? && if_exists == IfExists::Refuse {
        return Err(exists(&file));
    }
    atomic_file::sweep(&folder, |_, left| begins_as_backup(left).unwrap_or(false));
    let mut unfinished = AtomicFile::new(&folder, name_of(&file), &job.random);
    let made = unfinished.create().map_err(at_file)?;
    if is_within(&file, data_dir) {
        owner::chown_like(&made, data_dir).map_err(at_file)?;
    }
    let mut sink = BufWriter::new(SliceWriter::new(made, || Ok(())));
    let written = job.write(&mut sink)?;
    drop(sink);
    job.verify(&written, &mut unfinished.open().map_err(at_file)?)?;
    if if_exists == IfExists::Replace {
        // A file that appeared during the backup is kept unless it is a backup too.
        is_backup_there(&folder, &file)?;
    }
    let mut attempt = 1_u32;
    while let Err(error) = unfinished.place(name_of(&file), if_exists) {
        match error.kind() {
            io::ErrorKind::AlreadyExists if is_named => return Err(exists(&file)),
            // Another backup has the time of the same second in its name.
            io::ErrorKind::AlreadyExists => {
                attempt = attempt.saturating_add(1);
                file.set_file_name(new_name.replace(BACKUP_ENDING, &format!("-{attempt}{BACKUP_ENDING}")));
            }
            _ => return Err(unwritable(&file, &error)),
        }
    }
    Ok((written, file))
}

fn show(written: &Written, file: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let Written { header, bytes, key } = written;
    if output.json {
        return output.document(&json!({
            "file": file,
            "rows": header.rows,
            "bytes": bytes,
            "created_at": header.created_at,
            "schema": header.schema,
            "issuer": header.issuer,
            "verified": true,
            "encrypted": key.is_some(),
            "holds_master_key": header.master_key.is_some(),
            "master_key_fingerprint": header.master_key_fingerprint,
        }));
    }
    output.facts(&[
        ("file", file.to_owned()),
        ("rows", header.rows.unwrap_or_default().to_string()),
        ("bytes", bytes.to_string()),
        ("created_at", moment(header.created_at)),
        ("issuer", header.issuer.clone().unwrap_or_default()),
        ("verified", yes_no(true)),
        ("encrypted", yes_no(key.is_some())),
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
    let length = SIGNATURE_LEN.max(age::SIGNATURE_LEN) as u64;
    file.take(length).read_to_end(&mut beginning)?;
    Ok(looks_like_backup(&beginning) || age::looks_encrypted(&beginning))
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
            "{} is no backup and no file that age encrypted, and nothing else is replaced: name another file",
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

fn advice(header: &Header, data_dir: &Path, recipients: Option<&Recipients>) -> String {
    if header.master_key.is_none() {
        return format!(
            "\nThe master key is not in the backup. A restore needs it: keep a copy of {} in another place.",
            data_dir.join(master_key::MASTER_KEY).display()
        );
    }
    let reader = match recipients {
        None => {
            "the backup is not encrypted, and any reader of the file can sign tokens. Encrypt it with --passphrase-file or --to, or keep it as you keep a password."
        }
        Some(Recipients::Keys(_)) => {
            "any holder of an identity that the backup is encrypted to can sign tokens. Keep the identity as you keep a password."
        }
        Some(Recipients::Passphrase(_)) => {
            "any reader who has the passphrase can sign tokens. Keep the passphrase in another place."
        }
    };
    format!("\nThe master key is in the backup: {reader}")
}

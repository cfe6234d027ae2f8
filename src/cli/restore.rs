//! Runs `idsvc restore`.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::admin_connection::AdminConnector;
use super::backup_encryption;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output, moment};
use super::progress::Progress;
use super::value_parsers::unreadable;
use crate::admin::Actor;
use crate::age;
use crate::data_dir::{DATABASE, restore};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::observe::log;
use crate::random::Random;
use crate::store::backup::Header;

/// The flags of `idsvc restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup, - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The master key that belongs to the backup [default: master.key in the data directory, or the one in the backup]
    #[arg(long, value_name = "FILE")]
    pub master_key: Option<PathBuf>,
    /// The file of an age identity that the backup is encrypted to, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file")]
    pub identity: Option<PathBuf>,
    /// The file of the passphrase that the backup is encrypted with, - for standard input
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
}

impl Restore {
    /// Two of the files cannot be standard input.
    fn check(&self) -> Result<(), CliError> {
        let files = [
            Some(&self.file),
            self.identity.as_ref(),
            self.passphrase_file.as_ref(),
        ];
        let piped = files.into_iter().flatten().filter(|file| file.as_os_str() == "-");
        if piped.count() > 1 {
            return Err(CliError::Misused(
                "only one file can be -: standard input is read once".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Runs `idsvc restore`.
pub fn run(
    request: &Restore,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    request.check()?;
    let settings = connector.settings(output)?;
    let data_dir = settings.data_dir.clone();
    // Checked first, so that nobody types a passphrase for a directory that is refused.
    let address = settings.store.as_ref();
    restore::check_target(&data_dir, address).map_err(CliError::refused)?;
    let (mut source, length): (Box<dyn Read>, _) = if request.file.as_os_str() == "-" {
        (Box::new(BufReader::new(io::stdin())), None)
    } else {
        let opened = File::open(&request.file).map_err(|error| unreadable(&request.file, &error))?;
        let length = opened.metadata().ok().map(|metadata| metadata.len());
        (Box::new(BufReader::new(opened)), length)
    };
    let mut beginning = Vec::new();
    let recognised = source
        .by_ref()
        .take(age::SIGNATURE_LEN as u64)
        .read_to_end(&mut beginning);
    recognised.map_err(|error| unreadable(&request.file, &error))?;
    let is_encrypted = beginning.len() == age::SIGNATURE_LEN && age::looks_encrypted(&beginning);
    let mut source: Box<dyn Read> = Box::new(io::Cursor::new(beginning).chain(source));
    if is_encrypted {
        let (identity, passphrase) = (request.identity.as_deref(), request.passphrase_file.as_deref());
        source = Box::new(backup_encryption::decrypt(source, identity, passphrase)?);
    }
    let mut progress = Progress::of("restore");
    let restored = restore::restore(
        &data_dir,
        address,
        &mut *source,
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
    let database = match address {
        Some(address) => address.to_string(),
        None => data_dir.join(DATABASE).display().to_string(),
    };
    show_restored(&header, &data_dir, &database, length, output).map_err(|error| {
        ChangeSummary::plain(format!("the backup was restored into {database}")).unshown(error)
    })?;
    output.hint(&format!(
        "\nStart the service. Changes after {} are lost: users whose tokens were refreshed since then sign in again.",
        moment(header.created_at)
    ));
    hint_at_owner(&data_dir, output);
    Ok(())
}

/// Says what to do if the data directory belongs to root.
pub(super) fn hint_at_owner(data_dir: &Path, output: &mut Output<'_>) {
    if fs::metadata(data_dir).is_ok_and(|made| made.uid() == 0) {
        output.hint(&format!(
            "The data belongs to root. A service that runs as another user has to be given it first: chown -R USER: {}",
            data_dir.display()
        ));
    }
}

fn show_restored(
    header: &Header,
    data_dir: &Path,
    database: &str,
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
        ("database", database.to_owned()),
        ("rows", header.rows.unwrap_or_default().to_string()),
        ("created_at", moment(header.created_at)),
        ("issuer", header.issuer.clone().unwrap_or_default()),
    ])
}

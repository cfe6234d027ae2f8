//! Reads the flags that encrypt and decrypt backups.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use super::output::CliError;
use super::prompt;
use super::value_parsers::{read_secret, unreadable};
use crate::age::{
    AgeError, DecryptingReader, Header, Identities, Passphrase, Recipients, SecretKind, identities,
};

/// Whom a backup is encrypted to, or `None` if neither flag is given.
pub(super) fn recipients(
    to: &[String],
    passphrase_file: Option<&Path>,
) -> Result<Option<Recipients>, CliError> {
    if let Some(file) = passphrase_file {
        return Ok(Some(Recipients::Passphrase(read_passphrase(file)?)));
    }
    Recipients::parse(to).map_err(|faults| {
        let faults = faults.iter().map(|fault| format!("--to: {fault}"));
        CliError::Misused(faults.collect::<Vec<_>>().join("\n"))
    })
}

fn read_passphrase(file: &Path) -> Result<Passphrase, CliError> {
    let read = if file.as_os_str() == "-" {
        Passphrase::read(io::stdin())
    } else {
        File::open(file).and_then(Passphrase::read)
    };
    read.map_err(|error| unreadable(file, &error))
}

/// Decrypts a backup with what one of the flags names. Without a flag it asks for a passphrase on a terminal.
pub(super) fn decrypt<R: Read>(
    mut source: R,
    identity_file: Option<&Path>,
    passphrase_file: Option<&Path>,
) -> Result<DecryptingReader<R>, CliError> {
    let header = Header::read(&mut source).map_err(refused)?;
    let secret = if let Some(file) = identity_file {
        let keys = identities(read_secret(file)?.reveal());
        Identities::Keys(keys.map_err(|error| unreadable(file, &error))?)
    } else if let Some(file) = passphrase_file {
        Identities::Passphrase(read_passphrase(file)?)
    } else {
        ask(header.wanted())?
    };
    let key = header.unlock(&secret).map_err(refused)?;
    DecryptingReader::new(source, &key).map_err(refused)
}

fn ask(wanted: SecretKind) -> Result<Identities, CliError> {
    match wanted {
        SecretKind::Identity => Err(CliError::Misused(
            "the backup is encrypted to recipients: add --identity FILE, the file of one of their identities"
                .to_owned(),
        )),
        SecretKind::Passphrase if io::stdin().is_terminal() => {
            let typed = prompt::password("Passphrase of the backup: ")?;
            let passphrase = Passphrase::new(&typed);
            passphrase.map(Identities::Passphrase).map_err(|_| CliError::refused("no passphrase was typed"))
        }
        SecretKind::Passphrase => Err(CliError::Misused(
            "the backup is encrypted with a passphrase, and there is no terminal to ask for it: add --passphrase-file FILE"
                .to_owned(),
        )),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn refused(error: AgeError) -> CliError {
    let flag = match error {
        AgeError::NeedsIdentity => Some("--identity"),
        AgeError::NeedsPassphrase => Some("--passphrase-file"),
        _ => None,
    };
    CliError::Refused {
        message: error.to_string(),
        hint: flag.map(|flag| format!("name its file with {flag}")),
    }
}

//! Reads the flags that encrypt and decrypt backups.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use super::output::CliError;
use super::prompt;
use super::value_parsers::{read_secret, unreadable};
use crate::age::{
    AgeError, DecryptingReader, Header, Identities, MAX_STANZAS, Passphrase, Recipients, SecretKind,
    identities,
};

/// Whom a backup is encrypted to, or `None` if neither flag is given.
pub(super) fn recipients(
    to: &[String],
    passphrase_file: Option<&Path>,
) -> Result<Option<Recipients>, CliError> {
    if let Some(file) = passphrase_file {
        return Ok(Some(Recipients::Passphrase(read_passphrase(file)?)));
    }
    if to.len() > MAX_STANZAS {
        return Err(CliError::Misused(format!(
            "--to is given more than {MAX_STANZAS} times"
        )));
    }
    let mut keys = Vec::new();
    for (number, text) in (1..).zip(to) {
        // A text that is an identity by mistake is not repeated.
        let key = text.parse();
        keys.push(key.map_err(|error| CliError::Misused(format!("value {number} of --to: {error}")))?);
    }
    Ok((!keys.is_empty()).then_some(Recipients::Keys(keys)))
}

fn read_passphrase(file: &Path) -> Result<Passphrase, CliError> {
    Passphrase::new(read_secret(file)?.reveal()).map_err(|error| unreadable(file, &error))
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

//! What the values of flags have in common: files that are named, times, algorithms and claims.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;

use clap::builder::{PossibleValue, PossibleValuesParser};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use super::output::{CliError, Output};
use crate::admin::SecretString;
use crate::admin::claim::is_unheard;
use crate::config::reader::{LONGEST, parse_duration};
use crate::config::reference::nearest;
use crate::jose::alg::{Algorithm, UnknownAlgorithm};
use crate::jose::jwk::PublicKey;
use crate::oauth::fields::{jwk_of, jwks_of};
use crate::oauth::openid::claims::BY_SCOPE;

/// How many claims are named that nobody is given.
const WARNED: usize = 20;
/// The most that is read as a secret or a key.
const FILE_LIMIT: u64 = 64 * 1024;

/// Reads a file, or standard input for `-`, without the line end at its end.
pub(super) fn read_secret(path: &Path) -> Result<SecretString, CliError> {
    let mut bytes = Zeroizing::new(Vec::new());
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(FILE_LIMIT + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(FILE_LIMIT + 1).read_to_end(&mut bytes))
    };
    let length =
        read.map_err(|error| CliError::refused(format!("{} cannot be read: {error}", path.display())))?;
    if u64::try_from(length).is_ok_and(|length| length > FILE_LIMIT) {
        return Err(CliError::refused(format!(
            "{} is larger than {FILE_LIMIT} bytes, which no secret and no key is: name the right file",
            path.display()
        )));
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| CliError::refused(format!("{} cannot be read: it is not UTF-8", path.display())))?;
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(SecretString::new(line.strip_suffix('\r').unwrap_or(line)))
}

/// The same of what is no secret, such as keys in JSON or PEM, and without a mark of the byte order at its beginning.
pub(super) fn read_file(path: &Path) -> Result<String, CliError> {
    let text = read_secret(path)?;
    let text = text.reveal();
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned())
}

/// The public keys of a JWK Set, or the one in PEM form, each as a JSON Web Key.
pub(super) fn read_keys(path: &Path, form: KeyForm) -> Result<Vec<Value>, CliError> {
    let text = read_file(path)?;
    match form {
        KeyForm::JwkSet => jwks_of(&text).map_err(CliError::refused),
        KeyForm::Pem => Ok(vec![jwk_of(
            &PublicKey::from_pem(&text).map_err(CliError::refused)?,
        )]),
    }
}

/// What a file of public keys holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    /// A JWK Set (RFC 7517 section 5).
    JwkSet,
    /// A `SubjectPublicKeyInfo` in PEM form.
    Pem,
}

/// One of several words, each with what it means.
pub(super) fn words(words: &[(&'static str, &'static str)]) -> PossibleValuesParser {
    let word = |(word, meaning): &(&'static str, &'static str)| PossibleValue::new(*word).help(*meaning);
    words.iter().map(word).collect::<Vec<_>>().into()
}

/// A change that flags name. They have the names of its fields.
pub(super) fn change<T: DeserializeOwned>(flags: &impl Serialize) -> Result<T, CliError> {
    let named = serde_json::to_value(flags).map_err(CliError::refused)?;
    serde_json::from_value(named).map_err(CliError::refused)
}

/// A time with its unit, in seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    match parse_duration(text) {
        Some(duration) if duration <= LONGEST => Ok(duration.as_secs()),
        Some(_) => Err("it is more than a hundred years".to_owned()),
        None => Err("write a time with its unit, as in 24h, 90d, 30m or 60s".to_owned()),
    }
}

/// An algorithm, in capitals or not.
pub(super) fn algorithm(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| algorithm.as_str().eq_ignore_ascii_case(text))
        .ok_or(UnknownAlgorithm)
}

/// Says which of these claims no application is given, each once. They are kept: other systems may have put them there
/// on purpose, and a later release may carry them.
pub(super) fn warn_of_claims<'a>(names: impl IntoIterator<Item = &'a str>, output: &mut Output<'_>) {
    let unheard: BTreeSet<&str> = names.into_iter().filter(|name| is_unheard(name)).collect();
    for name in unheard.iter().take(WARNED) {
        let standard = BY_SCOPE.iter().flat_map(|(_, claims)| claims.iter().copied());
        let meant = match nearest(name, standard) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "no scope carries it".to_owned(),
        };
        output.say(&format!(
            "warning: no application is given the claim {name}: {meant}"
        ));
    }
    if let Some(more) = unheard.len().checked_sub(WARNED).filter(|more| *more > 0) {
        output.say(&format!(
            "warning: and {more} more claims that no application is given"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret that was cut would be another one.
    #[test]
    fn what_is_longer_than_a_secret_is_refused_and_not_cut() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("secret");
        let most = usize::try_from(FILE_LIMIT).unwrap();
        fs::write(&file, "x".repeat(most)).unwrap();
        assert_eq!(read_secret(&file).unwrap().reveal().len(), most);
        for more in ["x", "\n", "é"] {
            fs::write(&file, "x".repeat(most) + more).unwrap();
            for refused in [read_secret(&file).err(), read_file(&file).err()] {
                let said = refused.unwrap().to_string();
                assert!(said.contains("larger than 65536 bytes"), "{said}");
            }
        }
        fs::write(&file, [0xff]).unwrap();
        let said = read_secret(&file).err().unwrap().to_string();
        assert!(said.contains("cannot be read"), "{said}");
    }

    #[test]
    fn no_time_is_longer_than_a_setting_may_be() {
        assert_eq!(seconds("36525d"), Ok(36_525 * 86_400));
        for wrong in ["36526d", "18446744073709551615s", "24"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(seconds("36526d").unwrap_err().contains("a hundred years"));
    }
}

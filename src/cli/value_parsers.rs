//! Reads the values of flags: files, times, algorithms and claims.

use std::collections::BTreeSet;
use std::fmt::Display;
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
use crate::admin::claim::is_without_standard_scope;
use crate::config::duration::{LONGEST_DURATION, parse_duration};
use crate::config::nearest::nearest;
use crate::jose::alg::{Algorithm, UnknownAlgorithm};
use crate::jose::jwk::PublicKey;
use crate::oauth::RegisteredScope;
use crate::oauth::fields::{Removable, jwk_of, jwks_of};
use crate::oauth::openid::claims::BY_SCOPE;
use crate::text;

/// The most claims that a warning names.
const MAX_WARNINGS: usize = 20;
/// The largest file with a secret or a key, in bytes.
const FILE_LIMIT: u64 = 64 * 1024;

/// Reads a file, or standard input for `-`. `advice` ends the message about a file of more than `limit` bytes.
pub(super) fn read_limited(path: &Path, limit: u64, advice: &str) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let mut bytes = Zeroizing::new(Vec::new());
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(limit + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    let length = read.map_err(|error| unreadable(path, &error))?;
    if u64::try_from(length).is_ok_and(|length| length > limit) {
        return Err(CliError::refused(format!(
            "{} is larger than {limit} bytes{advice}",
            path.display()
        )));
    }
    Ok(bytes)
}

/// The error about a file that cannot be read.
pub(super) fn unreadable(path: &Path, reason: &dyn Display) -> CliError {
    CliError::refused(format!("{} cannot be read: {reason}", path.display()))
}

/// The error about a file that cannot be written.
pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::refused(format!("{} cannot be written: {error}", path.display()))
}

/// Reads a secret from a file, or from standard input for `-`, as [`text::secret_line`] has it.
pub(super) fn read_secret(path: &Path) -> Result<SecretString, CliError> {
    let advice = ", too large for a secret or a key: name the right file";
    let bytes = read_limited(path, FILE_LIMIT, advice)?;
    let text = str::from_utf8(&bytes).map_err(|_| unreadable(path, &"it is not UTF-8"))?;
    Ok(SecretString::new(text::secret_line(text)))
}

/// Reads public data, such as keys in JSON or PEM, as [`text::secret_line`] has it.
pub(super) fn read_file(path: &Path) -> Result<String, CliError> {
    Ok(read_secret(path)?.reveal().to_owned())
}

/// Reads the public keys of a JWK Set, or one in PEM form, each as a JSON Web Key.
pub(super) fn read_keys(path: &Path, form: KeyForm) -> Result<Vec<Value>, CliError> {
    let text = read_file(path)?;
    match form {
        KeyForm::JwkSet => jwks_of(&text).map_err(CliError::refused),
        KeyForm::Pem => Ok(vec![jwk_of(
            &PublicKey::from_pem(&text).map_err(CliError::refused)?,
        )]),
    }
}

/// The format of a file of public keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    /// A JWK Set (RFC 7517 section 5).
    JwkSet,
    /// A `SubjectPublicKeyInfo` in PEM form.
    Pem,
}

/// Accepts one of these words. Each has its meaning beside it. Help does not list the empty word.
pub(super) fn words(words: &[(&'static str, &'static str)]) -> PossibleValuesParser {
    let word = |(word, meaning): &(&'static str, &'static str)| {
        PossibleValue::new(*word).help(*meaning).hide(word.is_empty())
    };
    words.iter().map(word).collect::<Vec<_>>().into()
}

/// Converts flags into a change whose fields have the same names.
pub(super) fn change<T: DeserializeOwned>(flags: &impl Serialize) -> Result<T, CliError> {
    let named = serde_json::to_value(flags).map_err(CliError::refused)?;
    serde_json::from_value(named).map_err(CliError::refused)
}

/// A time with its unit, in seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    match parse_duration(text) {
        Some(duration) if duration <= LONGEST_DURATION => Ok(duration.as_secs()),
        Some(_) => Err("it is more than a hundred years".to_owned()),
        None => Err("write a time with its unit, as in 24h, 90d, 30m or 60s".to_owned()),
    }
}

/// A duration in seconds; 0 for an empty text, which removes the value.
pub(super) fn optional_seconds(text: &str) -> Result<u64, String> {
    if text.is_empty() { Ok(0) } else { seconds(text) }
}

/// A duration in seconds. An empty text removes the value.
pub(super) fn removable_seconds(text: &str) -> Result<Removable<u64>, String> {
    if text.is_empty() {
        return Ok(Removable(None));
    }
    seconds(text).map(Removable::from)
}

/// A scope value and its description.
pub(super) fn scope_text(text: &str) -> Result<(String, String), String> {
    let (scope, words) = text.split_once('=').ok_or("a scope text is written SCOPE=TEXT")?;
    Ok((scope.to_owned(), words.to_owned()))
}

/// The `typ` of access tokens, or an empty text for none.
pub(super) fn token_typ() -> PossibleValuesParser {
    words(&[
        ("at+jwt", "The type of RFC 9068"),
        (
            "JWT",
            "For APIs that refuse at+jwt. They must check aud, because ID tokens have the type JWT too",
        ),
        ("", "None"),
    ])
}

/// An algorithm, in capitals or not.
pub(super) fn algorithm(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| algorithm.as_str().eq_ignore_ascii_case(text))
        .ok_or(UnknownAlgorithm)
}

/// An algorithm that the service signs with, in capitals or not.
pub(super) fn signing_algorithm(text: &str) -> Result<Algorithm, String> {
    let named = algorithm(text).ok();
    let named = named.filter(|algorithm| Algorithm::SIGNING.contains(algorithm));
    named.ok_or_else(|| Algorithm::SIGNING_SAID.to_owned())
}

/// An algorithm, or an empty text, which removes the value.
pub(super) fn optional_algorithm(text: &str) -> Result<Removable<Algorithm>, UnknownAlgorithm> {
    match text {
        "" => Ok(Removable(None)),
        name => algorithm(name).map(Removable::from),
    }
}

/// Warns of claims that no scope releases. They are stored: another system may have set them on purpose, and a scope
/// value may release them later. `list_scopes` asks the service for the scope values that the operator registered.
pub(super) fn warn_of_claims<'a>(
    names: impl IntoIterator<Item = &'a str>,
    list_scopes: impl FnOnce(&mut Output<'_>) -> Result<Vec<RegisteredScope>, CliError>,
    output: &mut Output<'_>,
) {
    let is_candidate = |name: &&str| is_without_standard_scope(name);
    let mut unreleased: BTreeSet<&str> = names.into_iter().filter(is_candidate).collect();
    if unreleased.is_empty() {
        return;
    }
    // Before the first start there is no service to ask, and no scope value.
    if let Ok(scopes) = list_scopes(output) {
        let is_released = |name: &str| scopes.iter().any(|scope| scope.metadata.claims.contains(name));
        unreleased.retain(|name| !is_released(name));
    }
    for name in unreleased.iter().take(MAX_WARNINGS) {
        let standard = BY_SCOPE.iter().flat_map(|(_, claims)| claims.iter().copied());
        let meant = match nearest(name, standard) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "no scope includes it".to_owned(),
        };
        output.say(&format!(
            "warning: applications do not get the claim {name}: {meant}"
        ));
    }
    if let Some(more) = unreleased
        .len()
        .checked_sub(MAX_WARNINGS)
        .filter(|more| *more > 0)
    {
        output.say(&format!(
            "warning: and {more} more claims that applications do not get"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

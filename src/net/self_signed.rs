//! The self-signed certificate for development.

use std::path::Path;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

use super::certificate::Pair;
use super::certificate_file::{CertificateFolder, chain_in, key_in};
use super::tls_error::TlsError;
use super::validity::Validity;

const CERTIFICATE: &str = "self-signed.pem";
const KEY: &str = "self-signed.key";

const DAY: u64 = 24 * 60 * 60;
/// Browsers accept at most 398 days.
const LIFETIME: u64 = 365 * DAY;
/// A certificate with less time left than this is replaced.
const LEAST_REMAINDER: u64 = 30 * DAY;

/// The names that a self-signed certificate always has.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The self-signed certificate in `directory/certs`. A new one is made if it is missing, unusable, for other names, or
/// about to expire.
pub fn self_signed(directory: &Path, names: &[String], now_unix_seconds: u64) -> Result<Pair, TlsError> {
    let folder = CertificateFolder::of(directory);
    let mut all_names: Vec<String> = LOCAL_NAMES.map(str::to_owned).to_vec();
    for name in names {
        if !all_names.contains(name) {
            all_names.push(name.clone());
        }
    }
    let heading = format!("self-signed, for development: {}\n", all_names.join(" "));
    if let (Ok(Some(chain)), Ok(Some(key))) = (folder.read(CERTIFICATE), folder.read(KEY))
        && chain.starts_with(heading.as_bytes())
        && let Ok(pair) = pair(&folder, &chain, &key)
        && pair
            .validity()
            .is_some_and(|validity| is_fresh(validity, now_unix_seconds))
        && pair.certified_key().is_ok()
    {
        return Ok(pair);
    }
    let MadePair { chain, key } = make(all_names, now_unix_seconds)?;
    folder.write(KEY, key.as_bytes(), 0o600)?;
    folder.write(CERTIFICATE, (heading + &chain).as_bytes(), 0o644)?;
    let made = pair(&folder, chain.as_bytes(), key.as_bytes())?;
    tracing::info!(file = %made.certificate_file.display(), "made a self-signed certificate");
    Ok(made)
}

fn pair(folder: &CertificateFolder, chain: &[u8], key: &[u8]) -> Result<Pair, TlsError> {
    let (certificate_file, key_file) = (folder.path_of(CERTIFICATE), folder.path_of(KEY));
    Ok(Pair {
        chain: chain_in(chain, &certificate_file)?,
        private_key: key_in(key, &key_file)?,
        certificate_file,
        key_file,
    })
}

fn is_fresh(validity: Validity, now_unix_seconds: u64) -> bool {
    validity.not_before <= now_unix_seconds
        && validity.not_after > now_unix_seconds.saturating_add(LEAST_REMAINDER)
}

/// A certificate and its key, both as PEM.
struct MadePair {
    chain: String,
    key: String,
}

fn make(names: Vec<String>, now_unix_seconds: u64) -> Result<MadePair, TlsError> {
    let unmakeable = |error: rcgen::Error| TlsError::Unmakeable(error.to_string());
    let moment = |seconds: u64| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|_| TlsError::Unmakeable("the clock is out of range".to_owned()))
    };
    let mut params = CertificateParams::new(names).map_err(unmakeable)?;
    params.not_before = moment(now_unix_seconds.saturating_sub(DAY))?;
    params.not_after = moment(now_unix_seconds.saturating_add(LIFETIME - DAY))?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "idsvc self-signed");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(unmakeable)?;
    let certificate = params.self_signed(&key).map_err(unmakeable)?;
    Ok(MadePair {
        chain: certificate.pem(),
        key: key.serialize_pem(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn files(directory: &TempDir) -> (PathBuf, PathBuf) {
        let certs = directory.path().join("certs");
        (certs.join("self-signed.pem"), certs.join("self-signed.key"))
    }

    #[test]
    fn a_self_signed_certificate_is_kept_until_it_no_longer_fits() {
        let directory = TempDir::new().unwrap();
        let (certificate_file, key_file) = files(&directory);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let made = |names: &[String], now| self_signed(directory.path(), names, now).unwrap().fingerprint();

        let first = made(&[], NOW);
        assert_eq!(made(&names(&["localhost"]), NOW + 300 * DAY), first);
        let permissions = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(permissions(&key_file), 0o600);
        assert_eq!(permissions(&directory.path().join("certs")), 0o700);

        let renamed = made(&names(&["id.test"]), NOW);
        assert_ne!(renamed, first);
        let renewed = made(&names(&["id.test"]), NOW + 340 * DAY);
        assert_ne!(renewed, renamed);
        fs::write(&key_file, "").unwrap();
        assert_ne!(made(&names(&["id.test"]), NOW + 340 * DAY), renewed);
        fs::remove_file(&certificate_file).unwrap();
        made(&names(&["id.test"]), NOW + 340 * DAY);
        assert!(matches!(
            self_signed(directory.path(), &names(&["not\u{e9}"]), NOW),
            Err(TlsError::Unmakeable(_))
        ));
    }

    /// A process that is killed between the two files leaves the new key beside the old certificate. A clock that was
    /// wrong when the certificate was made leaves one that is not valid yet.
    #[test]
    fn a_self_signed_certificate_that_cannot_be_used_is_made_anew() {
        let (directory, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (_, key_file) = files(&directory);
        let made = |directory: &TempDir, now| self_signed(directory.path(), &[], now).unwrap();

        let first = made(&directory, NOW).fingerprint();
        made(&other, NOW);
        fs::copy(files(&other).1, &key_file).unwrap();
        let mended = made(&directory, NOW);
        assert!(mended.certified_key().is_ok());
        assert_ne!(mended.fingerprint(), first);
        let earlier = made(&directory, NOW - 2 * DAY);
        assert_ne!(earlier.fingerprint(), mended.fingerprint());
        assert_eq!(earlier.expiry_warning(NOW - 2 * DAY), None);
    }
}

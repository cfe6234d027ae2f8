//! Certificates on disk: read from the operator's files, or made here for development.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use time::{Date, Month, OffsetDateTime, Time};

use super::tls::TlsError;

const DAY: u64 = 24 * 60 * 60;
/// Browsers accept at most 398 days.
const SELF_SIGNED_LIFETIME: u64 = 365 * DAY;
/// A self-signed certificate with less time left than this is replaced.
const SELF_SIGNED_REMAINDER: u64 = 30 * DAY;
/// An operator's certificate with less time left than this is worth a line in the log.
const EXPIRY_WARNING: u64 = 7 * DAY;

/// A certificate chain and the private key of its first certificate.
pub struct Pair {
    /// The server's own certificate, then those that lead to the root.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub private_key: PrivateKeyDer<'static>,
    /// Where the chain was read.
    pub certificate_file: PathBuf,
    /// Where the key was read.
    pub key_file: PathBuf,
}

impl Pair {
    /// Reads both from PEM files. Whether they belong together is not known afterwards.
    pub fn read(certificate_file: &Path, key_file: &Path) -> Result<Self, TlsError> {
        Ok(Self {
            chain: read_chain(certificate_file)?,
            private_key: read_key(key_file)?,
            certificate_file: certificate_file.to_owned(),
            key_file: key_file.to_owned(),
        })
    }

    /// Both from one text in PEM form, which is kept in `file` or about to be.
    pub fn from_pem(pem: &[u8], file: &Path) -> Result<Self, TlsError> {
        Ok(Self {
            chain: chain_in(pem, file)?,
            private_key: key_in(pem, file)?,
            certificate_file: file.to_owned(),
            key_file: file.to_owned(),
        })
    }

    /// Whether clients accept the certificate for every one of these names (RFC 6125).
    pub fn is_for(&self, names: &[String]) -> bool {
        let Some(certificate) = self.chain.first() else {
            return false;
        };
        let Ok(certificate) = ParsedCertificate::try_from(certificate) else {
            return false;
        };
        names.iter().all(|name| {
            ServerName::try_from(name.as_str())
                .is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
        })
    }

    /// A number that changes when the chain or the key does.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for certificate in &self.chain {
            certificate.as_ref().hash(&mut hasher);
        }
        self.private_key.secret_der().hash(&mut hasher);
        hasher.finish()
    }

    /// Certificate and key as the TLS library takes them, when they belong together.
    pub fn certified_key(&self) -> Result<CertifiedKey, TlsError> {
        if self
            .chain
            .first()
            .is_some_and(|certificate| is_version_1(certificate))
        {
            return Err(TlsError::Version1(self.certificate_file.clone()));
        }
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(self.chain.clone(), self.private_key.clone_key(), &provider).map_err(|error| {
            let certificate = self.certificate_file.clone();
            match error {
                rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch) => {
                    let key = self.key_file.clone();
                    TlsError::KeyMismatch { certificate, key }
                }
                source => TlsError::Refused { certificate, source },
            }
        })
    }

    /// When the server's own certificate is valid, if that can be read.
    pub fn validity(&self) -> Option<Validity> {
        Validity::of(self.chain.first()?)
    }

    /// The sentence about a certificate that peers will not accept, or soon will not.
    pub fn expiry_warning(&self, now_unix_seconds: u64) -> Option<String> {
        const RENEW: &str = "renew it; the new file is read within a minute, or at once on SIGHUP";
        let Some(validity) = self.validity() else {
            return Some("the certificate's period of validity cannot be read".to_owned());
        };
        if validity.not_after < now_unix_seconds {
            return Some(format!(
                "the certificate has expired and clients refuse it: {RENEW}"
            ));
        }
        if validity.not_before > now_unix_seconds {
            return Some(
                "the certificate is not valid yet and clients refuse it: see that the clock is right"
                    .to_owned(),
            );
        }
        let rest = validity.not_after - now_unix_seconds;
        (rest < EXPIRY_WARNING).then(|| format!("the certificate expires in {} hours: {RENEW}", rest / 3600))
    }
}

/// Everything that is wrong with the operator's files, and what is worth a warning.
pub fn examine(
    certificate_file: &Path,
    key_file: &Path,
    now_unix_seconds: u64,
) -> Result<Option<String>, Vec<TlsError>> {
    match (read_chain(certificate_file), read_key(key_file)) {
        (Ok(chain), Ok(private_key)) => {
            let pair = Pair {
                chain,
                private_key,
                certificate_file: certificate_file.to_owned(),
                key_file: key_file.to_owned(),
            };
            let warning = pair.expiry_warning(now_unix_seconds);
            pair.certified_key().map_err(|error| vec![error])?;
            Ok(warning)
        }
        (chain, key) => Err([chain.err(), key.err()].into_iter().flatten().collect()),
    }
}

fn read_chain(certificate_file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    chain_in(&read(certificate_file)?, certificate_file)
}

fn chain_in(pem: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| TlsError::NotPem(file.to_owned()))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(file.to_owned()));
    }
    Ok(chain)
}

fn read_key(key_file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    key_in(&read(key_file)?, key_file)
}

fn key_in(pem: &[u8], file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound if is_encrypted(pem) => TlsError::EncryptedKey(file.to_owned()),
        pem::Error::NoItemsFound => TlsError::NoKey(file.to_owned()),
        _ => TlsError::NotPem(file.to_owned()),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|source| TlsError::Unreadable {
        file: file.to_owned(),
        source,
    })
}

fn is_encrypted(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("ENCRYPTED")
}

/// When a certificate is valid, in seconds since the epoch, both ends included (RFC 5280 section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Validity {
    /// Reads it from a DER certificate; nothing else of the certificate is looked at.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (to_be_signed, _) = element(certificate, SEQUENCE)?;
        let after_version = element(to_be_signed, VERSION).map_or(to_be_signed, |(_, rest)| rest);
        let (_serial_number, rest) = element(after_version, INTEGER)?;
        let (_signature, rest) = element(rest, SEQUENCE)?;
        let (_issuer, rest) = element(rest, SEQUENCE)?;
        let (validity, _) = element(rest, SEQUENCE)?;
        let (not_before, rest) = moment(validity)?;
        let (not_after, _) = moment(rest)?;
        Some(Self {
            not_before,
            not_after,
        })
    }
}

/// Whether a DER certificate is of the first version of X.509, which has no room for names (RFC 5280 section 4.1.2.1).
fn is_version_1(certificate: &[u8]) -> bool {
    element(certificate, SEQUENCE)
        .and_then(|(certificate, _)| element(certificate, SEQUENCE))
        .is_some_and(|(to_be_signed, _)| element(to_be_signed, INTEGER).is_some())
}

/// The contents of the DER element that `input` begins with, and what follows it.
pub(super) fn element(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, input) = input.split_first()?;
    let (&first, input) = input.split_first()?;
    if found != tag {
        return None;
    }
    if first < 0x80 {
        return input.split_at_checked(usize::from(first));
    }
    let (length, input) = input.split_at_checked(usize::from(first & 0x7f))?;
    if length.len() > 4 {
        return None;
    }
    let length = length
        .iter()
        .fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    input.split_at_checked(length)
}

/// The time that `input` begins with, in seconds since the epoch, and what follows it.
fn moment(input: &[u8]) -> Option<(u64, &[u8])> {
    let (year_digits, (text, rest)) = match element(input, UTC_TIME) {
        Some(found) => (2, found),
        None => (4, element(input, GENERALIZED_TIME)?),
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != year_digits + 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, others) = text.split_at_checked(year_digits)?;
    let year: i32 = year.parse().ok()?;
    let year = match year_digits {
        2 if year < 50 => 2000 + year,
        2 => 1900 + year,
        _ => year,
    };
    let two = |at: usize| others.get(at..at + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(two(0)?).ok()?, two(2)?).ok()?;
    let time = Time::from_hms(two(4)?, two(6)?, two(8)?).ok()?;
    let seconds = OffsetDateTime::new_utc(date, time).unix_timestamp();
    Some((u64::try_from(seconds).unwrap_or(0), rest))
}

/// The names that a self-signed certificate always has.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The self-signed certificate in `directory/certs`, made anew when it does not fit.
pub fn self_signed(directory: &Path, names: &[String], now_unix_seconds: u64) -> Result<Pair, TlsError> {
    let directory = directory.join("certs");
    let certificate_file = directory.join("self-signed.pem");
    let key_file = directory.join("self-signed.key");
    let mut all_names: Vec<String> = LOCAL_NAMES.map(str::to_owned).to_vec();
    for name in names {
        if !all_names.contains(name) {
            all_names.push(name.clone());
        }
    }
    let heading = format!("self-signed, for development: {}\n", all_names.join(" "));
    if let Ok(pair) = Pair::read(&certificate_file, &key_file)
        && fs::read(&certificate_file).is_ok_and(|pem| pem.starts_with(heading.as_bytes()))
        && pair
            .validity()
            .is_some_and(|validity| is_fresh(validity, now_unix_seconds))
        && pair.certified_key().is_ok()
    {
        return Ok(pair);
    }
    let (certificate, key) = make(all_names, now_unix_seconds)?;
    make_folder(&directory)?;
    write(&key_file, key.as_bytes(), 0o600)?;
    write(&certificate_file, (heading + &certificate).as_bytes(), 0o644)?;
    tracing::info!(file = %certificate_file.display(), "made a self-signed certificate");
    Pair::read(&certificate_file, &key_file)
}

fn is_fresh(validity: Validity, now_unix_seconds: u64) -> bool {
    validity.not_before <= now_unix_seconds
        && validity.not_after > now_unix_seconds.saturating_add(SELF_SIGNED_REMAINDER)
}

/// A certificate and its key, both as PEM.
fn make(names: Vec<String>, now_unix_seconds: u64) -> Result<(String, String), TlsError> {
    let unmakeable = |error: rcgen::Error| TlsError::Unmakeable(error.to_string());
    let moment = |seconds: u64| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|_| TlsError::Unmakeable("the clock is out of range".to_owned()))
    };
    let mut params = CertificateParams::new(names).map_err(unmakeable)?;
    params.not_before = moment(now_unix_seconds.saturating_sub(DAY))?;
    params.not_after = moment(now_unix_seconds.saturating_add(SELF_SIGNED_LIFETIME - DAY))?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "idsvc self-signed");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(unmakeable)?;
    let certificate = params.self_signed(&key).map_err(unmakeable)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Makes the folder of certificates, for its owner only, if it is not there.
pub(super) fn make_folder(directory: &Path) -> Result<(), TlsError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| TlsError::Unwritable {
            file: directory.to_owned(),
            source,
        })
}

/// Writes beside `file` and renames, so that nobody reads half of it; it is on the disk before this returns.
pub(super) fn write(file: &Path, bytes: &[u8], mode: u32) -> Result<(), TlsError> {
    let beside = file.with_extension("new");
    let write = || -> io::Result<()> {
        if let Err(error) = fs::remove_file(&beside)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut open = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        open.write_all(bytes)?;
        open.sync_all()?;
        fs::rename(&beside, file)?;
        match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    };
    write().map_err(|source| TlsError::Unwritable {
        file: file.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tls::Acceptor;
    use super::*;
    use tempfile::TempDir;

    const NOW: u64 = 1_800_000_000;

    fn files(directory: &TempDir) -> (PathBuf, PathBuf) {
        let certs = directory.path().join("certs");
        (certs.join("self-signed.pem"), certs.join("self-signed.key"))
    }

    #[test]
    fn validity_is_read_from_the_certificate() {
        let directory = TempDir::new().unwrap();
        let validity = self_signed(directory.path(), &[], NOW)
            .unwrap()
            .validity()
            .unwrap();
        assert_eq!(
            validity,
            Validity {
                not_before: NOW - DAY,
                not_after: NOW + 364 * DAY
            }
        );
    }

    /// A DER element with a length of two bytes.
    fn sequence(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[SEQUENCE, 0x82, length[0], length[1]], content].concat()
    }

    #[test]
    fn a_certificate_of_the_first_version_is_named_as_such() {
        let directory = TempDir::new().unwrap();
        let mut pair = self_signed(directory.path(), &[], NOW).unwrap();
        assert!(pair.certified_key().is_ok());
        let (whole, _) = element(&pair.chain[0], SEQUENCE).unwrap();
        let (to_be_signed, signature) = element(whole, SEQUENCE).unwrap();
        let (_, without_version) = element(to_be_signed, VERSION).unwrap();
        let old = sequence(&[&sequence(without_version), signature].concat());
        pair.chain = vec![CertificateDer::from(old)];
        let said = pair.certified_key().unwrap_err().to_string();
        assert!(said.contains("X.509 version 1"), "{said}");
    }

    #[test]
    fn a_certificate_that_clients_refuse_is_warned_of_with_the_remedy() {
        let directory = TempDir::new().unwrap();
        let pair = self_signed(directory.path(), &[], NOW).unwrap();
        let warning = |now| pair.expiry_warning(now);
        assert_eq!(warning(NOW), None);
        for (now, part) in [
            (NOW + 400 * DAY, "renew it"),
            (NOW + 360 * DAY, "expires in 96 hours: renew it"),
            (NOW - 2 * DAY, "clock"),
        ] {
            assert!(warning(now).unwrap().contains(part), "{:?}", warning(now));
        }
    }

    #[test]
    fn an_examination_names_the_faults_of_both_files() {
        let (directory, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        self_signed(directory.path(), &[], NOW).unwrap();
        self_signed(other.path(), &[], NOW).unwrap();
        let (certificate, key) = files(&directory);
        assert_eq!(examine(&certificate, &key, NOW).unwrap(), None);
        assert!(examine(&certificate, &key, NOW + 400 * DAY).unwrap().is_some());
        assert_eq!(examine(&key, &certificate, NOW).unwrap_err().len(), 2);
        let mismatch = examine(&certificate, &files(&other).1, NOW).unwrap_err();
        assert!(matches!(mismatch[..], [TlsError::KeyMismatch { .. }]));
    }

    #[test]
    fn both_ways_to_write_a_time_are_read() {
        assert_eq!(moment(b"\x17\x0d700101000001Z-").unwrap(), (1, &b"-"[..]));
        assert_eq!(moment(b"\x17\x0d491231235959Z").unwrap().0, 2_524_607_999);
        assert_eq!(moment(b"\x18\x0f20500101000000Z").unwrap().0, 2_524_608_000);
        assert_eq!(moment(b"\x17\x0d500101000000Z").unwrap().0, 0);
        for wrong in [
            "\x17\x0d701301000001Z",
            "\x17\x0b7001010000Z",
            "\x18\x0d700101000001Z",
            "\x17\x0d70010100000+Z",
        ] {
            assert_eq!(moment(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_cut_off_certificate_has_no_validity() {
        let directory = TempDir::new().unwrap();
        let pair = self_signed(directory.path(), &[], NOW).unwrap();
        let der = pair.chain[0].as_ref();
        for length in 0..der.len() {
            assert_eq!(Validity::of(&der[..length]), None);
        }
        assert_eq!(element(b"\x30\x84\xff\xff\xff\xff", SEQUENCE), None);
        assert_eq!(element(b"\x30\x85\0\0\0\0\x01a", SEQUENCE), None);
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

    #[test]
    fn every_fault_of_the_files_is_named() {
        let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        self_signed(one.path(), &[], NOW).unwrap();
        self_signed(other.path(), &[], NOW).unwrap();
        let (certificate, key) = files(&one);
        let fault = |certificate: &Path, key: &Path| Acceptor::from_files(certificate, key, NOW).unwrap_err();

        assert!(matches!(
            fault(&one.path().join("none"), &key),
            TlsError::Unreadable { .. }
        ));
        assert!(matches!(fault(&key, &key), TlsError::NoCertificate(_)));
        assert!(matches!(fault(&certificate, &certificate), TlsError::NoKey(_)));
        assert!(matches!(
            fault(&certificate, &files(&other).1),
            TlsError::KeyMismatch { .. }
        ));

        let damaged = one.path().join("damaged");
        fs::write(&damaged, "-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
        assert!(matches!(fault(&certificate, &damaged), TlsError::NotPem(_)));
        fs::write(
            &damaged,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        )
        .unwrap();
        assert!(matches!(fault(&certificate, &damaged), TlsError::EncryptedKey(_)));
        fs::write(
            &damaged,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        assert!(matches!(
            fault(&damaged, &key),
            TlsError::Refused { .. } | TlsError::KeyMismatch { .. }
        ));
        assert!(Acceptor::from_files(&certificate, &key, NOW + 10_000 * DAY).is_ok());
    }
}

//! A certificate chain with its private key, and the checks of both.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::certificate_file::{chain_in, key_in, read, read_chain, read_key};
use super::tls_error::TlsError;
use super::validity::{Lapse, Validity};

/// The most certificates of a chain that all clients take, and the most bytes: OpenSSL gives up at 100 KiB.
const LONGEST_CHAIN: (usize, usize) = (10, 64 * 1024);
/// How far this clock may be behind that of a certificate authority, in seconds.
const CLOCK_SKEW: u64 = 60;

/// The bits of a mode that let anybody do anything with a private key but its owner, and a group read it: so keys are
/// shared on purpose, as with the group `ssl-cert` of Debian.
pub const BEYOND_GROUP: u32 = 0o037;

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

    /// Reads both from one PEM file. None when there is no file. It may have expired, but it can be used for at least one
    /// of these domains: until there is a certificate for all of them, those that had one keep it.
    pub fn read_for_some(file: &Path, domains: &[String]) -> Result<Option<Self>, TlsError> {
        let pem = match read(file) {
            Err(TlsError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            pem => pem?,
        };
        let pair = Self::from_pem(&pem, file)?;
        let mut each = domains.chunks(1);
        pair.check_for(each.find(|domain| pair.is_for(domain)).unwrap_or(domains))?;
        Ok(Some(pair))
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
            .leaf()
            .is_some_and(|certificate| certificate.version() == X509Version::V1)
        {
            return Err(TlsError::Version1(self.certificate_file.clone()));
        }
        // The library looks at the first only, and sends the others as they are.
        let mut others = self.chain.iter().skip(1);
        if let Some(at) = others.position(|other| parse(other).is_none()) {
            return Err(TlsError::NoCertificateInChain {
                certificate: self.certificate_file.clone(),
                number: at + 2,
            });
        }
        let provider = rustls::crypto::ring::default_provider();
        let is_key_taken = |key: PrivateKeyDer<'static>| provider.key_provider.load_private_key(key).is_ok();
        CertifiedKey::from_der(self.chain.clone(), self.private_key.clone_key(), &provider).map_err(|error| {
            let certificate = self.certificate_file.clone();
            match error {
                rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch) => {
                    let key = self.key_file.clone();
                    TlsError::KeyMismatch { certificate, key }
                }
                _ if !is_key_taken(self.private_key.clone_key()) => {
                    TlsError::UnusableKey(self.key_file.clone())
                }
                source => TlsError::Refused { certificate, source },
            }
        })
    }

    /// Fails when it cannot be used for all of these domains.
    pub fn check_for(&self, domains: &[String]) -> Result<(), TlsError> {
        self.certified_key()?;
        if self.is_for(domains) {
            return Ok(());
        }
        Err(TlsError::OtherNames {
            certificate: self.certificate_file.clone(),
            names: domains.join(" "),
        })
    }

    /// When the server's own certificate is valid, if that can be read.
    pub fn validity(&self) -> Option<Validity> {
        self.leaf().as_ref().map(Validity::from)
    }

    /// Why somebody has to see to the certificate, if so.
    pub fn lapse(&self, now_unix_seconds: u64) -> Option<Lapse> {
        Lapse::at(now_unix_seconds, self.validity())
    }

    /// The sentence about a certificate that clients refuse who come to `host`, whatever the time is.
    pub fn misfit(&self, host: &str) -> Option<String> {
        if !self.is_for(&[host.to_owned()]) {
            return Some(format!(
                "the certificate is not for {host}, the host of base_url: clients refuse it, unless a proxy shows them another"
            ));
        }
        (!self.is_for_servers()).then(|| {
            "the certificate is not for servers, as its extended key usage says: clients refuse it, unless a proxy shows them another".to_owned()
        })
    }

    /// Whether it may be that of a TLS server: its issuer says so, or says nothing of its use (RFC 5280 section 4.2.1.12).
    fn is_for_servers(&self) -> bool {
        let usage = self
            .leaf()
            .map(|certificate| match certificate.extended_key_usage() {
                Ok(Some(usage)) => usage.value.any || usage.value.server_auth,
                usage => usage.is_ok(),
            });
        usage.unwrap_or(false)
    }

    fn leaf(&self) -> Option<X509Certificate<'_>> {
        parse(self.chain.first()?)
    }

    /// Fails when some client refuses it at `now`, in seconds since the epoch, so that it must not take the place of one
    /// that all of them accept.
    pub fn is_sound(&self, now: u64) -> Result<(), TlsError> {
        let (most, longest) = LONGEST_CHAIN;
        let is_valid_at = |now| self.validity().is_some_and(|validity| validity.includes(now));
        if !is_valid_at(now) && !is_valid_at(now.saturating_add(CLOCK_SKEW)) {
            return Err(TlsError::Unsound("is not valid now"));
        }
        if !self.is_for_servers() {
            return Err(TlsError::Unsound("is not for servers"));
        }
        let length: usize = self.chain.iter().map(|certificate| certificate.len()).sum();
        if self.chain.len() > most || length > longest {
            return Err(TlsError::Unsound("comes with more others than clients take"));
        }
        Ok(())
    }
}

/// What is worth a warning in the operator's files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// That it is about time to renew the certificate.
    pub lapse: Option<Lapse>,
    /// That it is for something else: [`Pair::misfit`].
    pub misfit: Option<String>,
    /// That others can get at the key: [`exposure`].
    pub exposure: Option<String>,
}

/// The sentence about a private key that is open to others than it may be.
pub fn exposure(key_file: &Path) -> Option<String> {
    let mode = fs::metadata(key_file).ok()?.permissions().mode() & 0o777;
    let right = mode & !BEYOND_GROUP;
    let file = key_file.display();
    (mode != right)
        .then(|| format!("{file}: the private key is open to others ({mode:03o}): chmod {right:03o} {file}"))
}

/// Everything that is wrong with the operator's files, and what is worth a warning. `host` is that of the service.
pub fn examine(
    certificate_file: &Path,
    key_file: &Path,
    host: Option<&str>,
    now_unix_seconds: u64,
) -> Result<Examined, Vec<TlsError>> {
    match (read_chain(certificate_file), read_key(key_file)) {
        (Ok(chain), Ok(private_key)) => {
            let pair = Pair {
                chain,
                private_key,
                certificate_file: certificate_file.to_owned(),
                key_file: key_file.to_owned(),
            };
            pair.certified_key().map_err(|error| vec![error])?;
            Ok(Examined {
                lapse: pair.lapse(now_unix_seconds),
                misfit: host.and_then(|host| pair.misfit(host)),
                exposure: exposure(key_file),
            })
        }
        (chain, key) => Err([chain.err(), key.err()].into_iter().flatten().collect()),
    }
}

fn parse(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(certificate)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
    use tempfile::TempDir;
    use time::OffsetDateTime;

    use super::super::self_signed::self_signed;
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 24 * 60 * 60;

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

    /// A DER sequence with a length of two bytes.
    fn sequence(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82, length[0], length[1]], content].concat()
    }

    #[test]
    fn a_certificate_of_the_first_version_is_named_as_such() {
        let directory = TempDir::new().unwrap();
        let mut pair = self_signed(directory.path(), &[], NOW).unwrap();
        assert!(pair.certified_key().is_ok());
        let new = pair.chain[0].clone();
        let to_be_signed = parse(&new).unwrap().tbs_certificate.as_ref().to_vec();
        let signature = &new[4 + to_be_signed.len()..];
        let without_version = to_be_signed[4..].strip_prefix(&[0xa0, 3, 2, 1, 2]).unwrap();
        let old = sequence(&[&sequence(without_version), signature].concat());
        pair.chain = vec![CertificateDer::from(old)];
        let said = pair.certified_key().unwrap_err().to_string();
        assert!(said.contains("X.509 version 1"), "{said}");
    }

    #[test]
    fn a_certificate_that_is_cut_off_has_no_validity() {
        let (mut pair, _folder) = pair(&["id.example"], |_| ());
        assert!(pair.validity().is_some());
        let whole = pair.chain[0].clone();
        for length in 0..whole.len() {
            pair.chain = vec![CertificateDer::from(whole[..length].to_vec())];
            assert_eq!(pair.validity(), None);
            assert!(!pair.is_for_servers());
        }
    }

    #[test]
    fn a_certificate_is_for_servers_unless_it_says_that_it_is_for_others_only() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, CodeSigning, ServerAuth};
        for (purposes, is_for_servers) in [
            (vec![], true),
            (vec![ClientAuth, ServerAuth], true),
            (vec![Any], true),
            (vec![ClientAuth], false),
            (vec![ClientAuth, CodeSigning], false),
        ] {
            let (pair, _folder) = pair(&["id.example"], |params| {
                params.extended_key_usages.clone_from(&purposes);
            });
            assert_eq!(pair.is_for_servers(), is_for_servers, "{purposes:?}");
        }
    }

    #[test]
    fn an_examination_names_the_faults_of_both_files() {
        let (directory, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        self_signed(directory.path(), &[], NOW).unwrap();
        self_signed(other.path(), &[], NOW).unwrap();
        let (certificate, key) = files(&directory);
        let look = |certificate: &Path, key: &Path, now| examine(certificate, key, Some("localhost"), now);
        assert_eq!(look(&certificate, &key, NOW).unwrap(), Examined::default());
        let later = look(&certificate, &key, NOW + 400 * DAY).unwrap();
        assert_eq!(later.lapse, Some(Lapse::Expired));
        assert_eq!(look(&key, &certificate, NOW).unwrap_err().len(), 2);
        let mismatch = look(&certificate, &files(&other).1, NOW).unwrap_err();
        assert!(matches!(mismatch[..], [TlsError::KeyMismatch { .. }]));
    }

    /// A pair for these names and purposes, with what `spoil` makes of it, and its file.
    fn pair(names: &[&str], spoil: impl FnOnce(&mut CertificateParams)) -> (Pair, TempDir) {
        let directory = TempDir::new().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        spoil(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let file = directory.path().join("pair.pem");
        fs::write(&file, key.serialize_pem() + &certificate.pem()).unwrap();
        (Pair::read(&file, &file).unwrap(), directory)
    }

    #[test]
    fn a_certificate_that_is_not_for_the_host_or_not_for_servers_is_warned_of() {
        let (fit, _folder) = pair(&["id.example", "127.0.0.1"], |_| ());
        assert_eq!((fit.misfit("id.example"), fit.misfit("127.0.0.1")), (None, None));
        assert!(
            fit.misfit("other.example")
                .unwrap()
                .contains("not for other.example")
        );
        let (nameless, _folder) = pair(&[], |params| {
            params.distinguished_name.push(DnType::CommonName, "id.example");
        });
        assert!(
            nameless
                .misfit("id.example")
                .unwrap()
                .contains("not for id.example")
        );
        let (client, folder) = pair(&["id.example"], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert!(client.misfit("id.example").unwrap().contains("not for servers"));
        let file = folder.path().join("pair.pem");
        let examined = examine(&file, &file, Some("id.example"), NOW).unwrap();
        assert_eq!(examined.misfit, client.misfit("id.example"));
    }

    #[test]
    fn a_chain_with_something_else_in_it_is_refused() {
        let (mut pair, _folder) = pair(&["id.example"], |_| ());
        let whole = pair.chain[0].clone();
        pair.chain.push(whole.clone());
        assert!(pair.certified_key().is_ok());
        pair.chain.push(CertificateDer::from(vec![0; 3]));
        let said = pair.certified_key().unwrap_err().to_string();
        assert!(said.contains("number 3"), "{said}");
    }

    #[test]
    fn only_what_every_client_takes_is_sound() {
        let (mut good, _folder) = pair(&["id.example"], |params| {
            params.not_before = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
            params.not_after = OffsetDateTime::from_unix_timestamp(1_800_000_000 + 86_400).unwrap();
        });
        assert!(good.is_sound(NOW).is_ok());
        assert!(
            good.is_sound(NOW - CLOCK_SKEW).is_ok(),
            "its issuer's clock is ahead"
        );
        assert!(good.is_sound(NOW - CLOCK_SKEW - 1).is_err());
        assert!(good.is_sound(NOW + DAY + 1).is_err());
        let leaf = good.chain[0].clone();
        good.chain = vec![leaf.clone(); 10];
        assert!(good.is_sound(NOW).is_ok());
        good.chain.push(leaf.clone());
        assert!(good.is_sound(NOW).is_err());
        good.chain = vec![leaf, CertificateDer::from(vec![0; 64 * 1024])];
        assert!(good.is_sound(NOW).is_err());
    }

    #[test]
    fn a_key_that_cannot_be_used_is_told_with_those_that_can() {
        let (mut pair, _folder) = pair(&["id.example"], |_| ());
        // A P-521 key in PKCS #8 begins like this; what follows makes no difference.
        let p_521 = b"\x30\x1a\x02\x01\x00\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23\x04\x03\x04\x01\x00";
        pair.private_key = PrivateKeyDer::Pkcs8(p_521.to_vec().into());
        let said = pair.certified_key().unwrap_err().to_string();
        assert!(said.contains("P-384, or Ed25519"), "{said}");
    }

    #[test]
    fn a_file_of_an_editor_that_marks_utf_8_and_ends_lines_with_two_characters_is_read() {
        let directory = TempDir::new().unwrap();
        self_signed(directory.path(), &[], NOW).unwrap();
        let (certificate, key) = files(&directory);
        for file in [&certificate, &key] {
            let text = fs::read_to_string(file).unwrap();
            let text = text.split_once("-----BEGIN").unwrap().1.replace('\n', "\r\n");
            fs::write(file, format!("\u{feff}-----BEGIN{text}")).unwrap();
        }
        assert!(Pair::read(&certificate, &key).unwrap().certified_key().is_ok());
    }

    #[test]
    fn every_fault_of_the_files_is_named() {
        let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        self_signed(one.path(), &[], NOW).unwrap();
        self_signed(other.path(), &[], NOW).unwrap();
        let (certificate, key) = files(&one);
        let fault =
            |certificate: &Path, key: &Path| examine(certificate, key, None, NOW).unwrap_err().remove(0);

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
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
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
        assert!(examine(&certificate, &key, None, NOW + 10_000 * DAY).is_ok());
    }
}

//! A certificate chain with its private key, and the checks of both.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::certificate_file::{self, CertificateFolder, chain_in, key_in, read_chain, read_key};
use super::chain::{self, ChainEnd, ExpiringIssuer, KnownRoots};
use super::tls_error::TlsError;
use super::validity::{ExpiryWarning, Validity};

/// The longest chain that all clients accept.
const MAX_CHAIN_CERTIFICATES: usize = 10;
/// The largest chain that all clients accept. OpenSSL refuses chains over 100 KiB.
const MAX_CHAIN_BYTES: usize = 64 * 1024;
/// How far this clock may be behind that of a certificate authority, in seconds.
const CLOCK_SKEW: u64 = 60;

/// The permission bits that a private key must not have. The owner may do everything, and the group may read: keys are
/// shared that way on purpose, for example with Debian's group `ssl-cert`.
pub const BEYOND_GROUP: u32 = 0o037;

/// A certificate chain and the private key of its first certificate.
pub struct Pair {
    /// The server's own certificate, then those that lead to the root.
    pub chain: Vec<CertificateDer<'static>>,
    pub private_key: PrivateKeyDer<'static>,
    /// Where the chain was read.
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
}

impl Pair {
    /// Reads both from PEM files. It does not check that they belong together.
    pub fn read(certificate_file: &Path, key_file: &Path) -> Result<Self, TlsError> {
        Ok(Self {
            chain: read_chain(certificate_file)?,
            private_key: read_key(key_file)?,
            certificate_file: certificate_file.to_owned(),
            key_file: key_file.to_owned(),
        })
    }

    /// Reads both from the file of ACME. None if there is no file. The certificate may have expired, but it must be for at
    /// least one of these domains: until there is one for all domains, the old one stays in use.
    pub(super) fn read_for_some(
        folder: &CertificateFolder,
        domains: &[String],
    ) -> Result<Option<Self>, TlsError> {
        let Some(pem) = folder.read(certificate_file::ACME)? else {
            return Ok(None);
        };
        let pair = Self::from_pem(&pem, &folder.path_of(certificate_file::ACME))?;
        let first_match = domains.chunks(1).find(|domain| pair.is_for(domain));
        pair.check_for(first_match.unwrap_or(domains))?;
        Ok(Some(pair))
    }

    /// Parses the chain and the private key from one PEM text, which was read from `file` or will be written to it.
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

    /// Certificate and key for the TLS library. Fails if they do not belong together.
    pub fn certified_key(&self) -> Result<CertifiedKey, TlsError> {
        if self
            .leaf()
            .is_some_and(|certificate| certificate.version() == X509Version::V1)
        {
            return Err(TlsError::Version1(self.certificate_file.clone()));
        }
        // The library parses only the first one, and sends the others unchecked.
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
                    match self.position_of_own() {
                        Some(position) => TlsError::NotFirst {
                            certificate,
                            number: position + 1,
                        },
                        None => TlsError::KeyMismatch {
                            certificate,
                            key: self.key_file.clone(),
                        },
                    }
                }
                _ if !is_key_taken(self.private_key.clone_key()) => {
                    TlsError::UnusableKey(self.key_file.clone())
                }
                source => TlsError::Refused { certificate, source },
            }
        })
    }

    /// The position in the chain of the certificate that the private key belongs to.
    fn position_of_own(&self) -> Option<usize> {
        let provider = rustls::crypto::ring::default_provider();
        self.chain.iter().position(|certificate| {
            let alone = vec![certificate.clone()];
            CertifiedKey::from_der(alone, self.private_key.clone_key(), &provider).is_ok()
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

    /// The validity of the server's own certificate, if it can be read.
    pub fn validity(&self) -> Option<Validity> {
        self.leaf().as_ref().map(Validity::from)
    }

    /// The warning about the end of the certificate's validity, if one is due.
    pub fn expiry_warning(&self, now_unix_seconds: u64) -> Option<ExpiryWarning> {
        ExpiryWarning::at(now_unix_seconds, self.validity())
    }

    /// The warning about a certificate that clients of `host` always refuse.
    pub fn mismatch_warning(&self, host: &str) -> Option<String> {
        if !self.is_for(&[host.to_owned()]) {
            return Some(format!(
                "the certificate is not for {host}, the host of base_url: clients refuse it, unless a proxy shows them another"
            ));
        }
        (!self.is_for_servers()).then(|| {
            "the certificate is not for servers, as its extended key usage says: clients refuse it, unless a proxy shows them another".to_owned()
        })
    }

    /// Whether a TLS server may use the certificate: its extended key usage says so or is absent (RFC 5280 section 4.2.1.12).
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

    /// Fails if some clients refuse the certificate at `now`, in seconds since the epoch. It must then not replace one that
    /// all clients accept.
    pub fn check_acceptance(&self, now: u64) -> Result<(), TlsError> {
        let is_valid_at = |now| self.validity().is_some_and(|validity| validity.includes(now));
        if !is_valid_at(now) && !is_valid_at(now.saturating_add(CLOCK_SKEW)) {
            return Err(TlsError::RefusedByClients("is not valid now"));
        }
        if !self.is_for_servers() {
            return Err(TlsError::RefusedByClients("is not for servers"));
        }
        let length: usize = self.chain.iter().map(|certificate| certificate.len()).sum();
        if self.chain.len() > MAX_CHAIN_CERTIFICATES || length > MAX_CHAIN_BYTES {
            return Err(TlsError::RefusedByClients(
                "comes with more others than clients take",
            ));
        }
        Ok(())
    }
}

/// The warnings about the operator's files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CertificateWarnings {
    /// [`Pair::expiry_warning`] about a certificate that is valid now.
    pub expiry: Option<ExpiryWarning>,
    /// The last second of the server's own certificate.
    pub not_after: Option<u64>,
    /// The certificate after it that expires soon.
    pub expiring_issuer: Option<ExpiringIssuer>,
    /// [`Pair::mismatch_warning`].
    pub mismatch: Option<String>,
    /// [`exposure_warning`].
    pub exposure: Option<String>,
    /// Where the chain ends.
    pub chain: ChainEnd,
}

/// The warning about a file with a secret that other users can read or change. `what` names the secret.
pub fn exposure_warning(file: &Path, what: &str) -> Option<String> {
    let mode = fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let right = mode & !BEYOND_GROUP;
    let file = file.display();
    (mode != right)
        .then(|| format!("{file}: {what} is open to others ({mode:03o}): chmod {right:03o} {file}"))
}

/// All errors in the operator's files, or else the warnings about them. `host` is the host of the service. What all
/// clients refuse is an error here, although the service can start with it: a certificate that is not valid now, and a
/// chain that they cannot follow.
pub fn examine(
    certificate_file: &Path,
    key_file: &Path,
    host: Option<&str>,
    known_roots: &KnownRoots,
    now_unix_seconds: u64,
) -> Result<CertificateWarnings, Vec<TlsError>> {
    match (read_chain(certificate_file), read_key(key_file)) {
        (Ok(chain), Ok(private_key)) => {
            let pair = Pair {
                chain,
                private_key,
                certificate_file: certificate_file.to_owned(),
                key_file: key_file.to_owned(),
            };
            pair.certified_key().map_err(|error| vec![error])?;
            let certificate = || certificate_file.to_owned();
            let expiry = pair.expiry_warning(now_unix_seconds);
            let refused = expiry.filter(|warning| warning.is_refused());
            let mut errors: Vec<_> = refused
                .map(|warning| TlsError::Validity {
                    certificate: certificate(),
                    warning,
                })
                .into_iter()
                .collect();
            let followed = match chain::follow(&pair.chain, known_roots, now_unix_seconds) {
                Ok(followed) => followed,
                Err(fault) => {
                    let certificate = certificate();
                    errors.push(TlsError::Chain { certificate, fault });
                    return Err(errors);
                }
            };
            if !errors.is_empty() {
                return Err(errors);
            }
            Ok(CertificateWarnings {
                chain: followed.end,
                expiring_issuer: followed.expiring,
                expiry,
                not_after: pair.validity().map(|validity| validity.not_after),
                mismatch: host.and_then(|host| pair.mismatch_warning(host)),
                exposure: exposure_warning(key_file, "the private key"),
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
mod tests;

//! Looks at a certificate chain as clients do: each certificate has to lead to the next, up to a root.
//!
//! A root that this machine does not know is no fault: a private authority is known to its clients only.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use super::outbound::{OutboundPolicy, root_store};
use super::validity::{ExpiryWarning, Validity};

/// The timestamps of public logs (RFC 6962 section 3.3), which private authorities have no use for.
const LOG_TIMESTAMPS: &str = "1.3.6.1.4.1.11129.2.4.2";
/// The policies of the CA/Browser Forum begin with this. Only authorities of the web name them.
const WEB_POLICIES: &str = "2.23.140.1.";
/// Where the certificate of the issuer is published (RFC 5280 section 4.2.2.1).
const CA_ISSUERS: &str = "1.3.6.1.5.5.7.48.2";

/// The roots that this machine knows.
#[derive(Debug)]
pub struct KnownRoots {
    store: RootCertStore,
    /// Whether the operator named authorities beside those of the web.
    has_own: bool,
}

impl KnownRoots {
    /// The authorities that outbound requests trust. A file that cannot be read is another fault, so it is left out
    /// here.
    pub fn of(terms: &OutboundPolicy) -> Self {
        let own = root_store(terms).ok().filter(|_| terms.ca_file.is_some());
        let has_own = own.is_some();
        let web = || RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        let store = own.unwrap_or_else(web);
        Self { store, has_own }
    }

    fn has_issuer_of(&self, certificate: &X509Certificate<'_>) -> bool {
        let mut subjects = self.store.roots.iter().map(|root| root.subject.as_ref());
        let issuer = certificate.issuer().as_raw();
        // The anchor holds the content of the sequence alone.
        subjects.any(|subject| issuer.ends_with(subject) && issuer.len() <= subject.len() + SEQUENCE_HEADER)
    }
}

/// The longest header of a DER sequence of a name: tag, and a length of up to 64 KiB.
const SEQUENCE_HEADER: usize = 4;

/// Where a chain without a fault ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChainEnd {
    /// At a root that this machine knows.
    #[default]
    KnownRoot,
    /// At this authority, which this machine does not know.
    UnknownRoot(String),
    /// At the server's own certificate. This authority issued it, and is a private root or is missing in the file.
    Alone(String),
}

impl ChainEnd {
    /// The warning about a certificate whose issuer may be missing.
    pub fn warning(&self) -> Option<String> {
        let Self::Alone(issuer) = self else { return None };
        Some(format!(
            "the file has no other certificate, and this machine does not know {issuer}, which issued it: if that is not a root, clients refuse the chain until its certificate is appended"
        ))
    }
}

/// A chain that clients can follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedChain {
    pub end: ChainEnd,
    /// The first certificate after the server's own that expires soon.
    pub expiring: Option<ExpiringIssuer>,
}

/// A certificate after the server's own that expires soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringIssuer {
    /// Its place in the chain. The server's own is number 1.
    number: usize,
    subject: String,
    warning: ExpiryWarning,
}

impl fmt::Display for ExpiringIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            subject,
            warning,
        } = self;
        let left = warning.hours_left().unwrap_or_default();
        write!(
            f,
            "number {number} in the chain ({subject}) expires in {left} hours, and clients refuse the chain then: replace this certificate with the current one of the authority"
        )
    }
}

/// What has to be said of a chain to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainWarning {
    Fault(ChainFault),
    Expiring(ExpiringIssuer),
}

impl ChainWarning {
    /// The warning about a chain at `now`, in seconds since the epoch. None if clients can follow it for some days.
    pub fn at(now: u64, chain: &[CertificateDer<'_>], known: &KnownRoots) -> Option<Self> {
        match follow(chain, known, now) {
            Err(fault) => Some(Self::Fault(fault)),
            Ok(followed) => followed.expiring.map(Self::Expiring),
        }
    }
}

impl fmt::Display for ChainWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Expiring(expiring) => expiring.fmt(f),
        }
    }
}

/// Why clients cannot follow a chain. Certificates are counted from the server's own, which is number 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The issuer of the last one is missing.
    #[error(
        "the chain is incomplete, and clients refuse it: append the certificate of {issuer}{}, or name the file with the full chain",
        published.as_ref().map(|url| format!(" ({url})")).unwrap_or_default()
    )]
    Incomplete {
        issuer: String,
        /// Where its certificate is.
        published: Option<String>,
    },
    /// The next one belongs to another chain.
    #[error(
        "the chain is broken, and clients refuse it: number {number} ({subject}) did not issue the one before it: put the certificate of {issuer} in its place"
    )]
    Foreign {
        number: usize,
        subject: String,
        /// The issuer that is missing.
        issuer: String,
    },
    #[error(
        "number {number} in the chain ({subject}) has expired, and clients refuse the chain: replace this certificate with the current one of the authority"
    )]
    Expired { number: usize, subject: String },
    #[error(
        "number {number} in the chain ({subject}) is not valid yet, and clients refuse the chain: replace this certificate with the current one of the authority"
    )]
    NotYetValid { number: usize, subject: String },
}

/// Follows a chain from the server's own certificate at `now`, in seconds since the epoch. It does not check that
/// certificate itself.
pub fn follow(
    chain: &[CertificateDer<'_>],
    known: &KnownRoots,
    now: u64,
) -> Result<FollowedChain, ChainFault> {
    let walked = walk(chain, known, now);
    if is_accepted(chain, known, now) {
        // Clients may find another way through the chain.
        let expiring = walked.ok().and_then(|walked| walked.expiring);
        let end = ChainEnd::KnownRoot;
        return Ok(FollowedChain { end, expiring });
    }
    walked
}

fn walk(chain: &[CertificateDer<'_>], known: &KnownRoots, now: u64) -> Result<FollowedChain, ChainFault> {
    let parsed: Vec<_> = chain
        .iter()
        .filter_map(|certificate| parse(certificate))
        .collect();
    let Some((leaf, others)) = parsed.split_first() else {
        return Ok(FollowedChain::default());
    };
    let numbered = others.iter().zip(2..);
    let mut unused: Vec<_> = numbered
        .map(|(certificate, number)| Other { number, certificate })
        .collect();
    let mut expiring = None;
    let mut at = leaf;
    loop {
        if known.has_issuer_of(at) {
            let end = ChainEnd::KnownRoot;
            return Ok(FollowedChain { end, expiring });
        }
        if at.subject().as_raw() == at.issuer().as_raw() {
            let end = ChainEnd::UnknownRoot(at.issuer().to_string());
            return Ok(FollowedChain { end, expiring });
        }
        let Some(position) = issuer_of(at, &unused, now) else {
            let end = end(leaf, at, &unused, known)?;
            return Ok(FollowedChain { end, expiring });
        };
        let Other { number, certificate } = unused.remove(position);
        let subject = certificate.subject().to_string();
        let validity = Validity::from(certificate);
        if validity.not_after < now {
            return Err(ChainFault::Expired { number, subject });
        }
        if validity.not_before > now {
            return Err(ChainFault::NotYetValid { number, subject });
        }
        if expiring.is_none()
            && let Some(warning) = ExpiryWarning::at(now, Some(validity))
        {
            expiring = Some(ExpiringIssuer {
                number,
                subject,
                warning,
            });
        }
        at = certificate;
    }
}

/// A certificate after the server's own.
struct Other<'a> {
    /// Its place in the chain.
    number: usize,
    certificate: &'a X509Certificate<'a>,
}

/// Whether a client that knows these roots accepts the chain.
fn is_accepted(chain: &[CertificateDer<'_>], known: &KnownRoots, now: u64) -> bool {
    let Some((leaf, others)) = chain.split_first() else {
        return false;
    };
    let time = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let algorithms = default_provider().signature_verification_algorithms.all;
    ParsedCertificate::try_from(leaf).is_ok_and(|leaf| {
        verify_server_cert_signed_by_trust_anchor(&leaf, &known.store, others, time, algorithms).is_ok()
    })
}

/// The position of the issuer. If there are several, as after a renewal, it is the one that is valid now and for the
/// longest time.
fn issuer_of(issued: &X509Certificate<'_>, unused: &[Other<'_>], now: u64) -> Option<usize> {
    let is_issuer = |other: &Other<'_>| {
        let issuer = other.certificate;
        issuer.subject().as_raw() == issued.issuer().as_raw() && has_signed(issuer, issued)
    };
    let mut issuers: Vec<_> = (0..).zip(unused).filter(|(_, other)| is_issuer(other)).collect();
    issuers.sort_by_key(|(_, other)| {
        let validity = Validity::from(other.certificate);
        (!validity.includes(now), Reverse(validity.not_after))
    });
    issuers.first().map(|(position, _)| *position)
}

/// Whether the signature is the issuer's. A signature that cannot be verified here counts as the issuer's.
fn has_signed(issuer: &X509Certificate<'_>, issued: &X509Certificate<'_>) -> bool {
    !matches!(
        issued.verify_signature(Some(issuer.public_key())),
        Err(X509Error::SignatureVerificationError)
    )
}

/// The result for a chain that ends at `last`, whose issuer is neither known nor in the file.
fn end(
    leaf: &X509Certificate<'_>,
    last: &X509Certificate<'_>,
    unused: &[Other<'_>],
    known: &KnownRoots,
) -> Result<ChainEnd, ChainFault> {
    let issuer = last.issuer().to_string();
    if let Some(foreign) = unused.first() {
        return Err(ChainFault::Foreign {
            number: foreign.number,
            subject: foreign.certificate.subject().to_string(),
            issuer,
        });
    }
    let is_alone = std::ptr::eq(leaf, last);
    if is_of_the_web(leaf) || is_alone && known.has_own {
        let published = issuer_url(last);
        return Err(ChainFault::Incomplete { issuer, published });
    }
    Ok(if is_alone {
        ChainEnd::Alone(issuer)
    } else {
        ChainEnd::UnknownRoot(issuer)
    })
}

/// Whether an authority of the web issued it. Clients know the roots of these authorities, and so does this machine.
fn is_of_the_web(leaf: &X509Certificate<'_>) -> bool {
    leaf.extensions().iter().any(|extension| {
        let names_web_policy = match extension.parsed_extension() {
            ParsedExtension::CertificatePolicies(policies) => policies
                .iter()
                .any(|policy| policy.policy_id.to_id_string().starts_with(WEB_POLICIES)),
            _ => false,
        };
        names_web_policy || extension.oid.to_id_string() == LOG_TIMESTAMPS
    })
}

fn issuer_url(certificate: &X509Certificate<'_>) -> Option<String> {
    certificate.extensions().iter().find_map(|extension| {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else {
            return None;
        };
        access
            .accessdescs
            .iter()
            .find_map(|described| match &described.access_location {
                GeneralName::URI(url) if described.access_method.to_id_string() == CA_ISSUERS => {
                    Some((*url).to_owned())
                }
                _ => None,
            })
    })
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(certificate)
}

#[cfg(test)]
mod tests;

//! Looks at a certificate chain as clients do: each certificate has to lead to the next, up to a root.
//!
//! A root that this machine does not know is no fault: a private authority is known to its clients only.

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
use super::validity::Validity;

/// The timestamps of public logs (RFC 6962 section 3.3), which private authorities have no use for.
const LOG_TIMESTAMPS: &str = "1.3.6.1.4.1.11129.2.4.2";
/// The policies of the CA/Browser Forum begin with this. Only authorities of the web name them.
const WEB_POLICIES: &str = "2.23.140.1.";
/// Where the certificate of the issuer is published (RFC 5280 section 4.2.2.1).
const CA_ISSUERS: &str = "1.3.6.1.5.5.7.48.2";

/// The roots that this machine knows.
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
pub fn follow(chain: &[CertificateDer<'_>], known: &KnownRoots, now: u64) -> Result<ChainEnd, ChainFault> {
    if is_accepted(chain, known, now) {
        return Ok(ChainEnd::KnownRoot);
    }
    let parsed: Vec<_> = chain
        .iter()
        .filter_map(|certificate| parse(certificate))
        .collect();
    let Some((leaf, others)) = parsed.split_first() else {
        return Ok(ChainEnd::KnownRoot);
    };
    let numbered = others.iter().zip(2..);
    let mut unused: Vec<_> = numbered
        .map(|(certificate, number)| Other { number, certificate })
        .collect();
    let mut at = leaf;
    loop {
        if known.has_issuer_of(at) {
            return Ok(ChainEnd::KnownRoot);
        }
        if at.subject().as_raw() == at.issuer().as_raw() {
            return Ok(ChainEnd::UnknownRoot(at.issuer().to_string()));
        }
        let Some(position) = issuer_of(at, &unused, now) else {
            return end(leaf, at, &unused, known);
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

/// The position of the issuer. If there are several, as after a renewal, one that is valid now comes first.
fn issuer_of(issued: &X509Certificate<'_>, unused: &[Other<'_>], now: u64) -> Option<usize> {
    let is_issuer = |other: &Other<'_>| {
        let issuer = other.certificate;
        issuer.subject().as_raw() == issued.issuer().as_raw() && has_signed(issuer, issued)
    };
    let is_valid = |other: &Other<'_>| Validity::from(other.certificate).includes(now);
    let valid = unused
        .iter()
        .position(|other| is_valid(other) && is_issuer(other));
    valid.or_else(|| unused.iter().position(is_issuer))
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
mod tests {
    use std::{fs, slice};

    use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair};
    use tempfile::TempDir;
    use time::OffsetDateTime;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 24 * 60 * 60;

    /// An authority and its certificate.
    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        certificate: CertificateDer<'static>,
        pem: String,
    }

    fn params(name: &str, days: std::ops::Range<i64>) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let moment = |day: i64| {
            let seconds = i64::try_from(NOW).unwrap() + day * i64::try_from(DAY).unwrap();
            OffsetDateTime::from_unix_timestamp(seconds).unwrap()
        };
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (moment(days.start), moment(days.end));
        params
    }

    fn authority(name: &str, by: Option<&Authority>, days: std::ops::Range<i64>) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, days);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = match by {
            Some(by) => params.signed_by(&key, &by.issuer),
            None => params.self_signed(&key),
        };
        let certificate = certificate.unwrap();
        Authority {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    fn leaf(by: &Authority, extensions: Vec<CustomExtension>) -> CertificateDer<'static> {
        let mut params = params("id.example", -1..30);
        params.custom_extensions = extensions;
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &by.issuer).unwrap().der().clone()
    }

    fn web() -> KnownRoots {
        KnownRoots::of(&OutboundPolicy::default())
    }

    fn knowing(root: &Authority) -> KnownRoots {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("ca.pem");
        fs::write(&file, &root.pem).unwrap();
        KnownRoots::of(&OutboundPolicy {
            ca_file: Some(file),
            ..OutboundPolicy::default()
        })
    }

    #[test]
    fn a_whole_chain_is_good_whether_its_root_is_known_or_not() {
        let root = authority("Root", None, -9..90);
        let between = authority("Between", Some(&root), -9..90);
        let (own, at_root) = (leaf(&between, Vec::new()), leaf(&root, Vec::new()));
        let (known, web) = (knowing(&root), web());
        let chain = [own, between.certificate.clone(), root.certificate.clone()];
        for certificates in [
            &chain[..2],
            &chain,
            &[chain[0].clone(), chain[2].clone(), chain[1].clone()],
        ] {
            assert_eq!(follow(certificates, &known, NOW), Ok(ChainEnd::KnownRoot));
            let end = ChainEnd::UnknownRoot("CN=Root".to_owned());
            assert_eq!(follow(certificates, &web, NOW), Ok(end));
        }
        assert_eq!(
            follow(slice::from_ref(&at_root), &known, NOW),
            Ok(ChainEnd::KnownRoot)
        );
        assert_eq!(
            follow(&[at_root.clone(), chain[2].clone()], &web, NOW),
            Ok(ChainEnd::UnknownRoot("CN=Root".to_owned()))
        );
        let alone = ChainEnd::Alone("CN=Root".to_owned());
        assert_eq!(follow(&[at_root], &web, NOW), Ok(alone));
    }

    #[test]
    fn a_certificate_that_signed_itself_is_at_a_root_that_is_not_known() {
        let root = authority("Root", None, -9..90);
        let chain = [root.certificate.clone()];
        let end = ChainEnd::UnknownRoot("CN=Root".to_owned());
        assert_eq!(follow(&chain, &web(), NOW), Ok(end));
        assert_eq!(follow(&chain, &knowing(&root), NOW), Ok(ChainEnd::KnownRoot));
    }

    #[test]
    fn a_chain_without_its_intermediate_is_incomplete() {
        let root = authority("Root", None, -9..90);
        let between = authority("Between", Some(&root), -9..90);
        let incomplete = |published: Option<&str>| ChainFault::Incomplete {
            issuer: "CN=Between".to_owned(),
            published: published.map(ToOwned::to_owned),
        };
        let chain = [leaf(&between, Vec::new())];
        assert_eq!(follow(&chain, &knowing(&root), NOW), Err(incomplete(None)));
        // DER: a sequence of one policy; one access description with a URI; an octet string.
        let policies = CustomExtension::from_oid_content(
            &[2, 5, 29, 32],
            vec![0x30, 10, 0x30, 8, 6, 6, 0x67, 0x81, 0x0c, 1, 2, 1],
        );
        let url = b"http://ca.example/b.der";
        let location = [&[0x86, u8::try_from(url.len()).unwrap()], &url[..]].concat();
        let method = [6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2];
        let described = [&method[..], &location].concat();
        let length = u8::try_from(described.len()).unwrap();
        let access = [&[0x30, length + 2, 0x30, length], &described[..]].concat();
        let access = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access);
        let logged = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2], vec![4, 0]);
        let chain = [leaf(&between, vec![policies, access])];
        let fault = follow(&chain, &web(), NOW).unwrap_err();
        assert_eq!(fault, incomplete(Some("http://ca.example/b.der")));
        assert!(fault.to_string().contains("(http://ca.example/b.der)"), "{fault}");
        let chain = [leaf(&between, vec![logged])];
        assert_eq!(follow(&chain, &web(), NOW), Err(incomplete(None)));
    }

    #[test]
    fn a_foreign_intermediate_breaks_the_chain() {
        let root = authority("Root", None, -9..90);
        let between = authority("Between", Some(&root), -9..90);
        let renewed = authority("Between", Some(&root), -9..90);
        let other = authority("Other", Some(&root), -9..90);
        for known in [web(), knowing(&root)] {
            for foreign in [&other, &renewed, &root] {
                let chain = [leaf(&between, Vec::new()), foreign.certificate.clone()];
                let fault = follow(&chain, &known, NOW).unwrap_err();
                assert!(
                    matches!(&fault, ChainFault::Foreign { number: 2, issuer, .. } if issuer == "CN=Between"),
                    "{fault}"
                );
            }
        }
        let chain = [
            leaf(&between, Vec::new()),
            other.certificate.clone(),
            between.certificate.clone(),
        ];
        assert_eq!(
            follow(&chain, &knowing(&root), NOW),
            Ok(ChainEnd::KnownRoot),
            "clients leave it out"
        );
    }

    #[test]
    fn an_intermediate_that_is_not_valid_now_is_named() {
        let root = authority("Root", None, -900..900);
        let expired = authority("Between", Some(&root), -90..-1);
        let early = authority("Between", Some(&root), 1..90);
        for known in [web(), knowing(&root)] {
            let chain = |by: &Authority| [leaf(by, Vec::new()), by.certificate.clone()];
            let subject = "CN=Between".to_owned();
            let fault = follow(&chain(&expired), &known, NOW);
            assert_eq!(
                fault,
                Err(ChainFault::Expired {
                    number: 2,
                    subject: subject.clone()
                })
            );
            let fault = follow(&chain(&early), &known, NOW);
            assert_eq!(fault, Err(ChainFault::NotYetValid { number: 2, subject }));
        }
    }
}

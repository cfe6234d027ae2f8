//! Client certificates: RFC 8705. The handshake has proven that the client holds the key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;

use crate::clock::Timestamp;
use crate::jose::jwk::{JwkSet, PublicKey};
use crate::oauth::client_metadata::ClientMetadata;
use crate::oauth::distinguished_name::DistinguishedName;

/// The thumbprint of a certificate: SHA-256 of its DER in base64url (section 3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CertificateThumbprint(String);

/// A certificate that the client showed. Anybody can show one, so it is read no further than a check needs.
pub struct ClientCertificate {
    pub thumbprint: CertificateThumbprint,
    /// The DER of the certificate, and of those that lead to a root.
    chain: Arc<[CertificateDer<'static>]>,
}

/// The names in a certificate cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableCertificate;

impl ClientCertificate {
    /// The certificate at the head of a chain, with the SHA-256 of its DER. `None` if the chain is empty.
    pub fn new(chain: Arc<[CertificateDer<'static>]>, sha256: &[u8]) -> Option<Self> {
        let thumbprint = CertificateThumbprint(URL_SAFE_NO_PAD.encode(sha256));
        (!chain.is_empty()).then_some(Self { thumbprint, chain })
    }

    /// Whether its key is in this set (section 2.2).
    pub fn has_key_of(&self, keys: &JwkSet) -> bool {
        let own = self
            .chain
            .first()
            .and_then(|der| ParsedCertificate::try_from(der).ok());
        let key = own.and_then(|own| PublicKey::from_spki(&own.subject_public_key_info()).ok());
        let thumbprint = key.map(|key| key.thumbprint());
        thumbprint.is_some_and(|own| keys.keys.iter().any(|key| key.thumbprint() == own))
    }

    /// Whether this is its subject, or one of its alternative names (section 2.1.2).
    pub fn has_name(&self, name: &ExpectedName) -> Result<bool, UnreadableCertificate> {
        let der = self.chain.first().ok_or(UnreadableCertificate)?;
        let Ok(([], certificate)) = x509_parser::parse_x509_certificate(der) else {
            return Err(UnreadableCertificate);
        };
        if let ExpectedName::Subject(subject) = name {
            return Ok(DistinguishedName::of(certificate.subject()) == *subject);
        }
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| UnreadableCertificate)?;
        let mut names = names.iter().flat_map(|names| &names.value.general_names);
        Ok(names.any(|own| ExpectedName::of_general(own).as_ref() == Some(name)))
    }
}

/// The name that the certificate of a client must have (section 2.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedName {
    Subject(DistinguishedName),
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, as it is written.
    Uri(String),
    /// An address.
    Ip(IpAddr),
    /// A mail address: its local part, and its host in lower case.
    Email(String, String),
}

/// A field that names what the certificate of a client must have, and the sentence for a value that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFault {
    pub field: &'static str,
    /// What is wrong with its value.
    pub problem: String,
}

impl ExpectedName {
    pub fn fields(client: &ClientMetadata) -> impl Iterator<Item = (&'static str, &str)> {
        let fields = [
            ("tls_client_auth_subject_dn", &client.tls_client_auth_subject_dn),
            ("tls_client_auth_san_dns", &client.tls_client_auth_san_dns),
            ("tls_client_auth_san_uri", &client.tls_client_auth_san_uri),
            ("tls_client_auth_san_ip", &client.tls_client_auth_san_ip),
            ("tls_client_auth_san_email", &client.tls_client_auth_san_email),
        ];
        fields
            .into_iter()
            .filter_map(|(field, value)| Some((field, value.as_deref()?)))
    }

    /// The name that the certificate of this client must have. `None` if none is registered, or several are.
    pub fn of(client: &ClientMetadata) -> Option<Self> {
        let mut fields = Self::fields(client);
        let (field, value) = fields.next()?;
        if fields.next().is_some() {
            return None;
        }
        Self::parse(field, value).ok()
    }

    pub fn parse(field: &'static str, value: &str) -> Result<Self, NameFault> {
        let fault = |problem: &str| NameFault {
            field,
            problem: format!("{value:?}: {problem}"),
        };
        match field {
            "tls_client_auth_subject_dn" => match value.parse() {
                Ok(subject) => Ok(Self::Subject(subject)),
                Err(error) => Err(fault(&format!("{error}"))),
            },
            "tls_client_auth_san_dns" => {
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
                let is_dns = !value.is_empty() && value.bytes().all(is_name);
                is_dns
                    .then(|| Self::Dns(value.to_ascii_lowercase()))
                    .ok_or_else(|| fault("it is no DNS name, as in client.example.com"))
            }
            "tls_client_auth_san_uri" => {
                let is_uri =
                    value.bytes().all(|byte| byte.is_ascii_graphic()) && url::Url::parse(value).is_ok();
                is_uri
                    .then(|| Self::Uri(value.to_owned()))
                    .ok_or_else(|| fault("it is no URI, as in spiffe://example.com/client"))
            }
            "tls_client_auth_san_ip" => match value.parse() {
                Ok(address) => Ok(Self::Ip(address)),
                Err(_) => Err(fault("it is no address, as in 192.0.2.1 or 2001:db8::1")),
            },
            _ => Self::email(value).ok_or_else(|| fault("it is no mail address, as in client@example.com")),
        }
    }

    fn email(value: &str) -> Option<Self> {
        let (local, host) = value.rsplit_once('@')?;
        let is_whole = !local.is_empty() && !host.is_empty();
        is_whole.then(|| Self::Email(local.to_owned(), host.to_ascii_lowercase()))
    }

    fn of_general(name: &GeneralName<'_>) -> Option<Self> {
        match name {
            GeneralName::DNSName(name) => Some(Self::Dns(name.to_ascii_lowercase())),
            GeneralName::URI(uri) => Some(Self::Uri((*uri).to_owned())),
            GeneralName::RFC822Name(address) => Self::email(address),
            GeneralName::IPAddress(bytes) => {
                let ipv4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                ipv4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
                    .ok()
                    .map(Self::Ip)
            }
            _ => None,
        }
    }
}

/// Whether a certificate may sign others (RFC 5280 sections 4.2.1.3 and 4.2.1.9). webpki does not check this
/// for the root of a chain.
fn is_authority(der: &[u8]) -> bool {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(der) else {
        return false;
    };
    let may_sign = certificate
        .key_usage()
        .is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    may_sign && certificate.is_ca()
}

/// The certificate authorities whose certificates authenticate clients (section 2.1).
#[derive(Clone, Debug)]
pub struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    /// Reads PEM certificates. The error is a sentence about the whole text.
    pub fn of_pem(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("it is no PEM file: {error}"))?;
            if !is_authority(&certificate) {
                return Err("a certificate in it is not that of an authority: its holder could make certificates for any client (RFC 5280 section 4.2.1.9)".to_owned());
            }
            roots
                .add(certificate)
                .map_err(|error| format!("a certificate in it cannot be used: {error}"))?;
        }
        if roots.is_empty() {
            return Err("it has no certificate (-----BEGIN CERTIFICATE-----)".to_owned());
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        let verifier = builder.build().map_err(|error| error.to_string())?;
        Ok(Self(verifier))
    }

    /// Whether a chain leads from the certificate to one of them now, and the certificate is for clients.
    pub fn verify_chain(&self, certificate: &ClientCertificate, now: Timestamp) -> bool {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.seconds()));
        let Some((own, intermediates)) = certificate.chain.split_first() else {
            return false;
        };
        self.0.verify_client_cert(own, intermediates, now).is_ok()
    }
}

//! The answers to a certificate authority's check of a domain (TLS-ALPN-01, RFC 8737).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::alpn::ACME_TLS_1;
use super::tls_error::TlsError;

type Certificates = HashMap<String, Arc<CertifiedKey>>;

/// The certificates that answer the open challenges, by domain. A clone shares them.
#[derive(Clone, Default)]
pub struct Challenges(Arc<Mutex<Certificates>>);

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Challenges").finish_non_exhaustive()
    }
}

impl Challenges {
    /// Whether the peer is an authority that checks a challenge: it offers `acme-tls/1` and no other protocol (RFC 8737
    /// section 3).
    pub fn is_validation(hello: &ClientHello<'_>) -> bool {
        hello
            .alpn()
            .is_some_and(|mut offered| offered.next() == Some(ACME_TLS_1) && offered.next().is_none())
    }

    /// Answers handshakes about `domain` until the guard is dropped. `digest` is the SHA-256 of the key authorization.
    pub fn answer(&self, domain: &str, digest: &[u8; 32]) -> Result<OpenChallenge, TlsError> {
        let domain = domain.to_ascii_lowercase();
        let certified = Arc::new(certify(&domain, digest)?);
        self.certificates().insert(domain.clone(), certified);
        Ok(OpenChallenge {
            challenges: self.clone(),
            domain,
        })
    }

    /// The TLS configuration for such a check. No data follows the handshake.
    pub fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![ACME_TLS_1.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn certificates(&self) -> MutexGuard<'_, Certificates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Challenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let domain = hello.server_name()?.to_ascii_lowercase();
        self.certificates().get(&domain).cloned()
    }
}

/// A challenge that is answered until this is dropped.
#[derive(Debug)]
pub struct OpenChallenge {
    challenges: Challenges,
    domain: String,
}

impl Drop for OpenChallenge {
    fn drop(&mut self) {
        self.challenges.certificates().remove(&self.domain);
    }
}

/// A self-signed certificate with the digest in it (RFC 8737 section 3).
fn certify(domain: &str, digest: &[u8; 32]) -> Result<CertifiedKey, TlsError> {
    let unmakeable = |error: rcgen::Error| TlsError::Unmakeable(error.to_string());
    let mut params = CertificateParams::new(vec![domain.to_owned()]).map_err(unmakeable)?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(unmakeable)?;
    let certificate = params.self_signed(&key).map_err(unmakeable)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = sign::any_supported_type(&key).map_err(TlsError::Setup)?;
    // `CertifiedKey::from_der` refuses the certificate for its critical extension.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

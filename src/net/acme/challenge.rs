//! The answers to the authority's handshakes (TLS-ALPN-01, RFC 8737).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::net::tls::{TlsError, provider};

/// The protocol name of the challenge (RFC 8737 section 6.2).
pub const ACME_TLS_1: &[u8] = b"acme-tls/1";

/// The challenges under way, by domain. A clone shares them.
#[derive(Clone, Default)]
pub struct Challenges(Arc<Mutex<HashMap<String, Arc<CertifiedKey>>>>);

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Challenges").finish_non_exhaustive()
    }
}

impl Challenges {
    /// Whether a peer that offers these protocols is an authority that checks a challenge: one that offers this
    /// protocol and no other (RFC 8737 section 3).
    pub fn is_asked_for(hello: &ClientHello<'_>) -> bool {
        hello
            .alpn()
            .is_some_and(|mut offered| offered.next() == Some(ACME_TLS_1) && offered.next().is_none())
    }

    /// Answers handshakes about `domain` until the guard is dropped. `digest` is the SHA-256 of the key authorization.
    pub fn answer(&self, domain: &str, digest: &[u8; 32]) -> Result<Answering, TlsError> {
        let domain = domain.to_ascii_lowercase();
        let certified = Arc::new(certify(&domain, digest)?);
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.insert(domain.clone(), certified);
        Ok(Answering {
            challenges: self.clone(),
            domain,
        })
    }

    /// The configuration of a handshake that is such a check; nothing is sent over what comes of it.
    pub fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![ACME_TLS_1.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl ResolvesServerCert for Challenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let domain = hello.server_name()?.to_ascii_lowercase();
        let under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.get(&domain).cloned()
    }
}

/// A challenge that is answered as long as this lives.
#[derive(Debug)]
pub struct Answering {
    challenges: Challenges,
    domain: String,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut under_way = self.challenges.0.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.remove(&self.domain);
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
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = provider()
        .key_provider
        .load_private_key(key)
        .map_err(TlsError::Setup)?;
    // The library's own way to pair them reads the certificate, and knows nothing of its critical extension.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

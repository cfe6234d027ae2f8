//! The configurations of the TLS library: with and without client certificates.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};

use super::alpn::{HTTP_1_0, HTTP_1_1, HTTP_2};
use super::client_certificate::AnyCertificateVerifier;
use super::key_exchange::crypto_provider;
use super::tls_error::TlsError;

/// Resolves no certificate, so that each handshake fails.
#[derive(Debug)]
pub(super) struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// TLS 1.2 and 1.3, without client certificates, with session tickets that take no memory here. Each configuration has a
/// ticket key of its own: no session outlives the certificate that it began with.
pub(super) fn server_config(certificates: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, TlsError> {
    let mut config = config_builder()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec(), HTTP_1_0.to_vec()];
    config.ticketer = ring::Ticketer::new().map_err(TlsError::Setup)?;
    Ok(config)
}

/// The same, with client certificates and without resumption: each connection proves anew that the client holds its key.
pub(super) fn mtls_config(certificates: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, TlsError> {
    let mut config = config_builder()?
        .with_client_cert_verifier(Arc::new(AnyCertificateVerifier::new()))
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec(), HTTP_1_0.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

fn config_builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, TlsError> {
    ServerConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)
}

//! Client certificates in the TLS handshake: the service asks for one, and a client that sends one must prove that it holds the key.
//!
//! Which certificates authenticate a client is decided for each request, by the record of the client.

use std::fmt;
use std::sync::Arc;

use ring::digest::{Digest, SHA256, digest};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConnection, SignatureScheme,
};

use super::key_exchange::crypto_provider;

/// The most certificates that a client may send.
const MAX_CERTIFICATES: usize = 8;
/// The most bytes of them together.
const MAX_BYTES: usize = 24 * 1024;

/// The certificates of a connection on which the service asked for one: the client's own first, or none. Each request on
/// the connection has it as an extension.
#[derive(Clone)]
pub struct ClientCertificates {
    /// The chain. Empty if the client showed no certificate.
    pub chain: Arc<[CertificateDer<'static>]>,
    /// The SHA-256 of the client's own certificate.
    pub sha256: Digest,
}

impl ClientCertificates {
    /// The certificates that the client showed in the handshake of this connection.
    pub(super) fn of(connection: &ServerConnection) -> Self {
        let chain = connection.peer_certificates().unwrap_or_default();
        let own = chain.first().map(|own| &**own).unwrap_or_default();
        Self {
            chain: chain.into(),
            sha256: digest(&SHA256, own),
        }
    }
}

/// Certificates are not logged.
impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientCertificates")
            .field(&self.chain.len())
            .finish()
    }
}

/// Accepts every certificate whose holder signs the handshake with its key. A client may also show none.
#[derive(Debug)]
pub(super) struct AnyCertificateVerifier(WebPkiSupportedAlgorithms);

impl AnyCertificateVerifier {
    pub(super) fn new() -> Self {
        Self(crypto_provider().signature_verification_algorithms)
    }
}

impl ClientCertVerifier for AnyCertificateVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = others
            .iter()
            .fold(own.len(), |bytes, other| bytes.saturating_add(other.len()));
        if others.len() >= MAX_CERTIFICATES || bytes > MAX_BYTES {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

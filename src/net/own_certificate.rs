//! TLS to servers whose certificate no known authority issued.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::key_exchange::crypto_provider;
use super::outbound::{OutboundPolicy, SetupError, read_authorities, root_store};

/// Which certificates are accepted although no known authority issued them.
#[derive(Debug)]
enum Accepted {
    /// Exactly these, for any name and at any time.
    These(Vec<CertificateDer<'static>>),
    Any,
}

/// TLS that also trusts the certificates in the file of a setting, as authorities or as the server's own.
pub fn trusting(terms: &OutboundPolicy, key: &'static str, file: &Path) -> Result<ClientConfig, SetupError> {
    let mut roots = root_store(terms)?;
    let certificates = read_authorities(key, file)?;
    if certificates.is_empty() {
        return Err(SetupError::NoAuthority {
            key,
            file: file.to_owned(),
        });
    }
    for certificate in &certificates {
        // One that cannot be an authority can still be the server's own.
        let _ = roots.add(certificate.clone());
    }
    Ok(config(roots, Accepted::These(certificates))?)
}

/// TLS that proves nothing about the other side: for questions to a service on this machine.
pub fn trusting_any() -> Result<ClientConfig, Error> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    config(roots, Accepted::Any)
}

fn config(roots: RootCertStore, accepted: Accepted) -> Result<ClientConfig, Error> {
    let provider = Arc::new(crypto_provider());
    let by_authorities =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let by_authorities = by_authorities.map_err(|error| Error::General(error.to_string()))?;
    let verifier = Verifier {
        by_authorities,
        accepted,
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

#[derive(Debug)]
struct Verifier {
    by_authorities: Arc<WebPkiServerVerifier>,
    accepted: Accepted,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_accepted = match &self.accepted {
            Accepted::These(certificates) => certificates.contains(end_entity),
            Accepted::Any => true,
        };
        if is_accepted {
            return Ok(ServerCertVerified::assertion());
        }
        self.by_authorities
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authorities
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authorities
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authorities.supported_verify_schemes()
    }
}

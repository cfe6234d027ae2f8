//! The certificate of the client on the connection of a request: RFC 8705.
//!
//! The certificate is shown at a listener of its own. `net` asks for it and verifies that the client has the key.
//! [`crate::oauth::client_auth`] decides by the record of the client whether the certificate authenticates it, and
//! [`crate::oauth::confirmation`] says what a token is bound to: a key, or a certificate.

use std::sync::Arc;

use ::http::Extensions;

use crate::net::client_certificate::ClientCertificates;
use crate::oauth::client_certificate::ClientCertificate;

/// What the connection of a request shows of its client.
pub struct ShownCertificate {
    /// Whether the request came to the listener that asks clients for certificates.
    pub is_mtls_listener: bool,
    /// The certificate that the client showed.
    pub certificate: Option<Arc<ClientCertificate>>,
}

impl ShownCertificate {
    pub(super) fn of(extensions: &Extensions) -> Self {
        let certificates = extensions.get::<ClientCertificates>();
        Self {
            is_mtls_listener: certificates.is_some(),
            certificate: certificates
                .and_then(|shown| ClientCertificate::new(Arc::clone(&shown.chain), shown.sha256.as_ref()))
                .map(Arc::new),
        }
    }
}

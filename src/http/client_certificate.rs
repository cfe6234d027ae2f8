//! The certificate of the client on the connection of a request: RFC 8705.

use std::sync::Arc;

use ::http::Extensions;

use super::context::RequestContext;
use crate::net::client_certificate::ClientCertificates;
use crate::oauth::client_certificate::ClientCertificate;
use crate::route::Route;

/// Whether the request came to the listener that asks clients for certificates, and the certificate that the client showed.
pub(super) struct ShownCertificate {
    is_mtls_listener: bool,
    certificate: Option<Arc<ClientCertificate>>,
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

impl RequestContext {
    /// Whether the request came to the listener that asks clients for certificates.
    pub fn is_at_certificate_listener(&self) -> bool {
        self.shown_certificate.is_mtls_listener
    }

    /// The certificate that the client showed on this connection.
    pub fn client_certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.shown_certificate.certificate.as_ref()
    }

    /// The address of an endpoint at the listener that the request came to.
    pub fn endpoint_url(&self, endpoint: &Route) -> String {
        let policy = &self.app.core.policy;
        let base = policy.mtls.base(&policy.issuer);
        match base.filter(|_| self.is_at_certificate_listener()) {
            Some(base) => endpoint.url(&base),
            None => self.app.url(endpoint),
        }
    }
}

//! The discovery document and the key set: OpenID Connect Discovery 4, RFC 8414 section 3, RFC 7517 section 5.

use crate::http::context::RequestContext;
use crate::http::headers::cacheable;
use crate::http::response::HttpResponse;
use crate::oauth::policy::KeyRotation;

/// The discovery document.
pub fn document(context: &RequestContext) -> HttpResponse {
    cacheable(
        context.headers(),
        "application/json",
        &context.app.documents().discovery,
        KeyRotation::KEPT_BY_VERIFIERS,
    )
}

/// The public keys.
pub fn jwks(context: &RequestContext) -> HttpResponse {
    cacheable(
        context.headers(),
        "application/json",
        &context.app.documents().jwks,
        KeyRotation::KEPT_BY_VERIFIERS,
    )
}

//! The discovery document and the key set: OpenID Connect Discovery 4, RFC 8414 section 3, RFC 7517 section 5.

use ::http::StatusCode;

use crate::http::context::RequestContext;
use crate::http::headers::cacheable;
use crate::http::response::{self, HttpResponse};
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

/// The origins whose pages may use the passkeys, if there are others than the own one.
pub fn related_origins(context: &RequestContext) -> HttpResponse {
    let relying_party = context.app.core.policy.relying_party();
    match relying_party.and_then(|relying_party| relying_party.related_origins()) {
        Some(document) => response::json(StatusCode::OK, &document),
        None => context.not_found(),
    }
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

//! The discovery document and the key set: OpenID Connect Discovery 4, RFC 8414 section 3, RFC 7517 section 5.

use crate::http::call::Call;
use crate::http::headers::cacheable;
use crate::http::response::Answer;
use crate::oauth::policy::KeyRotation;

/// The discovery document.
pub fn document(call: &Call) -> Answer {
    cacheable(
        call.headers(),
        "application/json",
        &call.app.documents().discovery,
        KeyRotation::KEPT_BY_VERIFIERS,
    )
}

/// The public keys.
pub fn jwks(call: &Call) -> Answer {
    cacheable(
        call.headers(),
        "application/json",
        &call.app.documents().jwks,
        KeyRotation::KEPT_BY_VERIFIERS,
    )
}

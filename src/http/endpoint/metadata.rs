//! The discovery document and the key set: OpenID Connect Discovery 4, RFC 8414 section 3, RFC 7517 section 5.

use std::time::Duration;

use crate::http::call::Call;
use crate::http::headers::cacheable;
use crate::http::response::Answer;

/// How long both may be kept. A new key is announced for longer than this before it signs.
const MAX_AGE: Duration = Duration::from_mins(5);

/// The discovery document.
pub fn document(call: &Call) -> Answer {
    cacheable(
        call.headers(),
        "application/json",
        &call.app.documents().discovery,
        MAX_AGE,
    )
}

/// The public keys.
pub fn jwks(call: &Call) -> Answer {
    cacheable(
        call.headers(),
        "application/json",
        &call.app.documents().jwks,
        MAX_AGE,
    )
}

//! `GET /healthz` and `GET /readyz`, for whatever watches the process.

use ::http::StatusCode;

use crate::http::call::Call;
use crate::http::response::{self, Answer};

/// The process answers.
pub fn alive() -> Answer {
    response::no_store(response::text(StatusCode::OK, "alive\n"))
}

/// The service can do its work: the store takes writes and there are keys to sign with.
pub fn ready(call: &Call) -> Answer {
    let core = &call.app.core;
    let (status, text) = if !core.store.is_writable() {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the store cannot be written to\n",
        )
    } else if core
        .catalog()
        .access_token_encoder(core.policy.access_token_alg)
        .is_err()
    {
        (StatusCode::SERVICE_UNAVAILABLE, "there is no key to sign with\n")
    } else {
        (StatusCode::OK, "ready\n")
    };
    response::no_store(response::text(status, text))
}

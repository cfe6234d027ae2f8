//! `GET /healthz` and `GET /readyz`, for whatever watches the process.

use ::http::StatusCode;

use crate::app::App;
use crate::http::context::RequestContext;
use crate::http::response::{self, Answer};

/// The process answers.
pub fn alive() -> Answer {
    response::no_store(response::text(StatusCode::OK, "alive\n"))
}

/// The service can do its work.
pub fn ready(context: &RequestContext) -> Answer {
    readiness(&context.app)
}

/// Whether the service can do its work: it can be reached, the store takes writes, the disk has room for more and
/// there are keys to sign with.
pub fn readiness(app: &App) -> Answer {
    let core = &app.core;
    let wanting = if let Some(why) = app.unreachable.load_full() {
        format!("{why}\n")
    } else if let Some(stalled) = core.store.stalled() {
        format!("{stalled}\n")
    } else if !core.store.is_writable() {
        "the store cannot be written to\n".to_owned()
    } else if let Some(free) = app.scarce_bytes() {
        format!("the disk is full: {free} bytes are free where the data is\n")
    } else if core
        .catalog()
        .access_token_encoder(core.policy.access_token_alg)
        .is_err()
    {
        "there is no key to sign with\n".to_owned()
    } else {
        return response::no_store(response::text(StatusCode::OK, "ready\n"));
    };
    response::no_store(response::text(StatusCode::SERVICE_UNAVAILABLE, wanting))
}

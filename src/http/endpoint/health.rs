//! `GET /healthz` and `GET /readyz`, for monitors of the process.

use ::http::StatusCode;

use crate::app::App;
use crate::http::response::{self, HttpResponse};

/// The process runs and answers.
pub fn alive() -> HttpResponse {
    response::no_store(response::text(StatusCode::OK, "alive\n"))
}

/// Whether the service can do its work: it can be reached, the store takes writes, the disk has space, and there are keys
/// to sign with.
pub fn readiness(app: &App) -> HttpResponse {
    let core = &app.core;
    let problem = if let Some(why) = app.unreachable.load_full() {
        format!("{why}\n")
    } else if let Some(stalled) = core.store.stalled() {
        format!("{stalled}\n")
    } else if let Some(problem) = core.store.problem() {
        format!("{problem}\n")
    } else if let Some(full) = app.full_disk() {
        format!("{full}\n")
    } else if core
        .catalog()
        .access_token_encoder(core.policy.access_token_alg, core.policy.access_token_typ)
        .is_err()
    {
        "there is no key to sign with\n".to_owned()
    } else {
        // Everything else works without mails. The log says more than what anyone may read.
        let is_sound = app.mail_problem.load().is_none();
        let told = if is_sound {
            "ready\n"
        } else {
            "ready\nmails wait: the mail server cannot be used\n"
        };
        return response::no_store(response::text(StatusCode::OK, told));
    };
    response::no_store(response::text(StatusCode::SERVICE_UNAVAILABLE, problem))
}

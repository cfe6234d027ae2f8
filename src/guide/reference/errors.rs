//! The error codes of OAuth, the reasons in the log, and the exit codes of commands.

use super::{code, meanings, table};
use crate::http::error::answer_status;
use crate::oauth::error::{Cause, ErrorCode};

const INTRODUCTION: &str = "\
An error is a JSON object with `error` and `error_description`. An error of `/oauth2/authorize` goes to the redirect URI instead, as parameters of these names, and has no status. If the redirect URI is not registered, the user sees a page that says so. The user also sees the error of a client that registered itself or has a metadata document, unless the user is signed in and has allowed it before. So an application that [registers itself](../let-clients-register.md) or [has such a document](../accept-clients-by-address.md) may get no answer to `prompt=none`.

Retry after 429 and 503, as `Retry-After` says, and never after 400 or 401.

";

const REASONS: &str = "\
## Reasons in the log

A client that is not authenticated learns only that. The line `refused` in the log has the reason, under the request ID of the answer (`X-Request-Id`). See [Find out why an application was refused](../find-out-why-an-application-was-refused.md).

";

const EXIT_CODES: &str = "\
## Exit codes of commands

";

pub(super) fn text(exit_codes: &[(u8, &str)]) -> String {
    let codes = ErrorCode::ALL.map(|error| [code(error.as_str()), status(error), error.meaning().to_owned()]);
    let exit_codes = exit_codes
        .iter()
        .map(|(number, meaning)| [number.to_string(), (*meaning).to_owned()]);
    [
        INTRODUCTION,
        &table(["error", "status", "what is wrong, and what to do"], codes),
        REASONS,
        &meanings(
            ["reason", "meaning"],
            Cause::ALL.map(|cause| (cause.as_str(), cause.meaning())),
        ),
        EXIT_CODES,
        &table(["code", "meaning"], exit_codes),
    ]
    .concat()
}

fn status(error: ErrorCode) -> String {
    let status = answer_status(error).map(|status| status.as_u16().to_string());
    match (error, status) {
        (_, None) => "–".to_owned(),
        (ErrorCode::InvalidDpopProof | ErrorCode::UseDpopNonce, Some(status)) => {
            format!("{status}; at `UserInfo` 401")
        }
        (ErrorCode::TemporarilyUnavailable, Some(status)) => format!("{status}; over a limit 429"),
        (_, Some(status)) => status,
    }
}

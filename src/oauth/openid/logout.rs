//! RP-initiated logout: OpenID Connect RP-Initiated Logout 1.0.

use uuid::Uuid;

use crate::oauth::client::Client;
use crate::oauth::error::Refusal;
use crate::oauth::openid::id_token::IdTokenHint;
use crate::oauth::parameters::Parameters;
use crate::oauth::redirect_uri;

/// A request to sign out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogoutRequest {
    /// It has an ID token of this service. If the ID token is of the session of this browser, the session ends without a
    /// question.
    Hinted {
        user: Uuid,
        /// The session in which the ID token was issued.
        session: Option<Uuid>,
        /// Where the browser is sent afterwards. Without it a page confirms the sign-out.
        return_to: Option<String>,
    },
    /// It has no valid ID token, so another site may have sent it. The user is asked first. If the user confirms, the
    /// browser is sent to the address of [`return_to`].
    Unproven,
}

/// Decides what a request may do. `hint` is the ID token, `None` if it cannot be verified. `client` is the client of
/// the ID token, or else of `client_id`. It is `None` for an unknown or disabled client; the user may sign out
/// nevertheless (section 4).
///
/// A contradictory request is refused with a page.
pub fn parse(
    parameters: &Parameters,
    hint: Option<&IdTokenHint>,
    client: Option<&Client>,
) -> Result<LogoutRequest, Refusal> {
    parameters.each_once()?;
    if let (Some(hint), Some(client_id)) = (hint, parameters.get("client_id"))
        && hint.aud != client_id
    {
        return Err(Refusal::invalid_request(
            "client_id is not the client that id_token_hint was issued to",
        ));
    }
    let Some(client) = client else {
        return Ok(LogoutRequest::Unproven);
    };
    let return_to = return_to(parameters, client)?;
    Ok(match hint {
        Some(hint) => LogoutRequest::Hinted {
            user: hint.sub,
            session: hint.sid,
            return_to,
        },
        None => LogoutRequest::Unproven,
    })
}

/// The address to which the browser is sent after the sign-out, with `state`. It must be registered for this client,
/// byte for byte (section 3).
pub fn return_to(parameters: &Parameters, client: &Client) -> Result<Option<String>, Refusal> {
    let Some(uri) = parameters.get("post_logout_redirect_uri") else {
        return Ok(None);
    };
    if !client.post_logout_redirect_uris.iter().any(|known| known == uri) {
        return Err(Refusal::invalid_request(
            "post_logout_redirect_uri is not registered for this client",
        ));
    }
    let state = parameters.get("state").map(|state| ("state", state));
    Ok(Some(redirect_uri::with_query(uri, state.as_slice())))
}

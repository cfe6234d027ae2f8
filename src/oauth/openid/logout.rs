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
    /// It has an ID token of this service. If the user of the ID token is signed in, the session ends without a
    /// question.
    Hinted {
        /// The user.
        user: Uuid,
        /// Where the browser is sent afterwards. Without it a page confirms the sign-out.
        return_to: Option<String>,
    },
    /// It has no valid ID token, so another site may have sent it. The user is asked first and is not redirected.
    Unproven,
}

/// Decides what a request may do. `hint` is the ID token and its client. It is `None` if the ID token cannot be
/// verified or its client is disabled. The user may want to sign out even then (section 4).
///
/// The browser is redirected only to an address that is registered, byte for byte, for the client of the ID token
/// (section 3). A contradictory request is refused with a page.
pub fn parse(
    parameters: &Parameters,
    hint: Option<(&IdTokenHint, &Client)>,
) -> Result<LogoutRequest, Refusal> {
    parameters.each_once()?;
    let Some((hint, client)) = hint else {
        return Ok(LogoutRequest::Unproven);
    };
    if parameters
        .get("client_id")
        .is_some_and(|client_id| client_id != hint.aud)
    {
        return Err(Refusal::invalid_request(
            "client_id is not the client that id_token_hint was issued to",
        ));
    }
    let return_to = match parameters.get("post_logout_redirect_uri") {
        None => None,
        Some(uri) => {
            if !client.post_logout_redirect_uris.iter().any(|known| known == uri) {
                return Err(Refusal::invalid_request(
                    "post_logout_redirect_uri is not registered for this client",
                ));
            }
            let state = parameters.get("state").map(|state| ("state", state));
            Some(redirect_uri::with_query(uri, state.as_slice()))
        }
    };
    Ok(LogoutRequest::Hinted {
        user: hint.sub,
        return_to,
    })
}

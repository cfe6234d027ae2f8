//! RP-initiated logout: OpenID Connect RP-Initiated Logout 1.0.

use uuid::Uuid;

use crate::oauth::client::Client;
use crate::oauth::error::Refusal;
use crate::oauth::openid::id_token::IdTokenHint;
use crate::oauth::parameters::Parameters;
use crate::oauth::redirect_uri;

/// A request to sign out, as far as it can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogoutRequest {
    /// An ID token of this service names a user: the session of the browser that sent it ends without a question, if
    /// it is that user's.
    Hinted {
        /// The user.
        user: Uuid,
        /// Where the browser goes afterwards; nothing: to the page that says so.
        return_to: Option<String>,
    },
    /// Anybody may have sent it: the user is asked first and stays here.
    Unproven,
}

/// Decides what a request may do. A hint that cannot be read, be it forged or signed with a key that is gone, counts
/// as none, and so does one whose client is not in service: it proves nothing, and the user may want to sign out all the
/// same (section 4).
///
/// The browser is sent on only to an address that is registered, byte for byte, for the client that the
/// hint was issued to (section 3). Everything that does not hold together is refused with a page.
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

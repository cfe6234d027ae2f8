//! A user signs out: OpenID Connect RP-Initiated Logout 1.0.

use uuid::Uuid;

use super::read_hint::read_hint;
use super::session;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure, FlowError};
use crate::identity::Session;
use crate::oauth::openid::logout::{self, LogoutRequest};
use crate::oauth::parameters::Parameters;
use crate::store::StoreError;
use crate::store::tables::SESSIONS;

/// The result of a request to sign out.
#[derive(Debug)]
pub enum SignOut {
    /// The session has ended.
    Done {
        /// The client that asked for it.
        client_id: String,
        /// Where the browser goes; without it, to the page that says so.
        return_to: Option<String>,
        /// Whether the browser had a session here.
        had_session: bool,
    },
    /// A user who is signed in must confirm it.
    Ask {
        /// The client that asked for the sign-out, if a valid ID token names it.
        client_id: Option<String>,
    },
}

/// Reads a request to sign out. If it names the session of this browser by an ID token, the session ends at once.
pub async fn begin_sign_out(
    core: &Core,
    parameters: &Parameters,
    browser: &Browser,
    now: Timestamp,
) -> Result<SignOut, FlowError> {
    let catalog = core.catalog();
    let token = parameters.get("id_token_hint");
    let hint = token.and_then(|token| read_hint(&catalog, &core.policy.issuer, token));
    let client_id = match &hint {
        Some(hint) => Some(hint.aud.as_str()),
        None => parameters.get("client_id"),
    };
    let client = client_id
        .and_then(|id| catalog.client(id))
        .filter(|client| client.enabled);
    let request = logout::parse(parameters, hint.as_ref(), client.as_deref())?;
    let client_id = hint.map(|hint| hint.aud);
    let (
        LogoutRequest::Hinted {
            user,
            session: hinted,
            return_to,
        },
        Some(client_id),
    ) = (request, client_id.clone())
    else {
        return Ok(SignOut::Ask { client_id });
    };
    // Only the session of this browser ends. Otherwise a leaked ID token could sign its user out from anywhere.
    let of_browser = session::of_browser(core, browser).await?;
    let had_session = of_browser.is_some();
    let is_hinted = |(id, session): &(Uuid, Session)| Some(*id) == hinted && session.user == user;
    if let Some((id, _)) = of_browser.filter(is_hinted) {
        end(core, id, now).await?;
    } else if session::signed_in(core, browser, now).await?.is_some() {
        // Someone has signed in since, perhaps the same user, and must confirm it (section 4).
        let client_id = Some(client_id);
        return Ok(SignOut::Ask { client_id });
    }
    Ok(SignOut::Done {
        client_id,
        return_to,
        had_session,
    })
}

/// The user confirmed: the session of this browser ends.
pub async fn confirm_sign_out(core: &Core, browser: &Browser, now: Timestamp) -> Result<(), Failure> {
    if let Some((id, _)) = session::of_browser(core, browser).await? {
        end(core, id, now).await?;
    }
    Ok(())
}

async fn end(core: &Core, id: Uuid, now: Timestamp) -> Result<(), Failure> {
    let ended = core
        .store
        .write("sign_out", move |tx| -> Result<_, StoreError> {
            let session = SESSIONS.get(&*tx, &id)?;
            let mut ended = Vec::new();
            if let Some(session) = session {
                session::end_live(tx, id, session, now, &mut ended)?;
            }
            Ok(ended)
        })
        .await?;
    session::record_ended(core, ended, now);
    Ok(())
}

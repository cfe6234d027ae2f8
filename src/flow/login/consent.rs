//! A user answers the consent page (OpenID Connect Core 3.1.2.4).

use std::slice;
use std::sync::Arc;

use super::destination::BrowserRedirect;
use super::session::LiveSession;
use super::transaction;
use super::transaction::{BrowserLogin, LoginContext, LoginTransactionError};
use crate::clock::Timestamp;
use crate::flow::register_client::{notes_users, record_user};
use crate::flow::{Core, Failure, FlowError};
use crate::identity::Consent;
use crate::oauth::Client;
use crate::oauth::authorize::{AuthorizationRequest, RefusedRequest};
use crate::oauth::consent;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::login::LoginProgress;
use crate::oauth::scope::Scope;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::seal::Sealer;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::CONSENTS;

/// Stores the consent of the user whose session (`live`) the page was drawn for, and issues the code. If another user
/// is signed in by now, nothing is stored.
pub async fn give_consent(
    at: BrowserLogin<'_>,
    request: &AuthorizationRequest,
    live: &LiveSession,
) -> Result<BrowserRedirect, FlowError<LoginTransactionError>> {
    let BrowserLogin { core, login, now, .. } = at;
    let progress = consented(login.progress, request, live, now);
    let requested = request.scope_for_consent();
    let client_id = request.client_id.clone();
    let catalog = core.catalog();
    let client = catalog.client(&client_id);
    let changes = client.is_some_and(|client| notes_users(&client));
    let (client_lookup, sealer) = (login.client_lookup.clone(), Arc::clone(&core.sealer));
    let remember = move |tx: &mut dyn Tx, live: &LiveSession| {
        let Some(client) = client_lookup.current(&*tx, &client_id)? else {
            return Ok(progress);
        };
        store_consent(tx, &client, live, &requested, &sealer, now)?;
        Ok(progress)
    };
    let destination = transaction::advance_login(at, remember).await?;
    if changes {
        core.reload_clients(slice::from_ref(&request.client_id)).await?;
    }
    record(live, request, true);
    Ok(BrowserRedirect::to(destination))
}

/// Adds the requested scope to the consent that the user has given the client.
pub(in crate::flow) fn store_consent(
    tx: &mut dyn Tx,
    client: &Client,
    live: &LiveSession,
    requested: &Scope,
    sealer: &Sealer,
    now: Timestamp,
) -> Result<(), StoreError> {
    let key = (live.user.uuid, client.client_id.clone());
    let before = CONSENTS.get(&*tx, &key)?;
    let before = before.filter(|consent| client.accepts_consent(consent));
    let allowed = consent::allowed(before.as_ref()).unwrap_or_default();
    let consent = Consent {
        scope: allowed.union(requested).to_string(),
        client_incarnation: client.incarnation,
        given_at: now,
    };
    CONSENTS.put(tx, &key, &consent)?;
    if notes_users(client) {
        let user = sealer.pseudonym("user", live.user.uuid.as_bytes());
        record_user(tx, &client.client_id, user)?;
    }
    Ok(())
}

/// The user declines: the client gets `access_denied`.
pub async fn decline(
    core: &Core,
    login: &LoginContext,
    request: &AuthorizationRequest,
    now: Timestamp,
) -> Result<BrowserRedirect, Failure> {
    let refused = RefusedRequest {
        target: request.target.clone(),
        refusal: Refusal::new(ErrorCode::AccessDenied, "the user declined"),
    };
    let destination = transaction::refuse(core, login, refused, now).await?;
    if let Some(live) = &login.session {
        record(live, request, false);
    }
    Ok(BrowserRedirect::to(destination))
}

fn record(live: &LiveSession, request: &AuthorizationRequest, allowed: bool) {
    audit::record(&Event::ConsentAnswered {
        user: live.user.uuid,
        client_id: &request.client_id,
        allowed,
    });
}

/// The progress once this user has consented. That settles the session too, unless the sign-in has become too old for
/// the request.
fn consented(
    before: LoginProgress,
    request: &AuthorizationRequest,
    live: &LiveSession,
    now: Timestamp,
) -> LoginProgress {
    let settled = if request.requires_sign_in(&live.session, now) {
        before
    } else {
        before.settled_in(live.id)
    };
    LoginProgress {
        consented: true,
        ..settled
    }
}

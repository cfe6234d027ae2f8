//! A person allows or denies a device: RFC 8628 section 3.3.

use std::slice;
use std::sync::Arc;

use uuid::Uuid;

use super::free_user_code;
use crate::clock::Timestamp;
use crate::flow::FlowError;
use crate::flow::login::consent::store_consent;
use crate::flow::login::session;
use crate::flow::login::session::LiveSession;
use crate::flow::login::transaction::{BrowserLogin, LoginTransactionError, find_record, next_step, resolve};
use crate::flow::register_client::notes_users;
use crate::flow::token::issue::TokenIssuer;
use crate::oauth::client::Client;
use crate::oauth::code::Authorization;
use crate::oauth::consent::requested_consent;
use crate::oauth::device::{DeviceAuthorization, DeviceDecision};
use crate::oauth::login::{DeviceLogin, LoginStep, ResolvedPurpose};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::scope::Scope;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::TxError;
use crate::store::tables::{DEVICE_AUTHORIZATIONS, DEVICE_AUTHORIZATIONS_BY_USER, LOGIN_RECORDS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionResult {
    /// The device is allowed or not, as this user decided. A form that is sent again has the same result.
    Decided { is_allowed: bool },
    /// The user has to sign in again, or the session is another one than the page was drawn for.
    SignIn,
    /// The code has expired, or another user has decided already.
    Over,
    /// Nobody has decided yet.
    Pending,
}

impl DecisionResult {
    /// What this user has decided about the device authorization with this id.
    pub fn of(authorization: &DeviceAuthorization, id: Uuid, user: Uuid, now: Timestamp) -> Self {
        let decision = &authorization.decision;
        match decision.made_by() {
            Some(by) if by == user => Self::Decided {
                is_allowed: decision.is_to_allow(),
            },
            None if authorization.is_pending(id, now) => Self::Pending,
            Some(_) | None => Self::Over,
        }
    }
}

/// What is allowed to the client of a device authorization: the scope that it may still have.
pub fn allowed_scope(authorization: &DeviceAuthorization, client: &Client) -> Scope {
    authorization.scope.filter(|value| client.scope.contains(value))
}

/// What the user is asked to allow, as the consent page shows it.
pub fn scope_for_consent(authorization: &DeviceAuthorization, client: &Client) -> Scope {
    let scope = allowed_scope(authorization, client);
    requested_consent(&scope, &ClaimsRequest::default(), &authorization.resources)
}

/// Records the decision of the user whose session the page was drawn for (`login.session`). The answer is given once.
pub async fn decide(
    at: BrowserLogin<'_>,
    device: &DeviceLogin,
    is_allowed: bool,
) -> Result<DecisionResult, FlowError<LoginTransactionError>> {
    let BrowserLogin {
        core,
        browser,
        login,
        now,
    } = at;
    let id = device.authorization;
    let lifetimes = core.policy.lifetimes.session;
    let presented = browser.session.clone();
    let transaction = Arc::clone(&login.transaction);
    let client_lookup = login.client_lookup.clone();
    let expected = login.session.as_ref().map(|live| live.id);
    let issuer = TokenIssuer::new(core);
    let catalog = core.catalog();
    let client = catalog.client(&device.client_id);
    let changes = is_allowed && client.is_some_and(|client| notes_users(&client));
    let sealer = Arc::clone(&core.sealer);
    let (result, decided) = core
        .store
        .write(
            "decide_device",
            move |tx| -> Result<_, TxError<LoginTransactionError>> {
                let mut record = find_record(&*tx, transaction.id)?;
                if !record.is_in_progress(now) {
                    return Err(LoginTransactionError::Expired.into());
                }
                let Some(purpose) = resolve(&*tx, &transaction.purpose, &client_lookup)? else {
                    return Err(LoginTransactionError::Expired.into());
                };
                let ResolvedPurpose::Device { client, .. } = &purpose else {
                    return Err(LoginTransactionError::Expired.into());
                };
                let live = session::find(&*tx, presented.as_ref(), lifetimes, now)?;
                let Some(live) = live.filter(|live| Some(live.id) == expected) else {
                    return Ok((DecisionResult::SignIn, None));
                };
                let step = next_step(&*tx, &purpose, Some(&live), &record, &issuer, now)?;
                if !matches!(step, LoginStep::DecideDevice) {
                    return Ok((DecisionResult::SignIn, None));
                }
                let Some(mut authorization) = DEVICE_AUTHORIZATIONS.get(&*tx, &id)? else {
                    return Ok((DecisionResult::Over, None));
                };
                let before = DecisionResult::of(&authorization, id, live.user.uuid, now);
                if before != DecisionResult::Pending {
                    return Ok((before, None));
                }
                free_user_code(tx, id, &authorization)?;
                authorization.decision = if is_allowed {
                    if client.requires_consent() {
                        let requested = scope_for_consent(&authorization, client);
                        store_consent(tx, client, &live, &requested, &sealer, now)?;
                    }
                    DEVICE_AUTHORIZATIONS_BY_USER.put(tx, &(live.user.uuid, id), &())?;
                    DeviceDecision::Allowed(Box::new(granted(&authorization, client, &live)))
                } else {
                    DeviceDecision::Denied(live.user.uuid)
                };
                DEVICE_AUTHORIZATIONS.put(tx, &id, &authorization)?;
                session::touch(tx, &live, lifetimes, now)?;
                record.answered_at.get_or_insert(now);
                LOGIN_RECORDS.put(tx, &transaction.id, &record)?;
                let decided = (live.user.uuid, authorization.address);
                Ok((DecisionResult::Decided { is_allowed }, Some(decided)))
            },
        )
        .await?;
    if let Some((user, from)) = decided {
        if changes {
            core.reload_clients(slice::from_ref(&device.client_id)).await?;
        }
        audit::record(&Event::DeviceDecided {
            user,
            client_id: &device.client_id,
            allowed: is_allowed,
            from,
        });
    }
    Ok(result)
}

/// What the device gets tokens for. The session of the browser is not that of the device.
fn granted(authorization: &DeviceAuthorization, client: &Client, live: &LiveSession) -> Authorization {
    Authorization {
        client_id: client.client_id.clone(),
        client_incarnation: client.incarnation,
        user: live.user.uuid,
        session: None,
        auth_time: live.session.auth_time,
        factor: live.session.factor.clone(),
        second_factor: live.session.second_factor,
        upstream_token: None,
        scope: allowed_scope(authorization, client).with(Scope::AUTHENTICATED),
        resources: authorization.resources.clone(),
        claims: ClaimsRequest::default(),
        bound_to: None,
        actor: None,
    }
}

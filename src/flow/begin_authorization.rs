//! A client sends a browser: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.

use std::sync::Arc;

use uuid::Uuid;

use super::authorization::{self, Browser, DrawnCode, Next, Onward, Taken};
use super::catalog::Catalog;
use super::{Core, Failure, sessions};
use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, ExpectedTyp};
use crate::oauth::authorize::{
    AuthorizationRequest, LoginTransaction, Progress, Step, Unanswerable, reply_address,
};
use crate::oauth::openid::id_token::IdTokenHint;
use crate::oauth::parameters::Parameters;
use crate::secret::Secret;
use crate::store::tables::LOGIN_TRANSACTIONS;

/// Answers an authorization request: with a code, a refusal, or a page.
///
/// What cannot be answered to the client, because it is not known where that is, comes back as
/// [`Unanswerable`] and is shown to the user.
pub async fn begin_authorization(
    core: &Core,
    parameters: &Parameters,
    browser: &Browser,
    now: Timestamp,
) -> Result<Result<Onward, Unanswerable>, Failure> {
    let catalog = core.catalog();
    let Some(client_id) = parameters.get("client_id") else {
        return Ok(Err(Unanswerable::MissingClient));
    };
    let Some(client) = catalog.client(client_id).filter(|client| client.enabled) else {
        return Ok(Err(Unanswerable::UnknownClient));
    };
    let reply = match reply_address(parameters, client) {
        Ok(reply) => reply,
        Err(unanswerable) => return Ok(Err(unanswerable)),
    };
    let issuer = &core.policy.issuer;
    let read_hint = |token: &str| read_hint(&catalog, issuer, token).map(|hint| hint.sub);
    let request = match AuthorizationRequest::parse(parameters, client, reply.clone(), &read_hint) {
        Ok(request) => request,
        Err(refusal) => return Ok(Ok(Onward::to(Next::Respond(reply.refusal(&refusal, issuer))))),
    };

    let (session, step) = core.store.read(|snapshot| {
        let session = sessions::find(
            snapshot,
            browser.session.as_ref(),
            core.policy.lifetimes.session,
            now,
        )?;
        let step = authorization::step(
            snapshot,
            &request,
            client,
            session.as_ref(),
            Progress::default(),
            now,
        )?;
        Ok((session, step))
    })?;
    match step {
        Step::Refuse(refusal) => Ok(Ok(Onward::to(Next::Respond(reply.refusal(&refusal, issuer))))),
        Step::Issue(authorization) => {
            let code = DrawnCode::draw(core);
            let slot = code.slot();
            let policy = Arc::clone(&core.policy);
            let asked = request.clone();
            core.store
                .write("issue_code", move |tx| {
                    if let Some(live) = &session {
                        sessions::touch(tx, live.id, &live.session, now)?;
                    }
                    authorization::issue(tx, &asked, authorization.clone(), slot, &policy, now)
                })
                .await?;
            let next = authorization::onward(Taken::Issued, Uuid::nil(), &request, &code, issuer);
            Ok(Ok(Onward::to(next)))
        }
        Step::SignIn => open_transaction(core, request, browser, now)
            .await
            .map(|(id, onward)| {
                Ok(Onward {
                    next: Next::SignIn(id),
                    ..onward
                })
            }),
        Step::AskConsent => open_transaction(core, request, browser, now)
            .await
            .map(|(id, onward)| {
                Ok(Onward {
                    next: Next::AskConsent(id),
                    ..onward
                })
            }),
    }
}

/// Writes down that a sign-in is under way and binds it to the browser.
async fn open_transaction(
    core: &Core,
    request: AuthorizationRequest,
    browser: &Browser,
    now: Timestamp,
) -> Result<(Uuid, Onward), Failure> {
    let id = core.random.uuid_v7(core.clock.unix_millis());
    let (digest, binding) = if let Some(digest) = browser.binding {
        (digest, None)
    } else {
        let binding = Secret::mint(&[], &core.random);
        (binding.digest(), Some(binding))
    };
    let transaction = LoginTransaction {
        browser: digest,
        request,
        expires_at: now + core.policy.lifetimes.login_transaction,
        settled_session: None,
        consented: false,
    };
    core.store
        .write("open_login_transaction", move |tx| {
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)
        })
        .await?;
    Ok((
        id,
        Onward {
            next: Next::SignIn(id),
            binding,
            session: None,
        },
    ))
}

/// Reads an ID token that this service issued, however long ago (OpenID Connect Core 3.1.2.1).
pub(super) fn read_hint(catalog: &Catalog, issuer: &str, token: &str) -> Option<IdTokenHint> {
    let keyring = catalog.keyring();
    let verified = jwt::verify::<IdTokenHint>(
        token,
        ExpectedTyp::Exactly(super::catalog::ID_TOKEN_TYP),
        &Algorithm::ALL,
        |kid, _| keyring.verifier(kid?),
    );
    verified
        .ok()
        .map(jwt::Verified::into_inner)
        .filter(|hint| hint.iss == issuer && hint.azp == hint.aud)
}

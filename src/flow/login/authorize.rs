//! A client sends a browser: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.

use std::sync::Arc;

use super::session;
use super::transaction;
use super::transaction::{Browser, DrawnCode, Next, Onward, Taken};
use crate::clock::Timestamp;
use crate::flow::catalog::Catalog;
use crate::flow::{Core, Failure};
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, ExpectedTyp};
use crate::oauth::Client;
use crate::oauth::authorize::{AuthorizationRequest, Progress, Step, Unanswerable, reply_address};
use crate::oauth::openid::id_token::IdTokenHint;
use crate::oauth::parameters::Parameters;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::LOGIN_TRANSACTIONS;

/// Answers an authorization request: with a code, a refusal, or a page.
///
/// What cannot be answered to the client, because it is not known where that is, comes back as
/// [`Unanswerable`] and is shown to the user. `admit` is asked before a sign-in is written down that the
/// pages carry on: those take room, and strangers can begin them.
pub async fn begin_authorization(
    core: &Core,
    parameters: &Parameters,
    browser: &Browser,
    admit: impl FnOnce() -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Result<Onward, Unanswerable>, Failure> {
    let catalog = core.catalog();
    let Some(client_id) = parameters.get("client_id") else {
        return Ok(Err(Unanswerable::MissingClient));
    };
    let client = match catalog.client(client_id) {
        Some(client) if client.enabled => client,
        Some(_) => return Ok(Err(Unanswerable::DisabledClient)),
        None => return Ok(Err(Unanswerable::UnknownClient)),
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

    let lifetimes = core.policy.lifetimes.session;
    let presented = browser.session.clone();
    let decide = move |snapshot: &dyn Snapshot, client: &Client, request: &AuthorizationRequest| {
        let live = session::find(snapshot, presented.as_ref(), lifetimes, now)?;
        let step = transaction::step(snapshot, request, client, live.as_ref(), Progress::default(), now)?;
        Ok::<_, StoreError>((live, step))
    };
    // most refusals, as to prompt=none, write nothing
    let (_, foreseen) = core.store.read(|snapshot| decide(snapshot, client, &request))?;
    match foreseen {
        Step::Refuse(refusal) => {
            return Ok(Ok(Onward::to(Next::Respond(reply.refusal(&refusal, issuer)))));
        }
        Step::SignIn | Step::AskConsent => admit()?,
        Step::Issue(_) => {}
    }
    let code = DrawnCode::draw(core);
    let slot = code.slot();
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let (transaction, binding) = transaction::new_transaction(core, request.clone(), browser, now);
    let (policy, asking) = (Arc::clone(&core.policy), client.client_uuid);
    let own_page = Arc::clone(catalog.own_page());
    let taken = core
        .store
        .write("begin_authorization", move |tx| {
            let client = transaction::client_of(&*tx, &transaction.request, &own_page)?;
            let Some(client) = client.filter(|client| client.client_uuid == asking) else {
                return Ok(None);
            };
            let (live, step) = decide(&*tx, &client, &transaction.request)?;
            let taken = match step {
                Step::Issue(authorization) => {
                    if let Some(live) = &live {
                        session::touch(tx, live, policy.lifetimes.session, now)?;
                    }
                    transaction::issue(tx, &transaction.request, authorization, slot, &policy, now)?;
                    Taken::Issued
                }
                Step::Refuse(refusal) => Taken::Refused(refusal),
                Step::SignIn => {
                    LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
                    Taken::SignIn
                }
                Step::AskConsent => {
                    LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
                    Taken::AskConsent
                }
            };
            Ok(Some(taken))
        })
        .await?;
    // By another record than the request was read by: who asks again is told what is wrong with it now.
    let Some(taken) = taken else {
        return Ok(Err(Unanswerable::UnknownClient));
    };
    let binding = binding.filter(|_| matches!(taken, Taken::SignIn | Taken::AskConsent));
    let next = transaction::onward(taken, id, &request, &code, issuer);
    Ok(Ok(Onward {
        next,
        binding,
        session: None,
    }))
}

/// Reads an ID token that this service issued, however long ago (OpenID Connect Core 3.1.2.1).
pub(in crate::flow) fn read_hint(catalog: &Catalog, issuer: &str, token: &str) -> Option<IdTokenHint> {
    let keyring = catalog.keyring();
    let verified = jwt::verify::<IdTokenHint>(
        token,
        ExpectedTyp::Exactly(crate::flow::catalog::ID_TOKEN_TYP),
        &Algorithm::ALL,
        |kid, _| keyring.verifier(kid?),
    );
    verified
        .ok()
        .map(jwt::Verified::into_inner)
        .filter(|hint| hint.iss == issuer && hint.azp == hint.aud)
}

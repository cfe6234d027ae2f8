//! A client sends a browser with an authorization request: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.

use std::sync::Arc;

use super::session;
use super::transaction;
use super::transaction::{BrowserRedirect, Destination, DrawnCode, StepResult};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::catalog::Catalog;
use crate::flow::{Core, Failure};
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, ExpectedTyp};
use crate::oauth::authorize::{AuthorizationRequest, UntrustedRedirect, response_target};
use crate::oauth::login::{LoginProgress, LoginPurpose, LoginStep, ResolvedPurpose};
use crate::oauth::openid::id_token::IdTokenHint;
use crate::oauth::parameters::Parameters;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::LOGIN_TRANSACTIONS;

/// Answers an authorization request: with a code, a refusal, or a page.
///
/// A request whose redirect URI cannot be trusted comes back as [`UntrustedRedirect`] and is shown to the user.
/// `admit` is called before a login transaction is stored. Transactions need disk space, and every browser can begin
/// one.
pub async fn begin_authorization(
    core: &Core,
    parameters: &Parameters,
    browser: &Browser,
    admit: impl FnOnce() -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Result<BrowserRedirect, UntrustedRedirect>, Failure> {
    let catalog = core.catalog();
    let Some(client_id) = parameters.get("client_id") else {
        return Ok(Err(UntrustedRedirect::MissingClient));
    };
    let client = match catalog.client(client_id) {
        Some(client) if client.enabled => client,
        Some(_) => return Ok(Err(UntrustedRedirect::DisabledClient)),
        None => return Ok(Err(UntrustedRedirect::UnknownClient)),
    };
    let target = or_refuse!(response_target(parameters, client));
    let issuer = &core.policy.issuer;
    let read_hint = |token: &str| read_hint(&catalog, issuer, token).map(|hint| hint.sub);
    let request = match AuthorizationRequest::parse(parameters, client, target.clone(), &read_hint) {
        Ok(request) => request,
        Err(refusal) => {
            return Ok(Ok(BrowserRedirect::to(Destination::Respond(
                target.refusal(&refusal, issuer),
            ))));
        }
    };

    let lifetimes = core.policy.lifetimes.session;
    let presented = browser.session.clone();
    let decide = move |snapshot: &dyn Snapshot, purpose: &ResolvedPurpose| {
        let live = session::find(snapshot, presented.as_ref(), lifetimes, now)?;
        let step = transaction::next_step(snapshot, purpose, live.as_ref(), LoginProgress::default(), now)?;
        Ok::<_, StoreError>((live, step))
    };
    let client_uuid = client.client_uuid;
    let purpose = LoginPurpose::Code(Box::new(request));
    let Some(resolved) = purpose.clone().resolve(Some(Arc::clone(client))) else {
        return Ok(Err(UntrustedRedirect::UnknownClient));
    };
    // Most refusals, as of prompt=none, write nothing.
    let (_, foreseen) = core.store.read(|snapshot| decide(snapshot, &resolved))?;
    match foreseen {
        LoginStep::Refuse(refused) => {
            return Ok(Ok(BrowserRedirect::to(Destination::Respond(
                refused.response(issuer),
            ))));
        }
        LoginStep::SignIn | LoginStep::AskConsent => admit()?,
        LoginStep::IssueCode(_) | LoginStep::OpenAccount { .. } => {}
    }
    let code = DrawnCode::draw(core, now);
    let slot = code.slot();
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let (transaction, binding) = transaction::new_transaction(core, purpose, browser, now);
    let result = core
        .store
        .write("begin_authorization", move |tx| {
            let resolved = transaction::resolve(&*tx, &transaction.purpose)?;
            let is_same = |purpose: &ResolvedPurpose| {
                let client = purpose.code_request().map(|(_, client)| client);
                client.is_some_and(|client| client.client_uuid == client_uuid)
            };
            let Some(resolved) = resolved.filter(is_same) else {
                return Ok(None);
            };
            let (live, step) = decide(&*tx, &resolved)?;
            if matches!(step, LoginStep::SignIn | LoginStep::AskConsent) {
                LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
            }
            let result = match step {
                LoginStep::SignIn => StepResult::SignIn,
                LoginStep::AskConsent => StepResult::AskConsent,
                LoginStep::IssueCode(grant) => {
                    if let Some(live) = &live {
                        session::touch(tx, live, lifetimes, now)?;
                    }
                    StepResult::Issued(transaction::issue(tx, *grant, slot)?)
                }
                LoginStep::Refuse(refused) => StepResult::Refused(refused),
                LoginStep::OpenAccount { action_pending } => StepResult::OpenAccount { action_pending },
            };
            Ok(Some(result))
        })
        .await?;
    // The client has been removed or replaced since the request was checked.
    let Some(result) = result else {
        return Ok(Err(UntrustedRedirect::UnknownClient));
    };
    let binding = binding.filter(|_| matches!(result, StepResult::SignIn | StepResult::AskConsent));
    Ok(Ok(BrowserRedirect {
        destination: result.destination(id, &code, issuer),
        binding,
        session: None,
    }))
}

/// Reads an ID token that this service issued, even if it has expired (OpenID Connect Core 3.1.2.1).
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
        .filter(|hint| hint.iss == issuer && hint.azp == hint.aud)
}

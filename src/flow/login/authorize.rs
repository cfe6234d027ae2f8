//! A client sends a browser with an authorization request: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.

use super::session;
use super::transaction;
use super::transaction::{BrowserRedirect, Destination, DrawnCode, StepResult};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::catalog::Catalog;
use crate::flow::client_lookup::find_client;
use crate::flow::{Core, Failure};
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, ExpectedTyp};
use crate::oauth::authorize::{AuthorizationRequest, UntrustedRedirect, response_target};
use crate::oauth::login::{LoginPurpose, LoginRecord};
use crate::oauth::openid::id_token::IdTokenHint;
use crate::oauth::parameters::Parameters;
use crate::oauth::token;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use url::Url;

/// Answers an authorization request: with a code, a refusal, or a page.
///
/// A request whose redirect URI cannot be trusted comes back as [`UntrustedRedirect`] and is shown to the user. Only a
/// code is stored. The browser keeps the parts of the request that a page needs. Before the client's metadata document
/// is fetched, `admit` gets its address, and can refuse the fetch.
pub async fn begin_authorization(
    core: &Core,
    parameters: &Parameters,
    browser: &Browser,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Result<BrowserRedirect, UntrustedRedirect>, Failure> {
    let Some(client_id) = parameters.get("client_id") else {
        return Ok(Err(UntrustedRedirect::MissingClient));
    };
    let lookup = or_refuse!(find_client(core, client_id, admit, now).await?);
    let Some(client) = lookup.client(client_id) else {
        return Ok(Err(UntrustedRedirect::UnknownClient));
    };
    let target = or_refuse!(response_target(parameters, &client));
    let catalog = core.catalog();
    let issuer = &core.policy.issuer;
    let read_hint = |token: &str| read_hint(&catalog, issuer, token).map(|hint| hint.sub);
    let request = match AuthorizationRequest::parse(
        parameters,
        (&client, catalog.apis(), catalog.scopes()),
        target.clone(),
        &read_hint,
    ) {
        Ok(request) => request,
        Err(refusal) => {
            return Ok(Ok(BrowserRedirect::to(Destination::Respond(
                target.refusal(&refusal, issuer),
            ))));
        }
    };

    if let Ok(Some(requested)) = token::scope(parameters) {
        core.unknown_scopes.note(&catalog, client_id, &requested);
    }

    let lifetimes = core.policy.lifetimes.session;
    let presented = browser.session.clone();
    let purpose = LoginPurpose::Code(Box::new(request));
    let asked = purpose.clone();
    let found = lookup.clone();
    let decide = move |snapshot: &dyn Snapshot| {
        let Some(purpose) = transaction::resolve(snapshot, &asked, &found)? else {
            return Ok(None);
        };
        let live = session::find(snapshot, presented.as_ref(), lifetimes, now)?;
        let step = transaction::next_step(snapshot, &purpose, live.as_ref(), &LoginRecord::default(), now)?;
        Ok::<_, StoreError>(Some((step, live)))
    };
    let foreseen = core.store.read(|snapshot| decide(snapshot))?;
    let code = DrawnCode::draw(core, now);
    let slot = code.slot();
    let result = match foreseen.map(|(step, _)| StepResult::without_code(step)) {
        None => None,
        Some(Ok(result)) => Some(result),
        Some(Err(_)) => {
            let found = lookup.clone();
            let issued = core
                .store
                .write("begin_authorization", move |tx| {
                    let Some((step, live)) = decide(&*tx)? else {
                        return Ok(None);
                    };
                    let grant = match StepResult::without_code(step) {
                        Ok(result) => return Ok(Some(result)),
                        Err(grant) => grant,
                    };
                    if let Some(live) = &live {
                        session::touch(tx, live, lifetimes, now)?;
                    }
                    let target = transaction::issue(tx, *grant, slot, &found, now)?;
                    Ok(Some(StepResult::Issued(target)))
                })
                .await?;
            lookup.publish(core)?;
            issued
        }
    };
    // The client has been removed or replaced since the request was checked.
    let Some(result) = result else {
        return Ok(Err(UntrustedRedirect::UnknownClient));
    };
    let (sealed, binding) = match result {
        StepResult::SignIn | StepResult::AskConsent => {
            transaction::begin_transaction(core, purpose, browser, now)?
        }
        _ => Default::default(),
    };
    Ok(Ok(BrowserRedirect {
        destination: result.destination(sealed, &code, issuer),
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

//! A client sends a browser with an authorization request: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.

use super::anonymous_upgrade;
use super::drawn_code::DrawnCode;
use super::push_request;
use super::read_request::{ReadAuthorization, read_request};
use super::session;
use super::transaction;
use super::transaction::{BrowserRedirect, Destination, StepKind, StepResult};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::catalog::Catalog;
use crate::flow::client_lookup::find_client;
use crate::flow::{Core, Failure};
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, ExpectedTyp};
use crate::oauth::anonymous;
use crate::oauth::authorize::{AuthorizationRequest, ResponseTarget, UntrustedRedirect, response_target};
use crate::oauth::client::Client;
use crate::oauth::error::Refusal;
use crate::oauth::login::{LoginPurpose, LoginRecord};
use crate::oauth::openid::id_token::IdTokenHint;
use crate::oauth::parameters::Parameters;
use crate::oauth::pushed::URN;
use crate::oauth::scope::Scope;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use url::Url;
use zeroize::Zeroizing;

/// Answers an authorization request: with a code, a refusal, or a page.
///
/// A request whose redirect URI cannot be trusted comes back as [`UntrustedRedirect`] and is shown to the user. Only a
/// code is stored. The browser keeps the parts of the request that a page needs. Before the client's metadata document
/// or its keys are fetched, `admit` gets the address, and can refuse the fetch.
pub async fn begin_authorization(
    core: &Core,
    parameters: &Parameters,
    browser: &Browser,
    admit: impl Fn(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Result<BrowserRedirect, UntrustedRedirect>, Failure> {
    let Some(client_id) = parameters.get("client_id") else {
        return Ok(Err(UntrustedRedirect::MissingClient));
    };
    let lookup = or_refuse!(find_client(core, client_id, &admit, now).await?);
    let Some(client) = lookup.client(client_id) else {
        return Ok(Err(UntrustedRedirect::UnknownClient));
    };
    let (target, parsed) = if let Some(sealed) = pushed(parameters) {
        let opened = push_request::open(core, &client, sealed, now);
        let request = or_refuse!(opened.ok_or(UntrustedRedirect::RequestUri));
        (request.target.clone(), Ok(ReadAuthorization::of(request)))
    } else if client.require_pushed_authorization_requests {
        (or_refuse!(response_target(parameters, &client)), Err(NOT_PUSHED))
    } else {
        or_refuse!(read_request(core, parameters, &client, &admit, now).await?)
    };
    let is_in_address = parameters.get(anonymous::PARAMETER).is_some();
    let request = match parsed {
        Ok(read) if is_in_address || read.anonymous_refresh_token.is_some() => Err(anonymous::NOT_PUSHED),
        Ok(read) => Ok(read.request),
        Err(refusal) => Err(refusal),
    };
    let request = match request {
        Ok(request) => request,
        Err(refusal) => {
            let response = target.refusal(&refusal, &core.policy.issuer);
            return Ok(Ok(BrowserRedirect::to(Destination::Respond(response))));
        }
    };

    let lifetimes = core.policy.lifetimes.session;
    let presented = browser.session.clone();
    let purpose = LoginPurpose::Code(Box::new(request));
    let asked = purpose.clone();
    let found = lookup.clone();
    let decide = move |snapshot: &dyn Snapshot| {
        let record = LoginRecord::default();
        if push_request::is_answered_elsewhere(snapshot, &asked, &record)? {
            return Ok(Err(UntrustedRedirect::RequestUri));
        }
        // The client may have been removed or replaced since the request was checked.
        let Some(purpose) = transaction::resolve(snapshot, &asked, &found)? else {
            return Ok(Err(UntrustedRedirect::UnknownClient));
        };
        let live = session::find(snapshot, presented.as_ref(), lifetimes, now)?;
        let step = transaction::next_step(snapshot, &purpose, live.as_ref(), &record, now)?;
        Ok::<_, StoreError>(Ok((step, live)))
    };
    let foreseen = core.store.read(|snapshot| decide(snapshot)).await?;
    let code = DrawnCode::draw(core, now);
    let slot = code.slot();
    let (step, _) = or_refuse!(foreseen);
    let result = if let StepKind::WithoutCode(result) = StepKind::from(step) {
        result
    } else {
        let found = lookup.clone();
        let answered = purpose.clone();
        let issued = core
            .store
            .write("begin_authorization", move |tx| {
                let (step, live) = or_refuse!(decide(&*tx)?);
                let grant = match StepKind::from(step) {
                    StepKind::WithoutCode(result) => return Ok(Ok(result)),
                    StepKind::IssueCode(grant) => grant,
                };
                if let Some(live) = &live {
                    session::touch(tx, live, lifetimes, now)?;
                }
                push_request::record_answer(tx, &answered)?;
                transaction::issue(tx, *grant, slot, &found, now).map(Ok)
            })
            .await?;
        lookup.publish(core).await?;
        or_refuse!(issued)
    };
    anonymous_upgrade::record(&result);
    let (sealed, binding) = match result {
        StepResult::SignIn | StepResult::SecondStep | StepResult::AskConsent | StepResult::OfferPasskey => {
            transaction::begin_transaction(core, purpose, browser, now)?
        }
        _ => Default::default(),
    };
    Ok(Ok(BrowserRedirect {
        destination: result.destination(sealed, &code, &core.policy.issuer),
        binding,
        session: None,
    }))
}

/// The answer to a client that must push its requests and did not (RFC 9126 section 6).
const NOT_PUSHED: Refusal = Refusal::invalid_request("this client must push its authorization requests");

/// The `request_uri` of a pushed request, without [`URN`]. Beside a request object it is refused like any other.
fn pushed(parameters: &Parameters) -> Option<&str> {
    let uri = parameters.get("request_uri")?;
    uri.strip_prefix(URN)
        .filter(|_| parameters.get("request").is_none())
}

/// Validates what a client asks for, with the APIs and scope values as they are now.
pub(super) fn parse_request(
    core: &Core,
    parameters: &Parameters,
    client: &Client,
    target: ResponseTarget,
) -> Result<ReadAuthorization, Refusal> {
    let catalog = core.catalog();
    let issuer = &core.policy.issuer;
    let read_hint = |token: &str| read_hint(&catalog, issuer, token).map(|hint| hint.sub);
    let (apis, scopes) = (catalog.apis(), catalog.scopes());
    let mut request = AuthorizationRequest::parse(parameters, client, apis, scopes, target, &read_hint)?;
    request.prompt.create &= core.policy.accounts.is_open();
    if let Ok(Some(requested)) = Scope::requested(parameters) {
        core.unknown_scopes.note(&catalog, &client.client_id, &requested);
    }
    Ok(ReadAuthorization {
        request,
        anonymous_refresh_token: parameters
            .get(anonymous::PARAMETER)
            .map(|token| Zeroizing::new(token.to_owned())),
    })
}

/// Reads an ID token that this service issued, even if it has expired (OpenID Connect Core 3.1.2.1).
pub(in crate::flow) fn read_hint(catalog: &Catalog, issuer: &str, token: &str) -> Option<IdTokenHint> {
    let verified = jwt::verify::<IdTokenHint>(
        token,
        ExpectedTyp::Exactly(crate::flow::catalog::ID_TOKEN_TYP),
        &Algorithm::ALL,
        |kid, _| catalog.verifier(kid?),
    );
    verified
        .ok()
        .filter(|hint| hint.iss == issuer && hint.azp == hint.aud)
}

//! A client sends a browser with an authorization request: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.

use super::anonymous_upgrade;
use super::destination::BrowserRedirect;
use super::drawn_code::DrawnCode;
use super::expected_rows::will_find_session;
use super::given_consent::may_send_errors;
use super::push_request;
use super::pushed_use;
use super::read_request::{ReadAuthorization, ReadRequest, read_request};
use super::session;
use super::step_result::{PlannedStep, StepResult};
use super::transaction;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::client_lookup::find_client;
use crate::flow::grant_policy::record_refusal;
use crate::flow::token::issue::TokenIssuer;
use crate::flow::{Core, Failure, FlowError};
use crate::oauth::anonymous;
use crate::oauth::authorize::{AuthorizationRequest, RefusedRequest, UntrustedRedirect, response_target};
use crate::oauth::client::Client;
use crate::oauth::error::Refusal;
use crate::oauth::login::{LoginPurpose, LoginRecord, LoginStep, ResolvedPurpose};
use crate::oauth::parameters::Parameters;
use crate::oauth::pushed::URN;
use crate::store::TxError;
use crate::store::engine::Snapshot;
use url::Url;

/// Answers an authorization request: with a code, a refusal, or a page.
///
/// A request whose redirect URI cannot be trusted comes back as [`UntrustedRedirect`] and is shown to the user. So is any
/// error of a client that registered itself, if nobody has allowed the client yet. Only a code is stored. The browser keeps the parts of the request that a page needs. Before the client's metadata document
/// or its keys are fetched, `admit` gets the address, and can refuse the fetch.
pub async fn begin_authorization(
    core: &Core,
    parameters: &Parameters,
    browser: &Browser,
    admit: impl Fn(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<BrowserRedirect, FlowError<UntrustedRedirect>> {
    let Some(client_id) = parameters.get("client_id") else {
        return Err(UntrustedRedirect::MissingClient.into());
    };
    let lookup = find_client(core, client_id, &admit, now).await?;
    let Some(client) = lookup.client(client_id) else {
        return Err(UntrustedRedirect::UnknownClient.into());
    };
    let (target, parsed) = if let Some(sealed) = pushed(parameters) {
        read_pushed(core, parameters, &client, sealed, now)?
    } else if client.require_pushed_authorization_requests {
        (response_target(parameters, &client)?, Err(NOT_PUSHED))
    } else {
        read_request(core, parameters, &client, &admit, now).await?
    };
    let is_in_address = parameters.get(anonymous::PARAMETER).is_some();
    let request = match parsed.and_then(|read| without_anonymous_user(read, is_in_address)) {
        Ok(request) => request,
        Err(refusal) => {
            let refused = RefusedRequest { target, refusal };
            return refuse(core, browser, &client, refused, now).await;
        }
    };

    let lifetimes = core.policy.lifetimes.session;
    let presented = browser.session.clone();
    let purpose = LoginPurpose::Code(Box::new(request));
    let asked = purpose.clone();
    let found = lookup.clone();
    let issuer = TokenIssuer::new(core);
    let decide = move |snapshot: &dyn Snapshot| -> Result<_, TxError<UntrustedRedirect>> {
        will_find_session(snapshot, presented.as_ref(), asked.client_id());
        let record = LoginRecord::default();
        if pushed_use::is_answered_elsewhere(snapshot, &asked, &record)? {
            return Err(UntrustedRedirect::RequestUri.into());
        }
        // The client may have been removed or replaced since the request was checked.
        let Some(purpose) = transaction::resolve(snapshot, &asked, &found)? else {
            return Err(UntrustedRedirect::UnknownClient.into());
        };
        let live = session::find(snapshot, presented.as_ref(), lifetimes, now)?;
        let step = transaction::next_step(snapshot, &purpose, live.as_ref(), &record, &issuer, now)?;
        if let (LoginStep::Refuse(refused), ResolvedPurpose::Code { client, .. }) = (&step, &purpose)
            && !may_send_errors(snapshot, client, live.as_ref())?
        {
            return Err(UntrustedRedirect::NotAllowedBefore(refused.refusal.clone()).into());
        }
        Ok((step, live))
    };
    // At a database, a transaction that writes nothing costs no more than a read. Without a session there is no code.
    let planned = if core.store.is_shared() && browser.session.is_some() {
        None
    } else {
        let (step, _) = core.store.read(|snapshot| decide(snapshot)).await?;
        Some(PlannedStep::of(step))
    };
    let code = DrawnCode::draw(core, now);
    let slot = code.slot();
    let result = match planned {
        Some(PlannedStep::Result(result)) => result,
        Some(PlannedStep::IssueCode(_)) | None => {
            let (found, answered) = (lookup.clone(), purpose.clone());
            let issued = core
                .store
                .write(
                    "begin_authorization",
                    move |tx| -> Result<_, TxError<UntrustedRedirect>> {
                        let (step, live) = decide(&*tx)?;
                        let grant = match PlannedStep::of(step) {
                            PlannedStep::Result(result) => return Ok(result),
                            PlannedStep::IssueCode(grant) => grant,
                        };
                        if let Some(live) = &live {
                            session::touch(tx, live, lifetimes, now)?;
                        }
                        pushed_use::record_answer(tx, &answered)?;
                        Ok(transaction::issue(tx, *grant, slot, &found, now)?)
                    },
                )
                .await;
            let has_written = !issued.as_ref().is_ok_and(is_continued);
            let published = if has_written {
                lookup.publish(core).await
            } else {
                Ok(())
            };
            let issued = issued?;
            published?;
            issued
        }
    };
    record(&result, &client);
    let (sealed, binding) = if is_continued(&result) {
        transaction::begin_transaction(core, purpose, browser, now)?
    } else {
        Default::default()
    };
    Ok(BrowserRedirect {
        destination: result.destination(sealed, &code, &core.policy.issuer),
        binding,
        session: None,
    })
}

/// Whether a page continues the sign-in.
fn is_continued(result: &StepResult) -> bool {
    match result {
        StepResult::SignIn
        | StepResult::SecondStep
        | StepResult::NoAccess
        | StepResult::AskConsent
        | StepResult::OfferPasskey => true,
        StepResult::Issued(..)
        | StepResult::Refused(_)
        | StepResult::OpenAccount(_)
        | StepResult::DecideDevice => false,
    }
}

/// Refuses an anonymous user who was not pushed (`is_in_address`: who is named in the address).
fn without_anonymous_user(
    read: ReadAuthorization,
    is_in_address: bool,
) -> Result<AuthorizationRequest, Refusal> {
    if is_in_address || read.anonymous_refresh_token.is_some() {
        return Err(anonymous::NOT_PUSHED);
    }
    Ok(read.request)
}

/// Records in the audit log what the request came to.
fn record(result: &StepResult, client: &Client) {
    anonymous_upgrade::record(result.linked());
    if let StepResult::Refused(refused) = result {
        record_refusal(&refused.refusal, &client.client_id);
    }
}

/// Opens a pushed request. Of its parameters here, only two count, but none may be sent twice.
fn read_pushed(
    core: &Core,
    parameters: &Parameters,
    client: &Client,
    sealed: &str,
    now: Timestamp,
) -> Result<ReadRequest, UntrustedRedirect> {
    let mut counting = ["client_id", "request_uri"].iter();
    if counting.any(|name| parameters.is_repeated(name)) {
        return Err(UntrustedRedirect::Ambiguous);
    }
    let opened = push_request::open(core, client, sealed, now);
    let request = opened.ok_or(UntrustedRedirect::RequestUri)?;
    let each_once = parameters.each_once().map_err(Refusal::from);
    let target = request.target.clone();
    Ok((target, each_once.map(|()| ReadAuthorization::of(request))))
}

/// Sends an error to the client, or shows it to the person.
async fn refuse(
    core: &Core,
    browser: &Browser,
    client: &Client,
    refused: RefusedRequest,
    now: Timestamp,
) -> Result<BrowserRedirect, FlowError<UntrustedRedirect>> {
    let lifetimes = core.policy.lifetimes.session;
    let read = |snapshot: &dyn Snapshot| {
        let live = session::find(snapshot, browser.session.as_ref(), lifetimes, now)?;
        may_send_errors(snapshot, client, live.as_ref())
    };
    if core.store.read(read).await? {
        Ok(BrowserRedirect::refusing(&refused, &core.policy.issuer))
    } else {
        Err(UntrustedRedirect::NotAllowedBefore(refused.refusal).into())
    }
}

/// The answer to a client that must push its requests and did not (RFC 9126 section 6).
const NOT_PUSHED: Refusal = Refusal::invalid_request("this client must push its authorization requests");

/// The `request_uri` of a pushed request, without [`URN`]. Beside a request object it is refused like any other.
fn pushed(parameters: &Parameters) -> Option<&str> {
    let uri = parameters.get("request_uri")?;
    uri.strip_prefix(URN)
        .filter(|_| parameters.get("request").is_none())
}

//! `GET` and `POST /login`: the sign-in page.

use std::sync::Arc;

use ::http::{Method, StatusCode};
use zeroize::Zeroizing;

use super::address::OTHER_USER;
use super::login_context::LoginRequest;
use super::page_parts::{mark, person};
use super::{
    address, browser_redirect, csrf, device_cookie, federation, login_context, no_access, passkey,
    passkey_offer,
};
use crate::federation::{Provider, authorization as authorization_of_providers};
use crate::flow::browser::Browser;
use crate::flow::login::password::{self, PasswordCredentials, SignIn};
use crate::flow::login::transaction::{LoginContext, LoginTransactionError};
use crate::flow::{Failure, FlowError};
use crate::http::context::RequestContext;
use crate::http::cookie;
use crate::http::error::{self, HttpError};
use crate::http::response::{self, HttpResponse};
use crate::identity::{AuthenticationMethod, LoginName};
use crate::oauth::login::{LoginStep, ResolvedPurpose};
use crate::oauth::redirect_uri::with_query;
use crate::observe::metrics::RefusalReason;
use crate::pages::{Login, LoginProblem, PasskeyRequest, ProviderChoice};
use crate::route::Route;

/// The most characters of a user name that the page repeats.
const MAX_USERNAME: usize = 256;

/// What the page remembers of an attempt.
#[derive(Default)]
struct FailedAttempt<'a> {
    /// The user name as it was typed.
    username: &'a str,
    /// Whether many attempts of strangers with this name have failed.
    has_failed_often: bool,
    /// The id of a passkey that no user has.
    unknown_passkey: Option<String>,
    /// After how many seconds the person may try again, if there were too many attempts.
    retry_after: Option<u64>,
}

/// Shows the page, or checks what was typed. Without a transaction, as in a bookmark, the address leads to the account
/// page.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    if context.method() == Method::POST {
        let request = login_context::load_with_user(context, "username").await?;
        return Box::pin(submit(context, request)).await;
    }
    let query = context.query().unwrap_or_default();
    if query.get("transaction").is_none() {
        return Ok(response::redirect_303(&context.app.path(&Route::Account)));
    }
    let LoginRequest {
        parameters, login, ..
    } = login_context::load(context).await?;
    let problem = parameters.get("problem").and_then(federation::problem_named);
    let page = match login.step {
        LoginStep::SignIn if begins_account(context, &login) => Some(Route::SignUp),
        LoginStep::SignIn => direct_provider(context, &login),
        // Other pages lead here if the application is meant for another user.
        _ if query.get(OTHER_USER).is_some() && login.accepts_authentication => None,
        LoginStep::NoAccess => return no_access::respond(context, &login).await,
        _ => return login_context::continue_login(context, &login).await,
    };
    Ok(match page.filter(|_| problem.is_none()) {
        Some(page) => response::redirect_303(&address::page(context, &page, &login.sealed)),
        None => draw(context, &login, problem, &FailedAttempt::default()),
    })
}

/// Checks what was typed.
async fn submit(context: &RequestContext, request: LoginRequest) -> Result<HttpResponse, HttpError> {
    let LoginRequest {
        parameters,
        browser,
        login,
    } = request;
    if !login.accepts_authentication {
        return Err(LoginTransactionError::Expired.into());
    }
    let has_token = csrf::has_token(context, &parameters, &form(&login));
    // A valid token shows that the page is ours, opened under another name.
    if has_token && let Some(origin) = context.alternate_origin() {
        let problem = log_alternate_origin(context, origin);
        return Ok(draw(context, &login, Some(problem), &FailedAttempt::default()));
    }
    if !csrf::check(context, has_token)? {
        let problem = Some(LoginProblem::Expired);
        return Ok(draw(context, &login, problem, &FailedAttempt::default()));
    }
    if parameters.get("decision") == Some("continue") {
        return match password::continue_as(context.browser_login(&browser, &login)).await? {
            Some(redirect) => Ok(browser_redirect::send(context, redirect)),
            None => redraw(context, &login, LoginProblem::Expired, &FailedAttempt::default()).await,
        };
    }
    if parameters.get("passkey").is_some() {
        return match passkey::submit(context, &login, &parameters, None).await {
            Ok(answer) => Ok(answer),
            Err(FlowError::Refused(refused)) => {
                let attempt = FailedAttempt {
                    unknown_passkey: refused.unknown,
                    retry_after: refused.retry_after,
                    ..FailedAttempt::default()
                };
                redraw(context, &login, refused.problem, &attempt).await
            }
            Err(FlowError::Failed(failure)) => Err(failure.into()),
        };
    }
    let username = parameters.get("username").unwrap_or_default();
    let password = parameters.get("password").unwrap_or_default();
    let credentials = PasswordCredentials {
        name: LoginName::new(username),
        password: Zeroizing::new(password.to_owned()),
        from: context.client_address(),
        sends_notice: false,
        takes_passkey_offer: passkey_offer::may_follow(context, &parameters),
    };
    sign_in_with_password(context, &browser, &login, credentials, username).await
}

fn log_alternate_origin(context: &RequestContext, origin: &str) -> LoginProblem {
    context.log_alternate_origin(origin);
    let description = "the sign-in page was opened under another address than base_url";
    context.log_refusal(StatusCode::BAD_REQUEST.as_str(), description);
    LoginProblem::Elsewhere
}

/// Signs in with a password, unless too many were wrong or too many wait.
async fn sign_in_with_password(
    context: &RequestContext,
    browser: &Browser,
    login: &LoginContext,
    mut credentials: PasswordCredentials,
    username: &str,
) -> Result<HttpResponse, HttpError> {
    let (limits, from) = (&context.app.limits, credentials.from);
    let user = login.user_with_name.clone();
    let known = device_cookie::device_id(context, &credentials.name, user.as_ref());
    let known = known.as_ref().map(<[u8; 16]>::as_slice);
    let name = credentials.name.clone();
    let notified = user.as_ref().map(|user| user.uuid).filter(|_| known.is_none());
    credentials.sends_notice =
        notified.is_some_and(|user| limits.allows_notice(user.as_bytes(), context.now));
    let draw_after = async |problem, retry_after| {
        let attempt = FailedAttempt {
            username,
            has_failed_often: known.is_none() && limits.has_failed_often(name.as_str(), context.now),
            unknown_passkey: None,
            retry_after,
        };
        redraw(context, login, problem, &attempt).await
    };
    let throttled = async |seconds| {
        context.log_refusal("throttled", "too many failed sign-ins");
        draw_after(LoginProblem::Throttled, Some(seconds)).await
    };
    let attempt = match limits.try_password(name.as_str(), known, from, context.now) {
        Ok(attempt) => attempt,
        Err(wait) => return throttled(wait.seconds()).await,
    };
    let problem = match password::sign_in(
        context.browser_login(browser, login),
        user,
        &credentials,
        &attempt,
    )
    .await
    {
        Ok(SignIn::Done { redirect, user }) => {
            let mut answer = browser_redirect::send(context, redirect);
            if credentials.sends_notice {
                limits.charge_notice(user.uuid.as_bytes(), context.now);
            }
            let known = device_cookie::issue(context, &credentials.name, &user);
            cookie::append(&mut answer, known);
            return Ok(answer);
        }
        Ok(SignIn::Redirected(redirect)) => return Ok(browser_redirect::send(context, redirect)),
        Ok(SignIn::Refused) => LoginProblem::Credentials,
        Ok(SignIn::Expired) => LoginProblem::Expired,
        Err(Failure::Busy) => {
            error::note_refusal(context, RefusalReason::Passwords);
            LoginProblem::Busy
        }
        Err(Failure::OutOfMemory(_)) => {
            error::note_refusal(context, RefusalReason::Memory);
            LoginProblem::OutOfMemory
        }
        Err(Failure::Throttled { seconds }) => return throttled(seconds).await,
        Err(failure) => return Err(failure.into()),
    };
    draw_after(problem, None).await
}

/// Whether the client asked for a new account (`prompt=create`), and the user did not come back to sign in instead.
fn begins_account(context: &RequestContext, login: &LoginContext) -> bool {
    let asked = login
        .purpose
        .code_request()
        .is_some_and(|request| request.prompt.create);
    let query = context.query().unwrap_or_default();
    asked && query.get("sign_in").is_none() && login.purpose.accepts(&AuthenticationMethod::Password)
}

/// The provider to which the browser is sent without the page, if there is one.
fn direct_provider(context: &RequestContext, login: &LoginContext) -> Option<Route> {
    if login.offered_session(context.now).is_some() {
        return None;
    }
    let offered = context.app.core.catalog().offered_for(&login.purpose);
    let provider = authorization_of_providers::direct_provider(&login.purpose, &offered)?;
    Some(Route::FederationStart(provider.id.clone()))
}

/// The providers that the page offers.
fn provider_choices(context: &RequestContext, login: &LoginContext) -> Vec<ProviderChoice> {
    let offered = context.app.core.catalog().offered_for(&login.purpose);
    let choice = |provider: &Arc<Provider>| {
        let start = Route::FederationStart(provider.id.clone());
        let logo = Route::FederationLogo(provider.id.clone());
        ProviderChoice {
            href: address::page(context, &start, &login.sealed),
            name: provider.display_name().to_owned(),
            logo: provider.logo.as_ref().map(|_| context.app.path(&logo)),
        }
    };
    offered.iter().map(choice).collect()
}

/// Draws the page again and says why.
async fn redraw(
    context: &RequestContext,
    login: &LoginContext,
    problem: LoginProblem,
    attempt: &FailedAttempt<'_>,
) -> Result<HttpResponse, HttpError> {
    let login = login_context::reload(context, &login.sealed).await?;
    Ok(draw(context, &login, Some(problem), attempt))
}

fn draw(
    context: &RequestContext,
    login: &LoginContext,
    problem: Option<LoginProblem>,
    attempt: &FailedAttempt<'_>,
) -> HttpResponse {
    let purpose = &login.purpose;
    let offered_session = login.offered_session(context.now);
    let takes_password = purpose.accepts(&AuthenticationMethod::Password);
    let providers = provider_choices(context, login);
    let (client_name, purpose_problem) = match purpose {
        ResolvedPurpose::Code { client, .. } | ResolvedPurpose::Device { client, .. } => {
            (client.display_name().to_owned(), None)
        }
        ResolvedPurpose::Account(account) => (
            context.with_page_style(None, |_, locale| locale.text().account_name.to_owned()),
            account
                .action_pending
                .then_some(LoginProblem::ReauthenticationRequired),
        ),
    };
    let kept = kept_parameters(context);
    let passkey = passkey::request(context, login, own_address(context, login, &kept)).map(|request| {
        let is_only_way = !takes_password && providers.is_empty();
        PasskeyRequest {
            makes_offer: takes_password && passkey_offer::may_be_made(context),
            unknown: attempt.unknown_passkey.clone(),
            only_way: is_only_way.then(|| context.app.path(&Route::AccountSecurity)),
            ..request
        }
    });
    let has_way = takes_password || passkey.is_some() || !providers.is_empty();
    let problem = if has_way || offered_session.is_some() {
        problem.or(purpose_problem)
    } else {
        Some(LoginProblem::NoWay)
    };
    let page_of = |page: Route| address::page(context, &page, &login.sealed);
    let typed = Some(attempt.username).filter(|name| !name.is_empty());
    let username = typed.or(purpose.login_hint()).unwrap_or_default();
    let is_about_attempts = matches!(problem, Some(LoginProblem::Credentials | LoginProblem::Throttled));
    let page = Login {
        action: context.app.path(&Route::Login),
        transaction: login.sealed.clone(),
        csrf: csrf::of_browser(context, &form(login)),
        username: username.chars().take(MAX_USERNAME).collect(),
        problem,
        retry_after: attempt.retry_after,
        has_failed_often: is_about_attempts && attempt.has_failed_often,
        issuer: context.app.core.policy.issuer.clone(),
        client_name,
        mark: purpose.client().map(|client| mark(context, client)),
        takes_password,
        passkey,
        providers,
        recover: (takes_password && context.app.core.policy.sends_mail).then(|| page_of(Route::Recover)),
        sign_up: (takes_password && context.app.core.policy.accounts.is_open())
            .then(|| page_of(Route::SignUp)),
        by_mail: (takes_password && context.app.core.policy.offers_email_sign_in())
            .then(|| page_of(Route::SignInByMail)),
        continue_as: offered_session.map(|live| person(&live.user)),
        kept,
    };
    let status = match problem {
        Some(LoginProblem::Busy | LoginProblem::OutOfMemory) => StatusCode::SERVICE_UNAVAILABLE,
        Some(LoginProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(LoginProblem::Expired | LoginProblem::Elsewhere) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    let mut answer = context.page(status, &page, purpose.ui_locales());
    let is_unavailable = status == StatusCode::SERVICE_UNAVAILABLE;
    if let Some(seconds) = attempt
        .retry_after
        .or(is_unavailable.then_some(error::RETRY_SECONDS))
    {
        error::set_retry_after(&mut answer, seconds);
    }
    answer
}

/// The address that shows the page again.
fn own_address(context: &RequestContext, login: &LoginContext, kept: &[(&'static str, String)]) -> String {
    let page = address::page(context, &Route::Login, &login.sealed);
    let kept: Vec<_> = kept.iter().map(|(name, value)| (*name, value.as_str())).collect();
    with_query(&page, &kept)
}

/// The parameters that make the page what it is. They stay if the reader chooses another language.
fn kept_parameters(context: &RequestContext) -> Vec<(&'static str, String)> {
    let query = context.query().unwrap_or_default();
    let kept = [OTHER_USER, "sign_in", "problem"].into_iter();
    kept.filter_map(|name| Some((name, query.get(name)?.to_owned())))
        .collect()
}

fn form(login: &LoginContext) -> String {
    format!("login:{}", login.transaction.id)
}

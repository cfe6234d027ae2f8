//! `GET` and `POST /login`: the page that asks who the user is.

use std::sync::Arc;

use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::login_context;
use super::login_context::LoginRequest;
use super::{browser_redirect, csrf, device_cookie, federation, person};
use crate::federation::{Provider, authorization as authorization_of_providers};
use crate::flow::Failure;
use crate::flow::browser::Browser;
use crate::flow::login::password;
use crate::flow::login::password::{PasswordCredentials, SignIn};
use crate::flow::login::transaction::{LoginContext, LoginTransactionError};
use crate::http::context::{RefusalLog, RequestContext};
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::identity::{AuthenticationMethod, LoginName};
use crate::oauth::error::printable;
use crate::oauth::login::{LoginStep, ResolvedPurpose};
use crate::pages::{Login, LoginProblem, ProviderChoice};
use crate::route::Route;

/// The longest user name that is written back into the page.
const LONGEST_USERNAME: usize = 256;

/// Shows the page, or takes what was typed. Its bare address, which people and password managers keep, leads to the
/// account page.
pub async fn respond(context: &RequestContext) -> Answer {
    let query = context.query().unwrap_or_default();
    if context.method() != Method::POST && query.get("transaction").is_none() {
        return response::redirect_303(&context.app.path(&Route::Account));
    }
    let LoginRequest {
        parameters,
        browser,
        login,
    } = match login_context::load(context) {
        Ok(request) => request,
        Err(page) => return *page,
    };
    let id = login.id;
    if context.method() != Method::POST {
        let problem = parameters.get("problem").and_then(federation::problem_named);
        return match login.step {
            LoginStep::SignIn => match direct_provider(context, &login).filter(|_| problem.is_none()) {
                Some(provider) => {
                    response::redirect_303(&browser_redirect::page_address(context, &provider, id))
                }
                None => draw(context, &login, problem, None),
            },
            _ => login_context::continue_login(context, login).await,
        };
    }
    if !login.accepts_authentication {
        return login_context::transaction_error(context, LoginTransactionError::Expired);
    }
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let is_known = csrf::is_valid(parameters.get("csrf"), cookie, &form(id));
    if !is_known || !context.is_from_own_page() {
        // Only a page of ours has the token.
        let other_name = context.other_name().filter(|_| is_known);
        return draw(
            context,
            &login,
            Some(other_name.map_or(LoginProblem::Expired, |name| log_other_origin(context, name))),
            None,
        );
    }
    if parameters.get("decision") == Some("continue") {
        return match password::continue_as(&context.app.core, &browser, &login, context.now).await {
            Ok(Some(redirect)) => browser_redirect::send(context, redirect),
            Ok(None) => redraw(context, id, LoginProblem::Expired, None),
            Err(failure) => error::failed_page(context, &failure),
        };
    }
    let username = parameters.get("username").unwrap_or_default();
    let password = parameters.get("password").unwrap_or_default();
    let credentials = PasswordCredentials {
        name: LoginName::new(username),
        password: Zeroizing::new(password.to_owned()),
        from: context.client_address(),
    };
    take_password(context, &browser, &login, &credentials, username).await
}

/// A browser that opened our pages under another name of this host stays there. The cookies and codes belong to the
/// issuer's name, so no sign-in can succeed.
fn log_other_origin(context: &RequestContext, other_name: &str) -> LoginProblem {
    context.log_detail(RefusalLog {
        origin: Some(printable(other_name, 200)),
        own_origin: Some(context.app.issuer_origin.clone()),
        ..RefusalLog::default()
    });
    let description = "the sign-in page was opened under another address than base_url";
    context.log_refusal(StatusCode::BAD_REQUEST.as_str(), description);
    LoginProblem::Elsewhere
}

/// Checks a password, unless too many were wrong or too many of the same address wait.
async fn take_password(
    context: &RequestContext,
    browser: &Browser,
    login: &LoginContext,
    credentials: &PasswordCredentials,
    username: &str,
) -> Answer {
    let (core, limits, from) = (&context.app.core, &context.app.limits, credentials.from);
    let draw_again = |problem| redraw(context, login.id, problem, Some(username));
    let user = match password::user_named(core, &credentials.name) {
        Ok(user) => user,
        Err(error) => return error::failed_page(context, &error.into()),
    };
    let known = device_cookie::device_id(context, &credentials.name, user.as_ref());
    let known = known.as_ref().map(<[u8; 16]>::as_slice);
    let attempt = match limits.try_password(credentials.name.as_str(), known, from, context.now) {
        Ok(attempt) => attempt,
        Err(wait) => {
            context.log_refusal("throttled", "too many failed sign-ins");
            let mut page = draw_again(LoginProblem::Throttled);
            error::ask_to_wait(&mut page, wait.seconds());
            return page;
        }
    };
    let outcome = match limits.permit_for_password(from) {
        Some(_place) => password::sign_in(core, browser, login, user, credentials, context.now).await,
        None => Err(Failure::Busy),
    };
    if !matches!(outcome, Ok(SignIn::Refused)) {
        attempt.refund(context.now);
    }
    match outcome {
        Ok(SignIn::Done { redirect, user }) => {
            let mut answer = browser_redirect::send(context, redirect);
            browser_redirect::append_cookie(
                &mut answer,
                device_cookie::issue(context, &credentials.name, &user),
            );
            answer
        }
        Ok(SignIn::Refused) => draw_again(LoginProblem::Credentials),
        Ok(SignIn::Expired) => draw_again(LoginProblem::Expired),
        Err(Failure::Busy) => draw_again(LoginProblem::Busy),
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// The provider to which the browser is sent without showing the page.
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
        let logo = Route::FederationLogo(provider.id.clone());
        ProviderChoice {
            href: browser_redirect::page_address(
                context,
                &Route::FederationStart(provider.id.clone()),
                login.id,
            ),
            name: provider.display_name().to_owned(),
            logo: provider.logo.as_ref().map(|_| context.app.path(&logo)),
        }
    };
    offered.iter().map(choice).collect()
}

/// Draws the page again and says why.
fn redraw(context: &RequestContext, id: Uuid, problem: LoginProblem, username: Option<&str>) -> Answer {
    match login_context::reload(context, id) {
        Ok(login) => draw(context, &login, Some(problem), username),
        Err(page) => *page,
    }
}

fn draw(
    context: &RequestContext,
    login: &LoginContext,
    problem: Option<LoginProblem>,
    typed: Option<&str>,
) -> Answer {
    let purpose = &login.purpose;
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let offered_session = login.offered_session(context.now);
    let (takes_password, providers) = (
        purpose.accepts(&AuthenticationMethod::Password),
        provider_choices(context, login),
    );
    let (client_name, purpose_problem) = match purpose {
        ResolvedPurpose::Code { client, .. } => (client.display_name().to_owned(), None),
        ResolvedPurpose::Account(account) => (
            context.with_page_style(None, |_, locale| locale.text().account_name.to_owned()),
            account
                .action_pending
                .then_some(LoginProblem::ReauthenticationRequired),
        ),
    };
    let problem = if takes_password || offered_session.is_some() || !providers.is_empty() {
        problem.or(purpose_problem)
    } else {
        Some(LoginProblem::NoWay)
    };
    let username = typed.or(purpose.login_hint()).unwrap_or_default();
    let page = Login {
        action: context.app.path(&Route::Login),
        transaction: login.id.to_string(),
        csrf: csrf::token(cookie, &form(login.id)),
        username: username.chars().take(LONGEST_USERNAME).collect(),
        problem,
        issuer: context.app.core.policy.issuer.clone(),
        client_name,
        takes_password,
        providers,
        continue_as: offered_session.map(|live| person(&live.user)),
    };
    let status = match problem {
        Some(LoginProblem::Busy) => StatusCode::SERVICE_UNAVAILABLE,
        Some(LoginProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(LoginProblem::Expired | LoginProblem::Elsewhere) => StatusCode::BAD_REQUEST,
        Some(
            LoginProblem::Credentials
            | LoginProblem::ProviderCancelled
            | LoginProblem::ProviderFailed
            | LoginProblem::ProviderUnavailable
            | LoginProblem::NotAdmitted
            | LoginProblem::NoWay
            | LoginProblem::ReauthenticationRequired,
        )
        | None => StatusCode::OK,
    };
    let mut answer = context.page(status, &page, purpose.ui_locales());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        error::ask_to_retry(&mut answer);
    }
    answer
}

fn form(id: Uuid) -> String {
    format!("login:{id}")
}

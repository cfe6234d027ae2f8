//! `GET` and `POST /login`: the page that asks who the user is.

use std::sync::Arc;

use ::http::header::SET_COOKIE;
use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::login_context;
use super::login_context::Asked;
use super::{browser_redirect, csrf, device_cookie, federation, person};
use crate::federation::{Provider, authorization as authorization_of_providers};
use crate::flow::Failure;
use crate::flow::login::password;
use crate::flow::login::password::{SignIn, Typed};
use crate::flow::login::transaction;
use crate::flow::login::transaction::{Browser, Stale, Underway};
use crate::http::context::{RefusalLog, RequestContext};
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::identity::LoginName;
use crate::oauth::authorize::Step;
use crate::oauth::error::printable;
use crate::pages::{Login, LoginProblem, ProviderChoice};
use crate::route::Route;

/// The longest user name that is written back into the page.
const LONGEST_USERNAME: usize = 256;

/// Shows the page, or takes what was typed. Its bare address, which people and password managers keep, leads to what
/// everybody has here.
pub async fn respond(context: &RequestContext) -> Answer {
    let query = context.query().unwrap_or_default();
    if context.method() != Method::POST && query.get("transaction").is_none() {
        return response::redirect_303(&context.app.path(&Route::Account));
    }
    let Asked {
        parameters,
        browser,
        underway,
    } = match login_context::find(context) {
        Ok(asked) => asked,
        Err(page) => return *page,
    };
    let id = underway.id;
    if context.method() != Method::POST {
        let problem = parameters.get("problem").and_then(federation::problem_of);
        return match underway.step {
            Step::SignIn => match straight_to(context, &underway).filter(|_| problem.is_none()) {
                Some(provider) => response::redirect_303(&browser_redirect::address(context, &provider, id)),
                None => draw(context, &underway, problem, None),
            },
            _ => match transaction::carry_on(&context.app.core, &browser, underway, context.now).await {
                Ok(next) => browser_redirect::go(context, next),
                Err(failure) => error::failed_page(context, &failure),
            },
        };
    }
    if !underway.takes_proof {
        return login_context::over(context, Stale::Expired);
    }
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let is_known = csrf::is_valid(parameters.get("csrf"), cookie, &form(id));
    if !is_known || !context.is_from_own_page() {
        // only a page of ours has what makes the form known
        let other_name = context.other_name().filter(|_| is_known);
        return draw(
            context,
            &underway,
            Some(other_name.map_or(LoginProblem::Expired, |name| elsewhere(context, name))),
            None,
        );
    }
    if parameters.get("decision") == Some("continue") {
        let outcome = password::continue_as(&context.app.core, &browser, underway, context.now).await;
        return answer(context, id, outcome, None);
    }
    let username = parameters.get("username").unwrap_or_default().to_owned();
    let password = Zeroizing::new(parameters.get("password").unwrap_or_default().to_owned());
    let typed = Typed {
        username,
        password,
        from: context.client_address(),
    };
    take_password(context, &browser, underway, typed).await
}

/// Whoever opened our pages under another name stays there with every answer: cookies and codes are for the issuer's.
fn elsewhere(context: &RequestContext, other_name: &str) -> LoginProblem {
    context.log_detail(RefusalLog {
        origin: Some(printable(other_name, 200)),
        own_origin: Some(context.app.issuer_origin.clone()),
        ..RefusalLog::default()
    });
    let description = "the sign-in page was opened under another address than base_url";
    context.log_refusal(StatusCode::BAD_REQUEST.as_str(), description);
    LoginProblem::Elsewhere
}

/// Looks at a password, unless too many were wrong or too many of the same address wait.
async fn take_password(
    context: &RequestContext,
    browser: &Browser,
    underway: Underway,
    typed: Typed,
) -> Answer {
    let (limits, id, from) = (&context.app.limits, underway.id, typed.from);
    let (name, username) = (LoginName::new(&typed.username), typed.username.clone());
    let known = device_cookie::browser(context, &name);
    let known = known.as_ref().map(<[u8; 16]>::as_slice);
    let attempt = match limits.try_password(name.as_str(), known, from, context.now) {
        Ok(attempt) => attempt,
        Err(wait) => {
            let problem = LoginProblem::Throttled;
            context.log_refusal("throttled", "too many failed sign-ins");
            let mut page = again(context, id, problem, Some(&username));
            error::ask_to_wait(&mut page, wait.seconds());
            return page;
        }
    };
    let outcome = match limits.permit_for_password(from) {
        Some(_place) => password::sign_in(&context.app.core, browser, underway, typed, context.now).await,
        None => Err(Failure::Busy),
    };
    if !matches!(outcome, Ok(SignIn::Refused)) {
        attempt.refund(context.now);
    }
    let is_done = matches!(outcome, Ok(SignIn::Done(_)));
    let mut answer = answer(context, id, outcome, Some(&username));
    if let Some(cookie) = is_done.then(|| device_cookie::cookie(context, &name)).flatten() {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    answer
}

fn answer(
    context: &RequestContext,
    id: Uuid,
    outcome: Result<SignIn, Failure>,
    username: Option<&str>,
) -> Answer {
    match outcome {
        Ok(SignIn::Done(next)) => browser_redirect::go(context, next),
        Ok(SignIn::Refused) => again(context, id, LoginProblem::Credentials, username),
        Ok(SignIn::Expired) => again(context, id, LoginProblem::Expired, username),
        Err(Failure::Busy) => again(context, id, LoginProblem::Busy, username),
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// The provider to which the browser goes without a look at the page.
fn straight_to(context: &RequestContext, underway: &Underway) -> Option<Route> {
    if password::may_continue(underway, context.now) {
        return None;
    }
    let offered = context.app.core.catalog().offered_by(&underway.client);
    let provider =
        authorization_of_providers::straight_to(&underway.transaction.request, &underway.client, &offered)?;
    Some(Route::FederationStart(provider.id.clone()))
}

/// The providers that the page offers.
fn choices(context: &RequestContext, underway: &Underway) -> Vec<ProviderChoice> {
    let offered = context.app.core.catalog().offered_by(&underway.client);
    let choice = |provider: &Arc<Provider>| {
        let logo = Route::FederationLogo(provider.id.clone());
        ProviderChoice {
            href: browser_redirect::address(
                context,
                &Route::FederationStart(provider.id.clone()),
                underway.id,
            ),
            name: provider.display_name().to_owned(),
            logo: provider.logo.as_ref().map(|_| context.app.path(&logo)),
        }
    };
    offered.iter().map(choice).collect()
}

/// Draws the page once more and says why.
fn again(context: &RequestContext, id: Uuid, problem: LoginProblem, username: Option<&str>) -> Answer {
    match login_context::again(context, id) {
        Ok(underway) => draw(context, &underway, Some(problem), username),
        Err(page) => *page,
    }
}

fn draw(
    context: &RequestContext,
    underway: &Underway,
    problem: Option<LoginProblem>,
    typed: Option<&str>,
) -> Answer {
    let request = &underway.transaction.request;
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let problem = problem.or_else(|| request.has_deed_waiting().then_some(LoginProblem::DeedWaits));
    let may_continue = password::may_continue(underway, context.now);
    let (takes_password, providers) = (underway.client.password_sign_in, choices(context, underway));
    let has_way = takes_password || may_continue || !providers.is_empty();
    let problem = if has_way {
        problem
    } else {
        Some(LoginProblem::NoWay)
    };
    let username = typed.or(request.login_hint.as_deref()).unwrap_or_default();
    let page = Login {
        action: context.app.path(&Route::Login),
        transaction: underway.id.to_string(),
        csrf: csrf::token(cookie, &form(underway.id)),
        username: username.chars().take(LONGEST_USERNAME).collect(),
        problem,
        issuer: context.app.core.policy.issuer.clone(),
        client_name: if request.is_for_own_page() {
            context.with_page_style(None, |_, locale| locale.text().account_name.to_owned())
        } else {
            underway.client.display_name().to_owned()
        },
        takes_password,
        providers,
        continue_as: underway
            .session
            .as_ref()
            .filter(|_| may_continue)
            .map(|live| person(&live.user)),
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
            | LoginProblem::DeedWaits,
        )
        | None => StatusCode::OK,
    };
    let mut answer = context.page(status, &page, request.ui_locales.as_deref());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        error::ask_to_retry(&mut answer);
    }
    answer
}

fn form(id: Uuid) -> String {
    format!("login:{id}")
}

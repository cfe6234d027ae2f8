//! `GET` and `POST /login`: the page that asks who the user is.

use std::sync::Arc;

use ::http::header::SET_COOKIE;
use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::underway::{self, Asked};
use super::{csrf, federation, known, onward, person};
use crate::federation::{Provider, authorization as authorization_of_providers};
use crate::flow::Failure;
use crate::flow::authorization::{self, Browser, Stale, Underway};
use crate::flow::sign_in::{self, SignIn, Typed};
use crate::http::call::{Aside, Call};
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::identity::LoginName;
use crate::oauth::authorize::Step;
use crate::oauth::error::printable;
use crate::page::{Login, LoginProblem, ProviderChoice};
use crate::route::Route;

/// The longest user name that is written back into the page.
const LONGEST_USERNAME: usize = 256;

/// Shows the page, or takes what was typed. Its bare address, which people and password managers keep, leads to what
/// everybody has here.
pub async fn respond(call: &Call) -> Answer {
    let query = call.query().unwrap_or_default();
    if call.method() != Method::POST && query.get("transaction").is_none() {
        return response::redirect_303(&call.app.path(&Route::Account));
    }
    let Asked {
        parameters,
        browser,
        underway,
    } = match underway::find(call) {
        Ok(asked) => asked,
        Err(page) => return *page,
    };
    let id = underway.id;
    if call.method() != Method::POST {
        let problem = parameters.get("problem").and_then(federation::problem_of);
        return match underway.step {
            Step::SignIn => match straight_to(call, &underway).filter(|_| problem.is_none()) {
                Some(provider) => response::redirect_303(&onward::address(call, &provider, id)),
                None => draw(call, &underway, problem, None),
            },
            _ => match authorization::carry_on(&call.app.core, &browser, underway, call.now).await {
                Ok(next) => onward::go(call, next),
                Err(failure) => error::failed_page(call, &failure),
            },
        };
    }
    if !underway.takes_proof {
        return underway::over(call, Stale::Expired);
    }
    let cookie = call.cookie(Cookie::Browser).unwrap_or_default();
    let is_known = csrf::is_valid(parameters.get("csrf"), cookie, &form(id));
    if !is_known || !call.is_from_own_page() {
        // only a page of ours has what makes the form known
        let other_name = call.other_name().filter(|_| is_known);
        return draw(
            call,
            &underway,
            Some(other_name.map_or(LoginProblem::Expired, |name| elsewhere(call, name))),
            None,
        );
    }
    if parameters.get("decision") == Some("continue") {
        let outcome = sign_in::continue_as(&call.app.core, &browser, underway, call.now).await;
        return answer(call, id, outcome, None);
    }
    let username = parameters.get("username").unwrap_or_default().to_owned();
    let password = Zeroizing::new(parameters.get("password").unwrap_or_default().to_owned());
    let typed = Typed {
        username,
        password,
        from: call.client_address(),
    };
    take_password(call, &browser, underway, typed).await
}

/// Whoever opened our pages under another name stays there with every answer: cookies and codes are for the issuer's.
fn elsewhere(call: &Call, other_name: &str) -> LoginProblem {
    call.note_aside(Aside {
        origin: Some(printable(other_name, 200)),
        own_origin: Some(call.app.issuer_origin.clone()),
        ..Aside::default()
    });
    let description = "the sign-in page was opened under another address than base_url";
    error::note(call, StatusCode::BAD_REQUEST.as_str(), description);
    LoginProblem::Elsewhere
}

/// Looks at a password, unless too many were wrong or too many of the same address wait.
async fn take_password(call: &Call, browser: &Browser, underway: Underway, typed: Typed) -> Answer {
    let (limits, id, from) = (&call.app.limits, underway.id, typed.from);
    let (name, username) = (LoginName::new(&typed.username), typed.username.clone());
    let known = known::browser(call, &name);
    let known = known.as_ref().map(<[u8; 16]>::as_slice);
    let attempt = match limits.try_password(name.as_str(), known, from, call.now) {
        Ok(attempt) => attempt,
        Err(wait) => {
            let problem = LoginProblem::Throttled;
            error::note(call, "throttled", "too many failed sign-ins");
            let mut page = again(call, id, problem, Some(&username));
            error::ask_to_wait(&mut page, wait.seconds());
            return page;
        }
    };
    let outcome = match limits.place_for_password(from) {
        Some(_place) => sign_in::sign_in(&call.app.core, browser, underway, typed, call.now).await,
        None => Err(Failure::Busy),
    };
    if !matches!(outcome, Ok(SignIn::Refused)) {
        attempt.forgive(call.now);
    }
    let is_done = matches!(outcome, Ok(SignIn::Done(_)));
    let mut answer = answer(call, id, outcome, Some(&username));
    if let Some(cookie) = is_done.then(|| known::cookie(call, &name)).flatten() {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    answer
}

fn answer(call: &Call, id: Uuid, outcome: Result<SignIn, Failure>, username: Option<&str>) -> Answer {
    match outcome {
        Ok(SignIn::Done(next)) => onward::go(call, next),
        Ok(SignIn::Refused) => again(call, id, LoginProblem::Credentials, username),
        Ok(SignIn::Expired) => again(call, id, LoginProblem::Expired, username),
        Err(Failure::Busy) => again(call, id, LoginProblem::Busy, username),
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// The provider to which the browser goes without a look at the page.
fn straight_to(call: &Call, underway: &Underway) -> Option<Route> {
    if sign_in::may_continue(underway, call.now) {
        return None;
    }
    let offered = call.app.core.catalog().offered_by(&underway.client);
    let provider =
        authorization_of_providers::straight_to(&underway.transaction.request, &underway.client, &offered)?;
    Some(Route::FederationStart(provider.id.clone()))
}

/// The providers that the page offers.
fn choices(call: &Call, underway: &Underway) -> Vec<ProviderChoice> {
    let offered = call.app.core.catalog().offered_by(&underway.client);
    let choice = |provider: &Arc<Provider>| {
        let logo = Route::FederationLogo(provider.id.clone());
        ProviderChoice {
            href: onward::address(call, &Route::FederationStart(provider.id.clone()), underway.id),
            name: provider.display_name().to_owned(),
            logo: provider.logo.as_ref().map(|_| call.app.path(&logo)),
        }
    };
    offered.iter().map(choice).collect()
}

/// Draws the page once more and says why.
fn again(call: &Call, id: Uuid, problem: LoginProblem, username: Option<&str>) -> Answer {
    match underway::again(call, id) {
        Ok(underway) => draw(call, &underway, Some(problem), username),
        Err(page) => *page,
    }
}

fn draw(call: &Call, underway: &Underway, problem: Option<LoginProblem>, typed: Option<&str>) -> Answer {
    let request = &underway.transaction.request;
    let cookie = call.cookie(Cookie::Browser).unwrap_or_default();
    let problem = problem.or_else(|| request.has_deed_waiting().then_some(LoginProblem::DeedWaits));
    let may_continue = sign_in::may_continue(underway, call.now);
    let (takes_password, providers) = (underway.client.password_sign_in, choices(call, underway));
    let has_way = takes_password || may_continue || !providers.is_empty();
    let problem = if has_way {
        problem
    } else {
        Some(LoginProblem::NoWay)
    };
    let username = typed.or(request.login_hint.as_deref()).unwrap_or_default();
    let page = Login {
        action: call.app.path(&Route::Login),
        transaction: underway.id.to_string(),
        csrf: csrf::token(cookie, &form(underway.id)),
        username: username.chars().take(LONGEST_USERNAME).collect(),
        problem,
        issuer: call.app.core.policy.issuer.clone(),
        client_name: if request.is_for_own_page() {
            call.with_look(None, |_, locale| locale.text().account_name.to_owned())
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
    let mut answer = call.page(status, &page, request.ui_locales.as_deref());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        error::ask_to_retry(&mut answer);
    }
    answer
}

fn form(id: Uuid) -> String {
    format!("login:{id}")
}

//! `GET` and `POST /login`: the page that asks who the user is.

use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::underway::{self, Asked};
use super::{csrf, onward};
use crate::flow::Failure;
use crate::flow::authorization::{self, Underway};
use crate::flow::sign_in::{self, SignIn, Typed};
use crate::http::call::Call;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::Answer;
use crate::oauth::authorize::Step;
use crate::page::{Login, LoginProblem};
use crate::route::Route;

/// The longest user name that is written back into the page.
const LONGEST_USERNAME: usize = 256;

/// Shows the page, or takes what was typed.
pub async fn respond(call: &Call) -> Answer {
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
        return match underway.step {
            Step::SignIn => draw(call, &underway, None, None),
            _ => match authorization::carry_on(&call.app.core, &browser, underway, call.now).await {
                Ok(next) => onward::go(call, next),
                Err(failure) => error::failed_page(call, &failure),
            },
        };
    }
    let cookie = call.cookie(Cookie::Browser).unwrap_or_default();
    if !call.is_from_own_page() || !csrf::is_valid(parameters.get("csrf"), cookie, &form(id)) {
        return draw(call, &underway, Some(LoginProblem::Expired), None);
    }
    let outcome = if parameters.get("decision") == Some("continue") {
        sign_in::continue_as(&call.app.core, &browser, underway, call.now).await
    } else {
        let username = parameters.get("username").unwrap_or_default().to_owned();
        let password = Zeroizing::new(parameters.get("password").unwrap_or_default().to_owned());
        let typed = Typed {
            username,
            password,
            from: call.client_address(),
        };
        sign_in::sign_in(&call.app.core, &browser, underway, typed, call.now).await
    };
    match outcome {
        Ok(SignIn::Done(next)) => onward::go(call, next),
        Ok(SignIn::Refused) => again(call, id, LoginProblem::Credentials, parameters.get("username")),
        Ok(SignIn::Expired) => again(call, id, LoginProblem::Expired, parameters.get("username")),
        Err(Failure::Busy) => again(call, id, LoginProblem::Busy, parameters.get("username")),
        Err(failure) => error::failed_page(call, &failure),
    }
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
    let may_continue = sign_in::may_continue(underway, call.now);
    let username = typed.or(request.login_hint.as_deref()).unwrap_or_default();
    let page = Login {
        action: call.app.path(&Route::Login),
        transaction: underway.id.to_string(),
        csrf: csrf::token(cookie, &form(underway.id)),
        username: username.chars().take(LONGEST_USERNAME).collect(),
        problem,
        client_name: if request.is_for_own_page() {
            call.locale(None).text().account_title.to_owned()
        } else {
            underway.client.display_name().to_owned()
        },
        continue_as: underway
            .session
            .as_ref()
            .filter(|_| may_continue)
            .map(|live| live.user.display_name().to_owned()),
    };
    let status = match problem {
        Some(LoginProblem::Busy) => StatusCode::SERVICE_UNAVAILABLE,
        Some(LoginProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(LoginProblem::Expired) => StatusCode::BAD_REQUEST,
        Some(LoginProblem::Credentials) | None => StatusCode::OK,
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

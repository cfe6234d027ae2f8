//! A user sets up the second factor that the operator requires, on the page for the second step.

use ::http::{Method, StatusCode};

use super::account_factors::totp_key;
use super::request_mail::sign_in_address;
use super::second_factor::{address, finish, form};
use super::{browser_redirect, csrf, mark};
use crate::flow::login::enrol;
use crate::flow::login::second_factor::{PendingSignIn, SecondStep};
use crate::flow::login::transaction::LoginContext;
use crate::flow::totp_setup::TotpSetup;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::oauth::redirect_uri::with_query;
use crate::pages::second_factor::{Enrolment, SecondFactor, SecondFactorProblem};
use crate::route::Route;

/// Shows what to set up, or checks the code of the new application.
pub(super) async fn respond(
    context: &RequestContext,
    parameters: &Parameters,
    (login, proof): (&LoginContext, &str),
    pending: &PendingSignIn,
) -> HttpResponse {
    let (core, now) = (&context.app.core, context.now);
    let sealed = parameters.get("setup").unwrap_or_default();
    let kept = enrol::open(core, login, pending, sealed, now);
    let Some(setup) = kept.or_else(|| enrol::draw(core, login, pending, now)) else {
        return response::redirect_303(&sign_in_address(context, login));
    };
    let user = pending.name();
    let draw_page = |problem| draw(context, (login, proof), (user.as_str(), &setup), problem);
    if context.method() != Method::POST {
        // The address has the setup, so that the page is the same when it is loaded again.
        if parameters.get("setup") == Some(setup.sealed.as_str()) {
            return draw_page(None);
        }
        let here = address(context, &login.sealed, proof);
        return response::redirect_303(&with_query(&here, &[("setup", &setup.sealed)]));
    }
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    if !csrf::is_valid(parameters.get("csrf"), cookie, &form(login)) || !context.is_from_own_page() {
        return draw_page(Some(SecondFactorProblem::Expired));
    }
    let typed = parameters.get("code").unwrap_or_default();
    let browser = context.browser();
    match enrol::enrol(core, &browser, login, pending, (&setup, typed), now).await {
        Ok(SecondStep::Done(redirect)) => finish(context, redirect, pending),
        Ok(SecondStep::Refused(redirect)) => browser_redirect::send(context, redirect),
        Ok(SecondStep::Wrong | SecondStep::AtLimit) => draw_page(Some(SecondFactorProblem::Wrong)),
        Ok(SecondStep::Expired) => response::redirect_303(&sign_in_address(context, login)),
        Err(failure) => error::failed_page(context, &failure),
    }
}

fn draw(
    context: &RequestContext,
    (login, proof): (&LoginContext, &str),
    (user, setup): (&str, &TotpSetup),
    problem: Option<SecondFactorProblem>,
) -> HttpResponse {
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let page = SecondFactor {
        action: context.app.path(&Route::SecondFactor),
        transaction: login.sealed.clone(),
        proof: proof.to_owned(),
        csrf: csrf::token(cookie, &form(login)),
        mark: login.purpose.client().map(|client| mark(context, client)),
        user: user.to_owned(),
        takes_code: true,
        is_recovery: false,
        setup: Some(Enrolment {
            key: totp_key(context, setup),
            codes: setup.codes.iter().map(|code| code.to_string()).collect(),
        }),
        remember_days: None,
        other: None,
        passkey: None,
        problem,
        retry_after: None,
        sign_in: sign_in_address(context, login),
    };
    let status = if problem == Some(SecondFactorProblem::Expired) {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    context.page(status, &page, login.purpose.ui_locales())
}

//! A user sets up the second factor that the operator requires, on the page for the second step.

use ::http::Method;

use super::account_factors::totp_key;
use super::second_step::SecondStepRequest;
use super::{address, browser_redirect};
use crate::flow::login::enrol;
use crate::flow::login::second_factor::SecondStep;
use crate::flow::totp_setup::TotpSetup;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::oauth::redirect_uri::with_query;
use crate::pages::second_factor::{Enrolment, SecondFactor, SecondFactorProblem};

/// Shows what to set up, or checks the code of the new application.
pub(super) async fn respond(request: &SecondStepRequest<'_>) -> Result<HttpResponse, HttpError> {
    let SecondStepRequest {
        context,
        parameters,
        login,
        pending,
        ..
    } = *request;
    let (core, now) = (&context.app.core, context.now);
    let sealed = parameters.get("setup").unwrap_or_default();
    let kept = enrol::open(core, login, pending, sealed, now);
    let back = || Ok(response::redirect_303(&address::sign_in(context, &login.sealed)));
    let Some(setup) = kept.or_else(|| enrol::draw(core, login, pending, now)) else {
        return back();
    };
    if context.method() != Method::POST {
        // The address has the setup, so that the page is the same when it is loaded again.
        if parameters.get("setup") == Some(setup.sealed.as_str()) {
            return Ok(draw(request, &setup, None));
        }
        let here = with_query(&request.address(), &[("setup", &setup.sealed)]);
        return Ok(response::redirect_303(&here));
    }
    if !request.is_from_page()? {
        return Ok(draw(request, &setup, Some(SecondFactorProblem::Expired)));
    }
    let typed = parameters.get("code").unwrap_or_default();
    let browser = context.browser();
    match enrol::enrol(context.browser_login(&browser, login), pending, &setup, typed).await? {
        SecondStep::Done(redirect) => Ok(request.finish(redirect)),
        SecondStep::Redirected(redirect) => Ok(browser_redirect::send(context, redirect)),
        SecondStep::Wrong | SecondStep::AtLimit => {
            Ok(draw(request, &setup, Some(SecondFactorProblem::Wrong)))
        }
        SecondStep::Expired => back(),
    }
}

fn draw(
    request: &SecondStepRequest<'_>,
    setup: &TotpSetup,
    problem: Option<SecondFactorProblem>,
) -> HttpResponse {
    request.send(&SecondFactor {
        setup: Some(Enrolment {
            key: totp_key(request.context, setup),
            codes: setup.codes.iter().map(|code| code.to_string()).collect(),
        }),
        ..request.page(problem)
    })
}

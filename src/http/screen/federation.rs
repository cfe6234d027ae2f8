//! `/federation/{provider}/start`, `…/callback` and `…/logo`: the redirect to a provider and back.

use ::http::header::HeaderValue;
use ::http::{Method, StatusCode};
use url::Url;

use super::login_context::LoginRequest;
use super::{address, asset, browser_redirect, kept_sign_in, login_context};
use crate::federation::authorization::Callback;
use crate::flow::FlowError;
use crate::flow::login::begin_federation::{FederationProblem, begin_federation};
use crate::flow::login::finish_federation::{
    CallbackResult, ProviderAnswer, finish_federation, transaction_of,
};
use crate::flow::login::transaction::LoginTransactionError;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::http::{cookie, headers};
use crate::oauth::parameters::Parameters;
use crate::oauth::redirect_uri::with_query;
use crate::pages::{ErrorKind, LoginProblem};
use crate::route::Route;

/// The most bytes of the address that a posted answer is redirected to. The cookies must fit into the header beside it.
const MAX_POSTED_ANSWER: usize = 4096;
/// The most bytes of the member `user` of a posted answer.
const MAX_POSTED_USER: usize = 1024;

/// Sends the browser to the provider.
pub async fn start(context: &RequestContext, provider: &str) -> Result<HttpResponse, HttpError> {
    let LoginRequest { login, .. } = login_context::load(context).await?;
    if !login.accepts_authentication {
        return Err(LoginTransactionError::Expired.into());
    }
    let sealed = login.sealed.clone();
    match begin_federation(&context.app.core, login, provider, context.now).await {
        Ok(redirect) => {
            let mut answer = response::no_store(response::redirect_303(&redirect.address));
            for cookie in kept_sign_in::keep(context, &redirect.kept) {
                cookie::append(&mut answer, Some(cookie));
            }
            Ok(answer)
        }
        Err(FlowError::Refused(problem)) => Ok(back_to_login(context, &sealed, problem)),
        Err(FlowError::Failed(failure)) => Err(failure.into()),
    }
}

/// Receives the browser with the provider's answer.
pub async fn callback(context: &RequestContext, provider: &str) -> Result<HttpResponse, HttpError> {
    let parameters = context.unique_parameters()?;
    if context.method() == Method::POST {
        return Ok(read_again(context, provider, &parameters));
    }
    let Some(mut callback) = Callback::parse(&parameters) else {
        let message = "this is not the answer of an identity provider";
        return Ok(context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Request, message));
    };
    let id = transaction_of(&callback.state);
    let kept = id.and_then(|id| kept_sign_in::find(context, id));
    callback.user = id.and_then(|id| kept_sign_in::posted_user(context, id));
    if let Some(kept) = &kept {
        login_context::set_page_style(context, &kept.transaction).await;
    }
    let admit_document = |url: &Url| context.charge_fetch(url);
    let admit_answer = || context.count_provider_answer();
    let answer = ProviderAnswer {
        provider,
        callback,
        kept,
    };
    let (core, browser) = (&context.app.core, context.browser());
    let finishing = finish_federation(core, &browser, answer, admit_document, admit_answer, context.now);
    let result = Box::pin(finishing).await?;
    let mut answer = match result {
        CallbackResult::Redirect(redirect) => {
            let mut answer = browser_redirect::send(context, redirect);
            // It stays for another try: the provider sends it only once.
            cookie::append(&mut answer, kept_sign_in::remove_posted_user(context));
            answer
        }
        CallbackResult::TryAgain(sealed, problem) => back_to_login(context, &sealed, problem),
    };
    let removals = id.map(|id| kept_sign_in::after_answer(context, id));
    for cookie in removals.into_iter().flatten() {
        cookie::append(&mut answer, Some(cookie));
    }
    Ok(answer)
}

/// Redirects an answer that the provider had the browser post to the same address with GET. Browsers do not send the cookies
/// of the sign-in with a POST from another site, so nothing is read or used up here. The member `user` has the name of a
/// person, and proxies log addresses, so a cookie carries it.
fn read_again(context: &RequestContext, provider: &str, parameters: &Parameters) -> HttpResponse {
    let catalog = context.app.core.catalog();
    if !catalog
        .provider(provider)
        .is_some_and(|provider| provider.posts_answer())
    {
        return headers::method_not_allowed(&[Method::GET]);
    }
    let answer = ["state", "code", "error", "iss"].into_iter();
    let answer = answer.filter_map(|name| Some((name, parameters.get(name)?)));
    let path = context.app.path(&Route::FederationCallback(provider.to_owned()));
    let address = with_query(&path, &answer.collect::<Vec<_>>());
    if address.len() > MAX_POSTED_ANSWER {
        let message = "the answer of the identity provider is too long";
        return context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Request, message);
    }
    let mut answer = response::redirect_303(&address);
    // A name that is too long is left out, and the user gets none.
    let user = parameters
        .get("user")
        .filter(|user| user.len() <= MAX_POSTED_USER);
    if let Some(user) = user
        && let Some(id) = parameters.get("state").and_then(transaction_of)
    {
        cookie::append(&mut answer, kept_sign_in::keep_posted_user(context, id, user));
    }
    answer
}

/// Redirects to the sign-in page, which says what went wrong. Because of the redirect, a reload does not send the
/// provider's answer again.
fn back_to_login(context: &RequestContext, sealed: &str, problem: FederationProblem) -> HttpResponse {
    let address = address::page(context, &Route::Login, sealed);
    response::redirect_303(&format!("{address}&problem={}", problem_name(problem)))
}

/// The problem's name in the address of the sign-in page.
const fn problem_name(problem: FederationProblem) -> &'static str {
    match problem {
        FederationProblem::NotOffered => "not_offered",
        FederationProblem::Unavailable => "unavailable",
        FederationProblem::Failed | FederationProblem::Undated => "failed",
        FederationProblem::Cancelled => "cancelled",
        FederationProblem::NotAdmitted => "not_admitted",
    }
}

/// The problem of this name. The name comes from the address, so it only selects one of these.
pub(super) fn problem_named(name: &str) -> Option<LoginProblem> {
    match name {
        "not_offered" | "failed" => Some(LoginProblem::ProviderFailed),
        "unavailable" => Some(LoginProblem::ProviderUnavailable),
        "cancelled" => Some(LoginProblem::ProviderCancelled),
        "not_admitted" => Some(LoginProblem::NotAdmitted),
        _ => None,
    }
}

/// Sends the provider's logo.
pub fn logo(context: &RequestContext, provider: &str) -> HttpResponse {
    let catalog = context.app.core.catalog();
    let logo = catalog
        .provider(provider)
        .and_then(|provider| provider.logo.as_ref());
    let Some(logo) = logo else {
        return context.not_found();
    };
    asset::of_logo(logo, HeaderValue::from_static("public, max-age=3600"))
}

//! `GET` and `POST /link`: the page that a link in a mail leads to.

use ::http::{Method, StatusCode};
use zeroize::Zeroizing;

use super::open_link::{OpenLink, form, link_void};
use super::{address, browser_redirect, confirm_link, csrf, device_cookie, kept_sign_in, login_context};
use crate::flow::account::{begin, launcher};
use crate::flow::login::destination::Destination;
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::redeem::redeem;
use crate::flow::one_time_link::redeem_result::{ChosenPassword, RedeemResult};
use crate::flow::one_time_link::reset_password::may_reset;
use crate::flow::{Failure, users};
use crate::http::context::RequestContext;
use crate::http::cookie::{self, Cookie};
use crate::http::error::{self, HttpError};
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::identity::{LinkPurpose, LoginName};
use crate::observe::metrics::RefusalReason;
use crate::pages::choose_password::{ChoiceProblem, ChoosePassword};
use crate::pages::{ErrorKind, LinkAction};
use crate::password::PasswordProblem;
use crate::route::Route;

/// The most characters of a name.
const MAX_NAME: usize = 200;

/// Shows the page, which changes nothing, or sets the password that was chosen on it.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let parameters = context.unique_parameters()?;
    let link = OpenLink::find(context, parameters.get("token").unwrap_or_default()).await?;
    if let LinkPurpose::CreateAccount(new) = &link.purpose {
        context.set_page_style_for(new.client_id.as_deref(), None);
    }
    let sealed = parameters.get("transaction").unwrap_or_default();
    if sealed.is_empty() {
        return enter(context, &link).await;
    }
    let Ok(login) = login_context::reload(context, sealed).await else {
        return begin_sign_in(context, &link).await;
    };
    let action = match link.purpose {
        LinkPurpose::SignIn { .. } => Some(LinkAction::SignIn),
        LinkPurpose::SecureAccount { .. } => Some(LinkAction::Secure),
        LinkPurpose::ChangeEmail { .. } => Some(LinkAction::VerifyAddress),
        _ => None,
    };
    if let Some(action) = action {
        return confirm_link::respond(context, &parameters, &login, &link, action).await;
    }
    if context.method() != Method::POST {
        return draw(context, &login, &link, "", None).await;
    }
    submit(context, &parameters, &login, &link).await
}

/// Shows the page in the sign-in in which the link was requested, if this is its browser. Otherwise in a new one, unless
/// the link signs in.
async fn enter(context: &RequestContext, link: &OpenLink) -> Result<HttpResponse, HttpError> {
    let kept = link.requested_in.as_ref().and_then(|requested_in| {
        let in_cookie = || kept_sign_in::find_for_mail(context, requested_in.transaction);
        requested_in.sealed.clone().or_else(in_cookie)
    });
    if let Some(sealed) = kept
        && login_context::reload(context, &sealed).await.is_ok()
    {
        let here = address::link(context, &sealed, &link.secret);
        return Ok(response::redirect_303(&here));
    }
    if link.is_of_a_page() {
        return Err(link_void(context, &link.secret).await);
    }
    if matches!(link.purpose, LinkPurpose::SignIn { .. }) {
        let details = "the link signs in only in the browser in which it was requested";
        return Ok(context.error_page(StatusCode::BAD_REQUEST, ErrorKind::OtherBrowser, details));
    }
    begin_sign_in(context, link).await
}

/// Where a sign-in ends that begins with this link. A person with a new account goes to the application that the invitation
/// names, or to the list of applications if there are any. The others go to the account page.
fn page_after(context: &RequestContext, link: &OpenLink) -> Route {
    let LinkPurpose::CreateAccount(new) = &link.purpose else {
        return Route::Account;
    };
    let catalog = context.app.core.catalog();
    match new.client_id.as_ref().and_then(|id| catalog.client(id)) {
        Some(client) => Route::OpenApplication(client.client_uuid.to_string()),
        None if launcher::has_applications(&catalog) => Route::AccountApplications,
        None => Route::Account,
    }
}

/// Begins a sign-in for the account page in this browser, in which the link is used, and shows the page in it.
async fn begin_sign_in(context: &RequestContext, link: &OpenLink) -> Result<HttpResponse, HttpError> {
    let (core, browser) = (&context.app.core, context.browser());
    let page = page_after(context, link).path();
    let begun = begin::sign_in(core, &browser, &page, false, context.now).await?;
    let Destination::SignIn(sealed) = begun.destination else {
        return Err(link_void(context, &link.secret).await);
    };
    let mut answer = response::redirect_303(&address::link(context, &sealed, &link.secret));
    if let Some(binding) = begun.binding {
        cookie::append(&mut answer, context.set_cookie(Cookie::Browser, binding.reveal()));
    }
    Ok(answer)
}

async fn submit(
    context: &RequestContext,
    parameters: &Parameters,
    login: &LoginContext,
    link: &OpenLink,
) -> Result<HttpResponse, HttpError> {
    let name = parameters.get("name").unwrap_or_default().trim();
    let draw_again = |problem| draw(context, login, link, name, Some(problem));
    if !csrf::is_from_page(context, parameters, &form(login))? {
        return draw_again(ChoiceProblem::Expired).await;
    }
    let limits = &context.app.limits;
    let throttled = async |seconds| {
        context.log_refusal("throttled", "too many passwords were sent");
        let mut page = draw_again(ChoiceProblem::Throttled).await?;
        error::set_retry_after(&mut page, seconds);
        Ok(page)
    };
    if let Err(wait) = limits.type_code(context.client_address(), context.now) {
        return throttled(wait.seconds()).await;
    }
    let password = parameters.get("new-password").unwrap_or_default();
    let chosen = ChosenPassword {
        name: name.chars().take(MAX_NAME).collect(),
        password: Zeroizing::new(password.to_owned()),
    };
    let browser = context.browser();
    let problem = match redeem(context.browser_login(&browser, login), &link.secret, chosen).await {
        Ok(RedeemResult::Done { redirect, user }) => {
            let mut answer = browser_redirect::send(context, redirect);
            let name = LoginName::new(&user.account_id);
            cookie::append(&mut answer, device_cookie::issue(context, &name, &user));
            return Ok(answer);
        }
        Ok(RedeemResult::Redirected(redirect)) => return Ok(browser_redirect::send(context, redirect)),
        Ok(RedeemResult::Rejected(PasswordProblem::TooShort { .. })) => ChoiceProblem::TooShort,
        Ok(RedeemResult::Rejected(PasswordProblem::TooLong { .. })) => ChoiceProblem::TooLong,
        Ok(RedeemResult::Rejected(PasswordProblem::Guessable)) => ChoiceProblem::Guessable,
        Ok(RedeemResult::Unchanged) => ChoiceProblem::Same,
        Ok(RedeemResult::LinkVoid) => return Err(link_void(context, &link.secret).await),
        Ok(RedeemResult::SignInExpired) => return begin_sign_in(context, link).await,
        Err(Failure::Busy) => {
            error::note_refusal(context, RefusalReason::Passwords);
            ChoiceProblem::Busy
        }
        Err(Failure::OutOfMemory(_)) => {
            error::note_refusal(context, RefusalReason::Memory);
            ChoiceProblem::OutOfMemory
        }
        Err(Failure::Throttled { seconds }) => return throttled(seconds).await,
        Err(failure) => return Err(failure.into()),
    };
    draw_again(problem).await
}

async fn draw(
    context: &RequestContext,
    login: &LoginContext,
    link: &OpenLink,
    name: &str,
    problem: Option<ChoiceProblem>,
) -> Result<HttpResponse, HttpError> {
    let (account_id, new_account) = match &link.purpose {
        LinkPurpose::CreateAccount(new) => (new.email.clone(), Some(name.to_owned())),
        LinkPurpose::ResetPassword { user, .. } => match users::find(&context.app.core, *user).await? {
            Some(user) if may_reset(&user, &link.purpose) => (user.account_id, None),
            _ => return Err(link_void(context, &link.secret).await),
        },
        LinkPurpose::SignIn { .. }
        | LinkPurpose::SecureAccount { .. }
        | LinkPurpose::ChangeEmail { .. }
        | LinkPurpose::Nothing => return Err(link_void(context, &link.secret).await),
    };
    let rule = &context.app.core.policy.password;
    let page = ChoosePassword {
        new_account,
        is_required: link.is_of_a_page(),
        action: context.app.path(&Route::Link),
        transaction: login.sealed.clone(),
        token: link.secret.reveal().to_owned(),
        csrf: csrf::of_browser(context, &form(login)),
        account_id,
        min_length: rule.min_length,
        max_bytes: rule.max_bytes,
        problem,
    };
    let status = match problem {
        Some(ChoiceProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(ChoiceProblem::Busy | ChoiceProblem::OutOfMemory) => StatusCode::SERVICE_UNAVAILABLE,
        Some(ChoiceProblem::Expired) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    let mut answer = context.page(status, &page, login.purpose.ui_locales());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        error::set_retry_after(&mut answer, error::RETRY_SECONDS);
    }
    Ok(answer)
}

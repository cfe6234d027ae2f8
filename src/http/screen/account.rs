//! `GET` and `POST /account`: the page on which users manage their own account.

use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{account_notice, browser_redirect, csrf, device_cookie, person};
use crate::flow::Failure;
use crate::flow::account::change_password::{NewPassword, PasswordChange, change_password};
use crate::flow::account::disconnect::disconnect;
use crate::flow::account::end_sessions::{SessionsToEnd, end_sessions};
use crate::flow::account::view::{self, Application};
use crate::flow::account::{ActionResult, begin, view::view};
use crate::flow::login::{session, sign_out};
use crate::http::context::RequestContext;
use crate::http::cookie::{A_YEAR, Cookie};
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::identity::{LoginName, Session};
use crate::observe::metrics::RefusalReason;
use crate::pages::{Account, AccountNotice, ApplicationLine, Locale, SessionLine};
use crate::password::PasswordProblem;
use crate::route::Route;

const FORM: &str = "account";

/// An action that a form of the page asks for.
enum AccountAction {
    Password(NewPassword),
    EndSession(Uuid),
    EndOthers,
    Disconnect(String),
    Language(Option<String>),
}

/// Shows the page, or performs the action of a form and shows the page again.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    if context.method() != Method::POST {
        return show(context, account_notice::read(context)).await;
    }
    let form = match context.page_parameters() {
        Ok(form) => form,
        Err(page) => return *page,
    };
    let cookie = context.cookie(Cookie::Session);
    let is_authentic = context.is_from_own_page()
        && cookie.is_some_and(|cookie| csrf::is_valid(form.get("csrf"), cookie, FORM));
    match AccountAction::read(context, &form).filter(|_| is_authentic) {
        Some(action) => action.perform(context).await,
        None => show(context, Some(AccountNotice::Expired)).await,
    }
}

impl AccountAction {
    fn read(context: &RequestContext, form: &Parameters) -> Option<Self> {
        match form.get("decision")? {
            "password" => {
                let typed = |name| Zeroizing::new(form.get(name).unwrap_or_default().to_owned());
                Some(Self::Password(NewPassword {
                    current: typed("current-password"),
                    chosen: typed("new-password"),
                    from: context.client_address(),
                }))
            }
            "sessions" => match form.get("session")? {
                "others" => Some(Self::EndOthers),
                id => id.parse().ok().map(Self::EndSession),
            },
            "applications" => form.get("client").map(|id| Self::Disconnect(id.to_owned())),
            "language" => match form.get("language")? {
                Account::AUTOMATIC => Some(Self::Language(None)),
                tag => context.with_page_style(None, |theme, _| {
                    let known = theme.locales().iter().find(|locale| locale.tag() == tag)?;
                    Some(Self::Language(Some(known.tag().to_owned())))
                }),
            },
            _ => None,
        }
    }

    async fn perform(self, context: &RequestContext) -> HttpResponse {
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        let is_this_session = |id| browser.session.as_ref().is_some_and(|session| session.id == id);
        let (outcome, notice) = match self {
            Self::Password(new) => return submit_new_password(context, new).await,
            Self::Language(language) => return set_language(context, language),
            Self::EndSession(id) if is_this_session(id) => {
                return match sign_out::confirm_sign_out(core, &browser, now).await {
                    Ok(()) => super::logout::done(context, None),
                    Err(failure) => error::failed_page(context, &failure),
                };
            }
            Self::EndSession(id) => {
                let outcome = end_sessions(core, &browser, SessionsToEnd::One(id), now).await;
                (outcome, AccountNotice::SignedOut)
            }
            Self::EndOthers => {
                let outcome = end_sessions(core, &browser, SessionsToEnd::Others, now).await;
                (outcome, AccountNotice::SignedOut)
            }
            Self::Disconnect(client_id) => {
                let outcome = disconnect(core, &browser, client_id, now).await;
                (outcome, AccountNotice::Disconnected)
            }
        };
        match outcome {
            Ok(ActionResult::Done(())) => {
                let session = context.cookie(Cookie::Session).unwrap_or_default();
                account_notice::redirect(context, notice, session)
            }
            Ok(ActionResult::SignInRequired) => sign_in(context, true),
            Err(failure) => error::failed_page(context, &failure),
        }
    }
}

/// Sends the browser to sign in. If an action was asked for, the pages say that it was not done.
fn sign_in(context: &RequestContext, action_pending: bool) -> HttpResponse {
    match begin::sign_in(&context.app.core, &context.browser(), action_pending, context.now) {
        Ok(redirect) => browser_redirect::send(context, redirect),
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// Changes the password, unless too many passwords were wrong in this session or too many wait.
/// Failures in other browsers do not count here.
///
/// If the session is over, the form may have been sent twice, and the first time changed the password and ended the
/// session. So the pages do not say that the action was not done.
async fn submit_new_password(context: &RequestContext, typed: NewPassword) -> HttpResponse {
    let (core, limits, from) = (&context.app.core, &context.app.limits, typed.from);
    let live = match session::signed_in(core, &context.browser(), context.now) {
        Ok(Some(live)) => live,
        Ok(None) => return sign_in(context, false),
        Err(failure) => return error::failed_page(context, &failure),
    };
    let name = LoginName::new(&live.user.account_id);
    let attempt = match limits.try_password(name.as_str(), Some(live.id.as_bytes()), from, context.now) {
        Ok(attempt) => attempt,
        Err(wait) => return throttled(context, wait.seconds()).await,
    };
    // Looked up before the change: the device cookie is only valid for the old password.
    let names = live.user.login_names();
    let known_as = names
        .into_iter()
        .find(|name| device_cookie::device_id(context, name, Some(&live.user)).is_some());
    let outcome = change_password(core, &context.browser(), typed, attempt, context.now).await;
    show_password_change(context, outcome, &known_as.unwrap_or(name)).await
}

async fn show_password_change(
    context: &RequestContext,
    outcome: Result<ActionResult<PasswordChange>, Failure>,
    name: &LoginName,
) -> HttpResponse {
    let notice = match outcome {
        Ok(ActionResult::Done(PasswordChange::Changed { session, user })) => {
            let notice = AccountNotice::PasswordChanged;
            let mut answer = account_notice::redirect(context, notice, session.reveal());
            browser_redirect::append_session(&mut answer, &session);
            browser_redirect::append_cookie(&mut answer, device_cookie::issue(context, name, &user));
            return answer;
        }
        Ok(ActionResult::Done(PasswordChange::WrongPassword)) => AccountNotice::WrongPassword,
        Ok(ActionResult::Done(PasswordChange::Rejected(PasswordProblem::TooShort { .. }))) => {
            AccountNotice::TooShort
        }
        Ok(ActionResult::Done(PasswordChange::Rejected(PasswordProblem::TooLong { .. }))) => {
            AccountNotice::TooLong
        }
        Ok(ActionResult::Done(PasswordChange::Rejected(PasswordProblem::Guessable))) => {
            AccountNotice::Guessable
        }
        Ok(ActionResult::Done(PasswordChange::Unchanged)) => AccountNotice::SamePassword,
        Ok(ActionResult::SignInRequired) => return sign_in(context, false),
        Err(Failure::Busy) => {
            error::note_refusal(context, RefusalReason::Passwords);
            AccountNotice::Busy
        }
        Err(Failure::OutOfMemory(_)) => {
            error::note_refusal(context, RefusalReason::Memory);
            AccountNotice::OutOfMemory
        }
        Err(Failure::Throttled { seconds }) => return throttled(context, seconds).await,
        Err(failure) => return error::failed_page(context, &failure),
    };
    show(context, Some(notice)).await
}

async fn throttled(context: &RequestContext, seconds: u64) -> HttpResponse {
    context.log_refusal("throttled", "too many wrong passwords");
    let mut page = show(context, Some(AccountNotice::Throttled)).await;
    error::set_retry_after(&mut page, seconds);
    page
}

/// Stores the language in this browser, not in the user's record, so that the sign-in page has it too. The `locale` claim
/// for applications stays the operator's decision.
fn set_language(context: &RequestContext, language: Option<String>) -> HttpResponse {
    let session = context.cookie(Cookie::Session).unwrap_or_default();
    let mut answer = account_notice::redirect(context, AccountNotice::LanguageChosen, session);
    let cookie = match language {
        Some(tag) => Cookie::Language.set(&tag, Some(A_YEAR)),
        None => Cookie::Language.removal(),
    };
    browser_redirect::append_cookie(&mut answer, cookie);
    answer
}

async fn show(context: &RequestContext, notice: Option<AccountNotice>) -> HttpResponse {
    match view(&context.app.core, &context.browser(), context.now).await {
        Ok(ActionResult::Done(account)) => draw(context, *account, notice),
        Ok(ActionResult::SignInRequired) => sign_in(context, notice == Some(AccountNotice::Expired)),
        Err(failure) => error::failed_page(context, &failure),
    }
}

fn draw(context: &RequestContext, account: view::Account, notice: Option<AccountNotice>) -> HttpResponse {
    let view::Account {
        live,
        sessions,
        applications,
    } = account;
    let has_password = live.user.password.is_some();
    let rule = &context.app.core.policy.password;
    let page = Account {
        action: context.app.path(&Route::Account),
        csrf: csrf::token(context.cookie(Cookie::Session).unwrap_or_default(), FORM),
        user: person(&live.user),
        notice,
        min_length: has_password.then_some(rule.min_length),
        max_bytes: rule.max_bytes,
        sessions: sessions
            .iter()
            .map(|(id, session)| session_line(*id, session, *id == live.id))
            .collect(),
        applications: applications
            .into_iter()
            .map(|application| application_line(context, application))
            .collect(),
        languages: context.with_page_style(None, |theme, _| {
            let name = |locale: &Locale| (locale.tag().to_owned(), locale.name().to_owned());
            theme.locales().iter().map(name).collect()
        }),
        language: context.cookie(Cookie::Language).map(ToOwned::to_owned),
    };
    let status = match notice {
        Some(AccountNotice::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(AccountNotice::Busy | AccountNotice::OutOfMemory) => StatusCode::SERVICE_UNAVAILABLE,
        Some(AccountNotice::Expired) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    };
    let mut answer = context.page(status, &page, None);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        error::set_retry_after(&mut answer, error::RETRY_SECONDS);
    }
    answer
}

fn session_line(id: Uuid, session: &Session, is_current: bool) -> SessionLine {
    SessionLine {
        id: id.to_string(),
        device: session.device.name(),
        address: session.device.address.map(|address| address.to_string()),
        signed_in_at: session.created_at.rfc3339(),
        last_used_at: session.last_used_at.rfc3339(),
        is_current,
    }
}

fn application_line(context: &RequestContext, application: Application) -> ApplicationLine {
    let catalog = context.app.core.catalog();
    let client = catalog.client(&application.client_id).map(|client| &**client);
    ApplicationLine {
        scopes: application
            .scope
            .iter()
            .map(|name| context.scope_line(client, name))
            .collect(),
        id: application.client_id,
        name: application.name,
        since: application.since.rfc3339(),
    }
}

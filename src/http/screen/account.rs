//! `GET` and `POST /account` and its sections: the pages on which users manage their own account.

use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::account_factors::{self, FactorAction, FactorResult};
use super::account_self_service::{self, SelfServiceAction, SelfServiceResult, password_attempt};
use super::consent::scope_line;
use super::{account_notice, browser_redirect, csrf, device_cookie, mark, person};
use crate::clock::Timestamp;
use crate::flow::Failure;
use crate::flow::account::change_password::{NewPassword, PasswordChange, change_password};
use crate::flow::account::disconnect::disconnect;
use crate::flow::account::end_sessions::{SessionsToEnd, end_sessions};
use crate::flow::account::present_password::PresentPassword;
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
use crate::pages::{
    Account, AccountNotice, AccountSection, ApplicationLine, Locale, Moment, SectionLink, Security,
    SessionLine,
};
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
    SelfService(SelfServiceAction),
    Factor(FactorAction),
}

/// The section that a page begins with.
fn section_of(page: &Route) -> AccountSection {
    let shows = |section: &AccountSection| route_of(*section) == *page;
    let found = AccountSection::ALL.into_iter().find(shows);
    found.unwrap_or(AccountSection::Profile)
}

fn route_of(section: AccountSection) -> Route {
    match section {
        AccountSection::Profile => Route::AccountProfile,
        AccountSection::Password => Route::AccountPassword,
        AccountSection::Security => Route::AccountSecurity,
        AccountSection::Devices => Route::AccountDevices,
        AccountSection::Applications => Route::AccountApplications,
        AccountSection::Data => Route::AccountData,
    }
}

/// Shows a section, or performs the action of a form and shows the section again. A form may be posted to any of them: a
/// theme may have them all on one page.
pub async fn respond(context: &RequestContext, page: &Route) -> HttpResponse {
    let section = section_of(page);
    if context.method() != Method::POST {
        return show(context, page, section, account_notice::read(context)).await;
    }
    let form = match context.page_parameters() {
        Ok(form) => form,
        Err(page) => return *page,
    };
    let cookie = context.cookie(Cookie::Session);
    let has_token = cookie.is_some_and(|cookie| csrf::is_valid(form.get("csrf"), cookie, FORM));
    if has_token && let Some(answer) = context.elsewhere_page() {
        return answer;
    }
    let is_authentic = has_token && context.is_from_own_page();
    match AccountAction::read(context, &form).filter(|_| is_authentic) {
        Some(action) => action.perform(context, page).await,
        None => show(context, page, section, Some(AccountNotice::Expired)).await,
    }
}

impl AccountAction {
    fn read(context: &RequestContext, form: &Parameters) -> Option<Self> {
        match form.get("decision")? {
            "password" => {
                let typed = |name| Zeroizing::new(form.get(name).unwrap_or_default().to_owned());
                Some(Self::Password(NewPassword {
                    current: PresentPassword {
                        typed: typed("current-password"),
                        from: context.client_address(),
                    },
                    chosen: typed("new-password"),
                }))
            }
            "sessions" | "sign-out" => match form.get("session")? {
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
            decision => match FactorAction::read(decision, form) {
                Some(action) => Some(Self::Factor(action)),
                None => SelfServiceAction::read(context, decision, form).map(Self::SelfService),
            },
        }
    }

    async fn perform(self, context: &RequestContext, page: &Route) -> HttpResponse {
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        let is_this_session = |id| browser.session.as_ref().is_some_and(|session| session.id == id);
        let (outcome, notice) = match self {
            Self::Password(new) => return submit_new_password(context, page, new).await,
            Self::SelfService(action) => return perform_self_service(context, page, action).await,
            Self::Factor(action) => return perform_with_factors(context, page, action).await,
            Self::Language(language) => return set_language(context, page, language),
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
                account_notice::redirect(context, page, notice, session)
            }
            Ok(ActionResult::SignInRequired) => sign_in(context, page, true).await,
            Err(failure) => error::failed_page(context, &failure),
        }
    }
}

async fn perform_self_service(
    context: &RequestContext,
    page: &Route,
    action: SelfServiceAction,
) -> HttpResponse {
    match action.perform(context).await {
        Ok(SelfServiceResult::Notice(notice)) if notice.name().is_some() => {
            let session = context.cookie(Cookie::Session).unwrap_or_default();
            account_notice::redirect(context, page, notice, session)
        }
        Ok(SelfServiceResult::Notice(notice)) => show(context, page, section_of(page), Some(notice)).await,
        Ok(SelfServiceResult::Answer(answer)) => *answer,
        Ok(SelfServiceResult::SignInRequired) => sign_in(context, page, true).await,
        Err(failure) => refused(context, page, section_of(page), failure).await,
    }
}

async fn perform_with_factors(context: &RequestContext, page: &Route, action: FactorAction) -> HttpResponse {
    match action.perform(context).await {
        Ok(FactorResult::Notice(notice)) if notice.name().is_some() => {
            let session = context.cookie(Cookie::Session).unwrap_or_default();
            account_notice::redirect(context, page, notice, session)
        }
        Ok(FactorResult::Notice(notice)) => show(context, page, section_of(page), Some(notice)).await,
        Ok(FactorResult::Section(security)) => {
            match view(&context.app.core, &context.browser(), context.now).await {
                Ok(ActionResult::Done(account)) => {
                    draw(context, page, section_of(page), *account, (None, Some(*security))).await
                }
                Ok(ActionResult::SignInRequired) => sign_in(context, page, true).await,
                Err(failure) => error::failed_page(context, &failure),
            }
        }
        Ok(FactorResult::SignInRequired) => sign_in(context, page, true).await,
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// Sends the browser to sign in. If an action was asked for, the pages say that it was not done.
async fn sign_in(context: &RequestContext, page: &Route, action_pending: bool) -> HttpResponse {
    let (core, browser) = (&context.app.core, context.browser());
    match begin::sign_in(core, &browser, &page.path(), action_pending, context.now).await {
        Ok(redirect) => browser_redirect::send(context, redirect),
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// Changes the password, unless too many passwords were wrong in this session or too many wait.
/// Failures in other browsers do not count here.
///
/// If the session is over, the form may have been sent twice, and the first time changed the password and ended the
/// session. So the pages do not say that the action was not done.
async fn submit_new_password(context: &RequestContext, page: &Route, typed: NewPassword) -> HttpResponse {
    let core = &context.app.core;
    let live = match session::signed_in(core, &context.browser(), context.now).await {
        Ok(Some(live)) => live,
        Ok(None) => return sign_in(context, page, false).await,
        Err(failure) => return error::failed_page(context, &failure),
    };
    let attempt = match password_attempt(context, &live) {
        Ok(attempt) => attempt,
        Err(failure) => return refused(context, page, AccountSection::Password, failure).await,
    };
    // Looked up before the change: the device cookie is only valid for the old password.
    let names = live.user.login_names();
    let known_as = names
        .into_iter()
        .find(|name| device_cookie::device_id(context, name, Some(&live.user)).is_some());
    let outcome = change_password(core, &context.browser(), typed, attempt, context.now).await;
    let name = known_as.unwrap_or_else(|| LoginName::new(&live.user.account_id));
    show_password_change(context, page, outcome, &name).await
}

async fn show_password_change(
    context: &RequestContext,
    page: &Route,
    outcome: Result<ActionResult<PasswordChange>, Failure>,
    name: &LoginName,
) -> HttpResponse {
    let notice = match outcome {
        Ok(ActionResult::Done(PasswordChange::Changed { session, user })) => {
            let notice = AccountNotice::PasswordChanged;
            let mut answer = account_notice::redirect(context, page, notice, session.reveal());
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
        Ok(ActionResult::SignInRequired) => return sign_in(context, page, false).await,
        Err(failure) => return refused(context, page, AccountSection::Password, failure).await,
    };
    show(context, page, AccountSection::Password, Some(notice)).await
}

/// The section again, if the service cannot check a password or send a mail now; otherwise the error page.
async fn refused(
    context: &RequestContext,
    page: &Route,
    section: AccountSection,
    failure: Failure,
) -> HttpResponse {
    let notice = match failure {
        Failure::Busy => {
            error::note_refusal(context, RefusalReason::Passwords);
            AccountNotice::Busy
        }
        Failure::OutOfMemory(_) => {
            error::note_refusal(context, RefusalReason::Memory);
            AccountNotice::OutOfMemory
        }
        Failure::Throttled { seconds } => {
            context.log_refusal("throttled", "too many wrong passwords or mails");
            let notice = Some(AccountNotice::Throttled);
            let mut answer = show(context, page, section, notice).await;
            error::set_retry_after(&mut answer, seconds);
            return answer;
        }
        failure => return error::failed_page(context, &failure),
    };
    show(context, page, section, Some(notice)).await
}

/// Stores the language in this browser, not in the user's record, so that the sign-in page has it too. The `locale` claim
/// for applications stays the operator's decision.
fn set_language(context: &RequestContext, page: &Route, language: Option<String>) -> HttpResponse {
    let session = context.cookie(Cookie::Session).unwrap_or_default();
    let mut answer = account_notice::redirect(context, page, AccountNotice::LanguageChosen, session);
    let cookie = match language {
        Some(tag) => Cookie::Language.set(&tag, Some(A_YEAR)),
        None => Cookie::Language.removal(),
    };
    browser_redirect::append_cookie(&mut answer, cookie);
    answer
}

async fn show(
    context: &RequestContext,
    page: &Route,
    section: AccountSection,
    notice: Option<AccountNotice>,
) -> HttpResponse {
    match view(&context.app.core, &context.browser(), context.now).await {
        Ok(ActionResult::Done(account)) => draw(context, page, section, *account, (notice, None)).await,
        Ok(ActionResult::SignInRequired) => {
            sign_in(context, page, notice == Some(AccountNotice::Expired)).await
        }
        Err(failure) => error::failed_page(context, &failure),
    }
}

async fn draw(
    context: &RequestContext,
    page: &Route,
    section: AccountSection,
    account: view::Account,
    (notice, security): (Option<AccountNotice>, Option<Security>),
) -> HttpResponse {
    let view::Account {
        live,
        sessions,
        applications,
        factors,
    } = account;
    let has_password = live.user.password.is_some();
    let self_service = account_self_service::offered(context, &live.user);
    let rule = &context.app.core.policy.password;
    let security = match security {
        Some(security) => security,
        None => account_factors::section(context, &live, &factors).await,
    };
    let sections = AccountSection::ALL.into_iter();
    let sections = sections.filter(|section| match section {
        AccountSection::Password => has_password,
        AccountSection::Data => self_service.has_data(),
        _ => true,
    });
    let page = Account {
        action: context.app.path(page),
        csrf: csrf::token(context.cookie(Cookie::Session).unwrap_or_default(), FORM),
        section,
        sections: sections
            .map(|section| SectionLink {
                section,
                href: context.app.path(&route_of(section)),
            })
            .collect(),
        user: person(&live.user),
        notice,
        min_length: has_password.then_some(rule.min_length),
        max_bytes: rule.max_bytes,
        sessions: sessions
            .iter()
            .map(|(id, session)| session_line(*id, session, *id == live.id, context.now))
            .collect(),
        applications: applications
            .into_iter()
            .map(|application| application_line(context, application))
            .collect(),
        languages: context.with_page_style(None, |theme, _| {
            let name = |locale: &Locale| (locale.tag().to_owned(), locale.name().to_owned());
            theme.locales().iter().map(name).collect()
        }),
        remembers_browsers: context.app.core.policy.accounts.remember_device.is_some(),
        language: context.kept_language().map(|(tag, _)| tag.to_owned()),
        self_service: self_service.clone(),
        security,
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

fn session_line(id: Uuid, session: &Session, is_current: bool, now: Timestamp) -> SessionLine {
    SessionLine {
        id: id.to_string(),
        device: session.device.name(),
        address: session.device.address.map(|address| address.to_string()),
        signed_in_at: moment(session.created_at, now),
        last_used_at: moment(session.last_used_at, now),
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
            .map(|name| scope_line(context, client, name))
            .collect(),
        id: application.client_id,
        name: application.name,
        logo: client.and_then(|client| mark(context, client).logo),
        since: moment(application.since, context.now),
    }
}

/// A time as pages show it now.
pub(super) fn moment(at: Timestamp, now: Timestamp) -> Moment {
    Moment {
        rfc3339: at.rfc3339(),
        seconds_ago: now.since(at).as_secs(),
    }
}

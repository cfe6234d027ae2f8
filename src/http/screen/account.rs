//! `GET` and `POST /account`: the page on which people see to their own account.

use ::http::header::SET_COOKIE;
use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{csrf, known, onward, person};
use crate::flow::account::change_password::{Change, NewPassword, change_password};
use crate::flow::account::disconnect::disconnect;
use crate::flow::account::end_sessions::{Which, end_sessions};
use crate::flow::account::view::{self, Application};
use crate::flow::account::{Outcome, begin, view::view};
use crate::flow::{Failure, sessions, sign_out};
use crate::http::call::Call;
use crate::http::cookie::{A_YEAR, Cookie};
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::{self, Answer};
use crate::identity::password::PasswordProblem;
use crate::identity::{LoginName, Session};
use crate::oauth::redirect_uri::with_query;
use crate::page::{Account, AccountNotice, ApplicationLine, Locale, SessionLine};
use crate::route::Route;

const FORM: &str = "account";

/// What a form asks for.
enum Deed {
    Password(NewPassword),
    EndSession(Uuid),
    EndOthers,
    Disconnect(String),
    Language(Option<String>),
}

/// Shows the page, or does what a form of it asks for and shows it again.
pub async fn respond(call: &Call) -> Answer {
    if call.method() != Method::POST {
        let notice = call.query().ok().and_then(|query| notice_of(call, &query));
        return show(call, notice).await;
    }
    let form = match call.page_parameters() {
        Ok(form) => form,
        Err(page) => return *page,
    };
    let cookie = call.cookie(Cookie::Session);
    let is_ours = call.is_from_own_page()
        && cookie.is_some_and(|cookie| csrf::is_valid(form.get("csrf"), cookie, FORM));
    match Deed::read(call, &form).filter(|_| is_ours) {
        Some(deed) => deed.carry_out(call).await,
        None => show(call, Some(AccountNotice::Expired)).await,
    }
}

impl Deed {
    fn read(call: &Call, form: &Parameters) -> Option<Self> {
        match form.get("decision")? {
            "password" => {
                let typed = |name| Zeroizing::new(form.get(name).unwrap_or_default().to_owned());
                Some(Self::Password(NewPassword {
                    current: typed("current-password"),
                    chosen: typed("new-password"),
                    from: call.client_address(),
                }))
            }
            "sessions" => match form.get("session")? {
                "others" => Some(Self::EndOthers),
                id => id.parse().ok().map(Self::EndSession),
            },
            "applications" => form.get("client").map(|id| Self::Disconnect(id.to_owned())),
            "language" => match form.get("language")? {
                Account::AUTOMATIC => Some(Self::Language(None)),
                tag => call.with_look(None, |theme, _| {
                    let known = theme.locales().iter().find(|locale| locale.tag() == tag)?;
                    Some(Self::Language(Some(known.tag().to_owned())))
                }),
            },
            _ => None,
        }
    }

    async fn carry_out(self, call: &Call) -> Answer {
        let (core, browser, now) = (&call.app.core, call.browser(), call.now);
        let is_here = |id| browser.session.as_ref().is_some_and(|session| session.id == id);
        let outcome = match self {
            Self::Password(typed) => {
                return take_password(call, typed).await;
            }
            Self::Language(language) => return speak(call, language),
            Self::EndSession(id) if is_here(id) => {
                return match sign_out::confirm_sign_out(core, &browser, now).await {
                    Ok(()) => super::logout::done(call, None),
                    Err(failure) => error::failed_page(call, &failure),
                };
            }
            Self::EndSession(id) => end_sessions(core, &browser, Which::One(id), now)
                .await
                .map(|outcome| (outcome, AccountNotice::SignedOut)),
            Self::EndOthers => end_sessions(core, &browser, Which::Others, now)
                .await
                .map(|outcome| (outcome, AccountNotice::SignedOut)),
            Self::Disconnect(client_id) => disconnect(core, &browser, client_id, now)
                .await
                .map(|outcome| (outcome, AccountNotice::Disconnected)),
        };
        match outcome {
            Ok((Outcome::Done(()), notice)) => {
                back(call, notice, call.cookie(Cookie::Session).unwrap_or_default())
            }
            Ok((Outcome::SignIn, _)) => sign_in(call, true).await,
            Err(failure) => error::failed_page(call, &failure),
        }
    }
}

/// Sends the browser to sign in, first or once more, unless none may be begun. What was asked for, if anything was, is not
/// done then, and people are told so.
async fn sign_in(call: &Call, deed_waits: bool) -> Answer {
    let begun = match call.admit_sign_in() {
        Ok(()) => begin::sign_in(&call.app.core, &call.browser(), deed_waits, call.now).await,
        Err(failure) => Err(failure),
    };
    match begun {
        Ok(next) => onward::go(call, next),
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// Looks at the passwords, unless too many were wrong in this session or too many of the same address wait. The
/// session is a browser in which the user has signed in: strangers who fail elsewhere keep nobody from this.
///
/// Where the session is over, nobody can say whether something was done: a form that a hasty hand sends twice has changed
/// the password by the first time, and so ended the session. Which password it is by now, the sign-in that follows tells.
async fn take_password(call: &Call, typed: NewPassword) -> Answer {
    let (core, limits, from) = (&call.app.core, &call.app.limits, typed.from);
    let live = match sessions::signed_in(core, &call.browser(), call.now) {
        Ok(Some(live)) => live,
        Ok(None) => return sign_in(call, false).await,
        Err(failure) => return error::failed_page(call, &failure),
    };
    let name = LoginName::new(&live.user.account_id);
    let attempt = match limits.try_password(name.as_str(), Some(live.id.as_bytes()), from, call.now) {
        Ok(attempt) => attempt,
        Err(wait) => {
            error::note(call, "throttled", "too many wrong passwords");
            let mut page = show(call, Some(AccountNotice::Throttled)).await;
            error::ask_to_wait(&mut page, wait.seconds());
            return page;
        }
    };
    // under which name this browser is known, while the old password is still in force
    let names = live.user.login_names();
    let known_as = names
        .into_iter()
        .find(|name| known::browser(call, name).is_some());
    let outcome = match limits.place_for_password(from) {
        Some(_place) => change_password(core, &call.browser(), typed, call.now).await,
        None => Err(Failure::Busy),
    };
    if !matches!(outcome, Ok(Outcome::Done(Change::WrongPassword))) {
        attempt.forgive(call.now);
    }
    changed(call, outcome, &known_as.unwrap_or(name)).await
}

async fn changed(call: &Call, outcome: Result<Outcome<Change>, Failure>, name: &LoginName) -> Answer {
    let notice = match outcome {
        Ok(Outcome::Done(Change::Made(secret))) => {
            let mut answer = back(call, AccountNotice::PasswordChanged, secret.reveal());
            let session = Cookie::Session.set(secret.reveal(), None);
            for cookie in [session, known::cookie(call, name)].into_iter().flatten() {
                answer.headers_mut().append(SET_COOKIE, cookie);
            }
            return answer;
        }
        Ok(Outcome::Done(Change::WrongPassword)) => AccountNotice::WrongPassword,
        Ok(Outcome::Done(Change::Unfit(PasswordProblem::TooShort { .. }))) => AccountNotice::TooShort,
        Ok(Outcome::Done(Change::Unfit(PasswordProblem::TooLong { .. }))) => AccountNotice::TooLong,
        Ok(Outcome::Done(Change::Unfit(PasswordProblem::Guessable))) => AccountNotice::Guessable,
        Ok(Outcome::Done(Change::Same)) => AccountNotice::SamePassword,
        Ok(Outcome::SignIn) => return sign_in(call, false).await,
        Err(Failure::Busy) => AccountNotice::Busy,
        Err(failure) => return error::failed_page(call, &failure),
    };
    show(call, Some(notice)).await
}

/// Remembers the language in this browser, not with the user: the page that asks who somebody is has to be in
/// it too. What applications are told (`locale`) stays the operator's word.
fn speak(call: &Call, language: Option<String>) -> Answer {
    let session = call.cookie(Cookie::Session).unwrap_or_default();
    let mut answer = back(call, AccountNotice::LanguageChosen, session);
    let cookie = match language {
        Some(tag) => Cookie::Language.set(&tag, Some(A_YEAR)),
        None => Cookie::Language.removal(),
    };
    if let Some(cookie) = cookie {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    answer
}

/// To the page itself, so that loading it again does nothing again. The notice carries a proof that it comes from
/// here: a link from elsewhere must not tell people that their password was changed.
pub fn back(call: &Call, notice: AccountNotice, session: &str) -> Answer {
    let name = notice.name().unwrap_or_default();
    let proof = csrf::token(session, &proof_of(name));
    let path = call.app.path(&Route::Account);
    response::redirect_303(&with_query(&path, &[("done", name), ("proof", &proof)]))
}

fn notice_of(call: &Call, query: &Parameters) -> Option<AccountNotice> {
    let session = call.cookie(Cookie::Session)?;
    let name = query.get("done")?;
    let notice = AccountNotice::ALL
        .into_iter()
        .find(|notice| notice.name() == Some(name))?;
    csrf::is_valid(query.get("proof"), session, &proof_of(name)).then_some(notice)
}

fn proof_of(notice: &str) -> String {
    format!("{FORM}:done:{notice}")
}

async fn show(call: &Call, notice: Option<AccountNotice>) -> Answer {
    match view(&call.app.core, &call.browser(), call.now).await {
        Ok(Outcome::Done(account)) => draw(call, *account, notice),
        Ok(Outcome::SignIn) => sign_in(call, notice == Some(AccountNotice::Expired)).await,
        Err(failure) => error::failed_page(call, &failure),
    }
}

fn draw(call: &Call, account: view::Account, notice: Option<AccountNotice>) -> Answer {
    let view::Account {
        live,
        sessions,
        applications,
    } = account;
    let has_password = live.user.password.is_some();
    let rule = &call.app.core.policy.password;
    let page = Account {
        action: call.app.path(&Route::Account),
        csrf: csrf::token(call.cookie(Cookie::Session).unwrap_or_default(), FORM),
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
            .map(|application| application_line(call, application))
            .collect(),
        languages: call.with_look(None, |theme, _| {
            let name = |locale: &Locale| (locale.tag().to_owned(), locale.name().to_owned());
            theme.locales().iter().map(name).collect()
        }),
        language: call.cookie(Cookie::Language).map(ToOwned::to_owned),
    };
    let status = match notice {
        Some(AccountNotice::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(AccountNotice::Busy) => StatusCode::SERVICE_UNAVAILABLE,
        Some(AccountNotice::Expired) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    };
    let mut answer = call.page(status, &page, None);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        error::ask_to_retry(&mut answer);
    }
    answer
}

fn session_line(id: Uuid, session: &Session, is_current: bool) -> SessionLine {
    SessionLine {
        id: id.to_string(),
        device: session.device.name(),
        address: session.device.address.map(|address| address.to_string()),
        signed_in_at: session.auth_time.rfc3339(),
        last_used_at: session.last_used_at.rfc3339(),
        is_current,
    }
}

fn application_line(call: &Call, application: Application) -> ApplicationLine {
    let catalog = call.app.core.catalog();
    let client = catalog.client(&application.client_id).map(|client| &**client);
    ApplicationLine {
        scopes: application
            .scope
            .iter()
            .map(|name| call.scope_line(client, name))
            .collect(),
        id: application.client_id,
        name: application.name,
        since: application.since.rfc3339(),
    }
}

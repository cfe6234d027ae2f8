//! `GET` and `POST /account` and its sections: the pages on which users manage their own account.

use ::http::{Method, StatusCode};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::account_action::{ActionAnswer, SectionAnswer};
use super::account_factors::{self, FactorAction};
use super::account_self_service::{self, SelfServiceAction};
use super::page_parts::{mark, moment, page_link, person, scope_lines};
use super::{account_notice, account_proof, browser_redirect, csrf, device_cookie, logout};
use crate::clock::Timestamp;
use crate::flow::Failure;
use crate::flow::account::change_password::{NewPassword, PasswordChange, change_password};
use crate::flow::account::disconnect::disconnect;
use crate::flow::account::end_sessions::{SessionsToEnd, end_sessions};
use crate::flow::account::view::{self, Application};
use crate::flow::account::{ActionResult, begin, view::view};
use crate::flow::login::{session, sign_out};
use crate::http::context::RequestContext;
use crate::http::cookie::{self, Cookie};
use crate::http::error::{self, HttpError};
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::identity::{LoginName, Session};
use crate::oauth::Client;
use crate::observe::metrics::RefusalReason;
use crate::pages::{
    Account, AccountNotice, AccountSection, ApplicationLine, LauncherLine, Locale, SectionLink, Security,
    SessionLine,
};
use crate::password::PasswordProblem;
use crate::route::Route;

const FORM: &str = "account";

/// An action that a form of the page asks for.
enum AccountAction {
    Password(NewPassword),
    EndSessions(SessionsToEnd),
    Disconnect(String),
    Language(Option<String>),
    SelfService(SelfServiceAction),
    Factor(FactorAction),
}

/// A request to a section of the page.
struct AccountRequest<'a> {
    context: &'a RequestContext,
    page: &'a Route,
    section: AccountSection,
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
pub async fn respond(context: &RequestContext, page: &Route) -> Result<HttpResponse, HttpError> {
    let request = AccountRequest {
        context,
        page,
        section: section_of(page),
    };
    if context.method() != Method::POST {
        return request.show(account_notice::read(context)).await;
    }
    let form = context.unique_parameters()?;
    let cookie = context.cookie(Cookie::Session);
    let has_token = cookie.is_some_and(|cookie| csrf::is_valid(form.get("csrf"), cookie, FORM));
    let is_authentic = csrf::check(context, has_token)?;
    match AccountAction::read(context, &form).filter(|_| is_authentic) {
        Some(action) => request.perform(action, &form).await,
        None => request.show(Some(AccountNotice::Expired)).await,
    }
}

impl AccountAction {
    fn read(context: &RequestContext, form: &Parameters) -> Option<Self> {
        match form.get("decision")? {
            "password" => {
                let chosen = form.get("new-password").unwrap_or_default();
                let boxes = form.iter().filter_map(|(name, _)| name.strip_prefix("remove-"));
                Some(Self::Password(NewPassword {
                    chosen: Zeroizing::new(chosen.to_owned()),
                    removed: boxes.filter_map(|id| id.parse().ok()).collect(),
                }))
            }
            "sessions" | "sign-out" => match form.get("session")? {
                "others" => Some(Self::EndSessions(SessionsToEnd::Others)),
                id => Some(Self::EndSessions(SessionsToEnd::One(id.parse().ok()?))),
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
}

impl AccountRequest<'_> {
    async fn perform(&self, action: AccountAction, form: &Parameters) -> Result<HttpResponse, HttpError> {
        let context = self.context;
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        let is_this_session = |id| browser.session.as_ref().is_some_and(|session| session.id == id);
        let result = match action {
            AccountAction::Password(new) => return self.change_password(new, form).await,
            AccountAction::Language(language) => return Ok(self.set_language(language)),
            AccountAction::EndSessions(SessionsToEnd::One(id)) if is_this_session(id) => {
                sign_out::confirm_sign_out(core, &browser, now).await?;
                return Ok(logout::done(context, None, true));
            }
            AccountAction::EndSessions(which) => end_sessions(core, &browser, which, now)
                .await?
                .map(|()| ActionAnswer::Notice(AccountNotice::SignedOut)),
            AccountAction::Disconnect(client_id) => disconnect(core, &browser, client_id, now)
                .await?
                .map(|()| ActionAnswer::Notice(AccountNotice::Disconnected)),
            AccountAction::Factor(action) => match action.perform(context, form).await {
                Ok(result) => result,
                Err(failure) => return self.refused(failure).await,
            },
            AccountAction::SelfService(action) => match action.perform(context, form).await {
                Ok(result) => result,
                Err(failure) => return self.refused(failure).await,
            },
        };
        match result {
            ActionResult::Done(ActionAnswer::Notice(notice)) if notice.name().is_some() => {
                Ok(self.redirect(notice))
            }
            ActionResult::Done(ActionAnswer::Notice(notice)) => self.show(Some(notice)).await,
            ActionResult::Done(ActionAnswer::Http(answer)) => Ok(*answer),
            ActionResult::Done(ActionAnswer::Section(section)) => {
                let SectionAnswer { security, notice } = *section;
                match view(core, &context.browser(), now).await? {
                    Some(account) => Ok(self.draw(*account, notice, Some(security)).await),
                    None => self.sign_in(true).await,
                }
            }
            ActionResult::SignInRequired => self.sign_in(true).await,
            ActionResult::Unproven => self.show(Some(AccountNotice::WrongPassword)).await,
        }
    }

    /// Redirects to the section, which says that the action was done.
    fn redirect(&self, notice: AccountNotice) -> HttpResponse {
        let session = self.context.cookie(Cookie::Session).unwrap_or_default();
        account_notice::redirect(self.context, self.page, notice, session)
    }

    /// Sends the browser to sign in. If an action was asked for, the pages say that it was not done.
    async fn sign_in(&self, action_pending: bool) -> Result<HttpResponse, HttpError> {
        let (core, browser, now) = (&self.context.app.core, self.context.browser(), self.context.now);
        let redirect = begin::sign_in(core, &browser, &self.page.path(), action_pending, now).await?;
        Ok(browser_redirect::send(self.context, redirect))
    }

    /// Changes the password, unless too many passwords were wrong in this session or too many wait.
    /// Failures in other browsers do not count here.
    ///
    /// If the session is over, the form may have been sent twice, and the first time changed the password and ended the
    /// session. So the pages do not say that the action was not done.
    async fn change_password(
        &self,
        typed: NewPassword,
        form: &Parameters,
    ) -> Result<HttpResponse, HttpError> {
        let (context, page) = (self.context, self.page);
        let section = Self {
            section: AccountSection::Password,
            ..*self
        };
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        let Some(live) = session::signed_in(core, &browser, now).await? else {
            return self.sign_in(false).await;
        };
        let proof = match account_proof::read(context, form).await {
            Ok(Some(proof)) => proof,
            Ok(None) => return self.sign_in(false).await,
            Err(failure) => return section.refused(failure).await,
        };
        // Looked up before the change: the device cookie is only valid for the old password.
        let names = live.user.login_names();
        let known_as = names
            .into_iter()
            .find(|name| device_cookie::device_id(context, name, Some(&live.user)).is_some());
        let notice = match change_password(core, &browser, typed, &proof, now).await {
            Ok(ActionResult::Done(PasswordChange::Changed { session, user })) => {
                let notice = AccountNotice::PasswordChanged;
                let mut answer = account_notice::redirect(context, page, notice, session.reveal());
                browser_redirect::append_session(context, &mut answer, &session);
                let name = known_as.unwrap_or_else(|| LoginName::new(&live.user.account_id));
                cookie::append(&mut answer, device_cookie::issue(context, &name, &user));
                return Ok(answer);
            }
            Ok(ActionResult::Unproven) => AccountNotice::WrongPassword,
            Ok(ActionResult::Done(PasswordChange::Rejected(problem))) => match problem {
                PasswordProblem::TooShort { .. } => AccountNotice::TooShort,
                PasswordProblem::TooLong { .. } => AccountNotice::TooLong,
                PasswordProblem::Guessable => AccountNotice::Guessable,
            },
            Ok(ActionResult::Done(PasswordChange::Unchanged)) => AccountNotice::SamePassword,
            Ok(ActionResult::SignInRequired) => return self.sign_in(false).await,
            Err(failure) => return section.refused(failure).await,
        };
        section.show(Some(notice)).await
    }

    /// The section again, if the service cannot check a password or send a mail now.
    async fn refused(&self, failure: Failure) -> Result<HttpResponse, HttpError> {
        let context = self.context;
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
                let mut answer = self.show(Some(AccountNotice::Throttled)).await?;
                error::set_retry_after(&mut answer, seconds);
                return Ok(answer);
            }
            failure => return Err(failure.into()),
        };
        self.show(Some(notice)).await
    }

    /// Stores the language in this browser, not in the user's record, so that the sign-in page has it too. The `locale` claim
    /// for applications stays the operator's decision.
    fn set_language(&self, language: Option<String>) -> HttpResponse {
        let mut answer = self.redirect(AccountNotice::LanguageChosen);
        let context = self.context;
        match language {
            Some(tag) => {
                let cookie = context.set_cookie(Cookie::Language, &tag);
                cookie::append(&mut answer, cookie);
            }
            None => context.remove_cookie(Cookie::Language, &mut answer),
        }
        answer
    }

    async fn show(&self, notice: Option<AccountNotice>) -> Result<HttpResponse, HttpError> {
        let context = self.context;
        match view(&context.app.core, &context.browser(), context.now).await? {
            Some(account) => Ok(self.draw(*account, notice, None).await),
            None => self.sign_in(notice == Some(AccountNotice::Expired)).await,
        }
    }

    async fn draw(
        &self,
        account: view::Account,
        notice: Option<AccountNotice>,
        security: Option<Security>,
    ) -> HttpResponse {
        let context = self.context;
        let view::Account {
            live,
            sessions,
            launcher,
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
        let set_at = live.user.password_set_at();
        let added = factors.iter().filter(|(_, factor)| factor.added_at > set_at);
        let sections = AccountSection::ALL.into_iter();
        let sections = sections.filter(|section| match section {
            AccountSection::Password => has_password,
            AccountSection::Data => self_service.has_data(),
            _ => true,
        });
        let page = Account {
            action: context.app.path(self.page),
            csrf: csrf::token(context.cookie(Cookie::Session).unwrap_or_default(), FORM),
            section: self.section,
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
            launcher: launcher
                .iter()
                .filter_map(|client| launcher_line(context, client))
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
            language: context.kept_language().map(|kept| kept.tag.to_owned()),
            self_service: self_service.clone(),
            security,
            proof: account_proof::request(context, &live, &factors),
            added_factors: added
                .map(|(id, factor)| account_factors::line(*id, factor, context.now))
                .collect(),
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

fn launcher_line(context: &RequestContext, client: &Client) -> Option<LauncherLine> {
    let address = client.launch_uri(&context.app.core.policy.issuer)?;
    Some(LauncherLine {
        mark: mark(context, client),
        open: page_link(&address)?,
    })
}

fn application_line(context: &RequestContext, application: Application) -> ApplicationLine {
    let catalog = context.app.core.catalog();
    let client = catalog.client(&application.client_id);
    let client = client.as_deref();
    let address = client.and_then(|client| client.launch_uri(&context.app.core.policy.issuer));
    ApplicationLine {
        open: address.as_deref().and_then(page_link),
        scopes: scope_lines(context, client, &application.scope),
        id: application.client_id,
        name: application.name,
        logo: client.and_then(|client| mark(context, client).logo),
        since: moment(application.since, context.now),
    }
}

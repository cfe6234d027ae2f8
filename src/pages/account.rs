//! The account page.

use maud::{Markup, html};
use minijinja::Value;

use super::asset::File;
use super::form::{PasswordField, Person, hidden, moment, sentence};
use super::template_context;
use super::text::PLACE;
use super::{Page, ScopeLine, TemplateContext, Text};

/// Shows people where they are signed in and what may act for them, and lets them end it.
#[derive(Clone, Debug)]
pub struct Account {
    /// Where the forms are posted.
    pub action: String,
    /// Proves that the forms came from this page.
    pub csrf: String,
    /// Who is signed in.
    pub user: Person,
    /// What was just done, or why it was not.
    pub notice: Option<AccountNotice>,
    /// The fewest characters of a new password; none for somebody without a password.
    pub min_length: Option<usize>,
    /// The most bytes of one.
    pub max_bytes: usize,
    /// Where the user is signed in, this browser first.
    pub sessions: Vec<SessionLine>,
    /// What may act for the user.
    pub applications: Vec<ApplicationLine>,
    /// The languages to choose from: tag and own name.
    pub languages: Vec<(String, String)>,
    /// The tag of the language that was chosen in this browser.
    pub language: Option<String>,
}

/// One browser in which the user is signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLine {
    /// What the button sends.
    pub id: String,
    /// The browser and its system, as far as they are known.
    pub device: Option<String>,
    /// The address of the last sign-in.
    pub address: Option<String>,
    /// When the user signed in last, as RFC 3339 writes it.
    pub signed_in_at: String,
    /// When it was last used, as RFC 3339 writes it.
    pub last_used_at: String,
    /// Whether it is the browser that shows the page.
    pub is_current: bool,
}

/// One application that may act for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationLine {
    /// What the button sends.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Since when, as RFC 3339 writes it.
    pub since: String,
    /// What it may do.
    pub scopes: Vec<ScopeLine>,
}

/// What the account page says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountNotice {
    /// The password was changed.
    PasswordChanged,
    /// Sessions were ended.
    SignedOut,
    /// An application lost its access.
    Disconnected,
    /// The language was chosen.
    LanguageChosen,
    /// What was asked for took a new sign-in, and was not done.
    ActionPending,
    /// The present password was not the one that was typed.
    WrongPassword,
    /// The new password is too short.
    TooShort,
    /// The new password is too long.
    TooLong,
    /// The new password is among the first that others would try.
    Guessable,
    /// The new password is the present one.
    SamePassword,
    /// Too many wrong passwords; this one was not looked at.
    Throttled,
    /// Too much to do at this moment.
    Busy,
    /// The form was too old or came from elsewhere.
    Expired,
}

impl AccountNotice {
    /// Every notice, for tests and previews.
    pub const ALL: [Self; 13] = [
        Self::PasswordChanged,
        Self::SignedOut,
        Self::Disconnected,
        Self::LanguageChosen,
        Self::ActionPending,
        Self::WrongPassword,
        Self::TooShort,
        Self::TooLong,
        Self::Guessable,
        Self::SamePassword,
        Self::Throttled,
        Self::Busy,
        Self::Expired,
    ];

    /// The name in the address of the page of a notice that is said after a redirect; none for what a form is answered
    /// with.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::PasswordChanged => Some("password"),
            Self::SignedOut => Some("sessions"),
            Self::Disconnected => Some("applications"),
            Self::LanguageChosen => Some("language"),
            Self::ActionPending => Some("nothing"),
            Self::WrongPassword
            | Self::TooShort
            | Self::TooLong
            | Self::Guessable
            | Self::SamePassword
            | Self::Throttled
            | Self::Busy
            | Self::Expired => None,
        }
    }

    /// The word for it that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::PasswordChanged => "password-changed",
            Self::SignedOut => "signed-out",
            Self::Disconnected => "disconnected",
            Self::LanguageChosen => "language-chosen",
            Self::ActionPending => "action-pending",
            Self::WrongPassword => "wrong-password",
            Self::TooShort => "too-short",
            Self::TooLong => "too-long",
            Self::Guessable => "guessable",
            Self::SamePassword => "same-password",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::Expired => "expired",
        }
    }

    /// The field that has to be filled in again.
    fn field(self) -> Option<&'static str> {
        match self {
            Self::WrongPassword => Some(CURRENT),
            Self::TooShort | Self::TooLong | Self::Guessable | Self::SamePassword => Some(CHOSEN),
            Self::PasswordChanged
            | Self::SignedOut
            | Self::Disconnected
            | Self::LanguageChosen
            | Self::ActionPending
            | Self::Throttled
            | Self::Busy
            | Self::Expired => None,
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::PasswordChanged => text.account_password_changed,
            Self::SignedOut => text.account_signed_out,
            Self::Disconnected => text.account_disconnected,
            Self::LanguageChosen => text.account_language_chosen,
            Self::ActionPending => text.account_action_pending,
            Self::WrongPassword => text.problem_current_password,
            Self::TooShort => text.problem_too_short,
            Self::TooLong => text.problem_too_long,
            Self::Guessable => text.problem_guessable,
            Self::SamePassword => text.problem_same_password,
            Self::Throttled => text.problem_throttled,
            Self::Busy => text.problem_busy,
            Self::Expired => text.problem_expired_account,
        }
    }
}

const CURRENT: &str = "current-password";
const CHOSEN: &str = "new-password";

impl Account {
    /// The choice of no language in particular, among the tags.
    pub const AUTOMATIC: &'static str = "auto";

    /// The page of somebody with two browsers and two applications.
    pub fn sample() -> Self {
        let scope = |name: &str| ScopeLine {
            name: name.to_owned(),
            description: String::new(),
        };
        let session = |id: &str, device: Option<&str>, address: &str, is_current: bool| SessionLine {
            id: id.to_owned(),
            device: device.map(ToOwned::to_owned),
            address: Some(address.to_owned()),
            signed_in_at: "2026-11-20T08:15:00Z".to_owned(),
            last_used_at: "2026-11-21T09:30:00Z".to_owned(),
            is_current,
        };
        let application = |id: &str, name: &str, scopes: &[&str]| ApplicationLine {
            id: id.to_owned(),
            name: name.to_owned(),
            since: "2026-11-02T17:45:00Z".to_owned(),
            scopes: scopes.iter().map(|name| scope(name)).collect(),
        };
        Self {
            action: "/account".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            user: Person::sample(),
            notice: None,
            min_length: Some(8),
            max_bytes: 512,
            sessions: vec![
                session("0199f3a2-7c41", Some("Firefox (Linux)"), "198.51.100.7", true),
                session("0199e1c0-10b8", Some("Safari (iOS)"), "2001:db8::17", false),
                session("0199d011-7e02", None, "203.0.113.40", false),
            ],
            applications: vec![
                application("web", "Acme Notes", &["openid", "email", "offline_access"]),
                application("tv", "Acme Television", &["openid", "profile", "notes.read"]),
            ],
            languages: vec![
                ("en".to_owned(), "English".to_owned()),
                ("de".to_owned(), "Deutsch".to_owned()),
                ("ar".to_owned(), "العربية".to_owned()),
            ],
            language: None,
        }
    }

    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let bare = Self {
            min_length: None,
            sessions: Self::sample().sessions.into_iter().take(1).collect(),
            applications: Vec::new(),
            language: Some("de".to_owned()),
            ..Self::sample()
        };
        let noticed = AccountNotice::ALL.map(|notice| Self {
            notice: Some(notice),
            ..Self::sample()
        });
        let mut samples = vec![Self::sample(), bare];
        samples.extend(noticed);
        samples
    }

    fn form(&self, decision: &str, inside: &Markup) -> Markup {
        html! {
            form.stack method="post" action=(self.action) {
                (hidden("csrf", &self.csrf))
                (hidden("decision", decision))
                (inside)
            }
        }
    }

    /// A notice as a sentence.
    fn said(&self, notice: AccountNotice, text: &Text<'_>) -> String {
        notice.text(text).replace(PLACE, &self.max_bytes.to_string())
    }

    /// What was done, or why nothing was; a problem with a password is said beside it.
    fn notice(&self, text: &Text<'_>) -> Markup {
        let has_its_field = |notice: &AccountNotice| self.min_length.is_some() && notice.field().is_some();
        html! {
            @if let Some(notice) = self.notice.filter(|notice| !has_its_field(notice)) {
                @if notice.name().is_some() && notice != AccountNotice::ActionPending {
                    p.done #notice role="status" { (self.said(notice, text)) }
                } @else {
                    p.problem #notice role="alert" { (self.said(notice, text)) }
                }
            }
        }
    }

    /// The form for a new password; nothing for somebody without one.
    fn password(&self, text: &Text<'_>) -> Markup {
        let Some(min_length) = self.min_length else {
            return html! {};
        };
        let problem = self.notice.and_then(|notice| Some((notice, notice.field()?)));
        let invalid = |field: &str| problem.is_some_and(|(_, at)| at == field);
        let current = PasswordField {
            id: CURRENT,
            name: CURRENT,
            label: text.account_current_password,
            autocomplete: "current-password",
            enterkeyhint: "next",
            hint: None,
            described_by: invalid(CURRENT).then_some("notice"),
            is_invalid: invalid(CURRENT),
            has_focus: invalid(CURRENT),
        };
        let chosen = PasswordField {
            id: CHOSEN,
            name: CHOSEN,
            label: text.account_new_password,
            autocomplete: "new-password",
            enterkeyhint: "done",
            hint: Some(sentence(text.account_password_rule, &min_length.to_string())),
            described_by: Some(if invalid(CHOSEN) {
                "notice new-password-hint"
            } else {
                "new-password-hint"
            }),
            is_invalid: invalid(CHOSEN),
            has_focus: invalid(CHOSEN),
        };
        let inside = html! {
            input type="text" name="username" value=(self.user.account_id) autocomplete="username" hidden;
            (current.draw(text))
            (chosen.draw(text))
            button.button type="submit" { (text.account_change_password) }
        };
        html! {
            section aria-labelledby="password" {
                h2 #password { (text.password) }
                p.note { (text.account_password_note) }
                @if let Some((notice, field)) = problem {
                    p.problem #notice role="alert" { a href={ "#" (field) } { (self.said(notice, text)) } }
                }
                (self.form("password", &inside))
            }
        }
    }

    fn has_other_sessions(&self) -> bool {
        self.sessions.iter().any(|session| !session.is_current)
    }

    fn sessions(&self, text: &Text<'_>) -> Markup {
        let inside = html! {
            ul.rows {
                @for session in &self.sessions { (session.draw(text)) }
            }
            @if self.has_other_sessions() {
                button.button.button-quiet type="submit" name="session" value="others" { (text.account_sign_out_others) }
            }
        };
        html! {
            section aria-labelledby="sessions" {
                h2 #sessions { (text.account_sessions) }
                (self.form("sessions", &inside))
            }
        }
    }

    fn applications(&self, text: &Text<'_>) -> Markup {
        let inside = html! {
            ul.rows {
                @for application in &self.applications { (application.draw(text)) }
            }
        };
        html! {
            section aria-labelledby="applications" {
                h2 #applications { (text.account_applications) }
                @if self.applications.is_empty() {
                    p.note { (text.account_no_applications) }
                } @else {
                    p.note { (text.account_applications_note) }
                    (self.form("applications", &inside))
                }
            }
        }
    }

    fn language(&self, text: &Text<'_>) -> Markup {
        let inside = html! {
            div.field {
                label for="language" { (text.account_language_label) }
                select #language name="language" {
                    option value=(Self::AUTOMATIC) selected[self.language.is_none()] { (text.account_language_automatic) }
                    @for (tag, name) in &self.languages {
                        option value=(tag) lang=(tag) selected[self.language.as_ref() == Some(tag)] { (name) }
                    }
                }
            }
            button.button.button-quiet type="submit" { (text.account_save) }
        };
        html! {
            section aria-labelledby="languages" {
                h2 #languages { (text.account_language) }
                (self.form("language", &inside))
            }
        }
    }
}

impl SessionLine {
    /// The line as a template reads it.
    fn entry(&self) -> [(&'static str, Value); 6] {
        let or_nothing = |text: &Option<String>| Value::from(text.as_deref().unwrap_or_default());
        [
            ("id", Value::from(self.id.as_str())),
            ("device", or_nothing(&self.device)),
            ("address", or_nothing(&self.address)),
            ("signed_in_at", Value::from(self.signed_in_at.as_str())),
            ("last_used_at", Value::from(self.last_used_at.as_str())),
            ("is_current", Value::from(self.is_current)),
        ]
    }

    fn draw(&self, text: &Text<'_>) -> Markup {
        let name = self.device.as_deref().unwrap_or(text.account_unknown_device);
        let label = format!(
            "{}: {name}, {}",
            text.sign_out,
            self.address.as_deref().unwrap_or_default()
        );
        html! {
            li {
                div {
                    p.row-name { bdi { (name) } @if self.is_current { " " span.badge { (text.account_this_browser) } } }
                    p.note.meta {
                        @if let Some(address) = &self.address { bdi { (address) } " " }
                        span { (text.account_signed_in) " " (moment(&self.signed_in_at)) } " "
                        span { (text.account_last_used) " " (moment(&self.last_used_at)) }
                    }
                }
                button.button.button-quiet.button-small type="submit" name="session" value=(self.id) aria-label=(label) {
                    (text.sign_out)
                }
            }
        }
    }
}

impl ApplicationLine {
    /// The line as a template reads it.
    fn entry(&self, text: &Text<'_>) -> [(&'static str, Value); 4] {
        let scopes = self.scopes.iter().map(|scope| scope.entry(text));
        [
            ("id", Value::from(self.id.as_str())),
            ("name", Value::from(self.name.as_str())),
            ("since", Value::from(self.since.as_str())),
            ("scopes", template_context::entries(scopes)),
        ]
    }

    fn draw(&self, text: &Text<'_>) -> Markup {
        html! {
            li {
                div {
                    p.row-name { bdi { (self.name) } }
                    p.note { (text.account_since) " " (moment(&self.since)) }
                    @if !self.scopes.is_empty() {
                        ul.plain {
                            @for scope in &self.scopes { li { bdi { (scope.text(text)) } } }
                        }
                    }
                }
                button.button.button-quiet.button-small type="submit" name="client" value=(self.id)
                    aria-label={ (text.account_disconnect) ": " (self.name) } { (text.account_disconnect) }
            }
        }
    }
}

impl Page for Account {
    const NAME: &'static str = "account";

    fn title(&self, text: &Text<'_>) -> String {
        text.account_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.account_title) }
            p.lead { (self.user.within(text.logout_user)) }
            (self.notice(text))
            (self.sessions(text))
            (self.applications(text))
            (self.password(text))
            (self.language(text))
        }
    }

    fn slots(&self, text: &Text<'_>, slots: &mut TemplateContext) {
        slots.part("lead", || self.user.within(text.logout_user));
        slots.part("notice", || self.notice(text));
        slots.part("session_section", || self.sessions(text));
        slots.part("application_section", || self.applications(text));
        slots.part("password_section", || self.password(text));
        slots.part("language_section", || self.language(text));
        slots.text("action", &self.action);
        slots.text("csrf", &self.csrf);
        slots.text("user", &self.user.name);
        slots.text("account_id", &self.user.account_id);
        slots.text("notice_kind", self.notice.map_or("", AccountNotice::kind));
        let said = self.notice.map(|notice| self.said(notice, text));
        slots.text("notice_text", &said.unwrap_or_default());
        let min_length = self.min_length.map(|length| length.to_string());
        slots.text("min_length", &min_length.unwrap_or_default());
        slots.flag("has_other_sessions", self.has_other_sessions());
        slots.list("sessions", self.sessions.iter().map(SessionLine::entry));
        slots.list(
            "applications",
            self.applications.iter().map(|line| line.entry(text)),
        );
        slots.list(
            "languages",
            self.languages.iter().map(|(tag, name)| {
                let is_chosen = self.language.as_ref() == Some(tag);
                [
                    ("tag", Value::from(tag.as_str())),
                    ("name", Value::from(name.as_str())),
                    ("is_chosen", Value::from(is_chosen)),
                ]
            }),
        );
    }

    fn script(&self) -> Option<File> {
        Some(File::Account)
    }
}

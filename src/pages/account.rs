//! The account page.

use maud::{Markup, html};
use minijinja::Value;

use super::account_lines::{ApplicationLine, LauncherLine, SessionLine};
use super::account_notice::{AccountNotice, CURRENT_PASSWORD, NEW_PASSWORD};
use super::account_section::{AccountSection, SectionLink};
use super::asset::File;
use super::form::{PasswordField, Person, hidden};
use super::proof::{ProofForms, ProofRequest};
use super::security::{FactorLine, Security};
use super::self_service::SelfService;
use super::text::PLACE;
use super::{Page, TemplateContext, Text};

/// Shows one section of a user's account. The forms of every section are posted to the address that shows it: a theme may
/// have them all on one page.
#[derive(Clone, Debug)]
pub struct Account {
    /// Where the forms are posted.
    pub action: String,
    /// Proves that the forms came from this page.
    pub csrf: String,
    /// What is shown.
    pub section: AccountSection,
    /// The sections to choose from.
    pub sections: Vec<SectionLink>,
    /// Who is signed in.
    pub user: Person,
    /// The result of the last action.
    pub notice: Option<AccountNotice>,
    /// The fewest characters of a new password; `None` for a user without a password.
    pub min_length: Option<usize>,
    /// The most bytes of a new password.
    pub max_bytes: usize,
    /// The user's sessions, this browser's first.
    pub sessions: Vec<SessionLine>,
    /// Whether browsers without a session may be remembered, so that the user can always sign them out.
    pub remembers_browsers: bool,
    /// The applications that the user may open.
    pub launcher: Vec<LauncherLine>,
    /// The applications with access to the account.
    pub applications: Vec<ApplicationLine>,
    /// The languages to choose from: tag and own name.
    pub languages: Vec<(String, String)>,
    /// The tag of the language that was chosen in this browser.
    pub language: Option<String>,
    /// What the user may change.
    pub self_service: SelfService,
    /// The factors of the user.
    pub security: Security,
    /// What the forms that could take the account over ask for.
    pub proof: ProofRequest,
    /// The factors that were added since the last change of the password. The next one may remove them.
    pub added_factors: Vec<FactorLine>,
}

impl Account {
    /// The value for no chosen language: the browser's preference counts.
    pub const AUTOMATIC: &'static str = "auto";

    fn section_links(&self, text: &Text<'_>) -> Markup {
        SectionLink::draw_all(&self.sections, self.section, text)
    }

    /// A form of the page. Those that the page got after themes were written without them are optional.
    fn form(&self, decision: &str, inside: &Markup) -> Markup {
        let is_first = matches!(decision, "password" | "sessions" | "applications" | "language");
        html! {
            form.stack method="post" action=(self.action) data-optional[!is_first] {
                (hidden("csrf", &self.csrf))
                (hidden("decision", decision))
                (inside)
            }
        }
    }

    /// A notice as a sentence.
    fn notice_text(&self, notice: AccountNotice, text: &Text<'_>) -> String {
        if notice == AccountNotice::WrongPassword && self.proof.takes_factor() {
            return text.problem_proof.to_owned();
        }
        notice.text(text).replace(PLACE, &self.max_bytes.to_string())
    }

    /// The notice at the top. A problem with a password is shown in the password section instead.
    fn notice(&self, text: &Text<'_>) -> Markup {
        let has_password_form = self.section == AccountSection::Password && self.min_length.is_some();
        let is_in_password_form = |notice: &AccountNotice| has_password_form && notice.field().is_some();
        html! {
            @if let Some(notice) = self.notice.filter(|notice| !is_in_password_form(notice)) {
                @if notice.name().is_some() && notice != AccountNotice::ActionPending {
                    p.done #notice role="status" { (self.notice_text(notice, text)) }
                } @else {
                    p.problem #notice role="alert" { (self.notice_text(notice, text)) }
                }
            }
        }
    }

    /// The form for a new password; empty for a user without a password.
    fn password(&self, text: &Text<'_>) -> Markup {
        let Some(min_length) = self.min_length else {
            return html! {};
        };
        let problem = self.notice.and_then(|notice| Some((notice, notice.field()?)));
        let invalid = |field: &str| problem.is_some_and(|(_, at)| at == field);
        let is_unproven = invalid(CURRENT_PASSWORD);
        let chosen = PasswordField {
            id: NEW_PASSWORD,
            name: NEW_PASSWORD,
            label: text.account_new_password,
            label_link: None,
            autocomplete: "new-password",
            enterkeyhint: "done",
            least: Some(min_length),
            described_by: Some(if invalid(NEW_PASSWORD) {
                "notice new-password-hint"
            } else {
                "new-password-hint"
            }),
            is_invalid: invalid(NEW_PASSWORD),
            has_focus: invalid(NEW_PASSWORD),
        };
        let inside = html! {
            input type="text" name="username" value=(self.user.account_id) autocomplete="username" hidden;
            (self.proof.draw_with_reveal(is_unproven, text))
            (chosen.draw(text))
            (self.removal_of_added(text))
            button.button type="submit" { (text.account_change_password) }
        };
        html! {
            section aria-labelledby="password" {
                h2 #password { (text.password) }
                (self.proof.draw_passkey(text))
                p.note { (text.account_password_note) }
                @if let Some((notice, field)) = problem {
                    p.problem #notice role="alert" { a href={ "#" (field) } { (self.notice_text(notice, text)) } }
                }
                (self.form("password", &inside))
            }
        }
    }

    /// The boxes that remove what was added since the last change of the password; empty if nothing was.
    fn removal_of_added(&self, text: &Text<'_>) -> Markup {
        html! {
            @if !self.added_factors.is_empty() {
                fieldset.stack {
                    legend { (text.password_remove_added) }
                    @for line in &self.added_factors {
                        label.check data-optional {
                            input name={ "remove-" (line.id) } type="checkbox" value="1" data-optional;
                            span {
                                bdi { (line.shown_name(text)) }
                                " " span.note { (text.factor_added_at) " " (line.added_at.draw(text)) }
                            }
                        }
                    }
                    p.note { (text.password_remove_codes) }
                }
            }
        }
    }

    /// The names of the user.
    fn profile(&self, text: &Text<'_>) -> Markup {
        html! {
            section aria-labelledby="profile" {
                h2 #profile { (text.account_profile) }
                dl.facts {
                    dt { (text.account_display_name) }
                    dd { bdi { (self.user.name) } }
                    dt { (text.user_name) }
                    dd { bdi { (self.user.account_id) } }
                }
                @if !self.self_service.claims.is_empty() {
                    (self.form("profile", &self.self_service.profile_fields(text)))
                }
            }
            (self.proof.draw_passkey(text))
            (self.self_service.email_section(&|fields| self.form("email", fields), &self.proof, text))
        }
    }

    /// The parts of the section that is shown.
    fn shown(&self, text: &Text<'_>) -> Markup {
        match self.section {
            AccountSection::Profile => html! { (self.profile(text)) (self.language(text)) },
            AccountSection::Password if self.min_length.is_none() => html! {
                p.note { (text.account_no_password) }
            },
            AccountSection::Password => self.password(text),
            AccountSection::Security => self.security(text),
            AccountSection::Devices => self.sessions(text),
            AccountSection::Applications => self.applications(text),
            AccountSection::Data => self.data(text),
        }
    }

    fn security(&self, text: &Text<'_>) -> Markup {
        let form = |decision: &str, inside: &Markup| self.form(decision, inside);
        let proof = &self.proof;
        let section = self.security.draw(ProofForms { form: &form, proof }, text);
        html! { (self.proof.draw_passkey(text)) (section) }
    }

    fn data(&self, text: &Text<'_>) -> Markup {
        let form = |decision: &str, inside: &Markup| self.form(decision, inside);
        let proof = &self.proof;
        let forms = ProofForms { form: &form, proof };
        let section = self.self_service.data(&self.user.account_id, forms, text);
        html! { (self.proof.draw_passkey(text)) (section) }
    }

    fn has_other_sessions(&self) -> bool {
        self.remembers_browsers || self.sessions.iter().any(|session| !session.is_current)
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
            @if !self.launcher.is_empty() {
                section aria-labelledby="launcher" {
                    h2 #launcher { (text.account_launcher) }
                    ul.rows {
                        @for line in &self.launcher { (line.draw(text)) }
                    }
                }
            }
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

impl Page for Account {
    const NAME: &'static str = "account";

    fn title(&self, text: &Text<'_>) -> String {
        format!("{} · {}", self.section.label(text), text.account_title)
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        let current = self.sessions.iter().find(|session| session.is_current);
        html! {
            div.title-line {
                h1 { (text.account_title) }
                @if let Some(session) = current { (self.form("sign-out", &session.sign_out(text))) }
            }
            p.lead { (self.user.in_sentence(text.logout_user)) }
            div.settings {
                (self.section_links(text))
                div { (self.notice(text)) (self.shown(text)) }
            }
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("lead", || self.user.in_sentence(text.logout_user));
        context.part("notice", || self.notice(text));
        context.part("section_links", || self.section_links(text));
        context.part("section_content", || self.shown(text));
        context.part("profile_section", || self.profile(text));
        context.part("session_section", || self.sessions(text));
        context.part("application_section", || self.applications(text));
        context.part("password_section", || self.password(text));
        context.part("language_section", || self.language(text));
        context.part("data_section", || self.data(text));
        context.part("security_section", || self.security(text));
        context.text("section", self.section.name());
        let links = self.sections.iter();
        context.list(
            "sections",
            links.map(|link| link.template_fields(self.section, text)),
        );
        context.text("action", &self.action);
        context.text("csrf", &self.csrf);
        context.text("user", &self.user.name);
        context.text("account_id", &self.user.account_id);
        context.text("notice_kind", self.notice.map_or("", AccountNotice::kind));
        let notice_text = self.notice.map(|notice| self.notice_text(notice, text));
        context.text("notice_text", &notice_text.unwrap_or_default());
        let min_length = self.min_length.map(|length| length.to_string());
        context.text("min_length", &min_length.unwrap_or_default());
        context.flag("has_other_sessions", self.has_other_sessions());
        context.list(
            "sessions",
            self.sessions.iter().map(|line| line.template_fields(text)),
        );
        context.list(
            "launcher",
            self.launcher.iter().map(LauncherLine::template_fields),
        );
        context.list(
            "applications",
            self.applications.iter().map(|line| line.template_fields(text)),
        );
        let factors = self.security.factors.iter();
        context.list("factors", factors.map(|line| line.template_fields(text)));
        context.list(
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

    fn own_address(&self) -> Option<&str> {
        Some(&self.action)
    }

    fn script(&self) -> Option<File> {
        Some(File::Account)
    }
}

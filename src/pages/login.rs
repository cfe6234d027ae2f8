//! The sign-in page.

use maud::{Markup, html};

use super::asset::File;
use super::form::{PasswordField, Person, sentence, sentence_with_link, transaction_fields};
use super::moment::throttled;
use super::text::PLACE;
use super::{Icon, Mark, Page, PageAddress, PasskeyRequest, TemplateContext, Text};

/// Asks for a user name and a password (OpenID Connect Core section 3.1.2.3).
#[derive(Clone, Debug)]
pub struct Login {
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The user name in the field at first: typed before, or from `login_hint`.
    pub username: String,
    /// Why the page is shown again.
    pub problem: Option<LoginProblem>,
    /// After how many seconds the person may try again, if there were too many attempts.
    pub retry_after: Option<u64>,
    /// Whether many attempts with this user name have failed.
    pub has_failed_often: bool,
    /// The address of the service, for users who opened the page under another one.
    pub issuer: String,
    /// The application that asked for the sign-in.
    pub client_name: String,
    /// The same with its logo; none if the sign-in is for the account page.
    pub mark: Option<Mark>,
    /// Whether people may sign in with a stored password.
    pub takes_password: bool,
    /// What a passkey needs, if people may sign in with one.
    pub passkey: Option<PasskeyRequest>,
    /// The providers at which they may sign in instead.
    pub providers: Vec<ProviderChoice>,
    /// The page for people who forgot the password, if they can get a mail.
    pub recover: Option<String>,
    /// The page on which people create an account, if they may.
    pub sign_up: Option<String>,
    /// The page that sends a mail to sign in without a password, if there is one.
    pub by_mail: Option<String>,
    /// The signed-in user who may go on without a password, if the application asked for a choice.
    pub continue_as: Option<Person>,
    /// The parameters of its address that show it as it is.
    pub kept: Vec<(&'static str, String)>,
}

/// A provider at which users may sign in.
#[derive(Clone, Debug)]
pub struct ProviderChoice {
    /// The address that begins the sign-in there.
    pub href: String,
    /// The provider's name.
    pub name: String,
    /// The address of its logo, if it has one.
    pub logo: Option<String>,
}

/// Why a sign-in did not succeed. An unknown user, a wrong password and a disabled user give the same problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginProblem {
    /// The user name or the password is wrong.
    Credentials,
    /// Too many attempts were made; this one was not checked.
    Throttled,
    /// The service is busy.
    Busy,
    /// The service is short of memory.
    OutOfMemory,
    /// The form was too old or came from elsewhere.
    Expired,
    /// The page was opened under another address than the service's own. No sign-in can succeed there.
    Elsewhere,
    /// The user cancelled at the provider.
    ProviderCancelled,
    /// The provider's answer is invalid or an error.
    ProviderFailed,
    /// The provider does not answer.
    ProviderUnavailable,
    /// The provider's user has no account here.
    NotAdmitted,
    /// Neither passwords nor providers are available.
    NoWay,
    /// An action on the account page requires this sign-in, and was not done.
    ReauthenticationRequired,
    /// The passkey was not accepted.
    Passkey,
    /// No user has the passkey.
    PasskeyUnknown,
}

impl LoginProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 14] = [
        Self::Credentials,
        Self::Throttled,
        Self::Busy,
        Self::OutOfMemory,
        Self::Expired,
        Self::Elsewhere,
        Self::ProviderCancelled,
        Self::ProviderFailed,
        Self::ProviderUnavailable,
        Self::NotAdmitted,
        Self::NoWay,
        Self::ReauthenticationRequired,
        Self::Passkey,
        Self::PasskeyUnknown,
    ];

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::OutOfMemory => "out-of-memory",
            Self::Expired => "expired",
            Self::Elsewhere => "elsewhere",
            Self::ProviderCancelled => "provider-cancelled",
            Self::ProviderFailed => "provider-failed",
            Self::ProviderUnavailable => "provider-unavailable",
            Self::NotAdmitted => "not-admitted",
            Self::NoWay => "no-way",
            Self::ReauthenticationRequired => "reauthentication-required",
            Self::Passkey => "passkey",
            Self::PasskeyUnknown => "passkey-unknown",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Credentials => text.problem_credentials,
            Self::Throttled => text.problem_throttled,
            Self::Busy => text.problem_busy,
            Self::OutOfMemory => text.problem_out_of_memory,
            Self::Expired => text.problem_expired,
            Self::Elsewhere => text.problem_elsewhere,
            Self::ProviderCancelled => text.problem_provider_cancelled,
            Self::ProviderFailed => text.problem_provider_failed,
            Self::ProviderUnavailable => text.problem_provider_unavailable,
            Self::NotAdmitted => text.problem_not_admitted,
            Self::NoWay => text.problem_no_way,
            Self::ReauthenticationRequired => text.problem_reauthentication_required,
            Self::Passkey => text.problem_passkey,
            Self::PasskeyUnknown => text.problem_passkey_unknown,
        }
    }
}

impl Login {
    /// The page at the first visit.
    pub fn sample() -> Self {
        Self {
            action: "/login".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            username: String::new(),
            problem: None,
            retry_after: None,
            has_failed_often: false,
            issuer: "https://id.example.com".to_owned(),
            client_name: "Acme Notes".to_owned(),
            mark: Some(Mark::sample()),
            takes_password: true,
            passkey: None,
            providers: Vec::new(),
            recover: None,
            sign_up: None,
            by_mail: None,
            continue_as: None,
            kept: Vec::new(),
        }
    }

    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let choice = Self {
            continue_as: Some(Person::sample()),
            ..Self::sample()
        };
        let failed = LoginProblem::ALL.map(|problem| Self {
            username: "alice@example.com".to_owned(),
            problem: Some(problem),
            ..Self::sample()
        });
        let providers = vec![
            ProviderChoice {
                href: "/federation/example/start?transaction=4lQ0bI2xQ9mN".to_owned(),
                name: "Example".to_owned(),
                logo: Some("/federation/example/logo".to_owned()),
            },
            ProviderChoice {
                href: "/federation/other/start?transaction=4lQ0bI2xQ9mN".to_owned(),
                name: "Other <Company>".to_owned(),
                logo: None,
            },
        ];
        let offered = Self {
            passkey: Some(PasskeyRequest::sample()),
            providers: providers.clone(),
            recover: Some("/recover?transaction=4lQ0bI2xQ9mN".to_owned()),
            sign_up: Some("/sign-up?transaction=4lQ0bI2xQ9mN".to_owned()),
            by_mail: Some("/sign-in-by-mail?transaction=4lQ0bI2xQ9mN".to_owned()),
            ..Self::sample()
        };
        let without_password = Self {
            takes_password: false,
            providers,
            problem: Some(LoginProblem::ProviderCancelled),
            ..Self::sample()
        };
        let failed_often = Self {
            username: "alice@example.com".to_owned(),
            problem: Some(LoginProblem::Credentials),
            has_failed_often: true,
            ..Self::sample()
        };
        let mut samples = vec![Self::sample(), choice, offered, without_password, failed_often];
        samples.extend(failed);
        samples
    }

    /// Links to the providers. Links need neither a form nor a script.
    fn ways_by_provider(&self, text: &Text<'_>) -> Markup {
        html! {
            @if !self.providers.is_empty() {
                @if self.takes_password {
                    p.divider { span { (text.other_way) } }
                }
                ul.providers {
                    @for provider in &self.providers {
                        li {
                            a.button.button-quiet.provider href=(provider.href) {
                                @match &provider.logo {
                                    Some(logo) => img src=(logo) alt="" width="20" height="20";,
                                    None => (Icon::SignIn.draw()),
                                }
                                span { (sentence(text.continue_with, &provider.name)) }
                            }
                        }
                    }
                }
            }
        }
    }

    /// The button for passkeys; empty if people may not sign in with one.
    fn way_by_passkey(&self, text: &Text<'_>) -> Markup {
        let fields = transaction_fields(&self.transaction, &self.csrf);
        html! {
            @if let Some(passkey) = &self.passkey { (passkey.draw(&self.action, &fields, passkey.only_way.is_some(), text)) }
        }
    }

    /// The link to the page that sends a mail to sign in; empty if there is none.
    fn way_by_mail(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(href) = &self.by_mail { p.note { a href=(href) data-optional { (text.sign_in_by_mail) } } }
        }
    }

    /// The link to the page that creates an account; empty if there is none.
    fn way_to_account(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(href) = &self.sign_up { p.note { a href=(href) data-optional { (text.create_account) } } }
        }
    }

    /// The logo of the application, or its letter.
    fn mark(&self) -> Markup {
        html! { @if let Some(mark) = &self.mark { (mark.draw()) } }
    }

    /// Why the page is shown again; empty the first time.
    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(problem) = self.problem {
                p.problem #problem role="alert" {
                    @match problem {
                        LoginProblem::Credentials => a href="#password" { (problem.text(text)) },
                        LoginProblem::Throttled => (throttled(self.retry_after, text)),
                        LoginProblem::Elsewhere => (sentence_with_link(problem.text(text), &self.issuer)),
                        _ => (problem.text(text)),
                    }
                    @if self.has_failed_often { " " (text.problem_failed_often) }
                }
            }
        }
    }

    /// The form that continues with the present session; empty if there is none.
    fn choice(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(user) = &self.continue_as {
                // No `type`: scripts of clients find the sign-in button by `button[type=submit]`.
                form.stack method="post" action=(self.action) {
                    (transaction_fields(&self.transaction, &self.csrf))
                    button.button name="decision" value="continue" {
                        (user.avatar())
                        span { (user.in_sentence(text.continue_as)) }
                    }
                }
                p.divider { span { (text.other_account) } }
            }
        }
    }

    /// The value of `aria-describedby` of the fields.
    fn described_by(&self) -> Option<&'static str> {
        self.problem.map(|_| "problem")
    }

    fn is_invalid(&self) -> bool {
        self.problem == Some(LoginProblem::Credentials)
    }

    fn password_field(&self, text: &Text<'_>) -> Markup {
        let field = PasswordField {
            id: "password",
            name: "password",
            label: text.password,
            label_link: self.recover.as_deref().map(|href| (href, text.forgot_password)),
            autocomplete: "current-password",
            enterkeyhint: "go",
            least: None,
            described_by: self.described_by(),
            is_invalid: self.is_invalid(),
            has_focus: self.continue_as.is_none() && !self.username.is_empty(),
        };
        field.draw(text)
    }

    /// The form for user name and password; empty if no password is taken.
    fn form(&self, text: &Text<'_>) -> Markup {
        let invalid = self.is_invalid().then_some("true");
        let choosing = self.continue_as.is_some();
        html! {
            @if self.takes_password {
                form.stack method="post" action=(self.action) {
                    (transaction_fields(&self.transaction, &self.csrf))
                    div.field {
                        label for="username" { (text.user_name) }
                        input #username name="username" type="text" value=(self.username) required dir="auto"
                            autocomplete="username" autocapitalize="none" autocorrect="off" spellcheck="false"
                            enterkeyhint="next" aria-describedby=[self.described_by()] aria-invalid=[invalid]
                            autofocus[!choosing && self.username.is_empty()];
                    }
                    (self.password_field(text))
                    button.button.button-quiet[choosing] type="submit" { (text.sign_in) }
                }
            }
        }
    }
}

impl Page for Login {
    const NAME: &'static str = "login";

    fn title(&self, text: &Text<'_>) -> String {
        text.sign_in.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            (self.mark())
            h1 { (text.sign_in) }
            p.lead { (sentence(text.sign_in_to, &self.client_name)) }
            (self.problem(text))
            (self.choice(text))
            (self.form(text))
            (self.way_by_passkey(text))
            (self.way_by_mail(text))
            (self.ways_by_provider(text))
            (self.way_to_account(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("mark", || self.mark());
        let logo = self.mark.as_ref().and_then(|mark| mark.logo.as_deref());
        context.text("client_logo", logo.unwrap_or_default());
        context.part("lead", || sentence(text.sign_in_to, &self.client_name));
        context.part("problem", || self.problem(text));
        context.part("choice", || self.choice(text));
        context.part("form", || self.form(text));
        context.part("password_field", || self.password_field(text));
        context.part("providers", || self.ways_by_provider(text));
        context.part("hidden", || transaction_fields(&self.transaction, &self.csrf));
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("username", &self.username);
        context.text("client_name", &self.client_name);
        let user = self.continue_as.as_ref();
        context.text("continue_as", user.map_or("", |user| &user.name));
        context.text("account_id", user.map_or("", |user| &user.account_id));
        context.text("problem_kind", self.problem.map_or("", LoginProblem::kind));
        let mut problem_text = match self.problem {
            Some(LoginProblem::Throttled) => throttled(self.retry_after, text),
            Some(problem) => problem.text(text).replace(PLACE, &self.issuer),
            None => String::new(),
        };
        if self.has_failed_often {
            problem_text.push(' ');
            problem_text.push_str(text.problem_failed_often);
        }
        context.text("problem_text", &problem_text);
        context.part("passkey", || self.way_by_passkey(text));
        context.part("by_mail", || self.way_by_mail(text));
        context.text("by_mail_href", self.by_mail.as_deref().unwrap_or_default());
        context.part("sign_up", || self.way_to_account(text));
        context.text("recover_href", self.recover.as_deref().unwrap_or_default());
        context.text("sign_up_href", self.sign_up.as_deref().unwrap_or_default());
        context.flag("takes_password", self.takes_password);
        context.list(
            "provider_list",
            self.providers.iter().map(|provider| {
                [
                    ("href", provider.href.as_str()),
                    ("name", &provider.name),
                    ("logo", provider.logo.as_deref().unwrap_or_default()),
                ]
            }),
        );
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        let kept = self.kept.iter().map(|(name, value)| (*name, value.as_str()));
        Some(PageAddress {
            path: &self.action,
            parameters: [("transaction", self.transaction.as_str())]
                .into_iter()
                .chain(kept)
                .collect(),
        })
    }

    fn script(&self) -> Option<File> {
        match &self.passkey {
            Some(_) => Some(File::Login),
            None => self.takes_password.then_some(File::Reveal),
        }
    }
}

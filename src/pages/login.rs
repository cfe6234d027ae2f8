//! The sign-in page.

use maud::{Markup, html};

use super::asset::File;
use super::form::{PasswordField, Person, hidden, sentence, sentence_with_link};
use super::text::PLACE;
use super::{Page, TemplateContext, Text};

/// Asks for a user name and a password (OpenID Connect Core section 3.1.2.3).
#[derive(Clone, Debug)]
pub struct Login {
    /// Where the form is posted.
    pub action: String,
    /// The login transaction that this sign-in belongs to.
    pub transaction: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The user name to begin with: typed before, or hinted at. It can be changed.
    pub username: String,
    /// Why the page is shown again.
    pub problem: Option<LoginProblem>,
    /// The address of the service, for whoever came by another one.
    pub issuer: String,
    /// The application that asked for the sign-in.
    pub client_name: String,
    /// Whether people may sign in with a stored password.
    pub takes_password: bool,
    /// The providers at which they may sign in instead.
    pub providers: Vec<ProviderChoice>,
    /// Who is signed in already and may go on without a password, where the application asked for a choice.
    pub continue_as: Option<Person>,
}

/// A way in by another provider.
#[derive(Clone, Debug)]
pub struct ProviderChoice {
    /// Where the way begins.
    pub href: String,
    /// The provider's name.
    pub name: String,
    /// Its picture, if it has one.
    pub logo: Option<String>,
}

/// Why a sign-in did not succeed. An unknown user, a wrong password and a disabled user look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginProblem {
    /// The user name and the password do not belong together.
    Credentials,
    /// Too many attempts were made; this one was not looked at.
    Throttled,
    /// Too many people sign in at this moment.
    Busy,
    /// The form was too old or came from elsewhere.
    Expired,
    /// The page was opened under another address than the service's own, where no sign-in can come to an end.
    Elsewhere,
    /// The user turned round at the provider.
    ProviderCancelled,
    /// The provider's word does not count.
    ProviderFailed,
    /// The provider does not answer.
    ProviderUnavailable,
    /// The provider vouches for somebody who is no user here.
    NotAdmitted,
    /// There is neither a password to be typed nor a provider to go to.
    NoWay,
    /// Something was asked for on the account page that takes this sign-in; it was not done.
    ReauthenticationRequired,
}

impl LoginProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 11] = [
        Self::Credentials,
        Self::Throttled,
        Self::Busy,
        Self::Expired,
        Self::Elsewhere,
        Self::ProviderCancelled,
        Self::ProviderFailed,
        Self::ProviderUnavailable,
        Self::NotAdmitted,
        Self::NoWay,
        Self::ReauthenticationRequired,
    ];

    /// The word for it that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::Expired => "expired",
            Self::Elsewhere => "elsewhere",
            Self::ProviderCancelled => "provider-cancelled",
            Self::ProviderFailed => "provider-failed",
            Self::ProviderUnavailable => "provider-unavailable",
            Self::NotAdmitted => "not-admitted",
            Self::NoWay => "no-way",
            Self::ReauthenticationRequired => "reauthentication-required",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Credentials => text.problem_credentials,
            Self::Throttled => text.problem_throttled,
            Self::Busy => text.problem_busy,
            Self::Expired => text.problem_expired,
            Self::Elsewhere => text.problem_elsewhere,
            Self::ProviderCancelled => text.problem_provider_cancelled,
            Self::ProviderFailed => text.problem_provider_failed,
            Self::ProviderUnavailable => text.problem_provider_unavailable,
            Self::NotAdmitted => text.problem_not_admitted,
            Self::NoWay => text.problem_no_way,
            Self::ReauthenticationRequired => text.problem_reauthentication_required,
        }
    }
}

impl Login {
    /// The page as it is met first.
    pub fn sample() -> Self {
        Self {
            action: "/login".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            username: String::new(),
            problem: None,
            issuer: "https://id.example.com".to_owned(),
            client_name: "Acme Notes".to_owned(),
            takes_password: true,
            providers: Vec::new(),
            continue_as: None,
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
            providers: providers.clone(),
            ..Self::sample()
        };
        let without_password = Self {
            takes_password: false,
            providers,
            problem: Some(LoginProblem::ProviderCancelled),
            ..Self::sample()
        };
        let mut samples = vec![Self::sample(), choice, offered, without_password];
        samples.extend(failed);
        samples
    }

    /// Links, not buttons: they lead away, and work without script.
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
                                @if let Some(logo) = &provider.logo {
                                    img src=(logo) alt="" width="20" height="20";
                                }
                                span { (sentence(text.continue_with, &provider.name)) }
                            }
                        }
                    }
                }
            }
        }
    }

    fn hidden_fields(&self) -> Markup {
        html! {
            (hidden("transaction", &self.transaction))
            (hidden("csrf", &self.csrf))
        }
    }

    /// Why the page is shown again; nothing at first.
    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(problem) = self.problem {
                p.problem #problem role="alert" {
                    @match problem {
                        LoginProblem::Credentials => a href="#password" { (problem.text(text)) },
                        LoginProblem::Elsewhere => (sentence_with_link(problem.text(text), &self.issuer)),
                        _ => (problem.text(text)),
                    }
                }
            }
        }
    }

    /// The form that goes on with the present session; nothing where there is none to go on with.
    fn choice(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(user) = &self.continue_as {
                // Without a type of its own: `button[type=submit]` on this page is the sign-in alone.
                form.stack method="post" action=(self.action) {
                    (self.hidden_fields())
                    button.button name="decision" value="continue" { span { (user.within(text.continue_as)) } }
                }
                p.divider { span { (text.other_account) } }
            }
        }
    }

    /// What is wrong with the fields: the id of what says so, and what `aria-invalid` is.
    fn fault(&self) -> (Option<&'static str>, Option<&'static str>) {
        let is_mistyped = self.problem == Some(LoginProblem::Credentials);
        (self.problem.map(|_| "problem"), is_mistyped.then_some("true"))
    }

    fn password_field(&self, text: &Text<'_>) -> Markup {
        let (described_by, invalid) = self.fault();
        let field = PasswordField {
            id: "password",
            name: "password",
            label: text.password,
            autocomplete: "current-password",
            enterkeyhint: "go",
            hint: None,
            described_by,
            is_invalid: invalid.is_some(),
            has_focus: self.continue_as.is_none() && !self.username.is_empty(),
        };
        field.draw(text)
    }

    /// The form that is filled in; nothing where no password is taken.
    fn form(&self, text: &Text<'_>) -> Markup {
        let (described_by, invalid) = self.fault();
        let choosing = self.continue_as.is_some();
        html! {
            @if self.takes_password {
                form.stack method="post" action=(self.action) {
                    (self.hidden_fields())
                    div.field {
                        label for="username" { (text.user_name) }
                        input #username name="username" type="text" value=(self.username) required dir="auto"
                            autocomplete="username" autocapitalize="none" autocorrect="off" spellcheck="false"
                            enterkeyhint="next" aria-describedby=[described_by] aria-invalid=[invalid]
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
            h1 { (text.sign_in) }
            p.lead { (sentence(text.sign_in_to, &self.client_name)) }
            (self.problem(text))
            (self.choice(text))
            (self.form(text))
            (self.ways_by_provider(text))
        }
    }

    fn slots(&self, text: &Text<'_>, slots: &mut TemplateContext) {
        slots.part("lead", || sentence(text.sign_in_to, &self.client_name));
        slots.part("problem", || self.problem(text));
        slots.part("choice", || self.choice(text));
        slots.part("form", || self.form(text));
        slots.part("password_field", || self.password_field(text));
        slots.part("providers", || self.ways_by_provider(text));
        slots.part("hidden", || self.hidden_fields());
        slots.text("action", &self.action);
        slots.text("transaction", &self.transaction);
        slots.text("csrf", &self.csrf);
        slots.text("username", &self.username);
        slots.text("client_name", &self.client_name);
        let user = self.continue_as.as_ref();
        slots.text("continue_as", user.map_or("", |user| &user.name));
        slots.text("account_id", user.map_or("", |user| &user.account_id));
        slots.text("problem_kind", self.problem.map_or("", LoginProblem::kind));
        let problem_text = self.problem.map_or("", |problem| problem.text(text));
        slots.text("problem_text", &problem_text.replace(PLACE, &self.issuer));
        slots.flag("takes_password", self.takes_password);
        slots.list(
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

    fn script(&self) -> Option<File> {
        self.takes_password.then_some(File::Reveal)
    }
}

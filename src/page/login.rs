//! The sign-in page.

use maud::{Markup, html};

use super::form::{hidden, sentence};
use super::{Page, Slots, Text};

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
    /// The application that asked for the sign-in.
    pub client_name: String,
    /// Who is signed in already and may go on without a password, where the application asked for a choice.
    pub continue_as: Option<String>,
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
}

impl LoginProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 4] = [Self::Credentials, Self::Throttled, Self::Busy, Self::Expired];

    /// The word for it that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::Expired => "expired",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Credentials => text.problem_credentials,
            Self::Throttled => text.problem_throttled,
            Self::Busy => text.problem_busy,
            Self::Expired => text.problem_expired,
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
            client_name: "Acme Notes".to_owned(),
            continue_as: None,
        }
    }

    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let choice = Self {
            continue_as: Some("alice@example.com".to_owned()),
            ..Self::sample()
        };
        let failed = LoginProblem::ALL.map(|problem| Self {
            username: "alice@example.com".to_owned(),
            problem: Some(problem),
            ..Self::sample()
        });
        let mut samples = vec![Self::sample(), choice];
        samples.extend(failed);
        samples
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
                p.problem #problem role="alert" { (problem.text(text)) }
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
                    button.button name="decision" value="continue" { span { (sentence(text.continue_as, user)) } }
                }
                p.divider { span { (text.other_account) } }
            }
        }
    }

    /// The form that is filled in.
    fn form(&self, text: &Text<'_>) -> Markup {
        let described_by = self.problem.map(|_| "problem");
        let invalid = self
            .problem
            .filter(|problem| *problem == LoginProblem::Credentials)
            .map(|_| "true");
        let choosing = self.continue_as.is_some();
        html! {
            form.stack method="post" action=(self.action) {
                (self.hidden_fields())
                div.field {
                    label for="username" { (text.user_name) }
                    input #username name="username" type="text" value=(self.username) required dir="auto"
                        autocomplete="username" autocapitalize="none" autocorrect="off" spellcheck="false"
                        enterkeyhint="next" aria-describedby=[described_by] aria-invalid=[invalid]
                        autofocus[!choosing && self.username.is_empty()];
                }
                div.field {
                    label for="password" { (text.password) }
                    input #password name="password" type="password" required autocomplete="current-password"
                        enterkeyhint="go" aria-describedby=[described_by] aria-invalid=[invalid]
                        autofocus[!choosing && !self.username.is_empty()];
                }
                button.button.button-quiet[choosing] type="submit" { (text.sign_in) }
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
        }
    }

    fn slots(&self, text: &Text<'_>, slots: &mut Slots) {
        slots.part("lead", || sentence(text.sign_in_to, &self.client_name));
        slots.part("problem", || self.problem(text));
        slots.part("choice", || self.choice(text));
        slots.part("form", || self.form(text));
        slots.part("hidden", || self.hidden_fields());
        slots.text("action", &self.action);
        slots.text("transaction", &self.transaction);
        slots.text("csrf", &self.csrf);
        slots.text("username", &self.username);
        slots.text("client_name", &self.client_name);
        slots.text("continue_as", self.continue_as.as_deref().unwrap_or_default());
        slots.text("problem_kind", self.problem.map_or("", LoginProblem::kind));
        slots.text(
            "problem_text",
            self.problem.map_or("", |problem| problem.text(text)),
        );
    }

    fn vital(&self) -> Vec<&str> {
        vec![&self.transaction, &self.csrf]
    }
}

//! The page that a link leads to: a person chooses a password, and a name for a new account.

use maud::{Markup, html};

use super::asset::File;
use super::form::{PasswordField, hidden, sentence, transaction_fields};
use super::text::PLACE;
use super::{Page, TemplateContext, Text};

/// Takes a new password, for an account or for a new one.
#[derive(Clone, Debug)]
pub struct ChoosePassword {
    /// The name in the field at first, if the account is new.
    pub new_account: Option<String>,
    /// Whether the operator requires another password.
    pub is_required: bool,
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// The secret of the link.
    pub token: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The name with which the user signs in.
    pub account_id: String,
    /// The least number of characters of the password.
    pub min_length: usize,
    /// The most bytes of the password.
    pub max_bytes: usize,
    /// Why the page is shown again.
    pub problem: Option<ChoiceProblem>,
}

/// Why the password was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceProblem {
    /// The password is too short.
    TooShort,
    /// The password is too long.
    TooLong,
    /// The password is easy to guess.
    Guessable,
    /// The password is the present one.
    Same,
    /// Too many passwords were sent.
    Throttled,
    /// The service is busy.
    Busy,
    /// The service is short of memory.
    OutOfMemory,
    /// The form was too old or came from elsewhere.
    Expired,
}

impl ChoiceProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 8] = [
        Self::TooShort,
        Self::TooLong,
        Self::Guessable,
        Self::Same,
        Self::Throttled,
        Self::Busy,
        Self::OutOfMemory,
        Self::Expired,
    ];

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::TooShort => "too-short",
            Self::TooLong => "too-long",
            Self::Guessable => "guessable",
            Self::Same => "same",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::OutOfMemory => "out-of-memory",
            Self::Expired => "expired",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::TooShort => text.problem_too_short,
            Self::TooLong => text.problem_too_long,
            Self::Guessable => text.problem_guessable,
            Self::Same => text.problem_same_password,
            Self::Throttled => text.problem_throttled,
            Self::Busy => text.problem_busy,
            Self::OutOfMemory => text.problem_out_of_memory,
            Self::Expired => text.problem_form_expired,
        }
    }

    /// Whether another password is needed.
    fn is_about_password(self) -> bool {
        matches!(
            self,
            Self::TooShort | Self::TooLong | Self::Guessable | Self::Same
        )
    }
}

impl ChoosePassword {
    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let reset = Self {
            new_account: None,
            is_required: false,
            action: "/link".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            token: "idsvc_li_4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            account_id: "alice@example.com".to_owned(),
            min_length: 8,
            max_bytes: 1024,
            problem: None,
        };
        let new = Self {
            new_account: Some("Alice Example".to_owned()),
            ..reset.clone()
        };
        let failed = ChoiceProblem::ALL.map(|problem| Self {
            problem: Some(problem),
            ..reset.clone()
        });
        let required = Self {
            is_required: true,
            ..reset.clone()
        };
        let mut samples = vec![reset, new, required];
        samples.extend(failed);
        samples
    }

    fn lead(&self, text: &Text<'_>) -> Markup {
        let template = match self.new_account {
            Some(_) => text.new_account_lead,
            None if self.is_required => text.other_password_lead,
            None => text.new_password_lead,
        };
        sentence(template, &self.account_id)
    }

    fn problem_text(&self, text: &Text<'_>) -> String {
        let template = self.problem.map_or("", |problem| problem.text(text));
        template.replace(PLACE, &self.max_bytes.to_string())
    }

    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.problem.is_some() { p.problem #problem role="alert" { (self.problem_text(text)) } }
        }
    }

    fn hidden(&self) -> Markup {
        html! {
            (transaction_fields(&self.transaction, &self.csrf))
            (hidden("token", &self.token))
        }
    }

    fn rule(&self, text: &Text<'_>) -> String {
        let min_length = self.min_length.to_string();
        text.account_password_rule.replace(PLACE, &min_length)
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        let described_by = match self.problem {
            Some(problem) if problem.is_about_password() => "problem new-password-hint",
            _ => "new-password-hint",
        };
        let field = PasswordField {
            id: "new-password",
            name: "new-password",
            label: match self.new_account {
                Some(_) => text.password,
                None => text.account_new_password,
            },
            label_link: None,
            autocomplete: "new-password",
            enterkeyhint: "done",
            least: Some(self.min_length),
            described_by: Some(described_by),
            is_invalid: self.problem.is_some_and(ChoiceProblem::is_about_password),
            has_focus: self.new_account.is_none() || self.problem.is_some(),
        };
        html! {
            form.stack method="post" action=(self.action) {
                (self.hidden())
                // Password managers store the password under this name.
                input type="text" name="username" value=(self.account_id) autocomplete="username" readonly hidden;
                @if let Some(name) = &self.new_account {
                    div.field {
                        label for="name" { (text.account_display_name) }
                        input #name name="name" type="text" value=(name) dir="auto" maxlength="200"
                            autocomplete="name" enterkeyhint="next" autofocus[self.problem.is_none()];
                    }
                }
                (field.draw(text))
                button.button type="submit" { (self.button(text)) }
            }
        }
    }

    fn button<'a>(&self, text: &Text<'a>) -> &'a str {
        match self.new_account {
            Some(_) => text.create_account,
            None => text.account_save,
        }
    }
}

impl Page for ChoosePassword {
    const NAME: &'static str = "choose-password";

    fn title(&self, text: &Text<'_>) -> String {
        match self.new_account {
            Some(_) => text.create_account.to_owned(),
            None => text.new_password_title.to_owned(),
        }
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (self.title(text)) }
            p.lead { (self.lead(text)) }
            (self.problem(text))
            (self.form(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("lead", || self.lead(text));
        context.part("problem", || self.problem(text));
        context.part("form", || self.form(text));
        context.part("hidden", || self.hidden());
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("token", &self.token);
        context.text("account_id", &self.account_id);
        context.flag("is_new_account", self.new_account.is_some());
        context.text("name", self.new_account.as_deref().unwrap_or_default());
        context.text("rule", &self.rule(text));
        context.text("problem_kind", self.problem.map_or("", ChoiceProblem::kind));
        context.text("problem_text", &self.problem_text(text));
    }

    fn script(&self) -> Option<File> {
        Some(File::Reveal)
    }
}

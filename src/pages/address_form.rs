//! The page that asks for an address to which a mail is sent.

use maud::{Markup, html};

use super::form::transaction_fields;
use super::{Page, PageAddress, TemplateContext, Text};

/// Asks for an address, to choose a new password, to create an account, or to sign in.
#[derive(Clone, Debug)]
pub struct AddressForm {
    pub purpose: MailPurpose,
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The address in the field at first.
    pub address: String,
    /// Why the page is shown again.
    pub problem: Option<AddressProblem>,
    /// The address of the sign-in page.
    pub sign_in: String,
}

/// What a mail is for that a person requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailPurpose {
    /// A new password.
    Reset,
    /// A new account.
    SignUp,
    /// To sign in without a password.
    SignIn,
}

impl MailPurpose {
    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::SignUp => "sign-up",
            Self::SignIn => "sign-in",
        }
    }
}

/// Why no mail was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressProblem {
    /// Too many mails were requested.
    Throttled,
    /// The form was too old or came from elsewhere.
    Expired,
    /// The text is no e-mail address.
    NoAddress,
    /// Accounts are for other addresses only.
    NotAllowed,
    /// People with this address sign in at a provider.
    AtProvider,
    /// A user has this address.
    Taken,
}

impl AddressProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 6] = [
        Self::Throttled,
        Self::Expired,
        Self::NoAddress,
        Self::NotAllowed,
        Self::AtProvider,
        Self::Taken,
    ];

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Expired => "expired",
            Self::NoAddress => "no-address",
            Self::NotAllowed => "not-allowed",
            Self::AtProvider => "at-provider",
            Self::Taken => "taken",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Throttled => text.problem_throttled,
            Self::Expired => text.problem_form_expired,
            Self::NoAddress => text.problem_no_address,
            Self::NotAllowed => text.problem_address_not_allowed,
            Self::AtProvider => text.problem_address_at_provider,
            Self::Taken => text.problem_address_taken,
        }
    }
}

impl AddressForm {
    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let reset = Self {
            purpose: MailPurpose::Reset,
            action: "/recover".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            address: String::new(),
            problem: None,
            sign_in: "/login?transaction=4lQ0bI2xQ9mN".to_owned(),
        };
        let sign_up = Self {
            purpose: MailPurpose::SignUp,
            action: "/sign-up".to_owned(),
            ..reset.clone()
        };
        let failed = AddressProblem::ALL.map(|problem| Self {
            address: "alice@example.com".to_owned(),
            problem: Some(problem),
            ..sign_up.clone()
        });
        let sign_in = Self {
            purpose: MailPurpose::SignIn,
            action: "/sign-in-by-mail".to_owned(),
            ..reset.clone()
        };
        let mut samples = vec![reset, sign_up, sign_in];
        samples.extend(failed);
        samples
    }

    fn lead<'a>(&self, text: &Text<'a>) -> &'a str {
        match self.purpose {
            MailPurpose::Reset => text.recover_lead,
            MailPurpose::SignUp => text.sign_up_lead,
            MailPurpose::SignIn => text.sign_in_by_mail_lead,
        }
    }

    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(problem) = self.problem { p.problem #problem role="alert" { (problem.text(text)) } }
        }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        let described_by = self.problem.map(|_| "problem");
        let is_invalid = self
            .problem
            .is_some_and(|problem| !matches!(problem, AddressProblem::Throttled | AddressProblem::Expired));
        let (label, kind, autocomplete) = match self.purpose {
            MailPurpose::Reset | MailPurpose::SignIn => (text.user_name, "text", "username"),
            MailPurpose::SignUp => (text.email, "email", "email"),
        };
        html! {
            form.stack method="post" action=(self.action) {
                (transaction_fields(&self.transaction, &self.csrf))
                div.field {
                    label for="address" { (label) }
                    input #address name="address" type=(kind) value=(self.address) required dir="auto"
                        autocomplete=(autocomplete) autocapitalize="none" autocorrect="off" spellcheck="false"
                        enterkeyhint="send" aria-describedby=[described_by]
                        aria-invalid=[is_invalid.then_some("true")] autofocus;
                }
                button.button type="submit" { (text.proceed) }
            }
        }
    }

    fn way_back(&self, text: &Text<'_>) -> Markup {
        html! { p.note { a href=(self.sign_in) data-optional { (text.back_to_sign_in) } } }
    }
}

impl Page for AddressForm {
    const NAME: &'static str = "address";

    fn title(&self, text: &Text<'_>) -> String {
        match self.purpose {
            MailPurpose::Reset => text.recover_title.to_owned(),
            MailPurpose::SignUp => text.create_account.to_owned(),
            MailPurpose::SignIn => text.sign_in_by_mail.to_owned(),
        }
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (self.title(text)) }
            p.lead { (self.lead(text)) }
            (self.problem(text))
            (self.form(text))
            (self.way_back(text))
        }
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        Some(PageAddress {
            path: &self.action,
            parameters: vec![("transaction", &self.transaction)],
        })
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.text("lead", self.lead(text));
        context.part("problem", || self.problem(text));
        context.part("form", || self.form(text));
        context.part("hidden", || transaction_fields(&self.transaction, &self.csrf));
        context.text("purpose", self.purpose.kind());
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("address", &self.address);
        context.text("problem_kind", self.problem.map_or("", AddressProblem::kind));
        context.text(
            "problem_text",
            self.problem.map_or("", |problem| problem.text(text)),
        );
        context.text("sign_in_href", &self.sign_in);
    }
}

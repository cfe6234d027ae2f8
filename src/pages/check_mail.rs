//! The page after a mail was requested: it takes the code from the mail.

use maud::{Markup, html};

use super::address_form::MailPurpose;
use super::form::{CodeField, hidden, sentence, transaction_fields};
use super::moment::throttled;
use super::{Page, PageAddress, TemplateContext, Text};

/// Says that a mail was sent, and takes its code.
#[derive(Clone, Debug)]
pub struct CheckMail {
    pub purpose: MailPurpose,
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// The mail that was requested, sealed.
    pub mail: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The name or address that was typed.
    pub recipient: String,
    /// Why the page is shown again.
    pub problem: Option<CodeProblem>,
    /// After how many seconds the person may try again, if there were too many attempts.
    pub retry_after: Option<u64>,
    /// The address of the page that sends another mail.
    pub again: String,
    /// The address of the sign-in page.
    pub sign_in: String,
}

/// Why a code was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeProblem {
    Wrong,
    /// It has expired or was used, or too many wrong ones were typed.
    Over,
    /// Too many codes were typed; this one was not checked.
    Throttled,
    /// The form was too old or came from elsewhere.
    Expired,
}

impl CodeProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 4] = [Self::Wrong, Self::Over, Self::Throttled, Self::Expired];

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Wrong => "wrong",
            Self::Over => "over",
            Self::Throttled => "throttled",
            Self::Expired => "expired",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Wrong => text.problem_code_wrong,
            Self::Over => text.problem_code_over,
            Self::Throttled => text.problem_throttled,
            Self::Expired => text.problem_form_expired,
        }
    }
}

impl CheckMail {
    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let reset = Self {
            purpose: MailPurpose::Reset,
            action: "/check-mail".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            mail: "Zm9vYmFy".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            recipient: "alice@example.com".to_owned(),
            problem: None,
            retry_after: None,
            again: "/recover?transaction=4lQ0bI2xQ9mN".to_owned(),
            sign_in: "/login?transaction=4lQ0bI2xQ9mN".to_owned(),
        };
        let sign_up = Self {
            purpose: MailPurpose::SignUp,
            again: "/sign-up?transaction=4lQ0bI2xQ9mN".to_owned(),
            ..reset.clone()
        };
        let failed = CodeProblem::ALL.map(|problem| Self {
            problem: Some(problem),
            ..reset.clone()
        });
        let sign_in = Self {
            purpose: MailPurpose::SignIn,
            again: "/sign-in-by-mail?transaction=4lQ0bI2xQ9mN".to_owned(),
            ..reset.clone()
        };
        let mut samples = vec![reset, sign_up, sign_in];
        samples.extend(failed);
        samples
    }

    fn lead(&self, text: &Text<'_>) -> Markup {
        let template = match self.purpose {
            MailPurpose::Reset | MailPurpose::SignIn => text.check_mail_reset,
            MailPurpose::SignUp => text.check_mail_sign_up,
        };
        sentence(template, &self.recipient)
    }

    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.problem.is_some() { p.problem #problem role="alert" { (self.problem_text(text)) } }
        }
    }

    /// Why the page is shown again, as a sentence; empty the first time.
    fn problem_text(&self, text: &Text<'_>) -> String {
        match self.problem {
            Some(CodeProblem::Throttled) => throttled(self.retry_after, text),
            Some(problem) => problem.text(text).to_owned(),
            None => String::new(),
        }
    }

    fn hidden(&self) -> Markup {
        html! {
            (transaction_fields(&self.transaction, &self.csrf))
            (hidden("mail", &self.mail))
        }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        let code = CodeField {
            label: text.code,
            described_by: self.problem.map(|_| "problem"),
            is_invalid: self.problem == Some(CodeProblem::Wrong),
            has_focus: true,
        };
        html! {
            form.stack method="post" action=(self.action) {
                (self.hidden())
                (code.draw())
                button.button type="submit" { (text.proceed) }
            }
        }
    }

    fn other_way(&self, text: &Text<'_>) -> Markup {
        html! {
            p.note { (text.check_mail_note) " " a href=(self.again) data-optional { (text.send_again) } }
            p.note { a href=(self.sign_in) data-optional { (text.back_to_sign_in) } }
        }
    }
}

impl Page for CheckMail {
    const NAME: &'static str = "check-mail";

    fn title(&self, text: &Text<'_>) -> String {
        text.check_mail_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.check_mail_title) }
            p.lead { (self.lead(text)) }
            (self.problem(text))
            (self.form(text))
            (self.other_way(text))
        }
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        Some(PageAddress {
            path: &self.action,
            parameters: vec![("transaction", &self.transaction), ("mail", &self.mail)],
        })
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("lead", || self.lead(text));
        context.part("problem", || self.problem(text));
        context.part("form", || self.form(text));
        context.part("hidden", || self.hidden());
        context.text("purpose", self.purpose.kind());
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("mail", &self.mail);
        context.text("recipient", &self.recipient);
        context.text("problem_kind", self.problem.map_or("", CodeProblem::kind));
        context.text("problem_text", &self.problem_text(text));
        context.text("again_href", &self.again);
        context.text("sign_in_href", &self.sign_in);
    }
}

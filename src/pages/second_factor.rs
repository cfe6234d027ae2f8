//! The page for the second step of a sign-in.

use maud::{Markup, html};

use super::asset::File;
use super::form::{CodeField, hidden, sentence, transaction_fields};
use super::moment::{form, throttled};
use super::text::PLACE;
use super::totp_key::{TotpKey, recovery_codes};
use super::{Mark, Page, PageAddress, PasskeyRequest, TemplateContext, Text};

/// Takes a code of an authenticator app, or a recovery code.
#[derive(Clone, Debug)]
pub struct SecondFactor {
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// What was proven in the first step, sealed.
    pub proof: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The application that asked for the sign-in; none if the sign-in is for the account page.
    pub mark: Option<Mark>,
    pub user: String,
    /// Whether it takes a code. Otherwise a passkey is the only way.
    pub takes_code: bool,
    /// Whether the code is a recovery code.
    pub is_recovery: bool,
    /// What the user sets up on the page, because a second factor is required.
    pub setup: Option<Enrolment>,
    /// How many days the user may ask not to be asked in this browser.
    pub remember_days: Option<u64>,
    /// The address of the page for the other kind of code, if the user has one.
    pub other: Option<String>,
    /// What a passkey needs, if the user has one.
    pub passkey: Option<PasskeyRequest>,
    /// What is offered to a user who has none of the factors any more.
    pub loss: Option<FactorLoss>,
    /// Why the page is shown again.
    pub problem: Option<SecondFactorProblem>,
    /// After how many seconds the person may try again, if there were too many attempts.
    pub retry_after: Option<u64>,
    /// The address of the sign-in page.
    pub sign_in: String,
}

/// An authenticator app and recovery codes to set up.
#[derive(Clone, Debug)]
pub struct Enrolment {
    /// The key of the app. The recovery codes are sealed with it.
    pub key: TotpKey,
    /// The recovery codes.
    pub codes: Vec<String>,
}

/// A user who has secured the account and has none of the factors any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactorLoss {
    /// The user may say so.
    Offered,
    /// The user has said so, and the second step ends at this time.
    Waiting(String),
}

/// Why a code was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondFactorProblem {
    /// It is wrong, or was used.
    Wrong,
    /// Too many were wrong in a row. Only a recovery code is accepted.
    Limit,
    /// Too many codes were typed; this one was not checked.
    Throttled,
    /// The passkey was not accepted.
    Passkey,
    /// The form was too old or came from elsewhere.
    Expired,
}

impl SecondFactorProblem {
    /// Every problem, for tests and previews.
    pub const ALL: [Self; 5] = [
        Self::Wrong,
        Self::Limit,
        Self::Throttled,
        Self::Passkey,
        Self::Expired,
    ];

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Wrong => "wrong",
            Self::Limit => "limit",
            Self::Throttled => "throttled",
            Self::Passkey => "passkey",
            Self::Expired => "expired",
        }
    }

    fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Wrong => text.problem_second_factor,
            Self::Limit => text.problem_second_factor_limit,
            Self::Throttled => text.problem_throttled,
            Self::Passkey => text.problem_passkey,
            Self::Expired => text.problem_form_expired,
        }
    }
}

impl SecondFactor {
    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let first = Self {
            action: "/second-factor".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            proof: "Zm9vYmFy".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            mark: Some(Mark::sample()),
            user: "alice@example.com".to_owned(),
            takes_code: true,
            is_recovery: false,
            setup: None,
            remember_days: None,
            other: Some("/second-factor?transaction=4lQ0bI2xQ9mN&proof=Zm9vYmFy&recovery=1".to_owned()),
            passkey: None,
            loss: None,
            problem: None,
            retry_after: None,
            sign_in: "/login?transaction=4lQ0bI2xQ9mN&sign_in=1".to_owned(),
        };
        let recovery = Self {
            is_recovery: true,
            other: None,
            passkey: Some(PasskeyRequest::sample()),
            ..first.clone()
        };
        let failed = SecondFactorProblem::ALL.map(|problem| Self {
            problem: Some(problem),
            ..first.clone()
        });
        let setup = Self {
            setup: Some(Enrolment {
                key: TotpKey::sample(),
                codes: vec!["k7qp-x2mn-0a4d-9hjt".to_owned(); 10],
            }),
            other: None,
            ..first.clone()
        };
        let passkey_only = Self {
            takes_code: false,
            other: None,
            passkey: Some(PasskeyRequest::sample()),
            ..first.clone()
        };
        let remember = Self {
            remember_days: Some(30),
            ..first.clone()
        };
        let lost = Self {
            loss: Some(FactorLoss::Offered),
            ..first.clone()
        };
        let waiting = Self {
            loss: Some(FactorLoss::Waiting("2026-11-28 09:30 UTC".to_owned())),
            ..first.clone()
        };
        let mut samples = vec![first, recovery, setup, passkey_only, remember, lost, waiting];
        samples.extend(failed);
        samples
    }

    fn lead<'a>(&self, text: &Text<'a>) -> &'a str {
        if self.setup.is_some() {
            text.second_factor_required
        } else if !self.takes_code {
            text.second_factor_passkey_lead
        } else if self.is_recovery {
            text.second_factor_recovery_lead
        } else {
            text.second_factor_lead
        }
    }

    fn heading<'a>(&self, text: &Text<'a>) -> &'a str {
        match self.setup {
            Some(_) => text.totp_add,
            None => text.second_factor_title,
        }
    }

    /// The logo of the application, or its letter.
    fn mark(&self) -> Markup {
        html! { @if let Some(mark) = &self.mark { (mark.draw()) } }
    }

    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.problem.is_some() { p.problem #problem role="alert" { (self.problem_text(text)) } }
        }
    }

    /// Why the page is shown again, as a sentence; empty the first time.
    fn problem_text(&self, text: &Text<'_>) -> String {
        match self.problem {
            Some(SecondFactorProblem::Throttled) => throttled(self.retry_after, text),
            Some(problem) => problem.text(text).to_owned(),
            None => String::new(),
        }
    }

    fn hidden(&self) -> Markup {
        html! {
            (transaction_fields(&self.transaction, &self.csrf))
            (hidden("proof", &self.proof))
            @if self.is_recovery { (hidden("recovery", "1")) }
            @if let Some(setup) = &self.setup { (hidden("setup", &setup.key.sealed)) }
        }
    }

    /// The form for a code; empty if a passkey is the only way.
    fn form(&self, text: &Text<'_>) -> Markup {
        if !self.takes_code {
            return html! {};
        }
        let described_by = self.problem.map(|_| "problem");
        let is_invalid = self.problem == Some(SecondFactorProblem::Wrong);
        html! {
            form.stack method="post" action=(self.action) {
                (self.hidden())
                @if let Some(setup) = &self.setup {
                    div { (setup.key.draw(text)) (recovery_codes(&setup.codes, text)) }
                }
                @if self.is_recovery {
                    div.field {
                        label for="code" { (text.recovery_code) }
                        input #code name="code" type="text" required dir="ltr" autocomplete="off" autocapitalize="none"
                            autocorrect="off" spellcheck="false" maxlength="40" enterkeyhint="go"
                            aria-describedby=[described_by] aria-invalid=[is_invalid.then_some("true")] autofocus;
                    }
                } @else {
                    (CodeField { label: text.code, described_by, is_invalid, has_focus: true }.draw())
                }
                @if let Some(label) = self.remember_label(text) {
                    label.check data-optional {
                        input name="remember" type="checkbox" value="1";
                        span { (label) }
                    }
                }
                button.button type="submit" { (text.proceed) }
            }
        }
    }

    /// The button for passkeys; empty if the user has none.
    fn way_by_passkey(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(passkey) = &self.passkey {
                @let fields = html! {
                    (transaction_fields(&self.transaction, &self.csrf))
                    (hidden("proof", &self.proof))
                };
                (passkey.draw(&self.action, &fields, !self.takes_code, text))
            }
        }
    }

    /// The button for a user who has none of the factors any more, or when the wait ends; else empty.
    fn loss(&self, text: &Text<'_>) -> Markup {
        match &self.loss {
            None => html! {},
            Some(FactorLoss::Waiting(end)) => html! {
                p.note role="status" { (sentence(text.second_factor_wait, end)) }
            },
            Some(FactorLoss::Offered) => html! {
                form.stack method="post" action=(self.action) data-optional {
                    (transaction_fields(&self.transaction, &self.csrf))
                    (hidden("proof", &self.proof))
                    (hidden("decision", "none-left"))
                    p.note { (text.second_factor_none_left_note) }
                    button.button.button-quiet type="submit" { (text.second_factor_none_left) }
                }
            },
        }
    }

    fn remember_label(&self, text: &Text<'_>) -> Option<String> {
        let days = self.remember_days?;
        Some(form(text.second_factor_remember, days).replace(PLACE, &days.to_string()))
    }

    fn other_label<'a>(&self, text: &Text<'a>) -> &'a str {
        if self.is_recovery {
            text.second_factor_use_app
        } else {
            text.second_factor_use_recovery
        }
    }

    fn other_way(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(other) = &self.other {
                p.note { a href=(other) data-optional { (self.other_label(text)) } }
            }
            p.note { a href=(self.sign_in) data-optional { (text.back_to_sign_in) } }
        }
    }
}

impl Page for SecondFactor {
    const NAME: &'static str = "second-factor";

    fn title(&self, text: &Text<'_>) -> String {
        self.heading(text).to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            (self.mark())
            h1 { (self.heading(text)) }
            p.lead { (self.lead(text)) }
            p.note { bdi.name { (self.user) } }
            (self.problem(text))
            (self.form(text))
            (self.way_by_passkey(text))
            (self.loss(text))
            (self.other_way(text))
        }
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        let mut parameters = vec![("transaction", self.transaction.as_str()), ("proof", &self.proof)];
        parameters.extend(self.is_recovery.then_some(("recovery", "1")));
        let setup = self.setup.as_ref();
        parameters.extend(setup.map(|setup| ("setup", setup.key.sealed.as_str())));
        Some(PageAddress {
            path: &self.action,
            parameters,
        })
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("mark", || self.mark());
        context.text("user", &self.user);
        context.flag("takes_code", self.takes_code);
        context.part("problem", || self.problem(text));
        context.part("form", || self.form(text));
        context.part("hidden", || self.hidden());
        context.part("passkey", || self.way_by_passkey(text));
        context.part("loss", || self.loss(text));
        context.text("heading", self.heading(text));
        context.text("lead", self.lead(text));
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("proof", &self.proof);
        context.flag("is_recovery", self.is_recovery);
        let remember = self.remember_label(text).unwrap_or_default();
        context.text("remember_text", &remember);
        context.text("other_href", self.other.as_deref().unwrap_or_default());
        context.text("other_text", self.other_label(text));
        context.text("problem_kind", self.problem.map_or("", SecondFactorProblem::kind));
        context.text("problem_text", &self.problem_text(text));
        context.text("sign_in_href", &self.sign_in);
    }

    fn script(&self) -> Option<File> {
        if self.setup.is_some() {
            return Some(File::Account);
        }
        self.passkey.as_ref().map(|_| File::Login)
    }
}

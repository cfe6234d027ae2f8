//! The section of the account page with the factors of the user.

use maud::{Markup, html};
use minijinja::Value;

use super::form::{CodeField, hidden};
use super::moment::Moment;
use super::proof::{ProofForms, ProofRequest};
use super::text::PLACE;
use super::totp_key::{TotpKey, recovery_codes};
use super::{Icon, PasskeySection, Text};

/// The factors of a user, and what the user is doing with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    pub factors: Vec<FactorLine>,
    /// An authenticator app that is being set up.
    pub setup: Option<TotpForm>,
    /// New recovery codes, which are shown now and never again.
    pub new_codes: Vec<String>,
    /// Whether the operator requires a second factor.
    pub is_required: bool,
    /// What a passkey needs. `None` if the service has none.
    pub passkeys: Option<PasskeySection>,
    /// The address of the section.
    pub href: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactorLine {
    /// The value of the button.
    pub id: String,
    pub kind: FactorLineKind,
    /// The name that the user gave it.
    pub name: String,
    pub added_at: Moment,
    pub last_used_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactorLineKind {
    Passkey {
        /// Whether a provider syncs it.
        is_synced: bool,
    },
    /// An authenticator app.
    Totp,
    /// Recovery codes, of which so many are unused.
    RecoveryCodes(usize),
}

/// The form that confirms a new authenticator app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotpForm {
    /// The key of the app.
    pub key: TotpKey,
    /// Whether a wrong code was typed.
    pub is_wrong: bool,
}

/// What goes with a factor that is removed.
#[derive(Clone, Copy)]
struct Ends {
    /// The recovery codes.
    codes: bool,
    /// The second step of the sign-in.
    second_step: bool,
}

impl FactorLineKind {
    fn label<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Passkey { .. } => text.factor_passkey,
            Self::Totp => text.factor_totp,
            Self::RecoveryCodes(_) => text.factor_recovery_codes,
        }
    }

    fn icon(self) -> Icon {
        match self {
            Self::Passkey { .. } => Icon::Passkey,
            Self::Totp => Icon::Smartphone,
            Self::RecoveryCodes(_) => Icon::Key,
        }
    }

    /// The word that templates can compare.
    fn name(self) -> &'static str {
        match self {
            Self::Passkey { .. } => "passkey",
            Self::Totp => "totp",
            Self::RecoveryCodes(_) => "recovery-codes",
        }
    }
}

impl FactorLine {
    pub(super) fn template_fields(&self, text: &Text<'_>) -> [(&'static str, Value); 7] {
        let last_used = self.last_used_at.as_ref();
        let ago = last_used.map(|at| at.ago(text)).unwrap_or_default();
        [
            ("id", Value::from(self.id.as_str())),
            ("kind", Value::from(self.kind.name())),
            ("name", Value::from(self.shown_name(text))),
            ("added_at", Value::from(self.added_at.rfc3339.as_str())),
            ("added_ago", Value::from(self.added_at.ago(text))),
            ("last_used_ago", Value::from(ago)),
            (
                "codes_left",
                Value::from(self.codes_left(text).unwrap_or_default()),
            ),
        ]
    }

    pub(super) fn shown_name<'a>(&'a self, text: &Text<'a>) -> &'a str {
        if self.name.is_empty() {
            self.kind.label(text)
        } else {
            &self.name
        }
    }

    fn codes_left(&self, text: &Text<'_>) -> Option<String> {
        match self.kind {
            FactorLineKind::RecoveryCodes(left) => {
                Some(text.factor_codes_left.replace(PLACE, &left.to_string()))
            }
            FactorLineKind::Passkey { .. } | FactorLineKind::Totp => None,
        }
    }

    /// The row. `ends` says what goes with it.
    fn draw(&self, ends: Ends, forms: ProofForms<'_>, text: &Text<'_>) -> Markup {
        let form = forms.form;
        let name = self.shown_name(text);
        let is_codes = matches!(self.kind, FactorLineKind::RecoveryCodes(_));
        html! {
            li {
                (self.kind.icon().draw())
                div {
                    p.row-name {
                        bdi { (name) }
                        @if self.kind == (FactorLineKind::Passkey { is_synced: true }) {
                            " " span.badge { (text.passkey_synced) }
                        }
                    }
                    p.note.meta {
                        @if !self.name.is_empty() { span { (self.kind.label(text)) } " " }
                        @if let Some(left) = self.codes_left(text) { span { (left) } " " }
                        span { (text.factor_added_at) " " (self.added_at.draw(text)) }
                        @if let Some(at) = &self.last_used_at { " " span { (text.account_last_used) " " (at.draw(text)) } }
                    }
                    details {
                        summary aria-label={ (text.factor_change) ": " (name) } { (text.factor_change) }
                        @if !is_codes { (form("factor-name", &self.naming(forms.proof, text))) }
                        (form("factors", &self.removal(ends, forms.proof, text)))
                    }
                }
            }
        }
    }

    fn naming(&self, proof: &ProofRequest, text: &Text<'_>) -> Markup {
        let field = format!("name-{}", self.id);
        html! {
            (hidden("factor", &self.id))
            div.field {
                label for=(field) { (text.factor_name) }
                input id=(field) name="name" type="text" value=(self.name) required dir="auto" maxlength="64"
                    autocomplete="off";
            }
            (proof.draw(&format!("proof-name-{}", self.id), text))
            button.button.button-quiet.button-small type="submit" { (text.factor_rename) }
        }
    }

    fn removal(&self, ends: Ends, proof: &ProofRequest, text: &Text<'_>) -> Markup {
        let what_ends = match self.kind {
            FactorLineKind::RecoveryCodes(_) => text.factor_remove_codes,
            _ if ends.codes => text.factor_remove_last,
            _ => text.factor_remove_note,
        };
        html! {
            p.note { (what_ends) @if ends.second_step { " " (text.factor_remove_ends_step) } }
            (proof.draw(&format!("proof-removal-{}", self.id), text))
            button.button.button-quiet.button-small type="submit" name="factor" value=(self.id)
                aria-label={ (text.factor_remove) ": " (self.shown_name(text)) } { (text.factor_remove) }
        }
    }
}

impl Security {
    /// A user with an authenticator app and recovery codes.
    pub fn sample() -> Self {
        let moment = |rfc3339: &str, seconds_ago| Moment {
            rfc3339: rfc3339.to_owned(),
            seconds_ago,
        };
        let line = |id: &str, kind, last_used_at| FactorLine {
            id: id.to_owned(),
            kind,
            name: String::new(),
            added_at: moment("2026-11-02T17:45:00Z", 1_612_200),
            last_used_at,
        };
        Self {
            factors: vec![
                line(
                    "0199f3a2-9d01",
                    FactorLineKind::Totp,
                    Some(moment("2026-11-21T09:30:00Z", 300)),
                ),
                line("0199f3a2-9d02", FactorLineKind::RecoveryCodes(9), None),
                line("0199f3a2-9d03", FactorLineKind::Passkey { is_synced: true }, None),
            ],
            passkeys: Some(PasskeySection::sample()),
            setup: None,
            new_codes: Vec::new(),
            is_required: false,
            href: "/account/security".to_owned(),
        }
    }

    /// A user who sets an authenticator app up.
    pub fn setup_sample() -> Self {
        Self {
            factors: Vec::new(),
            setup: Some(TotpForm {
                key: TotpKey::sample(),
                is_wrong: true,
            }),
            ..Self::sample()
        }
    }

    /// A user who gets recovery codes.
    pub fn codes_sample() -> Self {
        Self {
            new_codes: vec!["k7qp-x2mn-0a4d-9hjt".to_owned(); 10],
            ..Self::sample()
        }
    }

    /// What goes with this factor.
    fn ends_with(&self, line: &FactorLine) -> Ends {
        let is_codes = |line: &FactorLine| matches!(line.kind, FactorLineKind::RecoveryCodes(_));
        let left = || self.factors.iter().filter(|other| *other != line);
        let codes = !is_codes(line) && left().all(is_codes) && left().count() > 0;
        let answers = |other: &FactorLine| !matches!(other.kind, FactorLineKind::Passkey { .. });
        let is_answered = self.factors.iter().any(answers);
        let stays_answered = !codes && left().any(answers);
        Ends {
            codes,
            second_step: is_answered && !stays_answered && !self.is_required,
        }
    }

    fn has(&self, is_it: fn(FactorLineKind) -> bool) -> bool {
        self.factors.iter().any(|line| is_it(line.kind))
    }

    pub(super) fn draw(&self, forms: ProofForms<'_>, text: &Text<'_>) -> Markup {
        let form = forms.form;
        if !self.new_codes.is_empty() {
            return self.codes(text);
        }
        if let Some(setup) = &self.setup {
            return setup.draw(forms, text);
        }
        let is_listed_apart = |line: &FactorLine| {
            self.passkeys.is_some() && matches!(line.kind, FactorLineKind::Passkey { .. })
        };
        let rows = |apart: bool| {
            let lines: Vec<_> = self
                .factors
                .iter()
                .filter(|line| is_listed_apart(line) == apart)
                .collect();
            html! {
                @if !lines.is_empty() { ul.rows { @for line in lines { (line.draw(self.ends_with(line), forms, text)) } } }
            }
        };
        let add = html! {
            button.button.button-quiet type="submit" { (text.totp_add) }
        };
        let has_other = self.has(|kind| !matches!(kind, FactorLineKind::RecoveryCodes(_)));
        let has_second_factor = self.has(|kind| !matches!(kind, FactorLineKind::Passkey { .. }));
        let renew = html! {
            @if !has_second_factor { p.note { (text.recovery_first) } }
            (forms.proof.draw("proof-codes", text))
            button.button.button-quiet type="submit" { (text.recovery_renew) }
        };
        html! {
            section aria-labelledby="security" {
                h2 #security { (text.account_security) }
                p.note { (text.security_lead) }
                (rows(false))
                (form("totp", &add))
                @if has_other { (form("recovery-codes", &renew)) }
            }
            @if let Some(passkeys) = &self.passkeys { (passkeys.draw(&rows(true), forms, text)) }
        }
    }

    fn codes(&self, text: &Text<'_>) -> Markup {
        html! {
            section aria-labelledby="security" {
                h2 #security { (text.recovery_title) }
                (recovery_codes(&self.new_codes, text))
                p { a.button href=(self.href) data-optional { (text.recovery_kept) } }
            }
        }
    }
}

impl TotpForm {
    fn draw(&self, forms: ProofForms<'_>, text: &Text<'_>) -> Markup {
        let form = forms.form;
        let code = CodeField {
            label: text.totp_code,
            described_by: self.is_wrong.then_some("code-problem"),
            is_invalid: self.is_wrong,
            has_focus: self.is_wrong,
        };
        let inside = html! {
            (hidden("setup", &self.key.sealed))
            (code.draw())
            @if self.is_wrong { p.problem #code-problem role="alert" { (text.problem_second_factor) } }
            (forms.proof.draw("proof-app", text))
            button.button type="submit" { (text.proceed) }
        };
        html! {
            section aria-labelledby="security" {
                h2 #security { (text.totp_add) }
                (self.key.draw(text))
                (form("totp-confirm", &inside))
            }
        }
    }
}

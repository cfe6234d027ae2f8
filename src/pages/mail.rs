//! Mails for people: what each says, as text and as HTML.
//!
//! The HTML is 560 pixels wide at most and loads nothing, so that nobody learns when it is read. Readers of mail drop
//! style sheets, so the light colours are in the elements; a reader that prefers dark and keeps the style sheet gets those.

use std::fmt::Write;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::form::sentence;
use super::text::PLACE;
use super::{Locale, TemplateContext, Text};

/// A mail, ready to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Mail {
    pub kind: MailKind,
    /// Where its button leads.
    pub link: Option<String>,
    /// The code in place of the link.
    pub code: Option<String>,
    /// When the link expires, in the time zone of the reader or in UTC.
    pub expires: Option<String>,
    /// The browser that signed in; `Some` and empty if it is unknown.
    pub device: Option<String>,
    /// The network address of the browser.
    pub network: Option<String>,
    /// When it happened, in the time zone of the reader or in UTC.
    pub time: Option<String>,
    /// The factors that were added or removed.
    pub factors: Vec<MailFactor>,
    /// The address that the account has now.
    pub new_address: Option<String>,
    /// The account identifier, if the reader may not know which account it is about.
    pub account_id: Option<String>,
}

/// A factor that a notice names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailFactor {
    /// `passkey`, `totp` or `recovery_codes`.
    pub kind: String,
    /// The name that the user gave it.
    pub name: Option<String>,
}

impl MailFactor {
    fn in_words(&self, text: &Text<'_>) -> String {
        let kind = match self.kind.as_str() {
            "totp" => text.factor_totp,
            "recovery_codes" => text.factor_recovery_codes,
            _ => text.factor_passkey,
        };
        match &self.name {
            Some(name) => format!("{kind}: {name}"),
            None => kind.to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailKind {
    /// The operator tests the settings.
    #[default]
    Test,
    /// A person creates an account.
    SignUp,
    /// The same, and the address has an account.
    AlreadySignedUp,
    /// The operator invites a person.
    Invitation,
    /// A person sets a new password.
    ResetPassword,
    /// A person signs in without a password.
    SignIn,
    /// A person adds an address to the account.
    VerifyAddress,
    /// A browser that was not used before signed in.
    NewDevice,
    PasswordChanged,
    FactorAdded,
    FactorRemoved,
    /// The second step ends in a day.
    FactorsEnd,
    AddressChanged,
}

impl MailKind {
    pub const ALL: [Self; 13] = [
        Self::Test,
        Self::SignUp,
        Self::AlreadySignedUp,
        Self::Invitation,
        Self::ResetPassword,
        Self::SignIn,
        Self::VerifyAddress,
        Self::NewDevice,
        Self::PasswordChanged,
        Self::FactorAdded,
        Self::FactorRemoved,
        Self::FactorsEnd,
        Self::AddressChanged,
    ];

    /// The name of the kind. Templates of a theme are `mail/NAME.html` and `mail/NAME.txt`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::SignUp => "sign-up",
            Self::AlreadySignedUp => "already-signed-up",
            Self::Invitation => "invitation",
            Self::ResetPassword => "reset-password",
            Self::SignIn => "sign-in",
            Self::VerifyAddress => "verify-address",
            Self::NewDevice => "new-device",
            Self::PasswordChanged => "password-changed",
            Self::FactorAdded => "factor-added",
            Self::FactorRemoved => "factor-removed",
            Self::FactorsEnd => "factors-end",
            Self::AddressChanged => "address-changed",
        }
    }

    /// Whether it says what happened, so that the reader can undo it.
    fn is_notice(self) -> bool {
        matches!(
            self,
            Self::NewDevice
                | Self::PasswordChanged
                | Self::FactorAdded
                | Self::FactorRemoved
                | Self::FactorsEnd
                | Self::AddressChanged
        )
    }

    fn subject<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Test => text.mail_test_subject,
            Self::SignUp | Self::VerifyAddress => text.mail_confirm_subject,
            Self::AlreadySignedUp => text.mail_known_subject,
            Self::Invitation => text.mail_invitation_subject,
            Self::ResetPassword => text.mail_reset_subject,
            Self::SignIn => text.mail_sign_in_subject,
            Self::NewDevice => text.mail_device_subject,
            Self::PasswordChanged => text.mail_password_subject,
            Self::FactorAdded => text.mail_factor_added_subject,
            Self::FactorRemoved => text.mail_factor_removed_subject,
            Self::FactorsEnd => text.mail_factors_end_subject,
            Self::AddressChanged => text.mail_address_subject,
        }
    }

    fn lead<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Test => text.mail_test_lead,
            Self::SignUp => text.mail_sign_up_lead,
            Self::AlreadySignedUp => text.mail_known_lead,
            Self::Invitation => text.mail_invitation_lead,
            Self::ResetPassword => text.mail_reset_lead,
            Self::SignIn => text.mail_sign_in_lead,
            Self::VerifyAddress => text.mail_verify_lead,
            Self::NewDevice => text.mail_device_lead,
            Self::PasswordChanged => text.mail_password_lead,
            Self::FactorAdded => text.mail_factor_added_lead,
            Self::FactorRemoved => text.mail_factor_removed_lead,
            Self::FactorsEnd => text.mail_factors_end_lead,
            Self::AddressChanged => text.mail_address_lead,
        }
    }

    fn button<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::SignUp | Self::Invitation => text.mail_create_account,
            Self::ResetPassword => text.mail_reset_button,
            Self::Test | Self::AlreadySignedUp | Self::SignIn => text.sign_in,
            Self::VerifyAddress => text.mail_verify_button,
            Self::NewDevice
            | Self::PasswordChanged
            | Self::FactorAdded
            | Self::FactorRemoved
            | Self::FactorsEnd
            | Self::AddressChanged => text.mail_secure,
        }
    }

    fn why<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Test => text.mail_test_why,
            Self::SignUp => text.mail_sign_up_why,
            Self::AlreadySignedUp => text.mail_known_why,
            Self::Invitation => text.mail_invitation_why,
            Self::ResetPassword => text.mail_reset_why,
            Self::SignIn => text.mail_sign_in_why,
            Self::VerifyAddress => text.mail_verify_why,
            Self::NewDevice
            | Self::PasswordChanged
            | Self::FactorAdded
            | Self::FactorRemoved
            | Self::FactorsEnd => text.mail_notice_why,
            Self::AddressChanged => text.mail_address_why,
        }
    }
}

/// The colours of a mail in one scheme, each as `#rrggbb`.
#[derive(Clone, Debug, Default)]
pub struct MailColours {
    /// The background.
    pub ground: String,
    /// The background of the text.
    pub surface: String,
    /// The text.
    pub ink: String,
    /// Less important text.
    pub muted: String,
    /// Dividing lines.
    pub line: String,
    /// The button, and links.
    pub accent: String,
    /// The text of the button.
    pub on_accent: String,
}

/// How a theme has mails look.
#[derive(Clone, Debug, Default)]
pub struct MailStyle {
    pub product: String,
    pub light: MailColours,
    /// The colours for a reader that prefers dark.
    pub dark: MailColours,
}

const FONT: &str = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";
const CODE_FONT: &str = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-variant-numeric:tabular-nums;font-size:32px;\
    line-height:1.2;font-weight:600;letter-spacing:6px;margin:0 0 24px";

impl Mail {
    /// A mail of each kind, with all its parts.
    pub fn samples() -> Vec<Self> {
        let sample = |kind: MailKind| {
            let link = "https://id.example.com/link?t=kX3mVq0pS8yT2nB7aWc5dE9fG1hJ4lZ6rU0iO_vNQxY".to_owned();
            let code = matches!(
                kind,
                MailKind::SignUp | MailKind::SignIn | MailKind::ResetPassword
            );
            let expires = code || kind == MailKind::Invitation;
            let is_of_factor = matches!(kind, MailKind::FactorAdded | MailKind::FactorRemoved);
            let has_browser = is_of_factor || matches!(kind, MailKind::NewDevice | MailKind::PasswordChanged);
            let factor = MailFactor {
                kind: "passkey".to_owned(),
                name: Some("Firefox (Linux)".to_owned()),
            };
            Self {
                kind,
                link: (kind != MailKind::Test).then_some(link),
                code: code.then(|| "402817".to_owned()),
                expires: expires.then(|| "2026-11-28 09:30 UTC".to_owned()),
                device: has_browser.then(|| "Firefox, Linux".to_owned()),
                network: has_browser.then(|| "203.0.113.7".to_owned()),
                time: kind.is_notice().then(|| "2026-11-26 09:30 UTC".to_owned()),
                factors: if is_of_factor { vec![factor] } else { Vec::new() },
                new_address: (kind == MailKind::AddressChanged).then(|| "alice@example.org".to_owned()),
                account_id: (kind == MailKind::VerifyAddress).then(|| "alice@example.com".to_owned()),
            }
        };
        MailKind::ALL.map(sample).to_vec()
    }

    /// The subject. It has no code in it: phones show subjects while they are locked.
    pub fn subject(&self, text: &Text<'_>, product: &str) -> String {
        self.kind.subject(text).replace(PLACE, product)
    }

    /// What happened, as labels and values.
    fn facts<'a>(&'a self, text: &Text<'a>) -> impl Iterator<Item = (&'a str, String)> {
        let device = self.device.as_deref().map(|device| match device {
            "" => text.account_unknown_device.to_owned(),
            device => device.to_owned(),
        });
        let factors = self.factors.iter().map(|factor| factor.in_words(text));
        let factors = factors.collect::<Vec<_>>().join(", ");
        [
            (text.user_name, self.account_id.clone()),
            (text.mail_new_address, self.new_address.clone()),
            (text.mail_factor, Some(factors).filter(|named| !named.is_empty())),
            (text.mail_device, device),
            (text.mail_network, self.network.clone()),
            (text.mail_time, self.time.clone()),
        ]
        .into_iter()
        .filter_map(|(label, value)| Some((label, value?)))
    }

    pub fn text(&self, text: &Text<'_>, product: &str) -> String {
        let with = |sentence: &str| sentence.replace(PLACE, product);
        let mut mail = format!("{}\n\n", with(self.kind.lead(text)));
        for (label, value) in self.facts(text) {
            let _ = writeln!(mail, "{label}: {value}");
        }
        if self.facts(text).next().is_some() {
            mail.push('\n');
        }
        if let Some(link) = &self.link {
            let lead = if self.kind.is_notice() {
                text.mail_secure_lead.to_owned()
            } else {
                format!("{}:", self.kind.button(text))
            };
            let _ = write!(mail, "{lead}\n{link}\n\n");
        }
        if let Some(code) = &self.code {
            let _ = write!(mail, "{}\n{code}\n\n", text.mail_code);
        }
        if let Some(expires) = &self.expires {
            let _ = write!(mail, "{}\n\n", text.mail_expires.replace(PLACE, expires));
        }
        let _ = writeln!(mail, "--\n{}", with(self.kind.why(text)));
        mail
    }

    /// The mail as an HTML document.
    pub fn html(&self, locale: &Locale, style: &MailStyle) -> String {
        let text = &locale.text();
        let light = &style.light;
        let (lang, dir) = (locale.tag(), locale.direction());
        let ground = format!("margin:0;padding:24px 12px;background:{};{FONT}", light.ground);
        let card = format!(
            "width:100%;max-width:560px;background:{};border:1px solid {};border-radius:8px",
            light.surface, light.line
        );
        let cell = format!(
            "padding:28px 24px;color:{};font-size:16px;line-height:1.5;{FONT}",
            light.ink
        );
        html! {
            (DOCTYPE)
            html lang=(lang) dir=(dir) {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="supported-color-schemes" content="light dark";
                    // A code is no telephone number.
                    meta name="format-detection" content="telephone=no";
                    title { (self.subject(text, &style.product)) }
                    style { (PreEscaped(dark_style(&style.dark))) }
                }
                body.ground style=(ground) {
                    table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0" {
                        tr { td align="center" {
                            table.card role="presentation" width="560" cellpadding="0" cellspacing="0" border="0" style=(card) {
                                tr { td dir=(dir) style=(cell) { (self.content(text, style)) } }
                            }
                        } }
                    }
                }
            }
        }
        .into_string()
    }

    fn content(&self, text: &Text<'_>, style: &MailStyle) -> Markup {
        let light = &style.light;
        let small = format!("margin:0 0 8px;font-size:14px;color:{}", light.muted);
        let why = format!(
            "margin:24px 0 0;padding-top:16px;border-top:1px solid {};font-size:14px;color:{}",
            light.line, light.muted
        );
        let button = format!(
            "display:inline-block;padding:12px 20px;border-radius:6px;background:{};color:{};font-weight:600;text-decoration:none",
            light.accent, light.on_accent
        );
        let link_style = format!("color:{};word-break:break-all", light.accent);
        let mut facts = self.facts(text).peekable();
        html! {
            p.muted style=(small) { bdi { (style.product) } }
            h1 style="margin:0 0 16px;font-size:22px;line-height:1.3;font-weight:600" {
                (sentence(self.kind.subject(text), &style.product))
            }
            p style="margin:0 0 24px" { (sentence(self.kind.lead(text), &style.product)) }
            @if facts.peek().is_some() {
                table role="presentation" cellpadding="0" cellspacing="0" border="0" style="margin:0 0 24px" {
                    @for (label, value) in facts {
                        tr {
                            td.muted style={ "padding:2px 0;padding-inline-end:16px;font-size:14px;color:" (light.muted) } { (label) }
                            td style="padding:2px 0;font-size:14px" { bdi { (value) } }
                        }
                    }
                }
            }
            @if let Some(link) = &self.link {
                @if self.kind.is_notice() { p style="margin:0 0 16px" { (text.mail_secure_lead) } }
                p style="margin:0 0 24px" { a.button href=(link) style=(button) { (self.kind.button(text)) } }
                p.muted style=(small) { (text.mail_link) }
                p style="margin:0 0 24px;font-size:14px" {
                    a.link href=(link) dir="ltr" style=(link_style) { (link) }
                }
            }
            @if let Some(code) = &self.code {
                p style="margin:0 0 8px" { (text.mail_code) }
                p dir="ltr" style=(CODE_FONT) { (code) }
            }
            @if let Some(expires) = &self.expires {
                p.muted style=(small) { (sentence(text.mail_expires, expires)) }
            }
            p.muted style=(why) { (sentence(self.kind.why(text), &style.product)) }
        }
    }

    pub fn fill_context(&self, locale: &Locale, style: &MailStyle, context: &mut TemplateContext) {
        let text = &locale.text();
        let product = style.product.as_str();
        let optional = |value: &Option<String>| value.clone().unwrap_or_default();
        context.part("content", || self.content(text, style));
        context.text("text_content", &self.text(text, product));
        context.text("kind", self.kind.name());
        context.text("lang", locale.tag());
        context.text("dir", locale.direction());
        context.text("product", product);
        context.text("subject", &self.subject(text, product));
        context.text("lead", &self.kind.lead(text).replace(PLACE, product));
        context.text("why", &self.kind.why(text).replace(PLACE, product));
        context.text(
            "button",
            self.link.as_ref().map_or("", |_| self.kind.button(text)),
        );
        context.text("link", &optional(&self.link));
        context.text("code", &optional(&self.code));
        context.text("expires", &optional(&self.expires));
        let facts: Vec<_> = self.facts(text).collect();
        let facts = facts.iter();
        context.list(
            "facts",
            facts.map(|(name, value)| [("name", *name), ("value", value.as_str())]),
        );
        context.text("accent", &style.light.accent);
        context.text("on_accent", &style.light.on_accent);
        context.value("text", locale.values());
    }
}

/// The colours for a reader that prefers dark.
fn dark_style(dark: &MailColours) -> String {
    let MailColours {
        ground,
        surface,
        ink,
        muted,
        line,
        accent,
        on_accent,
    } = dark;
    format!(
        ":root{{color-scheme:light dark}}@media (prefers-color-scheme:dark){{.ground{{background:{ground}!important}}\
         .card{{background:{surface}!important;border-color:{line}!important}}.card td{{color:{ink}!important}}\
         .card .muted{{color:{muted}!important;border-color:{line}!important}}.card .link{{color:{accent}!important}}\
         .card .button{{background:{accent}!important;color:{on_accent}!important}}}}"
    )
}

#[cfg(test)]
mod tests;

//! What the forms of the account page ask for, so that the cookie of a session is not enough.

use maud::{Markup, html};

use super::account_notice::CURRENT_PASSWORD;
use super::form::PasswordField;
use super::{Icon, Text};

/// What a user can show: the password or a code in one field, or a passkey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProofRequest {
    pub has_password: bool,
    /// Whether the user has an authenticator app or recovery codes.
    pub takes_code: bool,
    /// What a passkey needs, if the user has one.
    pub passkey: Option<PasskeyProofRequest>,
}

/// What a passkey needs to answer for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasskeyProofRequest {
    /// The relying party identifier.
    pub rp_id: String,
    /// The challenge, base64url.
    pub challenge: String,
    pub sealed: String,
    /// The credential ids of the user's passkeys, base64url, separated by spaces.
    pub known: String,
}

/// How the forms of a section are drawn.
#[derive(Clone, Copy)]
pub(super) struct ProofForms<'a> {
    /// Draws a form by the value of `decision` and its content.
    pub(super) form: &'a dyn Fn(&str, &Markup) -> Markup,
    /// What a form asks the user for.
    pub(super) proof: &'a ProofRequest,
}

impl ProofRequest {
    /// A user with a password and nothing else.
    pub fn sample() -> Self {
        Self {
            has_password: true,
            ..Self::default()
        }
    }

    /// A user with a password, an app and a passkey.
    pub fn full_sample() -> Self {
        Self {
            has_password: true,
            takes_code: true,
            passkey: Some(PasskeyProofRequest {
                rp_id: "id.example.com".to_owned(),
                challenge: "AZ3k".to_owned(),
                sealed: "c2VhbGVk".to_owned(),
                known: "AQI AwQ".to_owned(),
            }),
        }
    }

    /// Whether the user can show something else than the password.
    pub(super) fn takes_factor(&self) -> bool {
        self.takes_code || self.passkey.is_some()
    }

    /// Draws the field with this id, which begins with `proof-`, and the place of the button for a passkey. Nothing for a
    /// user who has nothing to show.
    pub(super) fn draw(&self, id: &str, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(label) = self.label(text) {
                div.field {
                    label for=(id) { (label) }
                    input id=(id) name=(CURRENT_PASSWORD) type="password" required dir="ltr"
                        autocomplete=(self.autocomplete()) autocorrect="off";
                }
            }
            (self.way_by_passkey())
        }
    }

    /// The same in the form for a new password. `is_invalid` says whether the field has to be filled in again.
    pub(super) fn draw_with_reveal(&self, is_invalid: bool, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(label) = self.label(text) {
                (PasswordField {
                    id: CURRENT_PASSWORD,
                    name: CURRENT_PASSWORD,
                    label,
                    label_link: None,
                    autocomplete: self.autocomplete(),
                    enterkeyhint: "next",
                    least: None,
                    described_by: is_invalid.then_some("notice"),
                    is_invalid,
                    has_focus: is_invalid,
                }.draw(text))
            }
            (self.way_by_passkey())
        }
    }

    fn label<'a>(&self, text: &Text<'a>) -> Option<&'a str> {
        match (self.has_password, self.takes_code) {
            (true, true) => Some(text.proof_password_or_code),
            (true, false) => Some(text.account_current_password),
            (false, true) => Some(text.code),
            (false, false) => None,
        }
    }

    fn autocomplete(&self) -> &'static str {
        if self.has_password {
            "current-password"
        } else {
            "one-time-code"
        }
    }

    /// Where the script adds the button for a passkey, and puts the answer.
    fn way_by_passkey(&self) -> Markup {
        html! { @if self.passkey.is_some() { input name="assertion" type="hidden" data-optional; } }
    }

    /// What the script adds to the forms of a section. It is on the page once.
    pub(super) fn draw_passkey(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(passkey) = &self.passkey {
                div hidden data-proof=(passkey.challenge) data-sealed=(passkey.sealed) data-rp-id=(passkey.rp_id)
                    data-known=(passkey.known) {
                    p.problem role="alert" hidden { (text.problem_proof) }
                    button.button.button-quiet.button-small type="button" { (Icon::Passkey.draw()) span { (text.proof_passkey) } }
                }
            }
        }
    }
}

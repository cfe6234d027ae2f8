//! The forms that bring the answers of authenticators. The script [`super::asset::File::Login`] or
//! [`super::asset::File::Account`] shows them; without it they stay hidden.

use maud::{Markup, html};

use super::form::hidden;
use super::proof::ProofForms;
use super::{Icon, Text};

/// A sign-in with a passkey.
#[derive(Clone, Debug)]
pub struct PasskeyRequest {
    /// The relying party identifier.
    pub rp_id: String,
    /// The challenge, base64url.
    pub challenge: String,
    pub sealed: String,
    /// The address of the page, to get another challenge.
    pub again: String,
    /// The credential ids of the user, base64url, separated by spaces; empty if the page does not know the user.
    pub known: String,
    /// Whether the script tells in the form for the password that the device can keep a passkey.
    pub makes_offer: bool,
    /// A credential id, base64url, that no user has. The browser is told to forget it.
    pub unknown: Option<String>,
    /// The page on which people add a passkey, if the sign-in takes nothing else.
    pub only_way: Option<String>,
}

impl PasskeyRequest {
    /// A made-up request.
    pub fn sample() -> Self {
        Self {
            rp_id: "id.example.com".to_owned(),
            challenge: "AZ3k".to_owned(),
            sealed: "c2VhbGVk".to_owned(),
            again: "/login?transaction=4lQ0bI2xQ9mN".to_owned(),
            known: String::new(),
            makes_offer: false,
            unknown: None,
            only_way: None,
        }
    }

    /// Draws the form. `fields` are the hidden fields of the page's forms.
    /// `is_only_way` says whether the page takes nothing else.
    pub(super) fn draw(&self, action: &str, fields: &Markup, is_only_way: bool, text: &Text<'_>) -> Markup {
        let class = if is_only_way {
            "button"
        } else {
            "button button-quiet"
        };
        html! {
            @if is_only_way { noscript { p.problem { (text.passkey_needs_script) } } }
            form.stack.passkey method="post" action=(action) hidden data-optional[!is_only_way] data-passkey="get" data-rp-id=(self.rp_id)
                data-challenge=(self.challenge) data-again=(self.again) data-known=[(!self.known.is_empty()).then_some(&self.known)]
                data-unknown=[&self.unknown] data-offer[self.makes_offer] {
                (fields)
                (hidden("challenge", &self.sealed))
                (hidden("passkey", ""))
                p.problem hidden { (text.passkey_not_used) }
                button class=(class) type="button" { (Icon::Passkey.draw()) span { (text.passkey_sign_in) } }
            }
            @if let Some(href) = &self.only_way {
                p.note { (text.passkeys_note) " " a href=(href) data-optional { (text.passkey_add) } }
                p.note { (text.passkey_then_again) }
            }
        }
    }
}

/// The passkeys of a user, on the account page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PasskeySection {
    /// The challenge for a new one, and the same sealed. `None` if the user has to sign in again first.
    pub challenge: Option<(String, String)>,
    /// The relying party identifier.
    pub rp_id: String,
    /// The name of the service.
    pub rp_name: String,
    /// The user handle, base64url.
    pub user_id: String,
    /// The name to sign in with.
    pub user_name: String,
    pub display_name: String,
    /// The identifiers of the algorithms, the preferred one first, separated by spaces.
    pub algorithms: String,
    /// The credential ids of the user's passkeys, base64url, separated by spaces.
    pub known: String,
    /// The address of the page, to get another challenge.
    pub again: String,
}

impl PasskeySection {
    /// A user with passkeys.
    pub fn sample() -> Self {
        Self {
            challenge: Some(("AZ3k".to_owned(), "c2VhbGVk".to_owned())),
            rp_id: "id.example.com".to_owned(),
            rp_name: "id.example.com".to_owned(),
            user_id: "AZk".to_owned(),
            user_name: "alice@example.com".to_owned(),
            display_name: "Alice Example".to_owned(),
            algorithms: "-7 -8 -257".to_owned(),
            known: "AQI AwQ".to_owned(),
            again: "/account/security".to_owned(),
        }
    }

    /// Draws the form for a new one after the rows of the present ones. A user who has to sign in again first shows nothing
    /// yet.
    pub(super) fn draw(&self, rows: &Markup, forms: ProofForms<'_>, text: &Text<'_>) -> Markup {
        let creation = self.creation("button button-quiet", text.passkey_add, text);
        let inside = html! {
            @if self.challenge.is_some() { (forms.proof.draw("proof-passkey", text)) }
            (creation)
        };
        html! {
            section aria-labelledby="passkeys" {
                h2 #passkeys { (text.passkeys) }
                p.note { (text.passkeys_note) }
                (rows)
                ((forms.form)("passkey", &inside))
            }
        }
    }

    /// What the form for a new passkey has in it. `class` and `label` are those of the button.
    pub(super) fn creation(&self, class: &str, label: &str, text: &Text<'_>) -> Markup {
        let challenge = self.challenge.as_ref();
        let kind = if challenge.is_some() { "button" } else { "submit" };
        html! {
            div.stack.passkey hidden data-passkey="create" data-challenge=[challenge.map(|(value, _)| value)]
                data-rp-id=(self.rp_id) data-rp-name=(self.rp_name) data-user-id=(self.user_id)
                data-user-name=(self.user_name) data-display-name=(self.display_name)
                data-algorithms=(self.algorithms) data-known=(self.known) data-again=(self.again) {
                @if let Some((_, sealed)) = challenge { (hidden("challenge", sealed)) }
                (hidden("passkey", ""))
                p.problem role="alert" hidden data-exists=(text.problem_passkey_exists) { (text.problem_passkey_add) }
                button class=(class) type=(kind) { (Icon::Passkey.draw()) span { (label) } }
            }
        }
    }
}

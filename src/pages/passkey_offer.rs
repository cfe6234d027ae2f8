//! The page that offers a passkey after a sign-in with a password.

use maud::{Markup, html};

use super::asset::File;
use super::form::transaction_fields;
use super::{Page, PageAddress, PasskeySection, TemplateContext, Text};

/// Offers a passkey, before the application opens.
#[derive(Clone, Debug)]
pub struct PasskeyOffer {
    /// Where the forms are posted.
    pub action: String,
    /// The login transaction of the forms.
    pub transaction: String,
    /// Proves that the forms came from this page.
    pub csrf: String,
    /// What a new passkey needs.
    pub passkey: PasskeySection,
    /// Whether the page is shown again because no passkey was added.
    pub is_refused: bool,
}

impl PasskeyOffer {
    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let first = Self {
            action: "/passkey-offer".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            passkey: PasskeySection::sample(),
            is_refused: false,
        };
        let refused = Self {
            is_refused: true,
            ..first.clone()
        };
        vec![first, refused]
    }

    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.is_refused { p.problem #problem role="alert" { (text.problem_passkey_add) } }
        }
    }

    fn hidden(&self) -> Markup {
        transaction_fields(&self.transaction, &self.csrf)
    }

    /// The form that the script shows.
    fn creation(&self, text: &Text<'_>) -> Markup {
        html! {
            form method="post" action=(self.action) data-optional {
                (self.hidden())
                (self.passkey.creation("button", text.passkey_create, text))
            }
        }
    }

    fn later(&self, text: &Text<'_>) -> Markup {
        html! {
            form.stack method="post" action=(self.action) {
                (self.hidden())
                button.button.button-quiet type="submit" name="decision" value="later" { (text.passkey_later) }
            }
        }
    }
}

impl Page for PasskeyOffer {
    const NAME: &'static str = "passkey-offer";

    fn title(&self, text: &Text<'_>) -> String {
        text.passkey_offer_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.passkey_offer_title) }
            p.lead { (text.passkeys_note) }
            (self.problem(text))
            (self.creation(text))
            (self.later(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("problem", || self.problem(text));
        context.part("passkey", || self.creation(text));
        context.part("later", || self.later(text));
        context.part("hidden", || self.hidden());
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.flag("is_refused", self.is_refused);
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        Some(PageAddress {
            path: &self.action,
            parameters: vec![("transaction", &self.transaction)],
        })
    }

    fn script(&self) -> Option<File> {
        Some(File::Login)
    }
}

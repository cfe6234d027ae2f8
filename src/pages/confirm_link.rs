//! The page of a link that does one thing at a button: it signs in, or secures the account.

use maud::{Markup, html};

use super::form::{hidden, sentence, transaction_fields};
use super::{Page, TemplateContext, Text};

/// Asks whether the link is to be used, because to open it changes nothing. Says what was done, if nothing follows.
#[derive(Clone, Debug)]
pub struct ConfirmLink {
    /// What the page is for.
    pub action: LinkAction,
    /// The account identifier of the user.
    pub account_id: String,
    /// The address that the account gets, or gets back.
    pub address: Option<String>,
    /// The form; none once the link was used.
    pub form: Option<LinkForm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// It signs the user in.
    SignIn,
    /// It secures the account.
    Secure,
    /// The account is secured.
    Secured,
    /// It sets the address of the account.
    VerifyAddress,
    /// The address is set.
    AddressVerified,
}

impl LinkAction {
    /// Every action, for tests and previews.
    pub const ALL: [Self; 5] = [
        Self::SignIn,
        Self::Secure,
        Self::Secured,
        Self::VerifyAddress,
        Self::AddressVerified,
    ];

    /// What the page says once the link was used.
    #[must_use]
    pub fn done(self) -> Self {
        match self {
            Self::Secure => Self::Secured,
            Self::VerifyAddress => Self::AddressVerified,
            other => other,
        }
    }

    /// Whether the link was used.
    fn is_done(self) -> bool {
        matches!(self, Self::Secured | Self::AddressVerified)
    }

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Secure => "secure",
            Self::Secured => "secured",
            Self::VerifyAddress => "verify-address",
            Self::AddressVerified => "address-verified",
        }
    }
}

/// The form of the page.
#[derive(Clone, Debug)]
pub struct LinkForm {
    /// Where it is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// The secret of the link.
    pub token: String,
    /// Proves that the form came from this page.
    pub csrf: String,
}

impl LinkForm {
    fn hidden(&self) -> Markup {
        html! {
            (transaction_fields(&self.transaction, &self.csrf))
            (hidden("token", &self.token))
        }
    }
}

impl ConfirmLink {
    /// The page for each action.
    pub fn samples() -> Vec<Self> {
        let form = LinkForm {
            action: "/link".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            token: "idsvc_li_4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
        };
        let sample = |action| Self {
            action,
            account_id: "alice@example.com".to_owned(),
            address: (action != LinkAction::SignIn).then(|| "alice@example.org".to_owned()),
            form: (!action.is_done()).then(|| form.clone()),
        };
        LinkAction::ALL.map(sample).to_vec()
    }

    fn lead(&self, text: &Text<'_>) -> Markup {
        let template = match self.action {
            LinkAction::SignIn => text.sign_in_by_link_lead,
            LinkAction::Secure => text.secure_lead,
            LinkAction::Secured => text.secured_lead,
            LinkAction::VerifyAddress => text.verify_address_lead,
            LinkAction::AddressVerified => text.address_verified_lead,
        };
        let address = self.address.as_deref();
        html! {
            @match (self.action, address) {
                (LinkAction::VerifyAddress | LinkAction::AddressVerified, Some(address)) => {
                    (sentence(template, address)) " " (text.user_name) ": " bdi { (self.account_id) }
                }
                (LinkAction::Secure, Some(address)) => {
                    (sentence(template, &self.account_id)) " " (sentence(text.secure_restores_address, address))
                }
                _ => (sentence(template, &self.account_id)),
            }
        }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(form) = &self.form {
                form.stack method="post" action=(form.action) {
                    (form.hidden())
                    button.button type="submit" { (self.title(text)) }
                }
            }
        }
    }
}

impl Page for ConfirmLink {
    const NAME: &'static str = "confirm-link";

    fn title(&self, text: &Text<'_>) -> String {
        let title = match self.action {
            LinkAction::SignIn => text.sign_in,
            LinkAction::Secure => text.secure_account,
            LinkAction::Secured => text.secured_title,
            LinkAction::VerifyAddress => text.verify_address,
            LinkAction::AddressVerified => text.address_verified_title,
        };
        title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (self.title(text)) }
            p.lead { (self.lead(text)) }
            (self.form(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("lead", || self.lead(text));
        context.part("form", || self.form(text));
        let form = self.form.as_ref();
        context.part("hidden", || form.map(LinkForm::hidden).unwrap_or_default());
        context.text("purpose", self.action.kind());
        context.text("action", form.map_or("", |form| &form.action));
        context.text("transaction", form.map_or("", |form| &form.transaction));
        context.text("csrf", form.map_or("", |form| &form.csrf));
        context.text("token", form.map_or("", |form| &form.token));
        context.text("account_id", &self.account_id);
        context.text("address", self.address.as_deref().unwrap_or_default());
    }
}

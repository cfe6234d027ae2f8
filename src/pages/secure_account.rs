//! The page that the link of a notice leads to.

use maud::{Markup, html};

use super::form::{hidden, sentence, transaction_fields};
use super::{Page, TemplateContext, Text};

/// Asks whether the account is to be secured, and says so afterwards.
#[derive(Clone, Debug)]
pub struct SecureAccount {
    /// The name with which the user signs in.
    pub account_id: String,
    /// Where the form is posted, and its hidden fields; none once the account is secured.
    pub form: Option<SecureForm>,
}

/// The form of the page.
#[derive(Clone, Debug)]
pub struct SecureForm {
    /// Where it is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// The secret of the link.
    pub token: String,
    /// Proves that the form came from this page.
    pub csrf: String,
}

impl SecureForm {
    fn hidden(&self) -> Markup {
        html! {
            (transaction_fields(&self.transaction, &self.csrf))
            (hidden("token", &self.token))
        }
    }
}

impl SecureAccount {
    /// The page before and after.
    pub fn samples() -> Vec<Self> {
        let form = SecureForm {
            action: "/link".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            token: "idsvc_li_4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
        };
        let sample = |form| Self {
            account_id: "alice@example.com".to_owned(),
            form,
        };
        vec![sample(Some(form)), sample(None)]
    }

    fn lead(&self, text: &Text<'_>) -> Markup {
        let template = match self.form {
            Some(_) => text.secure_lead,
            None => text.secured_lead,
        };
        sentence(template, &self.account_id)
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        html! {
            @if let Some(form) = &self.form {
                form.stack method="post" action=(form.action) {
                    (form.hidden())
                    button.button type="submit" { (text.secure_account) }
                }
            }
        }
    }
}

impl Page for SecureAccount {
    const NAME: &'static str = "secure-account";

    fn title(&self, text: &Text<'_>) -> String {
        match self.form {
            Some(_) => text.secure_account.to_owned(),
            None => text.secured_title.to_owned(),
        }
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
        context.part("hidden", || form.map(SecureForm::hidden).unwrap_or_default());
        context.text("action", form.map_or("", |form| &form.action));
        context.text("transaction", form.map_or("", |form| &form.transaction));
        context.text("csrf", form.map_or("", |form| &form.csrf));
        context.text("token", form.map_or("", |form| &form.token));
        context.text("account_id", &self.account_id);
    }
}

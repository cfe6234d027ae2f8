//! The page after a sign-out without a redirect to a client.

use maud::{Markup, html};

use super::form::{ApplicationLink, sentence};
use super::{Page, TemplateContext, Text};

/// Says that the session has ended (OpenID Connect RP-Initiated Logout 1.0 section 2).
#[derive(Clone, Debug)]
pub struct LoggedOut {
    pub service: String,
    /// The application that asked for the sign-out, if it is registered.
    pub application: Option<ApplicationLink>,
    /// The address of the account page, where a new sign-in begins.
    pub account: String,
}

impl LoggedOut {
    /// The page with and without an application.
    pub fn samples() -> Vec<Self> {
        let known = Self {
            service: "Acme".to_owned(),
            application: Some(ApplicationLink::sample()),
            account: "/account".to_owned(),
        };
        let unknown = Self {
            application: None,
            ..known.clone()
        };
        vec![known, unknown]
    }

    fn ways(&self, text: &Text<'_>) -> Markup {
        html! {
            div.stack {
                @if let Some(link) = &self.application {
                    a.button href=(link.href) data-optional { (link.label(text)) }
                }
                a.button.button-quiet[self.application.is_some()] href=(self.account) data-optional { (text.sign_in_again) }
            }
        }
    }
}

impl Page for LoggedOut {
    const NAME: &'static str = "logged-out";

    fn title(&self, text: &Text<'_>) -> String {
        text.logged_out_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (sentence(text.logged_out_of, &self.service)) }
            p.lead { (text.logged_out_lead) }
            p.note { (text.logged_out_elsewhere) }
            (self.ways(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("heading", || sentence(text.logged_out_of, &self.service));
        context.part("ways", || self.ways(text));
        context.text("account", &self.account);
        ApplicationLink::fill_context(self.application.as_ref(), context);
    }
}

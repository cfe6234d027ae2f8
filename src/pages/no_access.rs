//! The page for a user who is signed in and may not use the application.

use maud::{Markup, html};

use super::consent::draw_person;
use super::form::{Person, sentence};
use super::text::PLACE;
use super::{Mark, Page, PageAddress, TemplateContext, Text};

/// Says which application the user may not use, and whom to ask.
#[derive(Clone, Debug)]
pub struct NoAccess {
    /// The path of this page.
    pub path: String,
    /// The login transaction, which another user can continue.
    pub transaction: String,
    /// The application.
    pub mark: Mark,
    /// Who is signed in.
    pub user: Person,
    /// The address of the sign-in page, for another user.
    pub other_user: String,
    /// Where the operator gives help.
    pub contact: Option<String>,
    /// The address of the account page.
    pub account: String,
    /// Finds the request in the log.
    pub request_id: String,
}

impl NoAccess {
    /// The page with and without a contact.
    pub fn samples() -> Vec<Self> {
        let first = Self {
            path: "/login".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            mark: Mark::sample(),
            user: Person::sample(),
            other_user: "/login?transaction=4lQ0bI2xQ9mN&other_user=1".to_owned(),
            contact: Some("mailto:help@example.com".to_owned()),
            account: "/account".to_owned(),
            request_id: "0199f3a2-7c41-7d8e-9b60-2f1c5a7e3d94".to_owned(),
        };
        let alone = Self {
            contact: None,
            ..first.clone()
        };
        vec![first, alone]
    }

    fn heading(&self, text: &Text<'_>) -> Markup {
        sentence(text.no_access_title, &self.mark.name)
    }

    fn person(&self, text: &Text<'_>) -> Markup {
        draw_person(&self.user, &self.other_user, text)
    }

    fn ways(&self, text: &Text<'_>) -> Markup {
        html! {
            div.stack {
                @if let Some(contact) = &self.contact {
                    a.button href=(contact) data-optional { (text.contact) }
                }
                a.button.button-quiet href=(self.account) data-optional { (text.account_title) }
            }
        }
    }
}

impl Page for NoAccess {
    const NAME: &'static str = "no-access";

    fn title(&self, text: &Text<'_>) -> String {
        text.no_access_title.replacen(PLACE, &self.mark.name, 1)
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            (self.mark.draw())
            h1 { (self.heading(text)) }
            p.lead { (text.no_access_advice) }
            (self.person(text))
            (self.ways(text))
            dl.facts {
                dt { (text.request_id) }
                dd { code dir="ltr" { (self.request_id) } }
            }
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("mark", || self.mark.draw());
        context.part("heading", || self.heading(text));
        context.part("person", || self.person(text));
        context.part("ways", || self.ways(text));
        context.text("client_name", &self.mark.name);
        context.text("client_logo", self.mark.logo.as_deref().unwrap_or_default());
        context.text("user", &self.user.name);
        context.text("account_id", &self.user.account_id);
        context.text("other_user_href", &self.other_user);
        context.text("contact", self.contact.as_deref().unwrap_or_default());
        context.text("account", &self.account);
        context.text("request_id", &self.request_id);
    }

    fn address(&self) -> Option<PageAddress<'_>> {
        Some(PageAddress {
            path: &self.path,
            parameters: vec![("transaction", &self.transaction)],
        })
    }
}

//! The page that asks before a sign-out.

use maud::{Markup, html};

use super::form::{Person, hidden};
use super::{Page, TemplateContext, Text};

/// Asks whether the user wants to sign out, if the request has no valid ID token hint (OpenID Connect RP-Initiated Logout
/// 1.0 section 2).
#[derive(Clone, Debug)]
pub struct LogoutConfirm {
    /// Where the form is posted.
    pub action: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// Who is signed in, if that is known.
    pub user: Option<Person>,
}

impl LogoutConfirm {
    /// Who is signed in; empty if that is not known.
    fn who(&self, text: &Text<'_>) -> Markup {
        html! { @if let Some(user) = &self.user { (user.in_sentence(text.logout_user)) } }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        html! {
            form.stack method="post" action=(self.action) {
                (hidden("csrf", &self.csrf))
                button.button type="submit" name="decision" value="logout" { (text.sign_out) }
            }
        }
    }

    /// The page with and without a user.
    pub fn samples() -> Vec<Self> {
        let known = Self {
            action: "/logout".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            user: Some(Person::sample()),
        };
        let unknown = Self {
            user: None,
            ..known.clone()
        };
        vec![known, unknown]
    }
}

impl Page for LogoutConfirm {
    const NAME: &'static str = "logout";

    fn title(&self, text: &Text<'_>) -> String {
        text.logout_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.logout_title) }
            @if self.user.is_some() { p.lead { (self.who(text)) } }
            p.note { (text.logout_lead) }
            (self.form(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("form", || self.form(text));
        context.part("hidden", || hidden("csrf", &self.csrf));
        context.text("action", &self.action);
        context.text("csrf", &self.csrf);
        context.part("who", || self.who(text));
        let user = self.user.as_ref();
        context.text("user", user.map_or("", |user| &user.name));
        context.text("account_id", user.map_or("", |user| &user.account_id));
    }
}

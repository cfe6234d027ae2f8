//! The consent page.

use maud::{Markup, html};

use super::form::{Person, hidden, sentence};
use super::{Page, TemplateContext, Text};

/// Asks whether an application may have what it asked for (OpenID Connect Core section 3.1.2.4).
#[derive(Clone, Debug)]
pub struct Consent {
    /// Where the form is posted.
    pub action: String,
    /// The login transaction that this question belongs to.
    pub transaction: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The application that asks.
    pub client_name: String,
    /// Who is signed in.
    pub user: Person,
    /// Whether a yes was sent that does not count, since somebody has signed in anew.
    pub is_again: bool,
    /// What is asked for.
    pub scopes: Vec<ScopeLine>,
}

/// One scope, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeLine {
    /// The scope's name (RFC 6749 section 3.3).
    pub name: String,
    /// What the client or the theme says of it; empty where neither does. A standard scope has words of its own
    /// in each language then.
    pub description: String,
}

impl ScopeLine {
    /// The line as a template reads it.
    pub(super) fn entry<'a>(&'a self, text: &Text<'a>) -> [(&'static str, &'a str); 2] {
        [("name", self.name.as_str()), ("text", self.text(text))]
    }

    pub(super) fn text<'a>(&'a self, text: &Text<'a>) -> &'a str {
        if !self.description.is_empty() {
            return &self.description;
        }
        match self.name.as_str() {
            "openid" => text.scope_openid,
            "profile" => text.scope_profile,
            "email" => text.scope_email,
            "phone" => text.scope_phone,
            "address" => text.scope_address,
            "offline_access" => text.scope_offline_access,
            other => other,
        }
    }
}

impl Consent {
    fn hidden_fields(&self) -> Markup {
        html! {
            (hidden("transaction", &self.transaction))
            (hidden("csrf", &self.csrf))
        }
    }

    /// Why the page is shown again; nothing at first.
    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.is_again { p.problem role="alert" { (text.problem_consent_again) } }
        }
    }

    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let again = Self {
            is_again: true,
            ..Self::sample()
        };
        vec![Self::sample(), again]
    }

    fn list(&self, text: &Text<'_>) -> Markup {
        html! {
            ul.scopes {
                @for scope in &self.scopes {
                    li { bdi { (scope.text(text)) } }
                }
            }
        }
    }

    fn form(&self, text: &Text<'_>) -> Markup {
        html! {
            form.stack method="post" action=(self.action) {
                (self.hidden_fields())
                button.button type="submit" name="decision" value="allow" { (text.allow) }
                button.button.button-quiet type="submit" name="decision" value="deny" { (text.deny) }
            }
        }
    }

    /// The page with standard scopes and one of the operator's.
    pub fn sample() -> Self {
        let scope = |name: &str, description: &str| ScopeLine {
            name: name.to_owned(),
            description: description.to_owned(),
        };
        Self {
            action: "/consent".to_owned(),
            transaction: "4lQ0bI2xQ9mN".to_owned(),
            csrf: "b1x0Jm5vYQ".to_owned(),
            client_name: "Acme Notes".to_owned(),
            user: Person::sample(),
            is_again: false,
            scopes: vec![
                scope("openid", ""),
                scope("profile", ""),
                scope("email", ""),
                scope("phone", ""),
                scope("address", ""),
                scope("offline_access", ""),
                scope("notes.write", "Write and share notes in your name"),
            ],
        }
    }
}

impl Page for Consent {
    const NAME: &'static str = "consent";

    fn title(&self, text: &Text<'_>) -> String {
        text.consent_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.consent_title) }
            p.lead { (sentence(text.consent_lead, &self.client_name)) }
            (self.problem(text))
            (self.list(text))
            p.note { (self.user.within(text.consent_user)) }
            p.note { (text.consent_trust) }
            (self.form(text))
        }
    }

    fn slots(&self, text: &Text<'_>, slots: &mut TemplateContext) {
        slots.part("lead", || sentence(text.consent_lead, &self.client_name));
        slots.part("problem", || self.problem(text));
        slots.part("who", || self.user.within(text.consent_user));
        slots.part("scope_list", || self.list(text));
        slots.part("form", || self.form(text));
        slots.part("hidden", || self.hidden_fields());
        slots.text("action", &self.action);
        slots.text("transaction", &self.transaction);
        slots.text("csrf", &self.csrf);
        slots.text("client_name", &self.client_name);
        slots.text("user", &self.user.name);
        slots.text("account_id", &self.user.account_id);
        slots.list("scopes", self.scopes.iter().map(|scope| scope.entry(text)));
    }
}

//! The consent page.

use maud::{Markup, html};

use super::form::{hidden, sentence};
use super::{Page, Text};

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
    pub user: String,
    /// What is asked for.
    pub scopes: Vec<ScopeLine>,
}

/// One scope, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeLine {
    /// The scope's name (RFC 6749 section 3.3).
    pub name: String,
    /// What the operator says of it; empty for a standard scope, which has words of its own in each language.
    pub description: String,
}

impl ScopeLine {
    pub(super) fn text<'a>(&'a self, text: &'static Text) -> &'a str {
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
            user: "alice@example.com".to_owned(),
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

    fn title(&self, text: &'static Text) -> String {
        text.consent_title.to_owned()
    }

    fn body(&self, text: &'static Text) -> Markup {
        html! {
            h1 { (text.consent_title) }
            p.lead { (sentence(text.consent_lead, &self.client_name)) }
            ul.scopes {
                @for scope in &self.scopes {
                    li { bdi { (scope.text(text)) } }
                }
            }
            p.note { (sentence(text.consent_user, &self.user)) }
            p.note { (text.consent_trust) }
            form.stack method="post" action=(self.action) {
                (hidden("transaction", &self.transaction))
                (hidden("csrf", &self.csrf))
                button.button type="submit" name="decision" value="allow" { (text.allow) }
                button.button.button-quiet type="submit" name="decision" value="deny" { (text.deny) }
            }
        }
    }
}

//! The consent page.

use maud::{Markup, html};

use super::form::{Person, sentence, transaction_fields};
use super::{Page, TemplateContext, Text};

/// Asks whether an application may have what it asked for (OpenID Connect Core section 3.1.2.4).
#[derive(Clone, Debug)]
pub struct Consent {
    /// Where the form is posted.
    pub action: String,
    /// The login transaction of the form.
    pub transaction: String,
    /// Proves that the form came from this page.
    pub csrf: String,
    /// The application that asks.
    pub client_name: String,
    /// The host of the application's metadata document, if its identifier is the address of one.
    pub document_host: Option<String>,
    /// Who gets access; `None` for an application that the operator registered.
    pub redirect_target: Option<RedirectTarget>,
    /// Who is signed in.
    pub user: Person,
    /// Whether the page is shown again because consent was given in another session, which does not count.
    pub is_repeated: bool,
    /// The scopes that the application asks for.
    pub scopes: Vec<ScopeLine>,
}

/// Where the browser is sent with the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectTarget {
    /// The host of the redirect URI.
    Host(String),
    /// An application on the user's device (RFC 8252 section 7).
    Device,
}

/// One scope, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeLine {
    /// The scope's name (RFC 6749 section 3.3).
    pub name: String,
    /// The text of the client or the theme; empty if neither has one. A standard scope then has a built-in text in each
    /// language.
    pub description: String,
}

impl ScopeLine {
    /// The line for templates.
    pub(super) fn template_fields<'a>(&'a self, text: &Text<'a>) -> [(&'static str, &'a str); 2] {
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
            "groups" => text.scope_groups,
            other => other,
        }
    }
}

impl Consent {
    /// Why the page is shown again; empty the first time.
    fn problem(&self, text: &Text<'_>) -> Markup {
        html! {
            @if self.is_repeated { p.problem role="alert" { (text.problem_consent_again) } }
        }
    }

    /// The page in each of its states.
    pub fn samples() -> Vec<Self> {
        let again = Self {
            is_repeated: true,
            ..Self::sample()
        };
        let to = |target| Self {
            redirect_target: Some(target),
            ..Self::sample()
        };
        let host = RedirectTarget::Host("notes.example".to_owned());
        let documented = Self {
            document_host: Some("notes.example".to_owned()),
            ..to(RedirectTarget::Device)
        };
        vec![Self::sample(), again, to(host), documented]
    }

    /// Who is signed in, which host describes the application, and who gets access.
    fn who(&self, text: &Text<'_>) -> Markup {
        html! {
            (self.user.in_sentence(text.consent_user))
            @if let Some(host) = &self.document_host { " " (sentence(text.consent_document, host)) }
            @match &self.redirect_target {
                Some(RedirectTarget::Host(host)) => { " " (sentence(text.consent_host, host)) }
                Some(RedirectTarget::Device) => { " " (text.consent_device) }
                None => {}
            }
        }
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
                (transaction_fields(&self.transaction, &self.csrf))
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
            document_host: None,
            redirect_target: None,
            user: Person::sample(),
            is_repeated: false,
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
            p.note { (self.who(text)) }
            p.note { (text.consent_trust) }
            (self.form(text))
        }
    }

    fn fill_context(&self, text: &Text<'_>, context: &mut TemplateContext) {
        context.part("lead", || sentence(text.consent_lead, &self.client_name));
        context.part("problem", || self.problem(text));
        context.part("who", || self.who(text));
        context.part("scope_list", || self.list(text));
        context.part("form", || self.form(text));
        context.part("hidden", || transaction_fields(&self.transaction, &self.csrf));
        context.text("action", &self.action);
        context.text("transaction", &self.transaction);
        context.text("csrf", &self.csrf);
        context.text("client_name", &self.client_name);
        context.text("user", &self.user.name);
        context.text("account_id", &self.user.account_id);
        context.list(
            "scopes",
            self.scopes.iter().map(|scope| scope.template_fields(text)),
        );
    }
}

//! The pages of the development server.

use maud::{Markup, html};

use super::form::sentence;
use super::{Page, Text};

/// Says what the development server offers, and begins a sign-in.
#[derive(Clone, Debug)]
pub struct Home {
    /// Begins a sign-in with the example client.
    pub sign_in_href: String,
    /// The page with the mails, if mails are not sent.
    pub mail_href: Option<String>,
    /// The example user's name.
    pub user: String,
    /// The endpoints: name and address.
    pub endpoints: Vec<(String, String)>,
}

impl Home {
    /// The page with a few endpoints.
    pub fn sample() -> Self {
        let endpoint = |name: &str, path: &str| (name.to_owned(), format!("https://localhost:8443{path}"));
        Self {
            sign_in_href: "/dev/sign-in".to_owned(),
            mail_href: Some("/dev/mail".to_owned()),
            user: "alice".to_owned(),
            endpoints: vec![
                endpoint("discovery", "/.well-known/openid-configuration"),
                endpoint("authorization_endpoint", "/oauth2/authorize"),
                endpoint("token_endpoint", "/oauth2/token"),
                endpoint("jwks_uri", "/oauth2/jwks"),
            ],
        }
    }
}

impl Page for Home {
    const NAME: &'static str = "home";

    fn title(&self, text: &Text<'_>) -> String {
        text.home_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.home_title) }
            p.lead { (text.home_lead) }
            p.note { (sentence(text.home_user, &self.user)) }
            p.note { (text.home_password) }
            p.stack {
                a.button href=(self.sign_in_href) { (text.sign_in) }
                @if let Some(mails) = &self.mail_href { a.button.button-quiet href=(mails) { (text.dev_mail_title) } }
            }
            h2 { (text.home_endpoints) }
            dl.facts {
                @for (name, address) in &self.endpoints {
                    dt { bdi { (name) } }
                    dd { code dir="ltr" { (address) } }
                }
            }
        }
    }
}

/// Shows what the example client received: the token response, and each token decoded.
#[derive(Clone, Debug)]
pub struct DevTokens {
    /// The tokens, in the order they are shown.
    pub tokens: Vec<DevToken>,
    /// The token response (RFC 6749 section 5.1), indented.
    pub response_json: String,
    /// Ends the session.
    pub sign_out_href: String,
}

/// One token, decoded. Without a header it is opaque, and only its text is shown.
#[derive(Clone, Debug)]
pub struct DevToken {
    /// Its name.
    pub title: String,
    /// The token as it was sent.
    pub raw: String,
    /// Its JOSE header, indented (RFC 7515 section 4); empty for an opaque token.
    pub header: String,
    /// Its claims, indented (RFC 7519 section 4); empty for an opaque token.
    pub payload: String,
}

impl DevTokens {
    /// The page with an ID token and an opaque one.
    pub fn sample() -> Self {
        Self {
            tokens: vec![
                DevToken {
                    title: "id_token".to_owned(),
                    raw: "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiIwMTk5ZjNhMiJ9.q7Hn0a".to_owned(),
                    header: "{\n  \"alg\": \"ES256\",\n  \"kid\": \"2026-11\"\n}".to_owned(),
                    payload: "{\n  \"iss\": \"https://localhost:8443\",\n  \"sub\": \"0199f3a2\"\n}"
                        .to_owned(),
                },
                DevToken {
                    title: "refresh_token".to_owned(),
                    raw: "idsvc_rt_4lQ0bI2xQ9mN".to_owned(),
                    header: String::new(),
                    payload: String::new(),
                },
            ],
            response_json: "{\n  \"token_type\": \"Bearer\",\n  \"expires_in\": 86400\n}".to_owned(),
            sign_out_href: "/dev/sign-out".to_owned(),
        }
    }
}

impl Page for DevTokens {
    const NAME: &'static str = "tokens";

    fn title(&self, text: &Text<'_>) -> String {
        text.tokens_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.tokens_title) }
            p.lead { (text.tokens_lead) }
            @for token in &self.tokens {
                section {
                    h2 { code dir="ltr" { (token.title) } }
                    @if !token.header.is_empty() {
                        h3 { (text.token_header) }
                        (json(&token.header))
                        h3 { (text.token_payload) }
                        (json(&token.payload))
                    }
                    details {
                        summary { (text.token_raw) }
                        (json(&token.raw))
                    }
                }
            }
            section {
                h2 { (text.token_response) }
                (json(&self.response_json))
            }
            p.stack { a.button.button-quiet href=(self.sign_out_href) { (text.sign_out) } }
        }
    }
}

fn json(text: &str) -> Markup {
    html! { pre dir="ltr" { code { (text) } } }
}

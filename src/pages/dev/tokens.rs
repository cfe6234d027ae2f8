//! The page of the development server that shows the tokens of a sign-in.

use maud::{Markup, html};

use super::commands::{copy_button, draw_commands};
use crate::pages::asset::File;
use crate::pages::{Page, Text};

/// Shows what the example client received: each token once, decoded, and commands that use it.
#[derive(Clone, Debug)]
pub struct DevTokens {
    /// The tokens, in the order they are shown.
    pub tokens: Vec<DevToken>,
    /// The token response (RFC 6749 section 5.1), without the tokens.
    pub response: Vec<DevClaim>,
    /// Commands that use the tokens: what they do, and the text. `$NAME` stands for a token.
    pub commands: Vec<(String, String)>,
    /// Ends the session.
    pub sign_out_href: String,
}

/// One token, decoded. Without a header it is opaque, and only its text is shown.
#[derive(Clone, Debug)]
pub struct DevToken {
    pub title: String,
    /// Its name in commands, such as `ACCESS_TOKEN`.
    pub variable: String,
    /// The token as it was sent.
    pub raw: String,
    /// Its JOSE header (RFC 7515 section 4); empty for an opaque token.
    pub header: Vec<DevClaim>,
    /// Its claims (RFC 7519 section 4); empty for an opaque token.
    pub claims: Vec<DevClaim>,
}

/// A member of a JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevClaim {
    pub name: String,
    /// Its value: a text as it is, anything else as JSON.
    pub value: String,
    pub time: Option<String>,
}

impl DevClaim {
    /// What the claim says, in English as the standards do.
    fn explanation(&self) -> Option<&'static str> {
        Some(match self.name.as_str() {
            "acr" => "The level of the authentication",
            "amr" => "How the user authenticated (RFC 8176)",
            "at_hash" => "The hash of the access token (OpenID Connect Core 3.1.3.6)",
            "aud" => "Whom the token is for",
            "auth_time" => "When the user authenticated",
            "alg" => "The algorithm of the signature",
            "azp" | "client_id" => "The client that the token was issued to",
            "exp" => "When the token expires",
            "expires_in" => "How many seconds the access token lasts",
            "iat" => "When the token was issued",
            "iss" => "Who issued the token",
            "jti" => "The identifier of the token",
            "kid" => "The key of the signature, in the key set",
            "nonce" => "What the client sent with its request",
            "scope" => "What the token allows",
            "sid" => "The session of the user",
            "sub" => "The identifier of the user",
            "token_type" => "How the access token is sent",
            "typ" => "The kind of token",
            _ => return None,
        })
    }

    fn draw_all(claims: &[Self]) -> Markup {
        html! {
            dl.claims dir="ltr" {
                @for claim in claims {
                    dt { code title=[claim.explanation()] { (claim.name) } }
                    dd {
                        code { (claim.value) }
                        @if let Some(time) = &claim.time { " " span.note { (time) } }
                    }
                }
            }
        }
    }
}

impl DevTokens {
    /// The page with an ID token and an opaque one.
    pub fn sample() -> Self {
        let claim = |name: &str, value: &str| DevClaim {
            name: name.to_owned(),
            value: value.to_owned(),
            time: None,
        };
        let expires = DevClaim {
            time: Some("2026-11-27 09:30:00 UTC".to_owned()),
            ..claim("exp", "1795771800")
        };
        let issuer = "https://localhost:8443";
        Self {
            tokens: vec![
                DevToken {
                    title: "ID token".to_owned(),
                    variable: "ID_TOKEN".to_owned(),
                    raw: "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiIwMTk5ZjNhMiJ9.q7Hn0a".to_owned(),
                    header: vec![claim("alg", "ES256"), claim("kid", "2026-11")],
                    claims: vec![claim("iss", issuer), claim("sub", "0199f3a2"), expires],
                },
                DevToken {
                    title: "Refresh token".to_owned(),
                    variable: "REFRESH_TOKEN".to_owned(),
                    raw: "idsvc_rt_4lQ0bI2xQ9mN".to_owned(),
                    header: Vec::new(),
                    claims: Vec::new(),
                },
            ],
            response: vec![claim("token_type", "Bearer"), claim("expires_in", "86400")],
            commands: vec![(
                "UserInfo".to_owned(),
                format!(
                    "curl --insecure --header \"Authorization: Bearer $ACCESS_TOKEN\" {issuer}/oauth2/userinfo"
                ),
            )],
            sign_out_href: "/dev/sign-out".to_owned(),
        }
    }
}

impl Page for DevTokens {
    const NAME: &'static str = "tokens";
    const IS_ENGLISH: bool = true;

    fn title(&self, _text: &Text<'_>) -> String {
        "Tokens".to_owned()
    }

    fn body(&self, _text: &Text<'_>) -> Markup {
        html! {
            h1 { "Tokens" }
            p.lead { "This is what the example application received." }
            @for token in &self.tokens {
                section {
                    div.title-line {
                        h2 { (token.title) }
                        (copy_button(&token.variable))
                    }
                    @if !token.header.is_empty() {
                        h3 { "Header" }
                        (DevClaim::draw_all(&token.header))
                        h3 { "Claims" }
                        (DevClaim::draw_all(&token.claims))
                    }
                    details {
                        summary { "As it was sent" }
                        pre dir="ltr" { code id=(token.variable) { (token.raw) } }
                    }
                }
            }
            section {
                h2 { "Token response" }
                (DevClaim::draw_all(&self.response))
            }
            section {
                h2 { "Commands" }
                (draw_commands(&self.commands))
            }
            p.stack { a.button.button-quiet href=(self.sign_out_href) { "Sign out" } }
        }
    }

    fn script(&self) -> Option<File> {
        Some(File::Copy)
    }
}

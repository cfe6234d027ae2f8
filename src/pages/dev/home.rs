//! The first page of the development server.

use maud::{Markup, html};

use super::commands::draw_commands;
use crate::pages::asset::File;
use crate::pages::{Page, Text};

/// Says what the development server offers, and begins a sign-in.
#[derive(Clone, Debug)]
pub struct Home {
    /// Begins a sign-in with the example client.
    pub sign_in_href: String,
    /// The page of the example client as a device without a browser.
    pub device_href: String,
    /// The page with the mails, if mails are not sent.
    pub mail_href: Option<String>,
    /// The example user's name.
    pub user: String,
    /// The endpoints: name and address.
    pub endpoints: Vec<(String, String)>,
    /// Commands to begin with: what they do, and the text.
    pub commands: Vec<(String, String)>,
}

impl Home {
    /// The page with a few endpoints.
    pub fn sample() -> Self {
        let endpoint = |name: &str, path: &str| (name.to_owned(), format!("https://localhost:8443{path}"));
        Self {
            sign_in_href: "/dev/sign-in".to_owned(),
            device_href: "/dev/device".to_owned(),
            mail_href: Some("/dev/mail".to_owned()),
            user: "alice".to_owned(),
            endpoints: vec![
                endpoint("discovery", "/.well-known/openid-configuration"),
                endpoint("authorization_endpoint", "/oauth2/authorize"),
                endpoint("token_endpoint", "/oauth2/token"),
                endpoint("jwks_uri", "/oauth2/jwks"),
            ],
            commands: vec![(
                "Discovery".to_owned(),
                "curl --insecure https://localhost:8443/.well-known/openid-configuration".to_owned(),
            )],
        }
    }
}

impl Page for Home {
    const NAME: &'static str = "home";
    const IS_ENGLISH: bool = true;

    fn title(&self, _text: &Text<'_>) -> String {
        "Development server".to_owned()
    }

    fn body(&self, _text: &Text<'_>) -> Markup {
        html! {
            h1 { "Development server" }
            p.lead { "This server is for trying things out on this machine. It signs you in with an example application and shows the tokens." }
            p.note { "The example user is " bdi.name { (self.user) } "." }
            p.note { "The password was printed when the server started." }
            p.stack {
                a.button href=(self.sign_in_href) { "Sign in" }
                @if let Some(mails) = &self.mail_href { a.button.button-quiet href=(mails) { "Mails" } }
            }
            h2 { "Sign in on a device" }
            p.note { "Shows what a device without a browser shows: a code, and its address as a QR code." }
            p.stack { a.button.button-quiet href=(self.device_href) { "Sign in on a device" } }
            h2 { "Endpoints" }
            dl.facts {
                @for (name, address) in &self.endpoints {
                    dt { bdi { (name) } }
                    dd { code dir="ltr" { (address) } }
                }
            }
            h2 { "Commands" }
            (draw_commands(&self.commands))
        }
    }

    fn script(&self) -> Option<File> {
        Some(File::Copy)
    }
}

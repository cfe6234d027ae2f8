//! The first page of the development server.

use maud::{Markup, html};

use super::asset::File;
use super::dev_tokens::draw_commands;
use super::form::sentence;
use super::{Icon, Page, Text};

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
            h2 { (text.home_device) }
            p.note { (text.home_device_lead) }
            p.stack { a.button.button-quiet href=(self.device_href) { (text.home_device) } }
            h2 { (text.home_endpoints) }
            dl.facts {
                @for (name, address) in &self.endpoints {
                    dt { bdi { (name) } }
                    dd { code dir="ltr" { (address) } }
                }
            }
            h2 { (text.home_commands) }
            (draw_commands(&self.commands, text))
        }
    }

    fn script(&self) -> Option<File> {
        Some(File::Copy)
    }
}

/// A button that copies the text of the element with this id. The script [`File::Copy`] shows it.
pub(super) fn copy_button(id: &str, text: &Text<'_>) -> Markup {
    html! {
        button.button.button-quiet.button-small type="button" hidden data-copy=(id) data-copied=(text.copied) {
            (Icon::Copy.draw())
            span { (text.copy) }
        }
    }
}

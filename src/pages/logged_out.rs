//! The page after a sign-out without a redirect to a client.

use maud::{Markup, html};

use super::{Page, Text};

/// Says that the session has ended (OpenID Connect RP-Initiated Logout 1.0 section 2).
#[derive(Clone, Copy, Debug)]
pub struct LoggedOut {}

impl Page for LoggedOut {
    const NAME: &'static str = "logged-out";

    fn title(&self, text: &Text<'_>) -> String {
        text.logged_out_title.to_owned()
    }

    fn body(&self, text: &Text<'_>) -> Markup {
        html! {
            h1 { (text.logged_out_title) }
            p.lead { (text.logged_out_lead) }
        }
    }
}

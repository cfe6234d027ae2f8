//! The page of the development server that stands for a device without a browser.

use maud::{Markup, html};

use crate::pages::{Page, Text, qr};

/// Shows what a device shows (RFC 8628 section 3.3), until a person has decided.
#[derive(Clone, Debug)]
pub struct DevDevice {
    /// The code that the person types.
    pub user_code: String,
    /// Where the person types it.
    pub verification_uri: String,
    /// The same with the code, for the QR code.
    pub verification_uri_complete: String,
    /// The address of this page, which polls once more.
    pub again: String,
}

impl DevDevice {
    /// The page with a code.
    pub fn sample() -> Self {
        let verification_uri = "https://localhost:8443/device".to_owned();
        Self {
            user_code: "WDJB-MJHT".to_owned(),
            verification_uri_complete: format!("{verification_uri}?user_code=WDJB-MJHT"),
            verification_uri,
            again: "/dev/device?state=4lQ0bI2xQ9mN".to_owned(),
        }
    }
}

impl Page for DevDevice {
    const NAME: &'static str = "dev-device";
    const IS_ENGLISH: bool = true;

    fn title(&self, _text: &Text<'_>) -> String {
        "Sign in on a device".to_owned()
    }

    fn body(&self, _text: &Text<'_>) -> Markup {
        html! {
            h1 { "Sign in on a device" }
            p.lead { "Scan the code, or open the address and enter the code. This page shows the tokens once you have allowed the device." }
            (qr::draw(&self.verification_uri_complete))
            p.user-code dir="ltr" { (self.user_code) }
            p.note { a dir="ltr" href=(self.verification_uri_complete) { (self.verification_uri) } }
            p.stack { a.button.button-quiet href=(self.again) { "Try again" } }
        }
    }
}

//! What a person adds to an authenticator app, and the recovery codes that come with it.

use maud::{Markup, html};

use super::{Text, qr};

/// The key of an authenticator app that is being set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotpKey {
    pub sealed: String,
    /// What the QR code has in it.
    pub address: String,
    /// The key for people.
    pub seed: String,
}

impl TotpKey {
    /// A made-up key.
    pub fn sample() -> Self {
        Self {
            sealed: "AAAAAAEBb2Zma".to_owned(),
            address: "otpauth://totp/id%2Eexample:alice?secret=GEZDGNBVGY3TQOJQ".to_owned(),
            seed: "GEZD GNBV GY3T QOJQ".to_owned(),
        }
    }

    /// The QR code, and the key for those who type it.
    pub(super) fn draw(&self, text: &Text<'_>) -> Markup {
        html! {
            p.note { (text.totp_scan) }
            (qr::draw(&self.address))
            p.note { (text.totp_type) }
            p dir="ltr" { code { (self.seed) } }
        }
    }
}

pub(super) fn recovery_codes(codes: &[String], text: &Text<'_>) -> Markup {
    html! {
        p.note { (text.recovery_note) }
        ul.codes dir="ltr" { @for code in codes { li { code { (code) } } } }
        button.button.button-quiet type="button" hidden data-print { (text.recovery_print) }
    }
}

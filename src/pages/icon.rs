//! Line icons, drawn as SVG elements of the page. They are from Lucide (`assets/icons.LICENSE`), except
//! [`Icon::Passkey`].
//!
//! An icon is never the only name of a control, so readers of the screen are told nothing of it.

use maud::{Markup, html};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icon {
    /// A person, or the profile of one.
    Account,
    /// A place.
    Address,
    Application,
    /// Something that is granted.
    Check,
    /// Access that lasts.
    Clock,
    /// Copies a text.
    Copy,
    /// What is stored.
    Data,
    /// A computer.
    Desktop,
    /// An email address.
    Email,
    /// Groups of people.
    Groups,
    /// Who a person is.
    Identity,
    /// A password or another secret.
    Key,
    /// The language of the page.
    Languages,
    /// A passkey: a person and a key.
    Passkey,
    /// A telephone number.
    Phone,
    /// The security of an account.
    Security,
    /// A sign-in at a provider.
    SignIn,
    /// A telephone with a browser.
    Smartphone,
    Tablet,
    /// A browser of an unknown kind.
    Unknown,
    /// Something to know before a decision.
    Warning,
}

impl Icon {
    /// The strokes, as the attribute `d` of a path.
    fn shape(self) -> &'static str {
        match self {
            Self::Account => "M19 21v-2a4 4 0 0 0-4-4H9a4 4 0 0 0-4 4v2M8 7a4 4 0 1 0 8 0 4 4 0 1 0-8 0",
            Self::Address => {
                "M20 10c0 4.993-5.539 10.193-7.399 11.799a1 1 0 0 1-1.202 0C9.539 20.193 4 14.993 4 10a8 8 0 0 1 16 0M9 10a3 3 0 1 0 6 0 3 3 0 1 0-6 0"
            }
            Self::Application => {
                "M4 4h16a2 2 0 0 1 2 2v12a2 2 0 0 1 -2 2h-16a2 2 0 0 1 -2 -2v-12a2 2 0 0 1 2 -2zM10 4v4M2 8h20M6 4v4"
            }
            Self::Check => "M20 6 9 17l-5-5",
            Self::Clock => "M2 12a10 10 0 1 0 20 0 10 10 0 1 0-20 0M12 6v6l4 2",
            Self::Copy => {
                "M10 8h10a2 2 0 0 1 2 2v10a2 2 0 0 1 -2 2h-10a2 2 0 0 1 -2 -2v-10a2 2 0 0 1 2 -2zM4 16c-1.1 0-2-.9-2-2V4c0-1.1.9-2 2-2h10c1.1 0 2 .9 2 2"
            }
            Self::Data => "M3 5a9 3 0 1 0 18 0 9 3 0 1 0-18 0M3 5V19A9 3 0 0 0 21 19V5M3 12A9 3 0 0 0 21 12",
            Self::Desktop => {
                "M4 3h16a2 2 0 0 1 2 2v10a2 2 0 0 1 -2 2h-16a2 2 0 0 1 -2 -2v-10a2 2 0 0 1 2 -2zM8 21L16 21M12 17L12 21"
            }
            Self::Email => {
                "M22 7l-8.991 5.727a2 2 0 0 1-2.009 0L2 7M4 4h16a2 2 0 0 1 2 2v12a2 2 0 0 1 -2 2h-16a2 2 0 0 1 -2 -2v-12a2 2 0 0 1 2 -2z"
            }
            Self::Groups => {
                "M16 21v-2a4 4 0 0 0-4-4H6a4 4 0 0 0-4 4v2M16 3.128a4 4 0 0 1 0 7.744M22 21v-2a4 4 0 0 0-3-3.87M5 7a4 4 0 1 0 8 0 4 4 0 1 0-8 0"
            }
            Self::Identity => {
                "M13 19a4 4 0 00-8 0M16 10h2M16 14h2M6 12a3 3 0 1 0 6 0 3 3 0 1 0-6 0M4 5h16a2 2 0 0 1 2 2v10a2 2 0 0 1 -2 2h-16a2 2 0 0 1 -2 -2v-10a2 2 0 0 1 2 -2z"
            }
            Self::Key => {
                "M2.586 17.414A2 2 0 0 0 2 18.828V21a1 1 0 0 0 1 1h3a1 1 0 0 0 1-1v-1a1 1 0 0 1 1-1h1a1 1 0 0 0 1-1v-1a1 1 0 0 1 1-1h.172a2 2 0 0 0 1.414-.586l.814-.814a6.5 6.5 0 1 0-4-4zM16 7.5a0.5 0.5 0 1 0 1 0 0.5 0.5 0 1 0-1 0"
            }
            Self::Languages => "M5 8l6 6M4 14l6-6 2-3M2 5h12M7 2h1M22 22l-5-10-5 10M14 18h6",
            Self::Passkey => {
                "M5.5 7.5a3.5 3.5 0 1 0 7 0 3.5 3.5 0 1 0-7 0M2.5 20c.5-4 3-6 6.5-6 1.2 0 2.2.2 3.1.7M17.5 10.5a3 3 0 0 1 1.2 5.7V20l-1.2 1.2-1.2-1.2v-3.8a3 3 0 0 1 1.2-5.7z"
            }
            Self::Phone => {
                "M13.832 16.568a1 1 0 0 0 1.213-.303l.355-.465A2 2 0 0 1 17 15h3a2 2 0 0 1 2 2v3a2 2 0 0 1-2 2A18 18 0 0 1 2 4a2 2 0 0 1 2-2h3a2 2 0 0 1 2 2v3a2 2 0 0 1-.8 1.6l-.468.351a1 1 0 0 0-.292 1.233 14 14 0 0 0 6.392 6.384"
            }
            Self::Security => {
                "M20 13c0 5-3.5 7.5-7.66 8.95a1 1 0 0 1-.67-.01C7.5 20.5 4 18 4 13V6a1 1 0 0 1 1-1c2 0 4.5-1.2 6.24-2.72a1.17 1.17 0 0 1 1.52 0C14.51 3.81 17 5 19 5a1 1 0 0 1 1 1zM9 12l2 2 4-4"
            }
            Self::SignIn => "M10 17l5-5-5-5M15 12H3M15 3h4a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2h-4",
            Self::Smartphone => {
                "M7 2h10a2 2 0 0 1 2 2v16a2 2 0 0 1 -2 2h-10a2 2 0 0 1 -2 -2v-16a2 2 0 0 1 2 -2zM12 18h.01"
            }
            Self::Tablet => {
                "M6 2h12a2 2 0 0 1 2 2v16a2 2 0 0 1 -2 2h-12a2 2 0 0 1 -2 -2v-16a2 2 0 0 1 2 -2zM12 18L12.01 18"
            }
            Self::Unknown => {
                "M2 12a10 10 0 1 0 20 0 10 10 0 1 0-20 0M12 2a14.5 14.5 0 0 0 0 20 14.5 14.5 0 0 0 0-20M2 12h20"
            }
            Self::Warning => {
                "M21.73 18l-8-14a2 2 0 0 0-3.48 0l-8 14A2 2 0 0 0 4 21h16a2 2 0 0 0 1.73-3M12 9v4M12 17h.01"
            }
        }
    }

    pub fn draw(self) -> Markup {
        html! {
            svg.icon viewBox="0 0 24 24" aria-hidden="true" { path d=(self.shape()) {} }
        }
    }
}

//! The sections of the account page, each with an address of its own.

use maud::{Markup, html};
use minijinja::Value;

use super::{Icon, Text};

/// A section of the account page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountSection {
    /// The names of the user, and the language.
    Profile,
    /// The form for a new password.
    Password,
    /// The factors of the user.
    Security,
    /// The sessions.
    Devices,
    /// The applications with access to the account.
    Applications,
    /// The account as a whole.
    Data,
}

impl AccountSection {
    /// Every section, in the order of the page.
    pub const ALL: [Self; 6] = [
        Self::Profile,
        Self::Password,
        Self::Security,
        Self::Devices,
        Self::Applications,
        Self::Data,
    ];

    /// The word that templates can compare, and the end of its address.
    pub fn name(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Password => "password",
            Self::Security => "security",
            Self::Devices => "devices",
            Self::Applications => "applications",
            Self::Data => "data",
        }
    }

    fn icon(self) -> Icon {
        match self {
            Self::Profile => Icon::Account,
            Self::Password => Icon::Key,
            Self::Security => Icon::Security,
            Self::Devices => Icon::Desktop,
            Self::Applications => Icon::Application,
            Self::Data => Icon::Data,
        }
    }

    /// Its name for people.
    pub fn label<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::Profile => text.account_profile,
            Self::Password => text.password,
            Self::Security => text.account_security,
            Self::Devices => text.account_devices,
            Self::Applications => text.account_apps,
            Self::Data => text.account_data,
        }
    }
}

/// A link to a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionLink {
    /// The section.
    pub section: AccountSection,
    /// Its address.
    pub href: String,
}

impl SectionLink {
    /// Draws the list of sections. Themes that were written before there were sections have all of them on one page, so
    /// the links are optional.
    pub fn draw_all(links: &[Self], current: AccountSection, text: &Text<'_>) -> Markup {
        html! {
            nav.sections aria-label=(text.account_title) {
                @for link in links {
                    @let here = (link.section == current).then_some("page");
                    a href=(link.href) aria-current=[here] data-optional {
                        (link.section.icon().draw())
                        (link.section.label(text))
                    }
                }
            }
        }
    }

    pub fn template_fields(&self, current: AccountSection, text: &Text<'_>) -> [(&'static str, Value); 4] {
        [
            ("name", Value::from(self.section.name())),
            ("href", Value::from(self.href.as_str())),
            ("text", Value::from(self.section.label(text))),
            ("is_current", Value::from(self.section == current)),
        ]
    }
}

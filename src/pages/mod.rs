//! The pages for people: one struct for each page, the texts, and the assets they load.
//!
//! A page is drawn from its fields only. The pages work without scripts, from 320 pixels of width, in light and dark, from
//! left to right and from right to left.

pub mod account;
mod account_lines;
pub mod account_notice;
mod account_samples;
pub mod account_section;
pub mod address_form;
pub mod asset;
pub mod check_mail;
pub mod choose_password;
pub mod confirm_link;
pub mod consent;
pub mod dev;
pub mod device;
pub mod device_decision;
pub mod error;
pub mod form;
pub mod form_post;
pub mod icon;
pub mod language;
pub mod locale;
pub mod logged_out;
pub mod login;
pub mod logout;
pub mod mail;
pub mod mark;
pub mod moment;
pub mod no_access;
pub mod passkey;
pub mod passkey_offer;
pub mod proof;
mod qr;
pub mod second_factor;
pub mod security;
pub mod self_service;
pub mod template_context;
pub mod text;
pub mod totp_key;

#[cfg(test)]
mod tests;

use maud::Markup;

pub use self::account::Account;
pub use self::account_lines::{ApplicationLine, LauncherLine, SessionLine};
pub use self::account_notice::AccountNotice;
pub use self::account_section::{AccountSection, SectionLink};
pub use self::address_form::{AddressForm, AddressProblem, MailPurpose};
pub use self::check_mail::{CheckMail, CodeProblem};
pub use self::choose_password::{ChoiceProblem, ChoosePassword};
pub use self::confirm_link::{ConfirmLink, LinkAction};
pub use self::consent::{Consent, ScopeLine};
pub use self::device::{Device, DeviceProblem};
pub use self::device_decision::DeviceDecision;
pub use self::error::{ErrorKind, ErrorPage};
pub use self::form::{ApplicationLink, Person};
pub use self::form_post::FormPost;
pub use self::icon::Icon;
pub use self::locale::Locale;
pub use self::logged_out::LoggedOut;
pub use self::login::{Login, LoginProblem, ProviderChoice};
pub use self::logout::LogoutConfirm;
pub use self::mark::Mark;
pub use self::moment::Moment;
pub use self::no_access::NoAccess;
pub use self::passkey::{PasskeyRequest, PasskeySection};
pub use self::passkey_offer::PasskeyOffer;
pub use self::proof::{PasskeyProofRequest, ProofRequest};
pub use self::second_factor::{SecondFactor, SecondFactorProblem};
pub use self::security::Security;
pub use self::self_service::SelfService;
pub use self::template_context::TemplateContext;
pub use self::text::Text;

/// The address that shows a page again.
#[derive(Clone, Debug)]
pub struct PageAddress<'a> {
    pub path: &'a str,
    pub parameters: Vec<(&'a str, &'a str)>,
}

/// A page, ready to be drawn.
pub trait Page {
    /// The name of the page. Its `main` element has the class `page-NAME`, and a theme's template for it is `NAME.html`.
    const NAME: &'static str;

    /// Whether the page is in English for every reader.
    const IS_ENGLISH: bool = false;

    /// The title, without the product's name.
    fn title(&self, text: &Text<'_>) -> String;

    /// The content of the page's `main` element.
    fn body(&self, text: &Text<'_>) -> Markup;

    /// Adds the finished parts and raw fields of this page for templates. Those of every page are added elsewhere.
    fn fill_context(&self, _text: &Text<'_>, _context: &mut TemplateContext) {}

    /// Where a theme may have further forms of this page sent to.
    fn own_address(&self) -> Option<&str> {
        None
    }

    /// The address that shows the page again, in another language.
    fn address(&self) -> Option<PageAddress<'_>> {
        None
    }

    /// The script that the page loads, if it needs one.
    fn script(&self) -> Option<asset::File> {
        None
    }
}

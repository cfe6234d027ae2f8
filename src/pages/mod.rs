//! What people see: one struct for each page, one layout around them, and the assets they load.
//!
//! Every field is decided before a page is drawn. The pages work without scripts, from 320 pixels of width,
//! in light and dark, from left to right and from right to left.

pub mod account;
pub mod asset;
pub mod consent;
pub mod error;
pub mod form;
pub mod form_post;
pub mod home;
pub mod language;
pub mod locale;
pub mod logged_out;
pub mod login;
pub mod logout;
pub mod template_context;
pub mod text;

#[cfg(test)]
mod tests;

use maud::Markup;

pub use self::account::{Account, AccountNotice, ApplicationLine, SessionLine};
pub use self::consent::{Consent, ScopeLine};
pub use self::error::{ErrorPage, Heading};
pub use self::form::Person;
pub use self::form_post::FormPost;
pub use self::home::{DevToken, DevTokens, Home};
pub use self::locale::Locale;
pub use self::logged_out::LoggedOut;
pub use self::login::{Login, LoginProblem, ProviderChoice};
pub use self::logout::LogoutConfirm;
pub use self::template_context::TemplateContext;
pub use self::text::Text;

/// A page, ready to be drawn.
pub trait Page {
    /// Names the page: its `main` element has the class `page-` and this, a theme's own template for it is this
    /// and `.html`.
    const NAME: &'static str;

    /// What the browser shows as the page's title, before the product's name.
    fn title(&self, text: &Text<'_>) -> String;

    /// What stands inside the page's `main` element.
    fn body(&self, text: &Text<'_>) -> Markup;

    /// The finished parts and raw fields that a template of this page is given beside those that every page has.
    fn slots(&self, _text: &Text<'_>, _slots: &mut TemplateContext) {}

    /// The script that the page loads, if it needs one.
    fn script(&self) -> Option<asset::File> {
        None
    }
}

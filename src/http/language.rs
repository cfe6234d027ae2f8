//! The language that a reader chose below a page.

use ::http::Method;

use super::context::RequestContext;
use super::cookie::{self, Cookie};
use super::response::HttpResponse;
use crate::pages::locale::LANGUAGE;
use crate::route::{Route, strip_issuer_path};
use crate::themes::Theme;

/// Marks in the cookie a language that was chosen below a page. It counts before those that a client asks for: the reader
/// chose it on a page of that client. A language from the account page counts after them.
const FIRST: char = '!';

/// The longest address that an error page repeats.
const MAX_REPEATED: usize = 4_096;

/// The language that a browser keeps.
#[derive(Clone, Copy)]
pub(super) struct KeptLanguage<'a> {
    pub(super) tag: &'a str,
    /// Whether it counts before those that a client asks for.
    pub(super) is_first: bool,
}

impl RequestContext {
    /// The tag of the language that was chosen below this page, if the theme has it.
    pub(super) fn chosen_language(&self, theme: &Theme) -> Option<String> {
        if !matches!(*self.method(), Method::GET | Method::HEAD) {
            return None;
        }
        let query = self.query().ok()?;
        let chosen = query.get(LANGUAGE)?;
        let known = theme.locales().iter().find(|locale| locale.tag() == chosen)?;
        Some(known.tag().to_owned())
    }

    /// The path and the login transaction of this request, if an error page can be shown again in another language: the page
    /// is one of a sign-in, or there is none at this address. A request of an application is not repeated in a page.
    pub(super) fn own_page(&self) -> Option<(String, Option<String>)> {
        let address = self
            .own_address()
            .filter(|address| address.len() <= MAX_REPEATED)?;
        let (path, _) = address.split_once('?').unwrap_or((&address, ""));
        let query = self.query().ok()?;
        let transaction = query.get("transaction").map(ToOwned::to_owned);
        let route = strip_issuer_path(&self.app.issuer_path, path).and_then(Route::recognise);
        let is_own = match route {
            None | Some(Route::Error) => true,
            Some(Route::Authorize | Route::EndSession) => false,
            Some(_) => transaction.is_some(),
        };
        is_own.then(|| (path.to_owned(), transaction))
    }

    /// Keeps the chosen language in the browser.
    pub(super) fn keep_language(&self, theme: &Theme, answer: &mut HttpResponse) {
        if let Some(tag) = self.chosen_language(theme) {
            let value = format!("{tag}{FIRST}");
            cookie::append(answer, self.set_cookie(Cookie::Language, &value));
        }
    }

    /// The language that this browser keeps.
    pub(super) fn kept_language(&self) -> Option<KeptLanguage<'_>> {
        let value = self.cookie(Cookie::Language)?;
        let tag = value.strip_suffix(FIRST);
        Some(KeptLanguage {
            tag: tag.unwrap_or(value),
            is_first: tag.is_some(),
        })
    }
}

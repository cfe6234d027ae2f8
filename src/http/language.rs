//! The language that a reader chose below a page.

use ::http::Method;

use super::context::RequestContext;
use super::cookie::{A_YEAR, Cookie};
use super::response::HttpResponse;
use super::screen::browser_redirect::append_cookie;
use crate::pages::locale::LANGUAGE;
use crate::themes::Theme;

/// Marks in the cookie a language that was chosen below a page. It counts before those that a client asks for: the reader
/// chose it on a page of that client. A language from the account page counts after them.
const FIRST: char = '!';

impl RequestContext {
    /// The tag of the language that was chosen below this page, if the theme has it.
    pub(super) fn chosen_language(&self, theme: &Theme) -> Option<String> {
        if self.method() != Method::GET {
            return None;
        }
        let query = self.query().ok()?;
        let chosen = query.get(LANGUAGE)?;
        let known = theme.locales().iter().find(|locale| locale.tag() == chosen)?;
        Some(known.tag().to_owned())
    }

    /// Keeps the chosen language in the browser.
    pub(super) fn keep_language(&self, theme: &Theme, answer: &mut HttpResponse) {
        if let Some(tag) = self.chosen_language(theme) {
            let value = format!("{tag}{FIRST}");
            append_cookie(answer, Cookie::Language.set(&value, Some(A_YEAR)));
        }
    }

    /// The language that this browser keeps, and whether it counts before those that a client asks for.
    pub(super) fn kept_language(&self) -> Option<(&str, bool)> {
        let value = self.cookie(Cookie::Language)?;
        let tag = value.strip_suffix(FIRST);
        Some((tag.unwrap_or(value), tag.is_some()))
    }
}

//! The cookies of this service. Their names end in its suffix, or are those of earlier releases once.
//!
//! Earlier releases had the same names for all services on a host. If the browser sends a cookie only under its old
//! name, it is read, and the answer sets it under its new name. The old cookie stays, because it may be that of another
//! service. A removal also removes the old cookie if it has the same value.

use std::time::Duration;

use ::http::header::{CACHE_CONTROL, HeaderValue, SET_COOKIE};

use super::context::RequestContext;
use super::cookie::{self, A_YEAR, Cookie};
use super::response::HttpResponse;

impl RequestContext {
    /// A cookie's value.
    pub fn cookie(&self, cookie: Cookie) -> Option<&str> {
        cookie.read(self.headers(), self.suffix_sent(cookie))
    }

    /// The suffix under which the browser sent the cookie.
    fn suffix_sent(&self, cookie: Cookie) -> &str {
        let suffix = &self.app.cookie_suffix;
        if cookie.is_present(self.headers(), suffix) {
            suffix
        } else {
            ""
        }
    }

    /// A `Set-Cookie` value; see [`cookie::set_cookie`].
    pub fn set_cookie(&self, cookie: Cookie, value: &str, max_age: Option<Duration>) -> Option<HeaderValue> {
        cookie.set(&self.app.cookie_suffix, value, max_age)
    }

    /// Makes the browser forget a cookie.
    pub fn remove_cookie(&self, cookie: Cookie, answer: &mut HttpResponse) {
        cookie::append(answer, cookie.removal(&self.app.cookie_suffix));
        let old = cookie.read(self.headers(), "");
        let is_same = old.is_some() && old == self.cookie(cookie);
        if !self.app.cookie_suffix.is_empty() && is_same {
            cookie::append(answer, cookie.removal(""));
        }
    }

    /// Sets the cookies that the browser sent under their old names under the new ones, unless the answer sets them
    /// already.
    pub(super) fn rename_cookies(&self, answer: &mut HttpResponse) {
        let suffix = &self.app.cookie_suffix;
        let cache_control = answer.headers().get(CACHE_CONTROL);
        // A cache may keep an answer that may be stored, and would give its cookies to other users.
        if suffix.is_empty() || cache_control.is_none_or(|value| value != "no-store") {
            return;
        }
        for cookie in Cookie::ALL {
            let is_old = self.suffix_sent(cookie).is_empty();
            let Some(value) = self.cookie(cookie).filter(|_| is_old) else {
                continue;
            };
            let name = format!("{}{suffix}=", cookie.name());
            let mut set = answer.headers().get_all(SET_COOKIE).iter();
            if !set.any(|line| line.as_bytes().starts_with(name.as_bytes())) {
                let max_age = (cookie != Cookie::Session).then_some(A_YEAR);
                cookie::append(answer, self.set_cookie(cookie, value, max_age));
            }
        }
    }
}

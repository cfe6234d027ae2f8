//! The cookies of this service. Their names end in its suffix, or are those of earlier releases once.
//!
//! Earlier releases had the same names for all services of a host. What a browser sent only under such a name is read, and
//! the answer gives it the new name. The old cookie stays: it may be that of another service. A sign-out removes it if it
//! is the session that ends.

use std::time::Duration;

use ::http::header::{CACHE_CONTROL, HeaderValue, SET_COOKIE};

use super::context::RequestContext;
use super::cookie::{self, Cookie};
use super::response::HttpResponse;

const A_YEAR: Duration = Duration::from_hours(365 * 24);
const THIRTY_DAYS: Duration = Duration::from_hours(30 * 24);

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
    pub fn set_cookie(&self, cookie: Cookie, value: &str) -> Option<HeaderValue> {
        cookie.set(&self.app.cookie_suffix, value, self.lifetime_of(cookie))
    }

    /// How long a browser keeps the cookie. `None` until the browser ends.
    fn lifetime_of(&self, cookie: Cookie) -> Option<Duration> {
        match cookie {
            Cookie::Session => None,
            Cookie::Browser | Cookie::Device | Cookie::Language => Some(A_YEAR),
            Cookie::RememberedUsers => self.app.core.policy.accounts.remember_device,
            Cookie::PasskeyOffer => Some(THIRTY_DAYS),
        }
    }

    /// Makes the browser forget a cookie. One under the old name is left to the service that it is of.
    pub fn remove_own_cookie(&self, cookie: Cookie, answer: &mut HttpResponse) {
        cookie::append(answer, cookie.removal(&self.app.cookie_suffix));
    }

    /// Makes the browser forget a cookie that this service has set, also under its old name.
    pub fn remove_cookie(&self, cookie: Cookie, answer: &mut HttpResponse) {
        self.remove_own_cookie(cookie, answer);
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
                cookie::append(answer, self.set_cookie(cookie, value));
            }
        }
    }
}

//! The cookies (RFC 6265). Their names begin with `__Host-`, so no other host or plain connection can set or read them.
//!
//! Cookies know neither port nor path (RFC 6265 section 8.5). So if the issuer has a port or a path, the names end in a
//! suffix of the service ([`super::service_cookies`]).

use std::time::Duration;

use http::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};

use super::response::HttpResponse;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookie {
    /// The user's session.
    Session,
    /// Binds a sign-in under way to one browser. It survives a restart of the browser. Without it, each of several restored
    /// tabs would get a cookie of its own, and only the last would keep its sign-in.
    Browser,
    /// Says which users have signed in in this browser before.
    Device,
    /// Says which users asked not to answer the second step in this browser again.
    RememberedUsers,
    /// The language that the user chose for the pages. It overrides the one that the browser prefers.
    Language,
    /// The user declined the offer of a passkey in this browser. It is made again when the cookie ends.
    PasskeyOffer,
}

impl Cookie {
    pub const ALL: [Self; 6] = [
        Self::Session,
        Self::Browser,
        Self::Device,
        Self::RememberedUsers,
        Self::Language,
        Self::PasskeyOffer,
    ];

    /// The name, without the suffix of the service ([`App::cookie_suffix`](crate::app::App::cookie_suffix)).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "__Host-idsvc_session",
            Self::Browser => "__Host-idsvc_browser",
            Self::Device => "__Host-idsvc_known",
            Self::RememberedUsers => "__Host-idsvc_remembered",
            Self::Language => "__Host-idsvc_language",
            Self::PasskeyOffer => "__Host-idsvc_passkey_offer",
        }
    }

    /// As [`set_cookie`].
    pub fn set(self, suffix: &str, value: &str, max_age: Option<Duration>) -> Option<HeaderValue> {
        set_cookie(&format!("{}{suffix}", self.name()), value, max_age)
    }

    /// A `Set-Cookie` value that makes the browser forget the cookie.
    pub fn removal(self, suffix: &str) -> Option<HeaderValue> {
        self.set(suffix, "", Some(Duration::ZERO))
    }

    /// The value that the browser sent. Two different values are a sign of an attack: then the cookie is ignored.
    pub fn read<'h>(self, headers: &'h HeaderMap, suffix: &str) -> Option<&'h str> {
        let mut values = self.values(headers, suffix);
        let value = values.next()?;
        let is_unique = values.all(|other| other == value);
        (is_unique && !value.is_empty()).then_some(value)
    }

    /// Whether the browser sent the cookie with this suffix, with any value.
    pub fn is_present(self, headers: &HeaderMap, suffix: &str) -> bool {
        self.values(headers, suffix).next().is_some()
    }

    fn values<'h>(self, headers: &'h HeaderMap, suffix: &str) -> impl Iterator<Item = &'h str> {
        pairs(headers)
            .filter(move |(name, _)| name.strip_prefix(self.name()) == Some(suffix))
            .map(|(_, value)| value)
    }
}

/// A `Set-Cookie` value; without `max_age` the cookie ends with the browser. `None` when `value` has characters that a
/// cookie cannot have (RFC 6265 section 4.1.1).
pub fn set_cookie(name: &str, value: &str, max_age: Option<Duration>) -> Option<HeaderValue> {
    if !value.bytes().all(is_cookie_octet) {
        return None;
    }
    let age = max_age.map_or_else(String::new, |age| format!("; Max-Age={}", age.as_secs()));
    let text = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax{age}");
    let mut header = HeaderValue::from_str(&text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Adds a `Set-Cookie` header, if there is a value.
pub fn append(answer: &mut HttpResponse, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// The names and values of all cookies. HTTP/2 may split the header (RFC 9113 section 8.2.3).
pub fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(';'))
        .filter_map(|pair| pair.trim_matches([' ', '\t']).split_once('='))
}

fn is_cookie_octet(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(lines: &[&'static str]) -> HeaderMap {
        lines
            .iter()
            .map(|line| (COOKIE, HeaderValue::from_static(line)))
            .collect()
    }

    #[test]
    fn a_cookie_is_set_for_this_host_only_and_out_of_the_reach_of_scripts() {
        let header = Cookie::Session
            .set("", "idsvc_se_abc-_", Some(Duration::from_hours(1)))
            .unwrap();
        assert_eq!(
            header.to_str().unwrap(),
            "__Host-idsvc_session=idsvc_se_abc-_; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=3600"
        );
        assert!(header.is_sensitive());
        let browser = Cookie::Browser.set("_1f2e3d4c", "x", None).unwrap();
        assert_eq!(
            browser,
            "__Host-idsvc_browser_1f2e3d4c=x; Path=/; Secure; HttpOnly; SameSite=Lax"
        );
    }

    #[test]
    fn a_value_cannot_add_attributes() {
        for value in [
            "a; Domain=example.com",
            "a,b",
            "a b",
            "a\"",
            "a\r\nX: y",
            "\u{e9}",
        ] {
            assert_eq!(Cookie::Session.set("", value, None), None, "{value:?}");
        }
    }

    #[test]
    fn a_removal_names_the_cookie_it_removes() {
        for cookie in Cookie::ALL {
            let text = format!(
                "{}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0",
                cookie.name()
            );
            assert_eq!(cookie.removal("").unwrap(), text);
        }
    }

    #[test]
    fn a_cookie_is_found_among_others_and_in_several_headers() {
        let headers = sent(&["a=1;b=\"2\"; =; junk", "__Host-idsvc_browser=yes==; c=3"]);
        assert_eq!(Cookie::Browser.read(&headers, ""), Some("yes=="));
        assert_eq!(Cookie::Session.read(&headers, ""), None);
    }

    #[test]
    fn two_different_values_are_none() {
        let one = "__Host-idsvc_session=1";
        assert_eq!(Cookie::Session.read(&sent(&[one, one]), ""), Some("1"));
        assert_eq!(
            Cookie::Session.read(&sent(&[one, "__Host-idsvc_session=2"]), ""),
            None
        );
        assert_eq!(
            Cookie::Session.read(&sent(&["__Host-idsvc_session=1; __Host-idsvc_session=2"]), ""),
            None
        );
        assert_eq!(Cookie::Session.read(&sent(&["__Host-idsvc_session="]), ""), None);
        assert_eq!(Cookie::Session.read(&sent(&["__host-idsvc_session=1"]), ""), None);
    }

    #[test]
    fn a_cookie_with_another_suffix_is_another_one() {
        let headers = sent(&["__Host-idsvc_session=1; __Host-idsvc_session_1f2e3d4c=2"]);
        assert_eq!(Cookie::Session.read(&headers, ""), Some("1"));
        assert_eq!(Cookie::Session.read(&headers, "_1f2e3d4c"), Some("2"));
        assert_eq!(Cookie::Session.read(&headers, "_00000000"), None);
        assert!(!Cookie::Session.is_present(&headers, "_00000000"));
    }
}

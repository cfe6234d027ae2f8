//! Redirect URIs: what may be registered, and what a request's one is matched with.
//!
//! RFC 6749 section 3.1.2, RFC 9700 section 2.1, RFC 8252 section 7. The match is equality of strings; the
//! one exception is the port of a loopback address literal, which a native application learns
//! only when it starts.

use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// A redirect URI that a client has registered: from here on an error may be sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnTo {
    uri: String,
    explicit: bool,
}

impl ReturnTo {
    /// The address, byte for byte as the request gave it, or as registered when it gave none.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Whether the request named it, so that the token request must name it again (RFC 6749 4.1.3).
    pub fn was_explicit(&self) -> bool {
        self.explicit
    }
}

/// The request's redirect URI is not one of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The request names none and the client has not exactly one.
    #[error("redirect_uri is missing")]
    Missing,
    /// The request names one that is not registered.
    #[error("redirect_uri is not registered for this client")]
    Unregistered,
}

/// Matches a request's redirect URI with the registered ones.
pub(crate) fn select(
    registered: &[String],
    requested: Option<&str>,
    loopback_port_may_differ: bool,
) -> Result<ReturnTo, Mismatch> {
    let Some(requested) = requested else {
        return match registered {
            [only] => Ok(ReturnTo {
                uri: only.clone(),
                explicit: false,
            }),
            _ => Err(Mismatch::Missing),
        };
    };
    let matches = registered
        .iter()
        .any(|uri| uri == requested || (loopback_port_may_differ && differ_in_loopback_port(uri, requested)));
    if matches {
        Ok(ReturnTo {
            uri: requested.to_owned(),
            explicit: true,
        })
    } else {
        Err(Mismatch::Unregistered)
    }
}

/// RFC 8252 section 7.3: `http` on `127.0.0.1` or `[::1]`, alike in everything but the port.
fn differ_in_loopback_port(registered: &str, requested: &str) -> bool {
    fn parts(uri: &str) -> Option<(&str, &str)> {
        let rest = uri.strip_prefix("http://")?;
        let (host, rest) = ["127.0.0.1", "[::1]"]
            .into_iter()
            .find_map(|host| rest.strip_prefix(host).map(|rest| (host, rest)))?;
        let end = rest.find(['/', '?', '#', '\\', '@']).unwrap_or(rest.len());
        let (port, path) = rest.split_at_checked(end)?;
        let plausible = match port.strip_prefix(':') {
            None => port.is_empty(),
            Some(digits) => digits.parse::<u16>().is_ok() && digits.bytes().all(|b| b.is_ascii_digit()),
        };
        (plausible && !path.starts_with(['\\', '@'])).then_some((host, path))
    }
    matches!((parts(registered), parts(requested)), (Some(one), Some(other)) if one == other)
}

/// Why a redirect URI cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unregistrable {
    /// Not an absolute URI.
    #[error("a redirect URI is an absolute URI such as https://app.example/callback")]
    NotAbsolute,
    /// It has a fragment (RFC 6749 section 3.1.2).
    #[error("a redirect URI has no fragment")]
    Fragment,
    /// Plain http to a host that is not this machine.
    #[error("a redirect URI uses https; plain http is for loopback addresses only")]
    PlainHttp,
    /// A user name, white space or control character in it.
    #[error("a redirect URI has no user name, white space or control characters")]
    Unsafe,
    /// A `*` in it, which would stand for itself and nothing else.
    #[error("redirect URIs are compared character for character, without wildcards: name each one")]
    Wildcard,
    /// A parameter in its query that answers have (RFC 6749 section 3.1).
    #[error("its query has the parameter {0}, which answers add: it would be there twice")]
    Parameter(&'static str),
    /// A scheme that is never an application's own.
    #[error("this scheme cannot be redirected to")]
    Scheme,
    /// A private-use scheme for a confidential client.
    #[error("private-use schemes are for public clients (RFC 8252); use https")]
    PrivateUse,
}

/// What an answer to an authorization request may add to a redirect URI: RFC 6749 section 4.1.2, RFC 9207 section 2,
/// and `response` of JARM section 2.3.
pub const ANSWERED: &[&str] = &[
    "code",
    "state",
    "iss",
    "error",
    "error_description",
    "error_uri",
    "response",
];

/// What is added to a redirect URI after signing out (OpenID Connect RP-Initiated Logout section 3).
pub const SIGNED_OUT: &[&str] = &["state"];

/// Whether the query of `uri` leaves the parameters to the answers that `added` names: no parameter is there more than
/// once (RFC 6749 section 3.1).
pub fn check_query(uri: &str, added: &[&'static str]) -> Result<(), Unregistrable> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let taken = form_urlencoded::parse(query.as_bytes())
        .find_map(|(name, _)| added.iter().copied().find(|added| *added == name));
    taken.map_or(Ok(()), |name| Err(Unregistrable::Parameter(name)))
}

/// Schemes that are never an application's own: browsers run or show what they name, it is a file, or other programs of
/// the device are there for it.
const TAKEN: &str = "\
    about blob callto chrome cid content data facetime file filesystem ftp ftps geo gopher imap \
    intent irc ircs jar javascript ldap ldaps magnet mailto mid mms news nfs nntp resource rtsp \
    sftp sip sips smb sms ssh tel telnet urn vbscript view-source vnc webcal ws wss xmpp";

/// Whether `uri` may be registered. Private-use schemes (RFC 8252 section 7.1) only for public clients.
pub fn check_registrable(uri: &str, public: bool) -> Result<(), Unregistrable> {
    if uri
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || !c.is_ascii() || c == '\\')
    {
        return Err(Unregistrable::Unsafe);
    }
    if uri.contains('*') {
        return Err(Unregistrable::Wildcard);
    }
    if uri.contains('#') {
        return Err(Unregistrable::Fragment);
    }
    let parsed = Url::parse(uri).map_err(|_| Unregistrable::NotAbsolute)?;
    let authority = authority(uri);
    if parsed.is_special() && authority.is_none_or(str::is_empty) {
        return Err(Unregistrable::NotAbsolute);
    }
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(Unregistrable::Unsafe);
    }
    match parsed.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(&parsed) => Ok(()),
        "http" => Err(Unregistrable::PlainHttp),
        scheme if TAKEN.split(' ').any(|taken| taken == scheme) => Err(Unregistrable::Scheme),
        _ if public => Ok(()),
        _ => Err(Unregistrable::PrivateUse),
    }
}

/// Whether nobody else has a claim to the scheme of `uri`: one of the web, or a private-use one that is named after a
/// domain, for which it takes a dot (RFC 8252 sections 7.1 and 8.4). Any other may be taken by any application on the
/// same device.
pub(crate) fn is_private_by_name(uri: &str) -> bool {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.contains('.')
        || ["http", "https"]
            .iter()
            .any(|web| scheme.eq_ignore_ascii_case(web))
}

/// RFC 3986 section 3.2, as it is written: [`Url`] forgets a user name that is empty, and finds a host in `https:host`
/// and `https:/host` too, which browsers take for a path of the page that they are on.
fn authority(uri: &str) -> Option<&str> {
    let (_, after) = uri.split_once(':')?;
    after.strip_prefix("//")?.split(['/', '?']).next()
}

/// Whether the host of an address is this machine, the names below `localhost` among them (RFC 6761 section 6.3).
pub(crate) fn is_on_this_machine(url: &Url) -> bool {
    is_loopback(url) || url.domain().is_some_and(|name| name.ends_with(".localhost"))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// The origin (RFC 6454) of a redirect URI: scheme, host and port. One of a private-use scheme has none unless there is a
/// host in it; the browser in an application sends that as it stands.
pub(crate) fn origin(uri: &str) -> Option<String> {
    let url = Url::parse(uri).ok()?;
    if url.is_special() {
        return matches!(url.scheme(), "http" | "https").then(|| url.origin().ascii_serialization());
    }
    let host = authority(uri).filter(|host| !host.is_empty())?;
    Some(format!("{}://{}", url.scheme(), host.to_ascii_lowercase()))
}

/// Whether scripts of this origin may be let in: it is written as browsers send it, and is one origin.
pub(crate) fn is_origin(text: &str) -> bool {
    let is_plain_http = text.starts_with("http://");
    origin(text).is_some_and(|origin| origin == text)
        && !text.contains(['*', '@'])
        && (is_plain_http || check_registrable(text, true).is_ok())
}

/// `uri` with parameters added to its query; a query it was registered with is kept (RFC 6749 3.1.2).
pub fn with_query(uri: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        query.append_pair(name, value);
    }
    let query = query.finish();
    if query.is_empty() {
        return uri.to_owned();
    }
    let joint = match uri.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some((_, existing)) if existing.ends_with('&') => "",
        Some(_) => "&",
    };
    format!("{uri}{joint}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select_one(registered: &str, requested: &str) -> Result<ReturnTo, Mismatch> {
        select(&[registered.to_owned()], Some(requested), true)
    }

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for origin in [
            "https://app.example",
            "https://app.example:8443",
            "http://intranet",
            "http://[::1]:3000",
            "capacitor://localhost",
            "tauri://localhost",
            "app://.",
            "chrome-extension://abcdefghijklmnop",
        ] {
            assert!(is_origin(origin), "{origin}");
        }
        for other in [
            "https://*.app.example",
            "http://*.intranet",
            "capacitor://*",
            "https://app.example/",
            "https://app.example:443",
            "https://APP.example",
            "https://me@app.example",
            "capacitor://localhost/",
            "capacitor://me@localhost",
            "CAPACITOR://localhost",
            "capacitor://",
            "com.example.app:",
            "javascript://localhost",
            "ftp://app.example",
            "app.example",
            "null",
            "*",
            "",
        ] {
            assert!(!is_origin(other), "{other}");
        }
        for (uri, its) in [
            ("capacitor://localhost/cb?a=b", Some("capacitor://localhost")),
            ("com.example.app:/cb", None),
            ("com.example.app:///cb", None),
            ("https://app.example:443/cb", Some("https://app.example")),
        ] {
            assert_eq!(origin(uri).as_deref(), its, "{uri}");
        }
    }

    #[test]
    fn only_an_equal_string_matches() {
        let registered = "https://app.example/cb?tenant=1";
        assert!(select_one(registered, registered).is_ok());
        for other in [
            "https://app.example/cb",
            "https://app.example/cb?tenant=1&x=2",
            "https://app.example/cb?tenant=1/",
            "https://app.example/cb/../cb?tenant=1",
            "https://APP.example/cb?tenant=1",
            "https://app.example:443/cb?tenant=1",
            "https://app.example/cb%3Ftenant=1",
            "https://app.example.evil.example/cb?tenant=1",
            "https://app.example@evil.example/cb?tenant=1",
            "",
        ] {
            assert_eq!(
                select_one(registered, other),
                Err(Mismatch::Unregistered),
                "{other}"
            );
        }
    }

    #[test]
    fn the_port_of_a_loopback_literal_is_free_for_public_clients() {
        let registered = "http://127.0.0.1/cb";
        assert_eq!(
            select_one(registered, "http://127.0.0.1:51234/cb").unwrap().uri(),
            "http://127.0.0.1:51234/cb"
        );
        assert!(select_one("http://[::1]:80/cb", "http://[::1]:9/cb").is_ok());
        for other in [
            "http://127.0.0.1:51234/other",
            "http://127.0.0.1:51234@evil.example/cb",
            "http://127.0.0.1.evil.example/cb",
            "http://127.0.0.1:99999/cb",
            "http://127.0.0.1:+1/cb",
            "http://127.0.0.2/cb",
            "https://127.0.0.1:51234/cb",
            "http://[::1]/cb",
            "http://127.0.0.1:1\\@evil.example/cb",
        ] {
            assert!(select_one(registered, other).is_err(), "{other}");
        }
        assert!(select_one("http://localhost/cb", "http://localhost:1/cb").is_err());
        assert!(select(&[registered.to_owned()], Some("http://127.0.0.1:5/cb"), false).is_err());
    }

    #[test]
    fn a_request_may_leave_out_the_only_one() {
        let one = ["https://a.example/cb".to_owned()];
        assert!(!select(&one, None, false).unwrap().was_explicit());
        let two = [one[0].clone(), "https://b.example/cb".to_owned()];
        assert_eq!(select(&two, None, false), Err(Mismatch::Missing));
        assert_eq!(select(&[], None, false), Err(Mismatch::Missing));
    }

    #[test]
    fn what_may_be_registered() {
        for fine in [
            "https://app.example/cb",
            "http://127.0.0.1/cb",
            "http://localhost:3000/",
            "http://[::1]/",
        ] {
            assert_eq!(check_registrable(fine, false), Ok(()), "{fine}");
        }
        assert_eq!(check_registrable("com.example.app:/oauth", true), Ok(()));
        assert_eq!(check_registrable("com.example.app:/oauth/@me", true), Ok(()));
        assert_eq!(check_registrable("https://app.example/@me?to=a@b", false), Ok(()));
        assert_eq!(
            check_registrable("com.example.app:/oauth", false),
            Err(Unregistrable::PrivateUse)
        );
        assert_eq!(
            check_registrable("https://a.example/#x", true),
            Err(Unregistrable::Fragment)
        );
        assert_eq!(
            check_registrable("http://app.example/cb", true),
            Err(Unregistrable::PlainHttp)
        );
        for taken in [
            "javascript:alert(1)",
            "mailto:a@b.example",
            "tel:1",
            "SMS:1",
            "chrome://x",
            "jar:https://a.example",
            "view-source:https://a.example",
            "wss://a.example/",
        ] {
            assert_eq!(
                check_registrable(taken, true),
                Err(Unregistrable::Scheme),
                "{taken}"
            );
            assert!(select_one(taken, taken).is_ok(), "as {taken} once could");
        }
        for relative in [
            "/cb",
            "//app.example/cb",
            "https:x",
            "https:app.example/cb",
            "https:/app.example/cb",
            "https:/u@a.example/",
            "https:///app.example/cb",
            "HTTPS:/app.example/cb",
            "http:/127.0.0.1/cb",
            "http:localhost:3000/cb",
            "https://",
            "https://?x",
        ] {
            for public in [false, true] {
                let verdict = check_registrable(relative, public);
                assert_eq!(verdict, Err(Unregistrable::NotAbsolute), "{relative}");
            }
        }
        for unsafe_one in [
            "https://u:p@a.example/",
            "https://@a.example/",
            "com.example.app://@",
            "com.example.app://u@host/cb",
            "https://a.example/ b",
            "https://a\\b/",
        ] {
            assert_eq!(
                check_registrable(unsafe_one, true),
                Err(Unregistrable::Unsafe),
                "{unsafe_one}"
            );
        }
    }

    #[test]
    fn a_wildcard_is_refused_wherever_it_stands_and_stands_for_itself_where_it_is_kept() {
        for uri in [
            "https://*.example/",
            "https://a.example/*",
            "https://a.example/cb?to=*",
            "http://127.0.0.1/*",
            "http://localhost:*/cb",
            "com.example.app:/*",
            "*",
        ] {
            assert_eq!(
                check_registrable(uri, true),
                Err(Unregistrable::Wildcard),
                "{uri}"
            );
        }
        assert!(select_one("https://a.example/*", "https://a.example/*").is_ok());
        assert!(select_one("https://a.example/*", "https://a.example/cb").is_err());
    }

    #[test]
    fn a_scheme_without_a_dot_is_anybodys_though_it_may_be_registered() {
        for uri in ["myapp:/cb", "my-app://cb.example", "x:y"] {
            assert_eq!(check_registrable(uri, true), Ok(()), "{uri}");
            assert!(!is_private_by_name(uri), "{uri}");
        }
        for uri in ["com.example.app:/cb", "https://a.example/", "HTTP://localhost/"] {
            assert!(is_private_by_name(uri), "{uri}");
        }
    }

    #[test]
    fn what_answers_add_is_not_in_the_query_already() {
        for name in ANSWERED {
            let uri = format!("https://app.example/cb?tenant=1&{name}=x");
            let verdict = check_query(&uri, ANSWERED);
            assert_eq!(verdict, Err(Unregistrable::Parameter(name)), "{uri}");
        }
        for disguised in [
            "https://a/cb?c%6fde=1",
            "com.example.app:/cb?code",
            "https://a/cb?&code=%20",
        ] {
            let verdict = check_query(disguised, ANSWERED);
            assert_eq!(verdict, Err(Unregistrable::Parameter("code")), "{disguised}");
        }
        for fine in [
            "https://a/code",
            "https://a/cb?Code=1&codes=2&to=code",
            "https://a/cb?",
            "app:/state",
        ] {
            assert_eq!(check_query(fine, ANSWERED), Ok(()), "{fine}");
        }
        assert_eq!(check_query("https://a/?code=1", SIGNED_OUT), Ok(()));
        assert!(check_query("https://a/?state=1", SIGNED_OUT).is_err());
    }

    #[test]
    fn a_registered_query_is_kept() {
        assert_eq!(
            with_query("https://a/cb", &[("code", "x y")]),
            "https://a/cb?code=x+y"
        );
        assert_eq!(
            with_query("https://a/cb?t=1", &[("code", "x")]),
            "https://a/cb?t=1&code=x"
        );
        assert_eq!(
            with_query("https://a/cb?", &[("code", "x")]),
            "https://a/cb?code=x"
        );
        assert_eq!(with_query("app:/cb", &[("state", "a&b")]), "app:/cb?state=a%26b");
    }
}

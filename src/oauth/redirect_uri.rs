//! Redirect URIs: which may be registered, and how that of a request is matched.
//!
//! RFC 6749 section 3.1.2, RFC 9700 section 2.1, RFC 8252 section 7. The strings must be equal. The one exception is
//! the port of a loopback address, because a native application learns its port only when it starts.

use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// A redirect URI that matches the registration. Once it exists, an error may be sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedRedirectUri {
    uri: String,
    explicit: bool,
}

impl MatchedRedirectUri {
    /// The redirect URI of the request, byte for byte, or the registered one if the request has none.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The host that it leads to.
    pub fn host(&self) -> Option<String> {
        let url = Url::parse(&self.uri).ok()?;
        url.host_str().map(ToOwned::to_owned)
    }

    /// Whether it leads to an application on the user's machine: a loopback address or a private-use scheme (RFC 8252
    /// section 7). Another application there can take its place.
    pub fn is_native(&self) -> bool {
        Url::parse(&self.uri).is_ok_and(|url| match url.scheme() {
            "https" => false,
            "http" => is_on_this_machine(&url),
            _ => true,
        })
    }

    /// Whether it has a private-use scheme, which another application on the device can take.
    pub fn has_private_scheme(&self) -> bool {
        has_private_scheme(&self.uri)
    }

    /// Whether the request contained it. Then the token request must contain it too (RFC 6749 section 4.1.3).
    pub fn was_explicit(&self) -> bool {
        self.explicit
    }
}

/// The request's redirect URI is not one of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The request has none, and the client has not exactly one.
    #[error("redirect_uri is missing")]
    Missing,
    /// The one in the request is not registered.
    #[error("redirect_uri is not registered for this client")]
    Unregistered,
}

/// Matches the redirect URI of a request with the registered ones.
pub(crate) fn select(
    registered: &[String],
    requested: Option<&str>,
    loopback_port_may_differ: bool,
) -> Result<MatchedRedirectUri, Mismatch> {
    let Some(requested) = requested else {
        return match registered {
            [only] => Ok(MatchedRedirectUri {
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
        Ok(MatchedRedirectUri {
            uri: requested.to_owned(),
            explicit: true,
        })
    } else {
        Err(Mismatch::Unregistered)
    }
}

/// RFC 8252 section 7.3: `http` on a loopback address, equal except for the port. Section 8.3 advises against the name
/// `localhost`, but widely used applications register it and learn their port later too.
fn differ_in_loopback_port(registered: &str, requested: &str) -> bool {
    fn parts(uri: &str) -> Option<(&str, &str)> {
        let rest = uri.strip_prefix("http://")?;
        let (host, rest) = ["127.0.0.1", "[::1]", "localhost"]
            .into_iter()
            .find_map(|host| rest.strip_prefix(host).map(|rest| (host, rest)))?;
        let end = rest.find(['/', '?', '#', '\\', '@']).unwrap_or(rest.len());
        let (port, path) = rest.split_at_checked(end)?;
        let is_port = match port.strip_prefix(':') {
            None => port.is_empty(),
            Some(digits) => digits.parse::<u16>().is_ok() && digits.bytes().all(|b| b.is_ascii_digit()),
        };
        (is_port && !path.starts_with(['\\', '@'])).then_some((host, path))
    }
    matches!((parts(registered), parts(requested)), (Some(one), Some(other)) if one == other)
}

/// Why a redirect URI cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectUriProblem {
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
    /// A `*` in it. Operators may expect a wildcard, but URIs are compared character by character.
    #[error("redirect URIs are compared character for character, without wildcards: name each one")]
    Wildcard,
    /// A response parameter in its query (RFC 6749 section 3.1).
    #[error("its query has the parameter {0}, which answers add: it would be there twice")]
    Parameter(&'static str),
    /// A scheme that belongs to the browser or to other programs.
    #[error("this scheme cannot be redirected to")]
    Scheme,
    /// A private-use scheme that clients may not register themselves with.
    #[error(
        "clients that register themselves have no such scheme: the operator names it in clients.registration_schemes"
    )]
    Unlisted,
    /// A private-use scheme of a confidential client that may not have one.
    #[error(
        "a private-use scheme is for a public client (RFC 8252), or for a client with a secret that the operator adds and that must use PKCE (--pkce required); use https"
    )]
    PrivateUse,
}

/// The parameters that an authorization response may add to a redirect URI: RFC 6749 section 4.1.2, RFC 9207 section 2,
/// and `response` of JARM section 2.3.
pub const RESPONSE_PARAMETERS: &[&str] = &[
    "code",
    "state",
    "iss",
    "error",
    "error_description",
    "error_uri",
    "response",
];

/// The parameters that are added to a redirect URI after signing out (OpenID Connect RP-Initiated Logout section 3).
pub const LOGOUT_PARAMETERS: &[&str] = &["state"];

/// The parameters that are added to the address at which a sign-in begins (OpenID Connect Core 4).
pub const LOGIN_PARAMETERS: &[&str] = &["iss"];

/// Checks that the query of `uri` contains none of the parameters in `added`, because a parameter must not occur twice
/// (RFC 6749 section 3.1).
pub fn check_query(uri: &str, added: &[&'static str]) -> Result<(), RedirectUriProblem> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    for (name, _) in form_urlencoded::parse(query.as_bytes()) {
        if let Some(name) = added.iter().copied().find(|added| *added == name) {
            return Err(RedirectUriProblem::Parameter(name));
        }
    }
    Ok(())
}

/// Schemes that do not belong to a client: browsers run or show such a URI, it is a file, or another program of the
/// device opens it.
const FORBIDDEN_SCHEMES: &str = "\
    about blob callto chrome cid content data facetime file filesystem ftp ftps geo gopher imap \
    intent irc ircs jar javascript ldap ldaps magnet mailto mid mms news nfs nntp resource rtsp \
    sftp sip sips smb sms ssh tel telnet urn vbscript view-source vnc webcal ws wss xmpp";

/// Whether the scheme is a private-use one (RFC 8252 section 7.1), and not that of the web.
pub fn has_private_scheme(uri: &str) -> bool {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    !["http", "https"]
        .iter()
        .any(|web| scheme.eq_ignore_ascii_case(web))
}

/// Checks whether `uri` may be registered. It may have a private-use scheme (RFC 8252 section 7.1) if `allows_private`.
pub fn check_registrable(uri: &str, allows_private: bool) -> Result<(), RedirectUriProblem> {
    if uri
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || !c.is_ascii() || c == '\\')
    {
        return Err(RedirectUriProblem::Unsafe);
    }
    if uri.contains('*') {
        return Err(RedirectUriProblem::Wildcard);
    }
    if uri.contains('#') {
        return Err(RedirectUriProblem::Fragment);
    }
    let parsed = Url::parse(uri).map_err(|_| RedirectUriProblem::NotAbsolute)?;
    let authority = authority(uri);
    if parsed.is_special() && authority.is_none_or(str::is_empty) {
        return Err(RedirectUriProblem::NotAbsolute);
    }
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(RedirectUriProblem::Unsafe);
    }
    match parsed.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(&parsed) => Ok(()),
        "http" => Err(RedirectUriProblem::PlainHttp),
        scheme if FORBIDDEN_SCHEMES.split(' ').any(|taken| taken == scheme) => {
            Err(RedirectUriProblem::Scheme)
        }
        _ if allows_private => Ok(()),
        _ => Err(RedirectUriProblem::PrivateUse),
    }
}

/// Whether the scheme of `uri` is `http`, `https`, or contains a dot, as a private-use scheme named after a domain does
/// (RFC 8252 sections 7.1 and 8.4). Any application on the same device may claim another scheme.
pub(crate) fn is_private_by_name(uri: &str) -> bool {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.contains('.') || !has_private_scheme(uri)
}

/// The host of an address that pages may link to: https, or http on this machine, without a user name. `None` for
/// another address.
pub(crate) fn page_host(uri: &str) -> Option<String> {
    let is_plain = |c: char| !(c.is_whitespace() || c.is_control() || c == '\\');
    let has_host = authority(uri).is_some_and(|authority| !authority.is_empty() && !authority.contains('@'));
    let url = Url::parse(uri).ok()?;
    let is_web = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    let is_fit = is_web && has_host && uri.chars().all(is_plain);
    url.host_str().filter(|_| is_fit).map(ToOwned::to_owned)
}

/// The authority as it is written (RFC 3986 section 3.2). [`Url`] drops an empty user name. It also finds a host in
/// `https:host` and `https:/host`, which browsers resolve as a path of the current page.
fn authority(uri: &str) -> Option<&str> {
    let (_, after) = uri.split_once(':')?;
    after.strip_prefix("//")?.split(['/', '?']).next()
}

/// Whether the host is this machine. Names below `localhost` count (RFC 6761 section 6.3).
pub(crate) fn is_on_this_machine(url: &Url) -> bool {
    is_loopback(url) || url.domain().is_some_and(|name| name.ends_with(".localhost"))
}

/// Whether the host is a loopback address or `localhost`.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Whether one of `after` leads elsewhere than those of `before`: to another host, or to the application of another
/// private-use scheme. A loopback address leads to the user's own machine.
pub(crate) fn lead_elsewhere(before: &[String], after: &[String]) -> bool {
    let place = |uri: &String| {
        let url = Url::parse(uri).ok().filter(|url| !is_on_this_machine(url))?;
        let is_web = matches!(url.scheme(), "http" | "https");
        Some(if is_web { url.host_str()? } else { url.scheme() }.to_owned())
    };
    let known: Vec<_> = before.iter().filter_map(place).collect();
    after
        .iter()
        .filter_map(place)
        .any(|place| !known.contains(&place))
}

/// The origin (RFC 6454) of a redirect URI: scheme, host and port. A URI with a private-use scheme has an origin only
/// if it has a host, which the browser in an application sends unchanged.
pub(crate) fn origin(uri: &str) -> Option<String> {
    let url = Url::parse(uri).ok()?;
    if url.is_special() {
        return matches!(url.scheme(), "http" | "https").then(|| url.origin().ascii_serialization());
    }
    let host = authority(uri).filter(|host| !host.is_empty())?;
    Some(format!("{}://{}", url.scheme(), host.to_ascii_lowercase()))
}

/// Whether the text is one origin, written as browsers send it.
pub(crate) fn is_origin(text: &str) -> bool {
    let is_plain_http = text.starts_with("http://");
    origin(text).is_some_and(|origin| origin == text)
        && !text.contains(['*', '@'])
        && (is_plain_http || check_registrable(text, true).is_ok())
}

/// Adds parameters to the query of `uri`. A registered query is kept (RFC 6749 section 3.1.2).
pub fn with_query<V: AsRef<str>>(uri: &str, parameters: &[(&str, V)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        query.append_pair(name, value.as_ref());
    }
    let query = query.finish();
    if query.is_empty() {
        return uri.to_owned();
    }
    let separator = match uri.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some((_, existing)) if existing.ends_with('&') => "",
        Some(_) => "&",
    };
    format!("{uri}{separator}{query}")
}

#[cfg(test)]
mod tests;

//! The address of a mail server.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// The port of submission over TLS (RFC 8314 section 3.3).
const TLS_PORT: u16 = 465;
/// The port of submission with STARTTLS (RFC 6409).
const STARTTLS_PORT: u16 = 587;

/// Whether a connection has TLS (`mail.tls`). Without the setting, a connection lacks TLS only if the server is on this
/// machine and offers no STARTTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// Each connection has TLS.
    Required,
    /// No connection has TLS. Only for a server on this machine.
    Off,
}

/// A mail server that takes mails by SMTP (RFC 6409).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    /// The name or the address of the host.
    pub host: Host<String>,
    pub port: u16,
    /// Whether TLS begins with the connection. Otherwise it begins with STARTTLS.
    pub has_implicit_tls: bool,
    /// The name that the service signs in with.
    pub user: Option<String>,
}

impl MailServer {
    /// Whether the server is on this machine. Only then a connection may be without TLS.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }

    /// The host as resolvers and certificates name it.
    pub fn host_name(&self) -> String {
        match &self.host {
            Host::Domain(name) => name.clone(),
            Host::Ipv4(address) => IpAddr::from(*address).to_string(),
            Host::Ipv6(address) => IpAddr::from(*address).to_string(),
        }
    }
}

/// Host and port, for messages.
impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Parses `smtps://user@host:465` and `smtp://user@host:587`. The error says what is wrong.
impl FromStr for MailServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "as in smtps://user@mail.example.com:465";
        let url = Url::parse(text).map_err(|error| format!("it is no URL ({error}), {EXAMPLE}"))?;
        let (has_implicit_tls, usual_port) = match url.scheme() {
            "smtps" => (true, TLS_PORT),
            "smtp" => (false, STARTTLS_PORT),
            _ => return Err(format!("it must begin with smtps:// or smtp://, {EXAMPLE}")),
        };
        if url.password().is_some() {
            return Err("it must not hold a password: put it into the file of mail.password_file".to_owned());
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(format!("name scheme, user, host and port only, {EXAMPLE}"));
        }
        let decoded = |part: &str| percent_decode_str(part).decode_utf8().ok().map(String::from);
        let host = url.host_str().filter(|host| !host.is_empty()).and_then(decoded);
        let host = host.ok_or_else(|| format!("it names no host, {EXAMPLE}"))?;
        let host = Host::parse(&host).map_err(|error| {
            format!("{host:?} is no host ({error}): write an international one in ASCII, as in xn--…")
        })?;
        let user = decoded(url.username()).filter(|user| !user.chars().any(char::is_control));
        let user = user.ok_or("its user name has characters that cannot be sent")?;
        Ok(Self {
            host,
            port: url.port().unwrap_or(usual_port),
            has_implicit_tls,
            user: Some(user).filter(|user| !user.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_perhaps_a_user_and_a_port() {
        for (text, shown, has_implicit_tls, user, is_loopback) in [
            (
                "smtps://mail.example.com",
                "mail.example.com:465",
                true,
                None,
                false,
            ),
            (
                "smtp://mail.example.com",
                "mail.example.com:587",
                false,
                None,
                false,
            ),
            ("smtp://me@localhost:25/", "localhost:25", false, Some("me"), true),
            (
                "smtp://me@acme.example@127.0.0.1",
                "127.0.0.1:587",
                false,
                Some("me@acme.example"),
                true,
            ),
            (
                "smtp://me%40acme.example@[::1]:2525",
                "[::1]:2525",
                false,
                Some("me@acme.example"),
                true,
            ),
            (
                "smtps://müller@xn--kln-sna.example",
                "xn--kln-sna.example:465",
                true,
                Some("müller"),
                false,
            ),
        ] {
            let server: MailServer = text.parse().unwrap();
            assert_eq!(server.to_string(), shown, "{text}");
            assert_eq!(
                (
                    server.has_implicit_tls,
                    server.user.as_deref(),
                    server.is_loopback()
                ),
                (has_implicit_tls, user, is_loopback),
                "{text}"
            );
        }
    }

    #[test]
    fn an_address_that_cannot_work_is_refused() {
        for (text, named) in [
            ("mail.example.com", "no URL"),
            ("https://mail.example.com", "smtps:// or smtp://"),
            ("smtps://me:secret@mail.example.com", "mail.password_file"),
            (
                "smtps://mail.example.com/inbox",
                "scheme, user, host and port only",
            ),
            (
                "smtps://mail.example.com?tls=no",
                "scheme, user, host and port only",
            ),
            ("smtps://", "no host"),
            ("smtps://xn--a.example", "is no host"),
            ("smtps://a%0d%0ab@mail.example.com", "cannot be sent"),
        ] {
            let problem = text.parse::<MailServer>().unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}

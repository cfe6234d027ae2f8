//! The address of a PostgreSQL database, and the files for TLS to it.

use std::fmt;
use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

/// The refusal of an address by an executable without the feature `postgres`.
pub const BUILT_WITHOUT: &str =
    "this idsvc was built without postgres: install the package idsvc-postgres, or remove store.url";

const EXAMPLE: &str = "write for example postgres://idsvc@db.example.com/idsvc";

/// Why a text is not an address. No message contains a part of the text, which may have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is no URL of PostgreSQL.
    #[error("it is not a PostgreSQL address: {EXAMPLE}")]
    NotPostgres,
    /// A host is missing.
    #[error("it names no host: {EXAMPLE}")]
    NoHost,
    /// A port is not a number from 1 to 65535.
    #[error("its port is no number from 1 to 65535")]
    BadPort,
    /// It names unix sockets and hosts.
    #[error("it names unix sockets and hosts: name one kind only")]
    MixedHosts,
    /// Another value of `sslmode`.
    #[error("its sslmode is unknown: remove it, and idsvc verifies the server's certificate and name")]
    UnknownTls,
    /// Passwords and rows would cross a network in the clear.
    #[error("TLS may be off only for a unix socket or loopback: remove sslmode=disable")]
    TlsOff,
}

/// The certificate with which this node authenticates itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate chain in PEM.
    pub certificate: Vec<u8>,
    /// The private key in PEM.
    pub key: Zeroizing<Vec<u8>>,
}

/// The address of a PostgreSQL database. `Debug` and `Display` hide its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    url: Zeroizing<String>,
    printable: String,
    has_password: bool,
    /// The authorities in PEM whose certificates the server may have; those of the web if none.
    pub authorities: Option<Vec<u8>>,
    /// The certificate of this node, if it has one.
    pub identity: Option<ClientIdentity>,
}

impl Address {
    /// Parses a connection URI (PostgreSQL manual, section 34.1.1.2). Without `sslmode`, TLS is required, except for a unix
    /// socket.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let parts = Parts::of(text)?;
        let sockets = parts.hosts.iter().filter(|host| is_socket(host)).count();
        if parts.hosts.is_empty() || parts.hosts.iter().any(String::is_empty) {
            return Err(AddressError::NoHost);
        }
        if sockets != 0 && sockets != parts.hosts.len() {
            return Err(AddressError::MixedHosts);
        }
        let mode = match parts.tls.as_deref() {
            None if sockets != 0 => "disable",
            None | Some("require" | "verify-ca" | "verify-full") => "require",
            Some("disable") if parts.hosts.iter().all(|host| is_local(host)) => "disable",
            Some("disable") => return Err(AddressError::TlsOff),
            Some(_) => return Err(AddressError::UnknownTls),
        };
        Ok(Self {
            url: parts.url_with(mode),
            printable: parts.printable(),
            has_password: parts.has_password(),
            authorities: None,
            identity: None,
        })
    }

    /// The URL with its password. Its `sslmode` is `require` or `disable`. The name in the server's certificate is verified
    /// whenever TLS is used.
    pub fn reveal_url(&self) -> &str {
        &self.url
    }

    /// Whether a password is in the URL.
    pub fn has_password(&self) -> bool {
        self.has_password
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.printable)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.printable)
    }
}

/// The parts of the URL as they are written, and the decoded hosts.
struct Parts<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
    authority: &'a str,
    database: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    hosts: Vec<String>,
    tls: Option<String>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, AddressError> {
        let schemes = ["postgres://", "postgresql://"];
        let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.ok_or(AddressError::NotPostgres)?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(AddressError::NotPostgres);
        }
        let (user, password, rest) = match rest.split_once('@') {
            Some((credentials, rest)) => {
                let (user, password) = match credentials.split_once(':') {
                    Some((user, password)) => (user, Some(password)),
                    None => (credentials, None),
                };
                (Some(user), password, rest)
            }
            None => (None, None, rest),
        };
        // An @ in a parameter would have made a user name of all before it.
        if user.is_some_and(|user| user.contains(['/', '?'])) || rest.contains('@') {
            return Err(AddressError::NotPostgres);
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = path.split_once('/').unwrap_or((path, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let parameters: Option<Vec<_>> = pairs.map(|pair| pair.split_once('=')).collect();
        let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let parameters = parameters
            .filter(|parameters| parameters.iter().all(|(name, _)| is_plain(name)))
            .ok_or(AddressError::NotPostgres)?;
        let mut hosts = hosts_of(authority)?;
        for (_, value) in parameters
            .iter()
            .filter(|(name, _)| ["host", "hostaddr"].contains(name))
        {
            hosts.extend(decoded(value)?.split(',').map(str::to_owned));
        }
        let mut modes = parameters.iter().filter(|(name, _)| *name == "sslmode");
        let tls = modes.next().map(|(_, mode)| decoded(mode)).transpose()?;
        if modes.next().is_some() {
            return Err(AddressError::UnknownTls);
        }
        Ok(Self {
            user,
            password,
            authority,
            database,
            parameters,
            hosts,
            tls,
        })
    }

    fn url_with(&self, tls_mode: &str) -> Zeroizing<String> {
        let mut url = Zeroizing::new(String::from("postgres://"));
        if let Some(user) = self.user {
            url.push_str(user);
            if let Some(password) = self.password {
                url.push(':');
                url.push_str(password);
            }
            url.push('@');
        }
        for part in [self.authority, "/", self.database, "?sslmode=", tls_mode] {
            url.push_str(part);
        }
        for (name, value) in self.parameters.iter().filter(|(name, _)| *name != "sslmode") {
            for part in ["&", name, "=", value] {
                url.push_str(part);
            }
        }
        url
    }

    fn has_password(&self) -> bool {
        self.password.is_some() || self.parameters.iter().any(|(name, _)| *name == "password")
    }

    fn printable(&self) -> String {
        let credentials = match (self.user, self.has_password()) {
            (Some(user), true) => format!("{user}:…@"),
            (Some(user), false) => format!("{user}@"),
            (None, true) => ":…@".to_owned(),
            (None, false) => String::new(),
        };
        let hosts = if self.authority.is_empty() {
            format!("/{}?host={}", self.database, self.hosts.join(","))
        } else {
            format!("{}/{}", self.authority, self.database)
        };
        format!("postgres://{credentials}{hosts}")
    }
}

/// The hosts before the path, without their ports.
fn hosts_of(authority: &str) -> Result<Vec<String>, AddressError> {
    if authority.is_empty() {
        return Ok(Vec::new());
    }
    let mut hosts = Vec::new();
    for entry in authority.split(',') {
        let (host, port) = if let Some(literal) = entry.strip_prefix('[') {
            let (host, port) = literal.split_once(']').ok_or(AddressError::NotPostgres)?;
            let port = port.strip_prefix(':').or(port.is_empty().then_some(""));
            (host, port.ok_or(AddressError::NotPostgres)?)
        } else {
            entry.split_once(':').unwrap_or((entry, ""))
        };
        if !port.is_empty() && !port.parse::<u16>().is_ok_and(|port| port != 0) {
            return Err(AddressError::BadPort);
        }
        hosts.push(decoded(host)?);
    }
    Ok(hosts)
}

fn decoded(text: &str) -> Result<String, AddressError> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| AddressError::NotPostgres)?.into_owned())
}

/// Whether a host is the folder of a unix socket, or an abstract socket.
fn is_socket(host: &str) -> bool {
    host.starts_with(['/', '@'])
}

fn is_local(host: &str) -> bool {
    is_socket(host) || host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_requires_tls_and_hides_its_password() {
        for (text, url, printable) in [
            (
                "postgres://idsvc:s3cr%40t@h1,h2:5433/db?target_session_attrs=read-write",
                "postgres://idsvc:s3cr%40t@h1,h2:5433/db?sslmode=require&target_session_attrs=read-write",
                "postgres://idsvc:…@h1,h2:5433/db",
            ),
            (
                "postgresql://idsvc@[2001:db8::1]:5432/db?sslmode=verify-full",
                "postgres://idsvc@[2001:db8::1]:5432/db?sslmode=require",
                "postgres://idsvc@[2001:db8::1]:5432/db",
            ),
            (
                "postgres://h1?password=s3cret&user=idsvc",
                "postgres://h1/?sslmode=require&password=s3cret&user=idsvc",
                "postgres://:…@h1/",
            ),
            (
                "postgres://idsvc@/db?host=/run/postgresql",
                "postgres://idsvc@/db?sslmode=disable&host=/run/postgresql",
                "postgres://idsvc@/db?host=/run/postgresql",
            ),
            (
                "postgres://%2Frun%2Fpostgresql/db",
                "postgres://%2Frun%2Fpostgresql/db?sslmode=disable",
                "postgres://%2Frun%2Fpostgresql/db",
            ),
            (
                "postgres://u:p@localhost,127.0.0.1,[::1]/db?sslmode=disable",
                "postgres://u:p@localhost,127.0.0.1,[::1]/db?sslmode=disable",
                "postgres://u:…@localhost,127.0.0.1,[::1]/db",
            ),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (address.reveal_url(), address.to_string()),
                (url, printable.to_owned())
            );
            assert_eq!(format!("{address:?}"), printable);
        }
    }

    #[test]
    fn a_text_that_is_no_address_is_refused_without_being_repeated() {
        use AddressError::{BadPort, MixedHosts, NoHost, NotPostgres, TlsOff, UnknownTls};
        for (text, error) in [
            ("mysql://idsvc:s3cret@h1/db", NotPostgres),
            ("host=h1 password=s3cret", NotPostgres),
            ("postgres://idsvc:s3 cret@h1/db", NotPostgres),
            ("postgres://idsvc:s3@cret@h1/db", NotPostgres),
            ("postgres://h1/db?password=s3@cret", NotPostgres),
            ("postgres://h1/db?password", NotPostgres),
            ("postgres://h1/db?%73slmode=disable", NotPostgres),
            ("postgres://[::1/db", NotPostgres),
            ("postgres://idsvc:s3cret@/db", NoHost),
            ("postgres://h1,,h2/db", NoHost),
            ("postgres://h1:port/db", BadPort),
            ("postgres://h1:0/db", BadPort),
            ("postgres://h1/db?host=/run/postgresql", MixedHosts),
            ("postgres://h1/db?sslmode=prefer", UnknownTls),
            ("postgres://h1/db?sslmode=require&sslmode=disable", UnknownTls),
            ("postgres://h1/db?sslmode=disable", TlsOff),
            ("postgres://localhost,10.0.0.1/db?sslmode=disable", TlsOff),
            (
                "postgres://localhost/db?sslmode=disable&hostaddr=10.0.0.1",
                TlsOff,
            ),
        ] {
            assert_eq!(Address::parse(text), Err(error), "{text}");
            assert!(!error.to_string().contains("s3"));
        }
    }
}

//! The TLS settings, and the issuer that follows from them.

use std::net::SocketAddr;

use url::{Host, Url};

use super::file::{Origin, SettingValue};
use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use super::{DEV_PORT, Fault, Tls, host_of};
use crate::net::acme::{LETS_ENCRYPT, Plan};
use crate::net::outbound::address;
use crate::oauth::redirect_uri::is_on_this_machine;

pub(super) const MODE: Setting = setting(
    "tls.mode",
    Kind::Text,
    ("MODE", "files, acme, self-signed or off"),
    Some(r#""files""#),
    r#""files""#,
    "files: certificate and key from PEM files, read again when they change and on SIGHUP.\n\
     acme: a certificate from a certificate authority, ordered and renewed by the service; see [acme].\n\
     Naming acme.domains is enough when this is left out.\n\
     self-signed: a certificate made here, for development.\n\
     off: plain HTTP, on loopback or behind trusted_proxies only.",
);

/// Passwords and tokens must not cross a network in the clear.
pub(super) const PLAIN_AND_PUBLIC: &str =
    "tls.mode = \"off\" is for loopback addresses, or behind a proxy: set trusted_proxies to its network";

/// The most names on a certificate: the limit of Let's Encrypt.
const MOST_DOMAINS: usize = 100;

/// The TLS settings. `None` if they are unclear, which is a fault.
pub(super) fn tls(
    reader: &mut Reader<'_>,
    base_url: Option<&str>,
    listen: &[SocketAddr],
    has_proxies: bool,
) -> Option<Tls> {
    const MODES: [&str; 4] = ["files", "acme", "self-signed", "off"];
    if reader.is_unread("tls.mode") {
        return None;
    }
    if implies_acme(reader) {
        return acme(reader, base_url);
    }
    if reader.sources.is_dev && reader.explicit("tls.mode").is_none() {
        return Some(Tls::SelfSigned);
    }
    let mode = reader.one_of("tls.mode", &MODES)?;
    if mode == "acme" {
        return acme(reader, base_url);
    }
    warn_of_acme(reader, mode);
    Some(match mode {
        "self-signed" => {
            if !has_proxies {
                warn_of_self_signed(reader, base_url);
            }
            Tls::SelfSigned
        }
        "off" => {
            let is_public = listen.iter().any(|address| !address.ip().is_loopback());
            if is_public
                && !has_proxies
                && !reader.is_unread("listen")
                && !reader.is_unread("trusted_proxies")
            {
                reader.fault_at("tls.mode", PLAIN_AND_PUBLIC);
            }
            Tls::Off
        }
        _ => {
            let mut file = |key: &str| {
                if reader.explicit(key).is_none() {
                    reader.missing(key, "tls.mode is files and this file is not named");
                }
                let path = reader.explicit(key).and_then(|_| reader.path(key));
                path.map(|(path, _)| path).unwrap_or_default()
            };
            Tls::Files {
                cert: file("tls.cert"),
                key: file("tls.key"),
            }
        }
    })
}

/// Warns of domains without effect, because the mode is not ACME.
fn warn_of_acme(reader: &mut Reader<'_>, mode: &str) {
    if let (Some((_, origin)), Some((_, mode_origin))) =
        (reader.explicit("acme.domains"), reader.explicit("tls.mode"))
    {
        reader.warnings.push(Fault {
            place: origin.to_string(),
            message: format!(
                "acme.domains has no effect, because tls.mode is {mode:?} ({mode_origin}): take tls.mode out to have the certificate by ACME, or else acme.domains"
            ),
        });
    }
}

/// Warns of a self-signed certificate for a public host. The packaged configuration has one until the operator chooses.
fn warn_of_self_signed(reader: &mut Reader<'_>, base_url: Option<&str>) {
    if let (Some(host), Some((_, origin))) = (base_url.and_then(host_of), reader.explicit("tls.mode"))
        && !reader.sources.is_dev
        && is_public(&host)
    {
        reader.warnings.push(Fault {
            place: origin.to_string(),
            message: format!(
                "tls.mode is \"self-signed\": browsers and applications refuse such a certificate for {host}. Set tls.mode to acme, or to files with a certificate of your own"
            ),
        });
    }
}

/// Whether a host is reached from other networks: a public address, or a name outside the domains for local use
/// (RFC 6761, RFC 6762, RFC 8375, and `internal`, which ICANN reserves).
fn is_public(host: &str) -> bool {
    const LOCAL_DOMAINS: [&str; 7] = [
        "localhost",
        "local",
        "test",
        "invalid",
        "example",
        "home.arpa",
        "internal",
    ];
    let is_below = |domain: &&str| {
        let below = host.strip_suffix(*domain);
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    };
    match host.parse() {
        Ok(address) => address::is_public(address),
        Err(_) => host.contains('.') && !LOCAL_DOMAINS.iter().any(is_below),
    }
}

/// Whether `acme.domains` selects ACME: `tls.mode` is not set, or only in a source of lower precedence.
fn implies_acme(reader: &Reader<'_>) -> bool {
    let rank = |key: &str| {
        let setting = reader.sources.values.iter().find(|setting| setting.key == key);
        setting.map(|SettingValue { origin, .. }| match origin {
            Origin::Flag(_) => 0,
            Origin::Environment(_) => 1,
            Origin::File(..) | Origin::Default => 2,
        })
    };
    rank("acme.domains").is_some_and(|domains| rank("tls.mode").is_none_or(|mode| domains < mode))
}

fn acme(reader: &mut Reader<'_>, base_url: Option<&str>) -> Option<Tls> {
    let domains = domains(reader, base_url);
    let contact = reader.explicit("acme.contact").and_then(|_| contact(reader));
    let directory = reader.text("acme.directory").and_then(|(text, origin)| {
        let url = Url::parse(&text)
            .ok()
            .filter(|url| url.scheme() == "https" && url.username().is_empty() && url.password().is_none());
        if url.is_none() {
            reader.fault(
                &origin,
                format!("acme.directory = {text:?} is no https address, as in {LETS_ENCRYPT}"),
            );
        }
        url
    });
    if reader.sources.is_dev {
        reader.faults.push(Fault {
            place: "tls.mode".to_owned(),
            message: "the development server has a certificate of its own making: leave --dev out to have one by ACME"
                .to_owned(),
        });
    }
    // If a directory or a domain is missing, a fault was reported.
    (!domains.is_empty()).then_some(Tls::Acme(Plan {
        domains,
        contact,
        directory: directory?,
    }))
}

/// The names on the certificate. They must include the host of the service.
fn domains(reader: &mut Reader<'_>, base_url: Option<&str>) -> Vec<String> {
    let host = base_url.and_then(host_of);
    if reader.explicit("acme.domains").is_none() {
        if host.is_none() && reader.explicit("base_url").is_none() {
            reader.missing(
                "acme.domains",
                "the certificate authority must be told the name of the service",
            );
        }
        if let Some(host) = &host
            && let Err(problem) = check_domain(host)
        {
            reader.fault_at(
                "base_url",
                format!("base_url: no certificate can be had by ACME for {host:?}: {problem}"),
            );
        }
        return host.into_iter().collect();
    }
    let before = reader.faults.len();
    let (texts, origin) = reader.list("acme.domains");
    let mut domains: Vec<String> = Vec::new();
    for text in &texts {
        match check_domain(text) {
            Ok(domain) if domains.contains(&domain) => {}
            Ok(domain) => domains.push(domain),
            Err(problem) => reader.fault(&origin, format!("acme.domains = {text:?}: {problem}")),
        }
    }
    let is_empty = texts.is_empty() && reader.faults.len() == before;
    if is_empty || texts.len() > MOST_DOMAINS {
        reader.fault(&origin, format!("acme.domains: name 1 to {MOST_DOMAINS} domains"));
    }
    if let Some(host) = host.filter(|host| !domains.contains(host))
        && !domains.is_empty()
    {
        reader.fault(
            &origin,
            format!("acme.domains lacks {host}, the host of base_url: clients would refuse the certificate"),
        );
    }
    domains
}

/// Checks that an authority can resolve the name by DNS and validate it at port 443. Returns it in lower case.
fn check_domain(text: &str) -> Result<String, String> {
    if text.starts_with("*.") {
        return Err("a wildcard cannot be proven at port 443: name each domain".to_owned());
    }
    match Host::parse(text) {
        Ok(Host::Domain(domain)) if domain == "localhost" || domain.ends_with(".localhost") => {
            Err("this is the machine's own name for itself, which no authority certifies".to_owned())
        }
        Ok(Host::Domain(domain)) if is_host_name(&domain) => Ok(domain),
        Ok(Host::Ipv4(_) | Host::Ipv6(_)) => {
            Err("an address is no domain, as id.example.com is one".to_owned())
        }
        _ => Err("this is no domain, as id.example.com is one".to_owned()),
    }
}

/// Letters, digits and hyphens between dots (RFC 1123 section 2.1).
fn is_host_name(domain: &str) -> bool {
    domain.len() <= 253
        && domain.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

/// The mail address as a `mailto:` URL (RFC 8555 section 7.3).
fn contact(reader: &mut Reader<'_>) -> Option<String> {
    let (text, origin) = reader.text("acme.contact")?;
    let address = text.strip_prefix("mailto:").unwrap_or(&text);
    let is_valid = address.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty()
            && check_domain(host).is_ok()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b",:?<>\"()".contains(&byte))
    });
    if !is_valid {
        reader.fault(
            &origin,
            format!("acme.contact = {text:?} is no mail address, as in admin@example.com"),
        );
    }
    Some(format!("mailto:{address}"))
}

/// The issuer: the base URL, or the one that follows from the TLS settings.
pub(super) fn issuer(
    reader: &mut Reader<'_>,
    base_url: Option<&str>,
    tls: Option<&Tls>,
    listen: &[SocketAddr],
) -> String {
    let named = match tls {
        Some(Tls::Acme(plan)) => plan.domains.first().map(|domain| format!("https://{domain}")),
        Some(Tls::Files { .. } | Tls::SelfSigned | Tls::Off) | None => None,
    };
    match base_url {
        Some(base_url) => {
            if reader.sources.is_dev && !Url::parse(base_url).is_ok_and(|url| is_on_this_machine(&url)) {
                reader.fault_at(
                    "base_url",
                    format!("base_url = {base_url:?}: the development server is for loopback hosts only, as in https://localhost:{DEV_PORT}; without base_url it finds its own"),
                );
            }
            if base_url.starts_with("http:") && tls.is_some_and(|tls| *tls != Tls::Off) {
                reader.fault_at(
                    "base_url",
                    format!("base_url = {base_url:?}: http is for tls.mode = \"off\" only"),
                );
            }
            base_url.to_owned()
        }
        None if reader.explicit("base_url").is_some() => String::new(),
        // The issuer may follow from a setting with a fault.
        None if tls.is_none() => String::new(),
        None if named.is_some() && !reader.is_unread("base_url") => named.unwrap_or_default(),
        None if reader.sources.is_dev => {
            let scheme = if tls == Some(&Tls::Off) { "http" } else { "https" };
            let port = listen.first().map_or(DEV_PORT, SocketAddr::port);
            if port == 0 {
                reader.missing(
                    "base_url",
                    "the port is not known beforehand, so the address must be named",
                );
            }
            format!("{scheme}://localhost:{port}")
        }
        None => {
            reader.missing("base_url", "the address of the service is not set");
            String::new()
        }
    }
}

//! The certificate that the service has from an authority.

use url::{Host, Url};

use super::base_url::{BASE_URL, host_of};
use super::form::{List, Parsed};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::net::acme::{LETS_ENCRYPT, Plan};

/// The most names on a certificate: the limit of Let's Encrypt.
const MOST_DOMAINS: usize = 100;

pub(super) const SETTINGS: &[&Setting] = &[&DOMAINS, &CONTACT, &DIRECTORY];

pub(super) static DOMAINS: Setting<List<String>> = Setting {
    key: "acme.domains",
    doc: "The names that the certificate is for. The certificate authority must reach this service at port 443 of each.\n\
         Left out: the host of base_url. Without base_url, the service is at the first of them.\n\
         Ordering a certificate agrees to the terms of the authority. The flag is --acme.",
    default: None,
    example: Literal::List(&["id.example.com"]),
    value_name: "DOMAIN",
    help: Some("A domain to have a certificate for, by ACME"),
    form: List::of(parse_domain),
};

pub(super) static CONTACT: Setting<Parsed<String>> = Setting {
    key: "acme.contact",
    doc: "The mail address that the certificate authority may write to.",
    default: None,
    example: Literal::Text("admin@example.com"),
    value_name: "ADDRESS",
    help: Some("The mail address for the certificate authority"),
    form: Parsed(parse_contact),
};

pub(super) static DIRECTORY: Setting<Parsed<Url>> = Setting {
    key: "acme.directory",
    doc: "The ACME directory of the certificate authority. The default is Let's Encrypt, the example its staging area.\n\
         It is reached on the terms of [outbound].",
    default: Some(Literal::Text(LETS_ENCRYPT)),
    example: Literal::Text("https://acme-staging-v02.api.letsencrypt.org/directory"),
    value_name: "URL",
    help: Some("The ACME directory of the certificate authority"),
    form: Parsed(parse_directory),
};

pub(super) fn plan(reader: &mut Reader<'_>, base_url: Read<Option<&str>>) -> Read<Plan> {
    reader.check(SETTINGS);
    Ok(Plan {
        domains: domains(reader, base_url)?,
        contact: reader.read_if_set(&CONTACT)?,
        directory: reader.read(&DIRECTORY)?,
    })
}

/// The names on the certificate. They must include the host of the service.
fn domains(reader: &mut Reader<'_>, base_url: Read<Option<&str>>) -> Read<Vec<String>> {
    let Some(named) = reader.read_if_set(&DOMAINS)? else {
        let Some(host) = base_url?.and_then(host_of) else {
            let why = "the certificate authority must be told the name of the service";
            return Err(reader.missing(&DOMAINS, why));
        };
        return match check_domain(&host) {
            Ok(domain) => Ok(vec![domain]),
            Err(problem) => {
                let message = format!("base_url: no certificate can be had by ACME for {host:?}: {problem}");
                Err(reader.fault(&BASE_URL, message))
            }
        };
    };
    if !(1..=MOST_DOMAINS).contains(&named.len()) {
        let message = format!("acme.domains: name 1 to {MOST_DOMAINS} domains");
        return Err(reader.fault(&DOMAINS, message));
    }
    let mut domains: Vec<String> = Vec::new();
    for domain in named {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    if let Ok(Some(base_url)) = base_url
        && let Some(host) = host_of(base_url).filter(|host| !domains.contains(host))
    {
        let message =
            format!("acme.domains lacks {host}, the host of base_url: clients would refuse the certificate");
        return Err(reader.fault(&DOMAINS, message));
    }
    Ok(domains)
}

fn parse_domain(text: &str) -> Result<String, String> {
    check_domain(text).map_err(|problem| format!(": {problem}"))
}

/// Checks that an authority can resolve the name by DNS and validate it at port 443. Returns it in lower case.
fn check_domain(text: &str) -> Result<String, &'static str> {
    if text.starts_with("*.") {
        return Err("a wildcard cannot be proven at port 443: name each domain");
    }
    match Host::parse(text) {
        Ok(Host::Domain(domain)) if domain == "localhost" || domain.ends_with(".localhost") => {
            Err("this is the machine's own name for itself, which no authority certifies")
        }
        Ok(Host::Domain(domain)) if is_host_name(&domain) => Ok(domain),
        Ok(Host::Ipv4(_) | Host::Ipv6(_)) => Err("an address is no domain, as id.example.com is one"),
        _ => Err("this is no domain, as id.example.com is one"),
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
fn parse_contact(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_valid = address.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty()
            && check_domain(host).is_ok()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b",:?<>\"()".contains(&byte))
    });
    if is_valid {
        Ok(format!("mailto:{address}"))
    } else {
        Err("is no mail address, as in admin@example.com".to_owned())
    }
}

fn parse_directory(text: &str) -> Result<Url, String> {
    let is_fit = |url: &Url| url.scheme() == "https" && url.username().is_empty() && url.password().is_none();
    let url = Url::parse(text).ok().filter(is_fit);
    url.ok_or_else(|| format!("is no https address, as in {LETS_ENCRYPT}"))
}

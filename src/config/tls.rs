//! How connections are secured.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::acme;
use super::base_url::host_of;
use super::form::{File, Words};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use super::source::Origin;
use crate::net::acme::Plan;
use crate::net::outbound::address;

pub(super) const SETTINGS: &[&Setting] = &[&MODE, &CERT, &KEY];

pub(super) static MODE: Setting<Words<Mode>> = Setting {
    key: "tls.mode",
    doc: "files: certificate and key from PEM files, read again when they change and on SIGHUP.\n\
     acme: a certificate from a certificate authority, ordered and renewed by the service; see [acme].\n\
     Naming acme.domains is enough when this is left out.\n\
     self-signed: a certificate made here, for development.\n\
     off: plain HTTP, on loopback or behind trusted_proxies only.",
    default: Some(Literal::Text("files")),
    example: Literal::Text("files"),
    value_name: "MODE",
    help: Some("files, acme, self-signed or off"),
    form: Words(&[
        ("files", Mode::Files),
        ("acme", Mode::Acme),
        ("self-signed", Mode::SelfSigned),
        ("off", Mode::Off),
    ]),
};

pub(super) static CERT: Setting<File> = Setting {
    key: "tls.cert",
    doc: "The certificate chain, the server's own certificate first. For tls.mode = \"files\".",
    default: None,
    example: Literal::Text("/etc/idsvc/cert.pem"),
    value_name: "FILE",
    help: Some("The certificate chain"),
    form: File,
};

pub(super) static KEY: Setting<File> = Setting {
    key: "tls.key",
    doc: "The private key. For tls.mode = \"files\".",
    default: None,
    example: Literal::Text("/etc/idsvc/key.pem"),
    value_name: "FILE",
    help: Some("The private key"),
    form: File,
};

/// How connections are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Certificate and key from PEM files.
    Files {
        /// The certificate chain.
        cert: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A certificate from an authority, ordered and renewed by ACME.
    Acme(Plan),
    /// A self-signed certificate, for development.
    SelfSigned,
    /// Plain HTTP.
    Off,
}

/// The words of `tls.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Files,
    Acme,
    SelfSigned,
    Off,
}

/// Passwords and tokens must not cross a network in the clear.
const PLAIN_AND_PUBLIC: &str =
    "tls.mode = \"off\" is for loopback addresses, or behind a proxy: set trusted_proxies to its network";

pub(super) fn tls(
    reader: &mut Reader<'_>,
    base_url: Read<Option<&str>>,
    listen: Read<&[SocketAddr]>,
    has_proxies: bool,
) -> Read<Tls> {
    let mode = mode(reader)?;
    check_unused(reader, mode);
    match mode {
        Mode::Files => {
            let (cert, key) = (file(reader, &CERT), file(reader, &KEY));
            Ok(Tls::Files {
                cert: cert?,
                key: key?,
            })
        }
        Mode::Acme => {
            let plan = acme::plan(reader, base_url);
            if reader.sources.is_dev {
                let message = "the development server has a certificate of its own making: leave --dev out to have one by ACME";
                return Err(reader.report(MODE.key.to_owned(), message.to_owned()));
            }
            plan.map(Tls::Acme)
        }
        Mode::SelfSigned => {
            if !has_proxies && let Ok(Some(base_url)) = base_url {
                warn_of_self_signed(reader, base_url);
            }
            Ok(Tls::SelfSigned)
        }
        Mode::Off => {
            let is_public = |listen: &[SocketAddr]| listen.iter().any(|address| !address.ip().is_loopback());
            if listen.is_ok_and(is_public) && !has_proxies {
                reader.fault(&MODE, PLAIN_AND_PUBLIC);
            }
            Ok(Tls::Off)
        }
    }
}

/// The mode. `acme.domains` selects ACME if `tls.mode` is not set, or only in a source of lower precedence.
pub(super) fn mode(reader: &mut Reader<'_>) -> Read<Mode> {
    if is_by_domains(reader) {
        Ok(Mode::Acme)
    } else if reader.sources.is_dev {
        reader.read_or(&MODE, Literal::Text("self-signed"))
    } else {
        reader.read(&MODE)
    }
}

/// Whether `acme.domains` selects the mode.
fn is_by_domains(reader: &Reader<'_>) -> bool {
    let domains = precedence(reader, &acme::DOMAINS);
    let is_first = domains.is_some_and(|domains| precedence(reader, &MODE).is_none_or(|mode| domains < mode));
    is_first && !reader.is_unread(&MODE)
}

/// The place of the source of a setting among the sources; the first counts.
fn precedence<F: ?Sized>(reader: &Reader<'_>, setting: &Setting<F>) -> Option<u8> {
    reader.is_set(setting).then(|| match reader.origin(setting) {
        Origin::Flag(_) => 0,
        Origin::Environment(_) => 1,
        Origin::File(..) | Origin::Default => 2,
    })
}

fn file(reader: &mut Reader<'_>, setting: &Setting<File>) -> Read<PathBuf> {
    let path = reader.read_if_set(setting)?;
    path.ok_or_else(|| reader.missing(setting, "tls.mode is files and this file is not named"))
}

/// The files of certificate and key, each if its setting names one without a fault.
#[derive(Clone, Debug, Default)]
pub struct NamedFiles {
    /// The certificate chain.
    pub cert: Option<PathBuf>,
    /// The private key.
    pub key: Option<PathBuf>,
}

/// The files that the mode needs, if it is `files`.
pub(super) fn named_files(reader: &mut Reader<'_>) -> NamedFiles {
    if mode(reader) != Ok(Mode::Files) {
        return NamedFiles::default();
    }
    NamedFiles {
        cert: file(reader, &CERT).ok(),
        key: file(reader, &KEY).ok(),
    }
}

/// Why the service may not listen on this address, if so.
pub(super) fn forbids(
    address: SocketAddr,
    tls: &Tls,
    has_proxies: bool,
    is_dev: bool,
) -> Option<&'static str> {
    if address.ip().is_loopback() {
        return None;
    }
    if is_dev {
        return Some("the development server listens on loopback only");
    }
    (*tls == Tls::Off && !has_proxies).then_some(PLAIN_AND_PUBLIC)
}

/// Refuses what names a certificate beside a mode that has another one or none, if one source sets both. If a source of
/// higher precedence sets the mode, domains have no effect, which is a warning.
fn check_unused(reader: &mut Reader<'_>, mode: Mode) {
    let is_by_domains = is_by_domains(reader);
    let (chosen_at, cause) = if is_by_domains {
        let place = reader.origin(&acme::DOMAINS);
        (
            precedence(reader, &acme::DOMAINS),
            format!("acme.domains is set ({place})"),
        )
    } else {
        let (word, place) = (MODE.form.word(&mode).unwrap_or_default(), reader.origin(&MODE));
        (
            precedence(reader, &MODE),
            format!("tls.mode is {word:?} ({place})"),
        )
    };
    let files = match mode {
        Mode::Files => [None, None],
        Mode::Acme | Mode::SelfSigned | Mode::Off => [Some(&CERT), Some(&KEY)],
    };
    for setting in files.into_iter().flatten() {
        if reader.is_set(setting) && precedence(reader, setting) == chosen_at {
            let key = setting.key;
            let other = if is_by_domains {
                "take acme.domains out"
            } else {
                "set tls.mode to files"
            };
            let message = format!("{key} is set, and {cause}: take {key} out, or else {other}");
            reader.fault(setting, message);
        }
    }
    if mode != Mode::Acme && reader.is_set(&acme::DOMAINS) && reader.is_set(&MODE) {
        let remedy = "take tls.mode out to have the certificate by ACME, or else acme.domains";
        if precedence(reader, &acme::DOMAINS) == chosen_at {
            reader.fault(
                &acme::DOMAINS,
                format!("acme.domains is set, and {cause}: {remedy}"),
            );
        } else {
            let message = format!("acme.domains has no effect, because {cause}: {remedy}");
            reader.warn(&acme::DOMAINS, message);
        }
    }
}

/// Warns of a self-signed certificate for a public host. The packaged configuration has one until the operator chooses.
fn warn_of_self_signed(reader: &mut Reader<'_>, base_url: &str) {
    if reader.is_set(&MODE)
        && !reader.sources.is_dev
        && let Some(host) = host_of(base_url).filter(|host| is_public(host))
    {
        let message = format!(
            "tls.mode is \"self-signed\": browsers and applications refuse such a certificate for {host}. Set tls.mode to acme, or to files with a certificate of your own"
        );
        reader.warn(&MODE, message);
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

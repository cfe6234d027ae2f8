//! The settings for client certificates: the listener that asks for them, and whose certificates authenticate clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use super::form::{List, Parsed};
use super::listen::address;
use super::network::{Conflict, Network};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use super::tls::{Tls, forbids};
use crate::oauth::client_certificate::ClientAuthorities;
use crate::oauth::mtls::MtlsPolicy;

pub(super) const SETTINGS: &[&Setting] = &[&LISTEN, &CA, &BASE_URL];

pub(super) static LISTEN: Setting<Parsed<Option<SocketAddr>>> = Setting {
    key: "tls.mtls_listen",
    doc: "The address where clients show certificates (RFC 8705), off for none. It uses the certificate of the service, and\n\
     serves only the endpoints that clients call. TLS must end in this process: not behind a proxy that ends it.",
    default: Some(Literal::Text("off")),
    example: Literal::Text("0.0.0.0:9443"),
    value_name: "ADDRESS",
    help: Some("The address for clients with a certificate, off for none"),
    form: Parsed(parse_listen),
};

pub(super) static CA: Setting<List<String>> = Setting {
    key: "tls.mtls_ca",
    doc: "The authorities (PEM) whose certificates authenticate clients by tls_client_auth. Read at the start.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["/etc/idsvc/clients-ca.pem"]),
    value_name: "FILE",
    help: Some("The authorities whose certificates authenticate clients"),
    form: List::of_texts(),
};

pub(super) static BASE_URL: Setting<Parsed<String>> = Setting {
    key: "tls.mtls_base_url",
    doc: "Scheme, host and port by which clients reach tls.mtls_listen. The certificate of the service must name the host.\n\
     Left out: those of base_url, with the port of tls.mtls_listen.",
    default: None,
    example: Literal::Text("https://mtls.id.example.com"),
    value_name: "URL",
    help: Some("The address by which clients reach tls.mtls_listen"),
    form: Parsed(parse_base_url),
};

/// The settings, if clients can show certificates.
#[derive(Clone, Debug, Default)]
pub struct Mtls {
    /// The address of the listener. `None` if it is off.
    pub listen: Option<SocketAddr>,
    /// The files of the authorities.
    pub ca_files: Vec<PathBuf>,
    /// The address that clients are told.
    pub base_url: Option<String>,
}

impl Mtls {
    /// What protocol rules need of it.
    pub fn policy(&self) -> MtlsPolicy {
        MtlsPolicy {
            port: self.listen.map(|address| address.port()),
            base_url: self.base_url.clone(),
            has_authorities: !self.ca_files.is_empty(),
        }
    }

    /// Reads the authorities. The error is a sentence that names the file.
    pub fn authorities(&self) -> Result<Option<ClientAuthorities>, String> {
        read_authorities(&self.ca_files)
    }
}

fn read_authorities(files: &[PathBuf]) -> Result<Option<ClientAuthorities>, String> {
    let mut pem = Vec::new();
    for file in files {
        let named = |problem: String| format!("{}: {problem}", file.display());
        let text = std::fs::read(file).map_err(|error| named(error.to_string()))?;
        ClientAuthorities::of_pem(&text).map_err(named)?;
        pem.extend_from_slice(&text);
        pem.push(b'\n');
    }
    if pem.is_empty() {
        return Ok(None);
    }
    ClientAuthorities::of_pem(&pem).map(Some)
}

fn ca_files(reader: &mut Reader<'_>) -> Read<Vec<PathBuf>> {
    Ok(reader.read(&CA)?.into_iter().map(PathBuf::from).collect())
}

pub(super) fn mtls(reader: &mut Reader<'_>) -> Read<Mtls> {
    reader.check(SETTINGS);
    Ok(Mtls {
        listen: reader.read(&LISTEN)?,
        ca_files: ca_files(reader)?,
        base_url: reader.read_if_set(&BASE_URL)?,
    })
}

/// Reads the authorities, as a start would.
pub(super) fn check_authorities(reader: &mut Reader<'_>) {
    if let Ok(files) = ca_files(reader)
        && let Err(problem) = read_authorities(&files)
    {
        reader.fault(&CA, format!("tls.mtls_ca: {problem}"));
    }
}

/// Checks the settings against the others.
pub(super) fn check(reader: &mut Reader<'_>, mtls: &Mtls, network: &Network) {
    let Some(address) = mtls.listen else {
        return;
    };
    if network.tls == Ok(Tls::Off) {
        reader.fault(
            &LISTEN,
            "tls.mtls_listen needs TLS that ends in this process, and tls.mode is \"off\": no header of a proxy replaces a certificate",
        );
    }
    if let Some(Conflict { key, taken }) = network.conflict(address) {
        let message =
            format!("tls.mtls_listen = \"{address}\" is taken by {key} = \"{taken}\": give it another port");
        reader.fault(&LISTEN, message);
    }
    if let Ok(tls) = &network.tls
        && let Some(reason) = forbids(address, tls, network.has_proxies(), reader.sources.is_dev)
    {
        let message = format!("tls.mtls_listen = \"{address}\": {reason}");
        reader.fault(&LISTEN, message);
    }
}

fn parse_listen(text: &str) -> Result<Option<SocketAddr>, String> {
    let problem = "is no address with a port, as in 0.0.0.0:9443; off for none";
    match text {
        "off" => Ok(None),
        text => address(text).map(Some).ok_or_else(|| problem.to_owned()),
    }
}

fn parse_base_url(text: &str) -> Result<String, String> {
    let is_origin = |url: &Url| url.scheme() == "https" && url.origin().ascii_serialization() == text;
    if Url::parse(text).is_ok_and(|url| is_origin(&url)) {
        Ok(text.to_owned())
    } else {
        Err(": name scheme, host and port only, as in https://mtls.id.example.com".to_owned())
    }
}

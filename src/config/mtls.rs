//! The settings for client certificates: the listener that asks for them, and whose certificates authenticate clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use super::{Config, Tls, listen};
use crate::net::listener::conflict_across_listeners;
use crate::oauth::client_certificate::ClientAuthorities;
use crate::oauth::mtls::MtlsPolicy;

pub(super) const LISTEN: Setting = setting(
    "tls.mtls_listen",
    Kind::Text,
    (
        "ADDRESS",
        "The address for clients with a certificate, off for none",
    ),
    Some(r#""off""#),
    r#""0.0.0.0:9443""#,
    "The address where clients show certificates (RFC 8705), off for none. It uses the certificate of the service, and\n\
     serves only the endpoints that clients call. TLS must end in this process: not behind a proxy that ends it.",
);

pub(super) const CA: Setting = setting(
    "tls.mtls_ca",
    Kind::List,
    ("FILE", "The authorities whose certificates authenticate clients"),
    Some("[]"),
    r#"["/etc/idsvc/clients-ca.pem"]"#,
    "The authorities (PEM) whose certificates authenticate clients by tls_client_auth. Read at the start.",
);

pub(super) const BASE_URL: Setting = setting(
    "tls.mtls_base_url",
    Kind::Text,
    ("URL", "The address by which clients reach tls.mtls_listen"),
    None,
    r#""https://mtls.id.example.com""#,
    "Scheme, host and port by which clients reach tls.mtls_listen. The certificate of the service must name the host.\n\
     Left out: those of base_url, with the port of tls.mtls_listen.",
);

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
        let mut pem = Vec::new();
        for file in &self.ca_files {
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
}

pub(super) fn mtls(reader: &mut Reader<'_>) -> Mtls {
    let listen = reader
        .text(LISTEN.key)
        .filter(|(text, _)| text != "off")
        .and_then(|(text, origin)| {
            let address = listen::address(&text);
            if address.is_none() {
                let message = format!(
                    "tls.mtls_listen = {text:?} is no address with a port, as in 0.0.0.0:9443; off for none"
                );
                reader.fault(&origin, message);
            }
            address
        });
    let base_url = reader.explicit(BASE_URL.key).and_then(|_| {
        let (text, origin) = reader.text(BASE_URL.key)?;
        let url = url::Url::parse(&text).ok();
        let is_origin = url.is_some_and(|url| url.scheme() == "https" && url.origin().ascii_serialization() == text);
        if !is_origin {
            let message = format!(
                "tls.mtls_base_url = {text:?}: name scheme, host and port only, as in https://mtls.id.example.com"
            );
            reader.fault(&origin, message);
        }
        Some(text)
    });
    let ca_files = match reader.explicit(CA.key) {
        Some(_) => reader.list(CA.key).0.into_iter().map(PathBuf::from).collect(),
        None => Vec::new(),
    };
    Mtls {
        listen,
        ca_files,
        base_url,
    }
}

/// Checks the settings against the others, and reads the files.
pub(super) fn check(reader: &mut Reader<'_>, config: &Config) {
    let mtls = &config.settings.mtls;
    if let Err(problem) = mtls.authorities() {
        reader.fault_at(CA.key, format!("tls.mtls_ca: {problem}"));
    }
    let Some(address) = mtls.listen else {
        return;
    };
    if config.tls == Tls::Off && !reader.is_unread("tls.mode") {
        reader.fault_at(
            LISTEN.key,
            "tls.mtls_listen needs TLS that ends in this process, and tls.mode is \"off\": no header of a proxy replaces a certificate",
        );
    }
    let named = |key: &'static str, taken: &[SocketAddr]| {
        let conflict = taken
            .iter()
            .find(|taken| conflict_across_listeners(**taken, address));
        conflict.map(|taken| (key, *taken))
    };
    let taken = named("listen", &config.listen)
        .or_else(|| named("redirect_port", &config.redirect_listen))
        .or_else(|| named("metrics.listen", config.metrics_listen.as_slice()));
    if let Some((key, taken)) = taken {
        let message =
            format!("tls.mtls_listen = \"{address}\" is taken by {key} = \"{taken}\": give it another port");
        reader.fault_at(LISTEN.key, message);
    }
    if let Some(reason) = config.forbids(address) {
        reader.fault_at(LISTEN.key, format!("tls.mtls_listen = \"{address}\": {reason}"));
    }
}

//! How the service reaches others.

use ipnet::IpNet;

use super::form::{File, List};
use super::networks::parse_network;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::net::outbound::{Client, OutboundPolicy};

pub(super) const SETTINGS: &[&Setting] = &[&CA_FILE, &ALLOW];

pub(super) static CA_FILE: Setting<File> = Setting {
    key: "outbound.ca_file",
    doc: "A PEM file of certificate authorities to trust beside those of the web, for providers,\n\
         published keys, metadata of clients and acme.directory.",
    default: None,
    example: Literal::Text("/etc/idsvc/company-ca.pem"),
    value_name: "FILE",
    help: Some("Certificate authorities to trust beside those of the web"),
    form: File,
};

pub(super) static ALLOW: Setting<List<IpNet>> = Setting {
    key: "outbound.allow",
    doc: "Networks that are not public and may still be reached, for providers, published keys,\n\
         metadata of clients and acme.directory.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["10.0.0.0/8"]),
    value_name: "NETWORK",
    help: Some("A network that may be reached though it is not public"),
    form: List::of(parse_network),
};

pub(super) fn outbound(reader: &mut Reader<'_>) -> Read<OutboundPolicy> {
    reader.check(SETTINGS);
    Ok(OutboundPolicy {
        ca_file: reader.read_if_set(&CA_FILE)?,
        allow: reader.read(&ALLOW)?,
    })
}

/// Loads the certificate authorities, as a start would.
pub(super) fn check(reader: &mut Reader<'_>) {
    let Ok(ca_file) = reader.read_if_set(&CA_FILE) else {
        return;
    };
    let policy = OutboundPolicy {
        ca_file,
        ..OutboundPolicy::default()
    };
    if let Err(error) = Client::new(&policy) {
        reader.fault(&CA_FILE, error.to_string());
    }
}

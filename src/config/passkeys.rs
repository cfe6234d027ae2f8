//! The settings for passkeys.

use super::form::{Flag, List};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::oauth::redirect_uri;

/// The most origins. Browsers read no more than five registrable domains.
const MOST: usize = 20;

pub(super) const SETTINGS: &[&Setting] = &[&ORIGINS, &OFFER];

pub(super) static ORIGINS: Setting<List<String>> = Setting {
    key: "passkeys.origins",
    doc: "Further origins whose pages may use the passkeys of this service (Related Origin Requests). They are published at\n\
     /.well-known/webauthn. Passkeys belong to the host of base_url.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["https://example.net"]),
    value_name: "ORIGIN",
    help: Some("A further origin whose pages may use the passkeys"),
    form: List::of(parse_origin),
};

pub(super) static OFFER: Setting<Flag> = Setting {
    key: "passkeys.offer",
    doc: "Whether a user without a passkey who has signed in with a password is offered one, on a device that can keep it. In a\n\
     browser in which the user declined, the next offer is made after 30 days.",
    default: Some(Literal::Flag(true)),
    example: Literal::Flag(false),
    value_name: "BOOL",
    help: Some("Offer a passkey after a sign-in with a password"),
    form: Flag,
};

pub(super) fn origins(reader: &mut Reader<'_>) -> Read<Vec<String>> {
    let origins = reader.read(&ORIGINS)?;
    if origins.len() > MOST {
        let message = format!("passkeys.origins may have {MOST} origins at most");
        return Err(reader.fault(&ORIGINS, message));
    }
    Ok(origins)
}

/// An origin is https and has no path.
fn parse_origin(text: &str) -> Result<String, String> {
    let is_origin = redirect_uri::origin(text).is_some_and(|origin| origin == text);
    if is_origin && text.starts_with("https://") {
        Ok(text.to_owned())
    } else {
        Err("is not an https origin, such as https://example.net".to_owned())
    }
}

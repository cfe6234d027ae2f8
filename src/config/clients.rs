//! The settings for clients that the operator did not register.

use super::form::{Flag, Number, Words};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::oauth::registration::{RegistrationMode, RegistrationPolicy};

pub(super) const SETTINGS: &[&Setting] = &[&REGISTRATION, &MOST_REGISTERED, &METADATA_DOCUMENTS];

pub(super) static REGISTRATION: Setting<Words<RegistrationMode>> = Setting {
    key: "clients.registration",
    doc: "Who may register a client at /oauth2/register (RFC 7591): off for nobody, token for holders of an initial access token\n\
     (idsvc client registration-token add), open for everybody.",
    default: Some(Literal::Text("off")),
    example: Literal::Text("token"),
    value_name: "WHO",
    help: Some("Who may register a client: off, token or open"),
    form: Words(&[
        ("off", RegistrationMode::Off),
        ("token", RegistrationMode::Token),
        ("open", RegistrationMode::Open),
    ]),
};

pub(super) static MOST_REGISTERED: Setting<Number<usize>> = Setting {
    key: "clients.most_registered",
    doc: "The most clients that registered themselves, and the most that have a metadata document; more are refused. A client that\n\
     registered itself is removed if no user allows it anything within 30 days. One with a metadata document is removed if nobody\n\
     uses it for 30 days, or for the lifetime of a refresh token if that is longer.",
    default: Some(Literal::Number(10_000)),
    example: Literal::Number(1000),
    value_name: "COUNT",
    help: Some("The most clients that may register themselves"),
    form: Number::within(1, 1_000_000),
};

pub(super) static METADATA_DOCUMENTS: Setting<Flag> = Setting {
    key: "clients.metadata_documents",
    doc: "Whether a client may be identified by the https address of its metadata (OAuth Client ID Metadata Document).",
    default: Some(Literal::Flag(false)),
    example: Literal::Flag(true),
    value_name: "BOOL",
    help: Some("Accept a client_id that is the address of the client's metadata"),
    form: Flag,
};

/// Who may register a client, and how many.
pub(super) fn registration(reader: &mut Reader<'_>) -> Read<RegistrationPolicy> {
    reader.check(SETTINGS);
    Ok(RegistrationPolicy {
        mode: reader.read(&REGISTRATION)?,
        most_clients: reader.read(&MOST_REGISTERED)?,
    })
}

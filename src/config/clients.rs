//! The settings for clients that the operator did not register.

use super::form::{Flag, List, Number, Words};
use super::memory::registrant_bytes;
use super::memory_limit::MemoryLimit;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::oauth::redirect_uri::{check_registrable, has_private_scheme};
use crate::oauth::registration::{KNOWN_SCHEMES, RegistrationMode, RegistrationPolicy};

pub(super) const SETTINGS: &[&Setting] = &[
    &REGISTRATION,
    &MOST_REGISTERED,
    &METADATA_DOCUMENTS,
    &REGISTRATION_SCHEMES,
];

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
    doc: "The most clients that registered themselves, and the most that have a metadata document. Their rows also have a share of\n\
     limits.memory. If there is no room, one more takes the place of the oldest that no user has allowed, of the sender who\n\
     registered most. If users have allowed all, it takes that of the oldest of the user who alone uses most. If several users have allowed\n\
     each, it takes that of the oldest of the user who was the first at most. A client that registered itself is removed if no user\n\
     allows it anything within 30 days. One with a metadata document is removed if nobody uses it for 30 days, or for the lifetime\n\
     of a refresh token if that is longer.",
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

pub(super) static REGISTRATION_SCHEMES: Setting<List<String>> = Setting {
    key: "clients.registration_schemes",
    doc: "The private-use schemes that redirect URIs of clients may have that the operator did not register, beside schemes with a dot.\n\
     A redirect to another scheme could start any program of a person's device. The default names programs that are known to\n\
     register themselves at MCP servers.",
    default: Some(Literal::List(KNOWN_SCHEMES)),
    example: Literal::List(&["cursor", "vscode"]),
    value_name: "SCHEME",
    help: Some("A private-use scheme that clients may register themselves with; may be repeated"),
    form: List::of(parse_scheme),
};

/// A scheme (RFC 3986 section 3.1) in lower case.
fn parse_scheme(text: &str) -> Result<String, String> {
    let is_scheme = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c));
    let uri = format!("{text}:/callback");
    if is_scheme && has_private_scheme(&uri) && check_registrable(&uri, true).is_ok() {
        Ok(text.to_owned())
    } else {
        Err("is not a private-use scheme in lower-case letters, such as cursor".to_owned())
    }
}

/// Who may register a client, and how many.
pub(super) fn registration(
    reader: &mut Reader<'_>,
    limit: Read<Option<MemoryLimit>>,
) -> Read<RegistrationPolicy> {
    reader.check(SETTINGS);
    Ok(RegistrationPolicy {
        mode: reader.read(&REGISTRATION)?,
        most_clients: reader.read(&MOST_REGISTERED)?,
        room: registrant_bytes(limit?),
        schemes: reader.read(&REGISTRATION_SCHEMES)?,
    })
}

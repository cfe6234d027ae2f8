//! The settings for clients that the operator did not register.

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use crate::oauth::registration::{RegistrationMode, RegistrationPolicy};

pub(super) const REGISTRATION: Setting = setting(
    "clients.registration",
    Kind::Text,
    ("WHO", "Who may register a client: off, token or open"),
    Some(r#""off""#),
    r#""token""#,
    "Who may register a client at /oauth2/register (RFC 7591): off for nobody, token for holders of an initial access token\n\
     (idsvc client registration-token add), open for everybody.",
);

pub(super) const MOST_REGISTERED: Setting = setting(
    "clients.most_registered",
    Kind::Number,
    ("COUNT", "The most clients that may register themselves"),
    Some("10000"),
    "1000",
    "The most clients that registered themselves, and the most that have a metadata document; more are refused. A client that\n\
     registered itself is removed if no user allows it anything within 30 days. One with a metadata document is removed if nobody\n\
     uses it for 30 days, or for the lifetime of a refresh token if that is longer.",
);

pub(super) const METADATA_DOCUMENTS: Setting = setting(
    "clients.metadata_documents",
    Kind::Flag,
    (
        "BOOL",
        "Accept a client_id that is the address of the client's metadata",
    ),
    Some("false"),
    "true",
    "Whether a client may be identified by the https address of its metadata (OAuth Client ID Metadata Document).",
);

/// Who may register a client, and how many.
pub(super) fn registration(reader: &mut Reader<'_>) -> RegistrationPolicy {
    let mode = match reader.one_of(REGISTRATION.key, &["off", "token", "open"]) {
        Some("token") => RegistrationMode::Token,
        Some("open") => RegistrationMode::Open,
        _ => RegistrationMode::Off,
    };
    let most = reader.number_within(MOST_REGISTERED.key, 1..=1_000_000);
    RegistrationPolicy {
        mode,
        most_clients: usize::try_from(most).unwrap_or(1),
    }
}

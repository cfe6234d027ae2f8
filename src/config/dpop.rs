//! The settings for proofs of possession.

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use crate::oauth::dpop::DpopNonce;

pub(super) const NONCE: Setting = setting(
    "dpop.nonce",
    Kind::Text,
    (
        "WHETHER",
        "Whether DPoP proofs must have a nonce: off or required",
    ),
    Some(r#""off""#),
    r#""required""#,
    "Whether DPoP proofs must have a nonce of this service (RFC 9449 section 8): off, or required. A client gets a nonce in the\n\
     header DPoP-Nonce, and repeats its first request. A nonce is good for five minutes.",
);

/// Whether proofs must have a nonce.
pub(super) fn nonce(reader: &mut Reader<'_>) -> DpopNonce {
    match reader.one_of(NONCE.key, &["off", "required"]) {
        Some("required") => DpopNonce::Required,
        _ => DpopNonce::Off,
    }
}

//! The settings for proofs of possession.

use super::form::Words;
use super::setting::{Literal, Setting};
use crate::oauth::dpop::DpopNonce;

pub(super) const SETTINGS: &[&Setting] = &[&NONCE];

pub(super) static NONCE: Setting<Words<DpopNonce>> = Setting {
    key: "dpop.nonce",
    doc: "Whether DPoP proofs must have a nonce of this service (RFC 9449 section 8): off, or required. A client gets a nonce in the\n\
     header DPoP-Nonce, and repeats its first request. A nonce is good for five minutes, and\n\
     the clock of the client does not count.",
    default: Some(Literal::Text("off")),
    example: Literal::Text("required"),
    value_name: "WHETHER",
    help: Some("Whether DPoP proofs must have a nonce: off or required"),
    form: Words(&[("off", DpopNonce::Off), ("required", DpopNonce::Required)]),
};

//! What holds for every sequence of bytes that a stranger may send: one function a target.
//!
//! The fuzzer calls them with what it invents (`tests/fuzz/run`), the tests with the seeds that are kept
//! (`tests/it/hostile.rs`). A property panics when it does not hold, and says whether the bytes were accepted as what it
//! is about: of one that accepts nothing, or everything, half holds for want of trying.

mod authorization;
mod client_certificate;
mod client_document;
mod dpop;
mod jose;
mod operator;
mod reference;
mod request;
mod request_object;
mod storage;
mod webauthn;

/// A name and what has to hold for any bytes.
pub(crate) type Target = (&'static str, fn(&[u8]) -> bool);

/// Every target. Its seeds lie in `tests/fuzz/seeds`, in a folder of its name.
pub(crate) const TARGETS: &[Target] = &[
    ("age_header", storage::age_header),
    ("authenticator_data", webauthn::authenticator_data),
    ("authorize_query", authorization::authorize_query),
    ("backup", storage::backup),
    ("basic_header", request::basic_header),
    ("cbor", webauthn::cbor),
    ("claims", authorization::claims),
    ("client_certificate", client_certificate::client_certificate),
    ("client_document", client_document::client_document),
    ("client_data", webauthn::client_data),
    ("compact_jws", jose::compact_jws),
    ("config_file", operator::config_file),
    ("cookie", request::cookie),
    ("cose_key", webauthn::cose_key),
    ("dpop_proof", dpop::dpop_proof),
    ("form_body", request::form_body),
    ("json_body", request::json_body),
    ("jwk", jose::jwk),
    ("jwk_set", jose::jwk_set),
    ("jwt", jose::jwt),
    ("pem", jose::pem),
    ("redirect_uri", authorization::redirect_uri),
    ("refresh_token", storage::refresh_token),
    ("registration", authorization::registration),
    ("request_object", request_object::request_object),
    ("scope", authorization::scope),
    ("stored_key", storage::stored_key),
    ("stored_record", storage::stored_record),
    ("theme_manifest", operator::theme_manifest),
    ("theme_template", operator::theme_template),
];

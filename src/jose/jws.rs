//! Compact serialization (RFC 7515 section 7.1), read strictly.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::json;

/// The longest token that is looked at, in bytes.
pub const MAX_TOKEN_LEN: usize = 16 * 1024;

/// A compact JWS taken apart. Nothing but its form is known to be right.
#[derive(Debug)]
pub struct Compact<'a> {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    payload: Vec<u8>,
    signature: Vec<u8>,
    signing_input: &'a str,
}

/// Why a text is not a compact JWS that can be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    /// Longer than [`MAX_TOKEN_LEN`].
    #[error("token is longer than 16 KiB")]
    TooLong,
    /// Not three parts with dots between them.
    #[error("token is not three parts separated by dots")]
    NotCompact,
    /// A part is not base64url, is padded, or leaves bits over that are not zero.
    #[error("token is not base64url without padding")]
    NotBase64Url,
    /// The header is not a JSON object, or names a member twice, or one of its members has a wrong type.
    #[error("token header is malformed")]
    MalformedHeader,
    /// The header asks for an extension (`crit` or `b64`); none is supported (RFC 7515 section 4.1.11).
    #[error("token header uses an unsupported extension")]
    UnsupportedExtension,
}

impl<'a> Compact<'a> {
    /// Takes a token apart.
    ///
    /// Of the header only `alg`, `kid` and `typ` are kept. The members that carry or point to a key (`jwk`,
    /// `jku`, `x5u`, `x5c`) are ignored: a token does not choose the key it is checked with.
    pub fn parse(token: &'a str) -> Result<Self, JwsError> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(JwsError::TooLong);
        }
        let (signing_input, signature) = token.rsplit_once('.').ok_or(JwsError::NotCompact)?;
        let (header, payload) = signing_input.split_once('.').ok_or(JwsError::NotCompact)?;
        if payload.contains('.') {
            return Err(JwsError::NotCompact);
        }
        let [header, payload, signature] =
            [header, payload, signature].map(|part| URL_SAFE_NO_PAD.decode(part));
        let header = header.map_err(|_| JwsError::NotBase64Url)?;
        let payload = payload.map_err(|_| JwsError::NotBase64Url)?;
        let signature = signature.map_err(|_| JwsError::NotBase64Url)?;

        let mut header = json::object(&header).map_err(|_| JwsError::MalformedHeader)?;
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(JwsError::UnsupportedExtension);
        }
        let mut text = |name| match header.remove(name) {
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(JwsError::MalformedHeader),
            None => Ok(None),
        };
        Ok(Self {
            alg: text("alg")?.ok_or(JwsError::MalformedHeader)?,
            kid: text("kid")?,
            typ: text("typ")?,
            payload,
            signature,
            signing_input,
        })
    }

    /// The algorithm the token claims to be signed with.
    pub fn alg(&self) -> &str {
        &self.alg
    }

    /// The name of the key the token claims to be signed with. It is a hint, in any form the sender likes.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The media type the token claims to have.
    pub fn typ(&self) -> Option<&str> {
        self.typ.as_deref()
    }

    /// The payload, decoded.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The signature, decoded.
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// What the signature is over: header and payload as they were sent.
    pub fn signing_input(&self) -> &'a str {
        self.signing_input
    }
}

//! Compact serialization (RFC 7515 section 7.1), read strictly.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::json;

/// The longest accepted token, in bytes.
pub const MAX_TOKEN_LEN: usize = 16 * 1024;

/// The parts of a compact JWS. Only its form was checked.
#[derive(Debug)]
pub struct Compact<'a> {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    jwk: Option<Value>,
    payload: Vec<u8>,
    signature: Vec<u8>,
    signing_input: &'a str,
}

/// Why a text is not an accepted compact JWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    /// Longer than [`MAX_TOKEN_LEN`].
    #[error("token is longer than 16 KiB")]
    TooLong,
    /// Not three parts with dots between them.
    #[error("token is not three parts separated by dots")]
    NotCompact,
    /// A part is not base64url, is padded, or has trailing bits that are not zero.
    #[error("token is not base64url without padding")]
    NotBase64Url,
    /// The header is not a JSON object, has a repeated member, or has a member of a wrong type.
    #[error("token header is malformed")]
    MalformedHeader,
    /// The header requires an extension (`crit` or `b64`). None is supported (RFC 7515 section 4.1.11).
    #[error("token header uses an unsupported extension")]
    UnsupportedExtension,
}

impl<'a> Compact<'a> {
    /// Splits a token into its parts.
    ///
    /// Only `alg`, `kid`, `typ` and `jwk` of the header are read. Members that name a key elsewhere (`jku`, `x5u`, `x5c`)
    /// are ignored.
    pub fn parse(token: &'a str) -> Result<Self, JwsError> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(JwsError::TooLong);
        }
        let (signing_input, signature) = token.rsplit_once('.').ok_or(JwsError::NotCompact)?;
        let (header, payload) = signing_input.split_once('.').ok_or(JwsError::NotCompact)?;
        if payload.contains('.') {
            return Err(JwsError::NotCompact);
        }
        let decode = |part| URL_SAFE_NO_PAD.decode(part).map_err(|_| JwsError::NotBase64Url);
        let (header, payload, signature) = (decode(header)?, decode(payload)?, decode(signature)?);
        let mut header = json::object(&header).map_err(|_| JwsError::MalformedHeader)?;
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(JwsError::UnsupportedExtension);
        }
        let jwk = header.remove("jwk");
        let mut text = |name| match header.remove(name) {
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(JwsError::MalformedHeader),
            None => Ok(None),
        };
        Ok(Self {
            alg: text("alg")?.ok_or(JwsError::MalformedHeader)?,
            kid: text("kid")?,
            typ: text("typ")?,
            jwk,
            payload,
            signature,
            signing_input,
        })
    }

    /// `alg` of the header.
    pub fn alg(&self) -> &str {
        &self.alg
    }

    /// `kid` of the header, an arbitrary text.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// `typ` of the header.
    pub fn typ(&self) -> Option<&str> {
        self.typ.as_deref()
    }

    /// `jwk` of the header. A token must not choose the key that it is verified with, unless it only proves that its
    /// sender holds that key.
    pub fn jwk(&self) -> Option<&Value> {
        self.jwk.as_ref()
    }

    /// The payload, decoded.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The signature, decoded.
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// The signed text: header and payload as they were sent.
    pub fn signing_input(&self) -> &'a str {
        self.signing_input
    }
}

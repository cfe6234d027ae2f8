//! Secrets as two types: a [`Secret`] is shown once to its holder; only its [`Digest`] is stored.
//!
//! The text of a secret is a prefix that names its kind, then base64url of `locator ‖ 32 secret bytes ‖ checksum`. The
//! prefix lets a secret scanner find a leaked secret. The checksum reveals a typing error without access to the store.
//! The locator names the row that the secret belongs to, and is not secret. The 256 secret bits are random, except those
//! of a refresh token: they are derived ([`crate::oauth::refresh_keys`]), and no digest of the token is stored.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::random::Random;

const SECRET_LEN: usize = 32;
const CHECKSUM_LEN: usize = 4;

/// The purpose of a secret. Digests of different kinds cannot be compared.
pub trait Kind: 'static {
    /// The beginning of every secret of this kind.
    const PREFIX: &'static str;
    /// The length of the locator in bytes.
    const LOCATOR_LEN: usize;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $prefix:literal $locator:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}
        impl Kind for $name {
            const PREFIX: &'static str = $prefix;
            const LOCATOR_LEN: usize = $locator;
        }
    )*};
}

kinds! {
    /// A refresh token (RFC 6749 section 1.5). Locator: family id, key number, generation, lineage.
    RefreshToken "idsvc_rt_" 40;
    /// An authorization code (RFC 6749 section 4.1.2). Locator: the code's id.
    AuthorizationCode "idsvc_ac_" 16;
    /// A device code (RFC 8628 section 3.2). Locator: the id of the device authorization.
    DeviceCode "idsvc_dc_" 16;
    /// An API key for the refresh endpoint. Locator: the key's id.
    ApiKey "idsvc_key_" 16;
    /// A client secret (RFC 6749 section 2.3.1).
    ClientSecret "idsvc_cs_" 0;
    /// An initial access token (RFC 7591 section 1.2). Locator: its id.
    InitialAccessToken "idsvc_iat_" 16;
    /// A registration access token (RFC 7592 section 1.2).
    RegistrationAccessToken "idsvc_rat_" 0;
    /// The cookie of a signed-in browser. Locator: the session's id.
    SessionCookie "idsvc_se_" 16;
    /// The cookie that binds a sign-in under way to one browser.
    BrowserCookie "idsvc_br_" 0;
    /// A link that works once. Locator: the hour in which it expires, and its id.
    LinkSecret "idsvc_li_" 20;
    /// `state` towards an upstream provider. Locator: the login transaction's id.
    UpstreamState "idsvc_us_" 16;
    /// The common part of all tokens of a refresh family. It proves that an old token belonged to the family.
    Lineage "idsvc_ln_" 0;
    /// A recovery code, which people type. Only its digest is kept.
    RecoveryCode "idsvc_rc_" 0;
    /// A password hash from a file. Only its digest is kept after the password is changed.
    DeclaredHash "idsvc_ph_" 0;
    /// The seed of an authenticator app from a file. Its digest stays if the user removes the app.
    DeclaredSeed "idsvc_ts_" 0;
}

/// A secret in the clear. It cannot be printed by accident: only [`Secret::reveal`] returns its text.
pub struct Secret<K> {
    text: Zeroizing<String>,
    /// The locator and the secret bytes.
    payload: Zeroizing<Vec<u8>>,
    kind: PhantomData<fn() -> K>,
}

/// The text is not a secret of this kind: wrong prefix, alphabet, length or checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed secret")]
pub struct Malformed;

impl<K: Kind> Secret<K> {
    /// Creates a secret for the row that `locator` names.
    ///
    /// A `locator` of another length than [`Kind::LOCATOR_LEN`] is truncated or padded with zeros.
    pub fn generate(locator: &[u8], random: &Random) -> Self {
        Self::assemble(locator, &Zeroizing::new(random.bytes()))
    }

    /// Creates a secret from its secret bytes. If the locator is known only inside a transaction, the bytes are drawn
    /// before it: a transaction may run twice and must not read entropy.
    pub fn assemble(locator: &[u8], secret: &[u8; SECRET_LEN]) -> Self {
        let mut payload = Zeroizing::new(Vec::with_capacity(K::LOCATOR_LEN + SECRET_LEN + CHECKSUM_LEN));
        payload.extend_from_slice(locator);
        payload.resize(K::LOCATOR_LEN, 0);
        payload.extend_from_slice(secret);
        let checksum = checksum::<K>(&payload);
        payload.extend_from_slice(&checksum);
        let mut text = Zeroizing::new(String::with_capacity(K::PREFIX.len() + payload.len() * 4 / 3 + 3));
        text.push_str(K::PREFIX);
        URL_SAFE_NO_PAD.encode_string(payload.as_slice(), &mut text);
        payload.truncate(K::LOCATOR_LEN + SECRET_LEN);
        Self {
            text,
            payload,
            kind: PhantomData,
        }
    }

    /// Parses a presented secret. This checks only its form.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let encoded = text.strip_prefix(K::PREFIX).ok_or(Malformed)?;
        let wanted = K::LOCATOR_LEN + SECRET_LEN + CHECKSUM_LEN;
        if encoded.len() != (wanted * 4).div_ceil(3) {
            return Err(Malformed);
        }
        let mut payload = Zeroizing::new(URL_SAFE_NO_PAD.decode(encoded).map_err(|_| Malformed)?);
        let (checked, found) = payload
            .split_at_checked(K::LOCATOR_LEN + SECRET_LEN)
            .ok_or(Malformed)?;
        if found != checksum::<K>(checked) {
            return Err(Malformed);
        }
        payload.truncate(K::LOCATOR_LEN + SECRET_LEN);
        Ok(Self {
            text: Zeroizing::new(text.to_owned()),
            payload,
            kind: PhantomData,
        })
    }

    /// The [`Kind::LOCATOR_LEN`] bytes that name the row of the secret.
    pub fn locator(&self) -> &[u8] {
        self.payload.get(..K::LOCATOR_LEN).unwrap_or_default()
    }

    /// The 32 bytes that make the secret hard to guess.
    pub fn secret_bytes(&self) -> &[u8] {
        self.payload.get(K::LOCATOR_LEN..).unwrap_or_default()
    }

    /// The digest that is stored.
    pub fn digest(&self) -> Digest<K> {
        Digest::of(self.text.as_bytes())
    }

    /// The text of the secret, for the one response that shows it.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl<K> Clone for Secret<K> {
    fn clone(&self) -> Self {
        Self {
            text: self.text.clone(),
            payload: self.payload.clone(),
            kind: PhantomData,
        }
    }
}

impl<K: Kind> fmt::Debug for Secret<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[redacted]", K::PREFIX)
    }
}

fn checksum<K: Kind>(payload: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(K::PREFIX.as_bytes());
    context.update(payload);
    let mut checksum = [0; CHECKSUM_LEN];
    for (to, from) in checksum.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    checksum
}

/// The SHA-256 of a secret, as the store keeps it. Compared in constant time.
pub struct Digest<K> {
    bytes: [u8; digest::SHA256_OUTPUT_LEN],
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Digest<K> {
    /// The digest of a secret's bytes. The secret may be one that the operator chose, without prefix.
    pub fn of(secret: &[u8]) -> Self {
        let mut bytes = [0; digest::SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
        Self {
            bytes,
            kind: PhantomData,
        }
    }

    /// The digest's bytes.
    pub fn as_bytes(&self) -> &[u8; digest::SHA256_OUTPUT_LEN] {
        &self.bytes
    }
}

impl<K> Clone for Digest<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Digest<K> {}

impl<K> PartialEq for Digest<K> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes.ct_eq(&other.bytes).into()
    }
}

impl<K> Eq for Digest<K> {}

impl<K: Kind> fmt::Debug for Digest<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({}…)", K::PREFIX)
    }
}

/// Base64url for people, bytes in the store.
impl<K> Serialize for Digest<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.bytes))
        } else {
            serializer.serialize_bytes(&self.bytes)
        }
    }
}

impl<'de, K> Deserialize<'de> for Digest<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = if deserializer.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
            let bytes = URL_SAFE_NO_PAD
                .decode(text.as_bytes())
                .map_err(serde::de::Error::custom)?;
            bytes
                .try_into()
                .map_err(|_| serde::de::Error::custom("a digest has 32 bytes"))?
        } else {
            deserializer.deserialize_bytes(DigestBytes)?
        };
        Ok(Self {
            bytes,
            kind: PhantomData,
        })
    }
}

struct DigestBytes;

impl Visitor<'_> for DigestBytes {
    type Value = [u8; digest::SHA256_OUTPUT_LEN];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the 32 bytes of a digest")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        bytes
            .try_into()
            .map_err(|_| E::invalid_length(bytes.len(), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_secret_parses_and_keeps_its_locator() {
        let minted = Secret::<AuthorizationCode>::generate(&[7; 16], &Random::system());
        let parsed = Secret::<AuthorizationCode>::parse(minted.reveal()).unwrap();
        assert_eq!(parsed.locator(), [7; 16]);
        assert_eq!(parsed.digest(), minted.digest());
    }

    #[test]
    fn a_changed_character_a_missing_one_and_another_kind_are_malformed() {
        let random = Random::system();
        let text = Secret::<AuthorizationCode>::generate(&[1; 16], &random)
            .reveal()
            .to_owned();
        let mut changed = text.clone().into_bytes();
        let at = changed.len() - 10;
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        assert!(Secret::<AuthorizationCode>::parse(std::str::from_utf8(&changed).unwrap()).is_err());
        assert!(Secret::<AuthorizationCode>::parse(&text[..text.len() - 1]).is_err());
        let relabelled = text.replace(AuthorizationCode::PREFIX, SessionCookie::PREFIX);
        assert!(Secret::<SessionCookie>::parse(&relabelled).is_err());
        assert!(Secret::<AuthorizationCode>::parse("").is_err());
    }

    #[test]
    fn nothing_printed_holds_the_secret() {
        let secret = Secret::<ClientSecret>::generate(&[], &Random::system());
        assert_eq!(format!("{secret:?}"), "idsvc_cs_[redacted]");
        assert_eq!(format!("{:?}", secret.digest()), "Digest(idsvc_cs_…)");
        // The same inside other values.
        assert_eq!(
            format!("{:#?}", (Some(&secret), [secret.digest()])),
            "(\n    Some(\n        idsvc_cs_[redacted],\n    ),\n    [\n        Digest(idsvc_cs_…),\n    ],\n)"
        );
    }

    #[test]
    fn a_digest_survives_json() {
        let digest = Digest::<ApiKey>::of(b"a secret that the operator chose");
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Digest<ApiKey>>(&json).unwrap(), digest);
    }
}

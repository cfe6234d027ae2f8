//! Factors: what a user signs in with beside a password, one row each.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::secret::{Digest, RecoveryCode};

/// A factor of a user, stored by the user's UUID and its own time-ordered id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factor {
    /// The name that the user gave it; empty if the user gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When the user added it.
    pub added_at: Timestamp,
    /// When the user last signed in with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    pub kind: FactorKind,
}

/// What a factor is, with what verifies it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactorKind {
    /// A passkey (`WebAuthn` Level 3). A sign-in with it is complete by itself.
    Passkey(Passkey),
    /// An authenticator app, which makes codes (RFC 6238).
    Totp(Totp),
    /// Recovery codes on paper.
    RecoveryCodes(RecoveryCodes),
}

/// The longest name of a factor, in characters.
const LONGEST_NAME: usize = 64;

/// The name that a user typed, as it is stored.
pub fn factor_name(typed: &str) -> String {
    let name = typed.trim().chars().filter(|c| !c.is_control());
    name.take(LONGEST_NAME).collect()
}

impl FactorKind {
    /// The name in events.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Passkey(_) => "passkey",
            Self::Totp(_) => "totp",
            Self::RecoveryCodes(_) => "recovery_codes",
        }
    }

    /// The second step that this factor answers. None for a passkey.
    pub fn second_factor(&self) -> Option<SecondFactor> {
        match self {
            Self::Passkey(_) => None,
            Self::Totp(_) => Some(SecondFactor::Totp),
            Self::RecoveryCodes(_) => Some(SecondFactor::RecoveryCode),
        }
    }
}

/// The credential of a passkey (`WebAuthn` Level 3 section 4, "credential record").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passkey {
    #[serde(with = "bytes")]
    pub credential_id: Vec<u8>,
    /// The public key, as a `COSE_Key` (RFC 9052 section 7).
    #[serde(with = "bytes")]
    pub public_key: Vec<u8>,
    /// The signature counter of the last sign-in.
    pub sign_count: u32,
    /// Whether the authenticator may copy it to other devices.
    pub backup_eligible: bool,
    /// Whether it is copied now.
    pub backed_up: bool,
    /// The model of the authenticator, if the authenticator says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aaguid: Option<Uuid>,
    /// How the browser reaches the authenticator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transports: Vec<String>,
}

/// The seed that a user's authenticator app makes codes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totp {
    /// The seed, sealed with [`Totp::context`], base64url.
    pub sealed: String,
    /// The time step of the last code that was accepted. A code of this step or an earlier one is refused (RFC 6238
    /// section 5.2).
    pub last_step: u64,
}

impl Totp {
    /// The context that the seed of a user is sealed with.
    pub fn context(user: Uuid) -> String {
        format!("factors/{user}/totp")
    }
}

/// The recovery codes of a user that were not used yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryCodes {
    /// Their digests. The id of the factor is a part of what is digested.
    pub unused: Vec<Digest<RecoveryCode>>,
}

/// What answered the second step of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondFactor {
    /// A code of an authenticator app (RFC 6238).
    Totp,
    RecoveryCode,
    /// The second factor of the provider at which the user signed in, which the operator trusts for it.
    Provider,
}

impl SecondFactor {
    /// The `authority` in the token response's `amr`. None for a provider, which the first entry names.
    pub fn authority(self) -> Option<&'static str> {
        match self {
            Self::Totp => Some("totp"),
            Self::RecoveryCode => Some("recovery_code"),
            Self::Provider => None,
        }
    }
}

/// How surely a user was authenticated: `acr` in tokens. A higher level meets a demand for a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AuthenticationLevel {
    #[serde(rename = "1")]
    OneFactor,
    #[serde(rename = "2")]
    TwoFactors,
    /// Phishing-resistant, as `phr` of OpenID Connect Extended Authentication Profile (EAP) ACR Values 1.0 section 2.
    #[serde(rename = "phr")]
    PhishingResistant,
}

impl AuthenticationLevel {
    /// All levels, from the lowest.
    pub const ALL: [Self; 3] = [Self::OneFactor, Self::TwoFactors, Self::PhishingResistant];

    /// The value of `acr`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneFactor => "1",
            Self::TwoFactors => "2",
            Self::PhishingResistant => "phr",
        }
    }

    /// The level with this value of `acr`.
    pub fn of_acr(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == value)
    }
}

/// Bytes as bytes. Without this, a row would have a number for each of them.
mod bytes {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_bytes(Bytes)
    }

    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
            Ok(bytes.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::Record;

    #[test]
    fn a_factor_of_each_kind_is_read_as_it_was_stored() {
        let kinds = [
            FactorKind::Passkey(Passkey {
                credential_id: vec![0, 127, 128, 255],
                public_key: vec![200; 77],
                sign_count: 7,
                backup_eligible: true,
                backed_up: false,
                aaguid: Some(Uuid::from_u128(5)),
                transports: vec!["internal".to_owned(), "hybrid".to_owned()],
            }),
            FactorKind::Totp(Totp {
                sealed: "AQID".to_owned(),
                last_step: 56_666_666,
            }),
            FactorKind::RecoveryCodes(RecoveryCodes {
                unused: vec![Digest::of(b"one"), Digest::of(b"two")],
            }),
        ];
        for kind in kinds {
            for (name, last_used_at) in [("", None), ("Laptop", Some(Timestamp::from_seconds(9)))] {
                let factor = Factor {
                    name: name.to_owned(),
                    added_at: Timestamp::from_seconds(8),
                    last_used_at,
                    kind: kind.clone(),
                };
                let mut row = Vec::new();
                factor.encode(&mut row).unwrap();
                assert_eq!(Factor::decode(&row).unwrap(), factor);
            }
        }
    }

    #[test]
    fn a_level_has_one_value_and_a_higher_one_meets_a_lower_demand() {
        for level in AuthenticationLevel::ALL {
            assert_eq!(AuthenticationLevel::of_acr(level.as_str()), Some(level));
            assert_eq!(serde_json::to_value(level).unwrap(), level.as_str());
        }
        assert!(AuthenticationLevel::ALL.is_sorted());
        assert_eq!(AuthenticationLevel::of_acr("0"), None);
    }
}

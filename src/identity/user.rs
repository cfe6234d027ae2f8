//! The people and devices that tokens speak of.

use std::collections::BTreeMap;
use std::ops::Not;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::password::PasswordHash;
use crate::secret::{DeclaredHash, Digest};

/// A user: every standard claim of OpenID Connect Core 5.1 and what the token response adds. Every refresh reads one,
/// so the names in the row are short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The user's identifier in the platform: `sub` and `uuid` in every token.
    #[serde(rename = "id")]
    pub uuid: Uuid,
    /// The account identifier, unique, compared as a [`LoginName`]: without regard to case, in any script.
    #[serde(rename = "acct")]
    pub account_id: String,
    /// The e-mail address; none for a user without one.
    #[serde(rename = "mail", skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Whether the address was shown to belong to the user.
    #[serde(default, rename = "mail_ok", skip_serializing_if = "Not::not")]
    pub email_verified: bool,
    /// The telephone number, E.164 by recommendation of OpenID Connect Core 5.1.
    #[serde(rename = "tel", skip_serializing_if = "Option::is_none")]
    pub phone_number: Option<String>,
    /// Whether the number was shown to belong to the user.
    #[serde(default, rename = "tel_ok", skip_serializing_if = "Not::not")]
    pub phone_number_verified: bool,
    /// `user`, `anonymous`, `client`, or what the operator chose.
    #[serde(rename = "type")]
    pub user_type: String,
    /// The venue the user belongs to, `venueId` in tokens.
    #[serde(rename = "venue", skip_serializing_if = "Option::is_none")]
    pub venue_id: Option<String>,
    /// The organization the user belongs to.
    #[serde(rename = "org")]
    pub organization: String,
    /// Where the record came from: `LOCAL`, `ANONYMOUS`, `IMPORT`, or a provider's id.
    #[serde(rename = "src")]
    pub source: String,
    /// The remaining standard and private claims by name (`name`, `given_name`, `address`, …).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Value>,
    /// The stored password; none for a user who cannot sign in with one.
    #[serde(rename = "pw", skip_serializing_if = "Option::is_none")]
    pub password: Option<PasswordHash>,
    /// The hash that a file gave the user last, whatever the password has become since.
    #[serde(rename = "pw_by", skip_serializing_if = "Option::is_none")]
    pub declared_hash: Option<Digest<DeclaredHash>>,
    /// Who the user is at upstream providers.
    #[serde(default, rename = "ids", skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<LinkedIdentity>,
    /// Whether the user may be given tokens.
    #[serde(rename = "on")]
    pub enabled: bool,
    /// When the record was made.
    #[serde(rename = "from")]
    pub created_at: Timestamp,
    /// When the record last changed: the `updated_at` claim.
    #[serde(rename = "at")]
    pub updated_at: Timestamp,
}

/// Who a user is at an upstream provider: whoever that provider calls by this name is this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedIdentity {
    /// The issuer.
    pub issuer: String,
    /// `sub` in its ID tokens.
    pub subject: String,
    /// The id under which the provider was registered when the link was made.
    pub provider: String,
    /// When that was.
    pub linked_at: Timestamp,
}

impl User {
    /// The user types that say who a token is for when the operator chose nothing else.
    pub const DEFAULT_TYPE: &'static str = "user";
    /// The type of users who stand for whoever holds a device.
    pub const ANONYMOUS_TYPE: &'static str = "anonymous";
    /// The type of clients that act for themselves, who are no users.
    pub const CLIENT_TYPE: &'static str = "client";
    /// The origin marker of users that were added by the operator.
    pub const LOCAL: &'static str = "LOCAL";
    /// The origin marker of users that were brought over from another system.
    pub const IMPORT: &'static str = "IMPORT";
    /// The origin marker of users that a device asked for.
    pub const ANONYMOUS: &'static str = "ANONYMOUS";
    /// The origin markers that are no provider's id.
    pub const OWN_SOURCES: [&'static str; 4] = [Self::LOCAL, Self::ANONYMOUS, Self::IMPORT, "CLIENT"];

    /// Gives the user an e-mail address, or none. One that is new is not verified.
    pub fn set_email(&mut self, email: Option<String>) {
        self.email_verified &= self.email == email;
        self.email = email;
    }

    /// Gives the user a phone number, or none. One that is new is not verified.
    pub fn set_phone_number(&mut self, phone_number: Option<String>) {
        self.phone_number_verified &= self.phone_number == phone_number;
        self.phone_number = phone_number;
    }

    /// Gives the user a password by its hash out of a file. One hash does so once: what the password has become since,
    /// whether hashed anew or chosen by somebody, is newer than the file.
    pub fn take_declared(&mut self, hash: &PasswordHash) {
        let digest = Digest::of(hash.as_str().as_bytes());
        if self.declared_hash != Some(digest) {
            self.declared_hash = Some(digest);
            self.password = Some(hash.clone());
        }
    }

    /// Whether nobody would notice that `other` takes the place of this record: it knows of another file at most.
    pub fn is_as_declared(&self, other: &Self) -> bool {
        let declared_hash = other.declared_hash;
        let read = Self {
            declared_hash,
            ..self.clone()
        };
        read == *other
    }

    /// A user that the operator adds: enabled, without a password.
    pub fn local(uuid: Uuid, email: &str, organization: &str, now: Timestamp) -> Self {
        Self {
            uuid,
            account_id: email.to_owned(),
            email: Some(email.to_owned()),
            email_verified: false,
            phone_number: None,
            phone_number_verified: false,
            user_type: Self::DEFAULT_TYPE.to_owned(),
            venue_id: None,
            organization: organization.to_owned(),
            source: Self::LOCAL.to_owned(),
            claims: BTreeMap::new(),
            password: None,
            declared_hash: None,
            identities: Vec::new(),
            enabled: true,
            created_at: now,
            updated_at: now,
        }
    }

    /// A user that a provider speaks for, of whom nothing is known yet but the name of the account.
    pub fn federated(
        uuid: Uuid,
        account_id: String,
        provider: &str,
        organization: &str,
        now: Timestamp,
    ) -> Self {
        Self {
            account_id,
            email: None,
            source: provider.to_owned(),
            ..Self::local(uuid, "", organization, now)
        }
    }

    /// A user that stands for whoever holds a device. It has no name to sign in with.
    pub fn anonymous(uuid: Uuid, organization: &str, now: Timestamp) -> Self {
        Self {
            account_id: uuid.to_string(),
            email: None,
            user_type: Self::ANONYMOUS_TYPE.to_owned(),
            source: Self::ANONYMOUS.to_owned(),
            ..Self::local(uuid, "", organization, now)
        }
    }

    /// Whether nobody but the holder of a refresh token can be this user: there is no other way in.
    pub fn is_anonymous(&self) -> bool {
        self.source == Self::ANONYMOUS
            && self.email.is_none()
            && self.password.is_none()
            && self.identities.is_empty()
    }

    /// Whether the record was made because a provider spoke of the user.
    pub fn comes_from_provider(&self) -> bool {
        !Self::OWN_SOURCES.contains(&self.source.as_str())
    }

    /// What others know of the user: names, addresses, the organization.
    pub fn known_by(&self) -> Vec<&str> {
        let claims = [
            "name",
            "given_name",
            "middle_name",
            "family_name",
            "nickname",
            "preferred_username",
        ];
        let claims = claims
            .into_iter()
            .filter_map(|name| self.claims.get(name)?.as_str());
        let addresses = [&self.email, &self.phone_number].into_iter().flatten();
        [&self.account_id, &self.organization]
            .into_iter()
            .chain(addresses)
            .map(String::as_str)
            .chain(claims)
            .collect()
    }

    /// The name by which pages address the user.
    pub fn display_name(&self) -> &str {
        self.claims
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or(&self.account_id)
    }

    /// The names a person may type to sign in, in the form under which they are unique.
    ///
    /// An address that only a provider has named is none of them: it may be somebody else's.
    pub fn login_names(&self) -> Vec<LoginName> {
        // The name that it was made with nobody types; another one, which the operator chose, is nobody else's.
        if self.is_anonymous() && self.account_id == self.uuid.to_string() {
            return Vec::new();
        }
        let mut names = vec![LoginName::new(&self.account_id)];
        names.retain(LoginName::is_storable);
        if let Some(email) = self.email.as_ref().filter(|_| !self.comes_from_provider()) {
            let email = LoginName::new(email);
            if !names.contains(&email) {
                names.push(email);
            }
        }
        names
    }
}

/// A name as typed on the sign-in page, reduced to the form under which it is unique: trimmed, lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoginName(String);

impl LoginName {
    /// The length of the longest name that a user may have, in bytes of its reduced form.
    pub const LONGEST: usize = 512;

    /// Reduces what was typed. Of a name that nobody may have so much is kept that it still is none.
    pub fn new(typed: &str) -> Self {
        let mut name = typed.trim().to_lowercase();
        let end = name.ceil_char_boundary(Self::LONGEST + 1);
        name.truncate(end);
        Self(name)
    }

    /// Whether a user may have this name.
    pub fn is_storable(&self) -> bool {
        self.0.len() <= Self::LONGEST
    }

    /// The reduced name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_named_by_its_email_has_one_login_name() {
        let user = User::local(
            Uuid::from_u128(1),
            "Alice@Example.com",
            "default",
            Timestamp::from_seconds(0),
        );
        assert_eq!(user.login_names(), [LoginName::new(" alice@example.com ")]);
    }

    #[test]
    fn an_anonymous_user_has_no_login_name_until_there_is_a_way_to_sign_in() {
        let mut user = User::anonymous(Uuid::from_u128(1), "default", Timestamp::from_seconds(0));
        assert_eq!(user.account_id, user.uuid.to_string());
        assert!(user.is_anonymous() && user.login_names().is_empty());
        user.email = Some("alice@example.com".to_owned());
        assert!(!user.is_anonymous());
        assert_eq!(user.login_names().len(), 2);
    }

    /// Else the user would go with the device's last refresh token, and nobody would be let in by that link again.
    #[test]
    fn who_is_known_to_a_provider_is_not_anonymous() {
        let now = Timestamp::from_seconds(0);
        let mut user = User::anonymous(Uuid::from_u128(1), "default", now);
        user.identities.push(LinkedIdentity {
            issuer: "https://corp.example".to_owned(),
            subject: "u-1".to_owned(),
            provider: "corp".to_owned(),
            linked_at: now,
        });
        assert!(!user.is_anonymous());
    }

    #[test]
    fn a_name_that_is_too_long_is_nobodys_however_it_ends() {
        let longest = "x".repeat(512);
        assert!(LoginName::new(&format!(" {longest} ")).is_storable());
        for beyond in ["x", "é", "\u{1f511}"] {
            let typed = LoginName::new(&format!("{longest}{}", beyond.repeat(2_000)));
            assert!(!typed.is_storable() && typed.as_str().len() <= 516);
            let mut user = User::local(Uuid::from_u128(1), "", "default", Timestamp::from_seconds(0));
            user.account_id = format!("{longest}{beyond}");
            assert!(!user.login_names().contains(&typed));
        }
    }
}

//! Users: people, and devices with an anonymous user.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Not;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::identity::{OneTimeLink, TotpSeed};
use crate::password::PasswordHash;
use crate::secret::{DeclaredHash, DeclaredSeed, Digest};
use crate::text;

/// A user, with the standard claims of OpenID Connect Core 5.1 and the members of the token response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The user's identifier in the platform: `sub` and `uuid` in every token.
    pub uuid: Uuid,
    /// The account identifier. It is unique as a [`LoginName`], so its case does not matter.
    pub account_id: String,
    /// The e-mail address; none for a user without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Whether the address was verified.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub email_verified: bool,
    /// The telephone number. OpenID Connect Core 5.1 recommends E.164.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone_number: Option<String>,
    #[serde(default, skip_serializing_if = "Not::not")]
    pub phone_number_verified: bool,
    /// `user`, `anonymous`, `client`, or what the operator chose.
    pub user_type: String,
    /// The venue the user belongs to, `venueId` in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub venue_id: Option<String>,
    /// The organization the user belongs to.
    pub organization: String,
    /// Where the record came from: `LOCAL`, `ANONYMOUS`, `IMPORT`, or a provider's id.
    pub source: String,
    /// The remaining standard and private claims by name (`name`, `given_name`, `address`, …).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Value>,
    /// The identifiers of the groups that the user is in. Tokens leave out removed groups.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<Uuid>,
    /// The hash of the password; none if the user cannot sign in with a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<PasswordHash>,
    /// The digest of the hash that a file last set. The password may have changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_hash: Option<Digest<DeclaredHash>>,
    /// The digests of the seeds of authenticator apps that files brought. The user may have removed them since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared_seeds: Vec<Digest<DeclaredSeed>>,
    /// The accounts of the user at upstream providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<LinkedIdentity>,
    /// When the password was last set after the account was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_changed_at: Option<Timestamp>,
    /// When the user last secured the account by the link of a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secured_at: Option<Timestamp>,
    /// When the second step ends, because the user has none of the factors any more: see [`User::factors_end`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors_end_at: Option<Timestamp>,
    /// When the user last changed the e-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email_changed_at: Option<Timestamp>,
    /// When the user was signed out everywhere. Before that, no browser is remembered (`mfa.remember_device`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices_forgotten_at: Option<Timestamp>,
    /// Whether the person who made the account has not proven its address. It may be that of another person.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub unproven_holder: bool,
    /// Whether the user must choose another password at the next sign-in with the present one.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub must_change_password: bool,
    /// Whether every sign-in of the user was recorded. An earlier release recorded none. The name is short, because all
    /// rows have it.
    #[serde(default, rename = "seen", skip_serializing_if = "Not::not")]
    pub sign_ins_are_known: bool,
    /// Whether the user may sign in and get tokens.
    pub enabled: bool,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed: the `updated_at` claim.
    pub updated_at: Timestamp,
}

/// An account at an upstream provider that is linked to a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedIdentity {
    pub issuer: String,
    /// `sub` in its ID tokens.
    pub subject: String,
    /// The id under which the provider was registered when the link was made.
    pub provider: String,
    /// When the link was made.
    pub linked_at: Timestamp,
}

impl User {
    /// The user type, unless the operator chooses another.
    pub const DEFAULT_TYPE: &'static str = "user";
    pub const ANONYMOUS_TYPE: &'static str = "anonymous";
    /// The type of the subject in tokens of a client that acts for itself.
    pub const CLIENT_TYPE: &'static str = "client";
    /// `source` of users that the operator added.
    pub const LOCAL: &'static str = "LOCAL";
    /// `source` of users that were imported from another system.
    pub const IMPORT: &'static str = "IMPORT";
    /// `source` of anonymous users.
    pub const ANONYMOUS: &'static str = "ANONYMOUS";
    /// Values of `source` that are not the id of a provider.
    pub const OWN_SOURCES: [&'static str; 4] = [Self::LOCAL, Self::ANONYMOUS, Self::IMPORT, "CLIENT"];

    /// Sets or removes the e-mail address. A new one is not verified.
    pub fn set_email(&mut self, email: Option<String>) {
        let email = email.map(|email| text::map_width(&email));
        self.email_verified &= self.email == email;
        self.email = email;
    }

    /// Whether this is the address of the user. The forms are compared: an earlier release may have written another.
    pub fn has_email(&self, email: &str) -> bool {
        let own = self.email.as_deref().map(text::caseless_address);
        own.is_some_and(|own| own == text::caseless_address(email))
    }

    /// Whether a mail to this address has reached the mailbox of the user. Letters of another case or width may be another
    /// mailbox.
    pub fn has_mailbox(&self, email: &str) -> bool {
        self.email.as_deref() == Some(&*text::nfc(email))
    }

    /// Sets an address that a mail has reached.
    pub fn set_proven_email(&mut self, email: &str) {
        self.email = Some(text::map_width(email));
        self.email_verified = self.has_mailbox(email);
    }

    /// Whether nobody vouches for the address: neither the person who made the account nor the operator.
    pub fn is_unproven(&self) -> bool {
        self.unproven_holder && !self.email_verified
    }

    /// The value of a claim that users can edit, if it is text.
    pub fn editable_claim(&self, name: &str) -> Option<&str> {
        match name {
            "phone_number" => self.phone_number.as_deref(),
            name => self.claims.get(name).and_then(Value::as_str),
        }
    }

    /// Whether the user may change the address: not until the link that sets the last change back has expired. Otherwise
    /// the thief of a session could change the address twice and get such a link too.
    pub fn may_change_email(&self, now: Timestamp) -> bool {
        let changed_at = self.email_changed_at;
        changed_at.is_none_or(|at| now >= at + OneTimeLink::NOTICE_LIFETIME)
    }

    /// Whether the user has secured the account by the link of a notice, and the links of that time have not all expired.
    pub fn is_secured(&self, now: Timestamp) -> bool {
        self.secured_at
            .is_some_and(|at| now.since(at) < OneTimeLink::NOTICE_LIFETIME)
    }

    /// When the second step ends, because the user has none of the factors any more. `None` too if that was a week ago, and
    /// the user has not signed in since.
    pub fn factors_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.factors_end_at
            .filter(|end| now < *end + OneTimeLink::NOTICE_LIFETIME)
    }

    /// Sets or removes the phone number. A new one is not verified.
    pub fn set_phone_number(&mut self, phone_number: Option<String>) {
        self.phone_number_verified &= self.phone_number == phone_number;
        self.phone_number = phone_number;
    }

    /// Sets the password to a hash from a file. The same hash is applied only once, because a password that was
    /// rehashed or changed since is newer than the file.
    pub fn take_declared(&mut self, hash: &PasswordHash) {
        let digest = Digest::of(hash.as_str().as_bytes());
        if self.declared_hash != Some(digest) {
            self.declared_hash = Some(digest);
            self.password = Some(hash.clone());
        }
    }

    /// Records a seed from a file. Returns whether it is new: the same seed is taken only once, because the user may have
    /// removed it since.
    pub fn take_declared_seed(&mut self, seed: &TotpSeed) -> bool {
        let digested = Zeroizing::new([self.uuid.as_bytes(), seed.as_bytes()].concat());
        let digest = Digest::of(&digested);
        let is_new = !self.declared_seeds.contains(&digest);
        if is_new {
            self.declared_seeds.push(digest);
        }
        is_new
    }

    /// When the password was last set.
    pub fn password_set_at(&self) -> Timestamp {
        self.password_changed_at.unwrap_or(self.created_at)
    }

    /// Whether `other` equals this record, except for `declared_hash`.
    pub fn is_as_declared(&self, other: &Self) -> bool {
        let read = Self {
            declared_hash: other.declared_hash,
            ..self.clone()
        };
        read == *other
    }

    /// A new enabled user without a password, added by the operator.
    pub fn local(uuid: Uuid, email: &str, organization: &str, now: Timestamp) -> Self {
        Self {
            uuid,
            account_id: text::map_width(email),
            email: Some(text::map_width(email)),
            email_verified: false,
            phone_number: None,
            phone_number_verified: false,
            user_type: Self::DEFAULT_TYPE.to_owned(),
            venue_id: None,
            organization: organization.to_owned(),
            source: Self::LOCAL.to_owned(),
            claims: BTreeMap::new(),
            groups: BTreeSet::new(),
            password: None,
            declared_hash: None,
            password_changed_at: None,
            secured_at: None,
            factors_end_at: None,
            declared_seeds: Vec::new(),
            identities: Vec::new(),
            email_changed_at: None,
            devices_forgotten_at: None,
            unproven_holder: false,
            must_change_password: false,
            sign_ins_are_known: true,
            enabled: true,
            created_at: now,
            updated_at: now,
        }
    }

    /// A new user from a provider, with only the account identifier.
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

    /// A new anonymous user. It has no name to sign in with.
    pub fn anonymous(uuid: Uuid, organization: &str, now: Timestamp) -> Self {
        Self {
            account_id: uuid.to_string(),
            email: None,
            user_type: Self::ANONYMOUS_TYPE.to_owned(),
            source: Self::ANONYMOUS.to_owned(),
            ..Self::local(uuid, "", organization, now)
        }
    }

    /// Whether a refresh token is the only way to be this user.
    pub fn is_anonymous(&self) -> bool {
        self.source == Self::ANONYMOUS
            && self.email.is_none()
            && self.password.is_none()
            && self.identities.is_empty()
    }

    /// Whether the record was made at a sign-in with a provider.
    pub fn comes_from_provider(&self) -> bool {
        !Self::OWN_SOURCES.contains(&self.source.as_str())
    }

    /// Texts that others know of the user: names, addresses, the organization.
    pub fn known_by(&self) -> Vec<&str> {
        self.names_and_addresses()
            .chain([self.organization.as_str()])
            .collect()
    }

    /// The account identifier, the addresses and the names of the user.
    pub fn names_and_addresses(&self) -> impl Iterator<Item = &str> {
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
        [&self.account_id]
            .into_iter()
            .chain(addresses)
            .map(String::as_str)
            .chain(claims)
    }

    /// The name by which pages address the user.
    pub fn display_name(&self) -> &str {
        self.claims
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or(&self.account_id)
    }

    /// Whether a mail may sign the user in. A provider decides about its own users. An address that is not verified may be
    /// that of another person, who would get an account that the user has the password of.
    pub fn may_sign_in_by_mail(&self) -> bool {
        self.enabled && self.email_verified && !self.comes_from_provider()
    }

    /// The language that the user prefers, from the claim `locale`.
    pub fn language(&self) -> Option<String> {
        let locale = self.claims.get("locale").and_then(Value::as_str);
        locale.map(ToOwned::to_owned)
    }

    /// The time zone of the user, from the claim `zoneinfo`.
    pub fn zone(&self) -> Option<String> {
        let zone = self.claims.get("zoneinfo").and_then(Value::as_str);
        zone.map(ToOwned::to_owned)
    }

    /// The names with which the user can sign in.
    ///
    /// An e-mail address from a provider is not one of them, because it may belong to another person.
    pub fn login_names(&self) -> Vec<LoginName> {
        // The generated identifier of an anonymous user is not a name to sign in with.
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

/// A name for signing in, in the form that must be unique ([`text::caseless_address`]).
#[derive(Clone, Debug)]
pub struct LoginName {
    name: String,
    /// The form of earlier releases, if it differs: trimmed and in lower case. A user still has it if another user's
    /// name became equal.
    earlier: Option<String>,
}

impl LoginName {
    /// The most bytes of a normalized name that a user may have.
    pub const LONGEST: usize = 512;

    /// Normalizes a typed name. A name that is too long is cut off, but stays longer than [`LoginName::LONGEST`].
    pub fn new(typed: &str) -> Self {
        let cut_off = |mut name: String| {
            let end = name.ceil_char_boundary(Self::LONGEST + 1);
            name.truncate(end);
            name
        };
        let name = cut_off(text::caseless_address(typed));
        let earlier = cut_off(typed.trim().to_lowercase());
        Self {
            earlier: (earlier != name).then_some(earlier),
            name,
        }
    }

    /// Whether a user may have this name.
    pub fn is_storable(&self) -> bool {
        self.name.len() <= Self::LONGEST
    }

    /// The normalized name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The form of earlier releases, if it differs.
    pub fn earlier(&self) -> Option<&str> {
        self.earlier.as_deref()
    }
}

impl PartialEq for LoginName {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for LoginName {}

impl Hash for LoginName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
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

    /// Otherwise the user would be removed with the last refresh token, and the link would be lost.
    #[test]
    fn a_user_with_a_linked_identity_is_not_anonymous() {
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
    fn a_name_that_is_too_long_never_matches_a_user() {
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

    #[test]
    fn an_address_is_the_user_s_in_every_form_and_a_mailbox_in_one() {
        let mut user = User::local(
            Uuid::nil(),
            "j\u{fc}rgen@b\u{fc}cher.example",
            "org",
            Timestamp::from_seconds(0),
        );
        for (email, is_mailbox) in [
            ("j\u{fc}rgen@b\u{fc}cher.example", true),
            ("ju\u{308}rgen@bu\u{308}cher.example", true),
            ("J\u{dc}RGEN@B\u{dc}CHER.example", false),
            ("\u{ff4a}\u{fc}rgen@b\u{fc}cher.example", false),
            ("j\u{fc}rgen@xn--bcher-kva.example", false),
        ] {
            assert!(user.has_email(email), "{email:?}");
            assert_eq!(user.has_mailbox(email), is_mailbox, "{email:?}");
        }
        for other in ["jurgen@b\u{fc}cher.example", "j\u{fc}rgen@bucher.example", ""] {
            assert!(!user.has_email(other), "{other:?}");
        }
        user.email = None;
        assert!(!user.has_email(""));
    }
}

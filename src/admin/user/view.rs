//! A user as the commands show it: as a table or as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::FactorView;
use crate::admin::SecretString;
use crate::clock::Timestamp;
use crate::flow::account::view::Application;
use crate::identity::{LinkedIdentity, User};
use crate::oauth::group::Groups;
use crate::store::records::{FailedPasswords, UserActivity};

/// A user as it is shown: without the hash of the password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserView {
    /// The user's identifier in the platform.
    pub uuid: Uuid,
    /// The account identifier.
    pub account_id: String,
    /// The password, in the one answer that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretString>,
    /// Whether the user can sign in with a password.
    pub has_password: bool,
    /// Whether the user must choose another one at the next sign-in with it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub must_change_password: bool,
    /// The e-mail address.
    pub email: Option<String>,
    /// Whether it was shown to be the user's.
    pub email_verified: bool,
    /// The telephone number.
    pub phone_number: Option<String>,
    /// Whether it was shown to be the user's.
    pub phone_number_verified: bool,
    /// The user's type.
    pub user_type: String,
    pub venue_id: Option<String>,
    pub organization: String,
    /// Where the record came from.
    pub source: String,
    pub claims: BTreeMap<String, Value>,
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// The linked accounts at providers.
    #[serde(default)]
    pub identities: Vec<LinkedIdentity>,
    /// The applications with access, in the answer to `user show`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications: Option<Vec<Application>>,
    /// The wrong passwords in a row, in the answer to `user show`. `None` if the last password was right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_passwords: Option<FailedPasswords>,
    /// The factors, in the answer to `user show`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factors: Vec<FactorView>,
    /// When the wait is over after which the password removes the factors, because the user has said that none is left: in the
    /// answer to `user show`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors_end_at: Option<Timestamp>,
    /// Whether the user may be given tokens.
    pub enabled: bool,
    /// The day (UTC) of the last sign-in, as in `2026-11-21`. `None` if there was none, or if it is not known.
    #[serde(default)]
    pub last_sign_in: Option<String>,
    /// The day (UTC) on which the user last used a session, or an application last refreshed.
    #[serde(default)]
    pub last_used: Option<String>,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl UserView {
    pub(super) fn of(
        user: &User,
        groups: &Groups,
        password: Option<SecretString>,
        activity: UserActivity,
    ) -> Self {
        Self {
            uuid: user.uuid,
            account_id: user.account_id.clone(),
            password,
            has_password: user.password.is_some(),
            must_change_password: user.must_change_password,
            email: user.email.clone(),
            email_verified: user.email_verified,
            phone_number: user.phone_number.clone(),
            phone_number_verified: user.phone_number_verified,
            user_type: user.user_type.clone(),
            venue_id: user.venue_id.clone(),
            organization: user.organization.clone(),
            source: user.source.clone(),
            claims: user.claims.clone(),
            groups: groups.of(user).into_iter().map(ToOwned::to_owned).collect(),
            identities: user.identities.clone(),
            applications: None,
            failed_passwords: None,
            factors: Vec::new(),
            factors_end_at: None,
            enabled: user.enabled,
            last_sign_in: activity.last_sign_in.map(Timestamp::date),
            last_used: activity.last_used.map(Timestamp::date),
            created_at: user.created_at,
            updated_at: user.updated_at,
        }
    }
}

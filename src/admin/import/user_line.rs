//! The fields of one user, in a line of an import or an entry of a state file.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::admin::groups::group_ids;
use crate::admin::user::reserved_user_type;
use crate::admin::{
    Admin, AdminError, AdminRefusal, AdminResult, AdminTxError, check_account_id, check_text, checked_email,
    claim,
};
use crate::clock::Timestamp;
use crate::identity::{LoginName, User};
use crate::oauth::group::Groups;
use crate::oauth::{Fault, FaultCode};
use crate::store::engine::Snapshot;
use crate::store::login_names;
use crate::store::tables::USERS;
use crate::text;

/// How far the clock of the other system may be ahead of ours.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// The fields of one user, in a line of an import or an entry of a state file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserLine {
    /// The user's identifier in the platform.
    pub uuid: Option<Uuid>,
    /// The account identifier. Without one it is the e-mail address.
    pub account_id: Option<String>,
    /// The e-mail address.
    pub email: Option<String>,
    /// Whether it was shown to be the user's.
    pub email_verified: Option<bool>,
    /// The telephone number.
    pub phone_number: Option<String>,
    /// Whether it was shown to be the user's.
    pub phone_number_verified: Option<bool>,
    /// The user's type.
    pub user_type: Option<String>,
    pub venue_id: Option<String>,
    pub organization: Option<String>,
    /// Whether the user may be given tokens.
    pub enabled: Option<bool>,
    pub claims: BTreeMap<String, Value>,
    pub groups: Option<Vec<String>>,
    /// The password's hash, as [`PasswordHash::import`] reads it.
    pub password_hash: Option<Value>,
    /// The authenticator apps, as [`ExportedTotp::read`](crate::identity::ExportedTotp::read) reads each.
    ///
    /// The type allows every value: an error of serde would have the seed in its message.
    pub totp: Value,
    /// When the user was made, in seconds since the epoch.
    pub created_at: Option<u64>,
}

impl UserLine {
    /// The name that messages call the user by.
    pub fn name(&self) -> Option<&str> {
        self.account_id.as_deref().or(self.email.as_deref())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = LoginName> {
        [&self.account_id, &self.email]
            .into_iter()
            .flatten()
            .map(|name| LoginName::new(name))
    }

    /// The stored user that the line is about, if there is one.
    pub(in crate::admin) fn existing(&self, snapshot: &dyn Snapshot) -> Result<Option<User>, AdminTxError> {
        let mut owners = Vec::new();
        if let Some(uuid) = self.uuid
            && USERS.contains(snapshot, &uuid)?
        {
            owners.push(uuid);
        }
        for name in self.names() {
            if let Some(uuid) = login_names::owner(snapshot, &name)?
                && !owners.contains(&uuid)
            {
                owners.push(uuid);
            }
        }
        match owners.as_slice() {
            [] => Ok(None),
            [one] => Ok(USERS.get(snapshot, one)?),
            _ => {
                let detail = "its names belong to different users";
                Err(FaultCode::AlreadyExists
                    .at(["uuid", "account_id", "email"], detail)
                    .into())
            }
        }
    }

    /// The same from a snapshot of its own. `None` also if its names belong to different users: a later check refuses that.
    pub(in crate::admin) async fn existing_now(&self, admin: Admin<'_>) -> AdminResult<Option<User>> {
        match admin.read(|snapshot| self.existing(snapshot)).await {
            Err(AdminError::Refused(_)) => Ok(None),
            existing => existing,
        }
    }

    /// The fault of a line that names a user of a provider without their UUID. The provider chose the name of that
    /// user, so the name alone does not show that the operator means them.
    pub(in crate::admin) fn federated_namesake(&self, before: &User) -> Option<Fault> {
        let is_namesake = before.comes_from_provider() && self.uuid != Some(before.uuid);
        is_namesake.then(|| {
            let detail = format!(
                "provider {} created a user of this name: add its uuid, {}, to the line, or remove the user",
                before.source, before.uuid
            );
            FaultCode::AlreadyExists.at(["uuid"], detail)
        })
    }

    /// The fault of a user type that is reserved. A new user with a UUID comes from an export of another
    /// installation, and keeps the type that they have there.
    pub(in crate::admin) fn reserved_user_type(&self, before: Option<&User>) -> Option<Fault> {
        let user_type = self
            .user_type
            .as_deref()
            .filter(|_| self.uuid.is_none() || before.is_some())?;
        reserved_user_type(before, user_type)
    }

    /// The user that the line describes, based on the stored one.
    pub(in crate::admin) fn to_user(
        &self,
        before: Option<&User>,
        new_uuid: Uuid,
        organization: &str,
        groups: &Groups,
        now: Timestamp,
    ) -> Result<User, AdminRefusal> {
        let mut faults = Vec::new();
        if let Some(seconds) = self.created_at
            && Timestamp::from_seconds(seconds) > now + CLOCK_SKEW
        {
            let detail = format!("the time of creation is in seconds since 1970, and {seconds} lies ahead");
            faults.push(FaultCode::Invalid.at(["created_at"], detail));
        }
        let mut user = if let Some(user) = before {
            user.clone()
        } else {
            User {
                email: None,
                source: User::IMPORT.to_owned(),
                created_at: self.created_at.map_or(now, Timestamp::from_seconds).min(now),
                ..User::local(self.uuid.unwrap_or(new_uuid), "", organization, now)
            }
        };
        if let Some(uuid) = self.uuid
            && uuid != user.uuid
        {
            let detail = format!("the user exists with another uuid, {}", user.uuid);
            faults.push(FaultCode::NotAllowed.at(["uuid"], detail));
        }
        if let Some(email) = &self.email {
            let email = checked_email(&mut faults, user.email.as_deref(), email);
            user.set_email(Some(email));
        }
        match (&self.account_id, &self.email, before) {
            (Some(id), _, _) => {
                check_account_id(&mut faults, id);
                user.account_id = text::map_width(id);
            }
            (None, Some(email), None) => user.account_id = text::map_width(email),
            _ => {}
        }
        for (field, text) in [
            ("user_type", &self.user_type),
            ("organization", &self.organization),
            ("venue_id", &self.venue_id),
            ("phone_number", &self.phone_number),
        ] {
            if let Some(text) = text {
                check_text(&mut faults, field, text);
            }
        }
        let set = |field: &mut String, value: &Option<String>| {
            if let Some(value) = value {
                field.clone_from(value);
            }
        };
        set(&mut user.user_type, &self.user_type);
        set(&mut user.organization, &self.organization);
        user.venue_id = self.venue_id.clone().or(user.venue_id);
        if self.phone_number.is_some() {
            user.set_phone_number(self.phone_number.clone());
        }
        for (name, value) in &self.claims {
            if matches!(
                name.as_str(),
                "email" | "email_verified" | "phone_number" | "phone_number_verified"
            ) {
                let detail = format!("{name} is a member of the line, not of claims");
                faults.push(FaultCode::NotAllowed.at(["claims", name.as_str()], detail));
            } else if let Err(fault) = claim::set_value(&mut user, name, value) {
                faults.push(fault);
            }
        }
        if let Some(names) = &self.groups {
            user.groups = group_ids(groups, names, &mut faults);
        }
        claim::clear_unfounded_verification(&mut user);
        user.email_verified = self.email_verified.unwrap_or(user.email_verified);
        user.phone_number_verified = self.phone_number_verified.unwrap_or(user.phone_number_verified);
        faults.extend(claim::unfounded_verification(&user));
        user.enabled = self.enabled.unwrap_or(user.enabled);
        if faults.is_empty() {
            Ok(user)
        } else {
            Err(AdminRefusal(faults))
        }
    }
}

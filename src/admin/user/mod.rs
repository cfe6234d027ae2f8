//! Users.

mod access;
mod add;
mod disable;
mod enable;
mod factors;
mod filter;
mod invite;
mod link;
mod list;
mod list_edits;
mod list_invitations;
mod lock;
mod password;
mod remove;
mod remove_many;
mod reset;
mod reset_factors;
mod revoke_invitations;
mod set_password;
mod show;
#[cfg(test)]
mod tests;
mod unlink;
mod update;
mod view;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::access::{AccessibleClient, NamedUser, ShowAccess, UserAccess};
pub use self::add::AddUser;
pub use self::disable::DisableUser;
pub use self::enable::EnableUser;
pub use self::factors::{FactorView, ListFactors, UserFactors};
pub use self::filter::UserFilter;
pub use self::invite::InviteUser;
pub use self::link::LinkView;
pub use self::list::{ListUsers, page};
use self::list_edits::apply_edits;
pub use self::list_invitations::{InvitationView, ListInvitations};
pub use self::lock::{LockUser, LockedUser};
pub use self::password::NewPassword;
pub(super) use self::password::check_chosen;
pub use self::remove::{RemoveUser, RemovedUser};
pub use self::remove_many::{RemoveUsers, RemovedUsers};
pub use self::reset::ResetUser;
pub use self::reset_factors::ResetFactors;
pub use self::revoke_invitations::{RevokeInvitations, RevokedInvitations};
pub use self::set_password::SetPassword;
pub use self::show::ShowUser;
pub use self::unlink::UnlinkUser;
pub use self::update::UpdateUser;
pub use self::view::UserView;
use super::groups::group_ids;
use super::operation::{Done, Operation};
use super::updated::{ListChange, Updated};
use super::{Admin, AdminResult, AdminTxError, already_exists, check_text, claim, not_found};
use crate::flow::factor_wait::record_end;
use crate::flow::one_time_link::invitations;
use crate::flow::{logout_notice, user_activity};
use crate::identity::{LoginName, User};
use crate::oauth::fields::Form;
use crate::oauth::group::Groups;
use crate::oauth::list_edits::ListEdits;
use crate::oauth::{Fault, FaultCode};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::login_names;
use crate::store::tables::{FAILED_PASSWORDS, USERS};

/// The kind of record in faults.
pub(super) const KIND: &str = "user";

/// The fields of a user that an operator sets. A missing field keeps its value or its default. An empty text removes
/// it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserFields {
    /// The `name` claim.
    pub name: Option<String>,
    /// The telephone number.
    pub phone_number: Option<String>,
    /// The user's type.
    pub user_type: Option<String>,
    pub venue_id: Option<String>,
    pub organization: Option<String>,
    /// Whether the e-mail address was shown to be the user's.
    pub email_verified: Option<bool>,
    /// Whether the telephone number was shown to be the user's.
    pub phone_number_verified: Option<bool>,
    /// Whether the user must choose another password at the next sign-in with the present one.
    pub must_change_password: Option<bool>,
    /// Claims by name, as the operator typed them.
    pub claims: Vec<(String, String)>,
    /// The names of the groups that the user is in. An empty name is left out.
    pub groups: Option<Vec<String>>,
    /// What is added to the groups and claims, and what is removed from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edits: Option<Box<ListEdits<Self>>>,
}

/// The lists of a user.
const LISTS: &[(&str, Form)] = &[("groups", Form::Texts), ("claims", Form::Table)];

/// The user with this UUID or login name.
pub(super) fn find(snapshot: &dyn Snapshot, who: &str) -> Result<User, AdminTxError> {
    let by_uuid = match Uuid::try_parse(who) {
        Ok(uuid) => USERS.get(snapshot, &uuid)?,
        Err(_) => None,
    };
    let found = match by_uuid {
        Some(user) => Some(user),
        None => match login_names::owner(snapshot, &LoginName::new(who))? {
            Some(uuid) => USERS.get(snapshot, &uuid)?,
            None => None,
        },
    };
    Ok(found.ok_or_else(|| not_found(KIND, who))?)
}

fn apply_fields(user: &mut User, fields: &UserFields, groups: &Groups, faults: &mut Vec<Fault>) {
    fn optional(faults: &mut Vec<Fault>, field: &str, text: &str) -> Option<String> {
        if !text.is_empty() {
            check_text(faults, field, text);
        }
        (!text.is_empty()).then(|| text.to_owned())
    }
    let fields = &apply_edits(fields.clone(), user, groups, faults);
    // Addresses are set first, since `email_verified` and `phone_number_verified` are about the new ones.
    let is_address = |(name, _): &&(String, String)| matches!(name.as_str(), "email" | "phone_number");
    let (addresses, others): (Vec<_>, Vec<_>) = fields.claims.iter().partition(is_address);
    let set = |user: &mut User, faults: &mut Vec<Fault>, name: &str, value: &str| {
        faults.extend(claim::set(user, name, value).err());
    };
    for (name, value) in addresses {
        set(user, faults, name, value);
    }
    if let Some(number) = &fields.phone_number {
        user.set_phone_number(optional(faults, "phone_number", number));
    }
    claim::clear_unfounded_verification(user);
    for (name, value) in others {
        set(user, faults, name, value);
    }
    if let Some(name) = &fields.name {
        set(user, faults, "name", name);
    }
    if let Some(venue) = &fields.venue_id {
        user.venue_id = optional(faults, "venue_id", venue);
    }
    if let Some(user_type) = &fields.user_type {
        check_text(faults, "user_type", user_type);
        faults.extend(reserved_user_type(Some(user), user_type));
        user.user_type.clone_from(user_type);
    }
    if let Some(organization) = &fields.organization {
        check_text(faults, "organization", organization);
        user.organization.clone_from(organization);
    }
    if let Some(names) = &fields.groups {
        user.groups = group_ids(groups, names, faults);
    }
    user.must_change_password = fields.must_change_password.unwrap_or(user.must_change_password);
    user.email_verified = fields.email_verified.unwrap_or(user.email_verified);
    user.phone_number_verified = fields.phone_number_verified.unwrap_or(user.phone_number_verified);
    faults.extend(claim::unfounded_verification(user));
}

/// The fault of a user type that is reserved for clients or for anonymous users. A user who has it already keeps it.
pub(super) fn reserved_user_type(before: Option<&User>, user_type: &str) -> Option<Fault> {
    let has_it = before.is_some_and(|user| user.user_type == user_type);
    let owners = match user_type {
        User::CLIENT_TYPE => "clients that act for themselves",
        User::ANONYMOUS_TYPE => "anonymous users",
        _ => return None,
    };
    (!has_it).then(|| {
        let detail = format!("user type {user_type} is reserved for {owners}");
        FaultCode::NotAllowed.at(["user_type"], detail)
    })
}

/// Stores a user with their login names. Refuses a name that another user has.
pub(super) fn put(tx: &mut dyn Tx, before: Option<&User>, user: &User) -> Result<(), AdminTxError> {
    for name in user.login_names() {
        if login_names::is_of_another(&*tx, &name, user.uuid)? {
            return Err(already_exists(KIND, name.as_str()).into());
        }
    }
    if let Some(before) = before {
        invitations::end_of_lost_names(tx, before, Some(user), user.updated_at)?;
        login_names::release(tx, before, user)?;
    }
    Ok(write(tx, user)?)
}

/// Stores a user with their login names, which no other user has. With another password, the count of wrong ones starts
/// again at zero. The clients of a disabled user are told that the user is signed out.
pub(super) fn write(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    let before = USERS.get(&*tx, &user.uuid)?;
    if before.is_some_and(|before| before.password != user.password) {
        FAILED_PASSWORDS.remove(tx, &user.uuid)?;
    }
    login_names::give(tx, user)?;
    if !user.enabled {
        logout_notice::queue_of_user(tx, user.uuid, None, user.updated_at)?;
    }
    USERS.put(tx, &user.uuid, user)
}

/// Changes a user by `change`, which may refuse, and does `more`, in one transaction.
async fn change<O: Operation>(
    admin: Admin<'_>,
    who: String,
    change: impl Fn(&dyn Snapshot, &mut User) -> Result<(), AdminTxError> + Send + 'static,
    more: impl Fn(&mut dyn Tx, Uuid) -> Result<(), StoreError> + Send + 'static,
) -> AdminResult<Done<Updated<UserView>>> {
    let now = admin.core.clock.now();
    let write = admin.write(O::NAME, move |tx| {
        let before = find(&*tx, &who)?;
        let mut user = before.clone();
        change(&*tx, &mut user)?;
        user.updated_at = now;
        put(tx, Some(&before), &user)?;
        more(tx, user.uuid)?;
        let activity = user_activity::of_user(&*tx, user.uuid)?;
        Ok(([before, user], activity))
    });
    let ([before, user], activity) = write.await?;
    let ended_wait = before.factors_end_at.filter(|_| user.factors_end_at.is_none());
    if ended_wait.is_some() {
        record_end(user.uuid, "operator");
    }
    let catalog = admin.core.catalog();
    let [before, view] = [before, user].map(|user| UserView::of(&user, catalog.groups(), None, activity));
    let mut updated = Updated::of(&before, view, LISTS);
    updated.changes.extend(ended_wait.map(|end| ListChange {
        field: "factors_end_at".to_owned(),
        added: Vec::new(),
        removed: vec![end.seconds().to_string()],
    }));
    Ok(Done::about(updated.uuid, updated))
}

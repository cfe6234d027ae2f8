//! Users: add, show, update, remove, set the password.

mod factors;
mod link;
mod list;
mod password;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::factors::{FactorView, UserFactors, factors, reset_factors};
pub use self::link::{InviteUser, LinkView, LockedUser, ResetUser, invite, lock, reset};
pub use self::list::{ListUsers, page};
pub use self::password::NewPassword;
pub(super) use self::password::check_chosen;
use self::password::hash;
pub use self::view::UserView;
use super::named::group_ids;
use super::{
    Admin, AdminRefusal, AdminResult, TxResult, about, all_or_none, already_exists, check_account_id,
    check_text, claim, not_found, provider,
};
use crate::flow::account::view::applications;
use crate::flow::factors::of_user;
use crate::flow::login::session;
use crate::flow::logout_notice;
use crate::flow::or_refuse;
use crate::flow::users::{end_sessions_and_families, remove_login_names, remove_user};
use crate::identity::claim::looks_like_email;
use crate::identity::{LinkedIdentity, LoginName, User};
use crate::oauth::group::Groups;
use crate::oauth::{Fault, FaultCode};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{FAILED_PASSWORDS, USERS, USERS_BY_IDENTITY, USERS_BY_LOGIN_NAME};

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
    /// The venue.
    pub venue_id: Option<String>,
    /// The organization.
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
}

/// A user to be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddUser {
    /// The e-mail address. It is also the account identifier.
    pub email: String,
    /// The password.
    pub password: NewPassword,
    /// Everything else.
    pub fields: UserFields,
}

/// A change of a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// A new e-mail address; the account identifier stays.
    pub email: Option<String>,
    /// A new account identifier.
    pub account_id: Option<String>,
    /// Whether the count of wrong passwords starts again at zero.
    pub reset_failed_passwords: bool,
    /// What else changes.
    pub fields: UserFields,
}

/// A new password for a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetPassword {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// The password.
    pub password: NewPassword,
    /// Whether the user's sessions and refresh tokens stay. Somebody else may have known the old password.
    pub keep_sessions: bool,
}

/// A request to remove the links between a user and a provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unlink {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// The provider's id.
    pub provider: String,
}

/// The user with this UUID or login name.
pub(super) fn find(snapshot: &dyn Snapshot, who: &str) -> Result<Result<User, AdminRefusal>, StoreError> {
    let by_uuid = match Uuid::try_parse(who) {
        Ok(uuid) => USERS.get(snapshot, &uuid)?,
        Err(_) => None,
    };
    let found = match by_uuid {
        Some(user) => Some(user),
        None => match USERS_BY_LOGIN_NAME.get(snapshot, LoginName::new(who).as_str())? {
            Some(uuid) => USERS.get(snapshot, &uuid)?,
            None => None,
        },
    };
    Ok(found.ok_or_else(|| not_found(KIND, who).into()))
}

fn apply_fields(user: &mut User, fields: &UserFields, groups: &Groups, faults: &mut Vec<Fault>) {
    fn optional(faults: &mut Vec<Fault>, field: &str, text: &str) -> Option<String> {
        if !text.is_empty() {
            check_text(faults, field, text);
        }
        (!text.is_empty()).then(|| text.to_owned())
    }
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
pub(super) fn put(tx: &mut dyn Tx, before: Option<&User>, user: &User) -> TxResult<()> {
    for name in user.login_names() {
        let owner = USERS_BY_LOGIN_NAME.get(&*tx, name.as_str())?;
        if owner.is_some_and(|owner| owner != user.uuid) {
            return Ok(Err(already_exists(KIND, name.as_str()).into()));
        }
    }
    if let Some(before) = before {
        remove_login_names(tx, before)?;
    }
    write(tx, user).map(Ok)
}

/// Stores a user with their login names, which no other user has. With another password, the count of wrong ones starts
/// again at zero. The clients of a disabled user are told that the user is signed out.
pub(super) fn write(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    let before = USERS.get(&*tx, &user.uuid)?;
    if before.is_some_and(|before| before.password != user.password) {
        FAILED_PASSWORDS.remove(tx, &user.uuid)?;
    }
    for name in user.login_names() {
        USERS_BY_LOGIN_NAME.put(tx, name.as_str(), &user.uuid)?;
    }
    if !user.enabled {
        logout_notice::queue_of_user(tx, user.uuid, None, user.updated_at)?;
    }
    USERS.put(tx, &user.uuid, user)
}

/// Adds a user. Only this answer shows a generated password.
pub async fn add(admin: Admin<'_>, request: AddUser) -> AdminResult<UserView> {
    let core = admin.core;
    let mut faults = Vec::new();
    if !looks_like_email(&request.email) {
        let detail = format!("{:?} is no e-mail address", request.email);
        faults.push(FaultCode::Invalid.at(["email"], detail));
    }
    if request.fields.claims.iter().any(|(name, _)| name == "email") {
        let detail = "claim email is the first argument already: leave it out";
        faults.push(FaultCode::Invalid.at(["claims"], detail));
    }
    let now = core.clock.now();
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let mut user = User::local(uuid, &request.email, &core.policy.organization, now);
    let groups = Arc::clone(core.catalog().groups());
    apply_fields(&mut user, &request.fields, &groups, &mut faults);
    let (hash, shown) = hash(admin, &user, request.password, faults).await?;
    user.password = hash;
    let view = UserView::of(&user, &groups, shown);
    core.store
        .write("user add", move |tx| put(tx, None, &user))
        .await??;
    admin.record("user add", &view.uuid.to_string());
    Ok(view)
}

/// One user, with the applications that their account page shows, and the count of wrong passwords.
pub async fn show(admin: Admin<'_>, who: &str) -> AdminResult<UserView> {
    let (catalog, now) = (admin.core.catalog(), admin.core.clock.now());
    let read = |snapshot: &dyn Snapshot| -> TxResult<UserView> {
        let user = or_refuse!(find(snapshot, who)?);
        Ok(Ok(UserView {
            applications: Some(applications(snapshot, &catalog, user.uuid, now)?),
            failed_passwords: FAILED_PASSWORDS.get(snapshot, &user.uuid)?,
            factors: FactorView::all(&of_user(snapshot, user.uuid)?),
            ..UserView::of(&user, catalog.groups(), None)
        }))
    };
    Ok(admin.core.store.read(read).await??)
}

/// Changes a user by `change`, which may refuse, and does `more`, in one transaction.
async fn change(
    admin: Admin<'_>,
    command: &'static str,
    who: String,
    change: impl Fn(&mut User) -> Result<(), AdminRefusal> + Send + 'static,
    more: impl Fn(&mut dyn Tx, Uuid) -> Result<(), StoreError> + Send + 'static,
) -> AdminResult<UserView> {
    let now = admin.core.clock.now();
    let user = admin
        .core
        .store
        .write(command, move |tx| -> TxResult<User> {
            let before = or_refuse!(find(&*tx, &who)?);
            let mut user = before.clone();
            or_refuse!(change(&mut user));
            user.updated_at = now;
            or_refuse!(put(tx, Some(&before), &user)?);
            more(tx, user.uuid)?;
            Ok(Ok(user))
        })
        .await??;
    admin.record(command, &user.uuid.to_string());
    Ok(UserView::of(&user, admin.core.catalog().groups(), None))
}

/// Changes a user.
pub async fn update(admin: Admin<'_>, request: UpdateUser) -> AdminResult<UserView> {
    let UpdateUser {
        who,
        email,
        account_id,
        reset_failed_passwords,
        fields,
    } = request;
    let name = who.clone();
    let groups = Arc::clone(admin.core.catalog().groups());
    let change_user = move |user: &mut User| {
        let mut faults = Vec::new();
        if let Some(email) = &email
            && let Err(fault) = claim::set(user, "email", email)
        {
            faults.push(fault);
        }
        if let Some(account_id) = &account_id {
            check_account_id(&mut faults, account_id);
            user.account_id.clone_from(account_id);
        }
        apply_fields(user, &fields, &groups, &mut faults);
        all_or_none(about(KIND, &name, faults).collect())
    };
    let reset = move |tx: &mut dyn Tx, user| {
        if reset_failed_passwords {
            FAILED_PASSWORDS.remove(tx, &user)?;
        }
        Ok(())
    };
    change(admin, "user update", who, change_user, reset).await
}

/// Enables or disables a user. Tokens of a disabled user cannot be refreshed.
pub async fn set_enabled(admin: Admin<'_>, who: String, enabled: bool) -> AdminResult<UserView> {
    let command = if enabled { "user enable" } else { "user disable" };
    let change_user = move |user: &mut User| {
        user.enabled = enabled;
        Ok(())
    };
    change(admin, command, who, change_user, |_, _| Ok(())).await
}

/// Sets or removes a user's password. Only this answer shows a generated one.
pub async fn set_password(admin: Admin<'_>, request: SetPassword) -> AdminResult<UserView> {
    let user = admin
        .core
        .store
        .read(|snapshot| find(snapshot, &request.who))
        .await??;
    let (hash, shown) = hash(admin, &user, request.password, Vec::new()).await?;
    let change_user = move |user: &mut User| {
        user.password.clone_from(&hash);
        Ok(())
    };
    let now = admin.core.clock.now();
    let sign_out = move |tx: &mut dyn Tx, user| {
        if !request.keep_sessions {
            end_sessions_and_families(tx, user, now)?;
        }
        Ok(())
    };
    let view = change(admin, "user set-password", request.who, change_user, sign_out).await?;
    Ok(UserView {
        password: shown,
        ..view
    })
}

/// Removes the links between a user and a provider. A later sign-in at the provider links or creates a user again.
///
/// Sessions and refresh families that began there end, also those that began while the issuer had another id.
pub async fn unlink(admin: Admin<'_>, request: Unlink) -> AdminResult<UserView> {
    let now = admin.core.clock.now();
    let provider = request.provider.clone();
    let user = admin
        .core
        .store
        .write("user unlink", move |tx| -> TxResult<User> {
            let mut user = or_refuse!(find(&*tx, &request.who)?);
            let before = user.clone();
            let issuers = provider::issuers(&*tx)?;
            let issuer = issuers.get(&request.provider);
            let is_linked = |identity: &mut LinkedIdentity| {
                identity.provider == request.provider || Some(&identity.issuer) == issuer
            };
            let removed: Vec<_> = user.identities.extract_if(.., is_linked).collect();
            if removed.is_empty() {
                let detail = format!(
                    "user {} is not linked to provider {}",
                    request.who, request.provider
                );
                let fault = FaultCode::NotFound.at(["identities"], detail);
                return Ok(Err(fault.about(KIND, &request.who).into()));
            }
            user.updated_at = now;
            or_refuse!(put(tx, Some(&before), &user)?);
            let mut providers = BTreeSet::new();
            for identity in removed {
                let ids = issuers.iter().filter(|(_, issuer)| **issuer == identity.issuer);
                providers.extend(ids.map(|(id, _)| id.clone()));
                providers.insert(identity.provider);
                USERS_BY_IDENTITY.remove(tx, &(identity.issuer, identity.subject))?;
            }
            session::end_federated(tx, user.uuid, &providers, now)?;
            Ok(Ok(user))
        })
        .await??;
    admin.core.logout_queued.notify_one();
    audit::record(&Event::Unlinked {
        subject: user.uuid,
        actor: &admin.actor.to_string(),
        provider: &provider,
    });
    Ok(UserView::of(&user, admin.core.catalog().groups(), None))
}

/// Removes a user with everything that belongs to them.
pub async fn remove(admin: Admin<'_>, who: String) -> AdminResult<UserView> {
    let now = admin.core.clock.now();
    let user = admin
        .core
        .store
        .write("user remove", move |tx| -> TxResult<User> {
            let user = or_refuse!(find(&*tx, &who)?);
            remove_user(tx, &user, now)?;
            Ok(Ok(user))
        })
        .await??;
    admin.record("user remove", &user.uuid.to_string());
    Ok(UserView::of(&user, admin.core.catalog().groups(), None))
}

#[cfg(test)]
mod tests;

//! Users: add, show, update, remove, set the password.

mod password;
mod view;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::password::NewPassword;
pub(super) use self::password::check_chosen;
use self::password::hash;
pub use self::view::UserView;
use super::{Admin, AdminRefusal, Decided, Done, all_or_none, check_account_id, check_text, claim, provider};
use crate::clock::Timestamp;
use crate::flow::account::view::applications;
use crate::flow::login::session;
use crate::identity::claim::looks_like_email;
use crate::identity::{LoginName, Session, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{
    CONSENTS, FAMILIES, FAMILIES_BY_OWNER, USERS, USERS_BY_IDENTITY, USERS_BY_LOGIN_NAME,
};

/// What an operator says about a user; what is left out keeps its default or its value, an empty text removes it.
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
    /// Claims by name, as typed.
    pub claims: Vec<(String, String)>,
}

/// A user to be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddUser {
    /// The e-mail address, which becomes the account identifier too.
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
    /// Whether the user's sessions and refresh tokens end.
    pub sign_out: bool,
}

/// A user whom a provider speaks for no longer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unlink {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// The provider's id.
    pub provider: String,
}

/// The user that somebody means: by UUID, or by a name to sign in with.
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
    Ok(found.ok_or_else(|| {
        AdminRefusal::new(format!("there is no user {who}"))
            .with_hint("name a user by e-mail address, account identifier or uuid; idsvc user list shows all")
    }))
}

fn apply(user: &mut User, fields: &UserFields, faults: &mut Vec<String>) {
    fn optional(faults: &mut Vec<String>, field: &str, text: &str) -> Option<String> {
        if !text.is_empty() {
            check_text(faults, field, text);
        }
        (!text.is_empty()).then(|| text.to_owned())
    }
    // What is said of an address is said of the one that the user has then.
    let is_address = |(name, _): &&(String, String)| matches!(name.as_str(), "email" | "phone_number");
    let (addresses, others): (Vec<_>, Vec<_>) = fields.claims.iter().partition(is_address);
    let set = |user: &mut User, faults: &mut Vec<String>, name: &str, value: &str| {
        faults.extend(claim::set(user, name, value).err());
    };
    for (name, value) in addresses {
        set(user, faults, name, value);
    }
    if let Some(number) = &fields.phone_number {
        user.set_phone_number(optional(faults, "phone number", number));
    }
    claim::forget_verdicts(user);
    for (name, value) in others {
        set(user, faults, name, value);
    }
    if let Some(name) = &fields.name {
        set(user, faults, "name", name);
    }
    if let Some(venue) = &fields.venue_id {
        user.venue_id = optional(faults, "venue id", venue);
    }
    if let Some(user_type) = &fields.user_type {
        check_text(faults, "user type", user_type);
        faults.extend(borrowed_type(Some(user), user_type));
        user.user_type.clone_from(user_type);
    }
    if let Some(organization) = &fields.organization {
        check_text(faults, "organization", organization);
        user.organization.clone_from(organization);
    }
    user.email_verified = fields.email_verified.unwrap_or(user.email_verified);
    faults.extend(claim::unfounded(user));
}

/// Why nobody is given this type, if it is one by which APIs tell clients and users of devices from people. Whoever has
/// it, keeps it.
pub(super) fn borrowed_type(before: Option<&User>, user_type: &str) -> Option<String> {
    let is_kept = before.is_some_and(|user| user.user_type == user_type);
    let others = match user_type {
        User::CLIENT_TYPE => "clients that act for themselves",
        User::ANONYMOUS_TYPE => "users of devices",
        _ => return None,
    };
    (!is_kept).then(|| format!("user type {user_type} is that of {others}: choose another"))
}

/// Writes the user and the names to sign in with, unless one of them is another user's.
pub(super) fn put(tx: &mut dyn Tx, before: Option<&User>, user: &User) -> Decided<()> {
    for name in user.login_names() {
        if USERS_BY_LOGIN_NAME
            .get(&*tx, name.as_str())?
            .is_some_and(|owner| owner != user.uuid)
        {
            let refusal = AdminRefusal::new(format!("there is a user {} already", name.as_str()));
            return Ok(Err(refusal.with_hint("idsvc user update changes it")));
        }
    }
    if let Some(before) = before {
        drop_names(tx, before)?;
    }
    write(tx, user).map(Ok)
}

/// Takes the names of a user out of the index. One that another user has stays theirs.
pub(super) fn drop_names(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    for name in user.login_names() {
        if USERS_BY_LOGIN_NAME.get(&*tx, name.as_str())? == Some(user.uuid) {
            USERS_BY_LOGIN_NAME.remove(tx, name.as_str())?;
        }
    }
    Ok(())
}

/// Writes the user and the names to sign in with, which are free.
pub(super) fn write(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    for name in user.login_names() {
        USERS_BY_LOGIN_NAME.put(tx, name.as_str(), &user.uuid)?;
    }
    USERS.put(tx, &user.uuid, user)
}

/// Adds a user. The answer shows a password that was made, this once.
pub async fn add(admin: Admin<'_>, request: AddUser) -> Done<UserView> {
    let core = admin.core;
    let mut faults = Vec::new();
    if !looks_like_email(&request.email) {
        faults.push(format!("{:?} is no e-mail address", request.email));
    }
    if request.fields.claims.iter().any(|(name, _)| name == "email") {
        faults.push("claim email is the address the user is added by: leave it out".to_owned());
    }
    let now = core.clock.now();
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let mut user = User::local(uuid, &request.email, &core.policy.organization, now);
    apply(&mut user, &request.fields, &mut faults);
    let (hash, shown) = hash(admin, &user, request.password, faults).await?;
    user.password = hash;
    let view = UserView::of(&user, shown);
    core.store
        .write("user add", move |tx| put(tx, None, &user))
        .await??;
    audit::record(&Event::Administered {
        command: "user add",
        subject: &view.uuid.to_string(),
    });
    Ok(view)
}

/// Every user, in the order in which they were added.
pub fn list(admin: Admin<'_>, limit: usize) -> Done<Vec<UserView>> {
    let users = admin
        .core
        .store
        .read(|snapshot| USERS.scan(snapshot, .., limit))?;
    Ok(users.iter().map(|(_, user)| UserView::of(user, None)).collect())
}

/// One user, with the applications that the account page shows them.
pub fn show(admin: Admin<'_>, who: &str) -> Done<UserView> {
    let (catalog, now) = (admin.core.catalog(), admin.core.clock.now());
    let read = |snapshot: &dyn Snapshot| -> Decided<UserView> {
        let user = match find(snapshot, who)? {
            Ok(user) => user,
            Err(refusal) => return Ok(Err(refusal)),
        };
        Ok(Ok(UserView {
            applications: Some(applications(snapshot, &catalog, user.uuid, now)?),
            ..UserView::of(&user, None)
        }))
    };
    Ok(admin.core.store.read(read)??)
}

/// Changes a user in one transaction by a function that may refuse.
async fn change(
    admin: Admin<'_>,
    command: &'static str,
    who: String,
    change: impl Fn(&mut User) -> Result<(), AdminRefusal> + Send + 'static,
    sign_out: bool,
) -> Done<UserView> {
    let now = admin.core.clock.now();
    let user = admin
        .core
        .store
        .write(command, move |tx| -> Decided<User> {
            let before = match find(&*tx, &who)? {
                Ok(user) => user,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let mut user = before.clone();
            if let Err(refusal) = change(&mut user) {
                return Ok(Err(refusal));
            }
            user.updated_at = now;
            if let Err(refusal) = put(tx, Some(&before), &user)? {
                return Ok(Err(refusal));
            }
            if sign_out {
                end_everything(tx, user.uuid, now)?;
            }
            Ok(Ok(user))
        })
        .await??;
    audit::record(&Event::Administered {
        command,
        subject: &user.uuid.to_string(),
    });
    Ok(UserView::of(&user, None))
}

/// Ends every session, live or not, and every refresh family of a user; says which sessions there were.
pub(super) fn end_everything(
    tx: &mut dyn Tx,
    user: Uuid,
    now: Timestamp,
) -> Result<Vec<(Uuid, Session)>, StoreError> {
    let ended = session::end_all(tx, user, None, now)?;
    session::end_families(tx, user, now)?;
    Ok(ended)
}

/// Changes a user.
pub async fn update(admin: Admin<'_>, request: UpdateUser) -> Done<UserView> {
    let UpdateUser {
        who,
        email,
        account_id,
        fields,
    } = request;
    let change_user = move |user: &mut User| {
        let mut faults = Vec::new();
        if let Some(email) = &email
            && let Err(fault) = claim::set(user, "email", email)
        {
            faults.push(fault);
        }
        if let Some(account_id) = &account_id {
            check_account_id(&mut faults, "account id", account_id);
            user.account_id.clone_from(account_id);
        }
        apply(user, &fields, &mut faults);
        all_or_none(&faults)
    };
    change(admin, "user update", who, change_user, false).await
}

/// Lets a user sign in again, or stops it; tokens stop being refreshed at once.
pub async fn set_enabled(admin: Admin<'_>, who: String, enabled: bool) -> Done<UserView> {
    let command = if enabled { "user enable" } else { "user disable" };
    let change_user = move |user: &mut User| {
        user.enabled = enabled;
        Ok(())
    };
    change(admin, command, who, change_user, false).await
}

/// Sets or removes a user's password. The answer shows one that was made, this once.
pub async fn set_password(admin: Admin<'_>, request: SetPassword) -> Done<UserView> {
    let user = admin.core.store.read(|snapshot| find(snapshot, &request.who))??;
    let (hash, shown) = hash(admin, &user, request.password, Vec::new()).await?;
    let change_user = move |user: &mut User| {
        user.password.clone_from(&hash);
        Ok(())
    };
    let view = change(
        admin,
        "user set-password",
        request.who,
        change_user,
        request.sign_out,
    )
    .await?;
    Ok(UserView {
        password: shown,
        ..view
    })
}

/// Takes a provider's word for a user away: who comes from there is nobody's until linked or made anew. What stands
/// on that word ends: sessions and refresh families that began at the provider, whatever name its issuer had then.
pub async fn unlink(admin: Admin<'_>, request: Unlink) -> Done<UserView> {
    let now = admin.core.clock.now();
    let provider = request.provider.clone();
    let user = admin
        .core
        .store
        .write("user unlink", move |tx| -> Decided<User> {
            let mut user = match find(&*tx, &request.who)? {
                Ok(user) => user,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let before = user.clone();
            let issuers = provider::issuers(&*tx)?;
            let issuer = issuers.get(&request.provider);
            let (gone, kept): (Vec<_>, Vec<_>) =
                std::mem::take(&mut user.identities)
                    .into_iter()
                    .partition(|identity| {
                        identity.provider == request.provider || Some(&identity.issuer) == issuer
                    });
            if gone.is_empty() {
                let refusal = format!(
                    "user {} is not linked to provider {}",
                    request.who, request.provider
                );
                return Ok(Err(AdminRefusal::new(refusal)));
            }
            user.identities = kept;
            user.updated_at = now;
            if let Err(refusal) = put(tx, Some(&before), &user)? {
                return Ok(Err(refusal));
            }
            let mut providers = BTreeSet::new();
            for identity in gone {
                let namesakes = issuers.iter().filter(|(_, issuer)| **issuer == identity.issuer);
                providers.extend(namesakes.map(|(id, _)| id.clone()));
                providers.insert(identity.provider);
                USERS_BY_IDENTITY.remove(tx, &(identity.issuer, identity.subject))?;
            }
            session::end_federated(tx, user.uuid, &providers, now)?;
            Ok(Ok(user))
        })
        .await??;
    audit::record(&Event::Unlinked {
        user: user.uuid,
        provider: &provider,
    });
    Ok(UserView::of(&user, None))
}

/// Takes a user and everything that belongs to them out of the store.
pub(crate) fn remove_in(tx: &mut dyn Tx, user: &User, now: Timestamp) -> Result<(), StoreError> {
    end_everything(tx, user.uuid, now)?;
    for (key, ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user.uuid, usize::MAX)? {
        let (_, (_, id)) = &key;
        match FAMILIES.get(&*tx, id)? {
            Some(family) => session::forget_family(tx, *id, &family)?,
            None => {
                FAMILIES_BY_OWNER.remove(tx, &key)?;
            }
        }
    }
    for (key, _) in CONSENTS.scan_prefix(&*tx, &user.uuid, usize::MAX)? {
        CONSENTS.remove(tx, &key)?;
    }
    for identity in &user.identities {
        USERS_BY_IDENTITY.remove(tx, &(identity.issuer.clone(), identity.subject.clone()))?;
    }
    drop_names(tx, user)?;
    USERS.remove(tx, &user.uuid).map(|_| ())
}

/// Removes a user with everything that belongs to them: names, sessions, consents, refresh families.
pub async fn remove(admin: Admin<'_>, who: String) -> Done<UserView> {
    let now = admin.core.clock.now();
    let user = admin
        .core
        .store
        .write("user remove", move |tx| -> Decided<User> {
            let user = match find(&*tx, &who)? {
                Ok(user) => user,
                Err(refusal) => return Ok(Err(refusal)),
            };
            remove_in(tx, &user, now)?;
            Ok(Ok(user))
        })
        .await??;
    audit::record(&Event::Administered {
        command: "user remove",
        subject: &user.uuid.to_string(),
    });
    Ok(UserView::of(&user, None))
}

#[cfg(test)]
mod tests;

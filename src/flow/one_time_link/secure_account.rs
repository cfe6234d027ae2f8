//! A user secures the account by the link of a notice.

use uuid::Uuid;

use super::{DrawnLink, find, invitations, use_up};
use crate::clock::Timestamp;
use crate::flow::login::session::EndedSessions;
use crate::flow::login::{remembered_device, session};
use crate::flow::outbox::DrawnMail;
use crate::flow::users::{EndedByProof, end_sessions_and_families};
use crate::flow::{Core, Failure, factors, users};
use crate::identity::{Factor, LinkPurpose, LoginName, OneTimeLink, User};
use crate::mail::{Content, Message};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{LinkSecret, Secret};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::login_names;
use crate::store::tables::{SESSIONS, USERS, USERS_BY_IDENTITY};

/// The user whom a link of this purpose can secure. `None` if the user is disabled, the address has changed otherwise than
/// the notice says, another user has the address of the notice, or the user has added a factor since: the mailbox alone
/// must not undo it.
pub fn may_secure(snapshot: &dyn Snapshot, purpose: &LinkPurpose) -> Result<Option<User>, StoreError> {
    let LinkPurpose::SecureAccount {
        user,
        email,
        replaced_by,
        event,
    } = purpose
    else {
        return Ok(None);
    };
    if login_names::is_of_another(snapshot, &LoginName::new(email), *user)? {
        return Ok(None);
    }
    if let Some(event) = event {
        let is_newer =
            |(id, factor): &(Uuid, Factor)| factor.added_at > event.at && !event.factors.contains(id);
        if factors::of_user(snapshot, *user)?.iter().any(is_newer) {
            return Ok(None);
        }
    }
    let present = replaced_by.as_ref().unwrap_or(email);
    let is_same = |user: &User| user.enabled && user.has_email(present);
    Ok(USERS.get(snapshot, user)?.filter(is_same))
}

/// Undoes what the notice is about: ends the session in which it happened with its grants, removes the factors that were
/// added, or sets the address back. Also removes the password, and sends a link to choose a new one. Returns whether it was
/// done.
///
/// Other factors stay, and the sign-in with the new password asks for them.
///
/// The link of the notice does not set a password itself. It lasts for a week, and other people may have a copy of the mail.
pub async fn secure_account(
    core: &Core,
    secret: &Secret<LinkSecret>,
    now: Timestamp,
) -> Result<bool, Failure> {
    let link = core.store.read(|snapshot| find(snapshot, secret, now)).await?;
    let Some(purpose) = link.map(|link| link.purpose) else {
        return Ok(false);
    };
    let LinkPurpose::SecureAccount {
        user,
        email,
        event,
        replaced_by,
    } = purpose.clone()
    else {
        return Ok(false);
    };
    let reader = users::find(core, user).await?;
    let language = reader.as_ref().and_then(User::language);
    let zone = reader.as_ref().and_then(User::zone);
    let expires_at = now + OneTimeLink::OPERATOR_LIFETIME;
    let reset = LinkPurpose::ResetPassword {
        user,
        email: Some(email.clone()),
        password: None,
    };
    let reset_link = DrawnLink::draw(core, reset, expires_at);
    let message = Message {
        to: email.clone(),
        languages: language.clone(),
        zone: zone.clone(),
        client_id: None,
        content: Content::ResetPassword {
            link: reset_link.address(&core.policy.issuer),
            code: None,
            expires_at,
        },
    };
    let mail = DrawnMail::draw(core, &message, now)?;
    // Without a link, or the two mailboxes could take the address from each other for ever.
    let to_replaced = replaced_by.map(|to| Message {
        to,
        languages: language,
        zone,
        client_id: None,
        content: Content::AddressChanged {
            to: email.clone(),
            at: now,
            link: None,
        },
    });
    let told = to_replaced
        .map(|message| DrawnMail::draw(core, &message, now))
        .transpose()?;
    let secret = secret.clone();
    let ended = core
        .store
        .write("secure_account", move |tx| -> Result<_, StoreError> {
            let Some(mut user) = may_secure(&*tx, &purpose)? else {
                return Ok(None);
            };
            if use_up(tx, &secret, now)?.is_none() {
                return Ok(None);
            }
            let mut proof = if user.has_mailbox(&email) {
                EndedByProof::default()
            } else {
                told.iter().try_for_each(|mail| mail.put(tx))?;
                set_address_back(tx, &mut user, &email, now)?
            };
            let added = event.as_ref().map_or(&[][..], |event| &event.factors);
            let removed = factors::remove_these(tx, user.uuid, |id, _| added.contains(&id))?;
            proof.add_factors(removed);
            user.password = None;
            user.secured_at = Some(now);
            if user.factors_end_at.take().is_some() {
                proof.end_wait("secured");
            }
            user.updated_at = now;
            USERS.put(tx, &user.uuid, &user)?;
            reset_link.put(tx)?;
            mail.put(tx)?;
            let session = event.as_ref().and_then(|event| event.session);
            let ended = match session {
                Some(session) => end_session_of(tx, user.uuid, session, now)?,
                None => end_sessions_and_families(tx, user.uuid, now)?,
            };
            Ok(Some((ended, proof)))
        });
    let Some((ended, proof)) = ended.await? else {
        return Ok(false);
    };
    proof.record(core, user, now);
    core.outbox_filled.notify_one();
    audit::record(&Event::AccountSecured { user });
    session::record_ended(core, ended, now);
    Ok(true)
}

/// Ends one session of a user, with all grants and codes from it and the memory of browsers that need no second step.
fn end_session_of(
    tx: &mut dyn Tx,
    user: Uuid,
    id: Uuid,
    now: Timestamp,
) -> Result<EndedSessions, StoreError> {
    let mut ended = Vec::new();
    if let Some(session) = SESSIONS.get(&*tx, &id)?.filter(|session| session.user == user) {
        session::end_live(tx, id, session, now, &mut ended)?;
    }
    session::end_offline(tx, user, id, now)?;
    session::forget_codes(tx, user, now, |authorization| authorization.session == Some(id))?;
    remembered_device::forget(tx, user, now)?;
    Ok(ended)
}

/// Sets the previous address, and removes the accounts at providers that were linked since it was replaced: a provider may
/// have linked one by the other address. If the person who made the account never proved the address, all ends that this
/// person has.
fn set_address_back(
    tx: &mut dyn Tx,
    user: &mut User,
    email: &str,
    now: Timestamp,
) -> Result<EndedByProof, StoreError> {
    let before = user.clone();
    user.set_proven_email(email);
    let changed_at = user.email_changed_at.take();
    user.identities
        .retain(|identity| changed_at.is_none_or(|at| identity.linked_at < at));
    for identity in before
        .identities
        .iter()
        .filter(|identity| !user.identities.contains(identity))
    {
        USERS_BY_IDENTITY.remove(tx, &(identity.issuer.clone(), identity.subject.clone()))?;
    }
    invitations::end_of_lost_names(tx, &before, Some(user), now)?;
    login_names::replace(tx, &before, user)?;
    if !user.unproven_holder {
        return Ok(EndedByProof::default());
    }
    user.email_verified = false;
    users::prove_address(tx, user, now)
}

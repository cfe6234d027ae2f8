//! A user confirms a new e-mail address by the link that was sent to it.

use super::request_mail::check_address;
use super::{DrawnLink, find, invitations, use_up};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::login::session::find_unended;
use crate::flow::outbox::DrawnMail;
use crate::flow::users::EndedByProof;
use crate::flow::{Core, Failure, users};
use crate::identity::one_time_link::NoticedEvent;
use crate::identity::{LinkPurpose, LoginName, OneTimeLink, User};
use crate::mail::{Content, Message};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{LinkSecret, Secret};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::login_names;
use crate::store::tables::USERS;
use crate::text;
use uuid::Uuid;

/// The user whose address a link of this purpose can change. `None` if the user may not change the address now, the session
/// has ended in which the link was requested, or another user has the new address.
pub fn may_change(
    snapshot: &dyn Snapshot,
    purpose: &LinkPurpose,
    now: Timestamp,
) -> Result<Option<User>, StoreError> {
    let LinkPurpose::ChangeEmail {
        user,
        session,
        from,
        to,
    } = purpose
    else {
        return Ok(None);
    };
    let session = find_unended(snapshot, *session)?;
    let is_taken = login_names::is_of_another(snapshot, &LoginName::new(to), *user)?;
    if session.is_none_or(|session| session.user != *user) || is_taken {
        return Ok(None);
    }
    let has_address = |user: &User| match from {
        Some(from) => user.has_email(from),
        None => user.email.is_none(),
    };
    let is_same = |user: &User| user.enabled && has_address(user) && user.may_change_email(now);
    Ok(USERS.get(snapshot, user)?.filter(is_same))
}

/// Sets the address, and tells the previous one, with a link that sets it back. Returns whether it was done. The account
/// identifier stays, so nobody else gets the name by which the user was known.
///
/// A person who made the account without a proof of an address proves the new one in the session that requested it. In
/// another browser, another person may have been sent there: that ends what the first one has ([`users::prove_address`]).
pub async fn change_email(
    core: &Core,
    browser: &Browser,
    secret: &Secret<LinkSecret>,
    now: Timestamp,
) -> Result<bool, Failure> {
    let link = core.store.read(|snapshot| find(snapshot, secret, now)).await?;
    let Some(purpose) = link.map(|link| link.purpose) else {
        return Ok(false);
    };
    let LinkPurpose::ChangeEmail {
        user,
        session: requested_in,
        from,
        to,
    } = purpose.clone()
    else {
        return Ok(false);
    };
    if check_address(core, &to).is_err() {
        return Ok(false);
    }
    let event = NoticedEvent::of_account(now).in_session(requested_in);
    let notice = match from {
        Some(previous) => Some(draw_notice(core, user, previous, to.clone(), event).await?),
        None => None,
    };
    let (secret, presented) = (secret.clone(), browser.session.clone());
    let changed = core
        .store
        .write("change_email", move |tx| -> Result<_, StoreError> {
            let Some(before) = may_change(&*tx, &purpose, now)? else {
                return Ok(None);
            };
            if use_up(tx, &secret, now)?.is_none() {
                return Ok(None);
            }
            let mut changed = before.clone();
            changed.email = Some(text::map_width(&to));
            let presented = session::presented(&*tx, presented.as_ref())?;
            let is_holder = presented.is_some_and(|(id, _)| id == requested_in);
            changed.email_changed_at = Some(now);
            changed.updated_at = now;
            let is_proven = changed.has_mailbox(&to);
            let proof = if is_proven && !is_holder {
                users::prove_address(tx, &mut changed, now)?
            } else {
                // The previous address is still unproven, if the person set it back.
                changed.email_verified = is_proven;
                USERS.put(tx, &user, &changed)?;
                EndedByProof::default()
            };
            invitations::end_of_lost_names(tx, &before, Some(&changed), now)?;
            login_names::replace(tx, &before, &changed)?;
            if let Some((link, mail)) = &notice {
                link.put(tx)?;
                mail.put(tx)?;
            }
            Ok(Some(proof))
        });
    let Some(proof) = changed.await? else {
        return Ok(false);
    };
    core.outbox_filled.notify_one();
    audit::record(&Event::EmailChanged { user });
    proof.record(core, user, now);
    Ok(true)
}

/// The mail to the previous address, and its link.
async fn draw_notice(
    core: &Core,
    user: Uuid,
    previous: String,
    to: String,
    event: NoticedEvent,
) -> Result<(DrawnLink, DrawnMail), Failure> {
    let at = event.at;
    let purpose = LinkPurpose::SecureAccount {
        user,
        email: previous.clone(),
        replaced_by: Some(to.clone()),
        event: Some(event),
    };
    let link = DrawnLink::draw(core, purpose, at + OneTimeLink::NOTICE_LIFETIME);
    let user = users::find(core, user).await?;
    let message = Message {
        to: previous,
        languages: user.as_ref().and_then(User::language),
        zone: user.as_ref().and_then(User::zone),
        client_id: None,
        content: Content::AddressChanged {
            to,
            at,
            link: Some(link.address(&core.policy.issuer)),
        },
    };
    Ok((link, DrawnMail::draw(core, &message, at)?))
}

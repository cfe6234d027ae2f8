//! A user confirms a new e-mail address by the link that was sent to it.

use super::{DrawnLink, find, use_up};
use crate::clock::Timestamp;
use crate::flow::outbox::DrawnMail;
use crate::flow::users::remove_login_names;
use crate::flow::{Core, Failure};
use crate::identity::{LinkPurpose, LoginName, OneTimeLink, User};
use crate::mail::{Content, Message};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{LinkSecret, Secret};
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

/// Sets the address, and tells the previous one, with a link that sets it back. Returns whether it was done: the link is
/// void if the address has changed since, or another user has the new one. If the previous address is the account
/// identifier too, the new one takes its place.
pub async fn change_email(core: &Core, secret: &Secret<LinkSecret>, now: Timestamp) -> Result<bool, Failure> {
    let link = core.store.read(|snapshot| find(snapshot, secret, now))?;
    let Some(LinkPurpose::ChangeEmail { user, from, to }) = link.map(|link| link.purpose) else {
        return Ok(false);
    };
    let notice = match &from {
        Some(previous) => {
            let purpose = LinkPurpose::SecureAccount {
                user,
                email: previous.clone(),
                restores_email: true,
            };
            let link = DrawnLink::draw(core, purpose, now + OneTimeLink::NOTICE_LIFETIME);
            let message = Message {
                to: previous.clone(),
                languages: None,
                client_id: None,
                content: Content::AddressChanged {
                    to: to.clone(),
                    at: now,
                    link: link.address(&core.policy.issuer),
                },
            };
            Some((link, DrawnMail::draw(core, &message, now)?))
        }
        None => None,
    };
    let secret = secret.clone();
    let changed = core.store.write("change_email", move |tx| {
        let is_same = |known: &User| known.enabled && known.email == from;
        let Some(before) = USERS.get(&*tx, &user)?.filter(is_same) else {
            return Ok(false);
        };
        let owner = USERS_BY_LOGIN_NAME.get(&*tx, LoginName::new(&to).as_str())?;
        if owner.is_some_and(|owner| owner != user) || use_up(tx, &secret, now)?.is_none() {
            return Ok(false);
        }
        let mut changed = before.clone();
        changed.move_to(&to);
        changed.updated_at = now;
        remove_login_names(tx, &before)?;
        for name in changed.login_names() {
            USERS_BY_LOGIN_NAME.put(tx, name.as_str(), &user)?;
        }
        USERS.put(tx, &user, &changed)?;
        if let Some((link, mail)) = &notice {
            link.put(tx)?;
            mail.put(tx)?;
        }
        Ok(true)
    });
    let changed = changed.await?;
    if changed {
        core.outbox_filled.notify_one();
        audit::record(&Event::EmailChanged { user });
    }
    Ok(changed)
}

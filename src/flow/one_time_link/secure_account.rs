//! A user secures the account by the link of a notice.

use super::{DrawnLink, find, use_up};
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::outbox::DrawnMail;
use crate::flow::users::{end_sessions_and_families, remove_login_names};
use crate::flow::{Core, Failure, users};
use crate::identity::{LinkPurpose, LoginName, OneTimeLink, User};
use crate::mail::{Content, Message};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{LinkSecret, Secret};
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

/// Ends all sessions and grants, removes the password, sets an address back that was changed, and sends a link to choose a new one, in one transaction. Returns
/// the address that the link is sent to; `None` if the link of the notice can no longer be used.
///
/// The link of the notice does not set a password itself. It lasts for a week, and other people may have a copy of the mail.
pub async fn secure_account(
    core: &Core,
    secret: &Secret<LinkSecret>,
    now: Timestamp,
) -> Result<Option<String>, Failure> {
    let link = core.store.read(|snapshot| find(snapshot, secret, now))?;
    let Some(LinkPurpose::SecureAccount {
        user,
        email: to,
        restores_email,
    }) = link.map(|link| link.purpose)
    else {
        return Ok(None);
    };
    let language = users::find(core, user)?.and_then(|user| user.language());
    let expires_at = now + OneTimeLink::OPERATOR_LIFETIME;
    let purpose = LinkPurpose::ResetPassword {
        user,
        email: Some(to.clone()),
        password: None,
    };
    let reset_link = DrawnLink::draw(core, purpose, expires_at);
    let message = Message {
        to: to.clone(),
        languages: language,
        client_id: None,
        content: Content::ResetPassword {
            link: reset_link.address(&core.policy.issuer),
            code: None,
            expires_at,
        },
    };
    let mail = DrawnMail::draw(core, &message, now)?;
    let (secret, address) = (secret.clone(), to.clone());
    let ended = core.store.write("secure_account", move |tx| {
        let is_same = |user: &User| restores_email || user.email.as_ref() == Some(&address);
        let Some(before) = USERS.get(&*tx, &user)?.filter(is_same) else {
            return Ok(None);
        };
        let owner = USERS_BY_LOGIN_NAME.get(&*tx, LoginName::new(&address).as_str())?;
        if owner.is_some_and(|owner| owner != user) || use_up(tx, &secret, now)?.is_none() {
            return Ok(None);
        }
        let mut user = before.clone();
        if user.email.as_ref() != Some(&address) {
            user.move_to(&address);
            remove_login_names(tx, &before)?;
            for name in user.login_names() {
                USERS_BY_LOGIN_NAME.put(tx, name.as_str(), &user.uuid)?;
            }
        }
        user.password = None;
        user.updated_at = now;
        USERS.put(tx, &user.uuid, &user)?;
        reset_link.put(tx)?;
        mail.put(tx)?;
        end_sessions_and_families(tx, user.uuid, now).map(Some)
    });
    let Some(ended) = ended.await? else {
        return Ok(None);
    };
    core.outbox_filled.notify_one();
    audit::record(&Event::AccountSecured { user });
    session::record_ended(core, ended, now);
    Ok(Some(to))
}

//! A user secures the account by the link of a notice.

use uuid::Uuid;

use super::{DrawnLink, find, use_up};
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::outbox::DrawnMail;
use crate::flow::users::end_sessions_and_families;
use crate::flow::{Core, Failure, users};
use crate::identity::{LinkPurpose, OneTimeLink, User};
use crate::mail::{Content, Message};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{LinkSecret, Secret};
use crate::store::tables::USERS;

/// Ends all sessions and grants, removes the password, and sends a link to choose a new one, in one transaction. Returns
/// the address that the link is sent to; `None` if the link of the notice can no longer be used.
///
/// The link of the notice does not set a password itself. It lasts for a week, and other people may have a copy of the mail.
pub async fn secure_account(
    core: &Core,
    secret: &Secret<LinkSecret>,
    user: Uuid,
    now: Timestamp,
) -> Result<Option<String>, Failure> {
    let user = users::find(core, user)?;
    let Some((user, language, to)) = user.and_then(|user| Some((user.uuid, user.language(), user.email?)))
    else {
        return Ok(None);
    };
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
        let link = find(&*tx, &secret, now)?;
        let Some(LinkPurpose::SecureAccount { user, email }) = link.map(|link| link.purpose) else {
            return Ok(None);
        };
        let is_same = |user: &User| {
            let is_of_notice = user.email.as_ref() == Some(&email);
            is_of_notice && email == address
        };
        let Some(mut user) = USERS.get(&*tx, &user)?.filter(is_same) else {
            return Ok(None);
        };
        use_up(tx, &secret, now)?;
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

//! A user changes the e-mail address: a link is sent to the new one.

use super::{ActionResult, act_in_recent_session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::one_time_link::DrawnLink;
use crate::flow::outbox::DrawnMail;
use crate::flow::{Core, Failure};
use crate::identity::claim::looks_like_email;
use crate::identity::{LinkPurpose, LoginName, OneTimeLink};
use crate::mail::{Content, Message};
use crate::store::tables::USERS_BY_LOGIN_NAME;

/// Sends a link to the new address. The address changes when the link is used. If another user has the address, the answer
/// is the same and no mail is sent. Returns whether the text can be an address.
pub async fn request_email(
    core: &Core,
    browser: &Browser,
    email: String,
    language: String,
    now: Timestamp,
) -> Result<ActionResult<bool>, Failure> {
    let name = LoginName::new(&email);
    let is_allowed = core.policy.accounts.self_service.email && core.policy.sends_mail;
    if !is_allowed || !looks_like_email(&email) || !name.is_storable() {
        return Ok(ActionResult::Done(false));
    }
    let Some(live) = session::signed_in(core, browser, now)? else {
        return Ok(ActionResult::SignInRequired);
    };
    let purpose = LinkPurpose::ChangeEmail {
        user: live.user.uuid,
        from: live.user.email.clone(),
        to: email.clone(),
    };
    let link = DrawnLink::draw(core, purpose, now + OneTimeLink::REQUESTED_LIFETIME);
    let message = Message {
        to: email,
        languages: Some(language),
        client_id: None,
        content: Content::VerifyAddress {
            link: link.address(&core.policy.issuer),
        },
    };
    let mail = DrawnMail::draw(core, &message, now)?;
    let decoy = DrawnMail::decoy(core, &message, now)?;
    let user = live.user.uuid;
    let result = act_in_recent_session(core, browser, "request_email", now, move |tx, live| {
        let owner = USERS_BY_LOGIN_NAME.get(&*tx, name.as_str())?;
        let is_free = owner.is_none_or(|owner| owner == user) && live.user.uuid == user;
        if is_free && !live.user.comes_from_provider() {
            link.put(tx)?;
            mail.put(tx)?;
        } else {
            decoy.put(tx)?;
        }
        Ok(())
    })
    .await?;
    core.outbox_filled.notify_one();
    Ok(result.map(|()| true))
}

//! A user who has secured the account by the link of a notice, and has none of the factors any more.
//!
//! The mailbox alone must not undo the second step. So the user says on its page that no factor is left, is told by mail at
//! every address, and waits. A factor ends the wait, in a sign-in or in a form of the account page. When it is over, the next
//! sign-in with the password removes the factors. If there is none for a week, the factors stay.

use std::net::IpAddr;
use std::time::Duration;

use super::pending_sign_in::PendingSignIn;
use super::session::AuthenticationEvent;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::factor_wait::end_wait;
use crate::flow::notice::DrawnNotice;
use crate::flow::outbox::DrawnMail;
use crate::flow::users::EndedByProof;
use crate::flow::{Core, Failure, factors};
use crate::identity::claim::parse_email;
use crate::identity::{AuthenticationMethod, SecondFactor, User};
use crate::mail::{Content, Message};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::USERS;

/// How long the user waits.
const WAIT: Duration = Duration::from_hours(24);

/// Whether this sign-in is by the password that followed a secured account, so that its user may say that no factor is left.
pub fn may_begin(pending: &PendingSignIn, now: Timestamp) -> bool {
    let is_by_password = pending.first.factor == AuthenticationMethod::Password;
    pending.user.is_secured(now) && pending.raised.is_none() && is_by_password
}

/// Begins the wait. One that has begun goes on. Returns when it ends; `None` if the sign-in no longer counts.
pub async fn begin_wait(
    core: &Core,
    pending: &PendingSignIn,
    from: IpAddr,
    now: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    if !may_begin(pending, now) {
        return Ok(None);
    }
    let (first, user) = (pending.first.clone(), pending.user.uuid);
    let content = |link| Content::FactorsEnd {
        at: now,
        link: Some(link),
    };
    let notice = DrawnNotice::draw(core, &pending.user, content, now)?;
    let other_mail = mail_to_account_id(core, &pending.user, now)?;
    let begin = move |tx: &mut dyn Tx| -> Result<_, StoreError> {
        let user = USERS.get(&*tx, &first.user)?;
        let Some(mut user) = user.filter(|user| first.is_valid(user, now)) else {
            return Ok(None);
        };
        if let Some(end) = user.factors_end(now) {
            return Ok(Some(Wait { end, is_new: false }));
        }
        // A factor may have been shown since.
        if !user.is_secured(now) {
            return Ok(None);
        }
        let end = now + WAIT;
        user.factors_end_at = Some(end);
        USERS.put(tx, &user.uuid, &user)?;
        notice.iter().try_for_each(|notice| notice.put(tx))?;
        other_mail.iter().try_for_each(|mail| mail.put(tx))?;
        Ok(Some(Wait { end, is_new: true }))
    };
    let Some(wait) = core.store.write("lost_factors", begin).await? else {
        return Ok(None);
    };
    if wait.is_new {
        core.outbox_filled.notify_one();
        let ends_at = wait.end.seconds();
        audit::record(&Event::LostFactorsWaitBegan { user, ends_at, from });
    }
    Ok(Some(wait.end))
}

struct Wait {
    end: Timestamp,
    is_new: bool,
}

/// The mail to the account identifier, if that is an address and another one.
fn mail_to_account_id(core: &Core, user: &User, now: Timestamp) -> Result<Option<DrawnMail>, StoreError> {
    let address = parse_email(&user.account_id).ok();
    let Some(to) = address.filter(|address| user.email.as_ref() != Some(address)) else {
        return Ok(None);
    };
    let message = Message {
        to,
        languages: user.language(),
        zone: user.zone(),
        client_id: None,
        content: Content::FactorsEnd { at: now, link: None },
    };
    DrawnMail::draw(core, &message, now).map(Some)
}

/// The notice that a sign-in with the password removes the factors. `None` if the user does not wait for that.
pub(in crate::flow) async fn removal_notice(
    core: &Core,
    user: &User,
    browser: &Browser,
    now: Timestamp,
) -> Result<Option<Box<DrawnNotice>>, StoreError> {
    let Some(end) = user.factors_end(now) else {
        return Ok(None);
    };
    let uuid = user.uuid;
    let present = core
        .store
        .read(|snapshot| factors::of_user(snapshot, uuid))
        .await?;
    let removed = factors::chosen_of(present, |_, factor| factor.added_at + WAIT <= end);
    let removed = removed.iter().map(|(_, factor)| factor);
    let notice = DrawnNotice::of_removed(core, user, Some(browser), removed, now)?;
    Ok(notice.map(Box::new))
}

/// Ends a wait in the transaction of a sign-in: a factor ends it, or that it may begin, and after it the password removes
/// the factors that were there when it began. A wait that nobody has used for a week is void. What ended is added to the
/// proof. Returns whether the notice of the removal was stored.
pub(super) fn settle(
    tx: &mut dyn Tx,
    user: &mut User,
    proof: &mut EndedByProof,
    removal: Option<&DrawnNotice>,
    event: &AuthenticationEvent,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let mut has_sent_notice = false;
    let shows_factor = event.factor.is_passkey()
        || matches!(
            event.second_factor,
            Some(SecondFactor::Totp | SecondFactor::RecoveryCode)
        );
    let is_password = event.factor == AuthenticationMethod::Password;
    let reason = match user.factors_end_at {
        _ if shows_factor => "factor",
        Some(_) if user.factors_end(now).is_none() => "expired",
        Some(end) if is_password && now >= end => {
            let removed = factors::remove_these(tx, user.uuid, |_, factor| factor.added_at + WAIT <= end)?;
            if !removed.is_empty() {
                removal.iter().try_for_each(|notice| notice.put(tx))?;
                has_sent_notice = removal.is_some();
            }
            proof.add_factors(removed);
            "over"
        }
        _ => return Ok(false),
    };
    if user.factors_end_at.is_some() || user.secured_at.is_some() {
        if end_wait(user) {
            proof.end_wait(reason);
        }
        USERS.put(tx, &user.uuid, user)?;
    }
    Ok(has_sent_notice)
}

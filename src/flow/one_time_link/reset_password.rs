//! A user sets a new password by a link, without the present one.

use uuid::Uuid;

use super::redeem_result::{ChosenPassword, RedeemResult};
use super::{find, use_up};
use crate::flow::check_password::is_present_password;
use crate::flow::login::lost_factors;
use crate::flow::login::record_sign_in::record_sign_in;
use crate::flow::login::session::AuthenticationEvent;
use crate::flow::login::start_session::{Identified, Identify, SessionStart, start_session};
use crate::flow::login::transaction::BrowserLogin;
use crate::flow::notice::DrawnNotice;
use crate::flow::users::{EndedByProof, end_sessions_and_families};
use crate::flow::{Failure, failed_passwords, users};
use crate::identity::{AuthenticationMethod, LinkPurpose, OneTimeLink, SecondFactor, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordHash;
use crate::secret::{LinkSecret, Secret};
use crate::store::tables::USERS;

/// Sets the password and ends everything that was granted before, in one transaction. A link that was sent to the address
/// of the user proves the address ([`users::prove_address`]). `second_factor` is the second step that the user has answered in this sign-in.
pub(super) async fn reset_password(
    at: BrowserLogin<'_>,
    secret: &Secret<LinkSecret>,
    user: Uuid,
    second_factor: Option<SecondFactor>,
    chosen: ChosenPassword,
) -> Result<RedeemResult, Failure> {
    let BrowserLogin { core, login, now, .. } = at;
    let Some(user) = users::find(core, user).await? else {
        return Ok(RedeemResult::LinkVoid);
    };
    if let Err(problem) = core.policy.check_password(&user, &chosen.password) {
        return Ok(RedeemResult::Rejected(problem));
    }
    if user.must_change_password && is_present_password(core, &user, &chosen.password).await? {
        return Ok(RedeemResult::Unchanged);
    }
    let hash = core.passwords.hash(chosen.password, core.random.bytes()).await?;
    let event = AuthenticationEvent {
        second_factor,
        ..AuthenticationEvent::by_password(now)
    };
    let notice = DrawnNotice::of_new_password(core, &user, at.browser, now)?;
    let removal = lost_factors::removal_notice(core, &user, at.browser, now).await?;
    let (secret, transaction) = (secret.clone(), login.transaction.id);
    let identify: Identify = Box::new(move |tx| {
        let is_here = |link: &OneTimeLink| link.was_mailed_or_requested_in(transaction);
        let Some(link) = find(&*tx, &secret, now)?.filter(is_here) else {
            return Ok(None);
        };
        let purpose = link.purpose;
        let LinkPurpose::ResetPassword { user, email, .. } = &purpose else {
            return Ok(None);
        };
        let Some(mut user) = USERS.get(&*tx, user)?.filter(|user| may_reset(user, &purpose)) else {
            return Ok(None);
        };
        use_up(tx, &secret, now)?;
        let proof = match email {
            Some(email) if user.has_mailbox(email) => users::prove_address(tx, &mut user, now)?,
            _ => EndedByProof::default(),
        };
        user.password = Some(hash.clone());
        user.must_change_password = false;
        user.password_changed_at = Some(now);
        user.updated_at = now;
        USERS.put(tx, &user.uuid, &user)?;
        failed_passwords::reset_passwords(tx, user.uuid)?;
        notice.iter().try_for_each(|notice| notice.put(tx))?;
        let ended = end_sessions_and_families(tx, user.uuid, now)?;
        Ok(Some(Identified {
            ended,
            proof,
            removal: removal.clone(),
            ..user.into()
        }))
    });
    let record = |user, session| {
        core.outbox_filled.notify_one();
        audit::record(&Event::PasswordReset { user, session });
    };
    let started = match start_session(at, event, None, identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::Redirected { redirect, user } => {
            if let Some(user) = user {
                record(user, None);
            }
            return Ok(RedeemResult::Redirected(redirect));
        }
        SessionStart::NoUser => return Ok(RedeemResult::LinkVoid),
        SessionStart::TransactionError(_) => return Ok(RedeemResult::SignInExpired),
    };
    record(started.user.uuid, Some(started.session));
    record_sign_in(
        &started,
        &AuthenticationMethod::Password,
        login.purpose.audit_name(),
    );
    Ok(RedeemResult::Done {
        redirect: started.redirect,
        user: Box::new(started.user),
    })
}

/// Whether a link for this purpose can still set a password of this user. It stays valid while the user is disabled, but
/// can only be used after the user is enabled again.
pub fn may_reset(user: &User, purpose: &LinkPurpose) -> bool {
    let LinkPurpose::ResetPassword { email, password, .. } = purpose else {
        return false;
    };
    let fingerprint = user.password.as_ref().map(PasswordHash::fingerprint);
    let has_address = email.as_deref().is_none_or(|email| user.has_email(email));
    user.enabled && fingerprint == *password && has_address
}

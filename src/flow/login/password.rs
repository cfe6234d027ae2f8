//! A user signs in with a stored password.

use std::net::IpAddr;

use zeroize::Zeroizing;

use super::destination::BrowserRedirect;
use super::lost_factors;
use super::record_sign_in::record_sign_in;
use super::session::AuthenticationEvent;
use super::start_session::{Identified, Identify, SessionStart, start_session};
use super::transaction;
use super::transaction::BrowserLogin;
use crate::flow::check_password::check_password;
use crate::flow::notice::DrawnNotice;
use crate::flow::users::user_named;
use crate::flow::{Failure, failed_passwords, unless_refused};
use crate::identity::{AuthenticationMethod, LoginName, User};
use crate::limit::password_attempt::PasswordAttempt;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::USERS;

/// The result of a sign-in with a password.
#[derive(Debug)]
pub enum SignIn {
    /// The user is signed in.
    Done {
        /// Where the browser goes.
        redirect: BrowserRedirect,
        /// The user's record as it is now.
        user: Box<User>,
    },
    /// The password is wrong or no longer accepted from strangers, or the user is unknown or disabled. The answer is the
    /// same for each.
    Refused,
    /// The browser goes to the page for the second step, to the page for another password, or to the client with a refusal.
    Redirected(BrowserRedirect),
    /// The transaction has ended, or its client no longer accepts passwords.
    Expired,
}

/// What a user types into the sign-in form.
pub struct PasswordCredentials {
    /// The account identifier or e-mail address.
    pub name: LoginName,
    pub password: Zeroizing<String>,
    /// The address it came from, for the audit.
    pub from: IpAddr,
    /// Whether the user gets a notice, because nobody has signed in as this user in this browser before.
    pub sends_notice: bool,
    /// Whether the user may be offered a passkey: the browser can keep one.
    pub takes_passkey_offer: bool,
}

/// Checks a password and, if it is right, takes the next step. `user` is the owner of the name, as read before.
///
/// The password is checked before the transaction, on its own threads. An unknown name takes as much time as a known
/// one. The transaction compares the user's hash with the one that was checked. If it has changed, the password is
/// checked again, once: the user may have sent the form twice, and the first request has renewed the hash.
///
/// If the client no longer accepts passwords, the form has expired and no password is checked.
pub async fn sign_in(
    at: BrowserLogin<'_>,
    user: Option<User>,
    credentials: &PasswordCredentials,
    attempt: &PasswordAttempt,
) -> Result<SignIn, Failure> {
    let BrowserLogin { core, login, .. } = at;
    if !login.purpose.accepts(&AuthenticationMethod::Password) {
        return Ok(SignIn::Expired);
    }
    if let Some(result) = verify_password(at, user, credentials, attempt).await? {
        return Ok(result);
    }
    let user = user_named(core, &credentials.name).await?;
    let result = verify_password(at, user, credentials, attempt).await?;
    Ok(result.unwrap_or(SignIn::Expired))
}

/// Checks the password against this record and signs in. `None` if the record has changed since it was read.
async fn verify_password(
    at: BrowserLogin<'_>,
    user: Option<User>,
    credentials: &PasswordCredentials,
    attempt: &PasswordAttempt,
) -> Result<Option<SignIn>, Failure> {
    let BrowserLogin {
        core,
        browser,
        login,
        now,
    } = at;
    let enabled = user.as_ref().filter(|user| user.enabled);
    let hash = enabled.and_then(|user| user.password.clone());
    let attempt = failed_passwords::counted(core, attempt, user.as_ref(), hash.clone(), now);
    let verdict = check_password(core, hash.clone(), credentials.password.clone(), attempt).await?;
    let client_id = login.purpose.audit_name();
    let (Some(user), Some(checked), true) = (&user, hash, verdict.matches) else {
        audit::record(&Event::SignInFailed {
            user: user.map(|user| user.uuid),
            from: credentials.from,
            client_id,
        });
        return Ok(Some(SignIn::Refused));
    };
    let rehashed = if verdict.rehash_needed {
        let salt = checked.salt().unwrap_or_else(|| core.random.bytes());
        core.passwords.hash(credentials.password.clone(), salt).await.ok()
    } else {
        None
    };
    let uuid = user.uuid;
    let notice = if credentials.sends_notice {
        DrawnNotice::of_new_device(core, user, browser, now)?
    } else {
        None
    };
    let removal = lost_factors::removal_notice(core, user, browser, now).await?;
    let event = AuthenticationEvent {
        name: Some(credentials.name.clone()),
        notice,
        takes_passkey_offer: credentials.takes_passkey_offer,
        ..AuthenticationEvent::by_password(now)
    };
    let factor = event.factor.clone();
    let identify: Identify = Box::new(move |tx| {
        let user = USERS.get(&*tx, &uuid)?;
        let is_checked = |user: &User| user.enabled && user.password.as_ref() == Some(&checked);
        let Some(mut user) = user.filter(is_checked) else {
            return Ok(None);
        };
        if let Some(hash) = &rehashed {
            user.password = Some(hash.clone());
            USERS.put(tx, &uuid, &user)?;
        }
        failed_passwords::reset_passwords(tx, uuid)?;
        Ok(Some(Identified {
            removal: removal.clone(),
            ..user.into()
        }))
    });
    let started = match start_session(at, event, Some(uuid), identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::Redirected { redirect, .. } => return Ok(Some(SignIn::Redirected(redirect))),
        SessionStart::NoUser => return Ok(None),
        SessionStart::TransactionError(_) => return Ok(Some(SignIn::Expired)),
    };
    core.outbox_filled.notify_one();
    record_sign_in(&started, &factor, client_id);
    Ok(Some(SignIn::Done {
        redirect: started.redirect,
        user: Box::new(started.user),
    }))
}

/// The user continues with the account that is signed in (`prompt=select_account`). `None` if that is no longer
/// possible. `prompt=login` and `max_age` are checked first, so this does not replace a password that they require.
pub async fn continue_as(at: BrowserLogin<'_>) -> Result<Option<BrowserRedirect>, Failure> {
    let BrowserLogin { login, now, .. } = at;
    let Some(chosen) = login.offered_session(now) else {
        return Ok(None);
    };
    let progress = login.progress.settled_in(chosen.id);
    let advanced = transaction::advance_login(at, move |_, _| Ok(progress)).await;
    Ok(unless_refused(advanced)?.map(BrowserRedirect::to))
}

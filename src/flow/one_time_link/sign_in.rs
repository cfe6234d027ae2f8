//! A user signs in by a link or a code from a mail, without a password.

use super::{find, use_up};
use crate::flow::Failure;
use crate::flow::login::destination::BrowserRedirect;
use crate::flow::login::record_sign_in::record_sign_in;
use crate::flow::login::session::AuthenticationEvent;
use crate::flow::login::start_session::{Identify, SessionStart, start_session};
use crate::flow::login::transaction::BrowserLogin;
use crate::identity::{AuthenticationMethod, LinkPurpose, OneTimeLink, User};
use crate::secret::{LinkSecret, Secret};
use crate::store::tables::USERS;

/// The result of a sign-in by a link.
#[derive(Debug)]
pub enum LinkSignIn {
    /// The user is signed in, the second step follows, or the client gets a refusal. The browser goes here.
    Done(BrowserRedirect),
    /// The link or the sign-in is over.
    Void,
}

/// Signs the user in, in the sign-in in which the mail was requested. In another one the link is refused.
/// Otherwise an attacker could forward a link to the attacker's own account, and the browser of the reader would be signed
/// in to it.
pub async fn sign_in_by_link(
    at: BrowserLogin<'_>,
    secret: &Secret<LinkSecret>,
) -> Result<LinkSignIn, Failure> {
    let BrowserLogin { login, now, .. } = at;
    let event = AuthenticationEvent {
        factor: AuthenticationMethod::Email,
        ..AuthenticationEvent::by_password(now)
    };
    let factor = event.factor.clone();
    let (secret, transaction) = (secret.clone(), login.transaction.id);
    let identify: Identify = Box::new(move |tx| {
        let is_requested_here = |link: &OneTimeLink| {
            let requested_in = link.requested_in.as_ref();
            requested_in.is_some_and(|sign_in| sign_in.transaction == transaction)
        };
        let Some(link) = find(&*tx, &secret, now)?.filter(is_requested_here) else {
            return Ok(None);
        };
        use_up(tx, &secret, now)?;
        let LinkPurpose::SignIn { user, email } = link.purpose else {
            return Ok(None);
        };
        let is_same = |user: &User| user.may_sign_in_by_mail() && user.has_email(&email);
        let Some(user) = USERS.get(&*tx, &user)?.filter(is_same) else {
            return Ok(None);
        };
        Ok(Some(user.into()))
    });
    let started = match start_session(at, event, None, identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::Redirected { redirect, .. } => return Ok(LinkSignIn::Done(redirect)),
        SessionStart::NoUser | SessionStart::TransactionError(_) => return Ok(LinkSignIn::Void),
    };
    record_sign_in(&started, &factor, login.purpose.audit_name());
    Ok(LinkSignIn::Done(started.redirect))
}

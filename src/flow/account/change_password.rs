//! A person chooses another password.

use std::net::IpAddr;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::Outcome;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::check_password::check_password;
use crate::flow::login::session;
use crate::flow::login::session::{AuthenticationEvent, DrawnSession, NewSession};
use crate::flow::{Core, Failure};
use crate::identity::User;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordProblem;
use crate::secret::{Secret, SessionCookie};
use crate::store::tables::USERS;

/// What a person types to change the password.
pub struct NewPassword {
    /// The present one.
    pub current: Zeroizing<String>,
    /// The one to come.
    pub chosen: Zeroizing<String>,
    /// The address it came from, for the audit.
    pub from: IpAddr,
}

/// What came of it.
#[derive(Debug)]
pub enum Change {
    /// The password has changed, and this browser has a new session.
    Made {
        /// The cookie of the new session.
        session: Secret<SessionCookie>,
        /// The user with the new password.
        user: Box<User>,
    },
    /// The present password is not what was typed; nothing changed.
    WrongPassword,
    /// The new one is not fit; nothing changed.
    Unfit(PasswordProblem),
    /// The new one is the present one; nothing changed.
    Same,
}

/// Checks the present password on the pool, then sets the new one and ends everything that was granted before, in
/// one transaction. This browser stays signed in, in a session of a new id: whoever had the old password or a copied
/// cookie is out, also with a code that is not redeemed yet.
///
/// The present password is asked for however fresh the session is, and proves at the same time who the user is. Where the
/// record is no more the one that was checked, it is looked at again, once, as at a sign-in: one elsewhere may have made
/// the hash anew.
pub async fn change_password(
    core: &Core,
    browser: &Browser,
    typed: NewPassword,
    now: Timestamp,
) -> Result<Outcome<Change>, Failure> {
    for _ in 0..2 {
        if let Some(outcome) = look(core, browser, &typed, now).await? {
            return Ok(outcome);
        }
    }
    Ok(Outcome::SignIn)
}

/// Looks at the user's record and acts on it. Nothing, when it was another by the time it was to be acted on, or the
/// session had ended.
async fn look(
    core: &Core,
    browser: &Browser,
    typed: &NewPassword,
    now: Timestamp,
) -> Result<Option<Outcome<Change>>, Failure> {
    let Some(live) = session::signed_in(core, browser, now)? else {
        return Ok(Some(Outcome::SignIn));
    };
    let done = |change| Ok::<_, Failure>(Some(Outcome::Done(change)));
    if let Err(problem) = core.policy.check_password(&live.user, &typed.chosen) {
        return done(Change::Unfit(problem));
    }
    let user = live.user.uuid;
    let checked = live.user.password;
    let verdict = check_password(core, checked.clone(), typed.current.clone()).await?;
    if !verdict.matches {
        let from = typed.from;
        audit::record(&Event::PasswordChangeFailed { user, from });
        return done(Change::WrongPassword);
    }
    if typed.chosen == typed.current {
        return done(Change::Same);
    }
    let hash = core
        .passwords
        .hash(typed.chosen.clone(), core.random.bytes())
        .await?;
    let drawn = DrawnSession::draw(core, browser);
    let slot = drawn.slot();
    let policy = Arc::clone(&core.policy);
    let here = browser.clone();
    let started = core
        .store
        .write("change_password", move |tx| {
            let lifetimes = policy.lifetimes.session;
            let Some(live) = session::find(&*tx, here.session.as_ref(), lifetimes, now)? else {
                return Ok(None);
            };
            let mut user = live.user.clone();
            if user.password != checked {
                return Ok(None);
            }
            user.password = Some(hash.clone());
            user.updated_at = now;
            USERS.put(tx, &user.uuid, &user)?;
            let ended = session::end_all(tx, user.uuid, None, now)?;
            session::end_families(tx, user.uuid, now)?;
            let new = NewSession {
                user: user.uuid,
                event: AuthenticationEvent::by_password(now),
                device: here.device.clone(),
            };
            let started = session::start(tx, None, slot, new, lifetimes, now)?;
            Ok(Some((started.id, user, ended)))
        })
        .await?;
    let Some((id, changed, ended)) = started else {
        return Ok(None);
    };
    audit::record(&Event::PasswordChanged { user, session: id });
    session::record_ended(core, ended, now);
    done(Change::Made {
        session: drawn.cookie(id),
        user: Box::new(changed),
    })
}

//! A user signs in with a stored password.

use std::net::IpAddr;

use zeroize::Zeroizing;

use super::session::LiveSession;
use super::start_session::{Entrance, start_session};
use super::transaction;
use super::transaction::{Browser, Onward, Underway};
use crate::clock::Timestamp;
use crate::flow::check_password::check_password;
use crate::flow::{Core, Failure};
use crate::identity::{LoginName, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

/// What came of trying.
#[derive(Debug)]
pub enum SignIn {
    /// The user is signed in.
    Done(Onward),
    /// Wrong password, unknown user, disabled user: nobody is told which.
    Refused,
    /// The transaction ended meanwhile, or the session that was to go on did.
    Expired,
}

/// What a user types.
pub struct Typed {
    /// The account identifier or e-mail address.
    pub username: String,
    /// The password.
    pub password: Zeroizing<String>,
    /// The address it came from, for the audit.
    pub from: IpAddr,
}

/// Checks a password and, when it is right, takes the next step towards the client.
///
/// The password is checked outside of the transaction and on its own threads; an unknown name costs as much
/// time as a known one. The transaction checks once more that the user's record is still the one that
/// was checked. Where it is not, it is looked at again, once: a hasty hand sends a form twice, and the first time has made
/// the hash anew.
///
/// A form that is still open when its client takes passwords no more has expired: nothing is looked at.
pub async fn sign_in(
    core: &Core,
    browser: &Browser,
    underway: Underway,
    typed: Typed,
    now: Timestamp,
) -> Result<SignIn, Failure> {
    if !underway.client.password_sign_in {
        return Ok(SignIn::Expired);
    }
    for _ in 0..2 {
        if let Some(outcome) = look(core, browser, &underway, &typed, now).await? {
            return Ok(outcome);
        }
    }
    Ok(SignIn::Expired)
}

/// Looks at the user's record and acts on it. Nothing, when it was another by the time it was to be acted on.
async fn look(
    core: &Core,
    browser: &Browser,
    underway: &Underway,
    typed: &Typed,
    now: Timestamp,
) -> Result<Option<SignIn>, Failure> {
    let name = LoginName::new(&typed.username);
    let user = user_named(core, &name)?;
    let usable = user
        .as_ref()
        .filter(|user| user.enabled)
        .and_then(|user| user.password.clone());
    let verdict = check_password(core, usable.clone(), typed.password.clone()).await?;
    let client_id = &underway.client.client_id;
    let (Some(user), Some(checked), true) = (&user, usable, verdict.matches) else {
        audit::record(&Event::SignInFailed {
            user: user.map(|user| user.uuid),
            from: typed.from,
            client_id,
        });
        return Ok(Some(SignIn::Refused));
    };
    let rehashed = if verdict.rehash_needed {
        let salt = checked.salt().unwrap_or_else(|| core.random.bytes());
        core.passwords.hash(typed.password.clone(), salt).await.ok()
    } else {
        None
    };
    let entrance = Entrance::by_password(now);
    let authority = entrance.factor.authority().to_owned();
    let uuid = user.uuid;
    let started = start_session(core, browser, underway.id, entrance, now, move |tx| {
        let Some(mut user) = USERS.get(&*tx, &uuid)?.filter(|user| user.enabled) else {
            return Ok(None);
        };
        if user.password.as_ref() != Some(&checked) {
            return Ok(None);
        }
        if let Some(hash) = &rehashed {
            user.password = Some(hash.clone());
            USERS.put(tx, &uuid, &user)?;
        }
        Ok(Some((user, ())))
    });
    let (onward, session, user, ()) = match started.await? {
        Ok(Some(started)) => started,
        Ok(None) => return Ok(None),
        Err(_) => return Ok(Some(SignIn::Expired)),
    };
    audit::record(&Event::SignedIn {
        user,
        session,
        authority: &authority,
        client_id,
    });
    Ok(Some(SignIn::Done(onward)))
}

/// The user who signs in with this name. For an unknown name a row that does not exist is looked for, so that the answer
/// takes no less time.
pub fn user_named(core: &Core, name: &LoginName) -> Result<Option<User>, StoreError> {
    core.store.read(|snapshot| {
        let found = USERS_BY_LOGIN_NAME.get(snapshot, name.as_str())?;
        let user = USERS.get(snapshot, &found.unwrap_or_default())?;
        Ok(user.filter(|_| found.is_some()))
    })
}

/// The user goes on with the account that is signed in (`prompt=select_account`). Never in place of a
/// demanded password: `prompt=login` and `max_age` are checked first.
pub async fn continue_as(
    core: &Core,
    browser: &Browser,
    underway: Underway,
    now: Timestamp,
) -> Result<SignIn, Failure> {
    let Some(chosen) = underway
        .session
        .as_ref()
        .map(|live| live.id)
        .filter(|_| may_continue(&underway, now))
    else {
        return Ok(SignIn::Expired);
    };
    let before = underway.transaction.progress();
    let progress = move |_: &mut dyn Tx, live: &LiveSession| Ok(before.settled_in(live.id));
    let settled = transaction::settle(core, browser, underway.id, now, progress, Some(chosen)).await?;
    Ok(match settled {
        Ok(next) => SignIn::Done(Onward::to(next)),
        Err(_) => SignIn::Expired,
    })
}

/// Whether the sign-in page may offer to go on with the account that is signed in: where the application asked for a
/// choice, and this one would do.
pub fn may_continue(underway: &Underway, now: Timestamp) -> bool {
    let request = &underway.transaction.request;
    underway.session.as_ref().is_some_and(|live| {
        request.prompt.select_account
            && underway.client.accepts(&live.session.factor)
            && request.may_be(live.session.user)
            && !request.demands_sign_in(&live.session, now)
    })
}

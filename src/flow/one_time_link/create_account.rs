//! A person creates an account by a link: after a request on the page, or after an invitation.

use serde_json::Value;

use super::redeem_result::{ChosenPassword, RedeemResult};
use super::{key_of, use_up};
use crate::flow::Failure;
use crate::flow::login::anonymous_upgrade::become_account;
use crate::flow::login::session::AuthenticationEvent;
use crate::flow::login::start_session::{Identify, SessionStart, start_session};
use crate::flow::login::transaction::BrowserLogin;
use crate::identity::{NewAccount, SignUp, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{LinkSecret, Secret};
use crate::store::login_names;
use crate::store::tables::USERS;

/// Creates the account with the password and signs its user in, in one transaction. The link is void if the address
/// belongs to a user by now, or the operator no longer lets people create accounts.
pub(super) async fn create_account(
    at: BrowserLogin<'_>,
    secret: &Secret<LinkSecret>,
    new: NewAccount,
    chosen: ChosenPassword,
) -> Result<RedeemResult, Failure> {
    let BrowserLogin { core, login, now, .. } = at;
    let policy = &core.policy.accounts;
    if policy.sign_up == SignUp::Off || !(new.is_invited || policy.is_open()) {
        return Ok(RedeemResult::LinkVoid);
    }
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let mut user = User::local(uuid, &new.email, &core.policy.organization, now);
    user.email_verified = new.is_verified && user.has_mailbox(&new.email);
    user.unproven_holder = !(new.is_verified || new.is_invited);
    user.groups = new.groups;
    if !chosen.name.is_empty() {
        user.claims.insert("name".to_owned(), Value::String(chosen.name));
    }
    if let Err(problem) = core.policy.check_password(&user, &chosen.password) {
        return Ok(RedeemResult::Rejected(problem));
    }
    let hash = core.passwords.hash(chosen.password, core.random.bytes()).await?;
    user.password = Some(hash);
    let event = AuthenticationEvent::by_password(now);
    let secret = secret.clone();
    let proof = login.transaction.purpose.anonymous();
    let invitation = key_of(&secret).filter(|_| new.is_invited).map(|(_, id)| id);
    let identify: Identify = Box::new(move |tx| {
        let names = user.login_names();
        for name in &names {
            // The account takes over the names of the anonymous user.
            let present = proof.map_or(user.uuid, |proof| proof.user);
            if login_names::is_of_another(&*tx, name, present)? {
                return Ok(None);
            }
        }
        if use_up(tx, &secret, now)?.is_none() {
            return Ok(None);
        }
        let Some(user) = become_account(tx, proof, user.clone(), now)? else {
            return Ok(None);
        };
        login_names::give(tx, &user)?;
        USERS.put(tx, &user.uuid, &user)?;
        Ok(Some(user.into()))
    });
    let record = |user| {
        audit::record(&Event::AccountCreated {
            user,
            invited: new.is_invited,
            client_id: login.purpose.audit_name(),
        });
        if let Some(invitation) = invitation {
            audit::record(&Event::InvitationAccepted { user, invitation });
        }
    };
    let started = match start_session(at, event, None, identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::Redirected { redirect, user } => {
            user.into_iter().for_each(record);
            return Ok(RedeemResult::Redirected(redirect));
        }
        SessionStart::NoUser => return Ok(RedeemResult::LinkVoid),
        SessionStart::TransactionError(_) => return Ok(RedeemResult::SignInExpired),
    };
    record(started.user.uuid);
    Ok(RedeemResult::Done {
        redirect: started.redirect,
        user: Box::new(started.user),
    })
}

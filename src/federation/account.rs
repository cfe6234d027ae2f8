//! Whose account it is that a provider speaks of: the one place where strangers become users.

use uuid::Uuid;

use super::profile::Profile;
use super::provider::{LinkPolicy, Provider};
use crate::clock::Timestamp;
use crate::identity::{LinkedIdentity, User};

/// What becomes of somebody whom no user is linked to yet.
#[derive(Clone, Debug)]
pub enum Admission {
    /// This user is theirs from now on.
    Link(Box<User>),
    /// They become a new user.
    Create(Box<User>),
    /// They stay outside.
    Refused,
}

/// The user who signs in with the e-mail address that a provider names.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// The user.
    pub user: &'a User,
    /// Whether the record's word about its address counts: the operator's does, and that of a provider that may itself
    /// link by addresses. Otherwise any provider that may bring users could lie in wait with somebody else's address.
    pub is_vouched_for: bool,
    /// Whether neither the user is disabled nor the provider that brought them.
    pub is_in_force: bool,
}

/// Decides by the provider's policies.
///
/// `holder` is the user who signs in with the e-mail address that the provider names, if there is one. An address links
/// two accounts only when it is verified on both sides and the same letter for letter; only the case of ASCII letters
/// does not count, because wider folding maps different mailboxes onto one. A user whom the issuer knows by another
/// `sub` already is somebody else, who had the address before (OpenID Connect Core 5.7). Whoever would be linked to a
/// user who is disabled, or whom a disabled provider brought, stays outside: a second account is no way around that, and
/// would stay a second one when they come back.
pub fn admit(
    provider: &Provider,
    identity: LinkedIdentity,
    profile: &Profile,
    holder: Option<Holder<'_>>,
    (uuid, organization): (Uuid, &str),
    now: Timestamp,
) -> Admission {
    let verified = profile.email.as_deref().filter(|_| profile.email_verified);
    let is_theirs = |user: &User| {
        let same = user.email.as_deref().zip(verified);
        user.email_verified
            && holder.is_some_and(|holder| holder.is_vouched_for)
            && same.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
    };
    if provider.link == LinkPolicy::VerifiedEmail
        && let Some(Holder {
            user, is_in_force, ..
        }) = holder.filter(|holder| is_theirs(holder.user))
    {
        if !is_in_force {
            return Admission::Refused;
        }
        let is_known = |known: &LinkedIdentity| known.issuer == identity.issuer;
        if !user.identities.iter().any(is_known) {
            let mut user = user.clone();
            user.identities.push(identity);
            user.updated_at = now;
            return Admission::Link(Box::new(user));
        }
    }
    if !provider.create_users {
        return Admission::Refused;
    }
    let account_id = match verified {
        Some(email) if holder.is_none() => email.to_owned(),
        _ => format!("{}:{}", provider.id, identity.subject),
    };
    let mut user = User::federated(uuid, account_id, &provider.id, organization, now);
    user.identities.push(identity);
    profile.write_to(&mut user);
    Admission::Create(Box::new(user))
}

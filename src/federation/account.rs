//! Which user an account of a provider becomes. Only this module makes users from provider accounts.

use uuid::Uuid;

use super::profile::Profile;
use super::provider::{LinkPolicy, Provider};
use crate::clock::Timestamp;
use crate::identity::{LinkedIdentity, User};

/// The decision about an account that is not linked to a user.
#[derive(Clone, Debug)]
pub enum AccountDecision {
    /// The account is linked to this existing user.
    Link(Box<User>),
    /// The account becomes this new user.
    Create(Box<User>),
    /// The sign-in is refused.
    Refused,
}

/// The user who signs in with the e-mail address that a provider sent.
#[derive(Clone, Copy, Debug)]
pub struct EmailOwner<'a> {
    pub user: &'a User,
    /// Whether the address in the record is trusted: the operator set it, or a provider that vouches for it did. Another
    /// provider could create a user with the address of a victim and wait for the victim's sign-in.
    pub is_email_trusted: bool,
    /// Whether the user and the provider that created the user are enabled.
    pub is_enabled: bool,
}

/// Decides what an unlinked account becomes, by the policies of the provider.
///
/// `email_owner` is the user who signs in with the e-mail address that the provider sent, if there is one. An address
/// links two accounts only if both sides verified it and it is equal except for the case of ASCII letters. Unicode case
/// folding would make different mailboxes equal. If the person who made the account never proved the address, the
/// provider's word is the first proof, and ends what that person has. A user who is linked to another `sub` of the same issuer is a previous
/// owner of the address, and is not linked (OpenID Connect Core 5.7). If the user to link is disabled, or the provider
/// that created that user is, the sign-in is refused. A second user would bypass the block.
pub fn decide(
    provider: &Provider,
    identity: LinkedIdentity,
    profile: &Profile,
    email_owner: Option<EmailOwner<'_>>,
    uuid: Uuid,
    organization: &str,
    now: Timestamp,
) -> AccountDecision {
    let is_theirs = |user: &User| {
        let same = user.email.as_deref().zip(profile.email.as_deref());
        (user.email_verified || user.is_unproven())
            && email_owner.is_some_and(|email_owner| email_owner.is_email_trusted)
            && same.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
    };
    if provider.link == LinkPolicy::VerifiedEmail
        && let Some(EmailOwner { user, is_enabled, .. }) =
            email_owner.filter(|email_owner| is_theirs(email_owner.user))
    {
        if !is_enabled {
            return AccountDecision::Refused;
        }
        let is_known = |known: &LinkedIdentity| known.issuer == identity.issuer;
        if !user.identities.iter().any(is_known) {
            let mut user = user.clone();
            user.identities.push(identity);
            user.updated_at = now;
            return AccountDecision::Link(Box::new(user));
        }
    }
    if !provider.create_users {
        return AccountDecision::Refused;
    }
    let account_id = match &profile.email {
        Some(email) if email_owner.is_none() => email.clone(),
        _ => format!("{}:{}", provider.id, identity.subject),
    };
    let mut user = User::federated(uuid, account_id, &provider.id, organization, now);
    user.identities.push(identity);
    profile.write_to(&mut user);
    AccountDecision::Create(Box::new(user))
}

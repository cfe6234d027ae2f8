//! From anonymous to known: a device shows, with its request, that it has an anonymous user. That user becomes the account
//! that the sign-in creates, or is linked to the account that the person already has.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::User;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::refresh::RefreshFamily;

/// The parameter of a pushed request with the newest refresh token of the anonymous user.
pub const PARAMETER: &str = "anonymous_refresh_token";

/// The answer if the token was not pushed.
pub const NOT_PUSHED: Refusal = Refusal::invalid_request(
    "push anonymous_refresh_token to /oauth2/par: a refresh token must not be in an address",
);

/// The answer if the token is beside a request object (RFC 9126 section 3).
pub const BESIDE_OBJECT: Refusal =
    Refusal::invalid_request("put anonymous_refresh_token into the request object");

/// The answer if the user of the token has another way to sign in.
pub const KNOWN_USER: Refusal =
    Refusal::invalid_grant("anonymous_refresh_token is of a user who is no longer anonymous");

/// The answer if the anonymous user can no longer be upgraded when the person signs in.
pub const USED: Refusal = Refusal::new(
    ErrorCode::AccessDenied,
    "the anonymous user was upgraded or has ended; send the user again without anonymous_refresh_token",
);

/// The anonymous user of a pushed request. The token was verified when the request was pushed, and is not in here. The
/// browser brings this back, sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnonymousProof {
    pub user: Uuid,
    /// The refresh family of the token.
    pub family: Uuid,
}

impl AnonymousProof {
    /// Whether these rows, as they are now, still allow the upgrade.
    pub fn is_usable(user: Option<&User>, family: Option<&RefreshFamily>, now: Timestamp) -> bool {
        user.is_some_and(|user| user.enabled && user.is_anonymous())
            && family.is_some_and(|family| family.is_live(now))
    }
}

/// The anonymous user as the account that a sign-in creates.
///
/// The account keeps the identifier, so what APIs store under `sub` stays. It keeps what the operator recorded: groups,
/// claims, venue and organization. The rest is that of `account`, whose claims take precedence.
#[must_use]
pub fn become_account(anonymous: User, account: User, now: Timestamp) -> User {
    let account_id = if account.account_id == account.uuid.to_string() {
        anonymous.uuid.to_string()
    } else {
        account.account_id
    };
    let (mut claims, mut groups) = (anonymous.claims, anonymous.groups);
    claims.extend(account.claims);
    groups.extend(account.groups);
    let (phone_number, phone_number_verified) = match account.phone_number {
        Some(number) => (Some(number), account.phone_number_verified),
        None => (anonymous.phone_number, anonymous.phone_number_verified),
    };
    User {
        uuid: anonymous.uuid,
        account_id,
        phone_number,
        phone_number_verified,
        venue_id: account.venue_id.or(anonymous.venue_id),
        organization: anonymous.organization,
        claims,
        groups,
        created_at: anonymous.created_at,
        updated_at: now,
        ..account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: Timestamp = Timestamp::from_seconds(1_000);
    const NOW: Timestamp = Timestamp::from_seconds(2_000);

    fn anonymous() -> User {
        let mut user = User::anonymous(Uuid::from_u128(1), "acme", THEN);
        user.venue_id = Some("lobby".to_owned());
        user.groups.insert(Uuid::from_u128(7));
        user.claims.insert("nickname".to_owned(), "kiosk".into());
        user.claims.insert("locale".to_owned(), "de".into());
        user
    }

    #[test]
    fn the_account_keeps_the_identifier_and_what_was_recorded() {
        let mut account = User::local(Uuid::from_u128(2), "ann@example.com", "default", NOW);
        account.groups.insert(Uuid::from_u128(8));
        account.claims.insert("nickname".to_owned(), "Ann".into());
        let user = become_account(anonymous(), account, NOW);
        assert_eq!(
            (user.uuid, user.created_at, user.updated_at),
            (Uuid::from_u128(1), THEN, NOW)
        );
        assert_eq!(
            (&*user.account_id, user.email.as_deref()),
            ("ann@example.com", Some("ann@example.com"))
        );
        assert_eq!(
            (&*user.source, &*user.user_type),
            (User::LOCAL, User::DEFAULT_TYPE)
        );
        assert_eq!(
            (user.venue_id.as_deref(), &*user.organization),
            (Some("lobby"), "acme")
        );
        assert_eq!(user.groups.len(), 2);
        assert_eq!(
            (&user.claims["nickname"], &user.claims["locale"]),
            (&"Ann".into(), &"de".into())
        );
        assert!(!user.is_anonymous());
    }

    /// A user of a provider whose address belongs to another account is named by the identifier.
    #[test]
    fn an_account_that_is_named_by_its_identifier_is_named_by_the_one_that_it_keeps() {
        let drawn = Uuid::from_u128(2);
        let account = User::federated(drawn, drawn.to_string(), "up", "default", NOW);
        let user = become_account(anonymous(), account, NOW);
        assert_eq!(
            (user.account_id, user.source),
            (Uuid::from_u128(1).to_string(), "up".to_owned())
        );
    }
}

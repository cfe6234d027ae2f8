//! Access tokens: RFC 9068, with the claims of the token response beside the standard ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::scope::Scope;

/// An entry of `amr` in the token response and the access token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// What authenticated the user: `credential`, or the id of a provider.
    pub authority: String,
}

/// The members that the token response and the access token share.
#[derive(Clone, Debug, Serialize)]
pub struct CommonClaims {
    /// The issuer.
    pub iss: String,
    /// When the tokens were issued.
    pub iat: Timestamp,
    /// The access token's identifier.
    pub jti: Uuid,
    /// The granted scope.
    pub scope: Scope,
    /// The account identifier.
    pub account_id: String,
    /// The type of the subject.
    pub user_type: String,
    /// The venue, if any.
    #[serde(rename = "venueId")]
    pub venue_id: Option<String>,
    /// The organization.
    pub organization: String,
    /// What authenticated the subject.
    pub amr: Vec<Authority>,
    /// The telephone number, if any.
    pub phone_number: Option<String>,
    /// The origin of the subject's record.
    pub source: String,
    /// The e-mail address; empty when there is none.
    pub email: String,
    /// Whether the address was verified. Without that it may belong to another person.
    pub email_verified: bool,
    /// The subject's identifier in the platform.
    pub uuid: Uuid,
}

/// The claims of an access token (RFC 9068 section 2.2). There is no `nbf`, because a client whose clock is a second
/// slow would refuse the token.
#[derive(Clone, Debug, Serialize)]
pub struct AccessTokenClaims<'a> {
    /// The members that the token response has too.
    #[serde(flatten)]
    pub common: &'a CommonClaims,
    /// The subject.
    pub sub: Uuid,
    /// The audience.
    pub aud: &'a str,
    /// When the token expires.
    pub exp: Timestamp,
    /// The client it was issued to.
    pub client_id: &'a str,
    /// When the user signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_time: Option<Timestamp>,
    /// The grant: the refresh family whose revocation revokes the token, or
    /// [`Client::own_grant`](crate::oauth::Client) for a token of the client itself.
    pub grant_id: Uuid,
    /// The provider's access token, under the name that its record gives it.
    #[serde(flatten)]
    pub upstream_token: Option<EmbeddedToken<'a>>,
}

impl AccessTokenClaims<'_> {
    /// Every `typ` that an access token may have. A setting decides which one new tokens get. The service accepts both,
    /// so older tokens stay valid when the setting changes. ID tokens have the second one too; they lack members that
    /// [`PresentedAccessToken`] requires.
    pub const TYPS: [&'static str; 2] = ["at+jwt", "JWT"];

    /// Every member that an access token may have, without the provider's token. That one cannot have any of these
    /// names.
    pub const MEMBERS: [&'static str; 20] = [
        "iss",
        "iat",
        "jti",
        "scope",
        "account_id",
        "user_type",
        "venueId",
        "organization",
        "amr",
        "phone_number",
        "source",
        "email",
        "email_verified",
        "uuid",
        "sub",
        "aud",
        "exp",
        "client_id",
        "auth_time",
        "grant_id",
    ];
}

/// A provider's access token, embedded in an access token of this service.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct EmbeddedToken<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> EmbeddedToken<'a> {
    /// The token under this name. `None` if another member has the name, because it would occur twice.
    pub fn new(claim: &'a str, token: &'a str) -> Option<Self> {
        let is_free = !AccessTokenClaims::MEMBERS.contains(&claim);
        is_free.then(|| Self(BTreeMap::from([(claim, token)])))
    }
}

/// The claims of an access token that is presented to this service.
#[derive(Clone, Debug, Deserialize)]
pub struct PresentedAccessToken {
    /// The issuer.
    pub iss: String,
    /// The subject.
    pub sub: Uuid,
    /// The audience.
    pub aud: String,
    /// When it was issued.
    pub iat: Timestamp,
    /// When it expires.
    pub exp: Timestamp,
    /// Its identifier.
    pub jti: Uuid,
    /// The client it was issued to.
    pub client_id: String,
    /// The granted scope.
    pub scope: Scope,
    /// The grant that it was issued for.
    pub grant_id: Uuid,
}

impl PresentedAccessToken {
    /// Whether the token was issued by this issuer and has not expired. There is no leeway, because issuer and verifier
    /// share one clock.
    pub fn is_current(&self, issuer: &str, now: Timestamp) -> bool {
        self.iss == issuer && now < self.exp && !self.iat.is_ahead_of(now)
    }
}

/// The hour of a time, counted from the epoch. Expiring markers are stored by hour.
pub fn hour_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.seconds() / 3600).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::oauth::openid::claims::BY_SCOPE;
    use crate::oauth::openid::id_token::IdTokenClaims;

    fn serialised(upstream_token: Option<EmbeddedToken<'_>>) -> String {
        let common = CommonClaims {
            iss: "https://id.example".to_owned(),
            iat: Timestamp::from_seconds(1),
            jti: Uuid::from_u128(1),
            scope: Scope::empty(),
            account_id: "alice".to_owned(),
            user_type: "user".to_owned(),
            venue_id: Some("venue".to_owned()),
            organization: "default".to_owned(),
            amr: Vec::new(),
            phone_number: Some("+3212345678".to_owned()),
            source: "LOCAL".to_owned(),
            email: "alice@example.com".to_owned(),
            email_verified: true,
            uuid: Uuid::from_u128(2),
        };
        let claims = AccessTokenClaims {
            common: &common,
            sub: common.uuid,
            aud: "https://api.example",
            exp: Timestamp::from_seconds(2),
            client_id: "web",
            auth_time: Some(Timestamp::from_seconds(1)),
            grant_id: Uuid::from_u128(3),
            upstream_token,
        };
        serde_json::to_string(&claims).unwrap()
    }

    #[test]
    fn the_list_of_members_is_what_is_serialised() {
        let Value::Object(members) = serde_json::from_str(&serialised(None)).unwrap() else {
            panic!("an access token is an object");
        };
        let named: BTreeSet<_> = members.keys().map(String::as_str).collect();
        assert_eq!(named, BTreeSet::from(AccessTokenClaims::MEMBERS));
    }

    /// Both kinds of token may have the same `typ`.
    #[test]
    fn an_id_token_with_every_claim_is_not_an_access_token() {
        let (iss, by_scope) = (
            "https://id.example",
            BY_SCOPE.iter().flat_map(|(_, claims)| *claims),
        );
        let id_token = IdTokenClaims {
            iss,
            sub: Uuid::from_u128(2),
            aud: "web",
            azp: "web",
            exp: Timestamp::from_seconds(2),
            iat: Timestamp::from_seconds(1),
            auth_time: Some(Timestamp::from_seconds(1)),
            nonce: Some("nonce"),
            at_hash: "hash".to_owned(),
            sid: Some(Uuid::from_u128(3)),
            amr: Some(["pwd"]),
            acr: Some("1"),
            requested: by_scope
                .map(|name| ((*name).to_owned(), Value::from("x")))
                .collect(),
        };
        let said = serde_json::to_value(&id_token).unwrap();
        for lacking in ["client_id", "scope", "jti"] {
            assert_eq!(said.get(lacking), None);
        }
        assert!(serde_json::from_value::<PresentedAccessToken>(said).is_err());
        assert!(serde_json::from_str::<PresentedAccessToken>(&serialised(None)).is_ok());
    }

    #[test]
    fn a_providers_token_cannot_replace_another_member() {
        for name in AccessTokenClaims::MEMBERS {
            assert!(EmbeddedToken::new(name, "theirs").is_none(), "{name}");
        }
        let text = serialised(EmbeddedToken::new("upstream_access_token", "theirs"));
        assert!(text.ends_with(r#""upstream_access_token":"theirs"}"#), "{text}");
    }
}

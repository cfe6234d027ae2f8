//! Access tokens: RFC 9068, with the claims of the token response beside the standard ones.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
pub use crate::clock::hour_of;
use crate::described::described;
use crate::identity::AuthenticationLevel;
use crate::jose::claims::Audience;
pub use crate::oauth::access_token_typ::AccessTokenTyp;
use crate::oauth::confirmation::Confirmation;
use crate::oauth::scope::Scope;
use crate::oauth::token_exchange::Actor;

/// An entry of `amr` in the token response and the access token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// What authenticated the user: `credential`, or the id of a provider.
    pub authority: String,
}

described! {
    /// The members that the token response and the access token share.
    #[derive(Clone, Debug, Serialize)]
    pub struct CommonClaims {
        /// The issuer.
        pub iss: String,
        /// When the tokens were issued, in seconds since 1970.
        pub iat: Timestamp,
        /// The identifier of the access token.
        pub jti: Uuid,
        /// The granted scope, its values separated by spaces.
        pub scope: Scope,
        /// The account identifier of the user.
        pub account_id: String,
        /// The type of the subject: `user`, `anonymous` for the user of a device, `client` for a client that acts for
        /// itself, or a type that the operator chose.
        pub user_type: String,
        /// The venue of the user, or null.
        #[serde(rename = "venueId")]
        pub venue_id: Option<String>,
        /// The organization of the user.
        pub organization: String,
        /// How the user signed in, as `[{"authority": "credential"}]`: `credential` for a password, `email` for a mail,
        /// `passkey`, the identifier of a provider, `anonymous`, or `client`. After a second step, a second entry says `totp` or
        /// `recovery_code`.
        pub amr: Vec<Authority>,
        /// The telephone number of the user, or null.
        pub phone_number: Option<String>,
        /// Where the account came from: `LOCAL`, `IMPORT`, `ANONYMOUS`, `CLIENT`, or the identifier of a provider.
        pub source: String,
        /// The e-mail address of the user; empty if there is none. It identifies nobody: know users by `iss` and `sub`.
        pub email: String,
        /// Whether the address was verified; false if there is none. An address that was not verified may belong to
        /// another person.
        pub email_verified: bool,
        /// The identifier of the user, or of the client that acts for itself.
        pub uuid: Uuid,
    }
}

described! {
    /// The claims of an access token (RFC 9068 section 2.2). There is no `nbf`, because a client whose clock is a second
    /// slow would refuse the token.
    #[derive(Clone, Debug, Serialize)]
    pub struct AccessTokenClaims<'a> {
        /// The subject, the same as `uuid`.
        pub sub: Uuid,
        /// The audience: the APIs that the token is for. If there is no API, it is `--audience` of the client, or else
        /// the issuer. If `openid` was granted and the token request names no API, the issuer is added to the APIs.
        pub aud: &'a Audience,
        /// When the token expires, in seconds since 1970.
        pub exp: Timestamp,
        /// The client that the token was issued to.
        pub client_id: &'a str,
        /// When the user signed in, in seconds since 1970; absent if a provider does not say it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub auth_time: Option<Timestamp>,
        /// How surely the user was authenticated (RFC 9068 section 2.2.1): `1` by one factor, `2` by two, `phr` by a
        /// passkey; absent for an anonymous user, and if the client acts for itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub acr: Option<AuthenticationLevel>,
        /// The grant: one sign-in at one client, or the client itself if it acts for itself. To revoke is to end a grant,
        /// or one token of it. Events call it `family`.
        pub grant_id: Uuid,
        /// The anonymous user whose device the user signed in on, if the application pushed `anonymous_refresh_token` and
        /// the account existed before. It is in the first access token only. Move what is stored under it to `sub`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub anonymous_sub: Option<Uuid>,
        /// What the token is bound to: a key, as `{"jkt": "…"}` with its SHA-256 thumbprint (RFC 9449 section 6.1), or a client
        /// certificate, as `{"x5t#S256": "…"}` (RFC 8705 section 3.1). Absent if the token is not bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cnf: Option<Confirmation>,
        /// The party that acts for the user, after a token exchange with an `actor_token` (RFC 8693 section 4.1): `iss` and `sub`,
        /// `client_id` if it is a client that acts for itself, and in `act` the party before it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub act: Option<&'a Actor>,
        /// The names of the groups that the user is in, sorted (RFC 9068 section 2.2.3.1); absent without the scope `groups`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub groups: Option<BTreeSet<&'a str>>,
        /// The roles of the user in the API that the token is for, sorted (RFC 9068 section 2.2.3.1). Absent if the API
        /// has no roles, if the token is for no API or for several APIs, or if the client acts for itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub roles: Option<BTreeSet<&'a str>>,
        #[serde(flatten)]
        /// The members that the token response has too.
        pub common: &'a CommonClaims,
        #[serde(flatten)]
        /// The provider's access token, under the name that its record gives it.
        pub upstream_token: Option<EmbeddedToken<'a>>,
    }
}

impl AccessTokenClaims<'_> {
    /// Whether an access token has a member of this name. The provider's token cannot have it.
    pub fn has_member(name: &str) -> bool {
        let mut members = CommonClaims::MEMBERS.iter().chain(Self::MEMBERS);
        members.any(|(member, _)| *member == name)
    }
}

/// A provider's access token, embedded in an access token of this service.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct EmbeddedToken<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> EmbeddedToken<'a> {
    /// The token under this name. `None` if another member has the name, because it would occur twice.
    pub fn new(claim: &'a str, token: &'a str) -> Option<Self> {
        let is_free = !AccessTokenClaims::has_member(claim);
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
    pub aud: Audience,
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
    /// When the user signed in.
    #[serde(default)]
    pub auth_time: Option<Timestamp>,
    /// How surely the user was authenticated.
    #[serde(default)]
    pub acr: Option<AuthenticationLevel>,
    /// What it is bound to.
    #[serde(default)]
    pub cnf: Option<Confirmation>,
    /// The party that acts for the subject.
    #[serde(default)]
    pub act: Option<Actor>,
}

impl PresentedAccessToken {
    /// Whether the token was issued by this issuer and has not expired. There is no leeway, because issuer and verifier
    /// share one clock.
    pub fn is_current(&self, issuer: &str, now: Timestamp) -> bool {
        self.iss == issuer && now < self.exp && !self.iat.is_ahead_of(now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::oauth::openid::claims::BY_SCOPE;
    use crate::oauth::openid::id_token::IdTokenClaims;

    const KEY: &str = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";

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
            aud: &Audience::One("https://api.example".to_owned()),
            exp: Timestamp::from_seconds(2),
            client_id: "web",
            auth_time: Some(Timestamp::from_seconds(1)),
            acr: Some(AuthenticationLevel::OneFactor),
            grant_id: Uuid::from_u128(3),
            anonymous_sub: Some(Uuid::from_u128(4)),
            cnf: Some(Confirmation::Key(KEY.parse().unwrap())),
            act: None,
            groups: Some(BTreeSet::from(["staff"])),
            roles: Some(BTreeSet::from(["editor"])),
            upstream_token,
        };
        serde_json::to_string(&claims).unwrap()
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
            amr: vec!["pwd"],
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
        let Value::Object(members) = serde_json::from_str(&serialised(None)).unwrap() else {
            panic!("an access token is an object");
        };
        assert!(members.len() > 15);
        for name in members.keys() {
            assert!(EmbeddedToken::new(name, "theirs").is_none(), "{name}");
        }
        let text = serialised(EmbeddedToken::new("upstream_access_token", "theirs"));
        assert!(text.ends_with(r#""upstream_access_token":"theirs"}"#), "{text}");
    }
}

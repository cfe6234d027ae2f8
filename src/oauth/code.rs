//! Authorization codes: RFC 6749 sections 4.1.2 to 4.1.4.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::{Arrival, Timestamp};
use crate::identity::{AuthenticationMethod, SecondFactor, UpstreamToken};
use crate::oauth::client::Client;
use crate::oauth::confirmation::{Confirmation, check_grant};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::pkce::{CodeChallenge, check_verifier};
use crate::oauth::redirect_uri::MatchedRedirectUri;
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::oauth::token_exchange::Actor;
use crate::secret::{AuthorizationCode as CodeSecret, Digest, Malformed, Secret};

/// The longest lifetime of a code (RFC 6749 section 4.1.2).
pub const LONGEST_LIFETIME: Duration = Duration::from_mins(10);

/// How a user signed in and what was granted. It is a part of codes and of refresh families, so the names in the row
/// are short.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Authorization {
    /// The client it was granted to.
    #[serde(rename = "client")]
    pub client_id: String,
    /// Which client of this identifier it was granted to; see [`crate::oauth::Client::incarnation`].
    #[serde(default, rename = "inc", skip_serializing_if = "Uuid::is_nil")]
    pub client_incarnation: Uuid,
    /// The user who granted it.
    pub user: Uuid,
    /// The session in which it was granted (`sid`); none without a browser.
    #[serde(rename = "sid", skip_serializing_if = "Option::is_none")]
    pub session: Option<Uuid>,
    /// When the user signed in; none for an anonymous user.
    #[serde(rename = "at", skip_serializing_if = "Option::is_none")]
    pub auth_time: Option<Timestamp>,
    /// How the user signed in.
    #[serde(rename = "by")]
    pub factor: AuthenticationMethod,
    /// The second step of the sign-in, if there was one.
    #[serde(default, rename = "2nd", skip_serializing_if = "Option::is_none")]
    pub second_factor: Option<SecondFactor>,
    /// The access token of the provider at which the user signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_token: Option<Box<UpstreamToken>>,
    /// The granted scope.
    pub scope: Scope,
    /// The APIs that the grant is for (RFC 8707 section 2). If there is none, the scope determines them.
    #[serde(default, rename = "res", skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "ClaimsRequest::is_empty")]
    pub claims: ClaimsRequest,
    /// What the code or the refresh tokens are bound to (RFC 9449 sections 5 and 10, RFC 8705 section 4). The refresh
    /// tokens of a client that authenticates are not bound.
    #[serde(default, rename = "cnf", skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<Confirmation>,
    /// The party that acts for the user, after a token exchange (RFC 8693 section 4.1).
    #[serde(default, rename = "act", skip_serializing_if = "Option::is_none")]
    pub actor: Option<Box<Actor>>,
}

impl Authorization {
    /// The claims requested one by one (OpenID Connect Core 5.5) that belong to a token with this scope. Claims outside
    /// of `allowed` are left out. If the client narrowed the scope of the token, claims outside of that scope are left
    /// out too. A missing marker `authenticated` does not count as narrowing.
    pub fn claims_within(&self, scope: &Scope, allowed: &Scope) -> ClaimsRequest {
        let requested = self.claims.clone().within(allowed);
        if self
            .scope
            .filter(|value| allowed.contains(value))
            .is_within(scope)
        {
            requested
        } else {
            requested.within(scope)
        }
    }
}

impl Client {
    /// Whether a grant is of this client, and not of an earlier one of the same identifier.
    pub fn owns_grant(&self, authorization: &Authorization) -> bool {
        authorization.client_id == self.client_id && authorization.client_incarnation == self.incarnation
    }
}

/// A stored authorization code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuthorizationCode {
    pub digest: Digest<CodeSecret>,
    /// The grant.
    pub authorization: Authorization,
    /// The redirect URI that it was sent to.
    pub return_to: MatchedRedirectUri,
    /// `nonce` of the request.
    pub nonce: Option<String>,
    /// `code_challenge` of the request.
    pub code_challenge: Option<CodeChallenge>,
    pub expires_at: Timestamp,
    /// The refresh family that it was redeemed for.
    pub redeemed: Option<Uuid>,
    /// The anonymous user of the request: the user of the grant, or one who was linked to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<Uuid>,
}

/// A code as it is presented, with the parameters that are checked (RFC 6749 section 4.1.3, RFC 7636 section 4.5).
#[derive(Clone, Debug)]
pub struct CodeExchange {
    /// The row that the code names.
    pub id: Uuid,
    digest: Digest<CodeSecret>,
    redirect_uri: Option<String>,
    code_verifier: Option<String>,
}

impl CodeExchange {
    /// Reads the parameters of the token request.
    pub fn parse(
        code: &str,
        redirect_uri: Option<&str>,
        code_verifier: Option<&str>,
    ) -> Result<Self, Malformed> {
        let code = Secret::<CodeSecret>::parse(code)?;
        Ok(Self {
            id: Uuid::from_slice(code.locator()).map_err(|_| Malformed)?,
            digest: code.digest(),
            redirect_uri: redirect_uri.map(ToOwned::to_owned),
            code_verifier: code_verifier.map(ToOwned::to_owned),
        })
    }
}

/// Two requests with one code that come within this time are a race. One of them may be a thief's.
const LONGEST_RACE: Duration = Duration::from_secs(1);

/// The answer to a request that was overtaken by another one with the same code.
pub const OVERTAKEN: Refusal = Refusal::new(
    ErrorCode::TemporarilyUnavailable,
    "this request waited while the code was redeemed by another one; use the answer of that one",
);

/// Whether a code was redeemed for `family` after this request with it may have come. Its client may have repeated it at
/// another node, if this one was paused. Then it is no replay, and gets no tokens. `now` is when that is decided.
pub fn has_overtaken(family: Uuid, arrival: Arrival, now: Duration) -> bool {
    let redeemed_at = family.get_timestamp().map(|drawn_at| {
        let (seconds, nanos) = drawn_at.to_unix();
        Duration::new(seconds, nanos)
    });
    let after_race = Arrival {
        earliest: arrival.earliest + LONGEST_RACE,
        ..arrival
    };
    redeemed_at.is_some_and(|redeemed_at| after_race.may_precede(redeemed_at, now))
}

/// The result of presenting a code.
#[derive(Clone, Debug)]
pub enum Redemption {
    /// The code is valid and now marked as redeemed.
    Granted(Box<AuthorizationCode>),
    /// The code was redeemed before. Its tokens must be revoked (RFC 6749 section 4.1.2).
    Replayed {
        /// The refresh family that it was redeemed for.
        family: Uuid,
    },
    /// The code is not valid. Nothing changes.
    Refused(Refusal),
}

impl AuthorizationCode {
    /// Whether the user of the grant was the anonymous user of the request.
    pub fn was_anonymous(&self) -> bool {
        self.anonymous == Some(self.authorization.user)
    }

    /// The anonymous user who was linked to the user of the grant.
    pub fn linked_anonymous_user(&self) -> Option<Uuid> {
        self.anonymous
            .filter(|anonymous| *anonymous != self.authorization.user)
    }

    /// What is stored after the code was redeemed: what [`AuthorizationCode::redeem`] checks, so that a replay by the
    /// client is recognised. The rest is dropped, because the client chooses its size.
    #[must_use]
    pub fn remembered(&self) -> Self {
        Self {
            authorization: Authorization {
                upstream_token: None,
                scope: Scope::default(),
                resources: Resources::new(),
                claims: ClaimsRequest::default(),
                ..self.authorization.clone()
            },
            nonce: None,
            ..self.clone()
        }
    }

    /// Redeems the code for `family`. `shown` is what the request has shown to hold.
    ///
    /// The order matters: nothing is consumed or revoked before the client and all parameters are checked. Used codes
    /// occur in browser histories and logs. Such a code alone must not revoke tokens (OAuth 2.1 section 4.1.3).
    #[must_use]
    pub fn redeem(
        mut self,
        exchange: &CodeExchange,
        client_id: &str,
        shown: Option<&Confirmation>,
        family: Uuid,
        now: Timestamp,
    ) -> Redemption {
        if self.digest != exchange.digest {
            return Redemption::Refused(UNKNOWN);
        }
        if self.authorization.client_id != client_id {
            return Redemption::Refused(Refusal::invalid_grant("code was issued to another client"));
        }
        let is_expired = now >= self.expires_at || Timestamp::of_id(exchange.id).is_ahead_of(now);
        if is_expired && self.redeemed.is_none() {
            return Redemption::Refused(Refusal::invalid_grant("code has expired"));
        }
        let verifier = exchange.code_verifier.as_deref();
        if let Err(refusal) = self
            .check_redirect_uri(exchange)
            .and_then(|()| check_verifier(self.code_challenge.as_ref(), verifier))
            .and_then(|()| check_grant(self.authorization.bound_to.as_ref(), shown))
        {
            return Redemption::Refused(refusal);
        }
        if let Some(family) = self.redeemed {
            return Redemption::Replayed { family };
        }
        self.redeemed = Some(family);
        Redemption::Granted(Box::new(self))
    }

    fn check_redirect_uri(&self, exchange: &CodeExchange) -> Result<(), Refusal> {
        match &exchange.redirect_uri {
            Some(uri) if uri == self.return_to.uri() => Ok(()),
            None if !self.return_to.was_explicit() => Ok(()),
            Some(_) => Err(Refusal::invalid_grant(
                "redirect_uri differs from that of the authorization request",
            )),
            None => Err(Refusal::invalid_grant(
                "redirect_uri is missing; it was in the authorization request",
            )),
        }
    }
}

/// The refusal for a code that names no row, or the wrong one.
pub const UNKNOWN: Refusal = Refusal::invalid_grant("code is unknown or has expired");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::oauth::ErrorCode;
    use crate::oauth::openid::claims::ClaimsParameter;
    use crate::oauth::registered_scope::RegisteredScopes;
    use crate::random::Random;

    const START: Timestamp = Timestamp::from_seconds(1_000_000);

    fn issued() -> (AuthorizationCode, String) {
        let secret = Secret::<CodeSecret>::generate(Uuid::from_u128(5).as_bytes(), &Random::seeded(1));
        let code = AuthorizationCode {
            digest: secret.digest(),
            authorization: Authorization {
                client_id: "web".to_owned(),
                client_incarnation: Uuid::nil(),
                user: Uuid::from_u128(1),
                session: Some(Uuid::from_u128(2)),
                auth_time: Some(START),
                factor: AuthenticationMethod::Password,
                second_factor: None,
                upstream_token: None,
                scope: "openid".parse().unwrap(),
                resources: Resources::new(),
                claims: ClaimsRequest::default(),
                bound_to: None,
                actor: None,
            },
            return_to: serde_json::from_value(
                serde_json::json!({"uri": "https://app.example/cb", "explicit": true}),
            )
            .unwrap(),
            nonce: None,
            code_challenge: Some(
                CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap(),
            ),
            expires_at: START + Duration::from_mins(1),
            redeemed: None,
            anonymous: None,
        };
        (code, secret.reveal().to_owned())
    }

    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

    fn redeem(
        code: AuthorizationCode,
        text: &str,
        client: &str,
        uri: Option<&str>,
        verifier: Option<&str>,
    ) -> Redemption {
        let exchange = CodeExchange::parse(text, uri, verifier).unwrap();
        code.redeem(
            &exchange,
            client,
            None,
            Uuid::from_u128(9),
            START + Duration::from_secs(59),
        )
    }

    #[test]
    fn single_claims_follow_the_clients_scope_and_the_tokens() {
        let (code, _) = issued();
        let text = r#"{"id_token":{"email":null,"name":null},"userinfo":{"email":null,"name":null}}"#;
        let authorization = Authorization {
            scope: "openid email authenticated".parse().unwrap(),
            claims: ClaimsParameter::parse(
                text,
                &"email profile".parse().unwrap(),
                &RegisteredScopes::default(),
            )
            .unwrap()
            .request,
            ..code.authorization
        };
        for (scope, allowed, left) in [
            (
                "openid email authenticated",
                "openid email profile",
                "email profile",
            ),
            ("openid email authenticated", "openid email", "email"),
            ("openid authenticated", "openid profile", "profile"),
            ("openid email authenticated", "openid", ""),
            ("openid authenticated", "openid email profile", ""),
            ("openid email", "openid email profile", "email profile"),
        ] {
            let claims = authorization.claims_within(&scope.parse().unwrap(), &allowed.parse().unwrap());
            assert_eq!(claims.id_token, claims.userinfo, "{scope} of {allowed}");
            assert_eq!(claims.implied_scope().to_string(), left, "{scope} of {allowed}");
        }
    }

    #[test]
    fn a_code_is_good_once() {
        let (code, text) = issued();
        let uri = Some("https://app.example/cb");
        let Redemption::Granted(used) = redeem(code, &text, "web", uri, Some(VERIFIER)) else {
            panic!("refused");
        };
        for code in [(*used).clone(), used.remembered()] {
            let again = redeem(code, &text, "web", uri, Some(VERIFIER));
            assert!(matches!(again, Redemption::Replayed { family } if family == Uuid::from_u128(9)));
        }
    }

    #[test]
    fn a_request_that_came_long_before_the_code_was_redeemed_is_no_replay() {
        let family = Timestamp::from_seconds(1_800_000_000).id_with(&[7; 10]);
        let overtaken = |millis, waited| {
            let earliest = Duration::from_millis(millis);
            let arrival = Arrival {
                read_at: earliest,
                earliest,
            };
            has_overtaken(family, arrival, earliest + Duration::from_secs(waited))
        };
        assert!(overtaken(1_799_999_998_999, 2));
        assert!(
            overtaken(1_799_999_998_999, 0),
            "the clock of another node is ahead"
        );
        assert!(!overtaken(1_799_999_999_000, 2), "a race");
        assert!(!overtaken(1_800_000_000_001, 2));
        let hour_before = 1_799_996_400_000;
        assert!(overtaken(hour_before, 3600));
        assert!(!overtaken(hour_before, 2), "the clock was set back");
    }

    #[test]
    fn a_used_code_without_what_has_to_come_along_ends_nothing() {
        let uri = Some("https://app.example/cb");
        let (mut code, text) = issued();
        code.redeemed = Some(Uuid::from_u128(9));
        let other = Some("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXK");
        for (uri, verifier, is_replay) in [
            (uri, Some(VERIFIER), true),
            (uri, other, false),
            (uri, None, false),
            (None, Some(VERIFIER), false),
            (Some("https://app.example/other"), Some(VERIFIER), false),
        ] {
            let redemption = redeem(code.remembered(), &text, "web", uri, verifier);
            let ended = matches!(redemption, Redemption::Replayed { .. });
            assert_eq!(ended, is_replay, "{uri:?} {verifier:?}");
        }
    }

    #[test]
    fn another_client_learns_nothing_and_consumes_nothing() {
        let (mut code, text) = issued();
        code.redeemed = Some(Uuid::from_u128(3));
        let redemption = redeem(
            code,
            &text,
            "other",
            Some("https://app.example/cb"),
            Some(VERIFIER),
        );
        assert!(matches!(redemption, Redemption::Refused(_)));
    }

    #[test]
    fn redirect_uri_and_verifier_must_agree_with_the_request() {
        let uri = Some("https://app.example/cb");
        for (uri, verifier) in [
            (None, Some(VERIFIER)),
            (Some("https://app.example/cb/"), Some(VERIFIER)),
            (uri, None),
            (uri, Some("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXK")),
        ] {
            let (code, text) = issued();
            assert!(matches!(
                redeem(code, &text, "web", uri, verifier),
                Redemption::Refused(_)
            ));
        }
        let (mut code, text) = issued();
        code.code_challenge = None;
        assert!(matches!(
            redeem(code, &text, "web", uri, Some(VERIFIER)),
            Redemption::Refused(_)
        ));
    }

    #[test]
    fn a_code_is_refused_from_the_second_it_expires() {
        let (code, text) = issued();
        let exchange = CodeExchange::parse(&text, Some("https://app.example/cb"), Some(VERIFIER)).unwrap();
        let end = code.expires_at;
        assert!(matches!(
            code.redeem(&exchange, "web", None, Uuid::from_u128(9), end),
            Redemption::Refused(refusal) if refusal.code == ErrorCode::InvalidGrant
        ));
    }
}

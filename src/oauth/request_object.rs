//! Signed authorization requests: RFC 9101. A request object comes by value, in the parameter `request`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::jose::claims::{Audience, optional_numeric_date};
use crate::jose::jwk::JwkSet;
use crate::jose::jwt::{self, ExpectedTyp, JwtError};
use crate::oauth::client::Client;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;

/// The answer to a client that must sign its requests and did not (section 10.5).
pub const NOT_SIGNED: Refusal =
    Refusal::invalid_request("this client must send its authorization requests as signed request objects");

/// How far the clocks of the client and the service may differ (FAPI 2.0 Message Signing section 5.3).
const LEEWAY: Duration = Duration::from_secs(10);
/// How old `nbf` may be, and how far after it `exp` may lie.
const MAX_LIFETIME: Duration = Duration::from_hours(1);
/// The claims about the object itself (RFC 7519 section 4.1). The other claims are the parameters of the request.
const OBJECT_CLAIMS: [&str; 7] = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"];

#[derive(Debug, Deserialize)]
struct Claims {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<Audience>,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    exp: Option<Timestamp>,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    nbf: Option<Timestamp>,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    iat: Option<Timestamp>,
}

/// A request object that is signed with a key of the client.
#[derive(Debug)]
pub struct RequestObject {
    /// The parameters of the request. No others count (section 6.3).
    pub parameters: Parameters,
    claims: Claims,
}

impl RequestObject {
    /// Verifies the signature with the keys of the client, and reads the parameters (section 6.2).
    pub fn verify(object: &str, client: &Client, keys: &JwkSet) -> Result<Self, Refusal> {
        if object.split('.').count() == 5 {
            return Err(refuse("it is encrypted, which is not supported"));
        }
        if !client.has_keys() {
            return Err(refuse("the client has registered no key to verify it with"));
        }
        let mut allowed = Algorithm::ALL.to_vec();
        allowed.retain(|algorithm| {
            let registered = client.request_object_signing_alg;
            client.may_use_algorithm(*algorithm)
                && registered.is_none_or(|registered| registered == *algorithm)
        });
        let verify =
            |typ| jwt::verify::<Map<String, Value>>(object, typ, &allowed, |kid, alg| keys.select(kid, alg));
        let verified = match verify(ExpectedTyp::AbsentOr("oauth-authz-req+jwt")) {
            Err(JwtError::Typ) => verify(ExpectedTyp::Exactly("JWT")),
            verified => verified,
        };
        let mut parameters = verified.map_err(|error| refuse(&error.to_string()))?;
        if parameters.contains_key("request") || parameters.contains_key("request_uri") {
            return Err(refuse("it must not contain request or request_uri"));
        }
        let names = OBJECT_CLAIMS.into_iter();
        let object_claims: Map<_, _> = names.filter_map(|name| parameters.remove_entry(name)).collect();
        let claims = serde_json::from_value(Value::Object(object_claims))
            .map_err(|_| refuse("iss, sub, aud, exp, nbf or iat has the wrong type"))?;
        let parameters = Parameters::of_claims(&parameters).map_err(|error| refuse(&error.to_string()))?;
        Ok(Self { parameters, claims })
    }

    /// Checks that the object comes from this client, is meant for this service and is valid now. If the client must sign,
    /// `aud`, `exp` and `nbf` are required.
    pub fn check(&self, client: &Client, issuer: &str, now: Timestamp) -> Result<(), Refusal> {
        let Claims {
            iss,
            sub,
            aud,
            exp,
            nbf,
            iat,
        } = &self.claims;
        let is_client = |text: &str| text == client.client_id;
        if !self.parameters.get("client_id").is_some_and(is_client) {
            return Err(refuse("client_id must be the client_id of the request"));
        }
        if !iss.as_deref().is_none_or(is_client) {
            return Err(refuse("iss must be the client_id"));
        }
        // Section 10.8: a client assertion has this subject.
        if sub.as_deref().is_some_and(is_client) {
            return Err(refuse("sub must not be the client_id"));
        }
        if !aud.as_ref().is_none_or(|audience| audience.contains(issuer)) {
            return Err(refuse("aud must contain the issuer"));
        }
        if client.require_signed_request_object && (aud.is_none() || exp.is_none() || nbf.is_none()) {
            return Err(refuse("this client must send aud, exp and nbf"));
        }
        jwt::check_times(*exp, *nbf, *iat, now, LEEWAY).map_err(|error| refuse(&error.to_string()))?;
        if nbf.is_some_and(|nbf| now > nbf + MAX_LIFETIME + LEEWAY) {
            return Err(refuse("nbf is more than 60 minutes ago"));
        }
        if let (Some(exp), Some(nbf)) = (exp, nbf)
            && *exp > *nbf + MAX_LIFETIME
        {
            return Err(refuse("exp must be at most 60 minutes after nbf"));
        }
        Ok(())
    }
}

fn refuse(problem: &str) -> Refusal {
    Refusal::naming(
        ErrorCode::InvalidRequestObject,
        &format!("the request object is refused: {problem}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const ISSUER: &str = "https://server.example.com";
    const NOW: Timestamp = Timestamp::from_seconds(1_600_000_000);

    /// The object of section 4.
    const EXAMPLE: &str = concat!(
        "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsyYmRjIn0.ewogICAgImlzcyI6ICJzNkJoZF",
        "JrcXQzIiwKICAgICJhdWQiOiAiaHR0cHM6Ly9zZXJ2ZXIuZXhhbXBsZS5jb20iLAog",
        "ICAgInJlc3BvbnNlX3R5cGUiOiAiY29kZSBpZF90b2tlbiIsCiAgICAiY2xpZW50X2",
        "lkIjogInM2QmhkUmtxdDMiLAogICAgInJlZGlyZWN0X3VyaSI6ICJodHRwczovL2Ns",
        "aWVudC5leGFtcGxlLm9yZy9jYiIsCiAgICAic2NvcGUiOiAib3BlbmlkIiwKICAgIC",
        "JzdGF0ZSI6ICJhZjBpZmpzbGRraiIsCiAgICAibm9uY2UiOiAibi0wUzZfV3pBMk1q",
        "IiwKICAgICJtYXhfYWdlIjogODY0MDAKfQ.Nsxa_18VUElVaPjqW_ToI1yrEJ67BgK",
        "b5xsuZRVqzGkfKrOIX7BCx0biSxYGmjK9KJPctH1OC0iQJwXu5YVY-vnW0_PLJb1C2",
        "HG-ztVzcnKZC2gE4i0vgQcpkUOCpW3SEYXnyWnKzuKzqSb1wAZALo5f89B_p6QA6j6",
        "JwBSRvdVsDPdulW8lKxGTbH82czCaQ50rLAg3EYLYaCb4ik4I1zGXE4fvim9FIMs8O",
        "CMmzwIB5S-ujFfzwFjoyuPEV4hJnoVUmXR_W9typPf846lGwA8h9G9oNTIuX8Ft2jf",
        "pnZdFmLg3_wr3Wa5q3a-lfbgF3S9H_8nN3j1i7tLR_5Nz-g",
    );
    const N: &str = concat!(
        "x5RbkAZkmpRxia65qRQ1wwSMSxQUnS7gcpVTV_cdHmfmG2ltd2yabEO9XadD8",
        "pJNZubINPpmgHh3J1aD9WRwS05ucmFq3CfFsluLt13_7oX5yDRSKX7poXmT_5",
        "ko8k4NJZPMAO8fPToDTH7kHYbONSE2FYa5GZ60CUsFhSonI-dcMDJ0Ary9lxI",
        "w5k2z4TAdARVWcS7sD07VhlMMshrwsPHBQgTatlkxyIHXbYdtak8fqvNAwr7O",
        "lVEvM_Ipf5OfmdB8Sd-wjzaBsyP4VhJKoi_qdgSzpC694XZeYPq45Sw-q51iF",
        "UlcOlTCI7z6jltUtnR6ySn6XDGFnzH5Fe5ypw",
    );

    fn client() -> (Client, JwkSet) {
        let mut client = Client::new("s6BhdRkqt3", Uuid::nil(), Uuid::nil(), false, NOW);
        client.jwks = vec![json!({ "kty": "RSA", "kid": "k2bdc", "n": N, "e": "AQAB" })];
        let keys = JwkSet::of_jwks(&client.jwks);
        (client, keys)
    }

    #[test]
    fn the_example_of_the_standard_is_read() {
        let (mut client, keys) = client();
        let object = RequestObject::verify(EXAMPLE, &client, &keys).unwrap();
        let parameters: Vec<_> = object.parameters.iter().collect();
        for parameter in [
            ("response_type", "code id_token"),
            ("client_id", "s6BhdRkqt3"),
            ("redirect_uri", "https://client.example.org/cb"),
            ("scope", "openid"),
            ("state", "af0ifjsldkj"),
            ("nonce", "n-0S6_WzA2Mj"),
            ("max_age", "86400"),
        ] {
            assert!(parameters.contains(&parameter), "{parameter:?}");
        }
        assert_eq!(parameters.len(), 7);
        assert_eq!(object.check(&client, ISSUER, NOW), Ok(()));
        assert!(object.check(&client, "https://other.example", NOW).is_err());
        client.require_signed_request_object = true;
        assert_eq!(
            object.check(&client, ISSUER, NOW),
            Err(refuse("this client must send aud, exp and nbf"))
        );
    }

    #[test]
    fn the_example_is_refused_under_another_algorithm_and_without_its_key() {
        let (mut client, keys) = client();
        client.request_object_signing_alg = Some(Algorithm::Ps256);
        assert!(RequestObject::verify(EXAMPLE, &client, &keys).is_err());
        client.request_object_signing_alg = Some(Algorithm::Rs256);
        assert!(RequestObject::verify(EXAMPLE, &client, &keys).is_ok());
        assert!(RequestObject::verify(EXAMPLE, &client, &JwkSet::default()).is_err());
    }
}

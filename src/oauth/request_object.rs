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
const LONGEST: Duration = Duration::from_hours(1);
/// The claims about the object itself (RFC 7519 section 4.1). The other claims are the parameters of the request.
const ABOUT_THE_OBJECT: [&str; 7] = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"];

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
    pub fn verify(object: &str, (client, keys): (&Client, &JwkSet)) -> Result<Self, Refusal> {
        if object.split('.').count() == 5 {
            return Err(refuse("it is encrypted, which is not supported"));
        }
        if !client.has_keys() {
            return Err(refuse("the client has registered no key to verify it with"));
        }
        let allowed = match &client.request_object_signing_alg {
            Some(algorithm) => std::slice::from_ref(algorithm),
            None => &Algorithm::ALL,
        };
        let verify =
            |typ| jwt::verify::<Map<String, Value>>(object, typ, allowed, |kid, alg| keys.select(kid, alg));
        let verified = match verify(ExpectedTyp::AbsentOr("oauth-authz-req+jwt")) {
            Err(JwtError::Typ) => verify(ExpectedTyp::Exactly("JWT")),
            verified => verified,
        };
        let mut parameters = verified.map_err(|error| refuse(&error.to_string()))?;
        if parameters.contains_key("request") || parameters.contains_key("request_uri") {
            return Err(refuse("it must not contain request or request_uri"));
        }
        let about = ABOUT_THE_OBJECT.into_iter();
        let about: Map<_, _> = about.filter_map(|name| parameters.remove_entry(name)).collect();
        let claims = serde_json::from_value(Value::Object(about))
            .map_err(|_| refuse("iss, sub, aud, exp, nbf or iat has the wrong type"))?;
        let parameters = Parameters::of_claims(&parameters).map_err(|error| refuse(&error.to_string()))?;
        Ok(Self { parameters, claims })
    }

    /// Checks that the object is of this client and for this service now. A client that must sign has to say for whom
    /// and for how long the object is.
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
        if nbf.is_some_and(|nbf| now > nbf + LONGEST + LEEWAY) {
            return Err(refuse("nbf is more than 60 minutes ago"));
        }
        if let (Some(exp), Some(nbf)) = (exp, nbf)
            && *exp > *nbf + LONGEST
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

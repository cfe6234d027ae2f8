//! Request and response of the token endpoint: RFC 6749 sections 4.1.3, 5.1 and 6.

use serde::Serialize;
use zeroize::Zeroizing;

use crate::described::described;
use crate::oauth::access_token::CommonClaims;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::code::{self, CodeExchange};
use crate::oauth::device::{self, PresentedDeviceCode};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;
use crate::oauth::refresh;
use crate::oauth::refresh_keys::PresentedRefreshToken;
use crate::oauth::scope::Scope;
use crate::oauth::token_exchange::TokenExchange;

/// A token request, one variant for each grant.
pub enum TokenRequest {
    /// RFC 6749 section 4.1.3.
    AuthorizationCode(CodeExchange),
    /// RFC 6749 section 6.
    RefreshToken {
        token: PresentedRefreshToken,
        /// The requested scope, which may be less than the granted one.
        scope: Option<Scope>,
    },
    /// RFC 6749 section 4.4.2.
    ClientCredentials { scope: Option<Scope> },
    /// RFC 7523 section 2.1.
    JwtBearer {
        /// The upstream provider's ID token.
        assertion: Zeroizing<String>,
        scope: Option<Scope>,
    },
    /// RFC 8693 section 2.1.
    TokenExchange(Box<TokenExchange>),
    /// RFC 8628 section 3.4.
    DeviceCode(PresentedDeviceCode),
    /// A new anonymous user.
    Anonymous { scope: Option<Scope> },
}

/// Reads `grant_type`. The caller checks whether the client may use it before the other parameters are read.
pub fn grant_type(parameters: &Parameters, service_name: &str) -> Result<GrantType, Refusal> {
    match parameters.get("grant_type") {
        None => Err(Refusal::invalid_request("grant_type is missing")),
        Some(value) => GrantType::of_value(value, service_name).ok_or(Refusal::new(
            ErrorCode::UnsupportedGrantType,
            "this grant_type is not supported; see grant_types_supported in the discovery document",
        )),
    }
}

impl TokenRequest {
    pub fn parse(grant_type: GrantType, parameters: &Parameters) -> Result<Self, Refusal> {
        match grant_type {
            GrantType::AuthorizationCode => {
                let code = parameters
                    .get("code")
                    .ok_or(Refusal::invalid_request("code is missing"))?;
                let redirect_uri = parameters.get("redirect_uri");
                CodeExchange::parse(code, redirect_uri, parameters.get("code_verifier"))
                    .map(Self::AuthorizationCode)
                    .map_err(|_| code::UNKNOWN)
            }
            GrantType::RefreshToken => {
                let token = parameters
                    .get("refresh_token")
                    .ok_or(Refusal::invalid_request("refresh_token is missing"))?;
                let scope = Scope::requested(parameters)?;
                let token = PresentedRefreshToken::parse(token).map_err(|_| refresh::UNKNOWN)?;
                Ok(Self::RefreshToken { token, scope })
            }
            GrantType::ClientCredentials => Ok(Self::ClientCredentials {
                scope: Scope::requested(parameters)?,
            }),
            GrantType::Anonymous => Ok(Self::Anonymous {
                scope: Scope::requested(parameters)?,
            }),
            GrantType::DeviceCode => {
                let code = parameters
                    .get("device_code")
                    .ok_or(Refusal::invalid_request("device_code is missing"))?;
                PresentedDeviceCode::parse(code)
                    .map(Self::DeviceCode)
                    .map_err(|_| device::UNKNOWN)
            }
            GrantType::JwtBearer => {
                let assertion = parameters
                    .get("assertion")
                    .ok_or(Refusal::invalid_request("assertion is missing"))?;
                Ok(Self::JwtBearer {
                    assertion: Zeroizing::new(assertion.to_owned()),
                    scope: Scope::requested(parameters)?,
                })
            }
            GrantType::TokenExchange => TokenExchange::parse(parameters)
                .map(Box::new)
                .map(Self::TokenExchange),
        }
    }
}

/// The scope of a user who signs in without an authorization request: the requested one, or the client's default with
/// `openid`. The service adds `marker`; the other marker cannot be requested.
pub fn user_scope(asked: Option<&Scope>, client: &Client, marker: &str) -> Result<Scope, Refusal> {
    let scope = match asked {
        Some(asked) => asked.filter(|value| value != marker),
        None => client
            .default_scope
            .clone()
            .with(Scope::OPENID)
            .filter(|value| client.scope.contains(value)),
    };
    if !scope.is_within(&client.scope) || scope.iter().any(Scope::is_marker) {
        return Err(Refusal::new(
            ErrorCode::InvalidScope,
            "scope exceeds what this client is registered for",
        ));
    }
    Ok(scope.with(marker))
}

/// The scope of a client that acts for itself: the requested one or its default, within `limit`. Values that are about
/// a user cannot be requested.
pub fn client_scope(asked: Option<&Scope>, client: &Client, limit: &Scope) -> Result<Scope, Refusal> {
    let refuse = |why| Err(Refusal::new(ErrorCode::InvalidScope, why));
    let is_of_users =
        |value: &str| value == Scope::OPENID || value == Scope::OFFLINE_ACCESS || Scope::is_marker(value);
    let may_have = |value: &str| !is_of_users(value) && client.scope.contains(value) && limit.contains(value);
    match asked {
        Some(asked) if asked.iter().any(is_of_users) => {
            let named: Vec<_> = asked.iter().filter(|value| is_of_users(value)).collect();
            Err(Refusal::naming(
                ErrorCode::InvalidScope,
                &format!("scope {} is for users, and this token has none", named.join(" ")),
            ))
        }
        Some(asked) if !asked.iter().all(may_have) => refuse("scope exceeds what this client may have"),
        Some(asked) => Ok(asked.clone()),
        None => match client.default_scope.filter(may_have) {
            scope if scope.is_empty() => refuse("scope is missing, and this client has no default one"),
            scope => Ok(scope),
        },
    }
}

described! {
    /// The response to every grant.
    #[derive(Clone, Debug, Serialize)]
    pub struct TokenResponse {
        /// The access token, a JWT.
        pub access_token: String,
        /// The type of the token in `access_token`, if it is the answer to a token exchange (RFC 8693 section 2.2.1).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub issued_token_type: Option<&'static str>,
        /// `bearer` (RFC 6750), or `DPoP` if the access token is bound to a key (RFC 9449).
        pub token_type: &'static str,
        /// Seconds until the access token expires: `exp` of the access token is `iat` + `expires_in`.
        pub expires_in: u64,
        /// The refresh token, an opaque text that begins with `idsvc_rt_`; absent if the client may not refresh.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub refresh_token: Option<String>,
        /// The ID token, a JWT; absent if `openid` was not granted.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub id_token: Option<String>,
        /// The ID token again, for older clients; absent if `id_token_alias` is false.
        #[serde(rename = "idtoken", skip_serializing_if = "Option::is_none")]
        pub id_token_alias: Option<String>,
        #[serde(flatten)]
        /// The members that the access token has too.
        pub common: CommonClaims,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_and_a_missing_grant_type_get_different_errors() {
        let read = |body: &str| {
            grant_type(&Parameters::parse(body.as_bytes()).unwrap(), "service")
                .unwrap_err()
                .code
        };
        assert_eq!(read(""), ErrorCode::InvalidRequest);
        assert_eq!(read("grant_type=password"), ErrorCode::UnsupportedGrantType);
        assert_eq!(read("grant_type=anonymous"), ErrorCode::UnsupportedGrantType);
        let other_service = "grant_type=urn:other:oauth2:grant-type:anonymous";
        assert_eq!(read(other_service), ErrorCode::UnsupportedGrantType);
    }
}

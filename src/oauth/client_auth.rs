//! Client authentication: RFC 6749 section 2.3, OpenID Connect Core 9.

use std::ops::Deref;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::oauth::api_key::{self, PresentedApiKey};
use crate::oauth::client::{AuthMethod, Client};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;
use crate::secret::{ClientSecret, Digest};

/// What a client presents to prove who it is.
pub struct Credentials {
    /// Who it says it is.
    pub client_id: String,
    /// How it proves that.
    pub method: AuthMethod,
    secret: Option<Digest<ClientSecret>>,
}

/// A client whose credentials were checked. Only [`authenticate`] makes one.
#[derive(Clone, Debug)]
pub struct AuthenticatedClient(Arc<Client>);

impl Deref for AuthenticatedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl Credentials {
    /// Reads the credentials of a request: `basic` is the user name and password of a Basic header, already
    /// form-decoded (RFC 6749 section 2.3.1).
    pub fn parse(
        basic: Option<&(String, Zeroizing<String>)>,
        parameters: &Parameters,
    ) -> Result<Self, Refusal> {
        let named = parameters.get("client_id");
        let posted = parameters.get("client_secret");
        match (basic, named, posted) {
            (Some(_), _, Some(_)) => Err(Refusal::invalid_request(
                "more than one client authentication method was used",
            )),
            (Some((user, _)), Some(named), None) if user != named => Err(Refusal::invalid_request(
                "client_id differs from the one in the Authorization header",
            )),
            (Some((user, password)), _, None) => Ok(Self {
                client_id: user.clone(),
                method: AuthMethod::ClientSecretBasic,
                secret: Some(Digest::of(password.as_bytes())),
            }),
            (None, Some(named), Some(secret)) => Ok(Self {
                client_id: named.to_owned(),
                method: AuthMethod::ClientSecretPost,
                secret: Some(Digest::of(secret.as_bytes())),
            }),
            (None, Some(named), None) => Ok(Self {
                client_id: named.to_owned(),
                method: AuthMethod::None,
                secret: None,
            }),
            (None, None, _) => Err(Refusal::invalid_client("client authentication is missing")),
        }
    }
}

/// Checks credentials against the record they name. Whoever has no right learns only that.
pub fn authenticate(
    credentials: &Credentials,
    client: Option<&Arc<Client>>,
    now: Timestamp,
) -> Result<AuthenticatedClient, Refusal> {
    const UNKNOWN: Refusal = Refusal::invalid_client("client authentication failed");
    let client = client.filter(|client| client.enabled).ok_or(UNKNOWN)?;
    let proven = match &credentials.secret {
        Some(secret) => client.accepts_secret(secret, now),
        None => client.is_public(),
    };
    if !proven {
        return Err(UNKNOWN);
    }
    if !client.auth_methods.contains(&credentials.method) {
        return Err(Refusal::naming(
            ErrorCode::InvalidClient,
            &format!(
                "this client is not registered for {}",
                credentials.method.as_str()
            ),
        ));
    }
    Ok(AuthenticatedClient(Arc::clone(client)))
}

/// Checks an API key against the client it belongs to (`client`, found by the key's digest).
pub fn authenticate_api_key(
    presented: &PresentedApiKey,
    client: Option<&Arc<Client>>,
) -> Result<AuthenticatedClient, Refusal> {
    let digest = presented.key.digest();
    let client = client
        .filter(|client| client.enabled)
        .filter(|client| client.api_keys.iter().any(|key| key.digest == digest))
        .filter(|client| {
            presented
                .client_id
                .as_ref()
                .is_none_or(|named| *named == client.client_id)
        })
        .ok_or(api_key::UNKNOWN)?;
    Ok(AuthenticatedClient(Arc::clone(client)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(basic: Option<(&str, &str)>, body: &str) -> Result<Credentials, Refusal> {
        let basic = basic.map(|(user, password)| (user.to_owned(), Zeroizing::new(password.to_owned())));
        Credentials::parse(basic.as_ref(), &Parameters::parse(body.as_bytes()).unwrap())
    }

    #[test]
    fn two_methods_at_once_are_an_invalid_request() {
        let both = parse(Some(("web", "s")), "client_id=web&client_secret=s");
        assert_eq!(
            both.err().map(|refusal| refusal.code),
            Some(ErrorCode::InvalidRequest)
        );
        let differing = parse(Some(("web", "s")), "client_id=other");
        assert_eq!(
            differing.err().map(|refusal| refusal.code),
            Some(ErrorCode::InvalidRequest)
        );
    }

    #[test]
    fn each_method_is_told_apart() {
        assert_eq!(
            parse(Some(("web", "s")), "client_id=web").unwrap().method,
            AuthMethod::ClientSecretBasic
        );
        assert_eq!(
            parse(None, "client_id=web&client_secret=s").unwrap().method,
            AuthMethod::ClientSecretPost
        );
        assert_eq!(parse(None, "client_id=web").unwrap().method, AuthMethod::None);
        assert_eq!(
            parse(None, "").err().map(|refusal| refusal.code),
            Some(ErrorCode::InvalidClient)
        );
    }
}

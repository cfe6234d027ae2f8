//! Client authentication: RFC 6749 section 2.3, OpenID Connect Core 9.

use std::ops::Deref;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::jose::jwk::JwkSet;
use crate::jose::jwt;
use crate::oauth::api_key::{self, PresentedApiKey};
use crate::oauth::assertion::{self, ASSERTION_TYPE, Recipient};
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
    proof: Proof,
}

enum Proof {
    Secret(Digest<ClientSecret>),
    EitherSecret([Digest<ClientSecret>; 2]),
    Assertion(Zeroizing<String>),
    None,
}

/// A client whose credentials were checked. Only this module makes one.
#[derive(Clone, Debug)]
pub struct AuthenticatedClient {
    client: Arc<Client>,
    method: Option<AuthMethod>,
}

impl AuthenticatedClient {
    /// How it proved who it is; none for an API key.
    pub fn method(&self) -> Option<AuthMethod> {
        self.method
    }

    /// The same client by the record that it has by now.
    pub fn as_now(&self, record: Option<&Arc<Client>>) -> Result<Self, Refusal> {
        let is_same = |now: &&Arc<Client>| now.enabled && now.client_uuid == self.client.client_uuid;
        let client = Arc::clone(record.filter(is_same).ok_or(Refusal::CLIENT_UNPROVEN)?);
        Ok(Self { client, ..*self })
    }
}

/// Credentials that are right.
#[derive(Debug)]
pub enum Authentication {
    /// Nothing is left to be done.
    Complete(AuthenticatedClient),
    /// They count once: whether they were used before has to be found out, and that they are now written down.
    Once(OneTime),
}

/// A client whose assertion is right if it is used for the first time.
#[derive(Debug)]
pub struct OneTime {
    client: AuthenticatedClient,
    /// What to remember it by.
    pub assertion: assertion::Use,
}

impl OneTime {
    /// The client, once the use has been written down, and was the first.
    pub fn written_down(self, is_first: bool) -> Result<AuthenticatedClient, Refusal> {
        if is_first {
            Ok(self.client)
        } else {
            Err(Refusal::invalid_client("client_assertion was used before"))
        }
    }
}

impl Deref for AuthenticatedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
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
        match (
            parameters.get("client_assertion_type"),
            parameters.get("client_assertion"),
        ) {
            (None, None) => {}
            (Some(_), Some(_)) if basic.is_some() || posted.is_some() => {
                return Err(AMBIGUOUS);
            }
            (Some(ASSERTION_TYPE), Some(assertion)) => return Self::of_assertion(assertion, named),
            (Some(_), Some(_)) => {
                return Err(Refusal::invalid_request(
                    "client_assertion_type must be urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                ));
            }
            _ => {
                return Err(Refusal::invalid_request(
                    "client_assertion and client_assertion_type go together",
                ));
            }
        }
        match (basic, named, posted) {
            (Some(_), _, Some(_)) => Err(AMBIGUOUS),
            (Some((user, _)), Some(named), None) if user != named => Err(Refusal::invalid_request(
                "client_id differs from the one in the Authorization header",
            )),
            // What is empty counts as omitted, in a header as in a form: libraries for public clients send it.
            (Some((user, password)), _, None) if password.is_empty() => Ok(Self {
                client_id: user.clone(),
                method: AuthMethod::None,
                proof: Proof::None,
            }),
            (Some((user, password)), _, None) => Ok(Self {
                client_id: user.clone(),
                method: AuthMethod::ClientSecretBasic,
                proof: Proof::Secret(Digest::of(password.as_bytes())),
            }),
            (None, Some(named), Some(secret)) => Ok(Self {
                client_id: named.to_owned(),
                method: AuthMethod::ClientSecretPost,
                proof: Proof::Secret(Digest::of(secret.as_bytes())),
            }),
            (None, Some(named), None) => Ok(Self {
                client_id: named.to_owned(),
                method: AuthMethod::None,
                proof: Proof::None,
            }),
            (None, None, _) => Err(Refusal::invalid_client("client authentication is missing")),
        }
    }

    /// The same credentials, where the secret may as well be `secret`: a Basic header holds it form-encoded, and many a
    /// client sends it as it is.
    #[must_use]
    pub fn or_secret(mut self, secret: &[u8]) -> Self {
        if let Proof::Secret(first) = self.proof {
            self.proof = Proof::EitherSecret([first, Digest::of(secret)]);
        }
        self
    }

    /// Whether they are those of a client that has nothing to prove.
    pub fn suffice_unproven(&self, client: &Client) -> bool {
        matches!(self.proof, Proof::None) && client.enabled && client.is_public()
    }

    /// The assertion, when it is one that proves who the client is.
    pub fn assertion(&self) -> Option<&str> {
        match &self.proof {
            Proof::Assertion(assertion) => Some(assertion),
            Proof::Secret(_) | Proof::EitherSecret(_) | Proof::None => None,
        }
    }

    /// The client is the one that the assertion names; `client_id` beside it has to be the same (RFC 7521
    /// section 4.2).
    fn of_assertion(assertion: &str, named: Option<&str>) -> Result<Self, Refusal> {
        let issuer = jwt::unverified_claim(assertion, "iss").ok().flatten();
        let client_id = issuer.ok_or(Refusal::invalid_client(
            "client_assertion is no JWT with the client_id as its iss",
        ))?;
        if named.is_some_and(|named| named != client_id) {
            return Err(Refusal::invalid_client(
                "client_id differs from iss of client_assertion",
            ));
        }
        Ok(Self {
            client_id,
            method: AuthMethod::PrivateKeyJwt,
            proof: Proof::Assertion(Zeroizing::new(assertion.to_owned())),
        })
    }
}

/// The answer to whoever proves in two ways who they are (RFC 6749 section 2.3).
const AMBIGUOUS: Refusal = Refusal::invalid_request("more than one client authentication method was used");

/// Why credentials of the kind that `proof` is prove nothing for `client`, in a word for the log.
fn cause_of(proof: &Proof, client: &Client) -> &'static str {
    match proof {
        Proof::Secret(_) | Proof::EitherSecret(_) if client.is_public() => "public_client_sent_secret",
        Proof::Secret(_) | Proof::EitherSecret(_) if !client.uses_secret() => "client_has_no_secret",
        Proof::Secret(_) | Proof::EitherSecret(_) => "wrong_secret",
        Proof::Assertion(_) => "client_has_no_key",
        Proof::None => "no_secret",
    }
}

/// Checks credentials against the record they name, and against `keys`, which are the client's. Whoever has no right
/// learns only that; the log learns the cause.
pub fn authenticate(
    credentials: &Credentials,
    (client, keys): (Option<&Arc<Client>>, Option<&JwkSet>),
    recipient: Recipient<'_>,
    now: Timestamp,
) -> Result<Authentication, Refusal> {
    let client = client.ok_or_else(|| Refusal::CLIENT_UNPROVEN.because("unknown_client"))?;
    if !client.enabled {
        return Err(Refusal::CLIENT_UNPROVEN.because("client_disabled"));
    }
    let unproven = || Refusal::CLIENT_UNPROVEN.because(cause_of(&credentials.proof, client));
    let once = match &credentials.proof {
        Proof::Secret(secret) if client.accepts_secret(secret, now) => None,
        Proof::EitherSecret([one, other])
            if client.accepts_secret(one, now) | client.accepts_secret(other, now) =>
        {
            None
        }
        Proof::None if client.is_public() => None,
        Proof::Assertion(assertion) => {
            let keys = keys.ok_or_else(unproven)?;
            Some(assertion::check(assertion, (client, keys), recipient, now)?)
        }
        Proof::Secret(_) | Proof::EitherSecret(_) | Proof::None => return Err(unproven()),
    };
    if !client.token_endpoint_auth_methods.contains(&credentials.method) {
        return Err(Refusal::naming(
            ErrorCode::InvalidClient,
            &format!(
                "this client is not registered for {}",
                credentials.method.as_str()
            ),
        ));
    }
    let client = AuthenticatedClient {
        client: Arc::clone(client),
        method: Some(credentials.method),
    };
    Ok(match once {
        None => Authentication::Complete(client),
        Some(assertion) => Authentication::Once(OneTime { client, assertion }),
    })
}

/// Takes an API key for that of `client`, which was found by the key's digest.
pub fn authenticate_api_key(
    presented: &PresentedApiKey,
    client: &Arc<Client>,
) -> Result<AuthenticatedClient, Refusal> {
    if !client.enabled {
        return Err(api_key::UNKNOWN.because("client_disabled"));
    }
    if !presented.is_of(&client.client_id) {
        return Err(api_key::UNKNOWN.because("key_of_another_client"));
    }
    Ok(AuthenticatedClient {
        client: Arc::clone(client),
        method: None,
    })
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
        assert_eq!(parse(Some(("web", "")), "").unwrap().method, AuthMethod::None);
        assert_eq!(
            parse(None, "").err().map(|refusal| refusal.code),
            Some(ErrorCode::InvalidClient)
        );
    }
}

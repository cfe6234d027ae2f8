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
use crate::oauth::client_certificate::{
    ClientAuthorities, ClientCertificate, ExpectedName, UnreadableCertificate,
};
use crate::oauth::error::{Cause, ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;
use crate::secret::{ClientSecret, Digest};

/// What a client authenticates with.
pub struct Credentials {
    pub client_id: String,
    /// The authentication method.
    pub method: AuthMethod,
    proof: Proof,
}

enum Proof {
    Secret(Digest<ClientSecret>),
    EitherSecret([Digest<ClientSecret>; 2]),
    Assertion(Zeroizing<String>),
    Certificate(Arc<ClientCertificate>),
    None,
}

/// A client whose credentials were checked. Only this module makes one.
#[derive(Clone, Debug)]
pub struct AuthenticatedClient {
    client: Arc<Client>,
    method: Option<AuthMethod>,
    secret: Option<Digest<ClientSecret>>,
}

impl AuthenticatedClient {
    /// The secret that it sent, if it authenticated with one.
    pub fn secret(&self) -> Option<&Digest<ClientSecret>> {
        self.secret.as_ref()
    }

    /// The authentication method; none for an API key.
    pub fn method(&self) -> Option<AuthMethod> {
        self.method
    }

    /// The same client with its current `record`. It is refused if the record was removed, replaced or disabled.
    pub fn as_now(&self, record: Option<&Arc<Client>>) -> Result<Self, Refusal> {
        let is_same = |now: &&Arc<Client>| now.enabled && now.own_grant == self.client.own_grant;
        let client = Arc::clone(record.filter(is_same).ok_or(Refusal::CLIENT_UNPROVEN)?);
        Ok(Self { client, ..*self })
    }
}

/// The result of valid credentials.
#[derive(Debug)]
pub enum Authentication {
    /// The client is authenticated.
    Complete(AuthenticatedClient),
    /// The client is authenticated if its assertion was not used before.
    IfUnused(UnusedAssertion),
}

/// A valid assertion whose use has still to be recorded, because it counts only once.
#[derive(Debug)]
pub struct UnusedAssertion {
    client: AuthenticatedClient,
    /// The key under which its use is recorded.
    pub replay_key: assertion::ReplayKey,
}

impl UnusedAssertion {
    /// The client, after the use was recorded. `is_first` says whether there was no earlier use.
    pub fn recorded(self, is_first: bool) -> Result<AuthenticatedClient, Refusal> {
        if is_first { Ok(self.client) } else { Err(REPLAYED) }
    }
}

impl Deref for AuthenticatedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The user name and the password of a Basic header, form-decoded (RFC 6749 section 2.3.1).
#[derive(Debug, PartialEq, Eq)]
pub struct BasicCredentials {
    /// The identifier of the client.
    pub user: String,
    /// The secret of the client.
    pub password: Zeroizing<String>,
}

impl Credentials {
    /// Reads the credentials of a request. `certificate` is that of the connection. It counts if nothing else does, and
    /// `client_id` must come with it (RFC 8705 section 2).
    pub fn parse(
        basic: Option<&BasicCredentials>,
        parameters: &Parameters,
        certificate: Option<&Arc<ClientCertificate>>,
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
            (Some(basic), Some(named), None) if basic.user != named => Err(Refusal::invalid_request(
                "client_id differs from the one in the Authorization header",
            )),
            // Libraries for public clients send an empty password. It counts as omitted, as an empty form field does.
            (Some(basic), _, None) if basic.password.is_empty() => {
                Ok(Self::of(&basic.user, AuthMethod::None, Proof::None))
            }
            (Some(basic), _, None) => {
                let proof = Proof::Secret(Digest::of(basic.password.as_bytes()));
                Ok(Self::of(&basic.user, AuthMethod::ClientSecretBasic, proof))
            }
            (None, Some(named), Some(secret)) => {
                let proof = Proof::Secret(Digest::of(secret.as_bytes()));
                Ok(Self::of(named, AuthMethod::ClientSecretPost, proof))
            }
            (None, Some(named), None) => {
                let proof = certificate.map_or(Proof::None, |shown| Proof::Certificate(Arc::clone(shown)));
                Ok(Self::of(named, AuthMethod::None, proof))
            }
            (None, None, None) if certificate.is_some() => Err(Refusal::invalid_client(
                "client_id is missing; it goes with a client certificate",
            )),
            (None, None, _) => Err(Refusal::invalid_client("client authentication is missing")),
        }
    }

    /// The same credentials, with `secret` as the other possible secret. A Basic header holds the secret form-encoded,
    /// but many clients do not encode it.
    #[must_use]
    pub fn or_secret(mut self, secret: &[u8]) -> Self {
        if let Proof::Secret(first) = self.proof {
            self.proof = Proof::EitherSecret([first, Digest::of(secret)]);
        }
        self
    }

    /// Whether they are valid for a public client, which has no secret.
    pub fn suffice_unproven(&self, client: &Client) -> bool {
        matches!(self.proof, Proof::None | Proof::Certificate(_)) && client.enabled && client.is_public()
    }

    /// The assertion, if the client authenticates with one.
    pub fn assertion(&self) -> Option<&str> {
        match &self.proof {
            Proof::Assertion(assertion) => Some(assertion),
            Proof::Secret(_) | Proof::EitherSecret(_) | Proof::Certificate(_) | Proof::None => None,
        }
    }

    /// The certificate, if the client may authenticate with it.
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        match &self.proof {
            Proof::Certificate(certificate) => Some(certificate),
            Proof::Secret(_) | Proof::EitherSecret(_) | Proof::Assertion(_) | Proof::None => None,
        }
    }

    fn of(client_id: &str, method: AuthMethod, proof: Proof) -> Self {
        Self {
            client_id: client_id.to_owned(),
            method,
            proof,
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
        let proof = Proof::Assertion(Zeroizing::new(assertion.to_owned()));
        Ok(Self::of(&client_id, AuthMethod::PrivateKeyJwt, proof))
    }
}

/// The refusal of a client whose assertion was used before (RFC 7523 section 3).
pub const REPLAYED: Refusal = Refusal::invalid_client("client_assertion was used before");

/// The refusal of a client that uses two methods at once (RFC 6749 section 2.3).
const AMBIGUOUS: Refusal = Refusal::invalid_request("more than one client authentication method was used");

/// Why `proof` does not authenticate `client`.
fn cause_of(proof: &Proof, client: &Client) -> Cause {
    match proof {
        Proof::Secret(_) | Proof::EitherSecret(_) if client.is_public() => Cause::PublicClientSentSecret,
        Proof::Secret(_) | Proof::EitherSecret(_) if !client.uses_secret() => Cause::ClientHasNoSecret,
        Proof::Secret(_) | Proof::EitherSecret(_) => Cause::WrongSecret,
        Proof::Assertion(_) => Cause::ClientHasNoKey,
        Proof::Certificate(_) => Cause::ClientHasNoCertificate,
        Proof::None if client.uses_certificate() => Cause::NoCertificate,
        Proof::None => Cause::NoSecret,
    }
}

/// The method by which a certificate authenticates the client, or why it does not (RFC 8705 section 2).
fn check_certificate(
    certificate: &ClientCertificate,
    client: &Client,
    keys: Option<&JwkSet>,
    authorities: Option<&ClientAuthorities>,
    now: Timestamp,
) -> Result<AuthMethod, Cause> {
    let methods = &client.token_endpoint_auth_methods;
    if client.is_public() {
        return Ok(AuthMethod::None);
    }
    if methods.contains(&AuthMethod::TlsClientAuth) {
        if !authorities.is_some_and(|authorities| authorities.verify_chain(certificate, now)) {
            return Err(Cause::UntrustedCertificate);
        }
        let name = ExpectedName::of(client).ok_or(Cause::CertificateOfAnotherName)?;
        let is_its = certificate
            .has_name(&name)
            .map_err(|UnreadableCertificate| Cause::UnreadableCertificate)?;
        return is_its
            .then_some(AuthMethod::TlsClientAuth)
            .ok_or(Cause::CertificateOfAnotherName);
    }
    if methods.contains(&AuthMethod::SelfSignedTlsClientAuth) {
        let is_its = keys.is_some_and(|keys| certificate.has_key_of(keys));
        return is_its
            .then_some(AuthMethod::SelfSignedTlsClientAuth)
            .ok_or(Cause::CertificateOfUnknownKey);
    }
    Err(Cause::ClientHasNoCertificate)
}

/// Checks credentials against the client that they name and against its keys. A client that is not authenticated learns
/// only that. The cause is written to the log.
pub fn authenticate(
    credentials: &Credentials,
    client: Option<&Arc<Client>>,
    keys: Option<&JwkSet>,
    recipient: Recipient<'_>,
    authorities: Option<&ClientAuthorities>,
    now: Timestamp,
) -> Result<Authentication, Refusal> {
    let client = client.ok_or_else(|| Refusal::CLIENT_UNPROVEN.because(Cause::UnknownClient))?;
    if !client.enabled {
        return Err(Refusal::CLIENT_UNPROVEN.because(Cause::ClientDisabled));
    }
    let unproven = || Refusal::CLIENT_UNPROVEN.because(cause_of(&credentials.proof, client));
    let mut method = credentials.method;
    let secret = match &credentials.proof {
        Proof::Secret(secret) => client.accepts_secret(secret, now).then_some(*secret),
        Proof::EitherSecret([one, other]) => {
            let accepted = [one, other].map(|secret| client.accepts_secret(secret, now).then_some(*secret));
            accepted.into_iter().flatten().next()
        }
        Proof::Assertion(_) | Proof::Certificate(_) | Proof::None => None,
    };
    let once = match &credentials.proof {
        Proof::Secret(_) | Proof::EitherSecret(_) if secret.is_some() => None,
        Proof::None if client.is_public() => None,
        Proof::Assertion(assertion) => {
            let keys = keys.ok_or_else(unproven)?;
            Some(assertion::check(assertion, client, keys, recipient, now)?)
        }
        Proof::Certificate(certificate) => {
            method = check_certificate(certificate, client, keys, authorities, now)
                .map_err(|cause| Refusal::CLIENT_UNPROVEN.because(cause))?;
            None
        }
        Proof::Secret(_) | Proof::EitherSecret(_) | Proof::None => return Err(unproven()),
    };
    if !client.token_endpoint_auth_methods.contains(&method) {
        return Err(Refusal::naming(
            ErrorCode::InvalidClient,
            &format!("this client is not registered for {}", method.as_str()),
        ));
    }
    let client = AuthenticatedClient {
        client: Arc::clone(client),
        method: Some(method),
        secret,
    };
    Ok(match once {
        None => Authentication::Complete(client),
        Some(replay_key) => Authentication::IfUnused(UnusedAssertion { client, replay_key }),
    })
}

/// Authenticates `client`, which was found by the digest of the API key.
pub fn authenticate_api_key(
    presented: &PresentedApiKey,
    client: &Arc<Client>,
) -> Result<AuthenticatedClient, Refusal> {
    if !client.enabled {
        return Err(api_key::UNKNOWN.because(Cause::ClientDisabled));
    }
    if !presented.is_of(&client.client_id) {
        return Err(api_key::UNKNOWN.because(Cause::KeyOfAnotherClient));
    }
    Ok(AuthenticatedClient {
        client: Arc::clone(client),
        method: None,
        secret: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(basic: Option<(&str, &str)>, body: &str) -> Result<Credentials, Refusal> {
        let basic = basic.map(|(user, password)| BasicCredentials {
            user: user.to_owned(),
            password: Zeroizing::new(password.to_owned()),
        });
        Credentials::parse(basic.as_ref(), &Parameters::parse(body.as_bytes()).unwrap(), None)
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
    fn each_method_is_recognised() {
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

//! A client: it sends browsers to the service, redeems codes, and verifies tokens.

use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwk::JwkSet;
use idsvc::jose::jwt::{self, ExpectedTyp};
use idsvc::oauth::client::{AuthMethod, Client};
use serde_json::Value;

use super::browser::Browser;
use super::reply::{Reply, text};
use super::token::{Jwt, Tokens};
use super::wire::{Call, Wire};
use super::write_form;

/// `code_verifier` and `code_challenge` of RFC 7636 appendix B.
pub(crate) const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
pub(crate) const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// A registered client with its credentials.
#[derive(Clone)]
pub(crate) struct RelyingParty {
    wire: Wire,
    client: Client,
    pub(crate) secret: String,
}

impl RelyingParty {
    pub(crate) fn new(wire: &Wire, client: Client, secret: String) -> Self {
        Self {
            wire: wire.clone(),
            client,
            secret,
        }
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client.client_id
    }

    pub(crate) fn redirect_uri(&self) -> &str {
        &self.client.redirect_uris[0]
    }

    /// An authorization request for `openid`, with `state`, and with PKCE where the client needs it.
    pub(crate) fn request(&self) -> AuthorizationRequest {
        let state = format!("state of {}", self.client_id());
        let request = AuthorizationRequest::default()
            .with("response_type", "code")
            .with("client_id", self.client_id())
            .with("redirect_uri", self.redirect_uri())
            .with("scope", "openid")
            .with("state", &state);
        if self.client.requires_pkce() {
            request.with_challenge()
        } else {
            request
        }
    }

    /// The code that comes of the usual request.
    pub(crate) async fn code(&self, browser: &Browser) -> String {
        browser.authorize(&self.request()).await.through().await.code()
    }

    /// The tokens that come of the usual request.
    pub(crate) async fn tokens(&self, browser: &Browser) -> Tokens {
        self.tokens_for(browser, &self.request()).await
    }

    /// The tokens that come of this request.
    pub(crate) async fn tokens_for(&self, browser: &Browser, request: &AuthorizationRequest) -> Tokens {
        let code = browser.authorize(request).await.through().await.code();
        let exchange = self.redeem(&code);
        let exchange = if request.get("code_challenge").is_some() {
            exchange.with("code_verifier", VERIFIER)
        } else {
            exchange
        };
        exchange.await.tokens()
    }

    /// A form posted with the client's own authentication.
    pub(crate) fn post(&self, path: &str) -> Call {
        let call = Call::post(&self.wire, path);
        match self.client.token_endpoint_auth_methods.first() {
            Some(AuthMethod::ClientSecretBasic) => call.basic(self.client_id(), &self.secret),
            Some(AuthMethod::ClientSecretPost) => call
                .with("client_id", self.client_id())
                .with("client_secret", &self.secret),
            Some(AuthMethod::PrivateKeyJwt) => call,
            Some(AuthMethod::TlsClientAuth | AuthMethod::SelfSignedTlsClientAuth | AuthMethod::None)
            | None => call.with("client_id", self.client_id()),
        }
    }

    /// A token request for a code (RFC 6749 section 4.1.3).
    pub(crate) fn redeem(&self, code: &str) -> Call {
        let call = self
            .post("/oauth2/token")
            .with("grant_type", "authorization_code")
            .with("code", code)
            .with("redirect_uri", self.redirect_uri());
        if self.client.requires_pkce() {
            call.with("code_verifier", VERIFIER)
        } else {
            call
        }
    }

    /// A token request for a refresh token (RFC 6749 section 6).
    pub(crate) fn refresh(&self, token: &str) -> Call {
        self.post("/oauth2/token")
            .with("grant_type", "refresh_token")
            .with("refresh_token", token)
    }

    /// An introspection request (RFC 7662 section 2.1).
    pub(crate) fn introspect(&self, token: &str) -> Call {
        self.post("/oauth2/introspect").with("token", token)
    }

    /// A revocation request (RFC 7009 section 2.1).
    pub(crate) fn revoke(&self, token: &str) -> Call {
        self.post("/oauth2/revoke").with("token", token)
    }

    /// A request for claims (OpenID Connect Core 5.3.1).
    pub(crate) fn userinfo(&self, access_token: &str) -> Call {
        Call::get(&self.wire, "/oauth2/userinfo").bearer(access_token)
    }

    /// Whether an access token still opens `UserInfo`.
    pub(crate) async fn is_welcome(&self, tokens: &Tokens) -> bool {
        let reply: Reply = self.userinfo(tokens.access_token()).await;
        match reply.status {
            200 => true,
            401 => {
                assert!(
                    reply.challenge().contains("error=\"invalid_token\""),
                    "{}",
                    reply.challenge()
                );
                false
            }
            status => panic!("{status} {}", reply.text()),
        }
    }

    /// Verifies a token with the published keys: the algorithm is the header's, the key the one that its `kid`
    /// names.
    pub(crate) async fn verify(&self, token: &str) -> Jwt {
        let keys = JwkSet::parse(Call::get(&self.wire, "/oauth2/jwks").await.text().as_bytes()).unwrap();
        let jwt = Jwt::read(token);
        let typ = ExpectedTyp::Exactly(text(&jwt.header["typ"]));
        let alg: Algorithm = text(&jwt.header["alg"]).parse().unwrap();
        let verified = jwt::verify::<Value>(token, typ, &[alg], |kid, alg| {
            assert!(kid.is_some());
            keys.select(kid, alg)
        });
        assert_eq!(verified.unwrap(), jwt.claims);
        jwt
    }
}

/// An authorization request under construction (RFC 6749 section 4.1.1).
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthorizationRequest {
    pub(crate) parameters: Vec<(String, String)>,
}

impl AuthorizationRequest {
    /// Puts a parameter in the place of the one with this name.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).and(name, value)
    }

    /// Leaves a parameter out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.parameters.retain(|(known, _)| known != name);
        self
    }

    /// Adds a parameter, a second one of the same name if need be.
    pub(crate) fn and(mut self, name: &str, value: &str) -> Self {
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds the challenge of RFC 7636 appendix B.
    pub(crate) fn with_challenge(self) -> Self {
        self.with("code_challenge", CHALLENGE)
            .with("code_challenge_method", "S256")
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The address that the browser is sent to, without the service's origin.
    pub(crate) fn path(&self) -> String {
        format!("/oauth2/authorize?{}", write_form(&self.parameters))
    }
}

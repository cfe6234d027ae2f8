//! A key of a client, and the proofs that it signs (RFC 9449).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::clock::Timestamp;
use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use ring::digest;
use serde_json::{Value, json};

use super::server::{ISSUER, Server};
use super::token::signed;

/// The holder of a key, an ES256 key unless it is named.
pub(crate) struct KeyHolder(SigningKey);

impl KeyHolder {
    pub(crate) fn new() -> Self {
        Self(SigningKey::generate_es256(&Random::system()).unwrap())
    }

    /// The holder of this key.
    pub(crate) fn of(key: SigningKey) -> Self {
        Self(key)
    }

    /// The thumbprint of the key (RFC 7638).
    pub(crate) fn thumbprint(&self) -> String {
        self.0.public().thumbprint()
    }

    /// A proof for a request to an address at this moment, with a `jti` of its own.
    pub(crate) fn proof_at(&self, method: &str, url: &str, now: Timestamp) -> Proof<'_> {
        Proof {
            key: &self.0,
            header: json!({ "typ": "dpop+jwt", "alg": self.0.alg().as_str(), "jwk": self.0.public().to_jwk() }),
            claims: json!({
                "jti": Random::system().uuid_v4(),
                "htm": method,
                "htu": url,
                "iat": now.seconds(),
            }),
        }
    }

    /// A proof for a request to this path of a test server, by the clock of the server.
    pub(crate) fn proof(&self, server: &Server, method: &str, path: &str) -> Proof<'_> {
        self.proof_at(method, &format!("{ISSUER}{path}"), server.clock.now())
    }

    /// A proof for a token request.
    pub(crate) fn for_token(&self, server: &Server) -> String {
        self.proof(server, "POST", "/oauth2/token").sign()
    }

    /// A proof for a request to `UserInfo` with this access token.
    pub(crate) fn for_userinfo(&self, server: &Server, access_token: &str) -> String {
        self.proof(server, "GET", "/oauth2/userinfo")
            .of(access_token)
            .sign()
    }
}

/// A proof under construction.
#[derive(Clone)]
pub(crate) struct Proof<'a> {
    key: &'a SigningKey,
    header: Value,
    claims: Value,
}

impl Proof<'_> {
    /// Puts a claim in the place of the one with this name.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.claims[name] = value.into();
        self
    }

    /// Puts a member of the header in the place of the one with this name.
    pub(crate) fn with_header(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.header[name] = value.into();
        self
    }

    /// Puts a member into the key of the header.
    pub(crate) fn with_key_member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.header["jwk"][name] = value.into();
        self
    }

    /// Adds the hash of an access token.
    pub(crate) fn of(self, access_token: &str) -> Self {
        let hash = digest::digest(&digest::SHA256, access_token.as_bytes());
        self.with("ath", URL_SAFE_NO_PAD.encode(hash))
    }

    pub(crate) fn sign(&self) -> String {
        signed(self.key, &self.header, &self.claims)
    }
}

//! What providers, and clients that publish keys, are asked over the network.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use url::Url;
use zeroize::Zeroizing;

use super::authorization::error_code;
use super::cache::{Cache, Fetched, Unavailable};
use super::id_token::is_signed_by_one_of;
use super::metadata::{self, Metadata};
use super::provider::Provider;
use crate::clock::Timestamp;
use crate::jose::jwk::JwkSet;
use crate::net::outbound::{Client, Request};
pub use crate::net::outbound::{OutboundError, Response, SetupError, Terms};
use crate::oauth::assertion::ASSERTION_TYPE;
use crate::random::Random;

/// How a code is redeemed.
pub struct Redemption<'a> {
    /// The identifier of this service there.
    pub client_id: &'a str,
    /// How it proves who it is.
    pub proof: Proof,
    /// The code.
    pub code: &'a str,
    /// Proves that the code was asked for here.
    pub code_verifier: &'a str,
    /// Where the code was sent.
    pub redirect_uri: &'a str,
}

/// How this service proves to a provider who it is (OpenID Connect Core 9).
pub enum Proof {
    /// The secret in a Basic header.
    Basic(Zeroizing<String>),
    /// The secret in the body.
    Post(Zeroizing<String>),
    /// An assertion (RFC 7523 section 2.2).
    Assertion(Zeroizing<String>),
}

impl Redemption<'_> {
    fn form(&self) -> (Zeroizing<String>, Option<Zeroizing<String>>) {
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", self.code)
            .append_pair("redirect_uri", self.redirect_uri)
            .append_pair("code_verifier", self.code_verifier);
        let mut authorization = None;
        match &self.proof {
            Proof::Basic(secret) => {
                let pair = Zeroizing::new(format!("{}:{}", encode(self.client_id), encode(secret)));
                let header = format!("Basic {}", STANDARD.encode(pair.as_bytes()));
                authorization = Some(Zeroizing::new(header));
            }
            Proof::Post(secret) => {
                form.append_pair("client_id", self.client_id)
                    .append_pair("client_secret", secret);
            }
            Proof::Assertion(assertion) => {
                form.append_pair("client_id", self.client_id)
                    .append_pair("client_assertion_type", ASSERTION_TYPE)
                    .append_pair("client_assertion", assertion);
            }
        }
        (Zeroizing::new(form.finish()), authorization)
    }
}

/// Why a provider gave no answer that can be used. Of an error its code is told, which says what to mend; nothing else
/// that a provider sends is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// It could not be asked.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// It says no.
    #[error("{address} answers with status {status} {error}")]
    Refused {
        /// Where.
        address: String,
        /// The status code.
        status: u16,
        /// The error code (RFC 6749 section 5.2); empty when there is none.
        error: String,
    },
    /// Its answer is not the JSON that it should be.
    #[error("the answer of the {0} is not the JSON object that it should be")]
    Malformed(&'static str),
}

/// What a provider's token endpoint gives.
#[derive(Deserialize)]
pub struct UpstreamTokens {
    /// The ID token, unchecked.
    pub id_token: Zeroizing<String>,
    /// The access token.
    pub access_token: Zeroizing<String>,
    /// How long the access token lasts, in seconds, if it says so in a way that can be read.
    #[serde(default, deserialize_with = "lifetime")]
    pub expires_in: Option<u64>,
}

/// Reads `expires_in` (RFC 6749 section 5.1), which some providers write as a text or with a part of a second. What is
/// no such number counts as left out: nobody's sign-in has to fail for it.
fn lifetime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let part = |seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .ok()
            .map(|lasts| lasts.as_secs())
    };
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(part)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    })
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
}

/// The way to everybody else's documents, with what is remembered of them.
pub struct Upstreams {
    client: Client,
    key_sets: Cache<JwkSet>,
    metadata: Cache<Metadata>,
}

impl Upstreams {
    /// Reaches others on these terms, and remembers nothing yet.
    pub fn new(terms: &Terms, random: &Random) -> Result<Self, SetupError> {
        Ok(Self {
            client: Client::new(terms)?,
            key_sets: Cache::new(random.clone()),
            metadata: Cache::new(random.clone()),
        })
    }

    /// Looks at an address as it is now, whatever is remembered of it.
    pub async fn look(&self, url: &Url) -> Result<Response, OutboundError> {
        self.client.send(Request::get(url)).await
    }

    /// The keys published at `jwks_uri`. When none of them is the one that `token` names, they are fetched anew, at
    /// most once a minute.
    pub async fn key_set_for(
        &self,
        jwks_uri: &str,
        token: &str,
        now: Timestamp,
    ) -> Result<Arc<JwkSet>, Unavailable> {
        let fetch = || self.fetch_keys(jwks_uri.to_owned());
        let known = self.key_sets.get(jwks_uri, now, fetch).await?;
        if is_signed_by_one_of(token, &known) {
            return Ok(known);
        }
        let newer = self.key_sets.newer(jwks_uri, &known, now, fetch).await;
        Ok(newer.unwrap_or(known))
    }

    /// What the provider publishes about itself.
    pub async fn metadata(&self, provider: &Provider, now: Timestamp) -> Result<Arc<Metadata>, Unavailable> {
        let address = metadata::address(&provider.issuer);
        let fetch = || self.fetch_metadata(provider.issuer.clone());
        self.metadata.get(&address, now, fetch).await
    }

    /// The keys that an ID token of the provider is checked with: those of the record, or those that it publishes.
    pub async fn keys_of(
        &self,
        provider: &Provider,
        token: &str,
        now: Timestamp,
    ) -> Result<Arc<JwkSet>, Unavailable> {
        if !provider.keys.is_empty() {
            return Ok(Arc::new(JwkSet::of_jwks(&provider.keys)));
        }
        if let Some(uri) = &provider.jwks_uri {
            return self.key_set_for(uri, token, now).await;
        }
        let metadata = self.metadata(provider, now).await?;
        self.key_set_for(metadata.jwks_uri.as_str(), token, now).await
    }

    /// Redeems a code at the provider's token endpoint (OpenID Connect Core 3.1.3).
    pub async fn redeem(
        &self,
        metadata: &Metadata,
        redemption: Redemption<'_>,
    ) -> Result<UpstreamTokens, UpstreamError> {
        let (form, authorization) = redemption.form();
        let request = Request {
            url: &metadata.token_endpoint,
            form: Some(form),
            authorization,
        };
        let body = self.ask(request).await?;
        serde_json::from_slice(&body).map_err(|_| UpstreamError::Malformed("token endpoint"))
    }

    /// Reads what the provider says of the user (OpenID Connect Core 5.3).
    pub async fn userinfo(
        &self,
        endpoint: &Url,
        access_token: &str,
    ) -> Result<Map<String, Value>, UpstreamError> {
        let request = Request {
            url: endpoint,
            form: None,
            authorization: Some(Zeroizing::new(format!("Bearer {access_token}"))),
        };
        let body = self.ask(request).await?;
        serde_json::from_slice(&body).map_err(|_| UpstreamError::Malformed("userinfo endpoint"))
    }

    /// Sends a request whose answer nobody keeps.
    async fn ask(&self, request: Request<'_>) -> Result<Zeroizing<Vec<u8>>, UpstreamError> {
        let address = format!(
            "{}{}",
            request.url.origin().ascii_serialization(),
            request.url.path()
        );
        let response = self.client.send(request).await?;
        let body = Zeroizing::new(response.body);
        if response.status == 200 {
            return Ok(body);
        }
        let error = serde_json::from_slice::<ErrorBody>(&body).map(|body| body.error);
        Err(UpstreamError::Refused {
            address,
            status: response.status,
            error: error_code(&error.unwrap_or_default()),
        })
    }

    /// Fetches again what has grown old, so that no request has to wait for it: what the providers with these issuers
    /// publish, and the keys at the addresses that records name. Anything else belongs to nobody any more and is
    /// forgotten.
    pub async fn refresh(&self, issuers: &[String], jwks_uris: &[String], now: Timestamp) {
        let issuer_at = |address: &str| issuers.iter().find(|issuer| metadata::address(issuer) == address);
        self.metadata.keep(|address| issuer_at(address).is_some());
        let published = self.metadata.documents();
        self.key_sets.keep(|address| {
            let is_published = || {
                published
                    .iter()
                    .any(|metadata| metadata.jwks_uri.as_str() == address)
            };
            jwks_uris.iter().any(|uri| uri == address) || is_published()
        });
        let issuer_of = |address: &str| issuer_at(address).cloned().unwrap_or_default();
        tokio::join!(
            self.key_sets.refresh(now, |address| self.fetch_keys(address)),
            self.metadata
                .refresh(now, |address| self.fetch_metadata(issuer_of(&address))),
        );
    }

    async fn fetch_keys(&self, address: String) -> Fetched<JwkSet> {
        let (body, max_age) = self.fetch(&address).await?;
        let keys = JwkSet::parse(&body).map_err(|problem| format!("the key set at {address}: {problem}"))?;
        Ok((keys, max_age))
    }

    async fn fetch_metadata(&self, issuer: String) -> Fetched<Metadata> {
        let address = metadata::address(&issuer);
        let (body, max_age) = self.fetch(&address).await?;
        let metadata = Metadata::parse(&body, &issuer).map_err(|problem| format!("{address}: {problem}"))?;
        Ok((metadata, max_age))
    }

    async fn fetch(&self, address: &str) -> Result<(Vec<u8>, Option<Duration>), String> {
        let url = metadata::https(address).ok_or_else(|| format!("{address} is not an https address"))?;
        let response = self
            .client
            .send(Request::get(&url))
            .await
            .map_err(|problem| problem.to_string())?;
        if response.status != 200 {
            return Err(format!("{address} answers with status {}", response.status));
        }
        Ok((response.body, response.max_age))
    }
}

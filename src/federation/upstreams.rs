//! Requests to providers, and to clients that publish keys.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use url::Url;
use zeroize::Zeroizing;

use super::authorization::error_code;
use super::cache::{Cache, CachePolicy, Fetched, Published, Unavailable};
use super::id_token::is_signed_by_one_of;
use super::metadata::{self, Metadata};
use super::provider::Provider;
use crate::clock::Timestamp;
use crate::jose::jwk::JwkSet;
use crate::net::outbound::{Client, Request};
pub use crate::net::outbound::{OutboundError, OutboundPolicy, Response, SetupError};
use crate::oauth::assertion::ASSERTION_TYPE;
use crate::oauth::client_document;
use crate::oauth::registration::{MOST_KEYS, RequestedMetadata};
use crate::random::Random;

/// A token request with a code.
pub struct UpstreamCodeExchange<'a> {
    /// The `client_id` of this service at the provider.
    pub client_id: &'a str,
    /// How this service authenticates.
    pub credentials: UpstreamCredentials,
    pub code: &'a str,
    /// `code_verifier`.
    pub code_verifier: &'a str,
    /// `redirect_uri` of the authorization request.
    pub redirect_uri: &'a str,
}

/// How this service authenticates at a provider (OpenID Connect Core 9).
pub enum UpstreamCredentials {
    /// The secret in a Basic header.
    Basic(Zeroizing<String>),
    /// The secret in the body.
    Post(Zeroizing<String>),
    /// An assertion (RFC 7523 section 2.2).
    Assertion(Zeroizing<String>),
}

impl UpstreamCodeExchange<'_> {
    fn request<'url>(&self, token_endpoint: &'url Url) -> Request<'url> {
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", self.code)
            .append_pair("redirect_uri", self.redirect_uri)
            .append_pair("code_verifier", self.code_verifier);
        let mut authorization = None;
        match &self.credentials {
            UpstreamCredentials::Basic(secret) => {
                let pair = Zeroizing::new(format!("{}:{}", encode(self.client_id), encode(secret)));
                let header = format!("Basic {}", STANDARD.encode(pair.as_bytes()));
                authorization = Some(Zeroizing::new(header));
            }
            UpstreamCredentials::Post(secret) => {
                form.append_pair("client_id", self.client_id)
                    .append_pair("client_secret", secret);
            }
            UpstreamCredentials::Assertion(assertion) => {
                form.append_pair("client_id", self.client_id)
                    .append_pair("client_assertion_type", ASSERTION_TYPE)
                    .append_pair("client_assertion", assertion);
            }
        }
        Request {
            form: Some(Zeroizing::new(form.finish())),
            authorization,
            ..Request::get(token_endpoint)
        }
    }
}

/// Why a request to a provider or to a client failed. An error code of the provider is repeated, because it says what to correct.
/// Other text of the provider is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The request could not be sent.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// The request was refused.
    #[error("{address} answers with status {status} {error}")]
    Refused {
        /// The address of the endpoint.
        address: String,
        /// The status code.
        status: u16,
        /// The error code (RFC 6749 section 5.2); empty if there is none.
        error: String,
    },
    /// The response is not the expected JSON.
    #[error("the answer of the {0} is not the JSON object that it should be")]
    Malformed(&'static str),
}

/// The response of a provider's token endpoint.
#[derive(Deserialize)]
pub struct UpstreamTokens {
    /// The ID token, not yet verified.
    pub id_token: Zeroizing<String>,
    pub access_token: Zeroizing<String>,
    /// The lifetime of the access token in seconds, if it can be read.
    #[serde(default, deserialize_with = "lifetime")]
    pub expires_in: Option<u64>,
}

/// Reads `expires_in` (RFC 6749 section 5.1). Some providers write it as a text or with a fraction. Another value
/// counts as omitted, so that the sign-in does not fail.
fn lifetime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let whole = |seconds| {
        Duration::try_from_secs_f64(seconds)
            .ok()
            .map(|span| span.as_secs())
    };
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    })
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
}

/// The longest key set of a client that registered itself.
const MAX_REGISTRANT_KEY_BYTES: usize = 16 * 1024;

/// The client for documents and endpoints of others, with a cache of their documents.
pub struct Upstreams {
    client: Client,
    key_sets: Cache<JwkSet>,
    registrant_key_sets: Cache<JwkSet>,
    metadata: Cache<Metadata>,
    client_documents: Cache<RequestedMetadata>,
}

impl Upstreams {
    /// A client with these settings and an empty cache. `room` is the memory for what clients publish that the operator did
    /// not register, in bytes.
    pub fn new(terms: &OutboundPolicy, room: usize, random: &Random) -> Result<Self, SetupError> {
        let of_registrants = |policy: CachePolicy| policy.within(room / 2);
        Ok(Self {
            client: Client::new(terms)?,
            key_sets: Cache::new(CachePolicy::PUBLISHED, random.clone()),
            registrant_key_sets: Cache::new(of_registrants(CachePolicy::REGISTRANT_KEYS), random.clone()),
            metadata: Cache::new(CachePolicy::PUBLISHED, random.clone()),
            client_documents: Cache::new(of_registrants(CachePolicy::CLIENT_DOCUMENTS), random.clone()),
        })
    }

    /// Fetches an address without the cache.
    pub async fn fetch_uncached(&self, url: &Url) -> Result<Response, OutboundError> {
        self.client.send(Request::get(url)).await
    }

    /// The keys published at `jwks_uri`. If they do not contain the key of `token`, they are fetched again, at most
    /// once a minute.
    pub async fn key_set_for(
        &self,
        jwks_uri: &str,
        token: &str,
        now: Timestamp,
    ) -> Result<Arc<JwkSet>, Unavailable> {
        let suffices = |keys: &JwkSet| is_signed_by_one_of(token, keys);
        self.key_set_that(jwks_uri, suffices, now).await
    }

    /// The keys published at `jwks_uri`. If they do not suffice, they are fetched again, at most once a minute.
    pub async fn key_set_that(
        &self,
        jwks_uri: &str,
        suffices: impl Fn(&JwkSet) -> bool,
        now: Timestamp,
    ) -> Result<Arc<JwkSet>, Unavailable> {
        let fetch = || self.fetch_keys(jwks_uri.to_owned());
        get_key_set(&self.key_sets, jwks_uri, suffices, now, fetch).await
    }

    /// The keys that a client which registered itself publishes at `jwks_uri`, like [`Upstreams::key_set_for`]. They are
    /// fetched only for its requests. `admit` is called before a fetch.
    pub async fn registrant_key_set_for<E>(
        &self,
        jwks_uri: &str,
        token: &str,
        admit: impl FnOnce(&Url) -> Result<(), E>,
        now: Timestamp,
    ) -> Result<Result<Arc<JwkSet>, Unavailable>, E> {
        let url = match parse_address(jwks_uri) {
            Ok(url) => url,
            Err(problem) => return Ok(Err(Unavailable(problem))),
        };
        let suffices = |keys: &JwkSet| is_signed_by_one_of(token, keys);
        if self.registrant_key_sets.would_fetch(jwks_uri, suffices, now) {
            admit(&url)?;
        }
        let fetch = || self.fetch_registrant_keys(jwks_uri, &url);
        Ok(get_key_set(&self.registrant_key_sets, jwks_uri, suffices, now, fetch).await)
    }

    /// The document of the client with this identifier.
    pub async fn client_document(
        &self,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Arc<RequestedMetadata>, Unavailable> {
        let fetch = || self.fetch_client_document(client_id);
        self.client_documents.get(client_id, now, fetch).await
    }

    /// Forgets the document of the client with this identifier, because the client cannot be used.
    pub fn reject_client_document(&self, client_id: &str, problem: String) {
        self.client_documents.reject(client_id, problem);
    }

    /// Whether [`Upstreams::client_document`] would send a request.
    pub fn would_fetch_client_document(&self, client_id: &str, now: Timestamp) -> bool {
        self.client_documents.would_fetch(client_id, |_| true, now)
    }

    /// Whether [`Upstreams::client_document`] would send a request again, after one that failed.
    pub fn would_retry_client_document(&self, client_id: &str, now: Timestamp) -> bool {
        self.client_documents.would_retry(client_id, now)
    }

    pub async fn metadata(&self, provider: &Provider, now: Timestamp) -> Result<Arc<Metadata>, Unavailable> {
        let address = metadata::address(&provider.issuer);
        let fetch = || self.fetch_metadata(provider.issuer.clone());
        self.metadata.get(&address, now, fetch).await
    }

    /// The keys for an ID token of the provider: those of its record, or those that it publishes.
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
        exchange: UpstreamCodeExchange<'_>,
    ) -> Result<UpstreamTokens, UpstreamError> {
        let request = exchange.request(&metadata.token_endpoint);
        self.send(request, "token endpoint").await
    }

    /// Requests the claims of the user from the `UserInfo` endpoint (OpenID Connect Core 5.3).
    pub async fn userinfo(
        &self,
        endpoint: &Url,
        access_token: &str,
    ) -> Result<Map<String, Value>, UpstreamError> {
        let request = Request {
            authorization: Some(Zeroizing::new(format!("Bearer {access_token}"))),
            ..Request::get(endpoint)
        };
        self.send(request, "userinfo endpoint").await
    }

    /// Posts a logout token to a client (OpenID Connect Back-Channel Logout 1.0 section 2.5). Of the response, only the
    /// status and the error code count.
    pub async fn post_logout_token(&self, url: &Url, token: &str) -> Result<(), UpstreamError> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("logout_token", token)
            .finish();
        let request = Request {
            form: Some(Zeroizing::new(form)),
            may_be_local: true,
            ..Request::get(url)
        };
        let response = self.client.send(request).await?;
        if (200..300).contains(&response.status) {
            return Ok(());
        }
        Err(refused(url, response.status, &response.body))
    }

    /// Sends a request and reads the JSON of the response.
    async fn send<T: DeserializeOwned>(
        &self,
        request: Request<'_>,
        endpoint: &'static str,
    ) -> Result<T, UpstreamError> {
        let url = request.url;
        let response = self.client.send(request).await?;
        let body = Zeroizing::new(response.body);
        if response.status == 200 {
            return serde_json::from_slice(&body).map_err(|_| UpstreamError::Malformed(endpoint));
        }
        Err(refused(url, response.status, &body))
    }

    /// Fetches stale documents again, so that no request waits for them: the metadata of the providers with these
    /// issuers, their keys, and the keys at `jwks_uris`. Other documents are removed from the cache.
    pub async fn refresh(&self, issuers: &[String], jwks_uris: &[String], now: Timestamp) {
        let issuer_at = |address: &str| issuers.iter().find(|issuer| metadata::address(issuer) == address);
        self.metadata.retain(|address| issuer_at(address).is_some());
        let published = self.metadata.documents();
        self.key_sets.retain(|address| {
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
        let response = self.fetch(&address).await?;
        Ok(published(parse_keys(&address, &response.body)?, &response))
    }

    async fn fetch_registrant_keys(&self, address: &str, url: &Url) -> Fetched<JwkSet> {
        let request = Request {
            max_bytes: MAX_REGISTRANT_KEY_BYTES,
            ..Request::get(url)
        };
        let response = self.get(address, request).await?;
        let keys = parse_keys(address, &response.body)?;
        if keys.keys.len() > MOST_KEYS {
            return Err(format!("{address}: the set has more than {MOST_KEYS} keys"));
        }
        Ok(published(keys.chosen_by_stranger(), &response))
    }

    async fn fetch_metadata(&self, issuer: String) -> Fetched<Metadata> {
        let address = metadata::address(&issuer);
        let response = self.fetch(&address).await?;
        let metadata = Metadata::parse(&response.body, &issuer);
        let metadata = metadata.map_err(|problem| format!("{address}: {problem}"))?;
        Ok(published(metadata, &response))
    }

    /// The media type of the answer must be JSON, because many hosts answer unknown addresses with a page of their own.
    async fn fetch_client_document(&self, client_id: &str) -> Fetched<RequestedMetadata> {
        let url =
            client_document::address_of(client_id).ok_or("the client_id is not the address of a document")?;
        let request = Request {
            max_bytes: client_document::MAX_BYTES,
            ..Request::get(&url)
        };
        let response = self.get(client_id, request).await?;
        let media_type = response.content_type.clone();
        if media_type != "application/json" && !media_type.ends_with("+json") {
            return Err(format!("{client_id} is not served as application/json"));
        }
        let document = client_document::parse(client_id, &response.body)
            .map_err(|problem| format!("the document at {client_id}: {problem}"))?;
        Ok(published(document, &response))
    }

    async fn fetch(&self, address: &str) -> Result<Response, String> {
        let url = parse_address(address)?;
        self.get(address, Request::get(&url)).await
    }

    async fn get(&self, address: &str, request: Request<'_>) -> Result<Response, String> {
        let response = self.client.send(request).await;
        let response = response.map_err(|problem| problem.to_string())?;
        if response.status != 200 {
            return Err(format!("{address} answers with status {}", response.status));
        }
        Ok(response)
    }
}

fn published<T>(document: T, response: &Response) -> Published<T> {
    Published {
        document,
        max_age: response.max_age,
        weight: weight_of(&response.body),
    }
}

/// The memory that JSON takes at most once it is read, in bytes: its text, and a place for each element and member.
fn weight_of(json: &[u8]) -> usize {
    const PLACE: usize = 128;
    let places = json.split(|&byte| byte == b',').count();
    2 * json.len() + PLACE * places
}

/// The cached keys. If they do not suffice, newer ones are fetched.
async fn get_key_set<F: Future<Output = Fetched<JwkSet>>>(
    cache: &Cache<JwkSet>,
    jwks_uri: &str,
    suffices: impl Fn(&JwkSet) -> bool,
    now: Timestamp,
    fetch: impl Fn() -> F,
) -> Result<Arc<JwkSet>, Unavailable> {
    let known = cache.get(jwks_uri, now, &fetch).await?;
    if suffices(&known) {
        return Ok(known);
    }
    let newer = cache.newer(jwks_uri, &known, now, &fetch).await;
    Ok(newer.unwrap_or(known))
}

/// The error for a response with another status than that of success.
fn refused(url: &Url, status: u16, body: &[u8]) -> UpstreamError {
    let error = serde_json::from_slice::<ErrorBody>(body).map(|body| body.error);
    UpstreamError::Refused {
        address: format!("{}{}", url.origin().ascii_serialization(), url.path()),
        status,
        error: error_code(&error.unwrap_or_default()),
    }
}

fn parse_address(address: &str) -> Result<Url, String> {
    metadata::https(address).ok_or_else(|| format!("{address} is not an https address"))
}

fn parse_keys(address: &str, body: &[u8]) -> Result<JwkSet, String> {
    JwkSet::parse(body).map_err(|problem| format!("the key set at {address}: {problem}"))
}

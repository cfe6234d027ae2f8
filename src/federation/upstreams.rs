//! What providers, and clients that publish keys, are asked over the network.

use std::sync::Arc;
use std::time::Duration;

use super::cache::{Cache, Fetched, Unavailable};
use super::id_token::is_signed_by_one_of;
use super::metadata::{self, Metadata};
use super::provider::Provider;
use crate::clock::Timestamp;
use crate::jose::jwk::JwkSet;
use crate::net::outbound::{Client, Request};
pub use crate::net::outbound::{SetupError, Terms};
use crate::random::Random;

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

    /// The client by which requests leave.
    pub fn client(&self) -> &Client {
        &self.client
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

    /// Fetches again what has grown old, so that no request has to wait for it.
    pub async fn refresh(&self, issuers: &[String], now: Timestamp) {
        let issuer_of = |address: &str| {
            let found = issuers.iter().find(|issuer| metadata::address(issuer) == address);
            found.cloned().unwrap_or_default()
        };
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

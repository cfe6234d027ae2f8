//! A provider as it is shown: the record without its secret.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::provider::{LinkPolicy, UpstreamAuth};
use crate::jose::alg::Algorithm;
use crate::oauth::scope::Scope;

/// A provider as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    /// The name under which the operator knows it.
    pub id: String,
    /// Its issuer identifier.
    pub issuer: String,
    /// The name shown to people.
    pub name: Option<String>,
    /// Whether there is a picture.
    pub has_logo: bool,
    /// The identifier of this service there.
    pub client_id: Option<String>,
    /// Whether the secret that belongs to it is known.
    pub has_secret: bool,
    /// How the service proves there who it is.
    pub auth_method: UpstreamAuth,
    /// What has to be registered there as the redirect URI of this service.
    pub redirect_uri: String,
    /// The scope asked for.
    pub scope: Scope,
    /// Accepted audiences of tokens to be exchanged.
    pub audiences: Vec<String>,
    /// Accepted algorithms.
    pub algs: BTreeSet<Algorithm>,
    /// Its public keys, where the operator gave them.
    pub keys: Vec<Value>,
    /// Where its keys are published, where the operator said so.
    pub jwks_uri: Option<String>,
    /// Whether tokens can be exchanged.
    pub exchange: bool,
    /// How old a token to be exchanged may be, in seconds.
    pub max_age: u64,
    /// Whether somebody unknown becomes a new user.
    pub create_users: bool,
    /// Whether somebody unknown becomes a user that exists.
    pub link: LinkPolicy,
    /// The claim for its access token.
    pub embed_token: Option<String>,
    /// E-mail domains.
    pub domains: Vec<String>,
    /// Claims whose name differs there.
    pub claims: BTreeMap<String, String>,
    /// Whether anybody may come in by it.
    pub enabled: bool,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl ProviderView {
    pub(in crate::admin::provider) fn of(provider: &Provider, issuer: &str) -> Self {
        Self {
            id: provider.id.clone(),
            issuer: provider.issuer.clone(),
            name: provider.name.clone(),
            has_logo: provider.logo.is_some(),
            client_id: provider.client_id.clone(),
            has_secret: provider.sealed_secret.is_some(),
            auth_method: provider.auth_method,
            redirect_uri: provider.redirect_uri(issuer),
            scope: provider.scope.clone(),
            audiences: provider.accepted_audiences().to_vec(),
            algs: provider.algs.clone(),
            keys: provider.keys.clone(),
            jwks_uri: provider.jwks_uri.clone(),
            exchange: provider.exchange,
            max_age: provider.max_age,
            create_users: provider.create_users,
            link: provider.link,
            embed_token: provider.embed_token.clone(),
            domains: provider.domains.clone(),
            claims: provider.claims.clone(),
            enabled: provider.enabled,
            created_at: provider.created_at,
            updated_at: provider.updated_at,
        }
    }
}

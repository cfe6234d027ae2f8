//! The settings of access tokens, by client and API.

use std::time::Duration;

use crate::jose::alg::Algorithm;
use crate::jose::claims::Audience;
use crate::oauth::access_token_typ::AccessTokenTyp;
use crate::oauth::client::Client;
use crate::oauth::policy::Policy;
use crate::oauth::resource::TokenTarget;
use crate::oauth::scope::Scope;

/// The settings of an access token. Those of the API take precedence over those of the client, and those over the
/// service's. For several APIs, the shortest lifetime counts, and the algorithm and `typ` of the first API that has
/// one.
pub(super) struct AccessTokenSettings {
    pub(super) audience: Audience,
    pub(super) lifetime: Duration,
    pub(super) alg: Algorithm,
    pub(super) typ: AccessTokenTyp,
}

impl AccessTokenSettings {
    pub(super) fn of(policy: &Policy, client: &Client, target: &TokenTarget) -> Self {
        let apis = || target.apis.iter().map(|api| &api.metadata);
        let mut audience: Vec<_> = target.apis.iter().map(|api| api.identifier.clone()).collect();
        if audience.is_empty() {
            audience.push(client.audience.as_ref().unwrap_or(&policy.issuer).clone());
        } else if !target.is_exact && target.scope.contains(Scope::OPENID) {
            audience.push(policy.issuer.clone());
        }
        let lifetime = apis().filter_map(|api| api.access_token_lifetime).min();
        let lifetime = lifetime.or(client.access_token_lifetime).map(Duration::from);
        Self {
            audience: Audience::of(audience),
            lifetime: lifetime
                .unwrap_or(policy.lifetimes.access_token)
                .min(policy.key_retention()),
            alg: client.allowed_algorithm(
                apis()
                    .find_map(|api| api.access_token_alg)
                    .or(client.access_token_alg)
                    .unwrap_or(policy.access_token_alg),
            ),
            typ: apis()
                .find_map(|api| api.access_token_typ)
                .or(client.access_token_typ)
                .unwrap_or(policy.access_token_typ),
        }
    }
}

/// How long an access token of this client for these APIs lasts.
pub(super) fn access_token_lifetime(policy: &Policy, client: &Client, target: &TokenTarget) -> Duration {
    AccessTokenSettings::of(policy, client, target).lifetime
}

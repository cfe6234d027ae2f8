//! Checks the settings of a client: the same rules for the operator's commands, for a declared state, and for a client
//! that registers itself.

mod addresses;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use self::addresses::{check_addresses, check_links, check_logout_uri};
use super::Core;
use crate::federation::Provider;
use crate::federation::metadata::https;
use crate::identity::AuthenticationLevel;
use crate::jose::alg::Algorithm;
use crate::oauth::client::{
    Client, ConsentRequirement, GrantType, GroupsClaim, IdTokenContent, PkceRequirement, RefreshPolicy,
    is_theme_name,
};
use crate::oauth::client_certificate::{ExpectedName, NameFault};
use crate::oauth::client_metadata::ClientFields;
use crate::oauth::fields::{Lifetime, Removable};
use crate::oauth::group::Groups;
use crate::oauth::mtls::MtlsPolicy;
use crate::oauth::resource::Apis;
use crate::oauth::scope::Scope;
use crate::oauth::{Fault, FaultCode, Policy};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::PROVIDERS;

const MOST_KEYS: usize = 20;

/// Applies a change to a client. Unless the change names a default scope, it loses what the scope loses.
/// Registered keys and the address of published keys replace each other. A profile sets the fields that the change leaves
/// out.
pub fn apply(mut change: ClientFields, client: &mut Client, faults: &mut Vec<Fault>) {
    change = change.apply_edits(&client.metadata, faults);
    if let Some(Removable(Some(profile))) = change.profile {
        profile.complete(&mut change, &client.metadata);
    }
    let names_default_scope = change.default_scope.is_some();
    let scope_before = client.scope.clone();
    let brings_keys = change.jwks.as_ref().is_some_and(|keys| !keys.is_empty());
    change.apply(&mut client.metadata, faults);
    if !names_default_scope {
        let scope = &client.scope;
        let is_lost = |value: &str| scope_before.contains(value) && !scope.contains(value);
        client.default_scope = client.default_scope.filter(|value| !is_lost(value));
    }
    if brings_keys {
        client.jwks_uri = None;
    } else if client.jwks_uri.is_some() {
        client.jwks.clear();
    }
    client.fit_methods_to_keys();
}

/// Applies the fields of a new client of the operator. Without named grants it gets those of sign-ins, if it has a
/// redirect URI. A client without grants must be declared as such: the returned fault says so.
pub fn apply_to_new(fields: ClientFields, client: &mut Client, faults: &mut Vec<Fault>) -> Option<Fault> {
    let names_grants = fields.grant_types.is_some();
    let names_claims = fields.id_token_claims.is_some();
    apply(fields, client, faults);
    if !names_claims {
        client.id_token_claims = IdTokenContent::of_new_client(client.profile);
    }
    if names_grants {
        return None;
    }
    if client.redirect_uris.is_empty() {
        let detail = "the client has no grant, since it has no redirect URI for sign-ins";
        return Some(FaultCode::Required.at(["redirect_uris", "grant_types"], detail));
    }
    client.grant_types = [GrantType::AuthorizationCode, GrantType::RefreshToken].into();
    None
}

/// Who describes a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthor {
    /// The operator. Settings of the service may follow later.
    Operator,
    /// The client itself. It cannot set what only the operator sets.
    Client,
}

/// What a client is checked against: the records and keys that it names, and the settings.
#[derive(Clone)]
pub struct ClientRules {
    author: ClientAuthor,
    policy: Arc<Policy>,
    /// The algorithms that have a key.
    usable: Vec<Algorithm>,
    apis: Arc<Apis>,
    groups: Arc<Groups>,
    providers: BTreeSet<String>,
    /// The providers at which users cannot sign in.
    exchange_only: BTreeSet<String>,
}

impl ClientRules {
    /// The rules for a client that the operator describes.
    pub fn for_operator<'a>(
        policy: &Arc<Policy>,
        usable: Vec<Algorithm>,
        apis: Apis,
        groups: Groups,
        providers: impl Iterator<Item = &'a Provider> + Clone,
    ) -> Self {
        Self {
            author: ClientAuthor::Operator,
            policy: Arc::clone(policy),
            usable,
            apis: Arc::new(apis),
            groups: Arc::new(groups),
            exchange_only: exchange_only(providers.clone()),
            providers: providers.map(|provider| provider.id.clone()).collect(),
        }
    }

    /// The rules for a client that describes itself.
    pub(in crate::flow) fn for_client(core: &Core) -> Self {
        let catalog = core.catalog();
        let has_key = |alg: &Algorithm| catalog.keyring().signer(*alg).is_some();
        let providers = catalog.providers().map(Arc::as_ref);
        Self {
            author: ClientAuthor::Client,
            policy: Arc::clone(&core.policy),
            usable: Algorithm::SIGNING.into_iter().filter(has_key).collect(),
            apis: Arc::clone(catalog.apis()),
            groups: Arc::clone(catalog.groups()),
            exchange_only: exchange_only(providers),
            providers: catalog.providers().map(|provider| provider.id.clone()).collect(),
        }
    }

    /// The scope that the client may ask for, with that of its APIs.
    pub(in crate::flow) fn allowed_scope(&self, client: &Client) -> Scope {
        self.apis.expand_scope(client.clone()).metadata.scope
    }

    /// Gives the groups of the client the names under which they are registered, so that each is found by every form of its
    /// name.
    pub fn name_groups(&self, client: &mut Client) {
        let named = std::mem::take(&mut client.allowed_groups).into_iter();
        client.allowed_groups = named.map(|name| self.groups.registered_name(name)).collect();
    }

    /// Checks the record as a whole. Addresses and scope values that the client had `before` are not checked again.
    pub fn check(&self, before: Option<&Client>, client: &Client, faults: &mut Vec<Fault>) {
        let client = &self.apis.expand_scope(client.clone());
        self.check_settings(before, client, faults);
        check_certificates(client, &self.policy.mtls, faults);
        match self.author {
            ClientAuthor::Operator => {
                check_lifetime(client.access_token_lifetime, &self.policy, faults);
                self.check_groups(client, faults);
            }
            ClientAuthor::Client => self.check_binding(client, faults),
        }
        for id in client.providers.difference(&self.providers) {
            faults.push(FaultCode::NotFound.at(["providers"], format!("there is no provider {id}")));
        }
        for id in client.apis.iter().filter(|id| !self.apis.contains(id)) {
            faults.push(FaultCode::NotFound.at(["apis"], format!("there is no API {id}")));
        }
    }

    /// Checks which groups may use the client. Only the operator names them.
    fn check_groups(&self, client: &Client, faults: &mut Vec<Fault>) {
        for name in client
            .allowed_groups
            .iter()
            .filter(|name| !self.groups.contains(name))
        {
            let detail = format!("there is no group {name}");
            faults.push(FaultCode::NotFound.at(["allowed_groups"], detail));
        }
        if !client.allowed_groups.is_empty() && client.may_use(GrantType::Anonymous) {
            let detail =
                "anonymous users are in no group, so a client with the grant anonymous is for everybody";
            faults.push(FaultCode::NotAllowed.at(["allowed_groups", "grant_types"], detail));
        }
        if client.allowed_groups.is_empty() && client.groups_claim == GroupsClaim::Allowed {
            let detail = "the claim groups would always be empty, because the client is for everybody";
            faults.push(FaultCode::NotAllowed.at(["groups_claim", "allowed_groups"], detail));
        }
    }

    /// Refuses tokens that are bound to a certificate if the service asks for none.
    fn check_binding(&self, client: &Client, faults: &mut Vec<Fault>) {
        if client.tls_client_certificate_bound_access_tokens && self.policy.mtls.port.is_none() {
            let detail = "the service asks for no client certificates";
            faults.push(FaultCode::NotAllowed.at(["tls_client_certificate_bound_access_tokens"], detail));
        }
    }

    fn check_settings(&self, before: Option<&Client>, client: &Client, faults: &mut Vec<Fault>) {
        let by_client = self.author == ClientAuthor::Client;
        let schemes = Some(&self.policy.registration).filter(|_| by_client);
        check_addresses(before, client, schemes, faults);
        check_logout_uri(client, faults);
        check_links(client, faults);
        if let Some(theme) = client.theme.as_ref().filter(|theme| !is_theme_name(theme)) {
            let detail =
                format!("theme {theme:?}: names of themes are lower-case letters, digits and hyphens");
            faults.push(FaultCode::Invalid.at(["theme"], detail));
        }
        if client.is_public() && client.pkce == PkceRequirement::Optional {
            let detail = "PKCE cannot be optional for a public client";
            faults.push(FaultCode::NotAllowed.at(["pkce"], detail));
        }
        for scope in client.scope_texts.keys() {
            if !client.scope.contains(scope) {
                let detail = format!("scope text {scope:?} is for a scope that the client may not ask for");
                faults.push(FaultCode::NotAllowed.at(["scope_texts", "scope"], detail));
            }
        }
        for value in client.scope.iter() {
            let is_new = before.is_none_or(|before| !before.scope.contains(value));
            if let Some(meant) = Scope::misspelled_standard(value).filter(|_| is_new) {
                let detail = format!("scope {value} is unknown: did you mean {meant}?");
                faults.push(FaultCode::Invalid.at(["scope"], detail));
            }
        }
        let known = before.map(|before| &before.default_scope);
        if !is_allowed(&client.default_scope, client, known) {
            let detail = "the default scope names values that are not allowed";
            faults.push(FaultCode::NotAllowed.at(["default_scope", "scope"], detail));
        }
        check_grants(client, faults);
        check_exchange(client, faults);
        if lets_nobody_in(client, &self.exchange_only) {
            let detail = "users could sign in neither with a password nor at a provider with a client id";
            faults.push(FaultCode::NotAllowed.at(["password_sign_in", "providers"], detail));
        }
        if client.acr == Some(AuthenticationLevel::PhishingResistant) && !client.password_sign_in {
            let detail = "acr phr needs passkeys, which a client without password sign-ins does not accept";
            faults.push(FaultCode::NotAllowed.at(["acr", "password_sign_in"], detail));
        }
        check_refresh_policy(client, faults);
        if client.registered_itself() && client.consent == ConsentRequirement::Skip {
            let detail = "users are always asked about a client that registered itself";
            faults.push(FaultCode::NotAllowed.at(["consent"], detail));
        }
        check_credentials(before, client, faults);
        check_profile(client, faults);
        for (field, alg) in client.signing_algs() {
            if let Some(alg) = alg {
                check_signing(field, alg, &self.usable, faults);
            }
        }
    }
}

/// The providers that are only for token exchange, where users cannot sign in.
pub fn exchange_only<'a>(providers: impl Iterator<Item = &'a Provider>) -> BTreeSet<String> {
    let closed = providers.filter(|provider| !provider.signs_people_in());
    closed.map(|provider| provider.id.clone()).collect()
}

/// The stored providers at which users cannot sign in.
pub fn stored_exchange_only(snapshot: &dyn Snapshot) -> Result<BTreeSet<String>, StoreError> {
    let providers = PROVIDERS.scan(snapshot, .., usize::MAX)?;
    Ok(exchange_only(providers.iter().map(|(_, provider)| provider)))
}

/// Refuses an algorithm that is not among the usable ones, which have a key.
pub fn check_signing(field: &str, alg: Algorithm, usable: &[Algorithm], faults: &mut Vec<Fault>) {
    if !Algorithm::SIGNING.contains(&alg) {
        let detail = format!("{}, not with {alg}", Algorithm::SIGNING_SAID);
        faults.push(FaultCode::Invalid.at([field], detail));
    } else if !usable.contains(&alg) {
        faults.push(FaultCode::NotFound.at([field], format!("there is no key for {alg}")));
    }
}

/// Refuses a lifetime of access tokens that is longer than a key stays published after its last signature.
pub fn check_lifetime(lifetime: Option<Lifetime>, policy: &Policy, faults: &mut Vec<Fault>) {
    let longest = policy.key_retention();
    if lifetime.is_some_and(|lifetime| Duration::from(lifetime) > longest) {
        let detail = format!(
            "an access token may last {} s at most, as long as its key stays published",
            longest.as_secs()
        );
        faults.push(FaultCode::Invalid.at(["access_token_lifetime"], detail));
    }
}

/// Whether the client may have each of these values, or they were in the record before: an API may lose a value later.
fn is_allowed(values: &Scope, client: &Client, before: Option<&Scope>) -> bool {
    let is_known = |value: &str| before.is_some_and(|before| before.contains(value));
    values
        .iter()
        .all(|value| client.scope.contains(value) || is_known(value))
}

/// Checks which grants go together, and with what else of the client.
fn check_grants(client: &Client, faults: &mut Vec<Fault>) {
    let mut refuse = |detail: &str| faults.push(FaultCode::NotAllowed.at(["grant_types"], detail));
    let uses_code = client.may_use(GrantType::AuthorizationCode);
    let is_anonymous = client.may_use(GrantType::Anonymous);
    let exchanges = client.may_use(GrantType::JwtBearer) || client.may_use(GrantType::TokenExchange);
    let is_for_devices = client.may_use(GrantType::DeviceCode);
    if client.grant_types.is_empty() && client.is_public() {
        refuse("a client without grants only introspects tokens, which is for clients that authenticate");
    } else if client.may_use(GrantType::RefreshToken)
        && !(uses_code || is_anonymous || exchanges || is_for_devices)
    {
        refuse(
            "the grant refresh_token needs authorization_code, device_code, anonymous, jwt-bearer or token-exchange as well",
        );
    }
    if is_anonymous && client.is_public() {
        refuse("the grant anonymous is for clients that authenticate, not for public ones");
    }
    if uses_code && client.redirect_uris.is_empty() {
        let detail = "the grant authorization_code needs a redirect URI";
        faults.push(FaultCode::Required.at(["redirect_uris"], detail));
    }
    if !uses_code && !client.redirect_uris.is_empty() {
        let detail = "redirect URIs are for the grant authorization_code";
        faults.push(FaultCode::NotAllowed.at(["grant_types", "redirect_uris"], detail));
    }
}

/// Checks that a refresh token that stays the same is of no use to others: the client authenticates, or its tokens are
/// bound to a key. A device may be unable to store another token, so the operator may allow it an unbound one.
fn check_refresh_policy(client: &Client, faults: &mut Vec<Fault>) {
    let is_device = client.is_public() && client.may_use(GrantType::DeviceCode);
    let is_bound = client.dpop_bound_access_tokens || client.tls_client_certificate_bound_access_tokens;
    let detail = match client.refresh_policy {
        RefreshPolicy::Reuse if client.is_public() && !(is_device && is_bound) => {
            "the refresh policy reuse is for clients that authenticate. A public client with the grant device_code may have \
             it if its tokens are bound to a key, or reuse-unbound"
        }
        RefreshPolicy::ReuseUnbound if !is_device => {
            "the refresh policy reuse-unbound is for public clients with the grant device_code"
        }
        RefreshPolicy::Rotate | RefreshPolicy::Reuse | RefreshPolicy::ReuseUnbound => return,
    };
    faults.push(FaultCode::NotAllowed.at(["refresh_policy"], detail));
}

/// Whether the client is for sign-ins, but no user can sign in. Users cannot sign in at the providers
/// `exchange_only`.
pub fn lets_nobody_in(client: &Client, exchange_only: &BTreeSet<String>) -> bool {
    client.signs_people_in() && !client.password_sign_in && client.providers.is_subset(exchange_only)
}

/// Checks what a client needs to exchange tokens.
fn check_exchange(client: &Client, faults: &mut Vec<Fault>) {
    let exchanges_assertions = client.may_use(GrantType::JwtBearer);
    if !exchanges_assertions && !client.may_use(GrantType::TokenExchange) {
        return;
    }
    if client.is_public() {
        let detail =
            "the grants jwt-bearer and token-exchange are for clients that authenticate, not for public ones";
        faults.push(FaultCode::NotAllowed.at(["grant_types"], detail));
    }
    if exchanges_assertions && client.providers.is_empty() {
        faults.push(FaultCode::Required.at(["providers"], "the grant jwt-bearer needs a provider"));
    }
    if client.consent == ConsentRequirement::Require && !client.signs_people_in() {
        let detail = "consent is asked at a sign-in, which needs the grant authorization_code and a redirect URI, or \
                      the grant device_code";
        faults.push(FaultCode::NotAllowed.at(["consent", "grant_types", "redirect_uris"], detail));
    }
}

/// Checks the keys and secrets of a client, and what it may do with them.
fn check_credentials(before: Option<&Client>, client: &Client, faults: &mut Vec<Fault>) {
    if client.jwks.len() > MOST_KEYS {
        let detail = format!("there are more than {MOST_KEYS} keys in the set");
        faults.push(FaultCode::TooMany.at(["keys"], detail));
    }
    if let Some(uri) = client.jwks_uri.as_ref().filter(|uri| https(uri).is_none()) {
        let detail = format!("jwks uri {uri:?} is not an https address");
        faults.push(FaultCode::Invalid.at(["jwks_uri"], detail));
    }
    let acts_for_itself = client.may_use(GrantType::ClientCredentials);
    if !client.is_public() && client.secrets.is_empty() && !authenticates_by_key(client) {
        let detail = match client.profile {
            Some(_) => "the client needs a key to authenticate with",
            None => "the client needs a key or a secret to authenticate with",
        };
        faults.push(FaultCode::Required.at(["keys", "jwks_uri"], detail));
    }
    if client.is_public() && (acts_for_itself || authenticates_by_key(client)) {
        let detail = "a public client has no key and cannot use client_credentials";
        faults.push(FaultCode::NotAllowed.at(["grant_types", "keys", "jwks_uri"], detail));
    } else if acts_for_itself && !authenticates_by_key(client) && client.max_scope.is_none() {
        let detail =
            "the grant client_credentials needs a key, or a secret with a scope limit, which is less secure";
        faults.push(FaultCode::Required.at(["keys", "jwks_uri", "max_scope"], detail));
    }
    if client.require_signed_request_object && !client.has_keys() {
        let detail = "request objects can be signed only by a client that has a key";
        faults.push(FaultCode::Required.at(["keys", "jwks_uri"], detail));
    }
    let Some(most) = &client.max_scope else { return };
    if !acts_for_itself {
        let detail = "max scope is for the grant client_credentials";
        faults.push(FaultCode::NotAllowed.at(["max_scope", "grant_types"], detail));
    }
    if !client.uses_secret() {
        let detail = "max scope is for clients that have a secret";
        faults.push(FaultCode::NotAllowed.at(["max_scope"], detail));
    }
    let known = before.and_then(|before| before.max_scope.as_ref());
    if !is_allowed(most, client, known) {
        let detail = "max scope names values that are not allowed";
        faults.push(FaultCode::NotAllowed.at(["max_scope", "scope"], detail));
    }
}

/// Whether the client authenticates with a key: with assertions, or with a certificate.
fn authenticates_by_key(client: &Client) -> bool {
    client.has_keys() || client.has_certificate_name()
}

/// Checks the settings of a client that concern certificates. A name in a certificate needs an authority in `tls.mtls_ca`.
fn check_certificates(client: &Client, mtls: &MtlsPolicy, faults: &mut Vec<Fault>) {
    let names: Vec<_> = ExpectedName::fields(&client.metadata).collect();
    for (field, value) in &names {
        if let Err(NameFault { field, problem }) = ExpectedName::parse(field, value) {
            faults.push(FaultCode::Invalid.at([field], format!("{field} = {problem}")));
        }
    }
    if let Some((field, _)) = names.first() {
        let mut refuse = |detail: &str| faults.push(FaultCode::NotAllowed.at([field], detail));
        if names.len() > 1 {
            refuse("a client is known by one name in its certificate: its subject, or one alternative name");
        }
        if !mtls.has_authorities {
            refuse(
                "tls.mtls_ca names no authority, so no certificate can authenticate this client: set tls.mtls_ca first",
            );
        }
        if client.self_signed_tls_client_auth {
            refuse("a client has a certificate of an authority or a self-signed one, not both");
        }
    }
    if client.registered_itself() {
        let is_self_signed = client.self_signed_tls_client_auth;
        let own_key = is_self_signed.then_some("self_signed_tls_client_auth");
        let detail = "a client that registered itself cannot authenticate with a certificate";
        let fields = names.iter().map(|(field, _)| *field).chain(own_key);
        faults.extend(fields.map(|field| FaultCode::NotAllowed.at([field], detail)));
    }
    if client.self_signed_tls_client_auth {
        if client.is_public() {
            let detail = "a public client does not authenticate";
            faults.push(FaultCode::NotAllowed.at(["self_signed_tls_client_auth"], detail));
        }
        if !client.has_keys() {
            let detail = "a self-signed certificate is known by its key: register the key";
            faults.push(FaultCode::Required.at(["keys", "jwks_uri"], detail));
        }
    }
    if client.tls_client_certificate_bound_access_tokens && client.dpop_bound_access_tokens {
        let detail = "a token is bound to a certificate or to a DPoP key, not to both";
        let fields = [
            "tls_client_certificate_bound_access_tokens",
            "dpop_bound_access_tokens",
        ];
        faults.push(FaultCode::NotAllowed.at(fields, detail));
    }
}

fn check_profile(client: &Client, faults: &mut Vec<Fault>) {
    let Some(profile) = client.profile else { return };
    let name = profile.as_str();
    for broken in profile.broken_rules(&client.metadata, &client.token_endpoint_auth_methods) {
        let detail = format!(
            "the profile {name} forbids it: {} ({})",
            broken.problem, broken.rule
        );
        faults.push(match broken.field {
            "profile" => FaultCode::NotAllowed.at(["profile"], detail),
            field => FaultCode::NotAllowed.at([field, "profile"], detail),
        });
    }
    if !client.api_keys.is_empty() {
        let detail =
            format!("the profile {name} forbids API keys: revoke them with idsvc client api-key revoke");
        faults.push(FaultCode::NotAllowed.at(["profile"], detail));
    }
}

/// Checks an identifier, which must fit in headers, forms and log lines without escapes.
pub fn check_client_id(client_id: &str, faults: &mut Vec<Fault>) {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/~@-".contains(&byte);
    if client_id.is_empty() || client_id.len() > 200 || !client_id.bytes().all(is_fit) {
        let detail = format!("client id {client_id:?}: use 1 to 200 letters, digits and . _ : / ~ @ -");
        faults.push(FaultCode::Invalid.at(["client_id"], detail));
    }
}

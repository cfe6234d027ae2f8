//! Clients, APIs, scope values, groups, providers and keys in memory. A change replaces the whole catalog, but for the clients
//! that nobody vouches for ([`Registrants`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use uuid::Uuid;

use super::catalog_rows::{OtherRows, Rows, is_vouched_for};
use super::registrants::Registrants;
use super::rotate_keys::open_signing_key;
use super::rotate_keys::refresh_keys::open_refresh_key;
use super::{Failure, OpenError};
use crate::federation::Provider;
use crate::identity::User;
use crate::jose::alg::Algorithm;
use crate::jose::jwk::{JwkSet, PublicKey};
use crate::jose::jwt::Encoder;
use crate::jose::keyring::{KeyState, Keyring};
use crate::oauth::access_token::AccessTokenTyp;
use crate::oauth::client::GrantType;
use crate::oauth::group::Groups;
use crate::oauth::login::ResolvedPurpose;
use crate::oauth::openid::claims::UserClaims;
use crate::oauth::refresh_keys::{PresentedRefreshToken, RefreshKeys, RefreshTokenId};
use crate::oauth::registered_scope::RegisteredScopes;
use crate::oauth::resource::Apis;
use crate::oauth::scope::Scope;
use crate::oauth::{Api, Client};
use crate::seal::Sealer;
use crate::secret::{ApiKey, Digest};
#[cfg(feature = "postgres")]
use crate::store::catalog_use::{note_client, note_miss};
use crate::store::engine::Snapshot;
use crate::store::records::KeyLifecycle;
use crate::store::tables::{APIS, CLIENTS};
use crate::store::{CatalogReader, ChangedRows, Store, StoreError};

/// `typ` of ID tokens.
pub const ID_TOKEN_TYP: &str = AccessTokenTyp::Jwt.as_str();

/// The clients, APIs, scope values, groups, providers and keys of one moment. The scope of a client includes the scope
/// values of its APIs.
#[derive(Clone)]
pub struct Catalog {
    /// Those that the operator vouches for.
    clients: HashMap<String, Arc<Client>>,
    registrants: Arc<Registrants>,
    client_keys: HashMap<String, Arc<JwkSet>>,
    /// The scope that each client with the grant `client_credentials` may get for itself, by client id.
    client_credentials_scopes: HashMap<String, Scope>,
    api_keys: HashMap<[u8; 32], (Uuid, Arc<Client>)>,
    providers: BTreeMap<String, Arc<Provider>>,
    apis: Arc<Apis>,
    scopes: Arc<RegisteredScopes>,
    groups: Arc<Groups>,
    /// How many redirect URIs and settings of clients in service allow each origin.
    origins: HashMap<Arc<str>, u32>,
    /// The scope values that an API has or a client may ask for.
    scope_values: HashSet<String>,
    keyring: Keyring,
    refresh_keys: RefreshKeys,
    encoders: Vec<(Algorithm, AccessTokenTyp, Encoder)>,
    /// How often the store had been reopened when this was read.
    reopenings: u64,
}

/// What is read again of a catalog.
enum Update {
    Whole(Box<Rows>),
    Parts {
        client_ids: Vec<String>,
        /// The clients of these identifiers that are there.
        clients: Vec<Client>,
        others: Option<OtherRows>,
    },
}

impl Update {
    /// Without the changed rows, everything is read. The same if an API has changed: that changes the scope of clients.
    fn read(snapshot: &dyn Snapshot, changed: Option<&ChangedRows>, room: usize) -> Result<Self, StoreError> {
        let Some(changed) = changed.filter(|changed| !changed.has_any_of(APIS.id())) else {
            return Ok(Self::Whole(Box::new(Rows::read(snapshot, room)?)));
        };
        let client_ids = changed.keys(&CLIENTS);
        let clients = client_ids.iter().map(|id| CLIENTS.get(snapshot, id));
        let clients = clients.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let changes_others = OtherRows::TABLES
            .into_iter()
            .any(|table| changed.has_any_of(table));
        let others = changes_others.then(|| OtherRows::read(snapshot)).transpose()?;
        Ok(Self::Parts {
            client_ids,
            clients,
            others,
        })
    }

    fn apply(self, catalog: &ArcSwap<Catalog>, sealer: &Sealer) -> Result<(), OpenError> {
        match self {
            Self::Whole(rows) => catalog.store(Arc::new(Catalog::new(*rows, sealer, 0)?)),
            Self::Parts {
                client_ids,
                clients,
                others,
            } => {
                let present = catalog.load();
                if present.change_registrants(&client_ids, &clients) || others.is_some() {
                    let mut changed = present.with_changed(&client_ids, clients, 0);
                    if let Some(others) = others {
                        changed.set_others(others, sealer)?;
                    }
                    catalog.store(Arc::new(changed));
                }
            }
        }
        Ok(())
    }
}

impl Catalog {
    pub async fn load(store: &Store, sealer: &Sealer, room: usize) -> Result<Self, OpenError> {
        let reopenings = store.reopenings();
        let rows = store.read(|snapshot| Rows::read(snapshot, room)).await?;
        Self::new(rows, sealer, reopenings)
    }

    /// Like [`Catalog::load`], for callers that may block.
    pub fn load_blocking(store: &Store, sealer: &Sealer, room: usize) -> Result<Self, OpenError> {
        let reopenings = store.reopenings();
        let rows = store.read_blocking(|snapshot| Rows::read(snapshot, room))?;
        Self::new(rows, sealer, reopenings)
    }

    /// Checks that the catalog of a state can be read.
    pub fn check(snapshot: &dyn Snapshot, sealer: &Sealer) -> Result<(), OpenError> {
        Self::new(Rows::read(snapshot, 0)?, sealer, 0).map(drop)
    }

    /// Reads the catalog of a store that several nodes share, and puts it into `catalog`.
    pub(super) fn reader(catalog: &Arc<ArcSwap<Self>>, sealer: &Arc<Sealer>, room: usize) -> CatalogReader {
        let (catalog, sealer) = (Arc::clone(catalog), Arc::clone(sealer));
        Box::new(move |snapshot, changed| {
            let update = Update::read(snapshot, changed, room)?;
            let (catalog, sealer) = (Arc::clone(&catalog), Arc::clone(&sealer));
            Ok(Box::new(move || {
                let applied = update.apply(&catalog, &sealer);
                applied.map_err(|error| StoreError::Damaged(error.to_string()))
            }))
        })
    }

    fn new(rows: Rows, sealer: &Sealer, reopenings: u64) -> Result<Self, OpenError> {
        let mut catalog = Self {
            clients: HashMap::new(),
            registrants: Arc::new(rows.registrants),
            client_keys: HashMap::new(),
            client_credentials_scopes: HashMap::new(),
            api_keys: HashMap::new(),
            providers: BTreeMap::new(),
            apis: Arc::default(),
            scopes: Arc::default(),
            groups: Arc::default(),
            origins: HashMap::new(),
            scope_values: HashSet::new(),
            keyring: Keyring::new(Vec::new()),
            refresh_keys: RefreshKeys::default(),
            encoders: Vec::new(),
            reopenings,
        };
        catalog.set_others(rows.others, sealer)?;
        catalog.set_apis(rows.apis);
        let of_apis = catalog.apis.iter().flat_map(|api| api.metadata.scope.iter());
        catalog.scope_values = of_apis.map(ToOwned::to_owned).collect();
        catalog.scope_values.extend(rows.registrant_scopes);
        for client in rows.clients {
            catalog.add(client);
        }
        Ok(catalog)
    }

    fn set_others(&mut self, rows: OtherRows, sealer: &Sealer) -> Result<(), OpenError> {
        let mut keys = Vec::new();
        for (kid, record) in rows.signing_keys {
            let state = match record.standing {
                KeyLifecycle::Announced { .. } => KeyState::Announced,
                KeyLifecycle::Active { .. } => KeyState::Active,
                KeyLifecycle::Retired { .. } => KeyState::Retired,
            };
            keys.push((open_signing_key(sealer, &kid, &record)?, state));
        }
        self.keyring = Keyring::new(keys);
        let refresh_keys = rows.refresh_keys.into_iter();
        let refresh_keys: Vec<_> = refresh_keys
            .map(|(number, record)| Ok((number, open_refresh_key(sealer, number, &record)?)))
            .collect::<Result<_, OpenError>>()?;
        self.refresh_keys = RefreshKeys::new(refresh_keys);
        let signers = Algorithm::SIGNING.into_iter();
        let signers = signers.filter_map(|alg| self.keyring.signer(alg));
        self.encoders = signers
            .flat_map(|key| AccessTokenTyp::ALL.map(|typ| (key.alg(), typ, Encoder::new(key, typ.as_str()))))
            .collect();
        let providers = rows.providers.into_iter();
        self.providers = providers.map(|(id, provider)| (id, Arc::new(provider))).collect();
        let scopes = rows.scopes.into_iter().map(|(_, scope)| scope);
        self.scopes = Arc::new(RegisteredScopes::new(scopes));
        let groups = rows.groups.into_iter().map(|(name, group)| (name, group.uuid));
        self.groups = Arc::new(Groups::new(groups));
        Ok(())
    }

    /// The longest lifetime that an access token can have. `default` is for clients and APIs without one of their own.
    pub fn longest_access_token(&self, default: Duration) -> Duration {
        let of_clients = self.clients.values().map(|client| client.access_token_lifetime);
        let of_apis = self.apis.iter().map(|api| api.access_token_lifetime);
        let own = of_clients.chain(of_apis).flatten().map(Duration::from);
        own.fold(default, Duration::max)
    }

    /// Adds a client that is not in the catalog, with the scope of [`Apis::expand_scope`].
    fn add(&mut self, client: Client) {
        if client.may_use(GrantType::ClientCredentials) {
            let own = self.apis.scope_without_user(&client);
            self.client_credentials_scopes
                .insert(client.client_id.clone(), own);
        }
        let client = Arc::new(self.expand_scope(client));
        for origin in allowed_origins(&client) {
            *self.origins.entry(origin.into()).or_default() += 1;
        }
        self.scope_values
            .extend(client.scope.iter().map(ToOwned::to_owned));
        if !client.jwks.is_empty() {
            let keys = Arc::new(client.key_set());
            self.client_keys.insert(client.client_id.clone(), keys);
        }
        for key in &client.api_keys {
            let entry = (key.id, Arc::clone(&client));
            self.api_keys.insert(*key.digest.as_bytes(), entry);
        }
        self.clients.insert(client.client_id.clone(), client);
    }

    /// Removes a client. Its scope values stay until the whole catalog is read: they only tell which values nobody has.
    fn remove(&mut self, client_id: &str) {
        self.client_keys.remove(client_id);
        self.client_credentials_scopes.remove(client_id);
        let Some(client) = self.clients.remove(client_id) else {
            return;
        };
        for key in &client.api_keys {
            self.api_keys.remove(key.digest.as_bytes());
        }
        for origin in allowed_origins(&client) {
            if let Some(count) = self.origins.get_mut(&*origin) {
                *count -= 1;
                if *count == 0 {
                    self.origins.remove(&*origin);
                }
            }
        }
    }

    /// Adds the scope values of the APIs that the client may name to its scope. Default scope values outside of this
    /// scope are removed.
    pub(super) fn expand_scope(&self, client: Client) -> Client {
        let mut client = self.apis.expand_scope(client);
        client.default_scope = client.default_scope.filter(|value| client.scope.contains(value));
        client
    }

    /// The same catalog with `clients` in place of those of these identifiers, unless it needs a copy for that
    /// ([`Catalog::with_changed`]). Clients that nobody vouches for are changed in place.
    pub(super) fn change_registrants(&self, client_ids: &[String], clients: &[Client]) -> bool {
        for client_id in client_ids {
            let now = clients.iter().find(|client| client.client_id == *client_id);
            self.registrants
                .follow_store(client_id, now.filter(|client| !is_vouched_for(client)));
        }
        let is_named = |client_id: &String| {
            self.apis
                .iter()
                .any(|api| api.introspection_clients.contains(client_id))
        };
        client_ids
            .iter()
            .any(|client_id| self.clients.contains_key(client_id) || is_named(client_id))
            || clients.iter().any(is_vouched_for)
    }

    /// A copy of this catalog, without the clients `client_ids` and with those of `clients` that the operator vouches for. The
    /// other records are shared, so the copy takes far less time than to read them again. `reopenings` is the count before
    /// `clients` were read.
    #[must_use]
    pub(super) fn with_changed(&self, client_ids: &[String], clients: Vec<Client>, reopenings: u64) -> Self {
        let mut catalog = self.clone();
        catalog.reopenings = catalog.reopenings.min(reopenings);
        for client_id in client_ids {
            catalog.remove(client_id);
        }
        for client in clients.into_iter().filter(is_vouched_for) {
            catalog.add(client);
        }
        catalog
    }

    /// Replaces the APIs. Clients keep their scope, so the scope of the APIs must not have changed.
    pub(super) fn set_apis(&mut self, apis: Vec<(String, Api)>) {
        self.apis = Arc::new(Apis::new(apis.into_iter().map(|(_, api)| api)));
    }

    /// Whether the store was not reopened since this was read.
    pub(super) fn is_of(&self, store: &Store) -> bool {
        self.reopenings == store.reopenings()
    }

    /// The client with this identifier, enabled or not.
    pub fn client(&self, client_id: &str) -> Option<Arc<Client>> {
        #[cfg(feature = "postgres")]
        note_client(client_id);
        let vouched_for = self.clients.get(client_id).cloned();
        let expand = |client| self.expand_scope(client);
        found(vouched_for.or_else(|| self.registrants.get(client_id, expand)))
    }

    /// The clients that nobody vouches for.
    pub fn registrants(&self) -> &Arc<Registrants> {
        &self.registrants
    }

    /// The keys that are registered with the client. `None` if there are none, or if the client publishes them.
    pub fn client_keys(&self, client: &Client) -> Option<Arc<JwkSet>> {
        let parsed = self.client_keys.get(&client.client_id).cloned();
        let parse = || (!client.jwks.is_empty()).then(|| Arc::new(client.key_set()));
        parsed.or_else(parse)
    }

    /// The scope that a client may get for itself, without a user.
    pub fn client_credentials_scope(&self, client_id: &str) -> Scope {
        self.client_credentials_scopes
            .get(client_id)
            .cloned()
            .unwrap_or_default()
    }

    /// The provider with this id, enabled or not.
    pub fn provider(&self, id: &str) -> Option<&Arc<Provider>> {
        found(self.providers.get(id))
    }

    /// The provider of this issuer, enabled or not.
    pub fn provider_of(&self, issuer: &str) -> Option<&Arc<Provider>> {
        found(self.providers.values().find(|provider| provider.issuer == issuer))
    }

    /// The providers in service at which a user can sign in for this purpose, by id.
    pub fn offered_for(&self, purpose: &ResolvedPurpose) -> Vec<Arc<Provider>> {
        let is_offered = |provider: &&Arc<Provider>| {
            provider.enabled && provider.signs_people_in() && purpose.accepts_provider(&provider.id)
        };
        self.providers.values().filter(is_offered).cloned().collect()
    }

    /// Every provider by id, enabled or not.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.values()
    }

    /// The addresses, in the records of the operator's clients and of providers, at which these publish their keys.
    pub fn jwks_uris(&self) -> Vec<String> {
        let clients = self.clients.values().filter(|client| !client.registered_itself());
        let providers = self.providers.values();
        clients
            .filter_map(|client| client.jwks_uri.clone())
            .chain(providers.filter_map(|provider| provider.jwks_uri.clone()))
            .collect()
    }

    /// The id of the API key with this digest, and its client, enabled or not.
    pub fn api_key(&self, digest: &Digest<ApiKey>) -> Option<(Uuid, &Arc<Client>)> {
        let (id, client) = found(self.api_keys.get(digest.as_bytes()))?;
        #[cfg(feature = "postgres")]
        note_client(&client.client_id);
        Some((*id, client))
    }

    pub fn apis(&self) -> &Arc<Apis> {
        &self.apis
    }

    /// The scope values that the operator registered.
    pub fn scopes(&self) -> &RegisteredScopes {
        &self.scopes
    }

    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// The claims of a user, as this client gets them.
    pub fn claims_of<'a>(&'a self, user: &'a User, client: &'a Client) -> UserClaims<'a> {
        UserClaims {
            user,
            client,
            groups: &self.groups,
            scopes: &self.scopes,
        }
    }

    /// Every client that the operator vouches for, enabled or not, in no order.
    pub fn clients(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.clients.values()
    }

    /// Whether scripts of this origin may call the endpoints that clients call.
    pub fn allows_origin(&self, origin: &str) -> bool {
        let is_allowed = self.origins.contains_key(origin) || self.registrants.allows_origin(origin);
        found(is_allowed.then_some(())).is_some()
    }

    /// Whether an API has this scope value, or a client, enabled or not, may ask for it.
    pub fn has_scope(&self, value: &str) -> bool {
        found(self.scope_values.get(value)).is_some()
    }

    /// The signing keys.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// The public key of this signing key.
    pub fn verifier(&self, kid: &str) -> Option<&PublicKey> {
        found(self.keyring.verifier(kid))
    }

    /// The refresh token that was presented, if one of the keys derived it.
    pub fn verify_refresh_token(&self, token: &PresentedRefreshToken) -> Option<RefreshTokenId> {
        found(self.refresh_keys.verify(token))
    }

    /// The keys from which refresh tokens are derived.
    pub fn refresh_keys(&self) -> &RefreshKeys {
        &self.refresh_keys
    }

    /// The encoder that signs access tokens with this algorithm and `typ`.
    pub fn access_token_encoder(&self, alg: Algorithm, typ: AccessTokenTyp) -> Result<&Encoder, Failure> {
        let is_it = |(its_alg, its_typ, _): &&(Algorithm, AccessTokenTyp, Encoder)| {
            *its_alg == alg && *its_typ == typ
        };
        let found = self.encoders.iter().find(is_it);
        found
            .map(|(.., encoder)| encoder)
            .ok_or(Failure::NoKey(alg.as_str()))
    }

    /// The encoder that signs ID tokens and authorization responses with this algorithm.
    pub fn id_token_encoder(&self, alg: Algorithm) -> Result<&Encoder, Failure> {
        self.access_token_encoder(alg, AccessTokenTyp::Jwt)
    }
}

/// Returns what was found. If nothing was, notes that another node may have added it.
fn found<T>(found: Option<T>) -> Option<T> {
    #[cfg(feature = "postgres")]
    if found.is_none() {
        note_miss();
    }
    found
}

/// The origins whose scripts may call endpoints because of this client. An origin that the record names twice occurs
/// twice.
fn allowed_origins(client: &Client) -> impl Iterator<Item = String> {
    client.origins().filter(|_| client.enabled)
}

//! The running service: what every request is answered with, built once and shared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

use crate::flow::{Catalog, Core};
use crate::metrics::Metrics;
use crate::oauth::Scope;
use crate::oauth::metadata::Metadata;
use crate::page::{Locale, Theme};
use crate::route::Route;

/// The running service.
pub struct App {
    /// The use cases and what they need.
    pub core: Core,
    /// What is counted.
    pub metrics: Metrics,
    /// How pages look.
    pub theme: Theme,
    /// The path of the issuer, empty for most; every route lies below it.
    pub issuer_path: String,
    /// The origin of the issuer, where the service's own forms come from.
    pub issuer_origin: String,
    /// Proxies whose word about the client's address is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The page that shows a sign-in, in development only.
    pub dev: Option<DevSite>,
    metadata: ArcSwapOption<(Arc<Catalog>, Bytes)>,
    bodies: Arc<Semaphore>,
}

/// All the bodies that are being read or answered at one moment, in KiB: 64 MiB.
const BODIES_KIB: usize = 64 * 1024;

/// The development server's own relying party.
pub struct DevSite {
    /// Its client identifier.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Zeroizing<String>,
    /// The example user's name, to be shown.
    pub username: String,
    pending: Mutex<HashMap<String, Zeroizing<String>>>,
}

impl DevSite {
    /// At most so many sign-ins may be under way.
    const PENDING: usize = 1_000;

    /// The relying party of this client.
    pub fn new(client_id: String, client_secret: Zeroizing<String>, username: String) -> Self {
        Self {
            client_id,
            client_secret,
            username,
            pending: Mutex::default(),
        }
    }

    /// Remembers the `code_verifier` of a sign-in by its `state`.
    pub fn remember(&self, state: String, code_verifier: Zeroizing<String>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() >= Self::PENDING {
            pending.clear();
        }
        pending.insert(state, code_verifier);
    }

    /// The `code_verifier` of a sign-in, once.
    pub fn recall(&self, state: &str) -> Option<Zeroizing<String>> {
        self.pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(state)
    }
}

impl App {
    /// The service of this core.
    pub fn new(core: Core, trusted_proxies: Vec<IpNet>, dev: Option<DevSite>) -> Self {
        let issuer = url::Url::parse(&core.policy.issuer).ok();
        let issuer_path = issuer
            .as_ref()
            .map(|url| url.path().trim_end_matches('/').to_owned())
            .unwrap_or_default();
        let issuer_origin = issuer
            .map(|url| url.origin().ascii_serialization())
            .unwrap_or_default();
        let theme = Theme::built_in(&issuer_path);
        Self {
            core,
            metrics: Metrics::default(),
            theme,
            issuer_path,
            issuer_origin,
            trusted_proxies,
            dev,
            metadata: ArcSwapOption::empty(),
            bodies: Arc::new(Semaphore::new(BODIES_KIB)),
        }
    }

    /// Room for a body of so many bytes, for as long as what comes back is kept; nothing when too many are
    /// being read already. Without it, peers that send slowly could fill the memory together.
    pub fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
        Arc::clone(&self.bodies).try_acquire_many_owned(kib).ok()
    }

    /// The address of a route.
    pub fn url(&self, route: &Route) -> String {
        route.url(&self.core.policy.issuer)
    }

    /// The path of a route as a browser sees it.
    pub fn path(&self, route: &Route) -> String {
        format!("{}{}", self.issuer_path, route.path())
    }

    /// The discovery document, made anew when clients or keys have changed.
    pub fn metadata(&self) -> Bytes {
        let catalog = self.core.catalog();
        if let Some(made) = &*self.metadata.load()
            && Arc::ptr_eq(&made.0, &catalog)
        {
            return made.1.clone();
        }
        let document = Bytes::from(self.describe(&catalog));
        self.metadata.store(Some(Arc::new((catalog, document.clone()))));
        document
    }

    fn describe(&self, catalog: &Catalog) -> String {
        let standard = Scope::of(Scope::STANDARD).unwrap_or_default();
        let enabled = catalog.clients().filter(|client| client.enabled);
        let mut own: Vec<&str> = enabled.flat_map(|client| client.scope.iter()).collect();
        own.sort_unstable();
        let metadata = Metadata {
            issuer: &self.core.policy.issuer,
            service_name: &self.core.policy.service_name,
            authorization_endpoint: self.url(&Route::Authorize),
            token_endpoint: self.url(&Route::Token),
            jwks_uri: self.url(&Route::Jwks),
            userinfo_endpoint: self.url(&Route::UserInfo),
            introspection_endpoint: self.url(&Route::Introspect),
            revocation_endpoint: self.url(&Route::Revoke),
            refresh_endpoint: self.url(&Route::Refresh),
            end_session_endpoint: self.url(&Route::EndSession),
            signing_algs: catalog.keyring().algorithms(),
            scopes: own.into_iter().fold(standard, Scope::with),
            ui_locales: &Locale::SUPPORTED.map(Locale::tag),
        };
        metadata.document().to_string()
    }
}

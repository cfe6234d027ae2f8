//! The running service: what every request is answered with, built once and shared.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use ipnet::IpNet;
use ring::digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

use crate::data_dir::disk::{LEAST_TO_WRITE, Space, space};
use crate::flow::{Catalog, Core};
use crate::hex;
use crate::limit::concurrency::Permit;
use crate::limit::{ALL_BODIES_KIB, ALL_REQUESTS, LimitPolicy, Limiter};
use crate::oauth::Scope;
use crate::oauth::metadata::Metadata;
use crate::oauth::redirect_uri::is_on_this_machine;
use crate::observe::metrics::Metrics;
use crate::pages::Locale;
use crate::route::{DISCOVERED, Route};
use crate::themes::theme_set::{ThemeSet, Themes};

/// The running service.
pub struct App {
    /// The use cases and what they need.
    pub core: Core,
    /// What is counted.
    pub metrics: Metrics,
    /// How pages look.
    pub themes: Themes,
    /// The path of the issuer, empty for most; every route lies below it.
    pub issuer_path: String,
    /// The origin of the issuer, where the service's own forms come from.
    pub issuer_origin: String,
    /// Names besides the issuer's that browsers reach this process by, without a proxy that could put another one in the
    /// place of what they asked for.
    pub other_names: Vec<String>,
    /// Whether browsers are told to keep to TLS with this host (RFC 6797). Where the issuer is this machine, they would
    /// keep to it with every other service on it, too, whatever its port.
    pub has_hsts: bool,
    /// Proxies whose word about the client's address is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// What strangers may do how often.
    pub limits: Limiter,
    /// The page that shows a sign-in, in development only.
    pub dev: Option<DevSite>,
    /// Why nobody can reach the service yet, such as for want of a certificate.
    pub unreachable: ArcSwapOption<String>,
    /// Where the data is, unless it is in memory.
    data_dir: Option<PathBuf>,
    /// Bytes of the database that count as room, as they were last measured, without what was let in since.
    spare: AtomicU64,
    documents: ArcSwapOption<Documents>,
    /// Drawn at the start, so that names of requests differ between processes.
    process: u32,
    requests: AtomicU32,
    bodies: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// The most that the database grows by when a stranger begins something, in bytes: the longest request, with the pages
/// that change along.
const MOST_BEGUN: u64 = 32 << 10;

/// What everybody may read, made anew when clients, keys or languages have changed.
pub struct Documents {
    /// The discovery document.
    pub discovery: Document,
    /// The public keys.
    pub jwks: Document,
    catalog: Arc<Catalog>,
    theme_set: Arc<ThemeSet>,
}

/// A document and what tells whether somebody has it already.
pub struct Document {
    /// The document.
    pub body: Bytes,
    /// A strong entity tag (RFC 9110 section 8.8.3): the document's SHA-256, in hexadecimal digits and quotes.
    pub entity_tag: String,
}

impl Document {
    /// Computes the tag.
    pub fn new(body: Bytes) -> Self {
        let mut entity_tag = String::with_capacity(2 * digest::SHA256_OUTPUT_LEN + 2);
        entity_tag.push('"');
        hex::push(&mut entity_tag, digest::digest(&digest::SHA256, &body).as_ref());
        entity_tag.push('"');
        Self { body, entity_tag }
    }
}

/// Room for one body, or for one request; free again when dropped.
pub struct RequestPermit {
    _of_all: OwnedSemaphorePermit,
    _of_one: Permit,
}

impl RequestPermit {
    fn of(all: &Arc<Semaphore>, amount: usize, of_one: Permit) -> Option<Self> {
        let amount = u32::try_from(amount).ok()?;
        Some(Self {
            _of_all: Arc::clone(all).try_acquire_many_owned(amount).ok()?,
            _of_one: of_one,
        })
    }
}

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
    /// The service of this core with the built-in themes.
    pub fn new(core: Core, trusted_proxies: Vec<IpNet>, limits: LimitPolicy, dev: Option<DevSite>) -> Self {
        Self::with_themes(core, trusted_proxies, limits, dev, Themes::built_in)
    }

    /// The service of this core. `themes` is told the path of the issuer, which begins their addresses.
    pub fn with_themes(
        core: Core,
        trusted_proxies: Vec<IpNet>,
        limits: LimitPolicy,
        dev: Option<DevSite>,
        themes: impl FnOnce(&str) -> Themes,
    ) -> Self {
        let issuer = url::Url::parse(&core.policy.issuer).ok();
        let issuer_path = issuer
            .as_ref()
            .map(|url| url.path().trim_end_matches('/').to_owned())
            .unwrap_or_default();
        let has_hsts = !issuer.as_ref().is_some_and(is_on_this_machine);
        let issuer_origin = issuer
            .map(|url| url.origin().ascii_serialization())
            .unwrap_or_default();
        Self {
            limits: Limiter::new(limits, &core.random),
            process: u32::from_be_bytes(core.random.bytes()),
            core,
            themes: themes(&issuer_path),
            metrics: Metrics::default(),
            issuer_path,
            issuer_origin,
            other_names: Vec::new(),
            has_hsts,
            trusted_proxies,
            dev,
            unreachable: ArcSwapOption::empty(),
            data_dir: None,
            spare: AtomicU64::new(0),
            documents: ArcSwapOption::empty(),
            requests: AtomicU32::new(0),
            bodies: Arc::new(Semaphore::new(ALL_BODIES_KIB)),
            places: Arc::new(Semaphore::new(ALL_REQUESTS)),
        }
    }

    /// The same, with an eye on the disk with this data directory.
    #[must_use]
    pub fn with_data_in(self, data_dir: PathBuf) -> Self {
        Self {
            data_dir: Some(data_dir),
            ..self
        }
    }

    /// The same, reached by these names without a proxy. That of the issuer may be among them.
    #[must_use]
    pub fn with_names(mut self, names: &[String]) -> Self {
        let issuer = url::Url::parse(&self.core.policy.issuer).ok();
        let own = issuer.as_ref().and_then(url::Url::host_str);
        let others = names.iter().filter(|name| Some(name.as_str()) != own);
        self.other_names = others.cloned().collect();
        self
    }

    /// The bytes that the store may still write, when they are too few to go on.
    pub fn scarce_bytes(&self) -> Option<u64> {
        let free = self
            .space()?
            .free
            .saturating_add(self.spare.load(Ordering::Relaxed));
        (free < LEAST_TO_WRITE).then_some(free)
    }

    /// A place among the requests under way, for as long as what comes back is kept; nothing when this address, or all
    /// of them together, have too many.
    pub fn permit_for_request(&self, from: IpAddr) -> Option<RequestPermit> {
        RequestPermit::of(&self.places, 1, self.limits.permit_for_request(from)?)
    }

    /// The room on the disk with the data, when it is less than what is kept of it.
    pub fn short_space(&self) -> Option<Space> {
        self.space().filter(|space| space.lacking() > 0)
    }

    /// From now on so many bytes of the database count as room, too: the file has taken them, and they hold nothing.
    pub fn count_on(&self, spare: u64) {
        self.spare.store(spare, Ordering::Relaxed);
    }

    /// Whether there is room for something that a stranger begins. Strangers get nothing of what is kept for those who
    /// have begun, and for removing what has expired; who is let in counts as what one may take at most.
    pub fn has_disk_for_login(&self) -> bool {
        self.short_space().is_none_or(|space| admits(&self.spare, space))
    }

    fn space(&self) -> Option<Space> {
        space(self.data_dir.as_deref()?).ok()
    }

    /// Room for a body of so many bytes from this address, for as long as what comes back is kept; nothing when
    /// too many are being read already. Without it, peers that send slowly could fill the memory together, and
    /// without the address one of them could take all the room.
    pub fn permit_for_body(&self, bytes: usize, from: IpAddr) -> Option<RequestPermit> {
        let kib = bytes.div_ceil(1024);
        RequestPermit::of(&self.bodies, kib, self.limits.permit_for_body(kib, from)?)
    }

    /// The address of a route.
    pub fn url(&self, route: &Route) -> String {
        route.url(&self.core.policy.issuer)
    }

    /// The path of a route as a browser sees it.
    pub fn path(&self, route: &Route) -> String {
        format!("{}{}", self.issuer_path, route.path())
    }

    /// A new name for a request: the process, and the how manieth request of it.
    pub fn next_request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}{number:08x}", self.process)
    }

    /// What everybody may read.
    pub fn documents(&self) -> Arc<Documents> {
        let (catalog, theme_set) = (self.core.catalog(), self.themes.current());
        let made = self.documents.load_full();
        let is_current = |made: &Arc<Documents>| {
            Arc::ptr_eq(&made.catalog, &catalog) && Arc::ptr_eq(&made.theme_set, &theme_set)
        };
        if let Some(made) = made.filter(is_current) {
            return made;
        }
        let documents = Arc::new(Documents {
            discovery: Document::new(self.describe(&catalog).into()),
            jwks: Document::new(catalog.keyring().jwks().clone()),
            catalog,
            theme_set,
        });
        self.documents.store(Some(Arc::clone(&documents)));
        documents
    }

    fn describe(&self, catalog: &Catalog) -> String {
        let standard = Scope::of(Scope::STANDARD).unwrap_or_default();
        let enabled = catalog.clients().filter(|client| client.enabled);
        let mut own: Vec<&str> = enabled.flat_map(|client| client.scope.iter()).collect();
        own.sort_unstable();
        let theme = self.themes.theme(None);
        let ui_locales: Vec<&str> = theme.locales().iter().map(Locale::tag).collect();
        let metadata = Metadata {
            issuer: &self.core.policy.issuer,
            service_name: &self.core.policy.service_name,
            endpoints: DISCOVERED
                .iter()
                .map(|(member, route)| (*member, self.url(route)))
                .collect(),
            service_documentation: self.core.policy.service_documentation.as_deref(),
            signing_algs: catalog.keyring().published_algorithms(),
            scopes: own.into_iter().fold(standard, Scope::with),
            ui_locales: &ui_locales,
        };
        metadata.document().to_string()
    }
}

/// Takes what a stranger may need of the room in the database, if as much is left then as the reserve lacks.
fn admits(spare: &AtomicU64, space: Space) -> bool {
    let taken = spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spare| {
        let left = spare.checked_sub(MOST_BEGUN)?;
        (left >= space.lacking()).then_some(left)
    });
    taken.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_disk_that_is_nearly_full_strangers_share_what_the_database_has_beyond_the_reserve() {
        let space = Space {
            free: 10 << 20,
            total: 64 << 20,
        };
        assert_eq!(space.lacking(), 6 << 20);
        let spare = AtomicU64::new(space.lacking() + 3 * MOST_BEGUN);
        assert_eq!((0..10).filter(|_| admits(&spare, space)).count(), 3);
        assert_eq!(spare.load(Ordering::Relaxed), space.lacking());
        assert!(!admits(&AtomicU64::new(0), space));
    }
}

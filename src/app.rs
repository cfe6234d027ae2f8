//! The running service: what every request is answered with, built once and shared.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
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
use crate::limit::{LimitPolicy, Limiter};
use crate::mail::catcher::Catcher;
use crate::oauth::Scope;
use crate::oauth::metadata::Metadata;
use crate::oauth::openid::claims;
use crate::oauth::redirect_uri::is_on_this_machine;
use crate::oauth::registration::RegistrationMode;
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
    /// The end of the names of the cookies: a digest of the issuer, or nothing if the issuer has neither port nor path.
    /// Cookies know neither, and two services on one host must not read or replace each other's.
    pub cookie_suffix: String,
    /// Host names besides the issuer's under which browsers reach this process directly. Empty behind a proxy, which may
    /// rewrite `Host`.
    pub alternate_hosts: Vec<String>,
    /// Whether answers have HSTS (RFC 6797). It covers every port of a host. So it is off if the issuer is this machine,
    /// where other services may listen without TLS.
    pub has_hsts: bool,
    /// Proxies whose headers about the client's address are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Rate limits and concurrency limits.
    pub limits: Limiter,
    /// The relying party of the development server, in development only.
    pub dev: Option<DevSite>,
    /// Whether error pages show what developers need, as in development.
    pub shows_error_details: bool,
    /// Where the operator gives help, as an address with its scheme.
    pub support_contact: Option<String>,
    /// Why the service cannot be reached yet, such as a missing certificate.
    pub unreachable: ArcSwapOption<String>,
    /// Why mails wait, such as a mail server that does not answer.
    pub mail_problem: ArcSwapOption<String>,
    /// The mails of the development server, if they are not sent.
    pub caught_mail: Option<Catcher>,
    /// The data directory; `None` if the data is in memory.
    data_dir: Option<PathBuf>,
    documents: ArcSwapOption<PublishedDocuments>,
    /// Random, so that request ids differ between processes.
    process_tag: u32,
    request_count: AtomicU32,
    body_memory: Arc<Semaphore>,
    request_slots: Arc<Semaphore>,
    /// Permits for pages that are drawn by templates.
    pub template_permits: Semaphore,
}

/// The most pages that are drawn by templates at a time. A template may take milliseconds, and the layout of the service
/// takes microseconds. Only the requests for such pages wait.
pub const MAX_TEMPLATE_PAGES: usize = 2;

/// The public documents, written again when clients, keys or languages have changed.
pub struct PublishedDocuments {
    pub discovery: PublishedDocument,
    /// The public keys.
    pub jwks: PublishedDocument,
    catalog: Arc<Catalog>,
    theme_set: Arc<ThemeSet>,
}

/// A document and its entity tag, by which a sender that has it gets 304.
pub struct PublishedDocument {
    pub body: Bytes,
    /// A strong entity tag (RFC 9110 section 8.8.3): the document's SHA-256, in hexadecimal digits and quotes.
    pub entity_tag: String,
}

impl PublishedDocument {
    /// A document with its tag, which is computed here.
    pub fn new(body: Bytes) -> Self {
        let mut entity_tag = String::with_capacity(2 * digest::SHA256_OUTPUT_LEN + 2);
        entity_tag.push('"');
        hex::push(&mut entity_tag, digest::digest(&digest::SHA256, &body).as_ref());
        entity_tag.push('"');
        Self { body, entity_tag }
    }
}

/// A permit for one request or one body. Dropping it frees what it takes.
pub struct RequestPermit {
    _total: OwnedSemaphorePermit,
    _per_address: Permit,
}

impl RequestPermit {
    fn of(all: &Arc<Semaphore>, amount: usize, per_address: Permit) -> Option<Self> {
        let amount = u32::try_from(amount).ok()?;
        Some(Self {
            _total: Arc::clone(all).try_acquire_many_owned(amount).ok()?,
            _per_address: per_address,
        })
    }
}

/// The development server's own relying party.
pub struct DevSite {
    /// Its client identifier.
    pub client_id: String,
    pub client_secret: Zeroizing<String>,
    /// The example user's name, to be shown.
    pub username: String,
    pending: Mutex<HashMap<String, Zeroizing<String>>>,
}

impl DevSite {
    /// The most sign-ins under way.
    const MAX_PENDING: usize = 1_000;

    /// The relying party with these credentials.
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
        if pending.len() >= Self::MAX_PENDING {
            pending.clear();
        }
        pending.insert(state, code_verifier);
    }

    /// Removes the `code_verifier` of a sign-in and returns it.
    pub fn recall(&self, state: &str) -> Option<Zeroizing<String>> {
        self.pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(state)
    }
}

impl App {
    /// The service on this core, with the built-in themes.
    pub fn new(core: Core, trusted_proxies: Vec<IpNet>, limits: LimitPolicy, dev: Option<DevSite>) -> Self {
        Self::with_themes(core, trusted_proxies, limits, dev, Themes::built_in)
    }

    /// The service on this core. `themes` gets the path of the issuer, with which their addresses begin.
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
        let is_alone = issuer
            .as_ref()
            .is_none_or(|url| url.port().is_none() && issuer_path.is_empty());
        let mut cookie_suffix = String::new();
        if !is_alone {
            let digest = digest::digest(&digest::SHA256, core.policy.issuer.as_bytes());
            cookie_suffix.push('_');
            hex::push(&mut cookie_suffix, digest.as_ref().get(..4).unwrap_or_default());
        }
        let issuer_origin = issuer
            .map(|url| url.origin().ascii_serialization())
            .unwrap_or_default();
        Self {
            body_memory: Arc::new(Semaphore::new(limits.all_bodies_kib)),
            request_slots: Arc::new(Semaphore::new(limits.all_requests)),
            limits: Limiter::new(limits, &core.random),
            process_tag: u32::from_be_bytes(core.random.bytes()),
            core,
            themes: themes(&issuer_path),
            metrics: Metrics::default(),
            issuer_path,
            issuer_origin,
            cookie_suffix,
            alternate_hosts: Vec::new(),
            has_hsts,
            trusted_proxies,
            shows_error_details: dev.is_some(),
            dev,
            support_contact: None,
            unreachable: ArcSwapOption::empty(),
            mail_problem: ArcSwapOption::empty(),
            caught_mail: None,
            data_dir: None,
            documents: ArcSwapOption::empty(),
            request_count: AtomicU32::new(0),
            template_permits: Semaphore::new(MAX_TEMPLATE_PAGES),
        }
    }

    /// The same; it also watches the disk of this data directory.
    #[must_use]
    pub fn with_data_in(self, data_dir: PathBuf) -> Self {
        Self {
            data_dir: Some(data_dir),
            ..self
        }
    }

    /// The same, with mails shown instead of sent, if `is_caught`.
    #[must_use]
    pub fn catching_mail(self, is_caught: bool) -> Self {
        Self {
            caught_mail: is_caught.then(Catcher::default),
            ..self
        }
    }

    /// The same, with the operator's contact on error pages.
    #[must_use]
    pub fn with_support_contact(self, support_contact: Option<String>) -> Self {
        Self {
            support_contact,
            ..self
        }
    }

    /// The same, reached under these host names without a proxy. The issuer's name may be among them.
    #[must_use]
    pub fn with_names(mut self, names: &[String]) -> Self {
        let issuer = url::Url::parse(&self.core.policy.issuer).ok();
        let own = issuer.as_ref().and_then(url::Url::host_str);
        let others = names.iter().filter(|name| Some(name.as_str()) != own);
        self.alternate_hosts = others.cloned().collect();
        self
    }

    /// A permit for one request; `None` if this address, or all addresses together, have too many under way.
    pub fn permit_for_request(&self, from: IpAddr) -> Option<RequestPermit> {
        RequestPermit::of(&self.request_slots, 1, self.limits.permit_for_request(from)?)
    }

    /// The space on the disk with the data; `None` if the data is in memory, or the disk does not answer or cannot be
    /// measured.
    pub fn disk(&self) -> Option<Space> {
        let data_dir = self.data_dir.as_deref()?;
        match self.core.store.stalled() {
            Some(_) => None,
            None => space(data_dir).ok(),
        }
    }

    /// The same. The free bytes include the unused ones of the database file.
    pub fn space(&self) -> Option<Space> {
        let disk = self.disk()?;
        let free = disk.free.saturating_add(self.core.store.unused_bytes());
        Some(Space { free, ..disk })
    }

    /// What is wrong if a write may fail because the disk has too little space.
    pub fn full_disk(&self) -> Option<String> {
        let free = self.space().filter(|space| space.free < LEAST_TO_WRITE)?.free;
        let (free, least) = (free >> 20, LEAST_TO_WRITE >> 20);
        Some(format!(
            "the disk is nearly full: {free} MiB are free where the data is, and {least} are needed"
        ))
    }

    /// Whether clients may register themselves.
    pub fn accepts_registrations(&self) -> bool {
        self.core.policy.registration.mode != RegistrationMode::Off
    }

    /// Whether there is space for a new anonymous user. The reserve is kept for users who sign in and for removing
    /// expired rows.
    pub fn has_disk_for_user(&self) -> bool {
        self.space().is_none_or(|space| space.lacking() == 0)
    }

    /// A permit for a body of so many bytes from this address; `None` if too many are being read. The limit for all keeps
    /// slow peers from filling the memory. The limit for one address keeps one peer from taking the whole of it.
    pub fn permit_for_body(&self, bytes: usize, from: IpAddr) -> Option<RequestPermit> {
        let kib = bytes.div_ceil(1024);
        RequestPermit::of(&self.body_memory, kib, self.limits.permit_for_body(kib, from)?)
    }

    /// The address of a route.
    pub fn url(&self, route: &Route) -> String {
        route.url(&self.core.policy.issuer)
    }

    /// The path of a route as a browser sees it.
    pub fn path(&self, route: &Route) -> String {
        format!("{}{}", self.issuer_path, route.path())
    }

    /// A new request id: the tag of this process and the number of the request in it.
    pub fn next_request_id(&self) -> String {
        let number = self.request_count.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}{number:08x}", self.process_tag)
    }

    /// The public documents as of now.
    pub fn documents(&self) -> Arc<PublishedDocuments> {
        let (catalog, theme_set) = (self.core.catalog(), self.themes.current());
        if let Some(published) = self.documents.load_full()
            && Arc::ptr_eq(&published.catalog, &catalog)
            && Arc::ptr_eq(&published.theme_set, &theme_set)
        {
            return published;
        }
        let documents = Arc::new(PublishedDocuments {
            discovery: PublishedDocument::new(self.discovery_document(&catalog).into()),
            jwks: PublishedDocument::new(catalog.keyring().jwks().clone()),
            catalog,
            theme_set,
        });
        self.documents.store(Some(Arc::clone(&documents)));
        documents
    }

    /// The endpoints where clients show certificates.
    fn certificate_endpoints(&self) -> Option<Vec<(&'static str, String)>> {
        let base = self.core.policy.mtls.base(&self.core.policy.issuer)?;
        let endpoints = DISCOVERED.iter().filter(|(_, route)| route.takes_certificates());
        Some(
            endpoints
                .map(|(member, route)| (*member, route.url(&base)))
                .collect(),
        )
    }

    fn discovery_document(&self, catalog: &Catalog) -> String {
        let standard = Scope::of(Scope::STANDARD).unwrap_or_default();
        let enabled = catalog.clients().filter(|client| client.enabled);
        let takes_registrants = self.core.policy.takes_registrants();
        let open = catalog
            .apis()
            .iter()
            .filter(|api| takes_registrants && api.metadata.open);
        let of_open = open.flat_map(|api| api.metadata.scope.iter());
        let mut own: Vec<&str> = enabled
            .flat_map(|client| client.scope.iter())
            .chain(of_open)
            .collect();
        own.sort_unstable();
        let theme = self.themes.theme(None);
        let ui_locales: Vec<&str> = theme.locales().iter().map(Locale::tag).collect();
        let metadata = Metadata {
            issuer: &self.core.policy.issuer,
            service_name: &self.core.policy.service_name,
            endpoints: DISCOVERED
                .iter()
                .filter(|(_, route)| *route != Route::Register || self.accepts_registrations())
                .map(|(member, route)| (*member, self.url(route)))
                .collect(),
            certificate_endpoints: self.certificate_endpoints(),
            has_client_authorities: self.core.policy.mtls.has_authorities,
            service_documentation: self.core.policy.service_documentation.as_deref(),
            signing_algs: catalog.keyring().published_algorithms(),
            scopes: own.into_iter().fold(standard, Scope::with),
            claims: claims::supported(catalog.scopes()),
            accepts_id_jag: catalog
                .providers()
                .any(|provider| provider.enabled && provider.id_jag),
            client_documents: self.core.policy.metadata_documents,
            sign_up: self.core.policy.accounts.is_open(),
            ui_locales: &ui_locales,
        };
        metadata.document().to_string()
    }
}

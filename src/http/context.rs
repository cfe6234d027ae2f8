//! The context of one request: what endpoints and screens read from it and answer it with.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::http::header::{ACCEPT, ACCEPT_LANGUAGE, HOST, HeaderMap, HeaderName, USER_AGENT};
use ::http::request::Parts;
use ::http::uri::Authority;
use ::http::{Method, StatusCode};
use bytes::Bytes;
use url::Url;

use super::client_address;
use super::client_certificate::ShownCertificate;
use super::cookie::Cookie;
use super::drawing::draw_beside_workers;
use super::headers;
use super::refusal_log::RefusalLog;
use super::request;
use super::request::{MediaType, Parameters};
use super::response;
use super::response::HttpResponse;
use crate::app::App;
use crate::clock::{Arrival, Timestamp};
use crate::flow::Failure;
use crate::flow::browser::Browser;
use crate::flow::login::transaction::{BrowserLogin, LoginContext};
use crate::identity::Device;
use crate::limit::buckets::RetryAfter;
use crate::net::Peer;
use crate::oauth::Client;
use crate::oauth::anonymous;
use crate::oauth::error::Refusal;
use crate::oauth::redirect_uri;
use crate::pages::{ApplicationLink, ErrorKind, ErrorPage, Locale, Page};
use crate::route::{Route, strip_issuer_path};
use crate::store::StoreError;
use crate::themes::Theme;

/// One request, with the service that answers it.
pub struct RequestContext {
    /// The service.
    pub app: Arc<App>,
    /// The id of this request in the answer and the log.
    pub request_id: String,
    /// When the whole request had been read. Before that, when its header had been.
    pub arrival: Arrival,
    /// The same in whole seconds. All checks of a request use one time.
    pub now: Timestamp,
    /// When the whole request had arrived, or the service stopped waiting for the rest.
    pub read_at: Instant,
    pub body: Bytes,
    /// The certificate of the client.
    pub shown: ShownCertificate,
    from: IpAddr,
    parts: Parts,
    page_style: OnceLock<PageStyle>,
    client_id: OnceLock<String>,
    refusal_log: OnceLock<RefusalLog>,
}

/// How pages look while a user signs in to one client.
#[derive(Debug, Default)]
struct PageStyle {
    theme: Option<String>,
    ui_locales: Option<String>,
}

impl RequestContext {
    /// The context of a request whose body has not been read yet.
    pub fn new(app: Arc<App>, parts: Parts, peer: Peer) -> Self {
        let request_id = app.next_request_id();
        let arrival = app.core.clock.arrival();
        let from = client_address::of(peer.addr, &parts.headers, &app.trusted_proxies);
        Self {
            app,
            request_id,
            arrival,
            now: arrival.now(),
            read_at: Instant::now(),
            body: Bytes::new(),
            shown: ShownCertificate::of(&parts.extensions),
            from,
            parts,
            page_style: OnceLock::new(),
            client_id: OnceLock::new(),
            refusal_log: OnceLock::new(),
        }
    }

    /// Notes that the body has arrived, or that the service stopped waiting for the rest.
    pub(super) fn note_arrival(&mut self) {
        self.read_at = Instant::now();
        self.arrival = self.app.core.clock.arrival();
        self.now = self.arrival.now();
    }

    pub fn method(&self) -> &Method {
        &self.parts.method
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    pub fn query(&self) -> Result<Parameters, Refusal> {
        let query = self.parts.uri.query().unwrap_or_default();
        Ok(Parameters::parse(query.as_bytes())?)
    }

    /// The parameters in the body, which has to be a form.
    pub fn form(&self) -> Result<Parameters, Refusal> {
        match request::media_type(self.headers()) {
            Some(MediaType::Form) => Ok(Parameters::parse(&self.body)?),
            None if self.body.is_empty() => Ok(Parameters::default()),
            _ => Err(Refusal::invalid_request(
                "Content-Type must be application/x-www-form-urlencoded",
            )),
        }
    }

    /// Whether the body says that it is JSON.
    pub fn is_json(&self) -> bool {
        request::media_type(self.headers()) == Some(MediaType::Json)
    }

    /// The parameters in the body, which has to be a form or a JSON object of strings, none of them twice.
    pub fn form_or_json(&self) -> Result<Parameters, Refusal> {
        let parameters = match request::media_type(self.headers()) {
            Some(MediaType::Form) => Parameters::parse(&self.body)?,
            Some(MediaType::Json) => Parameters::parse_json(&self.body)?,
            _ => {
                return Err(Refusal::invalid_request(
                    "Content-Type must be application/x-www-form-urlencoded or application/json",
                ));
            }
        };
        parameters.each_once()?;
        Ok(parameters)
    }

    /// The parameters: of the form if the method is POST, of the query otherwise.
    pub fn parameters(&self) -> Result<Parameters, Refusal> {
        if self.method() == Method::POST {
            self.form()
        } else {
            self.query()
        }
    }

    /// The same parameters, none of them twice.
    pub fn unique_parameters(&self) -> Result<Parameters, Refusal> {
        let parameters = self.parameters()?;
        parameters.each_once()?;
        Ok(parameters)
    }

    /// The address that the request came from, past trusted proxies.
    pub fn client_address(&self) -> IpAddr {
        self.from
    }

    /// Counts an answer of a provider, and refuses it if its address has sent too many.
    pub fn count_provider_answer(&self) -> Result<(), Failure> {
        let counted = self.app.limits.receive_provider_answer(self.from, self.now);
        counted.map_err(throttled)
    }

    /// Charges a fetch of metadata or keys from `url`, for a client that registered itself. Refuses the request if its sender
    /// or the host of `url` is over the limit.
    pub fn charge_fetch(&self, url: &Url) -> Result<(), Failure> {
        let host = url.host_str().unwrap_or_default();
        let charged = self.app.limits.fetch_for_registrant(host, self.from, self.now);
        charged.map_err(throttled)
    }

    /// Refuses a new anonymous user or client if the disk is nearly full.
    pub fn require_disk_for_record(&self) -> Result<(), Failure> {
        if self.app.has_disk_for_user() {
            Ok(())
        } else {
            Err(StoreError::NoSpace.into())
        }
    }

    /// The browser, by its cookies, its user agent and its address.
    pub fn browser(&self) -> Browser {
        let user_agent = self
            .headers()
            .get(USER_AGENT)
            .and_then(|value| value.to_str().ok());
        let remembered_users = self.cookie(Cookie::RememberedUsers).map(str::to_owned);
        Browser {
            remembered_users,
            ..Browser::of(
                self.cookie(Cookie::Session),
                self.cookie(Cookie::Browser),
                Device::of(user_agent, self.client_address()),
            )
        }
    }

    /// This sign-in, continued by the browser of this request.
    pub fn browser_login<'a>(&'a self, browser: &'a Browser, login: &'a LoginContext) -> BrowserLogin<'a> {
        BrowserLogin {
            core: &self.app.core,
            browser,
            login,
            now: self.now,
        }
    }

    pub(super) fn header_text(&self, name: &HeaderName) -> Option<&str> {
        let value = self.headers().get(name)?;
        Some(value.to_str().unwrap_or("?"))
    }

    /// The same page under the issuer's name, if the browser asked for it under another one. Forms from other names are
    /// refused ([`RequestContext::foreign_form_page`]). `Host` decides whether to redirect, never where to.
    pub fn address_at_issuer(&self) -> Option<String> {
        let names = &self.app.alternate_hosts;
        if names.is_empty() {
            return None;
        }
        let in_header = || self.headers().get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
        let asked = self.parts.uri.authority().cloned().or_else(in_header)?;
        let is_other = names.iter().any(|name| name.eq_ignore_ascii_case(asked.host()));
        let path = self.parts.uri.path_and_query().filter(|_| is_other)?;
        Some(format!("{}{path}", self.app.issuer_origin))
    }

    /// Records for the log which client the request names.
    pub fn record_client_id(&self, client_id: &str) {
        let _ = self.client_id.set(client_id.to_owned());
    }

    /// The recorded client, if it is registered.
    pub fn client_id(&self) -> Option<&str> {
        let client_id = self.client_id.get()?;
        let known = self.app.core.catalog().client(client_id).is_some();
        known.then_some(client_id)
    }

    /// Records for the log what the answer will not say. The first record stays.
    pub fn log_detail(&self, refusal_log: RefusalLog) {
        let _ = self.refusal_log.set(refusal_log);
    }

    /// What was recorded.
    pub fn refusal_log(&self) -> &RefusalLog {
        self.refusal_log.get_or_init(RefusalLog::default)
    }

    /// Logs why the request was refused, under its request id. Only little of what the sender chose is logged: a parameter
    /// name of one plain word, a registered client, and what [`RefusalLog`] keeps of an address. The limiter
    /// caps how often one sender is logged.
    pub fn log_refusal(&self, error: &str, description: &str) {
        let Some(unnoted) = self.app.limits.note_refusal(self.client_address(), self.now) else {
            return;
        };
        let refusal_log = self.refusal_log();
        tracing::info!(
            target: "idsvc::refusal",
            request_id = %self.request_id,
            from = %self.client_address(),
            error,
            description,
            client_id = self.client_id(),
            reason = refusal_log.reason,
            redirect_uri = refusal_log.redirect_uri.as_deref(),
            client_document = refusal_log.client_document.as_deref(),
            origin = refusal_log.origin.as_deref(),
            own_origin = refusal_log.own_origin.as_deref(),
            left_out = (unnoted > 0).then_some(unnoted),
            "refused"
        );
    }

    /// Sets the theme and languages of all pages of this request, as the client asked (OpenID Connect Core section 3.1.2.1).
    /// The first call counts.
    pub fn set_page_style(&self, client: &Client, ui_locales: Option<&str>) {
        let style = PageStyle {
            theme: client.theme.clone(),
            ui_locales: ui_locales.map(ToOwned::to_owned),
        };
        let _ = self.page_style.set(style);
        let _ = self.client_id.set(client.client_id.clone());
    }

    /// As [`RequestContext::set_page_style`], for the client of this identifier, if there is one.
    pub fn set_page_style_for(&self, client_id: Option<&str>, ui_locales: Option<&str>) {
        if let Some(client) = client_id.and_then(|id| self.app.core.catalog().client(id)) {
            self.set_page_style(&client, ui_locales);
        }
    }

    fn theme(&self) -> Arc<Theme> {
        let style = self.page_style.get();
        self.app
            .themes
            .theme(style.and_then(|style| style.theme.as_deref()))
    }

    /// Calls `draw` with the theme and language of pages. The language is the one chosen below a page, else the client's
    /// choice, else the one chosen on the account page, else the one that the browser prefers.
    pub fn with_page_style<T>(&self, ui_locales: Option<&str>, draw: impl FnOnce(&Theme, &Locale) -> T) -> T {
        let accepted = self
            .headers()
            .get(ACCEPT_LANGUAGE)
            .and_then(|value| value.to_str().ok());
        let query = self.query().unwrap_or_default();
        let by_client = ui_locales
            .or_else(|| self.page_style.get()?.ui_locales.as_deref())
            .or_else(|| query.get("ui_locales"));
        let theme = self.theme();
        let chosen = self.chosen_language(&theme);
        let kept = self.kept_language();
        let first = kept.filter(|kept| kept.is_first).map(|kept| kept.tag);
        let asked: Vec<_> = (chosen.as_deref().into_iter())
            .chain(first)
            .chain(by_client)
            .chain(kept.map(|kept| kept.tag))
            .collect();
        draw(&theme, theme.locale(Some(&asked.join(" ")), accepted))
    }

    /// Draws a page. It is never stored, and loads only files of this service and of origins that its theme names.
    pub fn page<P: Page>(&self, status: StatusCode, page: &P, ui_locales: Option<&str>) -> HttpResponse {
        self.with_page_style(ui_locales, |theme, locale| {
            let draw = || theme.draw(page, locale);
            let drawn = if theme.has_templates() {
                draw_beside_workers(&self.app.template_permits, draw)
            } else {
                draw()
            };
            if let Some(fault) = drawn.fault {
                tracing::warn!(theme = %theme.name(), place = %fault.place, "a page cannot be drawn, the default theme stands in: {}", fault.message);
            }
            let mut answer = response::no_store(response::html(status, drawn.html));
            headers::page(answer.headers_mut(), theme.policy());
            if page.address().is_some() {
                self.keep_language(theme, &mut answer);
            }
            answer
        })
    }

    /// Draws the page that says what went wrong. `details` are for developers: they go to the log, under the request id.
    pub fn error_page(&self, status: StatusCode, kind: ErrorKind, details: &str) -> HttpResponse {
        self.log_refusal(status.as_str(), details);
        self.unlogged_error_page(status, kind, details)
    }

    /// The same page, for a refusal that is in the log already.
    pub fn unlogged_error_page(&self, status: StatusCode, kind: ErrorKind, details: &str) -> HttpResponse {
        let account = || match kind {
            ErrorKind::Elsewhere => self.app.url(&Route::Account),
            _ => self.app.path(&Route::Account),
        };
        let application = self.application();
        let retry = self.own_address().filter(|_| kind.may_pass());
        let is_dead_end = application.is_none() && retry.is_none();
        let page = ErrorPage {
            kind,
            details: self.app.shows_error_details.then(|| details.to_owned()),
            request_id: self.request_id.clone(),
            issuer: self.app.core.policy.issuer.clone(),
            application,
            retry,
            own: self.own_page(),
            account: (is_dead_end || kind.leads_to_account()).then(account),
            contact: self.support_contact(),
        };
        self.page(status, &page, None)
    }

    /// Where the operator gives help. A mail begins with the request id as its subject.
    pub(super) fn support_contact(&self) -> Option<String> {
        let contact = self.app.support_contact.as_deref()?;
        let is_plain_mail = contact.starts_with("mailto:") && !contact.contains('?');
        let subject = is_plain_mail.then_some(("subject", &self.request_id));
        Some(redirect_uri::with_query(contact, subject.as_slice()))
    }

    /// The way back to the application of this request, if that is registered and enabled, and has an address.
    pub fn application(&self) -> Option<ApplicationLink> {
        let client = self.app.core.catalog().client(self.client_id.get()?)?;
        let href = client.home().filter(|_| client.enabled)?;
        let name = client.display_name().to_owned();
        Some(ApplicationLink { name, href })
    }

    /// The path and query of this request, if a link can send it again. An answer of a provider is good for once. A
    /// refresh token is not repeated in a page.
    pub(super) fn own_address(&self) -> Option<String> {
        let address = self.parts.uri.path_and_query()?.as_str();
        let is_sent_by_links =
            matches!(*self.method(), Method::GET | Method::HEAD) && !address.starts_with("//");
        let path = strip_issuer_path(&self.app.issuer_path, self.parts.uri.path());
        let is_answer = matches!(
            path.and_then(Route::recognise),
            Some(Route::FederationCallback(_))
        );
        let has_token = address.contains(anonymous::PARAMETER);
        (is_sent_by_links && !is_answer && !has_token).then(|| address.to_owned())
    }

    /// Whether the sender asks for HTML, as browsers do. Probes and scripts accept anything or send no `Accept`.
    pub fn accepts_html(&self) -> bool {
        self.accepts("text/html")
    }

    /// Whether `Accept` names this media type (RFC 9110 section 12.5.1). A range such as `*/*` names none, and neither
    /// does a type of weight zero.
    pub fn accepts(&self, media_type: &str) -> bool {
        let lines = self.headers().get_all(ACCEPT).into_iter();
        let mut ranges = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        ranges.any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_named = parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case(media_type));
            is_named && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
    }

    /// 404: a page for browsers, an empty body for programs.
    pub fn not_found(&self) -> HttpResponse {
        if self.accepts_html() && !self.shown.is_mtls_listener {
            self.error_page(
                StatusCode::NOT_FOUND,
                ErrorKind::NotFound,
                "no page has this address",
            )
        } else {
            response::empty(StatusCode::NOT_FOUND)
        }
    }
}

/// The failure of a sender over its limit.
pub fn throttled(retry_after: RetryAfter) -> Failure {
    Failure::Throttled {
        seconds: retry_after.seconds(),
    }
}

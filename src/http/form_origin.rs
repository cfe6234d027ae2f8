//! Which page sent a form, as the headers of the browser say.

use ::http::StatusCode;
use ::http::header::{HeaderName, ORIGIN};

use super::context::RequestContext;
use super::refusal_log::RefusalLog;
use super::response::HttpResponse;
use crate::oauth::error::printable;
use crate::oauth::redirect_uri;
use crate::pages::ErrorKind;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl RequestContext {
    /// The error page for a form, unless a page of this service sent it. A form with a valid token is ours, and its
    /// page may have been opened under another name than the issuer's.
    pub fn foreign_form_page(&self, has_token: bool) -> Option<HttpResponse> {
        let reason = self.foreign_form()?;
        if has_token && let Some(origin) = self.alternate_origin() {
            self.log_alternate_origin(origin);
            let details = "the page was opened under another address than base_url";
            return Some(self.error_page(StatusCode::BAD_REQUEST, ErrorKind::Elsewhere, details));
        }
        if let Some(origin) = self.origin() {
            self.log_alternate_origin(origin);
        }
        Some(self.error_page(StatusCode::BAD_REQUEST, ErrorKind::ForeignForm, reason))
    }

    /// Records for the log that a form was sent from another origin than the issuer's.
    pub fn log_alternate_origin(&self, origin: &str) {
        self.log_detail(RefusalLog {
            origin: Some(printable(origin, 200)),
            own_origin: Some(self.app.issuer_origin.clone()),
            ..RefusalLog::default()
        });
    }

    /// Why the headers of the browser do not show that a page of this service sent the form. `None` if they do. `None`
    /// too if an old browser sends none of them: then the CSRF token alone decides.
    ///
    /// `Referrer-Policy: no-referrer`, which a proxy may set, makes the origin of a form `null` (Fetch section 3.2).
    /// Then `Sec-Fetch-Site` decides, which no page can set.
    fn foreign_form(&self) -> Option<&'static str> {
        let site = self.header_text(&SEC_FETCH_SITE);
        match self.origin() {
            _ if !self.is_from_this_site() => Some("Sec-Fetch-Site says that another site sent the form"),
            Some("null") if site.is_none() => {
                Some("Origin of the form is null and there is no Sec-Fetch-Site; see Referrer-Policy")
            }
            Some("null") if site != Some("same-origin") => {
                Some("Origin of the form is null and Sec-Fetch-Site is not same-origin")
            }
            Some(origin) if origin != "null" && origin != self.app.issuer_origin => {
                Some("Origin of the form is not that of base_url")
            }
            _ => None,
        }
    }

    /// The origin of a page of this service that was opened under another name than the issuer's. The origin is
    /// well-formed, and the browser does not say that the page belongs to another site.
    pub fn alternate_origin(&self) -> Option<&str> {
        let origin = self.origin()?;
        let is_well_formed = redirect_uri::origin(origin).is_some_and(|known| known == origin);
        let is_other = is_well_formed && origin != self.app.issuer_origin && self.is_from_this_site();
        is_other.then_some(origin)
    }

    fn is_from_this_site(&self) -> bool {
        let site = self.header_text(&SEC_FETCH_SITE);
        site.is_none_or(|site| matches!(site, "same-origin" | "none"))
    }

    fn origin(&self) -> Option<&str> {
        self.header_text(&ORIGIN)
    }
}

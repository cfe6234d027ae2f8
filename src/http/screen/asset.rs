//! `/assets/…`, `/theme/…` and `/logos/…`: files whose addresses change with their content.

use std::time::Duration;

use ::http::StatusCode;
use ::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue};
use bytes::Bytes;
use uuid::Uuid;

use crate::app::PublishedDocument;
use crate::http::context::RequestContext;
use crate::http::headers::cacheable;
use crate::http::response::{self, HttpResponse};
use crate::oauth::Logo;
use crate::pages::asset;
use crate::themes::theme_set::Themes;

const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// The policy of a theme's files and of logos. A browser may open an SVG image as a page: it must run and load nothing.
const INERT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
);

/// Sends a file of the pages.
pub fn respond(context: &RequestContext, file: &str) -> HttpResponse {
    find(file).unwrap_or_else(|| context.not_found())
}

/// Sends a file of a theme: `path` is the theme, its version and the file.
pub fn of_theme(context: &RequestContext, path: &str) -> HttpResponse {
    find_of_theme(&context.app.themes, path, context.headers()).unwrap_or_else(|| context.not_found())
}

/// Sends the logo of a client. `file` is the client's UUID and the version of the logo, with a dot between them.
pub fn of_client(context: &RequestContext, file: &str) -> HttpResponse {
    let catalog = context.app.core.catalog();
    let found = file.split_once('.').and_then(|(id, version)| {
        let id: Uuid = id.parse().ok()?;
        let client = catalog.clients().find(|client| client.client_uuid == id)?;
        client.logo.as_ref().filter(|logo| logo.version() == version)
    });
    match found {
        Some(logo) => of_logo(logo, FOR_EVER),
        None => context.not_found(),
    }
}

/// A logo. It may be an SVG image with scripts; the policy keeps them from running.
pub(super) fn of_logo(logo: &Logo, caching: HeaderValue) -> HttpResponse {
    let mut answer = response::with_body(StatusCode::OK, logo.content_type(), Bytes::from(logo.bytes()));
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, caching);
    headers.insert(CONTENT_SECURITY_POLICY, INERT_POLICY);
    answer
}

/// A file of the pages, to be kept for a year.
pub fn find(file: &str) -> Option<HttpResponse> {
    let asset = asset::find(file)?;
    let mut answer = response::with_body(
        StatusCode::OK,
        asset.content_type,
        Bytes::from_static(asset.bytes),
    );
    answer.headers_mut().insert(CACHE_CONTROL, FOR_EVER);
    Some(answer)
}

/// A file of a theme, to be kept for a year.
///
/// A page that was drawn before the theme changed asks for an old version. It gets the present file, which is not cached
/// under the old address.
pub fn find_of_theme(themes: &Themes, path: &str, request: &HeaderMap) -> Option<HttpResponse> {
    let mut parts = path.splitn(3, '/');
    let (name, version, file) = (parts.next()?, parts.next()?, parts.next()?);
    let theme_set = themes.current();
    let theme = theme_set.theme(name)?;
    let file = theme.file(file)?;
    let (content_type, bytes) = (file.media.content_type, file.bytes.clone());
    let mut answer = if theme.version() == version {
        let mut answer = response::with_body(StatusCode::OK, content_type, bytes);
        answer.headers_mut().insert(CACHE_CONTROL, FOR_EVER);
        answer
    } else {
        cacheable(
            request,
            content_type,
            &PublishedDocument::new(bytes),
            Duration::ZERO,
        )
    };
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, INERT_POLICY);
    Some(answer)
}

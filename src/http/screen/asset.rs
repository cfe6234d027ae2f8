//! `/assets/…` and `/theme/…`: files whose addresses change with their content.

use std::time::Duration;

use ::http::StatusCode;
use ::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use bytes::Bytes;

use crate::http::call::Call;
use crate::http::headers::cacheable;
use crate::http::response::{self, Answer};
use crate::page::asset;

const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// An image that is opened by itself is a page: it runs nothing and loads nothing.
const HARMLESS: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
);

/// Sends a file of the pages, to be kept for a year.
pub fn respond(call: &Call, file: &str) -> Answer {
    let Some(asset) = asset::find(file) else {
        return call.not_found();
    };
    let mut answer = response::with_body(
        StatusCode::OK,
        asset.content_type,
        Bytes::from_static(asset.bytes),
    );
    answer.headers_mut().insert(CACHE_CONTROL, FOR_EVER);
    answer
}

/// Sends a file of a theme: `path` is the theme, its version and the file.
///
/// A page that was drawn before the theme changed asks for a version that is gone. It gets the file as it is now,
/// which nobody keeps under the old address.
pub fn of_theme(call: &Call, path: &str) -> Answer {
    let mut parts = path.splitn(3, '/');
    let (Some(name), Some(version), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
        return call.not_found();
    };
    let shelf = call.app.themes.shelf();
    let Some((theme, file)) = shelf
        .theme(name)
        .and_then(|theme| Some((theme, theme.file(file)?)))
    else {
        return call.not_found();
    };
    let (content_type, bytes) = (file.media.content_type, file.bytes.clone());
    let mut answer = if theme.version() == version {
        let mut answer = response::with_body(StatusCode::OK, content_type, bytes);
        answer.headers_mut().insert(CACHE_CONTROL, FOR_EVER);
        answer
    } else {
        cacheable(call.headers(), content_type, bytes, Duration::ZERO)
    };
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HARMLESS);
    answer
}

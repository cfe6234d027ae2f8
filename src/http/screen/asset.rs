//! `/assets/…`: files whose names change with their content.

use ::http::StatusCode;
use ::http::header::{CACHE_CONTROL, HeaderValue};
use bytes::Bytes;

use crate::http::call::Call;
use crate::http::response::{self, Answer};
use crate::page::asset;

/// Sends the file, to be kept for a year.
pub fn respond(call: &Call, file: &str) -> Answer {
    let Some(asset) = asset::find(file) else {
        return call.not_found();
    };
    let mut answer = response::with_body(
        StatusCode::OK,
        asset.content_type,
        Bytes::from_static(asset.bytes),
    );
    answer.headers_mut().insert(
        CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=31536000, immutable"),
    );
    answer
}

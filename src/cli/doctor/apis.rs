//! Checks that people can read what an API is for.

use super::finding::Finding;
use crate::cli::api_words::{MissingWords, missing_words};
use crate::config::Settings;
use crate::oauth::{Api, RegisteredScope};

/// Checks one API.
pub(super) fn check_api(api: &Api, scopes: &[RegisteredScope], settings: &Settings) -> Finding {
    match missing_words(api, scopes, settings) {
        None => Finding::good("api", &api.id, "people can read what it is for"),
        Some(MissingWords { message, remedy }) => Finding::advice("api", &api.id, message, remedy),
    }
}

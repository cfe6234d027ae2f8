//! What the log says about a refused request.

use crate::oauth::error::printable;

/// What the log says about a refused request beyond what the answer says. Every text is printable and short.
#[derive(Debug, Default)]
pub struct RefusalLog {
    /// One word for the cause, if the answer does not name it.
    pub reason: Option<&'static str>,
    /// The redirect URI that is not registered, without its query.
    pub redirect_uri: Option<String>,
    /// What is wrong with the metadata document of the client.
    pub client_document: Option<String>,
    /// The origin of the form or script, if it is not allowed.
    pub origin: Option<String>,
    /// The origin that a form must come from.
    pub own_origin: Option<String>,
}

impl RefusalLog {
    /// The part of an address that may be logged. A query or a user name may contain a secret.
    pub fn address(uri: &str) -> String {
        let end = uri.find(['?', '#', '%']).unwrap_or(uri.len());
        let (start, rest) = uri.split_at(end);
        let (scheme, start) = start.split_once("//").map_or(("", start), |(scheme, start)| {
            (uri.get(..scheme.len() + 2).unwrap_or_default(), start)
        });
        let authority = start.split('/').next().unwrap_or_default();
        let start = match authority.rfind('@') {
            Some(at) => start.get(at..).unwrap_or_default(),
            None => start,
        };
        let cut = if rest.is_empty() { "" } else { "..." };
        printable(scheme, 40) + &printable(start, 200) + &printable(rest, 1) + cut
    }
}

//! An API: a resource server that access tokens are for (RFC 8707 section 2).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::oauth::access_token_typ::AccessTokenTyp;
use crate::oauth::fields::{Lifetime, fields, is_default};
use crate::oauth::scope::Scope;
use crate::oauth::token_exchange::TokenExchangePolicy;

fields! {
    /// The metadata of an API.
    ApiMetadata;

    /// A change of the metadata of an API. A field that is left out keeps its value.
    ///
    /// An empty text removes an optional value. A list replaces the stored list.
    ApiFields;

    /// The name shown to people; the identifier when there is none.
    name: Option<String>;
    /// The scope values that belong to the API. A value belongs to one API at most.
    scope: Scope;
    /// Descriptions of the scope values on the consent page.
    scope_texts: BTreeMap<String, String>;
    /// Whether every client that acts for a user may name the API. Otherwise only clients with `--api` may.
    open: bool;
    /// How long its access tokens last, in seconds; the client or the service decides when there is none.
    access_token_lifetime: Option<Lifetime>;
    /// The algorithm of its access tokens; the client or the service decides when there is none.
    access_token_alg: Option<Algorithm>;
    /// `typ` of its access tokens; the client or the service decides when there is none.
    access_token_typ: Option<AccessTokenTyp>;
    /// The clients that may introspect tokens for the API.
    introspection_clients: BTreeSet<String>;
    /// The token exchanges that may be requested for its tokens.
    #[serde(skip_serializing_if = "is_default")]
    token_exchange: TokenExchangePolicy;
    /// The roles that users can have in the API.
    roles: BTreeSet<String>;
    /// The names of the groups whose users have a role, by role.
    role_groups: BTreeMap<String, BTreeSet<String>>;
}

/// A registered API. Its identifier cannot change, because grants remember it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Api {
    /// The name by which the operator and clients' records refer to it.
    pub id: String,
    /// The identifier of the record.
    pub uuid: Uuid,
    /// The value of `resource` that names it, and of `aud` in its tokens.
    pub identifier: String,
    #[serde(flatten)]
    pub metadata: ApiMetadata,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl Deref for Api {
    type Target = ApiMetadata;

    fn deref(&self) -> &ApiMetadata {
        &self.metadata
    }
}

impl Api {
    /// The name shown to people.
    pub fn display_name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or(&self.identifier)
    }

    /// The roles in the API of a user who is in these groups. `None` if the API has no roles.
    pub fn roles_of(&self, groups: &BTreeSet<&str>) -> Option<BTreeSet<&str>> {
        let has_role = |role: &&String| {
            let mut of_role = self.metadata.role_groups.get(*role).into_iter().flatten();
            of_role.any(|group| groups.contains(group.as_str()))
        };
        let roles = &self.metadata.roles;
        let of_user = || roles.iter().filter(has_role).map(String::as_str).collect();
        (!roles.is_empty()).then(of_user)
    }
}

/// The identifier in the form in which it is compared: scheme and host in lower case, without the default port, and `/`
/// for an empty path (RFC 3986 section 6.2.3). URL libraries of clients write it so. The path stays as it is. Two
/// identifiers with the same result name the same API.
pub fn canonical_identifier(identifier: &str) -> String {
    let Some((scheme, rest)) = identifier.split_once(':') else {
        return identifier.to_owned();
    };
    let scheme = scheme.to_ascii_lowercase();
    let Some(rest) = rest.strip_prefix("//") else {
        return format!("{scheme}:{rest}");
    };
    let path_at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path_at);
    let (userinfo, host) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let host = host.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => ":",
    };
    let host = host.strip_suffix(default_port).unwrap_or(&host);
    let slash = if host.is_empty() || path.starts_with('/') {
        ""
    } else {
        "/"
    };
    format!("{scheme}://{userinfo}{host}{slash}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(one: &str, other: &str) -> bool {
        canonical_identifier(one) == canonical_identifier(other)
    }

    #[test]
    fn an_identifier_is_compared_without_case_of_scheme_and_host_default_port_and_empty_path() {
        for (one, other) in [
            ("https://api.example", "https://api.example/"),
            ("https://api.example/v1", "https://api.example/v1"),
            ("https://mcp.example.com/mcp", "https://MCP.example.com/mcp"),
            ("https://mcp.example.com/mcp", "HTTPS://mcp.example.com:443/mcp"),
            ("https://API.example:443", "https://api.example/"),
            ("http://api.example:80/a", "http://api.example/a"),
            ("https://[2001:DB8::443]:443/", "https://[2001:db8::443]"),
            ("https://api.example?tenant=A", "https://API.example/?tenant=A"),
            ("custom://Host/a", "CUSTOM://host/a"),
            ("URN:example:a", "urn:example:a"),
        ] {
            assert!(is_same(one, other), "{one} {other}");
        }
    }

    #[test]
    fn another_path_port_or_scheme_is_another_api() {
        for (one, other) in [
            ("https://api.example/v1", "https://api.example/v1/"),
            ("https://api.example/v1", "https://api.example/V1"),
            ("https://api.example/v1", "https://api.example/./v1"),
            ("https://api.example/~a", "https://api.example/%7Ea"),
            ("https://api.example", "https://api.example//"),
            ("https://api.example?tenant=A", "https://api.example?tenant=a"),
            ("https://api.example:80", "https://api.example"),
            ("https://api.example:4433", "https://api.example"),
            ("http://api.example:443", "https://api.example"),
            ("https://A@api.example", "https://a@api.example"),
            ("https://", "https:///"),
            ("urn:example:a", "urn:example:a/"),
            ("urn:example:a", "urn:example:A"),
        ] {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }
}

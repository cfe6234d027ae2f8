//! The metadata of a provider: OpenID Connect Discovery 3 and 4.

use serde::Deserialize;
use url::Url;

use crate::oauth::redirect_uri::is_loopback;

/// The supported members of a discovery document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// `authorization_endpoint`.
    pub authorization_endpoint: Url,
    /// `token_endpoint`.
    pub token_endpoint: Url,
    /// `userinfo_endpoint`.
    pub userinfo_endpoint: Option<Url>,
    /// `jwks_uri`.
    pub jwks_uri: Url,
    /// The client authentication methods.
    pub auth_methods: Vec<String>,
    /// The signature algorithms of ID tokens.
    pub id_token_algs: Vec<String>,
    /// The code challenge methods; empty if the member is missing.
    pub code_challenge_methods: Vec<String>,
    /// Whether authorization responses contain `iss` (RFC 9207 section 3).
    pub names_issuer: bool,
}

/// Why a discovery document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataProblem {
    /// Not the expected JSON.
    #[error("the discovery document is not the JSON object that OpenID Connect Discovery 3 describes")]
    Malformed,
    /// Another issuer (OpenID Connect Discovery 4.3).
    #[error("the discovery document names another issuer than the provider's record")]
    Issuer,
    /// An address is not https.
    #[error("{0} in the discovery document is not an https address")]
    Address(&'static str),
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    userinfo_endpoint: Option<String>,
    jwks_uri: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// The address of the document of an issuer (OpenID Connect Discovery 4.1).
pub fn address(issuer: &str) -> String {
    format!(
        "{}/.well-known/openid-configuration",
        issuer.strip_suffix('/').unwrap_or(issuer)
    )
}

/// Reads an address that may be fetched: https, with a host, without a user name or fragment.
pub fn https(text: &str) -> Option<Url> {
    plain_address(text).filter(|url| url.scheme() == "https")
}

/// Reads an address on this machine: http with a loopback address or `localhost`, without a user name or fragment.
pub fn http_on_loopback(text: &str) -> Option<Url> {
    plain_address(text).filter(|url| url.scheme() == "http" && is_loopback(url))
}

fn plain_address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_plain =
        url.has_host() && url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    is_plain.then_some(url)
}

impl Metadata {
    /// Reads the document that the provider with this issuer publishes.
    pub fn parse(document: &[u8], issuer: &str) -> Result<Self, MetadataProblem> {
        let document: Document = serde_json::from_slice(document).map_err(|_| MetadataProblem::Malformed)?;
        if document.issuer != issuer {
            return Err(MetadataProblem::Issuer);
        }
        let read = |name: &'static str, text: &str| https(text).ok_or(MetadataProblem::Address(name));
        let auth_methods = document.token_endpoint_auth_methods_supported;
        Ok(Self {
            authorization_endpoint: read("authorization_endpoint", &document.authorization_endpoint)?,
            token_endpoint: read("token_endpoint", &document.token_endpoint)?,
            userinfo_endpoint: document
                .userinfo_endpoint
                .map(|text| read("userinfo_endpoint", &text))
                .transpose()?,
            jwks_uri: read("jwks_uri", &document.jwks_uri)?,
            auth_methods: auth_methods.unwrap_or_else(|| vec!["client_secret_basic".to_owned()]),
            id_token_algs: document.id_token_signing_alg_values_supported,
            code_challenge_methods: document.code_challenge_methods_supported,
            names_issuer: document.authorization_response_iss_parameter_supported,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> serde_json::Value {
        json!({
            "issuer": "https://up.example",
            "authorization_endpoint": "https://up.example/auth?tenant=1",
            "token_endpoint": "https://up.example/token",
            "jwks_uri": "https://up.example/jwks",
        })
    }

    fn parse(document: &serde_json::Value) -> Result<Metadata, MetadataProblem> {
        Metadata::parse(document.to_string().as_bytes(), "https://up.example")
    }

    #[test]
    fn what_a_document_leaves_out_has_the_standards_default() {
        let metadata = parse(&document()).unwrap();
        assert_eq!(metadata.auth_methods, ["client_secret_basic"]);
        assert!(!metadata.names_issuer && metadata.userinfo_endpoint.is_none());
        assert_eq!(metadata.authorization_endpoint.query(), Some("tenant=1"));
    }

    #[test]
    fn a_document_of_another_issuer_is_refused() {
        for issuer in [
            "https://up.example/",
            "https://UP.example",
            "http://up.example",
            "",
        ] {
            let mut document = document();
            document["issuer"] = issuer.into();
            assert_eq!(parse(&document), Err(MetadataProblem::Issuer), "{issuer}");
        }
    }

    #[test]
    fn addresses_that_are_not_https_are_refused() {
        for name in [
            "authorization_endpoint",
            "token_endpoint",
            "userinfo_endpoint",
            "jwks_uri",
        ] {
            for bad in [
                "http://up.example/x",
                "javascript:alert(1)",
                "/x",
                "https://u:p@up.example/x",
                "https://up.example/#x",
                "file:///etc/passwd",
            ] {
                let mut document = document();
                document[name] = bad.into();
                assert_eq!(parse(&document), Err(MetadataProblem::Address(name)), "{bad}");
            }
        }
    }

    #[test]
    fn the_address_of_the_document_is_the_issuers() {
        assert_eq!(
            address("https://up.example/realms/a"),
            "https://up.example/realms/a/.well-known/openid-configuration"
        );
        assert_eq!(
            address("https://up.example/"),
            "https://up.example/.well-known/openid-configuration"
        );
    }
}

//! The discovery document: OpenID Connect Discovery 1.0 section 3, RFC 8414 section 2.

use serde_json::{Value, json};

use crate::jose::alg::Algorithm;
use crate::oauth::authorize::ResponseMode;
use crate::oauth::client::{AuthMethod, GrantType};
use crate::oauth::openid::claims;
use crate::oauth::openid::prompt;
use crate::oauth::scope::Scope;

/// What the document says that depends on how the service is set up.
#[derive(Clone, Debug)]
pub struct Metadata<'a> {
    /// The issuer.
    pub issuer: &'a str,
    /// The service's own name in the values of `grant_type`.
    pub service_name: &'a str,
    /// The address of the authorization endpoint.
    pub authorization_endpoint: String,
    /// The address of the token endpoint.
    pub token_endpoint: String,
    /// The address of the key set.
    pub jwks_uri: String,
    /// The address of the `UserInfo` endpoint.
    pub userinfo_endpoint: String,
    /// The address of the introspection endpoint.
    pub introspection_endpoint: String,
    /// The address of the revocation endpoint.
    pub revocation_endpoint: String,
    /// The address of the refresh endpoint for API keys.
    pub refresh_endpoint: String,
    /// The address of the logout endpoint.
    pub end_session_endpoint: String,
    /// The address of what developers of applications should read, where the operator names one.
    pub service_documentation: Option<&'a str>,
    /// The algorithms of the keys that are published.
    pub signing_algs: Vec<Algorithm>,
    /// The scope values that some client may have.
    pub scopes: Scope,
    /// The languages of the pages.
    pub ui_locales: &'a [&'a str],
}

impl Metadata<'_> {
    /// The document. It says what works and nothing else.
    pub fn document(&self) -> Value {
        let methods = |public: bool| -> Vec<_> {
            let all = AuthMethod::ALL.into_iter();
            all.filter(|method| public || *method != AuthMethod::None)
                .map(AuthMethod::as_str)
                .collect()
        };
        let mut document = json!({
            "issuer": self.issuer,
            "authorization_endpoint": self.authorization_endpoint,
            "token_endpoint": self.token_endpoint,
            "jwks_uri": self.jwks_uri,
            "userinfo_endpoint": self.userinfo_endpoint,
            "introspection_endpoint": self.introspection_endpoint,
            "revocation_endpoint": self.revocation_endpoint,
            "refresh_endpoint": self.refresh_endpoint,
            "end_session_endpoint": self.end_session_endpoint,
            "response_types_supported": ["code"],
            "response_modes_supported": ResponseMode::SUPPORTED,
            "grant_types_supported": GrantType::ALL.map(|grant| grant.value(self.service_name)),
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self.signing_algs,
            "token_endpoint_auth_methods_supported": methods(true),
            "token_endpoint_auth_signing_alg_values_supported": Algorithm::ALL,
            "introspection_endpoint_auth_methods_supported": methods(false),
            "introspection_endpoint_auth_signing_alg_values_supported": Algorithm::ALL,
            "revocation_endpoint_auth_methods_supported": methods(true),
            "revocation_endpoint_auth_signing_alg_values_supported": Algorithm::ALL,
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": self.scopes.iter().collect::<Vec<_>>(),
            "claim_types_supported": ["normal"],
            "claims_supported": claims::supported(),
            "claims_parameter_supported": true,
            "acr_values_supported": [claims::ACR_SIGNED_IN],
            "prompt_values_supported": prompt::SUPPORTED,
            "display_values_supported": ["page"],
            "ui_locales_supported": self.ui_locales,
            "authorization_response_iss_parameter_supported": true,
            "request_parameter_supported": false,
            "request_uri_parameter_supported": false,
        });
        if let (Some(page), Some(members)) = (self.service_documentation, document.as_object_mut()) {
            members.insert("service_documentation".to_owned(), page.into());
        }
        document
    }
}

//! The discovery document: OpenID Connect Discovery 1.0 section 3, RFC 8414 section 2. It has only members that a
//! standard defines, because certification suites warn of others.

use serde_json::{Map, Value, json};

use crate::identity::AuthenticationLevel;
use crate::jose::alg::Algorithm;
use crate::oauth::client::{AuthMethod, GrantType};
use crate::oauth::openid::prompt;
use crate::oauth::response_mode::ResponseMode;
use crate::oauth::scope::Scope;

/// The values of the document that depend on the configuration.
#[derive(Clone, Debug)]
pub struct Metadata<'a> {
    pub issuer: &'a str,
    /// The name of the service in the values of `grant_type`.
    pub service_name: &'a str,
    /// The names and values of the members that are endpoints.
    pub endpoints: Vec<(&'static str, String)>,
    /// The same for endpoints where clients show certificates. `None` if they cannot (RFC 8705 section 5).
    pub certificate_endpoints: Option<Vec<(&'static str, String)>>,
    /// Whether there are authorities whose certificates authenticate clients.
    pub has_client_authorities: bool,
    /// The documentation for application developers, if the operator configured an address.
    pub service_documentation: Option<&'a str>,
    /// The algorithms of the keys that are published.
    pub signing_algs: Vec<Algorithm>,
    /// The scope values that at least one client may have.
    pub scopes: Scope,
    /// The claims that scope values release, and the claims about tokens.
    pub claims: Vec<&'a str>,
    /// Whether clients may present identity assertions of a provider.
    pub accepts_id_jag: bool,
    /// Whether a client may be identified by the address of its metadata.
    pub client_documents: bool,
    /// Whether everybody may create an account.
    pub sign_up: bool,
    /// The languages of the pages.
    pub ui_locales: &'a [&'a str],
}

impl Metadata<'_> {
    pub fn document(&self) -> Value {
        let methods = |public: bool| -> Vec<_> {
            let all = AuthMethod::ALL.into_iter();
            all.filter(|method| public || *method != AuthMethod::None)
                .filter(|method| self.certificate_endpoints.is_some() || !method.uses_certificate())
                .filter(|method| self.has_client_authorities || *method != AuthMethod::TlsClientAuth)
                .map(AuthMethod::as_str)
                .collect()
        };
        let mut document = json!({
            "issuer": self.issuer,
            "response_types_supported": ["code"],
            "response_modes_supported": ResponseMode::SUPPORTED,
            "grant_types_supported": GrantType::ALL.map(|grant| grant.value(self.service_name)),
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self.signing_algs,
            "userinfo_signing_alg_values_supported": self.signing_algs,
            "authorization_signing_alg_values_supported": self.signing_algs,
            "token_endpoint_auth_methods_supported": methods(true),
            "token_endpoint_auth_signing_alg_values_supported": Algorithm::RECEIVED_NAMES,
            "introspection_signing_alg_values_supported": self.signing_algs,
            "introspection_endpoint_auth_methods_supported": methods(false),
            "introspection_endpoint_auth_signing_alg_values_supported": Algorithm::RECEIVED_NAMES,
            "revocation_endpoint_auth_methods_supported": methods(true),
            "revocation_endpoint_auth_signing_alg_values_supported": Algorithm::RECEIVED_NAMES,
            "code_challenge_methods_supported": ["S256"],
            "dpop_signing_alg_values_supported": Algorithm::RECEIVED_NAMES,
            "scopes_supported": self.scopes.iter().collect::<Vec<_>>(),
            "claim_types_supported": ["normal"],
            "claims_supported": self.claims,
            "claims_parameter_supported": true,
            "acr_values_supported": AuthenticationLevel::ALL,
            "prompt_values_supported": prompt::supported(self.sign_up),
            "display_values_supported": ["page"],
            "ui_locales_supported": self.ui_locales,
            "authorization_response_iss_parameter_supported": true,
            "request_parameter_supported": true,
            "request_uri_parameter_supported": false,
            "request_object_signing_alg_values_supported": Algorithm::RECEIVED_NAMES,
            "backchannel_logout_supported": true,
            "backchannel_logout_session_supported": true,
        });
        if let Some(members) = document.as_object_mut() {
            for (member, address) in &self.endpoints {
                members.insert((*member).to_owned(), json!(address));
            }
            if let Some(endpoints) = &self.certificate_endpoints {
                let aliases: Map<_, _> = endpoints
                    .iter()
                    .map(|(member, address)| ((*member).to_owned(), json!(address)))
                    .collect();
                members.insert("mtls_endpoint_aliases".to_owned(), aliases.into());
                members.insert(
                    "tls_client_certificate_bound_access_tokens".to_owned(),
                    json!(true),
                );
            }
            if self.accepts_id_jag {
                members.insert(
                    "authorization_grant_profiles_supported".to_owned(),
                    json!(["urn:ietf:params:oauth:grant-profile:id-jag"]),
                );
            }
            if self.client_documents {
                members.insert("client_id_metadata_document_supported".to_owned(), json!(true));
            }
            if let Some(page) = self.service_documentation {
                members.insert("service_documentation".to_owned(), json!(page));
            }
        }
        document
    }
}

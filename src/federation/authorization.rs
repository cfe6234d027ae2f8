//! The authorization request to a provider and its response: OpenID Connect Core 3.1.2, RFC 7636, RFC 9207.

use url::Url;
use zeroize::Zeroizing;

use super::metadata::Metadata;
use super::provider::Provider;
use crate::identity::Session;
use crate::oauth::authorize::AuthorizationRequest;
use crate::oauth::login::ResolvedPurpose;
use crate::oauth::parameters::Parameters;

/// A provider's error code with untrusted characters removed, cut to 64 characters.
pub(super) fn error_code(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    text.chars().filter(is_plain).take(64).collect()
}

/// The generated parameters of one authorization request.
pub struct AuthorizationParameters<'a> {
    /// `state`, which the response contains.
    pub state: &'a str,
    /// `nonce`, which the ID token contains.
    pub nonce: &'a str,
    /// `code_challenge`, S256.
    pub code_challenge: &'a str,
    /// Where the response is sent.
    pub redirect_uri: &'a str,
}

/// The address of the authorization request. It passes on what the client requested. If the user must authenticate
/// again (`must_reauthenticate`), the provider is asked to do it, and `max_age` makes it send `auth_time` (OpenID
/// Connect Core 2). `max_age` is not zero, because some providers then refuse every sign-in.
pub fn address(
    provider: &Provider,
    metadata: &Metadata,
    parameters: &AuthorizationParameters<'_>,
    request: Option<&AuthorizationRequest>,
    must_reauthenticate: bool,
) -> Url {
    let mut address = metadata.authorization_endpoint.clone();
    {
        let mut query = address.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", provider.client_id.as_deref().unwrap_or_default())
            .append_pair("redirect_uri", parameters.redirect_uri)
            .append_pair("scope", &provider.scope.to_string())
            .append_pair("state", parameters.state)
            .append_pair("nonce", parameters.nonce)
            .append_pair("code_challenge", parameters.code_challenge)
            .append_pair("code_challenge_method", "S256");
        if provider.posts_answer() {
            query.append_pair("response_mode", "form_post");
        }
        if let Some(hint) = request.and_then(|request| request.login_hint.as_deref()) {
            query.append_pair("login_hint", hint);
        }
        if let Some(locales) = request.and_then(|request| request.ui_locales.as_ref()) {
            query.append_pair("ui_locales", locales);
        }
        let freshness = must_reauthenticate.then_some(Session::FRESH.as_secs());
        if let Some(age) = request.and_then(|request| request.max_age).or(freshness) {
            query.append_pair("max_age", &age.to_string());
        }
        if must_reauthenticate {
            query.append_pair("prompt", "login");
        } else if request.is_some_and(|request| request.prompt.select_account) {
            query.append_pair("prompt", "select_account");
        }
    }
    address
}

/// A provider's authorization response.
pub struct Callback {
    /// `state`.
    pub state: String,
    /// `iss`, if it was sent.
    pub iss: Option<String>,
    /// The code or the error.
    pub response: ProviderResponse,
    /// `user`, which Apple posts at the first sign-in of an account. It is never read from an address.
    pub user: Option<String>,
}

/// The code or the error of an authorization response.
pub enum ProviderResponse {
    Code(Zeroizing<String>),
    /// The user refused at the provider.
    Denied,
    /// The provider is temporarily unavailable.
    Unavailable,
    /// Another error code of the provider.
    Failed(String),
}

impl Callback {
    /// Reads the parameters of the response. `None` if `state` is missing, if there is not either a code or an error,
    /// or if a parameter is repeated.
    pub fn parse(parameters: &Parameters) -> Option<Self> {
        parameters.each_once().ok()?;
        let response = match (parameters.get("error"), parameters.get("code")) {
            (Some("access_denied" | "user_cancelled_authorize"), None) => ProviderResponse::Denied,
            (Some("temporarily_unavailable" | "server_error"), None) => ProviderResponse::Unavailable,
            (Some(error), None) => ProviderResponse::Failed(error_code(error)),
            (None, Some(code)) => ProviderResponse::Code(Zeroizing::new(code.to_owned())),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(Self {
            state: parameters.get("state")?.to_owned(),
            iss: parameters.get("iss").map(ToOwned::to_owned),
            response,
            user: None,
        })
    }

    /// Whether the response may be from this provider (RFC 9207 section 2.4). A provider that announces `iss` must send
    /// it.
    pub fn is_from(&self, provider: &Provider, metadata: &Metadata) -> bool {
        match &self.iss {
            Some(iss) => *iss == provider.issuer,
            None => !metadata.names_issuer,
        }
    }
}

/// The provider to which the user is redirected without a page: the one that the client names, the one for the domain
/// of the expected user, or the only way to sign in.
pub fn direct_provider<'a>(
    purpose: &ResolvedPurpose,
    offered: &'a [std::sync::Arc<Provider>],
) -> Option<&'a Provider> {
    let client = purpose.client()?;
    let request = purpose.code_request();
    let named = request
        .and_then(|request| request.idp_hint.as_deref())
        .and_then(|hint| offered.iter().find(|provider| provider.id == hint));
    let by_domain = || {
        let hint = request?.login_hint.as_deref()?;
        offered.iter().find(|provider| provider.serves_domain_of(hint))
    };
    let only = || match offered {
        [only] if !client.password_sign_in => Some(only),
        _ => None,
    };
    named.or_else(by_domain).or_else(only).map(|provider| &**provider)
}

//! The question to a provider and its answer: OpenID Connect Core 3.1.2, RFC 7636, RFC 9207.

use url::Url;
use zeroize::Zeroizing;

use super::metadata::Metadata;
use super::provider::Provider;
use crate::identity::Session;
use crate::oauth::authorize::AuthorizationRequest;
use crate::oauth::login::ResolvedPurpose;
use crate::oauth::parameters::Parameters;

/// A provider's error code as it may be told: nothing but what codes are made of, and not endless.
pub(super) fn error_code(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    text.chars().filter(is_plain).take(64).collect()
}

/// What is drawn for one question.
pub struct Question<'a> {
    /// Comes back with the answer.
    pub state: &'a str,
    /// Comes back in the ID token.
    pub nonce: &'a str,
    /// The hash of what the code is redeemed with.
    pub code_challenge: &'a str,
    /// Where the answer goes.
    pub redirect_uri: &'a str,
}

/// The address to which a browser takes the question. What the client wished of the sign-in is passed on; whoever has
/// to prove anew who they are has to do it there, and the provider to say when they did: any `max_age` demands
/// `auth_time` of it (OpenID Connect Core 2). Not zero, which some take for a demand that no sign-in ever meets.
pub fn address(
    provider: &Provider,
    metadata: &Metadata,
    question: &Question<'_>,
    request: Option<&AuthorizationRequest>,
    must_prove: bool,
) -> Url {
    let mut address = metadata.authorization_endpoint.clone();
    {
        let mut query = address.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", provider.client_id.as_deref().unwrap_or_default())
            .append_pair("redirect_uri", question.redirect_uri)
            .append_pair("scope", &provider.scope.to_string())
            .append_pair("state", question.state)
            .append_pair("nonce", question.nonce)
            .append_pair("code_challenge", question.code_challenge)
            .append_pair("code_challenge_method", "S256");
        if let Some(hint) = request.and_then(|request| request.login_hint.as_deref()) {
            query.append_pair("login_hint", hint);
        }
        if let Some(locales) = request.and_then(|request| request.ui_locales.as_ref()) {
            query.append_pair("ui_locales", locales);
        }
        let of_proof = must_prove.then_some(Session::FRESH.as_secs());
        if let Some(age) = request.and_then(|request| request.max_age).or(of_proof) {
            query.append_pair("max_age", &age.to_string());
        }
        if must_prove {
            query.append_pair("prompt", "login");
        } else if request.is_some_and(|request| request.prompt.select_account) {
            query.append_pair("prompt", "select_account");
        }
    }
    address
}

/// A provider's answer, as the browser brings it.
pub struct Callback {
    /// `state`.
    pub state: String,
    /// `iss`, when it was sent.
    pub iss: Option<String>,
    /// What it says.
    pub outcome: Outcome,
}

/// What a provider's answer says.
pub enum Outcome {
    /// The code.
    Code(Zeroizing<String>),
    /// The user said no there.
    Denied,
    /// The provider cannot at the moment.
    Unavailable,
    /// Anything else; the code of the error, which is the provider's word.
    Failed(String),
}

impl Callback {
    /// Reads the parameters of the answer. Nothing for what is no answer: no `state`, neither code nor error, or one
    /// of them twice.
    pub fn parse(parameters: &Parameters) -> Option<Self> {
        parameters.each_once().ok()?;
        let outcome = match (parameters.get("error"), parameters.get("code")) {
            (Some("access_denied"), None) => Outcome::Denied,
            (Some("temporarily_unavailable" | "server_error"), None) => Outcome::Unavailable,
            (Some(error), None) => Outcome::Failed(error_code(error)),
            (None, Some(code)) => Outcome::Code(Zeroizing::new(code.to_owned())),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(Self {
            state: parameters.get("state")?.to_owned(),
            iss: parameters.get("iss").map(ToOwned::to_owned),
            outcome,
        })
    }

    /// Whether the answer can be this provider's (RFC 9207 section 2.4). A provider that promises to name itself has
    /// to.
    pub fn is_from(&self, provider: &Provider, metadata: &Metadata) -> bool {
        match &self.iss {
            Some(iss) => *iss == provider.issuer,
            None => !metadata.names_issuer,
        }
    }
}

/// The provider to which the user is sent without being asked: the one that the client names, the one that serves the
/// expected user's domain, or the only way in.
pub fn direct_provider<'a>(
    purpose: &ResolvedPurpose,
    offered: &'a [std::sync::Arc<Provider>],
) -> Option<&'a Provider> {
    let (request, client) = purpose.code_request()?;
    let named = request
        .idp_hint
        .as_deref()
        .and_then(|hint| offered.iter().find(|provider| provider.id == hint));
    let by_domain = || {
        let hint = request.login_hint.as_deref()?;
        offered.iter().find(|provider| provider.serves_domain_of(hint))
    };
    let only = || match offered {
        [only] if !client.password_sign_in => Some(only),
        _ => None,
    };
    named.or_else(by_domain).or_else(only).map(|provider| &**provider)
}

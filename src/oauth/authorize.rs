//! The authorization request and its response: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::{AuthenticationLevel, Session};
use crate::oauth::acr::required_level;
use crate::oauth::anonymous::AnonymousProof;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::consent;
use crate::oauth::dpop::{self, KeyThumbprint};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::openid::claims::{ClaimsParameter, ClaimsRequest};
use crate::oauth::openid::prompt::Prompt;
use crate::oauth::parameters::Parameters;
use crate::oauth::pkce::CodeChallenge;
use crate::oauth::redirect_uri::{self, MatchedRedirectUri};
use crate::oauth::registered_scope::RegisteredScopes;
use crate::oauth::resource::{self, Apis, Resources};
use crate::oauth::response_mode::{RequestedMode, ResponseMode, ResponseSigning};
use crate::oauth::scope::Scope;

/// Where a response is sent, and how. Once it exists, an error may be sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseTarget {
    /// The client's redirect URI.
    pub return_to: MatchedRedirectUri,
    /// How the response is sent.
    pub response_mode: ResponseMode,
    /// How the response is signed. `None` if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<ResponseSigning>,
    /// `state` of the request, byte for byte.
    pub state: Option<String>,
}

/// A response of the authorization endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationResponse {
    /// How it is sent.
    pub response_mode: ResponseMode,
    /// How it will be signed. `None` if it is sent unsigned or is signed already.
    pub signing: Option<ResponseSigning>,
    /// The redirect URI, without the response parameters.
    pub uri: String,
    pub parameters: Vec<(&'static str, String)>,
}

impl AuthorizationResponse {
    /// The error and its description, if the response is an error response.
    pub fn error(&self) -> Option<(&str, &str)> {
        let value = |name| {
            let (_, value) = self.parameters.iter().find(|(known, _)| *known == name)?;
            Some(value.as_str())
        };
        Some((value("error")?, value("error_description").unwrap_or_default()))
    }

    /// The redirect URI with the response in its query.
    pub fn location(&self) -> String {
        redirect_uri::with_query(&self.uri, &self.parameters)
    }
}

impl ResponseTarget {
    /// The response with a code (RFC 6749 section 4.1.2).
    pub fn code(&self, code: &str, issuer: &str) -> AuthorizationResponse {
        self.answer(vec![("code", code.to_owned())], issuer)
    }

    /// The error response (RFC 6749 section 4.1.2.1).
    pub fn refusal(&self, refusal: &Refusal, issuer: &str) -> AuthorizationResponse {
        let parameters = vec![
            ("error", refusal.code.as_str().to_owned()),
            ("error_description", refusal.description.clone().into_owned()),
        ];
        self.answer(parameters, issuer)
    }

    /// Adds `state` as it was sent and `iss` (RFC 9207 section 2).
    fn answer(&self, mut parameters: Vec<(&'static str, String)>, issuer: &str) -> AuthorizationResponse {
        if let Some(state) = &self.state {
            parameters.push(("state", state.clone()));
        }
        parameters.push(("iss", issuer.to_owned()));
        AuthorizationResponse {
            response_mode: self.response_mode,
            signing: self.signing.clone(),
            uri: self.return_to.uri().to_owned(),
            parameters,
        }
    }
}

/// A refused request, and where the error is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// Where the response is sent.
    pub target: ResponseTarget,
    /// The error.
    pub refusal: Refusal,
}

impl RefusedRequest {
    /// The error response.
    pub fn response(&self, issuer: &str) -> AuthorizationResponse {
        self.target.refusal(&self.refusal, issuer)
    }
}

/// A fault that must not be sent to a redirect URI. The user sees a page (RFC 6749 section 4.1.2.1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedRedirect {
    /// No `client_id`.
    #[error("client_id is missing")]
    MissingClient,
    #[error("client_id names no client of this service")]
    UnknownClient,
    /// The client is disabled. The message is that of an unknown client.
    #[error("{}", Self::UnknownClient)]
    DisabledClient,
    /// The metadata document of the client cannot be fetched or used. The text says why, for the log. The user sees the
    /// message for an unknown client.
    #[error("{}", Self::UnknownClient)]
    ClientDocument(String),
    /// The redirect URI cannot be trusted.
    #[error(transparent)]
    RedirectUri(#[from] redirect_uri::Mismatch),
    /// A `state` that cannot be returned byte for byte, or is too long.
    #[error("state is longer than 4096 bytes or has control characters")]
    State,
    /// A `request_uri` that the client may not use (RFC 9126 section 4).
    #[error("request_uri is unknown, expired or used, or belongs to another client")]
    RequestUri,
    /// An error that the client must not get by redirect: its request object cannot be verified, and the request names no
    /// redirect URI beside it (RFC 9101 section 7).
    #[error("{}", .0.description)]
    Refused(Refusal),
    /// An error that the client must not get by redirect: it registered itself or has a metadata document, and nobody has
    /// allowed it (RFC 9700 section 4.11.2).
    #[error(
        "{}: {}. The error is not sent to the application: it registered itself or has a metadata document, and nobody is signed in who has allowed it before",
        .0.code.as_str(), .0.description
    )]
    NotAllowedBefore(Refusal),
    /// A parameter that decides where the response is sent was sent twice.
    #[error("a parameter was sent more than once")]
    Ambiguous,
}

/// Decides where the response to a request is sent.
pub fn response_target(
    parameters: &Parameters,
    client: &Client,
) -> Result<ResponseTarget, UntrustedRedirect> {
    for name in ["client_id", "redirect_uri", "state", "response_mode"] {
        if parameters.is_repeated(name) {
            return Err(UntrustedRedirect::Ambiguous);
        }
    }
    let state = parameters.get("state");
    if state.is_some_and(|state| state.len() > MAX_STATE_BYTES || state.chars().any(char::is_control)) {
        return Err(UntrustedRedirect::State);
    }
    let requested = parameters
        .get("response_mode")
        .and_then(RequestedMode::parse)
        .unwrap_or_default();
    Ok(ResponseTarget {
        return_to: client.match_redirect_uri(parameters.get("redirect_uri"))?,
        response_mode: requested.mode,
        signing: requested.is_signed.then(|| ResponseSigning::of(client)),
        state: state.map(ToOwned::to_owned),
    })
}

/// A validated authorization request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRequest {
    /// The client that asks.
    pub client_id: String,
    /// The identifier of its record. A client that is registered later under the same `client_id` gets no response.
    pub client_uuid: Uuid,
    /// Where the response is sent.
    pub target: ResponseTarget,
    /// The scope to grant: the requested values that the client may have.
    pub scope: Scope,
    /// The APIs that the client names.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// `nonce`, for the ID token.
    pub nonce: Option<String>,
    /// `code_challenge`, S256.
    pub code_challenge: Option<CodeChallenge>,
    /// The key that the code is bound to (RFC 9449 section 10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop_jkt: Option<KeyThumbprint>,
    /// What the user must be asked.
    pub prompt: Prompt,
    /// The greatest age of the sign-in, in seconds.
    pub max_age: Option<u64>,
    /// The level that the sign-in must have: see [`required_level`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_level: Option<AuthenticationLevel>,
    /// The user that the client expects.
    pub login_hint: Option<String>,
    /// The provider at which the client wants the user to sign in.
    pub idp_hint: Option<String>,
    /// The user who must be signed in (`id_token_hint`, or `sub` in `claims`).
    pub subject: Option<Uuid>,
    /// The other users who may be signed in, if `claims` names several.
    pub other_subjects: BTreeSet<Uuid>,
    /// The claims asked for one by one.
    pub claims: ClaimsRequest,
    /// The languages the user prefers, best first.
    pub ui_locales: Option<String>,
    /// The key under which the answer is recorded, if the request was pushed. Such a request is answered once (RFC 9126
    /// section 7.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_key: Option<UseKey>,
    /// The anonymous user whom the sign-in upgrades, if the request was pushed with its refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<AnonymousProof>,
}

/// The key of a row that says that something was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseKey {
    /// The hour since the epoch after which the row may go.
    pub hour: u32,
    /// Random bytes.
    pub random: [u8; 32],
}

/// Reads the user of an ID token that this service issued. The token may have expired.
pub type HintReader<'a> = &'a dyn Fn(&str) -> Option<Uuid>;

const MAX_NONCE_BYTES: usize = 1024;
const MAX_STATE_BYTES: usize = 4096;
/// The most users that one request may name. They are stored until the sign-in ends.
const MAX_SUBJECTS: usize = 50;

impl AuthorizationRequest {
    /// Validates what the client asks for. A refusal goes to `target`.
    pub fn parse(
        parameters: &Parameters,
        client: &Client,
        apis: &Apis,
        scopes: &RegisteredScopes,
        target: ResponseTarget,
        read_hint: HintReader<'_>,
    ) -> Result<Self, Refusal> {
        check_form(parameters)?;
        if !client.may_use(GrantType::AuthorizationCode) {
            return Err(Refusal::new(
                ErrorCode::UnauthorizedClient,
                "this client is not registered for the authorization_code grant",
            ));
        }
        let ClaimsParameter { request, demands } = match parameters.get("claims") {
            None => ClaimsParameter::default(),
            Some(text) => ClaimsParameter::parse(text, &client.scope, scopes)
                .map_err(|problem| Refusal::naming(ErrorCode::InvalidRequest, &problem.to_string()))?,
        };
        let required_level = required_level(parameters.get("acr_values"), demands.essential_acr.as_ref())?;
        let prompt = Prompt::parse(parameters.get("prompt").unwrap_or_default())
            .map_err(|problem| Refusal::naming(ErrorCode::InvalidRequest, &problem.to_string()))?;
        let hinted = hinted(parameters, prompt, read_hint)?;
        let allowed = allowed_users(hinted, demands.subjects)?;
        let resources = apis.resolve(&resource::resources(parameters)?, client)?;
        let start_of = |name, max_chars| {
            let text = parameters.get(name)?;
            Some(text.chars().take(max_chars).collect())
        };
        let scope = requested_scope(parameters, client, apis, &resources)?;
        let nonce = nonce(parameters)?;
        let needs_challenge = client.requires_challenge(&scope, nonce.as_deref());
        Ok(Self {
            client_id: client.client_id.clone(),
            client_uuid: client.client_uuid,
            scope,
            resources,
            nonce,
            code_challenge: code_challenge(parameters, needs_challenge)?,
            dpop_jkt: dpop::requested_key(parameters)?,
            prompt,
            max_age: max_age(parameters)?.or(client.default_max_age),
            required_level,
            login_hint: start_of("login_hint", 256),
            idp_hint: start_of("idp_hint", 64),
            subject: allowed.subject,
            other_subjects: allowed.others,
            claims: request,
            ui_locales: start_of("ui_locales", 256),
            use_key: None,
            anonymous: None,
            target,
        })
    }

    /// Whether the response may still be sent to the client, whose record may have changed since the request. If the
    /// client must now use PKCE, no code is issued without a challenge.
    pub fn may_be_answered(&self, client: &Client) -> bool {
        client.enabled
            && client.client_uuid == self.client_uuid
            && client
                .match_redirect_uri(Some(self.target.return_to.uri()))
                .is_ok()
            && (self.code_challenge.is_some()
                || !client.requires_challenge(&self.scope, self.nonce.as_deref()))
    }

    /// Whether the user must choose to continue in a live session: the client demands it, or is a native application,
    /// which another application on the user's machine can pretend to be (RFC 8252 section 8.6). A confidential client
    /// at a loopback address needs no choice, because it authenticates when it redeems the code. With a private-use
    /// scheme, its server redeems the code of any application that has taken the scheme.
    pub fn requires_choice(&self, client: &Client) -> bool {
        let return_to = &self.target.return_to;
        let is_native = return_to.has_private_scheme() || (client.is_public() && return_to.is_native());
        self.prompt.select_account || is_native
    }

    /// Whether this user may be the one signed in.
    pub fn may_be(&self, user: Uuid) -> bool {
        self.subject.is_none_or(|subject| subject == user) || self.other_subjects.contains(&user)
    }

    /// Whether the user has to sign in again although a session is live: a new account or authentication is demanded, or
    /// `max_age` is and the age of the sign-in is unknown.
    pub fn requires_sign_in(&self, session: &Session, now: Timestamp) -> bool {
        self.prompt.create
            || self.requires_reauthentication(session, now)
            || (session.auth_time.is_none() && self.max_age.is_some())
    }

    /// Whether the user has to authenticate again although a session is live: `prompt=login`, or a sign-in older than
    /// `max_age`. Zero always asks for a new one (OpenID Connect Core 3.1.2.1). If the age of the sign-in is unknown,
    /// the provider decides.
    pub fn requires_reauthentication(&self, session: &Session, now: Timestamp) -> bool {
        self.prompt.login || self.max_age.is_some_and(|age| session.is_older_than(age, now))
    }

    /// The scope values and APIs that the user is asked to allow.
    pub fn scope_for_consent(&self) -> Scope {
        consent::requested_consent(&self.scope, &self.claims, &self.resources)
    }
}

/// Parameters that are not supported (OpenID Connect Core 3.1.2.6).
const UNSUPPORTED: [(&str, ErrorCode, &str); 2] = [
    (
        "request_uri",
        ErrorCode::RequestUriNotSupported,
        "request_uri is not supported",
    ),
    (
        "registration",
        ErrorCode::RegistrationNotSupported,
        "the registration parameter is not supported",
    ),
];

fn check_form(parameters: &Parameters) -> Result<(), Refusal> {
    parameters.each_once()?;
    for (name, code, problem) in UNSUPPORTED {
        if parameters.get(name).is_some() {
            return Err(Refusal::new(code, problem));
        }
    }
    match parameters.get("response_type") {
        None => {
            return Err(Refusal::invalid_request(
                "response_type is missing; it must be code",
            ));
        }
        Some("code") => {}
        Some(_) => {
            return Err(Refusal::new(
                ErrorCode::UnsupportedResponseType,
                "response_type must be code",
            ));
        }
    }
    match parameters.get("response_mode") {
        Some(mode) if RequestedMode::parse(mode).is_none() => Err(Refusal::invalid_request(
            "response_mode must be query, form_post, jwt, query.jwt or form_post.jwt",
        )),
        _ => Ok(()),
    }
}

/// The requested scope, without values that the client may not have (RFC 6749 section 3.3) and without values of APIs
/// that the request does not name. Malformed values are refused. If a client that registered itself names APIs but no
/// scope, it requests all scope values of these APIs.
fn requested_scope(
    parameters: &Parameters,
    client: &Client,
    apis: &Apis,
    resources: &Resources,
) -> Result<Scope, Refusal> {
    let asked = match Scope::requested(parameters)? {
        None if client.registered_itself() => {
            let named = resources.iter().filter_map(|identifier| apis.named(identifier));
            named.fold(client.default_scope.clone(), |scope, api| {
                scope.union(&api.metadata.scope)
            })
        }
        None => client.default_scope.clone(),
        Some(asked) => asked.filter(|value| client.scope.contains(value)),
    };
    Ok(apis.scope_within(&asked, resources))
}

fn nonce(parameters: &Parameters) -> Result<Option<String>, Refusal> {
    match parameters.get("nonce") {
        Some(nonce) if nonce.len() > MAX_NONCE_BYTES || nonce.chars().any(char::is_control) => Err(
            Refusal::invalid_request("nonce is longer than 1024 bytes or has control characters"),
        ),
        nonce => Ok(nonce.map(ToOwned::to_owned)),
    }
}

/// RFC 7636 section 4.3. A challenge without a method means `plain`, which is refused.
fn code_challenge(parameters: &Parameters, is_needed: bool) -> Result<Option<CodeChallenge>, Refusal> {
    match (
        parameters.get("code_challenge"),
        parameters.get("code_challenge_method"),
    ) {
        (Some(challenge), Some("S256")) => CodeChallenge::parse(challenge)
            .map(Some)
            .map_err(|problem| Refusal::naming(ErrorCode::InvalidRequest, &problem.to_string())),
        (Some(_), _) => Err(Refusal::invalid_request("code_challenge_method must be S256")),
        (None, Some(_)) => Err(Refusal::invalid_request("code_challenge is missing")),
        (None, None) if is_needed => Err(Refusal::invalid_request(
            "code_challenge is missing; this client must use PKCE with S256",
        )),
        (None, None) => Ok(None),
    }
}

fn max_age(parameters: &Parameters) -> Result<Option<u64>, Refusal> {
    let Some(text) = parameters.get("max_age") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(seconds) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Some(seconds)),
        _ => Err(Refusal::invalid_request("max_age is a number of seconds")),
    }
}

/// The user of `id_token_hint` (OpenID Connect Core 3.1.2.1). A hint that cannot be read is ignored, because the key
/// that signed it may have been removed. With `prompt=none` it is refused, because the signed-in user cannot be
/// compared with it.
fn hinted(
    parameters: &Parameters,
    prompt: Prompt,
    read_hint: HintReader<'_>,
) -> Result<Option<Uuid>, Refusal> {
    let Some(token) = parameters.get("id_token_hint") else {
        return Ok(None);
    };
    match read_hint(token) {
        None if prompt.none => Err(Refusal::new(
            ErrorCode::LoginRequired,
            "id_token_hint is not an ID token of this service, or its key is gone",
        )),
        hinted => Ok(hinted),
    }
}

/// The users who may be signed in.
struct AllowedUsers {
    /// One of them. `None` allows every user.
    subject: Option<Uuid>,
    others: BTreeSet<Uuid>,
}

fn allowed_users(hinted: Option<Uuid>, demanded: Option<BTreeSet<String>>) -> Result<AllowedUsers, Refusal> {
    let only = |subject| AllowedUsers {
        subject,
        others: BTreeSet::new(),
    };
    let Some(demanded) = demanded else {
        return Ok(only(hinted));
    };
    // Every subject is a UUID. Other values match no user and are left out.
    let demanded = demanded.into_iter().filter_map(|text| text.parse().ok());
    let mut demanded: BTreeSet<Uuid> = demanded.collect();
    if demanded.len() > MAX_SUBJECTS {
        return Err(Refusal::invalid_request("the sub in claims names too many users"));
    }
    match hinted {
        None => {
            // No user has the nil UUID, so a set without a user allows none.
            let subject = Some(demanded.pop_first().unwrap_or(Uuid::nil()));
            Ok(AllowedUsers {
                subject,
                others: demanded,
            })
        }
        Some(hinted) if demanded.contains(&hinted) => Ok(only(Some(hinted))),
        Some(_) => Err(Refusal::invalid_request(
            "id_token_hint and the sub in claims name different users",
        )),
    }
}

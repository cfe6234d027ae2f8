//! Why a request is refused: the error code of a standard, and a sentence that says what to correct.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::described::described;

described! {
    /// The error code of a response.
    #[derive(Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ErrorCode {
        /// A parameter is missing, malformed or repeated, or the client used two authentication methods.
        /// `error_description` names it: correct the request (RFC 6749 sections 4.1.2.1 and 5.2; RFC 6750 section 3.1).
        InvalidRequest = "invalid_request",
        /// The client is not authenticated. Check its identifier and its secret, key or API key. The log of the service has
        /// the reason (RFC 6749 section 5.2).
        InvalidClient = "invalid_client",
        /// The code, refresh token or assertion is unknown, expired, used, revoked, or of another client. Send the user to
        /// sign in again. Or the user is in no group that may use the client (RFC 6749 section 5.2).
        InvalidGrant = "invalid_grant",
        /// The client may not use this grant. The operator allows it with `idsvc client update` (RFC 6749 sections 4.1.2.1
        /// and 5.2).
        UnauthorizedClient = "unauthorized_client",
        /// The service has no such grant. `grant_types_supported` in the discovery document lists all grants (RFC 6749
        /// section 5.2).
        UnsupportedGrantType = "unsupported_grant_type",
        /// The scope is malformed, or the client may not ask for it. Ask for less, or have the operator add it to the client
        /// (RFC 6749 sections 4.1.2.1 and 5.2).
        InvalidScope = "invalid_scope",
        /// `resource` names an API that is unknown or that this client may not use. The operator allows it with
        /// `idsvc client update --api` (RFC 8707 section 2).
        InvalidTarget = "invalid_target",
        /// The proof in the header `DPoP` is not valid, or there is none. `error_description` says what to correct. Sign a new
        /// proof for each request (RFC 9449 section 5).
        InvalidDpopProof = "invalid_dpop_proof",
        /// Sign a new proof with the nonce in the header `DPoP-Nonce`, and repeat the request (RFC 9449 section 8).
        UseDpopNonce = "use_dpop_nonce",
        /// A redirect URI cannot be registered. `error_description` says why (RFC 7591 section 3.2.2).
        InvalidRedirectUri = "invalid_redirect_uri",
        /// Another member of the registered metadata is malformed or asks for an unsupported feature.
        /// `error_description` names the member (RFC 7591 section 3.2.2).
        InvalidClientMetadata = "invalid_client_metadata",
        /// The user declined, or did not sign in at the provider. Offer to sign in again (RFC 6749 section 4.1.2.1, RFC 8628
        /// section 3.5). With `prompt=none`: the user is in no group that may use the client. With
        /// `anonymous_refresh_token`: another sign-in has upgraded the anonymous user. Leave the parameter out.
        AccessDenied = "access_denied",
        /// The user has not decided about the device yet. Poll again after the interval (RFC 8628 section 3.5).
        AuthorizationPending = "authorization_pending",
        /// The device polls too often. Wait five seconds longer before each further poll (RFC 8628 section 3.5).
        SlowDown = "slow_down",
        /// The device code has expired. Begin again at the device authorization endpoint (RFC 8628 section 3.5).
        ExpiredToken = "expired_token",
        /// Send `response_type=code` (RFC 6749 section 4.1.2.1).
        UnsupportedResponseType = "unsupported_response_type",
        /// The service failed. Give the operator the request ID: the log has the error (RFC 6749 section 4.1.2.1).
        ServerError = "server_error",
        /// The service lacks something at this moment, or the sender is over a limit. Repeat the request after the seconds
        /// in `Retry-After` (RFC 6749 section 4.1.2.1).
        TemporarilyUnavailable = "temporarily_unavailable",
        /// The access token is unknown, expired or revoked. Refresh it, or send the user to sign in (RFC 6750 section 3.1). At
        /// registration: the initial or registration access token is unknown, expired or used up.
        InvalidToken = "invalid_token",
        /// The access token lacks the scope `openid`. Ask for it when the user signs in (RFC 6750 section 3.1).
        InsufficientScope = "insufficient_scope",
        /// Nobody is signed in, or another user than the requested one. Send the user without `prompt=none` (OpenID Connect
        /// Core section 3.1.2.6).
        LoginRequired = "login_required",
        /// The user must choose to continue. Send the user without `prompt=none` (OpenID Connect Core section 3.1.2.6).
        InteractionRequired = "interaction_required",
        /// The user has not consented yet. Send the user without `prompt=none` (OpenID Connect Core section 3.1.2.6).
        ConsentRequired = "consent_required",
        /// The request object in the parameter `request` is not valid. `error_description` says what to correct (RFC 9101
        /// section 7).
        InvalidRequestObject = "invalid_request_object",
        /// Leave out the parameter `request_uri` (OpenID Connect Core section 3.1.2.6).
        RequestUriNotSupported = "request_uri_not_supported",
        /// Leave out the parameter `registration` (OpenID Connect Core section 3.1.2.6).
        RegistrationNotSupported = "registration_not_supported",
        /// The provider does not say when the user signed in there, and `max_age` asks for it. Or none of the essential
        /// `acr` values can be met (OpenID Connect Core Error Code `unmet_authentication_requirements` 1.0).
        UnmetAuthenticationRequirements = "unmet_authentication_requirements",
    }
}

described! {
    /// Why a request was refused. The log has it, and the response does not.
    pub enum Cause {
        /// The user is in no group that may use the client.
        NotInGroup = "not_in_group",
        /// No client has this identifier.
        UnknownClient = "unknown_client",
        /// The client is disabled.
        ClientDisabled = "client_disabled",
        /// The client has to authenticate, and sent nothing to do so.
        NoSecret = "no_secret",
        /// The client has another secret.
        WrongSecret = "wrong_secret",
        /// The client sent a secret, and has a key only.
        ClientHasNoSecret = "client_has_no_secret",
        /// The client is public and sent a secret.
        PublicClientSentSecret = "public_client_sent_secret",
        /// The client sent an assertion, and has no key.
        ClientHasNoKey = "client_has_no_key",
        /// The `kid` or `alg` of the assertion fits no key of the client, or no client has this API key.
        UnknownKey = "unknown_key",
        /// The assertion is signed with an algorithm that no key of the client is for.
        AlgorithmNotAllowed = "algorithm_not_allowed",
        /// The `typ` of the assertion is neither `JWT` nor `client-authentication+jwt`.
        WrongTyp = "wrong_typ",
        /// The signature of the assertion is wrong.
        BadSignature = "bad_signature",
        /// The assertion is no JWT.
        Malformed = "malformed",
        /// The client has to show its certificate, and showed none.
        NoCertificate = "no_certificate",
        /// The certificate is not valid now, not for clients, or not of an authority in `tls.mtls_ca`.
        UntrustedCertificate = "untrusted_certificate",
        /// The names in the certificate cannot be read.
        UnreadableCertificate = "unreadable_certificate",
        /// The certificate has another name than the registered one.
        CertificateOfAnotherName = "certificate_of_another_name",
        /// The key of the certificate is not among the registered keys.
        CertificateOfUnknownKey = "certificate_of_unknown_key",
        /// The client showed a certificate, and authenticates otherwise.
        ClientHasNoCertificate = "client_has_no_certificate",
        /// The API key is that of another client than the one that the request names.
        KeyOfAnotherClient = "key_of_another_client",
    }
}

/// The refusal of a request. It is a result and not a failure, so the transaction that decided it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: ErrorCode,
    /// `error_description`: printable ASCII without quotes and backslashes (RFC 6749 section 5.2).
    pub description: Cow<'static, str>,
    /// The cause for the log, if the response must not contain it.
    #[serde(skip)]
    pub cause: Option<Cause>,
    /// The user whom the event of the refusal names.
    #[serde(skip)]
    pub user: Option<Uuid>,
}

impl Refusal {
    /// The refusal of a client that is unknown, disabled or not authenticated. It does not say which.
    pub const CLIENT_UNPROVEN: Self = Self::invalid_client("client authentication failed");

    /// A refusal with a sentence that says what to correct.
    pub const fn new(code: ErrorCode, description: &'static str) -> Self {
        Self {
            code,
            description: Cow::Borrowed(description),
            cause: None,
            user: None,
        }
    }

    /// The same refusal, with its cause for the log.
    #[must_use]
    pub fn because(self, cause: Cause) -> Self {
        Self {
            cause: Some(cause),
            ..self
        }
    }

    /// A refusal whose sentence contains text of the client. Characters that an `error_description` may not contain
    /// become `?`.
    pub fn naming(code: ErrorCode, description: &str) -> Self {
        Self {
            code,
            description: Cow::Owned(printable(description, 300)),
            cause: None,
            user: None,
        }
    }

    /// The refusal of a user who is in no group that may use the client.
    pub fn not_in_group(code: ErrorCode, user: Uuid) -> Self {
        Self {
            cause: Some(Cause::NotInGroup),
            user: Some(user),
            ..Self::new(code, "the user is in no group that may use this client")
        }
    }

    /// `invalid_request`.
    pub const fn invalid_request(description: &'static str) -> Self {
        Self::new(ErrorCode::InvalidRequest, description)
    }

    /// `invalid_grant`.
    pub const fn invalid_grant(description: &'static str) -> Self {
        Self::new(ErrorCode::InvalidGrant, description)
    }

    /// `invalid_client`.
    pub const fn invalid_client(description: &'static str) -> Self {
        Self::new(ErrorCode::InvalidClient, description)
    }
}

/// The first characters of an untrusted text. Quotes, backslashes and all that is not printable ASCII become `?`.
pub fn printable(text: &str, max_chars: usize) -> String {
    let shown = |c| {
        if matches!(c, ' '..='!' | '#'..='[' | ']'..='~') {
            c
        } else {
            '?'
        }
    };
    text.chars().take(max_chars).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_never_holds_quotes_backslashes_or_line_breaks() {
        let refusal = Refusal::naming(ErrorCode::InvalidScope, "scope \"a\\b\"\r\n é");
        assert_eq!(refusal.description, "scope ?a?b???? ?".replace("???? ?", "??? ?"));
    }
}

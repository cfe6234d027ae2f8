//! Why a request is refused: the error code of a standard, and a sentence that says what to correct.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The error code of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// RFC 6749 sections 4.1.2.1 and 5.2; RFC 6750 section 3.1.
    InvalidRequest,
    /// RFC 6749 section 5.2.
    InvalidClient,
    /// RFC 6749 section 5.2.
    InvalidGrant,
    /// RFC 6749 sections 4.1.2.1 and 5.2.
    UnauthorizedClient,
    /// RFC 6749 section 5.2.
    UnsupportedGrantType,
    /// RFC 6749 sections 4.1.2.1 and 5.2.
    InvalidScope,
    /// RFC 6749 section 4.1.2.1: the user or the service refused.
    AccessDenied,
    /// RFC 6749 section 4.1.2.1.
    UnsupportedResponseType,
    /// RFC 6749 section 4.1.2.1.
    ServerError,
    /// RFC 6749 section 4.1.2.1: try again later.
    TemporarilyUnavailable,
    /// RFC 6750 section 3.1.
    InvalidToken,
    /// RFC 6750 section 3.1.
    InsufficientScope,
    /// OpenID Connect Core 3.1.2.6.
    LoginRequired,
    /// OpenID Connect Core 3.1.2.6.
    InteractionRequired,
    /// OpenID Connect Core 3.1.2.6.
    ConsentRequired,
    /// OpenID Connect Core 3.1.2.6.
    RequestNotSupported,
    /// OpenID Connect Core 3.1.2.6.
    RequestUriNotSupported,
    /// OpenID Connect Core 3.1.2.6.
    RegistrationNotSupported,
    /// OpenID Connect Core Error Code `unmet_authentication_requirements` 1.0.
    UnmetAuthenticationRequirements,
}

impl ErrorCode {
    /// The code as it is sent.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::UnauthorizedClient => "unauthorized_client",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::InvalidScope => "invalid_scope",
            Self::AccessDenied => "access_denied",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::ServerError => "server_error",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
            Self::InvalidToken => "invalid_token",
            Self::InsufficientScope => "insufficient_scope",
            Self::LoginRequired => "login_required",
            Self::InteractionRequired => "interaction_required",
            Self::ConsentRequired => "consent_required",
            Self::RequestNotSupported => "request_not_supported",
            Self::RequestUriNotSupported => "request_uri_not_supported",
            Self::RegistrationNotSupported => "registration_not_supported",
            Self::UnmetAuthenticationRequirements => "unmet_authentication_requirements",
        }
    }
}

/// The refusal of a request. It is a result and not a failure, so the transaction that decided it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The code.
    pub code: ErrorCode,
    /// `error_description`: printable ASCII without quotes and backslashes (RFC 6749 section 5.2).
    pub description: Cow<'static, str>,
    /// The cause in one word for the log, if the response must not contain it.
    #[serde(skip)]
    pub cause: Option<&'static str>,
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
        }
    }

    /// The same refusal, with its cause for the log.
    #[must_use]
    pub fn because(self, cause: &'static str) -> Self {
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

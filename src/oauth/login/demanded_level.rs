//! The level that a sign-in must have: the one that the request demands, or a higher one that the operator demands for the
//! client.

use super::ResolvedPurpose;
use crate::identity::AuthenticationLevel;
use crate::oauth::authorize::AuthorizationRequest;
use crate::oauth::client::Client;

/// The level that a sign-in for this request must have.
pub(super) fn required_level(request: &AuthorizationRequest, client: &Client) -> Option<AuthenticationLevel> {
    request.required_level.max(client.acr)
}

/// Whether the sign-in lets a user without a second factor set one up, because the operator demands two factors for the
/// client.
pub(super) fn lets_user_enrol(request: &AuthorizationRequest, client: &Client) -> bool {
    let two = Some(AuthenticationLevel::TwoFactors);
    client.acr == two && required_level(request, client) == two
}

impl ResolvedPurpose {
    /// The level that the sign-in must have.
    pub fn required_level(&self) -> Option<AuthenticationLevel> {
        match self {
            Self::Code { request, client } => required_level(request, client),
            Self::Device { client, .. } => client.acr,
            Self::Account(_) => None,
        }
    }

    /// Whether only a passkey is accepted.
    pub fn demands_passkey(&self) -> bool {
        self.required_level() == Some(AuthenticationLevel::PhishingResistant)
    }

    /// Whether a second factor is asked for even after a sign-in at a provider, if the user has one: for an action on the
    /// account page, which may need it.
    pub fn requires_second_factor(&self) -> bool {
        match self {
            Self::Code { .. } | Self::Device { .. } => {
                self.required_level() >= Some(AuthenticationLevel::TwoFactors)
            }
            Self::Account(account) => account.action_pending,
        }
    }

    /// Whether a user without a second factor may set one up in the sign-in, because the operator demands two factors for
    /// the client. A sign-in to the account page is for no client.
    pub fn lets_user_enrol(&self) -> bool {
        match self {
            Self::Code { request, client } => lets_user_enrol(request, client),
            Self::Device { client, .. } => client.acr == Some(AuthenticationLevel::TwoFactors),
            Self::Account(_) => false,
        }
    }
}

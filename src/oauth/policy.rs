//! The settings that protocol rules depend on.

use std::time::Duration;

use crate::identity::{AccountPolicy, SessionLifetimes, User};
use crate::jose::alg::Algorithm;
use crate::oauth::access_token_typ::AccessTokenTyp;
use crate::oauth::dpop::DpopNonce;
use crate::oauth::mtls::MtlsPolicy;
use crate::oauth::registration::{RegistrationMode, RegistrationPolicy};
use crate::password::{PasswordPolicy, PasswordProblem};
use crate::webauthn::RelyingParty;

/// The part of the configuration that protocol rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The issuer identifier (RFC 8414 section 2): the configured base URL, byte for byte.
    pub issuer: String,
    /// The name of the service in the `grant_type` of the anonymous grant.
    pub service_name: String,
    /// `organization` of new users.
    pub organization: String,
    /// The documentation for application developers (RFC 8414 section 2).
    pub service_documentation: Option<String>,
    /// How long things last.
    pub lifetimes: Lifetimes,
    /// How long a replaced refresh token stays valid for the retry of a lost response, unless its successor was used.
    pub refresh_retry_window: Duration,
    /// The algorithm of access tokens, unless the client has its own.
    pub access_token_alg: Algorithm,
    /// `typ` of access tokens, unless the API or the client has its own.
    pub access_token_typ: AccessTokenTyp,
    /// Whether DPoP proofs must have a nonce of the service.
    pub dpop_nonce: DpopNonce,
    /// Where clients show certificates.
    pub mtls: MtlsPolicy,
    /// Whether the token response repeats `id_token` under the name `idtoken`.
    pub id_token_alias: bool,
    /// How long an anonymous user is kept after the last refresh token has ended.
    pub anonymous_retention: Duration,
    /// How keys are replaced.
    pub key_rotation: KeyRotation,
    /// Whether a client may be identified by the address of its metadata.
    pub metadata_documents: bool,
    /// The rules for passwords.
    pub password: PasswordPolicy,
    /// Who may register a client, and how many.
    pub registration: RegistrationPolicy,
    /// Who may create an account.
    pub accounts: AccountPolicy,
    /// Further origins whose pages may use the passkeys.
    pub passkey_origins: Vec<String>,
    /// Whether a user without a passkey is offered one after a sign-in with a password.
    pub passkey_offer: bool,
    /// Whether mails can be sent: there is a mail server, or it is the development server.
    pub sends_mail: bool,
}

/// How long things last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    pub access_token: Duration,
    pub refresh_token: Duration,
    /// A refresh family of a confidential client; none for no limit.
    pub refresh_absolute: Option<Duration>,
    /// A refresh family of a public client; none for no limit.
    pub refresh_absolute_public: Option<Duration>,
    /// Authorization codes.
    pub code: Duration,
    pub device_code: Duration,
    /// The time in which a browser may come with a pushed authorization request.
    pub pushed_request: Duration,
    pub id_token: Duration,
    pub login_transaction: Duration,
    /// Browser sessions.
    pub session: SessionLifetimes,
}

/// How signing keys are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRotation {
    /// How long a key signs before it is replaced; none for never.
    pub every: Option<Duration>,
    /// How long a new key is published before it signs, so that verifiers have fetched it.
    pub announce: Duration,
}

impl KeyRotation {
    /// How long verifiers may cache the key set. A key is announced for at least this long before it signs.
    pub const KEPT_BY_VERIFIERS: Duration = Duration::from_mins(5);
}

impl Policy {
    /// Whether there may be clients that the operator did not register.
    pub fn takes_registrants(&self) -> bool {
        self.registration.mode != RegistrationMode::Off || self.metadata_documents
    }

    pub fn check_password(&self, user: &User, chosen: &str) -> Result<(), PasswordProblem> {
        let mut known = user.known_by();
        let address = self.issuer.as_str();
        known.extend([
            address,
            address.trim_start_matches("https://"),
            &self.service_name,
        ]);
        self.password.check(chosen, &known)
    }

    /// Whether users are offered passkeys: the service has them, and the operator wants it.
    pub fn offers_passkeys(&self) -> bool {
        self.passkey_offer && self.relying_party().is_some()
    }

    /// Whether users may sign in by a link or a code from a mail.
    pub fn offers_email_sign_in(&self) -> bool {
        self.sends_mail && self.accounts.email_sign_in
    }

    /// The relying party of passkeys. `None` if the service has an address in place of a host name.
    pub fn relying_party(&self) -> Option<RelyingParty> {
        RelyingParty::new(&self.issuer, &self.passkey_origins)
    }

    /// How long a key must stay published after it last signed: the longest lifetime of tokens and sessions. Expired ID
    /// tokens are presented as hints while their session lasts (OpenID Connect Core 3.1.2.1, RP-Initiated Logout 1.0
    /// section 2).
    pub fn key_retention(&self) -> Duration {
        let lifetimes = &self.lifetimes;
        let signed = lifetimes.access_token.max(lifetimes.id_token);
        signed.max(lifetimes.session.absolute)
    }
}

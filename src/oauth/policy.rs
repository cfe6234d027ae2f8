//! What the operator decided that the rules depend on.

use std::time::Duration;

use crate::identity::{SessionLifetimes, User};
use crate::jose::alg::Algorithm;
use crate::password::{PasswordPolicy, PasswordProblem};

/// The issuer and the lifetimes: the configuration, as far as protocol rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The issuer identifier (RFC 8414 section 2): the configured base URL, byte for byte.
    pub issuer: String,
    /// The service's own name in the `grant_type` of the anonymous grant.
    pub service_name: String,
    /// `organization` of new users.
    pub organization: String,
    /// The address of what developers of applications should read (RFC 8414 section 2).
    pub service_documentation: Option<String>,
    /// How long things last.
    pub lifetimes: Lifetimes,
    /// How long a replaced refresh token stays good for the retry of a lost answer, unless its
    /// successor has been used.
    pub refresh_retry_window: Duration,
    /// The algorithm of access tokens where the client's record names none.
    pub access_token_alg: Algorithm,
    /// `typ` of access tokens: `at+jwt` (RFC 9068 section 2.1), or `JWT` for older resource servers.
    pub access_token_typ: String,
    /// Whether the token response repeats `id_token` under the name `idtoken`.
    pub id_token_alias: bool,
    /// How long an anonymous user is kept after the last refresh token has ended.
    pub anonymous_retention: Duration,
    /// How keys are replaced.
    pub key_rotation: KeyRotation,
    /// The rules for passwords.
    pub password: PasswordPolicy,
}

/// How long things last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Access tokens.
    pub access_token: Duration,
    /// Refresh tokens, from the newest one on.
    pub refresh_token: Duration,
    /// Refresh families as a whole; none for no bound.
    pub refresh_absolute: Option<Duration>,
    /// Authorization codes.
    pub code: Duration,
    /// ID tokens.
    pub id_token: Duration,
    /// A sign-in under way.
    pub login_transaction: Duration,
    /// Browser sessions.
    pub session: SessionLifetimes,
}

/// How signing keys are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRotation {
    /// How long a key signs before another takes its place by itself; none for never.
    pub every: Option<Duration>,
    /// How long a new key is published before it signs, so that verifiers have fetched it.
    pub announce: Duration,
}

impl KeyRotation {
    /// How long those who fetch the key set may keep it. A key is announced for at least as long before it signs.
    pub const KEPT_BY_VERIFIERS: Duration = Duration::from_mins(5);
}

impl Policy {
    /// Checks a password that is about to become this user's.
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

    /// How long a key must stay published after it last signed: the longest life of what it signs, and of the sessions
    /// that ID tokens name, for those come back as hints when they have long expired (OpenID Connect Core 3.1.2.1,
    /// RP-Initiated Logout 1.0 section 2).
    pub fn key_retention(&self) -> Duration {
        let lifetimes = &self.lifetimes;
        let signed = lifetimes.access_token.max(lifetimes.id_token);
        signed.max(lifetimes.session.absolute)
    }
}

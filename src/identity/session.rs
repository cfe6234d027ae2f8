//! A signed-in browser: single sign-on across clients.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::{AuthenticationLevel, Device, SecondFactor};
use crate::secret::{Digest, SessionCookie};

/// How a user authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthenticationMethod {
    /// A stored password.
    Password,
    /// By a link or a code from a mail.
    Email,
    /// With a passkey that verified the user: two factors at once.
    Passkey {
        /// Whether the key may be copied to other devices.
        is_synced: bool,
    },
    /// Not at all: an anonymous user of a device.
    Anonymous,
    /// At an upstream provider.
    Federated {
        /// The provider's id.
        provider: String,
        /// Which provider of this id it was; see [`crate::federation::Provider::incarnation`].
        #[serde(default, skip_serializing_if = "Uuid::is_nil")]
        incarnation: Uuid,
    },
}

/// The provider that a user signed in at. Another one may have its id since.
#[derive(Clone, Copy, Debug)]
pub struct ProviderOfSignIn<'a> {
    pub id: &'a str,
    /// Which provider of this id it was.
    pub incarnation: Uuid,
}

impl AuthenticationMethod {
    /// The provider, if there is one.
    pub fn signed_in_at(&self) -> Option<ProviderOfSignIn<'_>> {
        match self {
            Self::Federated {
                provider: id,
                incarnation,
            } => Some(ProviderOfSignIn {
                id,
                incarnation: *incarnation,
            }),
            Self::Password | Self::Email | Self::Passkey { .. } | Self::Anonymous => None,
        }
    }

    /// The id of the provider, if there is one.
    pub fn provider(&self) -> Option<&str> {
        Some(self.signed_in_at()?.id)
    }

    /// The `authority` in the token response's `amr`.
    pub fn authority(&self) -> &str {
        match self {
            Self::Password => "credential",
            Self::Email => "email",
            Self::Passkey { .. } => "passkey",
            Self::Anonymous => "anonymous",
            Self::Federated { provider, .. } => provider,
        }
    }

    /// The methods for the ID token's `amr`: names of RFC 8176, or `fed` for a provider. Empty for an anonymous user.
    pub fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Password => &["pwd"],
            Self::Email => &["otp"],
            Self::Passkey { is_synced: false } => &["hwk", "user", "mfa"],
            Self::Passkey { is_synced: true } => &["swk", "user", "mfa"],
            Self::Anonymous => &[],
            Self::Federated { .. } => &["fed"],
        }
    }

    pub fn is_passkey(&self) -> bool {
        matches!(self, Self::Passkey { .. })
    }
}

/// How surely a user was authenticated, by these steps. None for an anonymous user.
pub fn level_of(
    factor: &AuthenticationMethod,
    second_factor: Option<SecondFactor>,
) -> Option<AuthenticationLevel> {
    match (factor, second_factor) {
        (AuthenticationMethod::Anonymous, _) => None,
        (AuthenticationMethod::Passkey { .. }, _) => Some(AuthenticationLevel::PhishingResistant),
        (_, Some(_)) => Some(AuthenticationLevel::TwoFactors),
        (_, None) => Some(AuthenticationLevel::OneFactor),
    }
}

/// The methods of the steps, for the ID token's `amr` (RFC 8176). A recovery code is a password that works once. Empty for
/// an anonymous user.
pub fn methods_of(factor: &AuthenticationMethod, second_factor: Option<SecondFactor>) -> Vec<&'static str> {
    let mut methods = factor.methods().to_vec();
    match second_factor {
        Some(SecondFactor::Totp | SecondFactor::RecoveryCode) => methods.extend(["otp", "mfa"]),
        Some(SecondFactor::Provider) => methods.push("mfa"),
        None => {}
    }
    methods.dedup();
    methods
}

/// A provider's access token. It is stored from the sign-in until tokens of this service contain it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamToken {
    /// The token, sealed with [`UpstreamToken::context`], base64url.
    pub sealed: String,
    /// When it expires and is dropped.
    pub expires_at: Timestamp,
}

impl UpstreamToken {
    /// The context that the token of a provider is sealed with.
    pub fn context(provider: &str) -> String {
        format!("upstream_tokens/{provider}")
    }

    /// Whether it has not expired.
    pub fn is_current(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

/// A browser session, stored by its id (`sid` in ID tokens).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The digest of the cookie's value. It changes with every sign-in.
    pub digest: Digest<SessionCookie>,
    /// Who is signed in.
    pub user: Uuid,
    /// When the user authenticated. `None` if the provider did not say: it may have used an old session.
    pub auth_time: Option<Timestamp>,
    /// Whether the provider was asked to authenticate the user again. It counts if there is no `auth_time`.
    pub was_asked_anew: bool,
    /// How the user authenticated.
    pub factor: AuthenticationMethod,
    /// The second step of the sign-in, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_factor: Option<SecondFactor>,
    /// When the session began or was last renewed by a sign-in.
    pub created_at: Timestamp,
    /// When the session was last used, as precisely as [`Session::is_due_for_touch`] records it.
    pub last_used_at: Timestamp,
    /// The browser at the last sign-in.
    pub device: Device,
}

/// How long sessions last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLifetimes {
    /// How long an unused session lasts.
    pub idle: Duration,
    /// The longest lifetime of a session.
    pub absolute: Duration,
}

impl Session {
    /// A use is recorded if the last recorded one is at least this long ago, or a tenth of the idle time if that is
    /// shorter.
    const TOUCH_AFTER: Duration = Duration::from_mins(5);

    /// How long an account action may follow a sign-in without a new one.
    pub const FRESH: Duration = Duration::from_mins(10);

    /// Whether the user authenticated recently.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        let asked_at = self.was_asked_anew.then_some(self.created_at);
        let authenticated_at = self.auth_time.or(asked_at);
        authenticated_at.is_some_and(|at| now.since(at) < Self::FRESH)
    }

    /// Whether the user signed in more than `age` seconds ago. Zero always asks for a new sign-in (OpenID Connect Core
    /// 3.1.2.1). If the time of the sign-in is unknown, the provider decides.
    pub fn is_older_than(&self, age: u64, now: Timestamp) -> bool {
        let is_older = |at| now.since(at) > Duration::from_secs(age);
        age == 0 || self.auth_time.is_some_and(is_older)
    }

    /// How surely the user was authenticated.
    pub fn level(&self) -> Option<AuthenticationLevel> {
        level_of(&self.factor, self.second_factor)
    }

    /// Whether the session may be used.
    pub fn is_live(&self, lifetimes: SessionLifetimes, now: Timestamp) -> bool {
        !self.is_over(lifetimes, now) && !self.created_at.is_ahead_of(now)
    }

    /// Whether the session has expired. A session whose creation lies ahead of the clock has not; it becomes usable
    /// later.
    pub fn is_over(&self, lifetimes: SessionLifetimes, now: Timestamp) -> bool {
        now >= self.last_used_at + lifetimes.idle || now >= self.created_at + lifetimes.absolute
    }

    /// Whether it has data that is needed only while the user is signed in.
    pub fn has_browser_data(&self) -> bool {
        self.device != Device::default()
    }

    /// The session without that data. An expired session is stored like this for the grants that end with it.
    #[must_use]
    pub fn without_browser_data(self) -> Self {
        Self {
            device: Device::default(),
            ..self
        }
    }

    /// Whether a use must be recorded.
    pub fn is_due_for_touch(&self, lifetimes: SessionLifetimes, now: Timestamp) -> bool {
        now.since(self.last_used_at) >= Self::TOUCH_AFTER.min(lifetimes.idle / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::EARLIEST;

    fn begun_at(start: Timestamp) -> (Session, SessionLifetimes) {
        let lifetimes = SessionLifetimes {
            idle: Duration::from_secs(100),
            absolute: Duration::from_secs(250),
        };
        let session = Session {
            digest: Digest::of(b"x"),
            user: Uuid::from_u128(1),
            auth_time: Some(start),
            was_asked_anew: false,
            factor: AuthenticationMethod::Password,
            second_factor: None,
            created_at: start,
            last_used_at: start,
            device: Device::default(),
        };
        (session, lifetimes)
    }

    #[test]
    fn a_session_that_is_dated_ahead_does_not_stand_and_is_not_over() {
        let start = EARLIEST + Duration::from_hours(24);
        let (session, lifetimes) = begun_at(start);
        for (now, stands) in [
            (start, true),
            (start - Duration::from_hours(1), true),
            (start - Duration::from_hours(2), false),
            (Timestamp::from_seconds(0), true),
        ] {
            assert_eq!(session.is_live(lifetimes, now), stands, "{now:?}");
            assert!(!session.is_over(lifetimes, now));
        }
    }

    #[test]
    fn a_session_ends_by_idleness_and_by_age() {
        let start = Timestamp::from_seconds(1_000);
        let (mut session, lifetimes) = begun_at(start);
        assert!(session.is_live(lifetimes, start + Duration::from_secs(99)));
        assert!(!session.is_live(lifetimes, start + Duration::from_secs(100)));
        session.last_used_at = start + Duration::from_mins(4);
        assert!(session.is_live(lifetimes, start + Duration::from_secs(249)));
        assert!(!session.is_live(lifetimes, start + Duration::from_secs(250)));
    }

    #[test]
    fn a_use_is_recorded_often_enough_for_every_idle_time() {
        let start = Timestamp::from_seconds(1_000);
        let (session, _) = begun_at(start);
        let noted_after = |idle| {
            let lifetimes = SessionLifetimes {
                idle: Duration::from_secs(idle),
                absolute: Duration::from_hours(24),
            };
            (0..1_000)
                .find(|seconds| session.is_due_for_touch(lifetimes, start + Duration::from_secs(*seconds)))
                .unwrap()
        };
        assert_eq!(
            (noted_after(12 * 3600), noted_after(900), noted_after(60)),
            (300, 90, 6)
        );
    }
}

//! A signed-in browser: single sign-on across clients.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::Device;
use crate::secret::{Digest, SessionCookie};

/// How a user proved who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthenticationMethod {
    /// A stored password.
    Password,
    /// Not at all: the user is whoever holds the device.
    Anonymous,
    /// To an upstream provider, which vouches for them.
    Federated {
        /// The provider's id.
        provider: String,
    },
}

impl AuthenticationMethod {
    /// The id of the provider that vouched for the user, where one did.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Self::Federated { provider } => Some(provider),
            Self::Password | Self::Anonymous => None,
        }
    }

    /// The `authority` in the token response's `amr`.
    pub fn authority(&self) -> &str {
        match self {
            Self::Password => "credential",
            Self::Anonymous => "anonymous",
            Self::Federated { provider } => provider,
        }
    }

    /// The method for the ID token's `amr`: as RFC 8176 names it, `fed` for the word of another provider, none where
    /// nobody proved anything.
    pub fn method(&self) -> Option<&'static str> {
        match self {
            Self::Password => Some("pwd"),
            Self::Anonymous => None,
            Self::Federated { .. } => Some("fed"),
        }
    }
}

/// A provider's access token, as it is kept between the sign-in and the tokens that carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamToken {
    /// The token, sealed with [`UpstreamToken::context`], base64url.
    pub sealed: String,
    /// When the provider stops accepting it; it is dropped then.
    pub expires_at: Timestamp,
}

impl UpstreamToken {
    /// What the token of a provider is sealed for.
    pub fn context(provider: &str) -> String {
        format!("upstream_tokens/{provider}")
    }

    /// Whether the provider accepts it yet.
    pub fn is_current(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

/// A browser session, kept under its id (`sid` in ID tokens).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The digest of the cookie's value; it changes with every sign-in.
    pub digest: Digest<SessionCookie>,
    /// Who is signed in.
    pub user: Uuid,
    /// When the user last proved who they are.
    pub auth_time: Timestamp,
    /// Whether that moment is a guess: a provider vouched for them that did not say when they proved it there. They may
    /// have come back without being asked anything.
    pub is_undated: bool,
    /// Whether they were sent to prove anew who they are. Of a provider that tells no dates it is all that there is.
    pub was_asked_anew: bool,
    /// How.
    pub factor: AuthenticationMethod,
    /// The access token of the provider that vouched for them.
    pub upstream_token: Option<UpstreamToken>,
    /// When the session began.
    pub created_at: Timestamp,
    /// When the session was last used, to within what [`Session::is_due_for_touch`] says.
    pub last_used_at: Timestamp,
    /// The browser it is in, as it was at the last sign-in.
    pub device: Device,
}

/// How long sessions last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLifetimes {
    /// Without use.
    pub idle: Duration,
    /// In any case.
    pub absolute: Duration,
}

impl Session {
    /// A use is written down only when the last one noted is at least this long ago, or a tenth of what a session may
    /// be idle.
    const TOUCH_AFTER: Duration = Duration::from_mins(5);

    /// How long a sign-in counts as proof that whoever acts in the session is its user.
    pub const FRESH: Duration = Duration::from_mins(10);

    /// Whether the user proved a moment ago who they are.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        (!self.is_undated || self.was_asked_anew) && now.since(self.auth_time) < Self::FRESH
    }

    /// Whether the session still stands.
    pub fn is_live(&self, lifetimes: SessionLifetimes, now: Timestamp) -> bool {
        !self.is_over(lifetimes, now) && !self.created_at.is_ahead_of(now)
    }

    /// Whether its time is over for good. One that is merely dated ahead may stand again.
    pub fn is_over(&self, lifetimes: SessionLifetimes, now: Timestamp) -> bool {
        now >= self.last_used_at + lifetimes.idle || now >= self.created_at + lifetimes.absolute
    }

    /// Whether there is anything in it that is only for the time in which somebody is signed in by it.
    pub fn tells_of_its_browser(&self) -> bool {
        self.upstream_token.is_some() || self.device != Device::default()
    }

    /// The session without that: as it is kept when it is over, for the grants that end with it.
    #[must_use]
    pub fn bare(self) -> Self {
        Self {
            upstream_token: None,
            device: Device::default(),
            ..self
        }
    }

    /// Whether this use is to be written down.
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
            auth_time: start,
            is_undated: false,
            was_asked_anew: false,
            factor: AuthenticationMethod::Password,
            upstream_token: None,
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
    fn a_use_is_noted_often_enough_for_any_idle_time() {
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

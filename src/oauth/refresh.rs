//! Refresh families: RFC 6749 section 6, with the rotation of RFC 9700 section 4.14.2.
//!
//! Every sign-in starts a family, which is one row that each refresh updates in place. A token names its family and its
//! generation. It also contains the family's lineage, a secret that all tokens of the family share. The row keeps the
//! digest of the lineage. An old token is therefore known to be genuine without a list of old tokens, and a family
//! cannot be revoked with an invented token.
//!
//! A response may be lost. The predecessor of the newest token therefore stays valid until the newest token is used or
//! the retry window ends. A retry issues another token; the unused one that it replaces is a sibling. During the window
//! a sibling is refused, because it may be the late response to a repeated request. Every other use of an old token is
//! a replay and ends the family.

use std::ops::Not;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::clock::{EARLIEST, Timestamp};
use crate::oauth::client::RefreshPolicy;
use crate::oauth::code::Authorization;
use crate::oauth::error::Refusal;
use crate::oauth::policy::Lifetimes;
use crate::oauth::scope::Scope;
use crate::secret::{Digest, Kind, Lineage, Malformed, RefreshToken, Secret};

const LINEAGE_LEN: usize = 16;

/// One token of a family.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Generation {
    #[serde(rename = "n")]
    number: u32,
    #[serde(rename = "d")]
    digest: Digest<RefreshToken>,
}

/// The token before the newest one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Predecessor {
    #[serde(rename = "gen")]
    generation: Generation,
    /// When it was first used.
    #[serde(rename = "at")]
    used_at: Timestamp,
}

/// A stored refresh family. Every refresh reads and writes one, so the names in the row are short.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefreshFamily {
    /// What was granted, to whom, by whom.
    #[serde(rename = "auth")]
    pub authorization: Authorization,
    /// Whether the family ends when the user signs out of its session: it has no `offline_access` (OpenID Connect
    /// Core 11). The family outlives a session that expires.
    #[serde(default, rename = "bound", skip_serializing_if = "Not::not")]
    pub bound_to_session: bool,
    /// When the family began.
    #[serde(rename = "from")]
    pub created_at: Timestamp,
    /// When the newest token expires.
    #[serde(rename = "to")]
    pub expires_at: Timestamp,
    /// When the family was revoked, if it was.
    #[serde(rename = "end", skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    #[serde(rename = "line")]
    lineage: Digest<Lineage>,
    #[serde(rename = "new")]
    current: Generation,
    #[serde(rename = "old", skip_serializing_if = "Option::is_none")]
    predecessor: Option<Predecessor>,
    /// When the token was last used, if the client keeps it ([`RefreshPolicy::Reuse`]).
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    reused_at: Option<Timestamp>,
    /// Reserves the space of `predecessor` or `reused_at` until one of them is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "room")]
    padding: Option<PredecessorPadding>,
}

/// As many bytes as a predecessor takes. A row that never grows does not split a full page of the store.
#[derive(Clone, Debug)]
struct PredecessorPadding;

impl Serialize for PredecessorPadding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&[0; 50])
    }
}

impl<'de> Deserialize<'de> for PredecessorPadding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// A refresh token as a client presents it.
#[derive(Clone)]
pub struct PresentedRefreshToken {
    /// The family it names.
    pub family: Uuid,
    generation: u32,
    lineage: Zeroizing<[u8; LINEAGE_LEN]>,
    digest: Digest<RefreshToken>,
    secret: Secret<RefreshToken>,
}

impl PresentedRefreshToken {
    /// Reads a token. Only its form is checked.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let secret = Secret::<RefreshToken>::parse(text)?;
        let (family, rest) = secret.locator().split_at_checked(16).ok_or(Malformed)?;
        let (generation, lineage) = rest.split_at_checked(4).ok_or(Malformed)?;
        Ok(Self {
            family: Uuid::from_slice(family).map_err(|_| Malformed)?,
            generation: u32::from_be_bytes(generation.try_into().map_err(|_| Malformed)?),
            lineage: Zeroizing::new(lineage.try_into().map_err(|_| Malformed)?),
            digest: secret.digest(),
            secret,
        })
    }
}

/// Random bytes for the first token of a family, drawn before the transaction that uses them.
pub struct FamilyEntropy {
    /// For the token.
    pub token: [u8; 32],
    /// For the lineage of the family.
    pub lineage: [u8; LINEAGE_LEN],
}

/// The result of presenting a refresh token.
pub enum Refresh {
    /// The token is valid: the updated family and the token to issue. Under [`RefreshPolicy::Reuse`] that is the
    /// presented token.
    Granted(Box<RefreshFamily>, Secret<RefreshToken>),
    /// The token had been replaced: the revoked family.
    Replayed(Box<RefreshFamily>),
    /// The token is not valid. The family does not change.
    Refused(Refusal),
}

/// What [`RefreshFamily::refresh`] needs besides the token.
#[derive(Clone, Copy, Debug)]
pub struct RefreshContext<'a> {
    /// The client that was authenticated.
    pub client_id: &'a str,
    /// Whether its refresh tokens rotate.
    pub policy: RefreshPolicy,
    /// How long tokens last.
    pub lifetimes: &'a Lifetimes,
    /// How long a replaced token stays valid, for the retry of a lost response.
    pub retry_window: Duration,
}

/// A change of the session that a family is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingChange {
    /// The family ends with this session from now on.
    Bound(Uuid),
    /// The family no longer ends with this session.
    Released(Uuid),
}

/// What a presented token is in its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenState {
    Current,
    Predecessor,
    /// Replaced by a retry without having been used.
    Sibling,
    Replaced,
    Unknown,
}

impl RefreshFamily {
    /// Starts a family under `id` and makes its first token.
    pub fn start(
        id: Uuid,
        authorization: Authorization,
        lifetimes: &Lifetimes,
        entropy: &FamilyEntropy,
        now: Timestamp,
    ) -> (Self, Secret<RefreshToken>) {
        let token = token(id, 0, &entropy.lineage, &entropy.token);
        let bound_to_session =
            authorization.session.is_some() && !authorization.scope.contains(Scope::OFFLINE_ACCESS);
        let family = Self {
            authorization,
            bound_to_session,
            created_at: now,
            expires_at: expiry(lifetimes, now, now),
            revoked_at: None,
            lineage: Digest::of(&entropy.lineage),
            current: Generation {
                number: 0,
                digest: token.digest(),
            },
            predecessor: None,
            reused_at: None,
            padding: Some(PredecessorPadding),
        };
        (family, token)
    }

    /// The session with which the family ends.
    pub fn binding(&self) -> Option<Uuid> {
        self.authorization.session.filter(|_| self.bound_to_session)
    }

    /// Binds the family to its session if `allowed` no longer contains the granted `offline_access`, and releases it if
    /// `allowed` contains it again. Returns the change, if there is one.
    pub fn bind(&mut self, allowed: &Scope) -> Option<BindingChange> {
        let session = self.authorization.session?;
        let is_offline = |scope: &Scope| scope.contains(Scope::OFFLINE_ACCESS);
        let is_bound = !(is_offline(allowed) && is_offline(&self.authorization.scope));
        if is_bound == self.bound_to_session {
            return None;
        }
        self.bound_to_session = is_bound;
        Some(if is_bound {
            BindingChange::Bound(session)
        } else {
            BindingChange::Released(session)
        })
    }

    /// When the family began or was last refreshed, to within the retry window.
    pub fn last_used_at(&self) -> Timestamp {
        let rotated_at = self.predecessor.as_ref().map(|last| last.used_at);
        let refreshed_at = rotated_at.max(self.reused_at);
        refreshed_at.map_or(self.created_at, |at| at.max(self.created_at))
    }

    /// Whether the family is neither revoked nor expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }

    /// Ends the family. A later revocation keeps the first time.
    pub fn revoke(&mut self, now: Timestamp) {
        self.revoked_at.get_or_insert(now);
    }

    /// Whether the token is active for introspection: the newest one, or its predecessor during the retry window.
    pub fn accepts(&self, token: &PresentedRefreshToken, retry_window: Duration, now: Timestamp) -> bool {
        self.is_live(now)
            && matches!(
                self.state_of(token, retry_window, now),
                TokenState::Current | TokenState::Predecessor
            )
    }

    /// Whether the token belongs to this family, even if it was replaced.
    pub fn knows(&self, token: &PresentedRefreshToken) -> bool {
        self.lineage == Digest::of(token.lineage.as_slice()) && token.generation <= self.current.number
    }

    fn state_of(&self, token: &PresentedRefreshToken, retry_window: Duration, now: Timestamp) -> TokenState {
        // The digest covers the whole token, so the lineage need not be compared.
        if token.generation == self.current.number && token.digest == self.current.digest {
            return TokenState::Current;
        }
        if !self.knows(token) {
            return TokenState::Unknown;
        }
        let Some(last) = &self.predecessor else {
            return TokenState::Replaced;
        };
        if now > last.used_at + retry_window {
            return TokenState::Replaced;
        }
        if token.generation == last.generation.number && token.digest == last.generation.digest {
            return TokenState::Predecessor;
        }
        let is_between = last.generation.number < token.generation && token.generation < self.current.number;
        if is_between {
            TokenState::Sibling
        } else {
            TokenState::Replaced
        }
    }

    /// Checks a presented token and updates the family. The next token is made from `random`.
    #[must_use]
    pub fn refresh(
        mut self,
        token: &PresentedRefreshToken,
        context: RefreshContext<'_>,
        random: &[u8; 32],
        now: Timestamp,
    ) -> Refresh {
        let state = self.state_of(token, context.retry_window, now);
        if state == TokenState::Unknown {
            return Refresh::Refused(UNKNOWN);
        }
        if self.authorization.client_id != context.client_id {
            return Refresh::Refused(Refusal::invalid_grant(
                "refresh_token was issued to another client",
            ));
        }
        if self.revoked_at.is_some() {
            return Refresh::Refused(Refusal::invalid_grant("refresh_token has been revoked"));
        }
        if now >= self.expires_at {
            return Refresh::Refused(Refusal::invalid_grant("refresh_token has expired"));
        }
        match (state, context.policy) {
            (TokenState::Sibling, _) => Refresh::Refused(Refusal::invalid_grant(
                "refresh_token has been replaced by that of a repeated request",
            )),
            (TokenState::Replaced | TokenState::Unknown, _) => {
                self.revoke(now);
                Refresh::Replayed(Box::new(self))
            }
            (TokenState::Current, RefreshPolicy::Reuse) => {
                self.reused_at = Some(now);
                self.padding = None;
                self.prolong(context.lifetimes, now);
                Refresh::Granted(Box::new(self), token.secret.clone())
            }
            (TokenState::Current, RefreshPolicy::Rotate) => {
                let used = self.current.clone();
                self.predecessor = Some(Predecessor {
                    generation: used,
                    used_at: now,
                });
                self.padding = None;
                self.succeed(token, context.lifetimes, random, now)
            }
            (TokenState::Predecessor, _) => self.succeed(token, context.lifetimes, random, now),
        }
    }

    /// Issues the next token, which becomes the newest one.
    fn succeed(
        mut self,
        token: &PresentedRefreshToken,
        lifetimes: &Lifetimes,
        random: &[u8; 32],
        now: Timestamp,
    ) -> Refresh {
        let Some(number) = self.current.number.checked_add(1) else {
            return Refresh::Refused(Refusal::invalid_grant("refresh_token has been used too often"));
        };
        let next = self::token(token.family, number, token.lineage.as_slice(), random);
        self.current = Generation {
            number,
            digest: next.digest(),
        };
        self.prolong(lifetimes, now);
        Refresh::Granted(Box::new(self), next)
    }

    /// Sets the expiry of the newest token. If the family was created while the clock was ahead, it counts as created
    /// now. If the clock is certainly behind, the expiry is not shortened: the token would expire as soon as the clock
    /// is right.
    fn prolong(&mut self, lifetimes: &Lifetimes, now: Timestamp) {
        if self.created_at.is_ahead_of(now) {
            self.created_at = now;
        }
        let end = expiry(lifetimes, self.created_at, now);
        self.expires_at = if now < EARLIEST {
            end.max(self.expires_at)
        } else {
            end
        };
    }
}

/// The refusal for a token that names no family, or the wrong one.
pub const UNKNOWN: Refusal = Refusal::invalid_grant("refresh_token is unknown or has expired");

fn expiry(lifetimes: &Lifetimes, created_at: Timestamp, now: Timestamp) -> Timestamp {
    let sliding = now + lifetimes.refresh_token;
    lifetimes
        .refresh_absolute
        .map_or(sliding, |absolute| sliding.min(created_at + absolute))
}

fn token(family: Uuid, generation: u32, lineage: &[u8], random: &[u8; 32]) -> Secret<RefreshToken> {
    let mut locator = Vec::with_capacity(RefreshToken::LOCATOR_LEN);
    locator.extend_from_slice(family.as_bytes());
    locator.extend_from_slice(&generation.to_be_bytes());
    locator.extend_from_slice(lineage);
    Secret::assemble(&locator, random)
}

#[cfg(test)]
mod tests;

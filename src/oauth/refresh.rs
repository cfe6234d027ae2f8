//! Refresh families: RFC 6749 section 6, with the rotation of RFC 9700 section 4.14.2.
//!
//! Every sign-in starts a family, which is one row that each refresh updates in place. The row says which generation of
//! tokens is the newest, and from which key that token is derived ([`crate::oauth::refresh_keys`]). It contains no token
//! and no digest of one.
//!
//! A response may be lost, and a client may send several refreshes at once. The predecessor of the newest token
//! therefore stays valid until the newest token is used or the retry window ends. A retry is answered with the newest
//! token again and changes nothing. Every other use of an old token is a replay and ends the family.
//!
//! All tokens of a family contain its lineage, and the row has the digest of that. So a copy of the store together with
//! its keys still makes no token.

use std::ops::Not;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::{Arrival, EARLIEST, Timestamp};
use crate::oauth::client::{Client, RefreshPolicy};
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::{Confirmation, check_grant};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::policy::Lifetimes;
use crate::oauth::refresh_keys::RefreshTokenId;
use crate::oauth::scope::Scope;
use crate::secret::{Digest, Lineage};

/// A stored refresh family. Every refresh reads and writes one, so the names in the row are short. A refresh does not
/// make the row longer, because a longer row could split a full page of the store. Only the first refresh with a DPoP
/// proof does, if the family began without one, and the first one after a release without `last_use_ms`.
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
    #[serde(rename = "end", skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// When the family began or was last refreshed. A retry does not count.
    #[serde(rename = "use")]
    pub last_used_at: Timestamp,
    /// The same time in milliseconds since the epoch. `None` if an earlier release wrote the row.
    #[serde(default, rename = "ms", skip_serializing_if = "Option::is_none")]
    last_use_ms: Option<u64>,
    /// The number of the key that the newest token is derived from.
    pub key: u32,
    /// The generation of the newest token.
    #[serde(rename = "gen")]
    generation: u32,
    /// Whether the newest token was used, by a client that keeps it ([`RefreshPolicy::Reuse`]).
    #[serde(rename = "used")]
    newest_was_used: bool,
    #[serde(rename = "line")]
    lineage: Digest<Lineage>,
    /// The first generation that is bound to a key, if the family began without one.
    #[serde(default, rename = "jktgen", skip_serializing_if = "is_zero")]
    bound_from: u32,
    /// Whether the family waits for the code of the sign-in in which its anonymous user became an account. Its tokens
    /// are refused until the client redeems that code.
    #[serde(default, rename = "wait", skip_serializing_if = "Not::not")]
    pub awaits_code: bool,
    /// Whether the client got no refresh token. The family ends with its access token.
    #[serde(default, rename = "acc", skip_serializing_if = "Not::not")]
    pub is_access_only: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The result of presenting a refresh token. The response contains the newest token of the family.
pub enum Refresh {
    /// The token is valid: the updated family.
    Granted(Box<RefreshFamily>),
    /// The token is valid for a retry: the family, which does not change.
    Repeated(Box<RefreshFamily>),
    /// The token had been replaced: the revoked family.
    Replayed(Box<RefreshFamily>),
    /// The token is not valid. The family does not change.
    Refused(Refusal),
}

/// What [`RefreshFamily::refresh`] needs besides the token.
#[derive(Clone, Copy, Debug)]
pub struct RefreshContext<'a> {
    /// The client that was authenticated.
    pub client: &'a Client,
    /// How long tokens last.
    pub lifetimes: &'a Lifetimes,
    /// How long a replaced token stays valid, for the retry of a lost response.
    pub retry_window: Duration,
    /// The number of the key for new tokens.
    pub key: u32,
    /// What the request has shown to hold.
    pub shown: Option<&'a Confirmation>,
    /// When the request came.
    pub arrival: Arrival,
    /// The time since the epoch at which the request is decided. It may have waited since it was read.
    pub decided_at: Duration,
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
    Newest,
    /// The one before the newest, which is unused, during the retry window.
    Predecessor,
    Replaced,
    Unknown,
}

impl RefreshFamily {
    /// Starts a family with its first token.
    pub fn start(
        first: &RefreshTokenId,
        authorization: Authorization,
        client: &Client,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Self {
        let bound_to_session =
            authorization.session.is_some() && !authorization.scope.contains(Scope::OFFLINE_ACCESS);
        Self {
            authorization,
            bound_to_session,
            created_at: now,
            expires_at: expiry(client, lifetimes, now, now),
            revoked_at: None,
            last_used_at: now,
            last_use_ms: Some(now.seconds().saturating_mul(1000)),
            key: first.key,
            generation: first.generation,
            newest_was_used: false,
            lineage: Digest::of(first.lineage.as_slice()),
            bound_from: 0,
            awaits_code: false,
            is_access_only: false,
        }
    }

    /// The same family without a refresh token, which ends after this time.
    #[must_use]
    pub fn access_only(mut self, lifetime: Duration) -> Self {
        self.is_access_only = true;
        self.expires_at = self.created_at + lifetime;
        self
    }

    /// What the newest token of the family names, given another token of it.
    pub fn newest_token(&self, other: &RefreshTokenId) -> RefreshTokenId {
        other.with(self.key, self.generation)
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

    /// Whether the family is neither revoked nor expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }

    /// Ends the family. A later revocation keeps the first time.
    pub fn revoke(&mut self, now: Timestamp) {
        self.revoked_at.get_or_insert(now);
    }

    /// Whether the token is active for introspection: the newest one, or its predecessor during the retry window.
    pub fn accepts(&self, token: &RefreshTokenId, retry_window: Duration, now: Timestamp) -> bool {
        self.is_live(now)
            && !self.awaits_code
            && matches!(
                self.state_of(token, retry_window, now),
                TokenState::Newest | TokenState::Predecessor
            )
    }

    /// Whether the token belongs to this family, even if it was replaced.
    pub fn knows(&self, token: &RefreshTokenId) -> bool {
        let is_newest = token.generation == self.generation && token.key == self.key;
        (is_newest || token.generation < self.generation)
            && self.lineage == Digest::of(token.lineage.as_slice())
    }

    fn state_of(&self, token: &RefreshTokenId, retry_window: Duration, now: Timestamp) -> TokenState {
        if !self.knows(token) {
            return TokenState::Unknown;
        }
        if token.generation == self.generation {
            return TokenState::Newest;
        }
        let is_predecessor = token.generation.checked_add(1) == Some(self.generation);
        if is_predecessor && !self.newest_was_used && self.may_retry(retry_window, now) {
            TokenState::Predecessor
        } else {
            TokenState::Replaced
        }
    }

    /// Whether the retry window is open. A first use ahead of `now` counts as recent by at most one window: requests
    /// that are sent at once are not decided in the order in which they arrived. Further ahead the clock was set back,
    /// and the window has ended. A clock before [`EARLIEST`] says nothing ([`Timestamp::is_ahead_of`]).
    fn may_retry(&self, retry_window: Duration, now: Timestamp) -> bool {
        let is_ahead = now >= EARLIEST && self.last_used_at > now + retry_window;
        !is_ahead && now <= self.last_used_at + retry_window
    }

    /// Whether the family was last refreshed after the request may have come. A node may have been paused, or may wait for
    /// the keys of a client, while the client repeats its request elsewhere and goes on with the successor. Then the old
    /// token in the first request is no replay. A thief gains nothing: the request gets no token, and the next one with
    /// this token is a replay.
    ///
    /// If the successor is unused, only a request that was read since then has waited. For another one the clock was set
    /// back, as it was if the last use lies ahead of the time of the decision.
    fn has_overtaken(&self, token: &RefreshTokenId, context: RefreshContext<'_>) -> bool {
        let last_use = match self.last_use_ms {
            None => Duration::from_secs(self.last_used_at.seconds()),
            Some(millis) => Duration::from_millis(millis),
        };
        let arrival = context.arrival;
        let is_used = self.newest_was_used || token.generation.saturating_add(1) < self.generation;
        // Stored times have no smaller parts.
        let earliest = Duration::from_millis(in_millis(arrival.earliest));
        let precedes = Arrival { earliest, ..arrival }.may_precede(last_use, context.decided_at);
        precedes && (is_used || last_use <= arrival.read_at)
    }

    /// The result of a token that only a former holder can have, unless its request was overtaken.
    fn replayed(mut self, token: &RefreshTokenId, context: RefreshContext<'_>) -> Refresh {
        if self.has_overtaken(token, context) {
            return Refresh::Refused(OVERTAKEN);
        }
        self.revoke(context.arrival.now());
        Refresh::Replayed(Box::new(self))
    }

    /// Checks a presented token and updates the family.
    #[must_use]
    pub fn refresh(mut self, token: &RefreshTokenId, context: RefreshContext<'_>) -> Refresh {
        let now = context.arrival.now();
        let state = self.state_of(token, context.retry_window, now);
        if state == TokenState::Unknown {
            return Refresh::Refused(UNKNOWN);
        }
        if self.authorization.client_id != context.client.client_id {
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
        if self.awaits_code {
            return Refresh::Refused(Refusal::invalid_grant(
                "the anonymous user became an account; first redeem the code of that sign-in",
            ));
        }
        if let Err(refusal) = check_grant(self.authorization.bound_to.as_ref(), context.shown) {
            // A token that was issued before the binding: somebody else may have bound the family.
            if token.generation < self.bound_from {
                return self.replayed(token, context);
            }
            return Refresh::Refused(refusal);
        }
        let binds = context.client.is_public() && self.authorization.bound_to.is_none();
        match (state, context.client.refresh_policy) {
            (TokenState::Replaced | TokenState::Unknown, _) => return self.replayed(token, context),
            (TokenState::Predecessor, _) if binds && context.shown.is_some() => {
                return Refresh::Refused(Refusal::invalid_grant(
                    "this refresh_token was first used without a DPoP proof or a certificate; send the retry as the first request was sent",
                ));
            }
            (TokenState::Predecessor, _) => return Refresh::Repeated(Box::new(self)),
            (TokenState::Newest, RefreshPolicy::Reuse | RefreshPolicy::ReuseUnbound) => {
                self.newest_was_used = true;
            }
            (TokenState::Newest, RefreshPolicy::Rotate) => {
                let Some(next) = self.generation.checked_add(1) else {
                    return Refresh::Refused(Refusal::invalid_grant("refresh_token has been used too often"));
                };
                self.generation = next;
                self.key = context.key;
                self.newest_was_used = false;
            }
        }
        if let Some(shown) = context.shown.filter(|_| binds) {
            self.authorization.bound_to = Some(shown.clone());
            self.bound_from = self.generation;
        }
        self.last_used_at = now;
        self.last_use_ms = Some(in_millis(context.arrival.read_at));
        self.prolong(context, now);
        Refresh::Granted(Box::new(self))
    }

    /// Sets the expiry of the newest token. If the family was created while the clock was ahead, it counts as created
    /// now. If the clock is certainly behind, the expiry is not shortened: the token would expire as soon as the clock
    /// is right.
    fn prolong(&mut self, context: RefreshContext<'_>, now: Timestamp) {
        if self.created_at.is_ahead_of(now) {
            self.created_at = now;
        }
        let end = expiry(context.client, context.lifetimes, self.created_at, now);
        self.expires_at = if now < EARLIEST {
            end.max(self.expires_at)
        } else {
            end
        };
    }
}

/// The scope of a refreshed access token: the requested scope, which must not exceed the granted one (RFC 6749 section
/// 6), without values that the client may no longer have.
pub fn narrowed_scope(granted: &Scope, asked: Option<&Scope>, allowed: &Scope) -> Result<Scope, Refusal> {
    if asked.is_some_and(|asked| !asked.is_within(granted)) {
        return Err(Refusal::new(
            ErrorCode::InvalidScope,
            "scope exceeds what was granted",
        ));
    }
    let is_asked = |value: &str| asked.is_none_or(|asked| asked.contains(value));
    Ok(granted
        .kept_within(allowed)
        .filter(|value| Scope::is_marker(value) || is_asked(value)))
}

/// The refusal for a token that had been replaced.
pub const REPLAYED: Refusal =
    Refusal::invalid_grant("refresh_token was used before; its family has been revoked");

/// The answer to a request that was overtaken by the use of the token's successor.
const OVERTAKEN: Refusal = Refusal::new(
    ErrorCode::TemporarilyUnavailable,
    "this request waited while the client went on with a newer refresh_token; use that one",
);

/// The refusal for a token that names no family, or the wrong one.
pub const UNKNOWN: Refusal = Refusal::invalid_grant("refresh_token is unknown or has expired");

fn in_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn expiry(client: &Client, lifetimes: &Lifetimes, created_at: Timestamp, now: Timestamp) -> Timestamp {
    let lifetime = client.refresh_token_lifetime.map(Duration::from);
    let sliding = now + lifetime.unwrap_or(lifetimes.refresh_token);
    let absolute = if client.is_public() {
        lifetimes.refresh_absolute_public
    } else {
        lifetimes.refresh_absolute
    };
    absolute.map_or(sliding, |absolute| sliding.min(created_at + absolute))
}

#[cfg(test)]
mod tests;

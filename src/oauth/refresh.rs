//! Refresh families: RFC 6749 section 6, with the rotation of RFC 9700 section 4.14.2.
//!
//! Every sign-in starts a family, one row that each refresh updates in place. A token names its family, its
//! generation, and the family's lineage: a secret that all tokens of the family share and of which the
//! row keeps the digest. So a token of an older generation is known to be genuine without a list of
//! old tokens, and nobody who merely learned the family's id can have it revoked by inventing one.
//!
//! An answer may be lost on its way. The predecessor of the newest token therefore stays good until the newest
//! one has been used, or the retry window is over; a retry makes the unused sibling worthless. While the window is
//! open such a sibling is merely refused: it may be the late answer to a request that was repeated. Every
//! other use of an old token is a replay and ends the family.

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

/// A refresh family as it is kept. Every refresh reads and writes one, so the names in the row are short.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefreshFamily {
    /// What was granted, to whom, by whom.
    #[serde(rename = "auth")]
    pub authorization: Authorization,
    /// Whether signing out of the session it was granted in ends it too (no `offline_access`, OpenID Connect
    /// Core 11). A session that merely expires ends nothing.
    #[serde(default, rename = "bound", skip_serializing_if = "Not::not")]
    pub bound_to_session: bool,
    /// When the family began.
    #[serde(rename = "from")]
    pub created_at: Timestamp,
    /// When the newest token stops being good.
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
    /// When the token was last used that its client keeps ([`RefreshPolicy::Reuse`]): it has no predecessor to say so.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    reused_at: Option<Timestamp>,
    /// Until there is a predecessor, or a time in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<Room>,
}

/// As much of the row as a predecessor takes. A row that never grows stays where it is: a page that is full of rows
/// would have to become two.
#[derive(Clone, Debug)]
struct Room;

impl Serialize for Room {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&[0; 50])
    }
}

impl<'de> Deserialize<'de> for Room {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// A refresh token as somebody presents it.
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
    /// Reads a token. Nothing but its form is known to be right afterwards.
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
pub struct Entropy {
    /// For the token.
    pub token: [u8; 32],
    /// For what the family's tokens have in common.
    pub lineage: [u8; LINEAGE_LEN],
}

/// What comes of presenting a refresh token.
pub enum Refresh {
    /// It is good: the family as it is from now on and the token to hand out, which is the one that was presented where
    /// the client keeps it ([`RefreshPolicy::Reuse`]).
    Granted(Box<RefreshFamily>, Secret<RefreshToken>),
    /// It was replaced before: the family, revoked.
    Replayed(Box<RefreshFamily>),
    /// It is not good; nothing changes.
    Refused(Refusal),
}

/// What is asked of [`RefreshFamily::refresh`] besides the token.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The client that was authenticated.
    pub client_id: &'a str,
    /// What its record says about rotation.
    pub policy: RefreshPolicy,
    /// How long tokens last.
    pub lifetimes: &'a Lifetimes,
    /// How long a replaced token stays good for the retry of a lost answer.
    pub retry_window: Duration,
}

/// The session to which a family has just been bound, or from which it was set free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It ends with this session from now on.
    To(Uuid),
    /// It does not end with this session any more.
    NoLongerTo(Uuid),
}

/// How a token stands to its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Current,
    Retry,
    /// Replaced by a retry without having been used.
    Sibling,
    Replaced,
    Foreign,
}

impl RefreshFamily {
    /// Starts a family under `id` and makes its first token.
    pub fn start(
        id: Uuid,
        authorization: Authorization,
        lifetimes: &Lifetimes,
        entropy: &Entropy,
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
            room: Some(Room),
        };
        (family, token)
    }

    /// The session with which the family ends.
    pub fn binding(&self) -> Option<Uuid> {
        self.authorization.session.filter(|_| self.bound_to_session)
    }

    /// Binds the family to its session where the client may no longer have the `offline_access` that was granted, as
    /// `allowed` says, and sets it free again where it may. Comes back with the session if that changes.
    pub fn bind(&mut self, allowed: &Scope) -> Option<Bound> {
        let session = self.authorization.session?;
        let is_offline = |scope: &Scope| scope.contains(Scope::OFFLINE_ACCESS);
        let is_bound = !(is_offline(allowed) && is_offline(&self.authorization.scope));
        if is_bound == self.bound_to_session {
            return None;
        }
        self.bound_to_session = is_bound;
        Some(if is_bound {
            Bound::To(session)
        } else {
            Bound::NoLongerTo(session)
        })
    }

    /// When it began or was last refreshed, to within the retry window.
    pub fn last_used_at(&self) -> Timestamp {
        let rotated_at = self.predecessor.as_ref().map(|last| last.used_at);
        let refreshed_at = rotated_at.max(self.reused_at);
        refreshed_at.map_or(self.created_at, |at| at.max(self.created_at))
    }

    /// Whether tokens of the family are worth anything.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }

    /// Ends the family. The first moment of revocation stands.
    pub fn revoke(&mut self, now: Timestamp) {
        self.revoked_at.get_or_insert(now);
    }

    /// Whether the token is the newest one or its still good predecessor: what introspection calls active.
    pub fn accepts(&self, token: &PresentedRefreshToken, retry_window: Duration, now: Timestamp) -> bool {
        self.is_live(now)
            && matches!(
                self.standing(token, retry_window, now),
                Standing::Current | Standing::Retry
            )
    }

    /// Whether the token is, or once was, one of this family's.
    pub fn knows(&self, token: &PresentedRefreshToken) -> bool {
        self.lineage == Digest::of(token.lineage.as_slice()) && token.generation <= self.current.number
    }

    fn standing(&self, token: &PresentedRefreshToken, retry_window: Duration, now: Timestamp) -> Standing {
        // What has the digest of the newest token is the newest token, whole.
        if token.generation == self.current.number && token.digest == self.current.digest {
            return Standing::Current;
        }
        if !self.knows(token) {
            return Standing::Foreign;
        }
        let Some(last) = &self.predecessor else {
            return Standing::Replaced;
        };
        if now > last.used_at + retry_window {
            return Standing::Replaced;
        }
        if token.generation == last.generation.number && token.digest == last.generation.digest {
            return Standing::Retry;
        }
        let between = last.generation.number < token.generation && token.generation < self.current.number;
        if between {
            Standing::Sibling
        } else {
            Standing::Replaced
        }
    }

    /// Presents a token: checks it and moves the family on in one step. `random` makes the successor.
    #[must_use]
    pub fn refresh(
        mut self,
        token: &PresentedRefreshToken,
        terms: Terms<'_>,
        random: &[u8; 32],
        now: Timestamp,
    ) -> Refresh {
        let standing = self.standing(token, terms.retry_window, now);
        if standing == Standing::Foreign {
            return Refresh::Refused(UNKNOWN);
        }
        if self.authorization.client_id != terms.client_id {
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
        match (standing, terms.policy) {
            (Standing::Sibling, _) => Refresh::Refused(Refusal::invalid_grant(
                "refresh_token has been replaced by that of a repeated request",
            )),
            (Standing::Replaced | Standing::Foreign, _) => {
                self.revoke(now);
                Refresh::Replayed(Box::new(self))
            }
            (Standing::Current, RefreshPolicy::Reuse) => {
                self.reused_at = Some(now);
                self.room = None;
                self.prolong(terms.lifetimes, now);
                Refresh::Granted(Box::new(self), token.secret.clone())
            }
            (Standing::Current, RefreshPolicy::Rotate) => {
                let used = self.current.clone();
                self.predecessor = Some(Predecessor {
                    generation: used,
                    used_at: now,
                });
                self.room = None;
                self.succeed(token, terms.lifetimes, random, now)
            }
            (Standing::Retry, _) => self.succeed(token, terms.lifetimes, random, now),
        }
    }

    /// Makes the next token the newest one; the one it replaces is worthless if it was a sibling.
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

    /// From now on the newest token lasts as long as any. A family that began while the clock was ahead begins now. A
    /// clock that is behind for certain shortens nothing: the token would have expired as soon as the clock is right.
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

/// The answer for a token that names no family, or the wrong one.
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::AuthenticationMethod;
    use crate::oauth::openid::claims::ClaimsRequest;
    use crate::random::Random;

    const START: Timestamp = Timestamp::from_seconds(1_000_000);
    const WINDOW: Duration = Duration::from_mins(2);

    fn entropy(random: &Random) -> Entropy {
        Entropy {
            token: random.bytes(),
            lineage: random.bytes(),
        }
    }

    fn start(random: &Random) -> (RefreshFamily, Secret<RefreshToken>) {
        let authorization = Authorization {
            client_id: "web".to_owned(),
            user: Uuid::from_u128(1),
            session: Some(Uuid::from_u128(2)),
            auth_time: Some(START),
            factor: AuthenticationMethod::Password,
            upstream_token: None,
            scope: "openid".parse().unwrap(),
            claims: ClaimsRequest::default(),
        };
        RefreshFamily::start(
            Uuid::from_u128(7),
            authorization,
            &crate::config::Settings::default().policy("").lifetimes,
            &entropy(random),
            START,
        )
    }

    fn present(
        family: &RefreshFamily,
        token: &str,
        client_id: &str,
        random: &Random,
        now: Timestamp,
    ) -> Refresh {
        let lifetimes = crate::config::Settings::default().policy("").lifetimes;
        let terms = Terms {
            client_id,
            policy: RefreshPolicy::Rotate,
            lifetimes: &lifetimes,
            retry_window: WINDOW,
        };
        let token = PresentedRefreshToken::parse(token).unwrap();
        family.clone().refresh(&token, terms, &random.bytes(), now)
    }

    fn granted(refresh: Refresh) -> (RefreshFamily, String) {
        match refresh {
            Refresh::Granted(family, token) => (*family, token.reveal().to_owned()),
            _ => panic!("not granted"),
        }
    }

    #[test]
    fn a_lost_answer_can_be_fetched_again_within_the_window() {
        let random = Random::seeded(1);
        let (family, first) = start(&random);
        let (family, lost) = granted(present(&family, first.reveal(), "web", &random, START));
        let (family, second) = granted(present(&family, first.reveal(), "web", &random, START + WINDOW));
        assert!(matches!(
            present(&family, &lost, "web", &random, START + WINDOW),
            Refresh::Refused(_)
        ));
        granted(present(&family, &second, "web", &random, START));
    }

    #[test]
    fn no_refresh_makes_the_row_longer() {
        let random = Random::seeded(3);
        let row = |family: &RefreshFamily| rmp_serde::to_vec_named(family).unwrap();
        let (family, token) = start(&random);
        let length = row(&family).len();
        let (mut family, mut token) = (
            rmp_serde::from_slice::<RefreshFamily>(&row(&family)).unwrap(),
            token.reveal().to_owned(),
        );
        for _ in 0..3 {
            (family, token) = granted(present(&family, &token, "web", &random, START));
            assert_eq!(row(&family).len(), length);
        }
    }

    #[test]
    fn a_sibling_that_turns_up_when_the_window_is_over_ends_the_family() {
        let random = Random::seeded(6);
        let (family, first) = start(&random);
        let (family, sibling) = granted(present(&family, first.reveal(), "web", &random, START));
        let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
        let late = START + WINDOW + Duration::from_secs(1);
        assert!(matches!(
            present(&family, &sibling, "web", &random, late),
            Refresh::Replayed(_)
        ));
    }

    #[test]
    fn a_used_token_outside_the_window_ends_the_family() {
        let random = Random::seeded(2);
        let (family, first) = start(&random);
        let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
        let late = START + WINDOW + Duration::from_secs(1);
        let Refresh::Replayed(family) = present(&family, first.reveal(), "web", &random, late) else {
            panic!("not a replay");
        };
        assert!(!family.is_live(late));
    }

    #[test]
    fn a_predecessor_whose_successor_was_used_ends_the_family() {
        let random = Random::seeded(3);
        let (family, first) = start(&random);
        let (family, second) = granted(present(&family, first.reveal(), "web", &random, START));
        let (family, _) = granted(present(&family, &second, "web", &random, START));
        assert!(matches!(
            present(&family, first.reveal(), "web", &random, START),
            Refresh::Replayed(_)
        ));
    }

    #[test]
    fn an_invented_old_token_cannot_end_a_family() {
        let random = Random::seeded(4);
        let (family, first) = start(&random);
        let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
        let invented = token(Uuid::from_u128(7), 0, &[0; LINEAGE_LEN], &random.bytes());
        assert!(matches!(
            present(&family, invented.reveal(), "web", &random, START),
            Refresh::Refused(_)
        ));
    }

    /// All tokens of a family bear its lineage, so whoever has an old one knows it.
    #[test]
    fn a_token_of_the_right_lineage_with_an_invented_secret_brings_nothing() {
        let random = Random::seeded(7);
        let (family, first) = start(&random);
        let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
        let lineage = PresentedRefreshToken::parse(first.reveal()).unwrap().lineage;
        let presented = |generation| {
            let invented = token(
                Uuid::from_u128(7),
                generation,
                lineage.as_slice(),
                &random.bytes(),
            );
            present(&family, invented.reveal(), "web", &random, START)
        };
        assert!(matches!(presented(0), Refresh::Replayed(_)), "the one before");
        assert!(matches!(presented(1), Refresh::Replayed(_)), "the newest");
        assert!(matches!(presented(2), Refresh::Refused(_)), "there is none yet");
    }

    #[test]
    fn another_client_cannot_end_a_family_with_an_old_token() {
        let random = Random::seeded(5);
        let (family, first) = start(&random);
        let (family, second) = granted(present(&family, first.reveal(), "web", &random, START));
        let (family, _) = granted(present(&family, &second, "web", &random, START));
        assert!(matches!(
            present(&family, first.reveal(), "other", &random, START),
            Refresh::Refused(_)
        ));
    }

    #[test]
    fn a_token_issued_while_the_clock_was_ahead_lasts_as_long_as_others_from_its_next_use_on() {
        let random = Random::seeded(7);
        let (mut family, token) = start(&random);
        let now = EARLIEST + Duration::from_hours(24);
        family.created_at = now + Duration::from_hours(24 * 365 * 73);
        family.expires_at = family.created_at + Duration::from_hours(24 * 90);
        let (family, _) = granted(present(&family, token.reveal(), "web", &random, now));
        assert_eq!(family.created_at, now);
        assert_eq!(family.expires_at, now + Duration::from_hours(24 * 90));
    }

    #[test]
    fn a_clock_that_is_behind_for_certain_shortens_nothing() {
        let random = Random::seeded(8);
        let (mut family, token) = start(&random);
        family.created_at = EARLIEST;
        family.expires_at = EARLIEST + Duration::from_hours(24 * 90);
        let (created_at, expires_at) = (family.created_at, family.expires_at);
        let epoch = Timestamp::from_seconds(0);
        let (family, _) = granted(present(&family, token.reveal(), "web", &random, epoch));
        assert_eq!((family.created_at, family.expires_at), (created_at, expires_at));
    }

    #[test]
    fn ninety_days_count_from_the_newest_token_and_an_absolute_bound_caps_them() {
        let lifetimes = Lifetimes {
            refresh_absolute: Some(Duration::from_hours(24 * 100)),
            ..crate::config::Settings::default().policy("").lifetimes
        };
        let days = |n: u64| Duration::from_hours(24 * n);
        assert_eq!(expiry(&lifetimes, START, START + days(5)), START + days(95));
        assert_eq!(expiry(&lifetimes, START, START + days(50)), START + days(100));
    }

    proptest! {
        /// Whatever is presented in whatever order, at most one token not yet used is good, and a revoked
        /// family stays so.
        #[test]
        fn at_most_one_unused_token_is_good(steps in proptest::collection::vec((0_usize..12, 0_u64..100), 1..40)) {
            let random = Random::seeded(9);
            let (mut family, first) = start(&random);
            let mut tokens = vec![first.reveal().to_owned()];
            let mut used = std::collections::HashSet::new();
            let mut now = START;
            for (pick, pause) in steps {
                now = now + Duration::from_secs(pause);
                let text = tokens[pick % tokens.len()].clone();
                let was_revoked = family.revoked_at.is_some();
                match present(&family, &text, "web", &random, now) {
                    Refresh::Granted(next, token) => {
                        prop_assert!(!was_revoked);
                        family = *next;
                        used.insert(text);
                        tokens.push(token.reveal().to_owned());
                    }
                    Refresh::Replayed(next) => family = *next,
                    Refresh::Refused(refusal) => {
                        prop_assert!(was_revoked || refusal.description.contains("repeated request"));
                    }
                }
                let good: Vec<_> = tokens
                    .iter()
                    .filter(|token| !used.contains(*token))
                    .filter(|token| family.accepts(&PresentedRefreshToken::parse(token).unwrap(), WINDOW, now))
                    .collect();
                prop_assert!(good.len() <= 1);
                prop_assert_eq!(good.is_empty(), family.revoked_at.is_some());
            }
        }
    }
}

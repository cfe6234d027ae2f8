//! Device authorizations: RFC 8628.
//!
//! A device without a browser shows a user code, and polls the token endpoint with its device code. A person types the user
//! code on another device, signs in there, and decides.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::client::Client;
use crate::oauth::code::Authorization;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::secret::{DeviceCode, Digest, Malformed, Secret};
use crate::text;

/// The longest lifetime of a device code that can be configured.
pub const LONGEST_LIFETIME: Duration = Duration::from_mins(30);

/// How long a device authorization is kept after its device code has expired. Until then the device is told that the code
/// has expired, and a replay ends the grant.
pub const RETENTION: Duration = Duration::from_hours(1);

/// The code that a person types: 8 of 20 consonants, which spell no words (section 6.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserCode(String);

impl UserCode {
    const ALPHABET: [char; 20] = [
        'B', 'C', 'D', 'F', 'G', 'H', 'J', 'K', 'L', 'M', 'N', 'P', 'Q', 'R', 'S', 'T', 'V', 'W', 'X', 'Z',
    ];
    const LEN: usize = 8;

    /// A code of random bytes. Each code is equally likely.
    pub fn draw(mut random_byte: impl FnMut() -> u8) -> Self {
        let mut code = String::with_capacity(Self::LEN);
        while code.len() < Self::LEN {
            // A byte that stands for no letter is left out.
            code.extend(Self::ALPHABET.get(usize::from(random_byte() & 31)));
        }
        Self(code)
    }

    /// Reads what a person typed. Case, spaces and punctuation do not matter.
    pub fn parse(typed: &str) -> Option<Self> {
        let typed = text::code(typed);
        let letters = typed.chars().filter(|letter| letter.is_alphanumeric());
        let code: String = letters
            .take(Self::LEN + 1)
            .map(|letter| letter.to_ascii_uppercase())
            .collect();
        let is_code = code.len() == Self::LEN && code.chars().all(|letter| Self::ALPHABET.contains(&letter));
        is_code.then_some(Self(code))
    }

    /// The letters without a hyphen.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The code as people see it: `WDJB-MJHT`.
impl fmt::Display for UserCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = self.0.split_at_checked(Self::LEN / 2).unwrap_or((&self.0, ""));
        write!(f, "{first}-{second}")
    }
}

/// What the store has of a user code: a pseudonym under the master key. Eight letters are too few for a digest without a
/// key. Rows of earlier releases have the code itself, for as long as it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoredUserCode(String);

impl StoredUserCode {
    pub fn new(pseudonym: Uuid) -> Self {
        Self(pseudonym.simple().to_string())
    }

    /// The code itself, in a row of an earlier release.
    pub fn in_the_clear(&self) -> Option<UserCode> {
        UserCode::parse(&self.0)
    }

    /// The key in the index.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A stored device authorization. Its time-ordered id says when the device asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceAuthorization {
    pub digest: Digest<DeviceCode>,
    pub user_code: StoredUserCode,
    /// The client that asked.
    pub client_id: String,
    /// Which client of this identifier asked; see [`Client::incarnation`].
    pub client_incarnation: Uuid,
    /// The scope that the client asked for.
    pub scope: Scope,
    /// The APIs that the client asked for (RFC 8707 section 2).
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// The address that the device asked from, past trusted proxies.
    pub address: IpAddr,
    /// When the device code expires.
    pub expires_at: Timestamp,
    /// The least seconds between two polls.
    pub interval: u64,
    /// When the device last polled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled_at: Option<Timestamp>,
    /// What a person has decided.
    pub decision: DeviceDecision,
}

/// What a person has decided about a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceDecision {
    /// Nothing yet.
    Pending,
    /// This user has denied.
    Denied(Uuid),
    /// A user has allowed this. The device has not got its tokens yet.
    Allowed(Box<Authorization>),
    /// The device has got its tokens.
    Redeemed {
        /// The user who allowed it.
        user: Uuid,
        /// The refresh family of the tokens.
        family: Uuid,
    },
}

impl DeviceDecision {
    /// The user who decided.
    pub fn made_by(&self) -> Option<Uuid> {
        match self {
            Self::Pending => None,
            Self::Denied(user) | Self::Redeemed { user, .. } => Some(*user),
            Self::Allowed(authorization) => Some(authorization.user),
        }
    }

    pub fn is_to_allow(&self) -> bool {
        matches!(self, Self::Allowed(_) | Self::Redeemed { .. })
    }
}

#[derive(Clone, Debug)]
pub struct PresentedDeviceCode {
    /// The row that the code names.
    pub id: Uuid,
    digest: Digest<DeviceCode>,
}

impl PresentedDeviceCode {
    /// Reads `device_code` (section 3.4).
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let code = Secret::<DeviceCode>::parse(text)?;
        Ok(Self {
            id: Uuid::from_slice(code.locator()).map_err(|_| Malformed)?,
            digest: code.digest(),
        })
    }
}

/// The result of a poll.
#[derive(Debug)]
pub enum Poll {
    /// A user has allowed this. The row is now marked as redeemed.
    Granted(Box<Authorization>),
    /// The device code was redeemed before. Its tokens must be revoked.
    Replayed {
        /// The refresh family that it was redeemed for.
        family: Uuid,
    },
    /// Nobody has decided yet. The row has the time of this poll.
    Pending(Refusal),
    /// The device code is not valid. Nothing changes.
    Refused(Refusal),
}

/// The refusal for a device code that names no row, or the wrong one.
pub const UNKNOWN: Refusal = Refusal::invalid_grant("device_code is unknown or has expired");

impl DeviceAuthorization {
    /// The seconds between two polls of a device, and by how many they grow if it polls too soon (section 3.5).
    pub const INTERVAL: u64 = 5;

    /// A new one of this client. `user_code` may be replaced until it is stored.
    pub fn new(
        client: &Client,
        digest: Digest<DeviceCode>,
        user_code: StoredUserCode,
        scope: Scope,
        resources: Resources,
        address: IpAddr,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            digest,
            user_code,
            client_id: client.client_id.clone(),
            client_incarnation: client.incarnation,
            scope,
            resources,
            address,
            expires_at,
            interval: Self::INTERVAL,
            polled_at: None,
            decision: DeviceDecision::Pending,
        }
    }

    /// Whether a user may still decide. After the clock was set back, it counts as expired, as codes do.
    pub fn is_pending(&self, id: Uuid, now: Timestamp) -> bool {
        matches!(self.decision, DeviceDecision::Pending) && !self.has_expired(id, now)
    }

    fn has_expired(&self, id: Uuid, now: Timestamp) -> bool {
        now >= self.expires_at || Timestamp::of_id(id).is_ahead_of(now)
    }

    /// Whether this client asked, and not an earlier one of the same identifier.
    pub fn is_of(&self, client: &Client) -> bool {
        self.client_id == client.client_id && self.client_incarnation == client.incarnation
    }

    /// Answers a poll of this client (section 3.5). A granted one is redeemed for `family`.
    pub fn poll(
        &mut self,
        presented: &PresentedDeviceCode,
        client: &Client,
        family: Uuid,
        now: Timestamp,
    ) -> Poll {
        if self.digest != presented.digest {
            return Poll::Refused(UNKNOWN);
        }
        if !self.is_of(client) {
            let why = "device_code was issued to another client";
            return Poll::Refused(Refusal::invalid_grant(why));
        }
        let has_expired = self.has_expired(presented.id, now);
        match &self.decision {
            DeviceDecision::Redeemed { family, .. } => Poll::Replayed { family: *family },
            DeviceDecision::Denied(_) => {
                let why = "the user declined";
                Poll::Refused(Refusal::new(ErrorCode::AccessDenied, why))
            }
            _ if has_expired => {
                let why = "device_code has expired; begin again at the device authorization endpoint";
                Poll::Refused(Refusal::new(ErrorCode::ExpiredToken, why))
            }
            DeviceDecision::Pending => Poll::Pending(self.note_poll(now)),
            DeviceDecision::Allowed(authorization) => {
                let authorization = authorization.clone();
                self.decision = DeviceDecision::Redeemed {
                    user: authorization.user,
                    family,
                };
                Poll::Granted(authorization)
            }
        }
    }

    /// Records a poll that is too early for an answer. If it came too soon after the one before, the interval grows and
    /// stays so. Of several polls in a second, the first one counts: so a device that polls in a loop causes few writes. A
    /// poll that lies ahead was recorded before the clock was set back, and does not count.
    fn note_poll(&mut self, now: Timestamp) -> Refusal {
        let is_too_soon = self
            .polled_at
            .is_some_and(|polled_at| polled_at <= now && now.since(polled_at).as_secs() < self.interval);
        let is_first = self.polled_at.replace(now) != Some(now);
        if is_too_soon {
            if is_first {
                self.interval = self.interval.saturating_add(Self::INTERVAL);
            }
            let why = format!("wait {} seconds before each poll", self.interval);
            Refusal::naming(ErrorCode::SlowDown, &why)
        } else {
            let why = "the user has not decided yet";
            Refusal::new(ErrorCode::AuthorizationPending, why)
        }
    }
}

/// The response of the device authorization endpoint (section 3.2).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceAuthorizationResponse {
    /// What the device polls the token endpoint with.
    pub device_code: String,
    /// What the person types.
    pub user_code: String,
    /// The page on which the person types it.
    pub verification_uri: String,
    /// The same page with the code filled in, for a QR code.
    pub verification_uri_complete: String,
    /// For how many seconds the codes are good.
    pub expires_in: u64,
    /// How many seconds the device waits before each poll.
    pub interval: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const START: Timestamp = Timestamp::from_seconds(1_000_000);

    #[test]
    fn a_user_code_is_read_as_people_type_it() {
        let code = UserCode::parse("WDJBMJHT").unwrap();
        assert_eq!(code.to_string(), "WDJB-MJHT");
        for typed in ["WDJB-MJHT", "wdjb mjht", " w.d.j.b_m/j/h/t\n", "WDJB\u{2013}MJHT"] {
            assert_eq!(UserCode::parse(typed), Some(code.clone()), "{typed}");
        }
        for typed in ["", "WDJB-MJH", "WDJB-MJHTT", "WDJB-MJHA", "WDJB-MJH1"] {
            assert_eq!(UserCode::parse(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_stored_user_code_is_in_the_clear_only_in_a_row_of_an_earlier_release() {
        let earlier: StoredUserCode = serde_json::from_str("\"WDJBMJHT\"").unwrap();
        assert_eq!(earlier.in_the_clear(), UserCode::parse("WDJBMJHT"));
        assert_eq!(StoredUserCode::new(Uuid::max()).in_the_clear(), None);
    }

    #[test]
    fn drawn_user_codes_use_the_whole_alphabet() {
        let random = Random::seeded(1);
        let drawn: String = (0..100)
            .map(|_| UserCode::draw(|| random.bytes::<1>()[0]).0)
            .collect();
        assert!(UserCode::ALPHABET.iter().all(|letter| drawn.contains(*letter)));
        assert!(UserCode::parse(&drawn[..8]).is_some());
    }

    #[test]
    fn the_interval_grows_with_each_poll_that_comes_too_soon() {
        let client = Client::new("tv", Uuid::nil(), Uuid::nil(), true, START);
        let secret = Secret::<DeviceCode>::generate(START.first_id().as_bytes(), &Random::seeded(1));
        let user_code = StoredUserCode::new(Uuid::nil());
        let address = IpAddr::from([192, 0, 2, 1]);
        let mut authorization = DeviceAuthorization::new(
            &client,
            secret.digest(),
            user_code,
            Scope::empty(),
            Resources::new(),
            address,
            START + Duration::from_mins(10),
        );
        let presented = PresentedDeviceCode::parse(secret.reveal()).unwrap();
        for (at, expected, interval) in [
            (100, ErrorCode::AuthorizationPending, 5),
            (105, ErrorCode::AuthorizationPending, 5),
            (109, ErrorCode::SlowDown, 10),
            (118, ErrorCode::SlowDown, 15),
            (133, ErrorCode::AuthorizationPending, 15),
            (133, ErrorCode::SlowDown, 15),
            // The clock was set back.
            (50, ErrorCode::AuthorizationPending, 15),
            (64, ErrorCode::SlowDown, 20),
        ] {
            let now = START + Duration::from_secs(at);
            let poll = authorization.poll(&presented, &client, Uuid::nil(), now);
            let Poll::Pending(refusal) = poll else {
                panic!("{poll:?}");
            };
            assert_eq!(
                (refusal.code, authorization.interval),
                (expected, interval),
                "{at}"
            );
        }
    }
}

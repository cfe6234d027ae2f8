//! The challenge of a passkey: what the authenticator signs, so that each response is good for one ceremony.
//!
//! Nothing is stored when a page is drawn. The browser keeps the challenge, sealed for one login transaction or one session.
//! The use is recorded in the transaction that accepts the response.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::Core;
use crate::clock::Timestamp;
use crate::oauth::access_token::hour_of;
use crate::oauth::assertion::{Owner, ReplayKey};
use crate::webauthn::CHALLENGE_LEN;

/// How long a challenge is good. Web Authentication section 15.1 recommends five minutes for a ceremony.
const LIFETIME: Duration = Duration::from_mins(5);

/// Where a challenge is good.
#[derive(Clone, Copy, Debug)]
pub enum ChallengePlace {
    /// In a login transaction, which is bound to a browser.
    SignIn(Uuid),
    /// In a session, for a new passkey.
    Registration(Uuid),
    /// In a session, as the proof of its user.
    Proof(Uuid),
}

impl ChallengePlace {
    fn context(self) -> String {
        match self {
            Self::SignIn(transaction) => format!("login_transaction/{transaction}/passkey_challenge"),
            Self::Registration(session) => format!("sessions/{session}/passkey_challenge"),
            Self::Proof(session) => format!("sessions/{session}/proof_challenge"),
        }
    }
}

/// A challenge for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnChallenge {
    /// The challenge, base64url.
    pub value: String,
    /// The same, sealed, for the form that brings the response.
    pub sealed: String,
}

/// A challenge that a form brought back in time.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct OpenedChallenge {
    pub(in crate::flow) bytes: [u8; CHALLENGE_LEN],
    /// Under which its use is recorded.
    pub(in crate::flow) replay_key: ReplayKey,
}

/// Draws a challenge. It begins with a time-ordered identifier, which says when it was drawn. 202 bits of it are random.
pub fn draw(core: &Core, place: ChallengePlace, now: Timestamp) -> DrawnChallenge {
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let random: [u8; 16] = core.random.bytes();
    let bytes = [*id.as_bytes(), random].concat();
    let sealed = core
        .sealer
        .seal_in_hour(hour_of(now), &place.context(), &bytes, &core.random);
    DrawnChallenge {
        value: URL_SAFE_NO_PAD.encode(&bytes),
        sealed,
    }
}

/// Opens a challenge. `None` if it was drawn for another place or is too old.
pub(in crate::flow) fn open(
    core: &Core,
    place: ChallengePlace,
    sealed: &str,
    now: Timestamp,
) -> Option<OpenedChallenge> {
    let plain = core.sealer.open_of_hour(&place.context(), sealed).ok()?;
    let bytes: [u8; CHALLENGE_LEN] = plain.as_slice().try_into().ok()?;
    let (id, _) = bytes.split_first_chunk()?;
    let drawn_at = Timestamp::of_id(Uuid::from_bytes(*id));
    let is_good = now < drawn_at + LIFETIME && !drawn_at.is_ahead_of(now);
    is_good.then(|| OpenedChallenge {
        bytes,
        replay_key: ReplayKey::of(
            Owner::Browser,
            &URL_SAFE_NO_PAD.encode(bytes),
            drawn_at + LIFETIME,
        ),
    })
}

//! Nonces of the service for proofs of possession: RFC 9449 section 8.
//!
//! A nonce is the time at which it was given, sealed. So nothing is stored, and every process with the same master key
//! accepts it.

use std::time::Duration;

use super::Core;
use crate::clock::Timestamp;
use crate::oauth::access_token::hour_of;

const CONTEXT: &str = "dpop nonce";
/// How long a nonce is accepted.
const LIFETIME: Duration = Duration::from_mins(5);

/// A new nonce.
pub fn issue(core: &Core, now: Timestamp) -> String {
    let given_at = now.seconds().to_be_bytes();
    core.sealer
        .seal_in_hour(hour_of(now), CONTEXT, &given_at, &core.random)
}

/// The time until which a nonce is accepted. `None` if it is not a current nonce of this service.
pub fn end_of(core: &Core, nonce: &str, now: Timestamp) -> Option<Timestamp> {
    let plain = core.sealer.open_of_hour(CONTEXT, nonce).ok()?;
    let given_at = <[u8; 8]>::try_from(plain.as_slice()).ok()?;
    let given_at = Timestamp::from_seconds(u64::from_be_bytes(given_at));
    (given_at <= now + LIFETIME && now <= given_at + LIFETIME).then_some(given_at + LIFETIME)
}

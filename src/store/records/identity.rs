//! Users, sessions and consents, as they are kept.

use crate::identity::{Consent, Session, User};
use crate::store::record::{Record, Unreadable, read_json, read_message_pack};

/// The names in a row were those of the standard claims before version 3; they are still read.
impl Record for User {
    const VERSION: u8 = 3;

    fn upgrade(version: u8, stored: &[u8]) -> Result<Self, Unreadable> {
        match version {
            1 => read_json(stored),
            2 => read_message_pack(stored, version),
            other => Err(Unreadable::Version(other)),
        }
    }
}

impl Record for Session {}

impl Record for Consent {}

//! Users, sessions and consents, as they are kept.

use crate::identity::{Consent, Session, User};
use crate::store::record::Record;

/// The names in a row were those of the standard claims before version 3.
impl Record for User {
    const VERSION: u8 = 3;
}

impl Record for Session {}

impl Record for Consent {}

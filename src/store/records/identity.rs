//! Users, sessions and consents, as they are kept.

use crate::identity::{Consent, Session, User};
use crate::store::table::Record;

impl Record for User {
    const VERSION: u8 = 1;
}

impl Record for Session {
    const VERSION: u8 = 1;
}

impl Record for Consent {
    const VERSION: u8 = 1;
}

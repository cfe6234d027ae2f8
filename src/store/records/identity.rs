//! Users, sessions and consents, as they are kept.

use crate::identity::{Consent, Session, User};
use crate::store::record::Record;

impl Record for User {}

impl Record for Session {}

impl Record for Consent {}

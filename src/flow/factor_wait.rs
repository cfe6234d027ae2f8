//! The end of the wait of a user who has none of the factors any more ([`super::login::lost_factors`]).

use uuid::Uuid;

use crate::identity::User;
use crate::observe::audit;
use crate::observe::audit::Event;

/// Ends the wait of a user, and that one may begin. Returns whether there was one. The caller stores the user.
pub fn end_wait(user: &mut User) -> bool {
    user.secured_at = None;
    user.factors_end_at.take().is_some()
}

/// Records that the wait of a user ended for this reason, after the commit.
pub fn record_end(user: Uuid, reason: &'static str) {
    audit::record(&Event::LostFactorsWaitEnded { user, reason });
}

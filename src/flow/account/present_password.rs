//! Verifies the present password of a signed-in user.

use std::net::IpAddr;

use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::flow::check_password::check_password;
use crate::flow::{Core, Failure, failed_passwords};
use crate::identity::User;
use crate::limit::password_attempt::PasswordAttempt;
use crate::observe::audit;
use crate::observe::audit::Event;

/// The present password, as the user types it.
pub struct PresentPassword {
    pub typed: Zeroizing<String>,
    /// The address it came from, for the audit.
    pub from: IpAddr,
}

/// Whether it is the password of this user. A wrong one counts as in a sign-in.
pub(super) async fn verify(
    core: &Core,
    user: &User,
    password: &PresentPassword,
    attempt: &PasswordAttempt,
    now: Timestamp,
) -> Result<bool, Failure> {
    let hash = user.password.clone();
    let attempt = failed_passwords::counted(core, attempt, Some(user), hash.clone(), now);
    let check = check_password(core, hash, password.typed.clone(), attempt).await?;
    if !check.matches {
        let (user, from) = (user.uuid, password.from);
        audit::record(&Event::PasswordChangeFailed { user, from });
    }
    Ok(check.matches)
}

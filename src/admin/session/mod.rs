//! Browser sessions.

mod list;
mod revoke;
#[cfg(test)]
mod tests;

pub use self::list::{ListSessions, SessionApplication, SessionView};
pub use self::revoke::{RevokeSessions, Revoked};

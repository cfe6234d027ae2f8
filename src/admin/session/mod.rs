//! Browser sessions.

mod list;
mod list_all;
mod revoke;
#[cfg(test)]
mod tests;

pub use self::list::{ListSessions, SessionApplication, SessionView};
pub use self::list_all::ListAllSessions;
pub use self::revoke::{RevokeSessions, Revoked};

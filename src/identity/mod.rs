//! Users, their sessions and their consents.

pub mod claim;
pub mod consent;
pub mod device;
pub mod session;
pub mod user;

pub use consent::Consent;
pub use device::Device;
pub use session::{AuthenticationMethod, Session, SessionLifetimes, UpstreamToken};
pub use user::{LinkedIdentity, LoginName, User};

//! The browser that a request comes from, as its cookies identify it.

use uuid::Uuid;

use crate::identity::Device;
use crate::secret::{BrowserCookie, Digest, Secret, SessionCookie};

/// The cookies that a browser sent, and the device it runs on.
#[derive(Clone, Debug, Default)]
pub struct Browser {
    pub session: Option<PresentedSession>,
    /// The digest of the cookie that binds login transactions to it.
    pub binding: Option<Digest<BrowserCookie>>,
    /// The sealed marks of users who asked not to answer the second step in it again.
    pub remembered_users: Option<String>,
    /// What a session records of it.
    pub device: Device,
}

impl Browser {
    /// Reads the cookies' values. A malformed one counts as missing.
    pub fn of(session: Option<&str>, binding: Option<&str>, device: Device) -> Self {
        Self {
            device,
            remembered_users: None,
            session: session.and_then(PresentedSession::parse),
            binding: binding
                .and_then(|text| Secret::<BrowserCookie>::parse(text).ok())
                .map(|secret| secret.digest()),
        }
    }
}

/// A session cookie as a browser presents it.
#[derive(Clone, Debug)]
pub struct PresentedSession {
    pub id: Uuid,
    pub digest: Digest<SessionCookie>,
}

impl PresentedSession {
    /// Reads the cookie's value. `None` if it is malformed.
    fn parse(cookie: &str) -> Option<Self> {
        let secret = Secret::<SessionCookie>::parse(cookie).ok()?;
        Some(Self {
            id: Uuid::from_slice(secret.locator()).ok()?,
            digest: secret.digest(),
        })
    }
}

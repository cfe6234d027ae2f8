//! The browser that a request comes from, as its cookies tell.

use uuid::Uuid;

use crate::identity::Device;
use crate::secret::{BrowserCookie, Digest, Secret, SessionCookie};

/// The cookies of this service that a browser sent, and what it is.
#[derive(Clone, Debug, Default)]
pub struct Browser {
    /// The session it is signed in to.
    pub session: Option<PresentedSession>,
    /// What binds sign-ins under way to it.
    pub binding: Option<Digest<BrowserCookie>>,
    /// What a session remembers of it.
    pub device: Device,
}

impl Browser {
    /// Reads the cookies' values. A malformed one counts as missing.
    pub fn of(session: Option<&str>, binding: Option<&str>, device: Device) -> Self {
        Self {
            device,
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
    /// The session it names.
    pub id: Uuid,
    /// The digest of the cookie.
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

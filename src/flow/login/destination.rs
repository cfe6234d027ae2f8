//! Where a browser goes after a step of a sign-in.

use crate::oauth::authorize::{AuthorizationResponse, RefusedRequest};
use crate::oauth::login::AccountLogin;
use crate::secret::{BrowserCookie, LinkSecret, Secret, SessionCookie};

/// Where the browser goes next.
#[derive(Debug)]
pub enum Destination {
    /// To the client, with the answer.
    Respond(AuthorizationResponse),
    /// To the sign-in page of this sealed transaction.
    SignIn(String),
    /// To the page of this sealed transaction that says that the user may not use the client.
    NoAccess(String),
    /// To the consent page of this sealed transaction.
    AskConsent(String),
    /// To the page for the second step.
    SecondFactor {
        /// The sealed transaction.
        sealed: String,
        /// What was proven in it, sealed. `None` if the user is signed in: the session is what was proven.
        proof: Option<String>,
    },
    /// To the page on which the user chooses another password, because the operator requires it.
    ChoosePassword {
        /// The sealed transaction.
        sealed: String,
        link: Secret<LinkSecret>,
    },
    /// To the page of this sealed transaction that offers a passkey.
    OfferPasskey(String),
    /// To the account page.
    Account(AccountLogin),
    /// To the page of this sealed transaction on which the user decides about a device.
    DecideDevice(String),
}

/// Where the browser goes next, and the cookies that it gets.
#[derive(Debug)]
pub struct BrowserRedirect {
    /// Where it goes.
    pub destination: Destination,
    pub binding: Option<Secret<BrowserCookie>>,
    /// A new session cookie, after a sign-in.
    pub session: Option<Secret<SessionCookie>>,
}

impl BrowserRedirect {
    /// To the client, with a refusal.
    pub(in crate::flow) fn refusing(refused: &RefusedRequest, issuer: &str) -> Self {
        Self::to(Destination::Respond(refused.response(issuer)))
    }

    /// A redirect that sets no cookies.
    pub(in crate::flow) fn to(destination: Destination) -> Self {
        Self {
            destination,
            binding: None,
            session: None,
        }
    }
}

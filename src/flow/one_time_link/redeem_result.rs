//! What a person chooses on the page of a link, and what comes of it.

use zeroize::Zeroizing;

use crate::flow::login::destination::BrowserRedirect;
use crate::identity::User;
use crate::password::PasswordProblem;

/// What a person types on the page of a link.
pub struct ChosenPassword {
    /// The name, for a new account.
    pub name: String,
    pub password: Zeroizing<String>,
}

/// The result of a link.
#[derive(Debug)]
pub enum RedeemResult {
    /// The password is set, and the user is signed in.
    Done {
        /// Where the browser goes.
        redirect: BrowserRedirect,
        /// The user's record as it is now.
        user: Box<User>,
    },
    /// The password is set, and the browser goes to the page for the second step. Or nothing was done, and the browser
    /// goes to the client with a refusal.
    Redirected(BrowserRedirect),
    /// The policy forbids the password; the link can still be used.
    Rejected(PasswordProblem),
    /// The password is the present one, and the operator requires another one; the link can still be used.
    Unchanged,
    /// The link has expired or was used, or what it is for is no longer possible.
    LinkVoid,
    /// The sign-in has ended; the link can still be used.
    SignInExpired,
}

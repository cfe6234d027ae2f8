//! A person who opened a link chooses a password.

use zeroize::Zeroizing;

use super::create_account::create_account;
use super::find;
use super::reset_password::reset_password;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::transaction::{BrowserRedirect, LoginContext};
use crate::flow::{Core, Failure};
use crate::identity::{LinkPurpose, User};
use crate::password::PasswordProblem;
use crate::secret::{LinkSecret, Secret};

/// What a person types on the page of a link.
pub struct ChosenPassword {
    /// The name, for a new account.
    pub name: String,
    /// The password.
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

/// Does what the link is for, and continues the sign-in of this browser. A password that a person sets by a link counts as
/// a sign-in with it.
pub async fn redeem(
    core: &Core,
    browser: &Browser,
    login: &LoginContext,
    secret: &Secret<LinkSecret>,
    chosen: ChosenPassword,
    now: Timestamp,
) -> Result<RedeemResult, Failure> {
    let link = core.store.read(|snapshot| find(snapshot, secret, now)).await?;
    match link.map(|link| link.purpose) {
        Some(LinkPurpose::ResetPassword { user, .. }) => {
            reset_password(core, browser, login, (secret, user), chosen, now).await
        }
        Some(LinkPurpose::CreateAccount(new)) => {
            create_account(core, browser, login, (secret, new), chosen, now).await
        }
        Some(
            LinkPurpose::SignIn { .. }
            | LinkPurpose::SecureAccount { .. }
            | LinkPurpose::ChangeEmail { .. }
            | LinkPurpose::Nothing,
        )
        | None => Ok(RedeemResult::LinkVoid),
    }
}

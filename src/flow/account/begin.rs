//! A user opens the account page and has to sign in first.

use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::destination::{BrowserRedirect, Destination};
use crate::flow::login::session;
use crate::flow::login::transaction::begin_transaction;
use crate::flow::{Core, Failure};
use crate::oauth::login::{AccountLogin, LoginPurpose};

/// Begins a sign-in that ends on this page of the account. A user who is signed in already has to authenticate again.
/// `action_pending` says that an action was asked for that was not done.
pub async fn sign_in(
    core: &Core,
    browser: &Browser,
    page: &str,
    action_pending: bool,
    now: Timestamp,
) -> Result<BrowserRedirect, Failure> {
    let live = session::signed_in(core, browser, now).await?;
    let purpose = LoginPurpose::Account(AccountLogin {
        reauthenticate: live.map(|live| live.user.account_id),
        action_pending,
        page: page.to_owned(),
    });
    let (sealed, binding) = begin_transaction(core, purpose, browser, now)?;
    Ok(BrowserRedirect {
        destination: Destination::SignIn(sealed),
        binding,
        session: None,
    })
}

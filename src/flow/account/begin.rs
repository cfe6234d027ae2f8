//! A user opens the account page and has to sign in first.

use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::login::transaction::{BrowserRedirect, Destination, new_transaction};
use crate::flow::{Core, Failure};
use crate::oauth::login::{AccountLogin, LoginPurpose};
use crate::store::tables::LOGIN_TRANSACTIONS;

/// Begins a sign-in that ends on the account page. A user who is signed in already has to authenticate again.
/// `action_pending` says that an action was asked for that was not done.
pub async fn sign_in(
    core: &Core,
    browser: &Browser,
    action_pending: bool,
    now: Timestamp,
) -> Result<BrowserRedirect, Failure> {
    let live = session::signed_in(core, browser, now)?;
    let purpose = LoginPurpose::Account(AccountLogin {
        reauthenticate: live.map(|live| live.user.account_id),
        action_pending,
    });
    let (transaction, binding) = new_transaction(core, purpose, browser, now);
    let id = core.random.uuid_v7(core.clock.since_epoch());
    core.store
        .write("begin_account_sign_in", move |tx| {
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)
        })
        .await?;
    Ok(BrowserRedirect {
        destination: Destination::SignIn(id),
        binding,
        session: None,
    })
}

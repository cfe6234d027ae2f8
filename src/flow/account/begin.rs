//! A person comes to the account page who has to sign in first.

use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::login::transaction::{Browser, Next, Onward, new_transaction};
use crate::flow::{Core, Failure};
use crate::oauth::own_page;
use crate::store::tables::LOGIN_TRANSACTIONS;

/// Begins a sign-in that ends on the account page. Where somebody is signed in already, it is to be proved anew.
/// `deed_waits` says that something was asked for there, which is not done.
pub async fn sign_in(
    core: &Core,
    browser: &Browser,
    deed_waits: bool,
    now: Timestamp,
) -> Result<Onward, Failure> {
    let live = session::signed_in(core, browser, now)?;
    let again = live.as_ref().map(|live| live.user.account_id.as_str());
    let request = own_page::request(&core.policy.issuer, again, deed_waits);
    let (transaction, binding) = new_transaction(core, request, browser, now);
    let id = core.random.uuid_v7(core.clock.since_epoch());
    core.store
        .write("begin_account_sign_in", move |tx| {
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)
        })
        .await?;
    Ok(Onward {
        next: Next::SignIn(id),
        binding,
        session: None,
    })
}

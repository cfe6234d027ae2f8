//! A person who opened a link chooses a password.

use super::create_account::create_account;
use super::find;
use super::redeem_result::{ChosenPassword, RedeemResult};
use super::reset_password::reset_password;
use crate::flow::Failure;
use crate::flow::login::transaction::BrowserLogin;
use crate::identity::LinkPurpose;
use crate::secret::{LinkSecret, Secret};

/// Does what the link is for, and continues the sign-in of this browser. A password that a person sets by a link counts as
/// a sign-in with it.
pub async fn redeem(
    at: BrowserLogin<'_>,
    secret: &Secret<LinkSecret>,
    chosen: ChosenPassword,
) -> Result<RedeemResult, Failure> {
    let BrowserLogin { core, now, .. } = at;
    let link = core.store.read(|snapshot| find(snapshot, secret, now)).await?;
    let Some(link) = link else {
        return Ok(RedeemResult::LinkVoid);
    };
    match link.purpose {
        LinkPurpose::ResetPassword { user, .. } => {
            let second_factor = link.requested_in.and_then(|sign_in| sign_in.second_factor);
            reset_password(at, secret, user, second_factor, chosen).await
        }
        LinkPurpose::CreateAccount(new) => create_account(at, secret, new, chosen).await,
        LinkPurpose::SignIn { .. }
        | LinkPurpose::SecureAccount { .. }
        | LinkPurpose::ChangeEmail { .. }
        | LinkPurpose::Nothing => Ok(RedeemResult::LinkVoid),
    }
}

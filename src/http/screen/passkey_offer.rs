//! `GET` and `POST /passkey-offer`: a user who has signed in with a password is offered a passkey.

use ::http::{Method, StatusCode};
use uuid::Uuid;

use super::account_passkeys::{self, PasskeyAction};
use super::login_context::LoginRequest;
use super::{address, csrf, login_context};
use crate::flow::account::ActionResult;
use crate::flow::account::present_proof::PresentProof;
use crate::flow::login::passkey_offer::waiting;
use crate::flow::login::session::LiveSession;
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::cookie::{self, Cookie};
use crate::http::error::HttpError;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::identity::Factor;
use crate::pages::{AccountNotice, PasskeyOffer, PasskeySection};
use crate::route::Route;

/// The field that the script of the sign-in page adds if the device can keep a passkey.
const FIELD: &str = "platform_authenticator";

/// Whether an offer may be made in this browser. Then the script of the sign-in page adds the field.
pub(super) fn may_be_made(context: &RequestContext) -> bool {
    context.app.core.policy.offers_passkeys() && context.cookie(Cookie::PasskeyOffer).is_none()
}

/// Whether an offer may follow the sign-in with this form.
pub(super) fn may_follow(context: &RequestContext, form: &Parameters) -> bool {
    form.get(FIELD) == Some("1") && may_be_made(context)
}

/// Shows the page, or takes the answer. In any case in which there is nothing to offer, the sign-in continues.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let LoginRequest {
        parameters, login, ..
    } = login_context::load(context).await?;
    let Some((live, factors)) = waiting(&context.app.core, &login).await? else {
        return login_context::continue_login(context, &login).await;
    };
    if context.method() != Method::POST {
        return draw(context, &login, &live, &factors, false).await;
    }
    if !csrf::is_from_page(context, &parameters, &form(&login, live.id))? {
        return draw(context, &login, &live, &factors, true).await;
    }
    if parameters.get("decision") == Some("later") {
        let mut answer = login_context::continue_login(context, &login).await?;
        cookie::append(&mut answer, context.set_cookie(Cookie::PasskeyOffer, "later"));
        return Ok(answer);
    }
    let action = PasskeyAction::Add {
        response: parameters.get("passkey").unwrap_or_default().to_owned(),
        challenge: parameters.get("challenge").unwrap_or_default().to_owned(),
    };
    let result = action.perform(context, &PresentProof::SignIn).await?;
    // The passkey may have been added by the same form, whose answer was lost.
    if let ActionResult::Done(AccountNotice::PasskeyRefused | AccountNotice::Expired) = result
        && let Some((live, factors)) = waiting(&context.app.core, &login).await?
    {
        return draw(context, &login, &live, &factors, true).await;
    }
    login_context::continue_login(context, &login).await
}

/// Draws the page. If the sign-in is too old for a new passkey, it continues.
async fn draw(
    context: &RequestContext,
    login: &LoginContext,
    live: &LiveSession,
    factors: &[(Uuid, Factor)],
    is_refused: bool,
) -> Result<HttpResponse, HttpError> {
    let section = account_passkeys::section(context, live, factors);
    let Some(section) = section.await.filter(|section| section.challenge.is_some()) else {
        return login_context::continue_login(context, login).await;
    };
    let page = PasskeyOffer {
        action: context.app.path(&Route::PasskeyOffer),
        transaction: login.sealed.clone(),
        csrf: csrf::of_browser(context, &form(login, live.id)),
        passkey: PasskeySection {
            again: address::page(context, &Route::PasskeyOffer, &login.sealed),
            ..section
        },
        is_refused,
    };
    Ok(context.page(StatusCode::OK, &page, login.purpose.ui_locales()))
}

/// The CSRF context of the forms. It names the session: a passkey is added to its user only.
fn form(login: &LoginContext, session: Uuid) -> String {
    format!("passkey-offer:{}:{session}", login.transaction.id)
}

//! The page that the link of a notice leads to: the user secures the account.

use ::http::{Method, StatusCode};
use uuid::Uuid;

use super::csrf;
use super::link::{form, link_over};
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::secure_account::secure_account;
use crate::flow::users;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::pages::SecureAccount;
use crate::pages::secure_account::SecureForm;
use crate::route::Route;
use crate::secret::{LinkSecret, Secret};

/// Shows the page, or secures the account.
pub(super) async fn respond(
    context: &RequestContext,
    parameters: &Parameters,
    login: &LoginContext,
    (secret, user): (&Secret<LinkSecret>, Uuid),
) -> HttpResponse {
    let core = &context.app.core;
    let account_id = match users::find(core, user) {
        Ok(Some(user)) => user.account_id,
        Ok(None) => return link_over(context),
        Err(failure) => return error::failed_page(context, &failure),
    };
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let has_token = csrf::is_valid(parameters.get("csrf"), cookie, &form(login));
    let is_confirmed = context.method() == Method::POST && has_token && context.is_from_own_page();
    let form = if is_confirmed {
        match secure_account(core, secret, user, context.now).await {
            Ok(Some(_)) => None,
            Ok(None) => return link_over(context),
            Err(failure) => return error::failed_page(context, &failure),
        }
    } else {
        Some(SecureForm {
            action: context.app.path(&Route::Link),
            transaction: login.sealed.clone(),
            token: secret.reveal().to_owned(),
            csrf: csrf::token(cookie, &form(login)),
        })
    };
    let page = SecureAccount { account_id, form };
    context.page(StatusCode::OK, &page, login.purpose.ui_locales())
}

//! The page of a link that does one thing at a button: it signs the user in, or secures the account.

use ::http::{Method, StatusCode};

use super::link::{OpenLink, form, link_void_page};
use super::{browser_redirect, csrf};
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::change_email::{change_email, may_change};
use crate::flow::one_time_link::secure_account::{may_secure, secure_account};
use crate::flow::one_time_link::sign_in::{LinkSignIn, sign_in_by_link};
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::identity::LinkPurpose;
use crate::pages::confirm_link::{ConfirmLink, LinkAction, LinkForm};
use crate::route::Route;
use crate::secret::{LinkSecret, Secret};
use crate::store::tables::USERS;

/// Shows the page, or does what the link is for.
pub(super) async fn respond(
    context: &RequestContext,
    parameters: &Parameters,
    login: &LoginContext,
    link: &OpenLink,
    action: LinkAction,
) -> HttpResponse {
    let core = &context.app.core;
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let has_token = csrf::is_valid(parameters.get("csrf"), cookie, &form(login));
    let is_confirmed = context.method() == Method::POST && has_token && context.is_from_own_page();
    if is_confirmed && action == LinkAction::SignIn {
        return sign_in(context, login, &link.secret).await;
    }
    let user = core
        .store
        .read(|snapshot| match &link.purpose {
            LinkPurpose::ChangeEmail { .. } => may_change(snapshot, &link.purpose, context.now),
            LinkPurpose::SecureAccount { .. } => may_secure(snapshot, &link.purpose),
            LinkPurpose::SignIn { user, .. } => USERS.get(snapshot, user),
            _ => Ok(None),
        })
        .await;
    let user = match user {
        Ok(Some(user)) => user,
        Ok(None) => return link_void_page(context),
        Err(error) => return error::failed_page(context, &error.into()),
    };
    let address = match &link.purpose {
        LinkPurpose::ChangeEmail { to, .. } => Some(to.clone()),
        LinkPurpose::SecureAccount {
            email,
            replaced_by: Some(_),
            ..
        } => Some(email.clone()),
        _ => None,
    };
    let (action, form) = if is_confirmed {
        let done = if action == LinkAction::VerifyAddress {
            change_email(core, &link.secret, context.now).await
        } else {
            secure_account(core, &link.secret, context.now).await
        };
        match done {
            Ok(true) => (action.done(), None),
            Ok(false) => return link_void_page(context),
            Err(failure) => return error::failed_page(context, &failure),
        }
    } else {
        let form = LinkForm {
            action: context.app.path(&Route::Link),
            transaction: login.sealed.clone(),
            token: link.secret.reveal().to_owned(),
            csrf: csrf::token(cookie, &form(login)),
        };
        (action, Some(form))
    };
    let page = ConfirmLink {
        action,
        account_id: user.account_id,
        address,
        form,
    };
    context.page(StatusCode::OK, &page, login.purpose.ui_locales())
}

/// Signs the user of the link in.
pub(super) async fn sign_in(
    context: &RequestContext,
    login: &LoginContext,
    secret: &Secret<LinkSecret>,
) -> HttpResponse {
    let (core, browser) = (&context.app.core, context.browser());
    match sign_in_by_link(core, &browser, login, secret, context.now).await {
        Ok(LinkSignIn::Done(redirect)) => browser_redirect::send(context, redirect),
        Ok(LinkSignIn::Void) => link_void_page(context),
        Err(failure) => error::failed_page(context, &failure),
    }
}

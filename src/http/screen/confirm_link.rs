//! The page of a link that does one thing at a button: it signs the user in, or secures the account.

use ::http::{Method, StatusCode};

use super::open_link::{OpenLink, form, link_void, undoes_nothing};
use super::{browser_redirect, csrf};
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::change_email::{change_email, may_change};
use crate::flow::one_time_link::secure_account::{may_secure, secure_account};
use crate::flow::one_time_link::sign_in::{LinkSignIn, sign_in_by_link};
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
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
) -> Result<HttpResponse, HttpError> {
    let core = &context.app.core;
    let is_form = context.method() == Method::POST;
    let is_confirmed = is_form && csrf::is_from_page(context, parameters, &form(login))?;
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
        .await?;
    let Some(user) = user else {
        return Err(match action {
            LinkAction::Secure => undoes_nothing(context),
            _ => link_void(context, &link.secret).await,
        });
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
    if is_confirmed {
        let is_done = if action == LinkAction::VerifyAddress {
            change_email(core, &context.browser(), &link.secret, context.now).await?
        } else {
            secure_account(core, &link.secret, context.now).await?
        };
        if !is_done {
            return Err(link_void(context, &link.secret).await);
        }
    }
    let page = ConfirmLink {
        action: if is_confirmed { action.done() } else { action },
        account_id: user.account_id,
        address,
        form: (!is_confirmed).then(|| LinkForm {
            action: context.app.path(&Route::Link),
            transaction: login.sealed.clone(),
            token: link.secret.reveal().to_owned(),
            csrf: csrf::of_browser(context, &form(login)),
        }),
    };
    Ok(context.page(StatusCode::OK, &page, login.purpose.ui_locales()))
}

/// Signs the user of the link in.
pub(super) async fn sign_in(
    context: &RequestContext,
    login: &LoginContext,
    secret: &Secret<LinkSecret>,
) -> Result<HttpResponse, HttpError> {
    let browser = context.browser();
    match sign_in_by_link(context.browser_login(&browser, login), secret).await? {
        LinkSignIn::Done(redirect) => Ok(browser_redirect::send(context, redirect)),
        LinkSignIn::Void => Err(link_void(context, secret).await),
    }
}

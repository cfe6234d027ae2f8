//! The answer of `/login` to a user who is signed in and may not use the client.

use ::http::StatusCode;

use super::page_parts::{mark, person};
use super::{address, login_context};
use crate::flow::grant_policy::record_refusal;
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::refusal_log::RefusalLog;
use crate::http::response::HttpResponse;
use crate::oauth::error::{Cause, ErrorCode, Refusal};
use crate::pages::NoAccess;
use crate::route::Route;

/// Shows the page. Another user may sign in from it.
pub(super) async fn respond(
    context: &RequestContext,
    login: &LoginContext,
) -> Result<HttpResponse, HttpError> {
    let (Some(live), Some(client)) = (&login.session, login.purpose.client()) else {
        return login_context::continue_login(context, login).await;
    };
    let refusal = Refusal::not_in_group(ErrorCode::AccessDenied, live.user.uuid);
    record_refusal(&refusal, &client.client_id);
    context.log_detail(RefusalLog {
        reason: refusal.cause.map(Cause::as_str),
        ..RefusalLog::default()
    });
    context.log_refusal(refusal.code.as_str(), &refusal.description);
    let page = NoAccess {
        path: context.app.path(&Route::Login),
        transaction: login.sealed.clone(),
        mark: mark(context, client),
        user: person(&live.user),
        other_user: address::other_user(context, &login.sealed),
        contact: context.support_contact(),
        account: context.app.path(&Route::Account),
        request_id: context.request_id.clone(),
    };
    Ok(context.page(StatusCode::FORBIDDEN, &page, login.purpose.ui_locales()))
}

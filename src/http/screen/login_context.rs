//! What the pages of a sign-in begin with: the form or address, and the sign-in it belongs to.

use ::http::StatusCode;
use uuid::Uuid;

use super::browser_redirect;
use crate::flow::browser::Browser;
use crate::flow::login::transaction;
use crate::flow::login::transaction::{LoginContext, LoginTransactionError};
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::Answer;
use crate::pages::Heading;

/// The sign-in under way that a request to a page is about.
pub struct LoginRequest {
    /// What was sent.
    pub parameters: Parameters,
    /// The browser that sent it.
    pub browser: Browser,
    /// The sign-in.
    pub login: LoginContext,
}

/// Finds it, or says on a page why there is none.
pub fn load(context: &RequestContext) -> Result<LoginRequest, Box<Answer>> {
    let parameters = context.page_parameters()?;
    let id = parameters.get("transaction").and_then(|text| text.parse().ok());
    let browser = context.browser();
    let login = reload(context, id.unwrap_or(Uuid::nil()))?;
    Ok(LoginRequest {
        parameters,
        browser,
        login,
    })
}

/// Looks at a sign-in once more, after something was tried.
pub fn reload(context: &RequestContext, id: Uuid) -> Result<LoginContext, Box<Answer>> {
    match transaction::load_login(&context.app.core, &context.browser(), id, context.now) {
        Ok(Ok(login)) => {
            set_page_style_for(context, &login);
            Ok(login)
        }
        Ok(Err(error)) => Err(transaction_error(context, error).into()),
        Err(failure) => Err(error::failed_page(context, &failure).into()),
    }
}

/// Says why a sign-in cannot go on here. A browser that has none of our cookies takes none, or has never been here.
pub fn transaction_error(context: &RequestContext, error: LoginTransactionError) -> Answer {
    let has_any = Cookie::ALL.iter().any(|cookie| context.cookie(*cookie).is_some());
    let heading = if has_any { Heading::Stale } else { Heading::Cookies };
    context.error_page(StatusCode::BAD_REQUEST, heading, &error.to_string())
}

/// Sends the browser to the page or the answer that comes next, without anything new from the user.
pub async fn continue_login(context: &RequestContext, login: LoginContext) -> Answer {
    match transaction::continue_login(&context.app.core, &context.browser(), login, context.now).await {
        Ok(redirect) => browser_redirect::send(context, redirect),
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// Has the pages of this request look as the client of a sign-in wants them, if this browser has begun it.
pub fn set_page_style(context: &RequestContext, id: Uuid) {
    if let Ok(Ok(login)) = transaction::load_login(&context.app.core, &context.browser(), id, context.now) {
        set_page_style_for(context, &login);
    }
}

fn set_page_style_for(context: &RequestContext, login: &LoginContext) {
    if let Some((request, client)) = login.purpose.code_request() {
        context.set_page_style(client, request.ui_locales.as_deref());
    }
}

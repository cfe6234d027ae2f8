//! Loads the sign-in that a form or an address belongs to.

use ::http::StatusCode;
use url::Url;

use super::browser_redirect;
use crate::flow::Failure;
use crate::flow::browser::Browser;
use crate::flow::login::transaction;
use crate::flow::login::transaction::{LoginContext, LoginTransactionError};
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::pages::ErrorKind;

/// A request to a page of a sign-in, with that sign-in.
pub struct LoginRequest {
    /// The parameters of the form or the query.
    pub parameters: Parameters,
    /// The browser that sent it.
    pub browser: Browser,
    /// The sign-in.
    pub login: LoginContext,
}

/// Loads the sign-in that the request names; a page if it cannot.
pub async fn load(context: &RequestContext) -> Result<LoginRequest, Box<HttpResponse>> {
    let parameters = context.page_parameters()?;
    let browser = context.browser();
    let login = reload(context, parameters.get("transaction").unwrap_or_default()).await?;
    Ok(LoginRequest {
        parameters,
        browser,
        login,
    })
}

/// Loads a sealed sign-in, such as again after an attempt; a page if it cannot.
pub async fn reload(context: &RequestContext, sealed: &str) -> Result<LoginContext, Box<HttpResponse>> {
    match load_login(context, sealed).await {
        Ok(Ok(login)) => {
            set_page_style_for(context, &login);
            Ok(login)
        }
        Ok(Err(error)) => {
            // The page leads back to the application, and has its theme and languages.
            if let Some(request) = transaction::request_of(&context.app.core, sealed) {
                context.set_page_style_for(Some(&request.client_id), request.ui_locales.as_deref());
            }
            Err(transaction_error(context, error).into())
        }
        Err(failure) => Err(error::failed_page(context, &failure).into()),
    }
}

/// The page that says why a sign-in cannot go on. A browser without any of our cookies may refuse cookies, so its page
/// says that they are needed.
pub fn transaction_error(context: &RequestContext, error: LoginTransactionError) -> HttpResponse {
    let has_any = Cookie::ALL.iter().any(|cookie| context.cookie(*cookie).is_some());
    let kind = if has_any {
        ErrorKind::Stale
    } else {
        ErrorKind::Cookies
    };
    context.error_page(StatusCode::BAD_REQUEST, kind, &error.to_string())
}

/// Sends the browser to the next step of the sign-in, without new input from the user.
pub async fn continue_login(context: &RequestContext, login: &LoginContext) -> HttpResponse {
    match transaction::continue_login(&context.app.core, &context.browser(), login, context.now).await {
        Ok(redirect) => browser_redirect::send(context, redirect),
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// Sets the theme and languages of the client of a sign-in, if this browser has begun it.
pub async fn set_page_style(context: &RequestContext, sealed: &str) {
    if let Ok(Ok(login)) = load_login(context, sealed).await {
        set_page_style_for(context, &login);
    }
}

async fn load_login(
    context: &RequestContext,
    sealed: &str,
) -> Result<Result<LoginContext, LoginTransactionError>, Failure> {
    let (core, browser) = (&context.app.core, context.browser());
    let admit = |url: &Url| context.charge_fetch(url);
    transaction::load_login(core, &browser, sealed, admit, context.now).await
}

fn set_page_style_for(context: &RequestContext, login: &LoginContext) {
    if let Some(client) = login.purpose.client() {
        context.set_page_style(client, login.purpose.ui_locales());
    }
}

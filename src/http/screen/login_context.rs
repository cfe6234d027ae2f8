//! Loads the sign-in that a form or an address belongs to.

use url::Url;

use super::browser_redirect;
use crate::flow::FlowError;
use crate::flow::browser::Browser;
use crate::flow::login::transaction::{self, LoginContext, LoginTransactionError};
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::identity::LoginName;

/// A request to a page of a sign-in, with that sign-in.
pub struct LoginRequest {
    /// The parameters of the form or the query.
    pub parameters: Parameters,
    /// The browser that sent it.
    pub browser: Browser,
    /// The sign-in.
    pub login: LoginContext,
}

/// Loads the sign-in that the request names.
pub async fn load(context: &RequestContext) -> Result<LoginRequest, HttpError> {
    load_request(context, None).await
}

/// Loads the sign-in that the form names, and the user with the name in `field`. Read together, they wait for a shared store
/// once.
pub async fn load_with_user(context: &RequestContext, field: &str) -> Result<LoginRequest, HttpError> {
    load_request(context, Some(field)).await
}

async fn load_request(context: &RequestContext, name_field: Option<&str>) -> Result<LoginRequest, HttpError> {
    let parameters = context.unique_parameters()?;
    let browser = context.browser();
    let sealed = parameters.get("transaction").unwrap_or_default();
    let name = name_field.and_then(|field| parameters.get(field));
    let name = name.map(LoginName::new);
    let login = load_styled(context, sealed, name.as_ref()).await?;
    Ok(LoginRequest {
        parameters,
        browser,
        login,
    })
}

/// Loads a sealed sign-in, such as again after an attempt.
pub async fn reload(context: &RequestContext, sealed: &str) -> Result<LoginContext, HttpError> {
    load_styled(context, sealed, None).await
}

/// Loads a sealed sign-in, and the user with this name. The answer gets the style of its client.
async fn load_styled(
    context: &RequestContext,
    sealed: &str,
    name: Option<&LoginName>,
) -> Result<LoginContext, HttpError> {
    let loaded = load_login(context, sealed, name).await;
    match &loaded {
        Ok(login) => set_page_style_for(context, login),
        Err(FlowError::Refused(_)) => {
            // The page leads back to the application, and has its theme and languages.
            if let Some(request) = transaction::request_of(&context.app.core, sealed) {
                context.set_page_style_for(Some(&request.client_id), request.ui_locales.as_deref());
            }
        }
        Err(FlowError::Failed(_)) => {}
    }
    Ok(loaded?)
}

/// Sends the browser to the next step of the sign-in, without new input from the user.
pub async fn continue_login(
    context: &RequestContext,
    login: &LoginContext,
) -> Result<HttpResponse, HttpError> {
    let browser = context.browser();
    let redirect = transaction::continue_login(context.browser_login(&browser, login)).await?;
    Ok(browser_redirect::send(context, redirect))
}

/// Sets the theme and languages of the client of a sign-in, if this browser has begun it.
pub async fn set_page_style(context: &RequestContext, sealed: &str) {
    if let Ok(login) = load_login(context, sealed, None).await {
        set_page_style_for(context, &login);
    }
}

async fn load_login(
    context: &RequestContext,
    sealed: &str,
    name: Option<&LoginName>,
) -> Result<LoginContext, FlowError<LoginTransactionError>> {
    let (core, browser) = (&context.app.core, context.browser());
    let admit = |url: &Url| context.charge_fetch(url);
    transaction::load_login(core, &browser, sealed, name, admit, context.now).await
}

fn set_page_style_for(context: &RequestContext, login: &LoginContext) {
    if let Some(client) = login.purpose.client() {
        context.set_page_style(client, login.purpose.ui_locales());
    }
}

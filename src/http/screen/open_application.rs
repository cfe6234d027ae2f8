//! `GET /account/open/{client}`: sends a signed-in user to an application. The first sign-in of an invited person ends here.

use url::Url;
use uuid::Uuid;

use super::browser_redirect;
use crate::flow::account::{begin, launcher};
use crate::flow::login::session;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::identity::User;
use crate::route::Route;

/// Redirects to the application, or to the list of applications if the user may not open it.
pub async fn respond(context: &RequestContext, client: &str) -> Result<HttpResponse, HttpError> {
    let (core, browser, now) = (&context.app.core, context.browser(), context.now);
    let Some(live) = session::signed_in(core, &browser, now).await? else {
        let page = Route::OpenApplication(client.to_owned()).path();
        let redirect = begin::sign_in(core, &browser, &page, false, now).await?;
        return Ok(browser_redirect::send(context, redirect));
    };
    let list = || context.app.path(&Route::AccountApplications);
    let address = address(context, client, &live.user).unwrap_or_else(list);
    Ok(response::redirect_303(&address))
}

fn address(context: &RequestContext, client: &str, user: &User) -> Option<String> {
    let id = Uuid::try_parse(client).ok()?;
    let core = &context.app.core;
    let catalog = core.catalog();
    let client = catalog.clients().find(|client| client.client_uuid == id)?;
    let address = client.launch_uri(&core.policy.issuer).or_else(|| client.home());
    let address = address.filter(|_| launcher::may_open(&catalog, client, user))?;
    if address.is_ascii() {
        return Some(address);
    }
    // A header takes no other letters.
    Url::parse(&address).ok().map(String::from)
}

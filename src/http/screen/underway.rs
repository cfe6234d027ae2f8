//! What the pages of a sign-in begin with: the form or address, and the sign-in it belongs to.

use ::http::StatusCode;
use uuid::Uuid;

use crate::flow::authorization::{self, Browser, Stale, Underway};
use crate::http::call::Call;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::Answer;
use crate::page::Heading;

/// The sign-in under way that a request to a page is about.
pub struct Asked {
    /// What was sent.
    pub parameters: Parameters,
    /// The browser that sent it.
    pub browser: Browser,
    /// The sign-in.
    pub underway: Underway,
}

/// Finds it, or says on a page why there is none.
pub fn find(call: &Call) -> Result<Asked, Box<Answer>> {
    let parameters = call.page_parameters()?;
    let id = parameters.get("transaction").and_then(|text| text.parse().ok());
    let browser = call.browser();
    let underway = again(call, id.unwrap_or(Uuid::nil()))?;
    Ok(Asked {
        parameters,
        browser,
        underway,
    })
}

/// Looks at a sign-in once more, after something was tried.
pub fn again(call: &Call, id: Uuid) -> Result<Underway, Box<Answer>> {
    match authorization::underway(&call.app.core, &call.browser(), id, call.now) {
        Ok(Ok(underway)) => {
            dress_for(call, &underway);
            Ok(underway)
        }
        Ok(Err(stale)) => Err(over(call, stale).into()),
        Err(failure) => Err(error::failed_page(call, &failure).into()),
    }
}

/// Says why a sign-in cannot go on here. A browser that has none of our cookies takes none, or has never been here.
pub fn over(call: &Call, stale: Stale) -> Answer {
    let has_any = Cookie::ALL.iter().any(|cookie| call.cookie(*cookie).is_some());
    let heading = if has_any { Heading::Stale } else { Heading::Cookies };
    call.error_page(StatusCode::BAD_REQUEST, heading, &stale.to_string())
}

/// Has the pages of this request look as the client of a sign-in wants them, if this browser has begun it.
pub fn dress(call: &Call, id: Uuid) {
    if let Ok(Ok(underway)) = authorization::underway(&call.app.core, &call.browser(), id, call.now) {
        dress_for(call, &underway);
    }
}

fn dress_for(call: &Call, underway: &Underway) {
    let ui_locales = underway.transaction.request.ui_locales.as_deref();
    call.dress(&underway.client, ui_locales);
}

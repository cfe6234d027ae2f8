//! `GET` and `POST /oauth2/authorize`: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.1.

use ::http::{Method, StatusCode};
use url::Url;

use crate::flow::FlowError;
use crate::flow::login::authorize::begin_authorization;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::refusal_log::RefusalLog;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::http::screen::browser_redirect::{self, repeat_as_get};
use crate::oauth::anonymous;
use crate::oauth::authorize::UntrustedRedirect;
use crate::oauth::error::printable;
use crate::oauth::redirect_uri::Mismatch;
use crate::pages::ErrorKind;
use crate::route::Route;

/// Answers an authorization request, or shows the user why it cannot be answered.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let parameters = context.parameters()?;
    context.set_page_style_for(parameters.get("client_id"), parameters.get("ui_locales"));
    // A refresh token must not get into an address. Such a request is refused below.
    if context.method() == Method::POST && parameters.get(anonymous::PARAMETER).is_none() {
        return Ok(repeat_as_get(context, &Route::Authorize));
    }
    let admit = |url: &Url| context.charge_fetch(url);
    let (core, browser) = (&context.app.core, context.browser());
    match begin_authorization(core, &parameters, &browser, admit, context.now).await {
        Ok(redirect) => Ok(browser_redirect::send(context, redirect)),
        Err(FlowError::Refused(untrusted)) => {
            context.log_detail(refusal_log(&untrusted, &parameters));
            let (status, details) = (StatusCode::BAD_REQUEST, untrusted.to_string());
            Ok(context.error_page(status, ErrorKind::Request, &details))
        }
        Err(FlowError::Failed(failure)) => Err(failure.into()),
    }
}

fn refusal_log(untrusted: &UntrustedRedirect, parameters: &Parameters) -> RefusalLog {
    RefusalLog {
        reason: match untrusted {
            UntrustedRedirect::UnknownClient => Some("unknown_client"),
            UntrustedRedirect::DisabledClient => Some("client_disabled"),
            UntrustedRedirect::ClientDocument(_) => Some("client_document"),
            UntrustedRedirect::NotAllowedBefore(_) => Some("not_allowed_before"),
            _ => None,
        },
        client_document: match untrusted {
            UntrustedRedirect::ClientDocument(problem) => Some(printable(problem, 400)),
            _ => None,
        },
        redirect_uri: match untrusted {
            UntrustedRedirect::RedirectUri(Mismatch::Unregistered) => {
                parameters.get("redirect_uri").map(RefusalLog::address)
            }
            _ => None,
        },
        ..RefusalLog::default()
    }
}

//! `GET` and `POST /oauth2/logout`: OpenID Connect RP-Initiated Logout 1.0 section 2.

use ::http::{Method, StatusCode};

use crate::flow::login::sign_out::{SignOut, begin_sign_out};
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::refusal_log::RefusalLog;
use crate::http::response::{self, HttpResponse};
use crate::http::screen::browser_redirect::repeat_as_get;
use crate::http::screen::logout;
use crate::pages::ErrorKind;
use crate::route::Route;

/// Ends the session of this browser if an ID token names its user. Otherwise asks the user.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let parameters = match context.page_parameters() {
        Ok(parameters) => parameters,
        Err(page) => return *page,
    };
    context.set_page_style_for(parameters.get("client_id"), parameters.get("ui_locales"));
    if context.method() == Method::POST {
        return repeat_as_get(context, &Route::EndSession);
    }
    match begin_sign_out(&context.app.core, &parameters, &context.browser(), context.now).await {
        Ok(Ok(SignOut::Done { client_id, return_to })) => {
            context.record_client_id(&client_id);
            logout::done(context, return_to)
        }
        Ok(Ok(SignOut::Ask { client_id })) => {
            if let Some(client_id) = client_id {
                context.record_client_id(&client_id);
            }
            response::redirect_303(&logout::address(context, &Route::LogoutConfirm))
        }
        Ok(Err(refusal)) => {
            context.log_detail(RefusalLog {
                redirect_uri: parameters
                    .get("post_logout_redirect_uri")
                    .map(RefusalLog::address),
                ..RefusalLog::default()
            });
            context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Request, &refusal.description)
        }
        Err(failure) => error::failed_page(context, &failure),
    }
}

//! `GET` and `POST /oauth2/logout`: OpenID Connect RP-Initiated Logout 1.0 section 2.

use ::http::Method;

use crate::flow::FlowError;
use crate::flow::login::sign_out::{SignOut, begin_sign_out};
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::refusal_log::RefusalLog;
use crate::http::response::{self, HttpResponse};
use crate::http::screen::browser_redirect::repeat_as_get;
use crate::http::screen::logout;
use crate::route::Route;

/// Ends the session of this browser if an ID token names its user. Otherwise asks the user.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let parameters = context.unique_parameters()?;
    context.set_page_style_for(parameters.get("client_id"), parameters.get("ui_locales"));
    if context.method() == Method::POST {
        return Ok(repeat_as_get(context, &Route::EndSession));
    }
    let begun = begin_sign_out(&context.app.core, &parameters, &context.browser(), context.now).await;
    if let Err(FlowError::Refused(_)) = &begun {
        context.log_detail(RefusalLog {
            redirect_uri: parameters
                .get("post_logout_redirect_uri")
                .map(RefusalLog::address),
            ..RefusalLog::default()
        });
    }
    Ok(match begun? {
        SignOut::Done {
            client_id,
            return_to,
            had_session,
        } => {
            context.record_client_id(&client_id);
            logout::done(context, return_to, had_session)
        }
        SignOut::Ask { client_id } => {
            if let Some(client_id) = client_id {
                context.record_client_id(&client_id);
            }
            response::redirect_303(&logout::address(context, &Route::LogoutConfirm))
        }
    })
}

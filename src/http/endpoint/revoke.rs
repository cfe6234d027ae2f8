//! `POST /oauth2/revoke`: RFC 7009 section 2.

use ::http::StatusCode;
use serde_json::json;

use super::client::authenticate_form;
use crate::flow::token::revoke::revoke;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::route::Route;

/// Revokes a token. An invalid token gets the same answer (RFC 7009 section 2.2). The body is an empty object, because
/// some clients parse every answer as JSON. A token of another client is refused.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let form = authenticate_form(context, &Route::Revoke).await?;
    revoke(&context.app.core, &form.client, form.token()?, context.now).await?;
    Ok(response::no_store(response::json(StatusCode::OK, &json!({}))))
}

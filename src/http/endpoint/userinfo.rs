//! `GET` and `POST /oauth2/userinfo`: OpenID Connect Core 5.3.

use ::http::{Method, StatusCode};

use crate::flow::token::userinfo::read_userinfo;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::request::{self, MediaType};
use crate::http::response::{self, HttpResponse};
use crate::oauth::error::Refusal;

/// Answers with claims about the user of the access token, which comes in the header or the form body
/// (RFC 6750 sections 2.1 and 2.2). A token in the query is ignored.
pub fn respond(context: &RequestContext) -> HttpResponse {
    let token = match presented(context) {
        Ok(Some(token)) => token,
        Ok(None) => return error::refused_bearer(context, None),
        Err(refusal) => return error::refused_bearer(context, Some(&refusal)),
    };
    match read_userinfo(&context.app.core, &token, context.now) {
        Ok(Ok(claims)) => response::no_store(response::json(StatusCode::OK, &claims)),
        Ok(Err(refusal)) => error::refused_bearer(context, Some(&refusal)),
        Err(failure) => error::failed(context, &failure),
    }
}

fn presented(context: &RequestContext) -> Result<Option<String>, Refusal> {
    let header = request::bearer_token(context.headers())
        .map_err(|_| Refusal::invalid_request("the Authorization header is malformed"))?;
    // If the header has a token, a body that is no form is ignored (RFC 6750 section 2.2).
    let is_form = request::media_type(context.headers()) == Some(MediaType::Form);
    let reads_body = header.is_none() || is_form;
    let form = if context.method() == Method::POST && !context.body.is_empty() && reads_body {
        let form = context.form()?;
        if form.is_repeated("access_token") {
            return Err(Refusal::invalid_request("access_token was sent more than once"));
        }
        form.get("access_token").map(ToOwned::to_owned)
    } else {
        None
    };
    match (header, form) {
        (Some(_), Some(_)) => Err(Refusal::invalid_request(
            "the access token was sent in two places",
        )),
        (header, form) => Ok(header.map(ToOwned::to_owned).or(form)),
    }
}

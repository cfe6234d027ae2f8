//! `GET` and `POST /oauth2/userinfo`: OpenID Connect Core 5.3.

use super::dpop;
use crate::flow::FlowError;
use crate::flow::token::userinfo::{UserInfo, read_userinfo};
use crate::http::context::RequestContext;
use crate::http::error::{self, HttpError};
use crate::http::request::{self, MediaType, Scheme};
use crate::http::response::{self, HttpResponse};
use crate::oauth::dpop::PROOF_MISSING;
use crate::oauth::error::Refusal;
use crate::route::Route;
use ::http::{Method, StatusCode};

/// The media type of a signed answer (OpenID Connect Core 5.3.2).
const SIGNED_MEDIA_TYPE: &str = "application/jwt";

/// An access token, from the header or the form.
struct PresentedToken {
    text: String,
    scheme: Scheme,
}

/// Answers with claims about the user of the access token. It comes in the header or the form body (RFC 6750 sections 2.1
/// and 2.2), or in the header with a proof (RFC 9449 section 7.1). A token in the query is ignored.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let token = match presented(context) {
        Ok(Some(token)) => token,
        Ok(None) => return Ok(error::refused_token(context, Scheme::Bearer, None)),
        Err(refusal) => return Ok(error::refused_token(context, Scheme::Bearer, Some(&refusal))),
    };
    match read(context, &token).await {
        Ok(UserInfo::Claims(claims)) => Ok(response::no_store(response::json(StatusCode::OK, &claims))),
        Ok(UserInfo::Signed(jwt)) => {
            let answer = response::with_body(StatusCode::OK, SIGNED_MEDIA_TYPE, jwt.into());
            Ok(response::no_store(answer))
        }
        Err(FlowError::Refused(refusal)) => Ok(error::refused_token(context, token.scheme, Some(&refusal))),
        Err(FlowError::Failed(failure)) => Err(failure.into()),
    }
}

async fn read(context: &RequestContext, token: &PresentedToken) -> Result<UserInfo, FlowError> {
    let proof = match token.scheme {
        Scheme::Bearer => None,
        Scheme::Dpop => {
            let proof = dpop::proof(context, &Route::UserInfo, Some(&token.text))?.ok_or(PROOF_MISSING)?;
            context.require_disk_for_record()?;
            Some(proof)
        }
    };
    let certificate = context.shown.certificate.as_deref();
    let core = &context.app.core;
    read_userinfo(core, &token.text, proof.as_ref(), certificate, context.now).await
}

fn presented(context: &RequestContext) -> Result<Option<PresentedToken>, Refusal> {
    let header = request::access_token(context.headers())
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
        (Some(header), None) => Ok(Some(PresentedToken {
            text: header.text.to_owned(),
            scheme: header.scheme,
        })),
        (None, form) => Ok(form.map(|text| PresentedToken {
            text,
            scheme: Scheme::Bearer,
        })),
    }
}

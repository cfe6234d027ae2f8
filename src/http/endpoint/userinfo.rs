//! `GET` and `POST /oauth2/userinfo`: OpenID Connect Core 5.3.

use ::http::{Method, StatusCode};

use super::dpop;
use crate::flow::token::userinfo::read_userinfo;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::request::{self, MediaType, Scheme};
use crate::http::response::{self, HttpResponse};
use crate::oauth::dpop::{DpopProof, PROOF_MISSING};
use crate::oauth::error::Refusal;
use crate::route::Route;

/// Answers with claims about the user of the access token. It comes in the header or the form body (RFC 6750 sections 2.1
/// and 2.2), or in the header with a proof (RFC 9449 section 7.1). A token in the query is ignored.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let (token, scheme) = match presented(context) {
        Ok(Some(presented)) => presented,
        Ok(None) => return error::refused_token(context, Scheme::Bearer, None),
        Err(refusal) => return error::refused_token(context, Scheme::Bearer, Some(&refusal)),
    };
    let proof = match scheme {
        Scheme::Bearer => Ok(None),
        Scheme::Dpop => proof(context, &token).map(Some),
    };
    let proof = match proof {
        Ok(proof) => proof,
        Err(refusal) => return error::refused_token(context, scheme, Some(&refusal)),
    };
    if proof.is_some()
        && let Err(failure) = context.require_disk_for_record()
    {
        return error::failed(context, &failure);
    }
    let certificate = context.client_certificate().map(|certificate| &**certificate);
    let shown = (proof.as_ref(), certificate);
    match read_userinfo(&context.app.core, &token, shown, context.now).await {
        Ok(Ok(claims)) => response::no_store(response::json(StatusCode::OK, &claims)),
        Ok(Err(refusal)) => error::refused_token(context, scheme, Some(&refusal)),
        Err(failure) => error::failed(context, &failure),
    }
}

fn proof(context: &RequestContext, token: &str) -> Result<DpopProof, Refusal> {
    dpop::proof(context, &Route::UserInfo, Some(token))?.ok_or(PROOF_MISSING)
}

fn presented(context: &RequestContext) -> Result<Option<(String, Scheme)>, Refusal> {
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
        (Some((token, scheme)), None) => Ok(Some((token.to_owned(), scheme))),
        (None, form) => Ok(form.map(|token| (token, Scheme::Bearer))),
    }
}

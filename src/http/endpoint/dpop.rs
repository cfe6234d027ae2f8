//! Proofs of possession in the header `DPoP`: RFC 9449.

use ::http::header::{HeaderName, HeaderValue};

use super::client::endpoint_url;
use crate::flow::dpop_nonce;
use crate::http::context::RequestContext;
use crate::http::response::HttpResponse;
use crate::oauth::dpop::{DpopNonce, DpopProof, ExpectedRequest, NonceEnd, SEVERAL_PROOFS, UNREADABLE_PROOF};
use crate::oauth::error::Refusal;
use crate::route::Route;

const DPOP: HeaderName = HeaderName::from_static("dpop");
const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// Checks the proof of a request to this endpoint. `access_token` is the token that it presents. `None` without a proof.
pub(super) fn proof(
    context: &RequestContext,
    endpoint: &Route,
    access_token: Option<&str>,
) -> Result<Option<DpopProof>, Refusal> {
    let mut found = context.headers().get_all(DPOP).iter();
    let Some(proof) = found.next() else {
        return Ok(None);
    };
    if found.next().is_some() {
        return Err(SEVERAL_PROOFS);
    }
    let proof = proof.to_str().map_err(|_| UNREADABLE_PROOF)?;
    let nonce_end: NonceEnd<'_> = &|nonce| dpop_nonce::end_of(&context.app.core, nonce, context.now);
    let request = ExpectedRequest {
        method: context.method().as_str(),
        url: &endpoint_url(context, endpoint),
        access_token,
        nonce_end: requires_nonce(context).then_some(nonce_end),
    };
    DpopProof::check(proof, request, context.now).map(Some)
}

/// Adds a new nonce to the answer to a request with a proof, if proofs must have one (section 8.2).
pub(in crate::http) fn add_nonce(context: &RequestContext, route: &Route, answer: &mut HttpResponse) {
    if matches!(
        route,
        Route::Token | Route::Refresh | Route::PushedRequest | Route::UserInfo
    ) && requires_nonce(context)
        && context.headers().contains_key(DPOP)
        && let Ok(nonce) = HeaderValue::from_str(&dpop_nonce::issue(&context.app.core, context.now))
    {
        answer.headers_mut().insert(DPOP_NONCE, nonce);
    }
}

fn requires_nonce(context: &RequestContext) -> bool {
    context.app.core.policy.dpop_nonce == DpopNonce::Required
}

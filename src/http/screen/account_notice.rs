//! The notice at the top of the account page, carried through a redirect.
//!
//! The address has a proof that the notice comes from this service: a link from elsewhere must not tell users that
//! their password was changed.

use super::csrf;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::response::{self, HttpResponse};
use crate::oauth::redirect_uri::with_query;
use crate::pages::AccountNotice;
use crate::route::Route;

/// Redirects to a page of the account with this notice. The proof is for this session cookie. A reload of the page repeats no
/// action.
pub(super) fn redirect(
    context: &RequestContext,
    page: &Route,
    notice: AccountNotice,
    session: &str,
) -> HttpResponse {
    let name = notice.name().unwrap_or_default();
    let proof = csrf::token(session, &csrf_context(name));
    let path = context.app.path(page);
    response::redirect_303(&with_query(&path, &[("done", name), ("proof", &proof)]))
}

/// The notice in the address of this request, if its proof is valid.
pub(super) fn read(context: &RequestContext) -> Option<AccountNotice> {
    let query = context.query().ok()?;
    let session = context.cookie(Cookie::Session)?;
    let name = query.get("done")?;
    let notice = AccountNotice::ALL
        .into_iter()
        .find(|notice| notice.name() == Some(name))?;
    csrf::is_valid(query.get("proof"), session, &csrf_context(name)).then_some(notice)
}

fn csrf_context(notice: &str) -> String {
    format!("account:done:{notice}")
}

//! The addresses of the pages of a sign-in.

use crate::http::context::RequestContext;
use crate::oauth::redirect_uri::with_query;
use crate::route::Route;
use crate::secret::{LinkSecret, Secret};

/// The parameter with which the sign-in page is shown although a user is signed in.
pub(super) const OTHER_USER: &str = "other_user";

/// The address of a page, in a sealed sign-in.
pub(super) fn page(context: &RequestContext, page: &Route, sealed: &str) -> String {
    format!("{}?transaction={sealed}", context.app.path(page))
}

/// The address of the sign-in page, also for a client that asked for a new account.
pub(super) fn sign_in(context: &RequestContext, sealed: &str) -> String {
    with_query(&page(context, &Route::Login, sealed), &[("sign_in", "1")])
}

/// The address of the sign-in page for another user than the one who is signed in.
pub(super) fn other_user(context: &RequestContext, sealed: &str) -> String {
    with_query(&page(context, &Route::Login, sealed), &[(OTHER_USER, "1")])
}

/// The address of the page for the second step, with what was proven in the first one.
pub(super) fn second_step(context: &RequestContext, sealed: &str, proof: &str) -> String {
    with_query(&page(context, &Route::SecondFactor, sealed), &[("proof", proof)])
}

/// The address of the page of a link, in a sign-in of this browser.
pub(super) fn link(context: &RequestContext, sealed: &str, secret: &Secret<LinkSecret>) -> String {
    let page = context.app.path(&Route::Link);
    with_query(&page, &[("token", secret.reveal()), ("transaction", sealed)])
}

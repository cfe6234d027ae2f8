//! The CSRF token of a form: proof that its page was drawn for this browser.

use ::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error::HttpError;
use crate::http::request::Parameters;

/// The token of a form of a sign-in in this browser.
pub(super) fn of_browser(context: &RequestContext, form: &str) -> String {
    token(context.cookie(Cookie::Browser).unwrap_or_default(), form)
}

/// Whether these parameters have the token of a form of a sign-in in this browser.
pub(super) fn has_token(context: &RequestContext, parameters: &Parameters, form: &str) -> bool {
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    is_valid(parameters.get("csrf"), cookie, form)
}

/// Whether a form of a sign-in has the token of its page in this browser. A form that another page sent is refused.
pub(super) fn is_from_page(
    context: &RequestContext,
    parameters: &Parameters,
    form: &str,
) -> Result<bool, HttpError> {
    check(context, has_token(context, parameters, form))
}

/// Whether a form has its token. A form that another page sent is refused. If a form has no token, the log says so, and
/// the caller shows its page again.
pub(super) fn check(context: &RequestContext, has_token: bool) -> Result<bool, HttpError> {
    if let Some(page) = context.foreign_form_page(has_token) {
        return Err(page.into());
    }
    if !has_token {
        context.log_refusal(
            StatusCode::BAD_REQUEST.as_str(),
            "form has no csrf token of its page in this browser",
        );
    }
    Ok(has_token)
}

/// The token of a form, derived from a cookie that other sites can neither read nor set.
pub fn token(cookie: &str, form: &str) -> String {
    URL_SAFE_NO_PAD.encode(hmac::sign(&key(cookie), form.as_bytes()))
}

/// Whether the token is that of the form, in constant time.
pub fn is_valid(presented: Option<&str>, cookie: &str, form: &str) -> bool {
    let Some(Ok(presented)) = presented.map(|text| URL_SAFE_NO_PAD.decode(text)) else {
        return false;
    };
    hmac::verify(&key(cookie), form.as_bytes(), &presented).is_ok()
}

fn key(cookie: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, cookie.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_one_form_in_one_browser() {
        let made = token("cookie", "login:1");
        assert!(is_valid(Some(&made), "cookie", "login:1"));
        assert!(!is_valid(Some(&made), "cookie", "login:2"));
        assert!(!is_valid(Some(&made), "other", "login:1"));
        assert!(!is_valid(None, "cookie", "login:1"));
        assert!(!is_valid(Some("!"), "cookie", "login:1"));
    }
}

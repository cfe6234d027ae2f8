//! OAuth 2.0 Form Post Response Mode.

use crate::harness::{ISSUER, scene};

/// Section 2: the answer is a form that posts itself to the client, with nothing in the address.
#[tokio::test]
async fn the_answer_is_posted_to_the_client() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let request = acme
        .request()
        .with("response_mode", "form_post")
        .with("state", "\"<&é> +%");
    let signed_in = browser.authorize(&request).await.sign_in().await;
    let callback = signed_in.posted_callback();
    assert_eq!(callback.uri, acme.redirect_uri());
    assert_eq!(callback.names(), ["code", "state", "iss"]);
    assert_eq!(
        (callback.get("state"), callback.get("iss")),
        (Some("\"<&é> +%"), Some(ISSUER))
    );
    acme.redeem(&callback.code()).await.tokens();

    let silent = browser.authorize(&request).await;
    acme.redeem(&silent.posted_callback().code()).await.tokens();
    let script = signed_in.text().split("<script").nth(1).unwrap();
    let source = script.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
    let script = server.get(source).await;
    assert_eq!(script.status, 200);
    assert!(
        script
            .header("content-type")
            .unwrap()
            .starts_with("text/javascript")
    );
}

/// Section 2: a content security policy must not keep the form from leaving, nor let a script of the request in.
#[tokio::test]
async fn the_page_may_post_anywhere_and_run_nothing_of_others() {
    let (_server, acme, alice) = scene().await;
    let request = acme
        .request()
        .with("response_mode", "form_post")
        .with("state", "</form><script>alert(1)</script>");
    let page = alice.browser().authorize(&request).await.sign_in().await;
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        !policy.contains("form-action") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(
        policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert!(!page.text().contains("<script>"));
    assert_eq!(
        page.posted_callback().get("state"),
        Some("</form><script>alert(1)</script>")
    );
}

/// Section 2: refusals travel the same way.
#[tokio::test]
async fn refusals_are_posted_too() {
    let (_server, acme, alice) = scene().await;
    let request = acme.request().with("response_mode", "form_post");
    for (request, error) in [
        (request.clone().without("response_type"), "invalid_request"),
        (request.clone().with("prompt", "none"), "login_required"),
        (
            request.clone().with("request", "e30.e30."),
            "invalid_request_object",
        ),
    ] {
        let callback = alice.browser().authorize(&request).await.posted_callback();
        assert_eq!(callback.error(), error);
        assert_eq!(callback.names(), ["error", "error_description", "state", "iss"]);
    }
}

/// OAuth 2.0 Multiple Response Type Encoding Practices 2.1: `query` may be named.
#[tokio::test]
async fn the_usual_mode_may_be_named() {
    let (_server, acme, alice) = scene().await;
    let request = acme.request().with("response_mode", "query");
    alice.browser().authorize(&request).await.through().await.code();
}

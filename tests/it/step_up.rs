//! Step-up: an application asks for a second factor, in a sign-in or in a live session.

use idsvc::pages::text::EN;
use serde_json::json;

use crate::harness::authenticator::Passkey;
use crate::harness::relying_party::AuthorizationRequest;
use crate::harness::{Browser, RelyingParty};
use crate::passkeys::store;
use crate::second_factor::{enrol, half, is_signed_in, scene, type_code};

const STEP: u64 = 30;

fn essential(acme: &RelyingParty, values: &[&str]) -> AuthorizationRequest {
    let claims = json!({"id_token": {"acr": {"essential": true, "values": values}}});
    acme.request().with("claims", &claims.to_string())
}

/// What the application gets at once, without a page.
async fn silent(request: &AuthorizationRequest, browser: &Browser) -> String {
    let silent = request.clone().with("prompt", "none");
    browser.authorize(&silent).await.callback().error()
}

#[tokio::test]
async fn a_live_session_is_asked_for_the_second_step_only_and_keeps_its_time() {
    let (server, acme, alice) = scene().await;
    // This session began before there was a second step.
    let browser = alice.browser();
    let before = acme.tokens(&browser).await.id().claims;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    for request in [
        essential(&acme, &["2"]),
        acme.request().with("acr_values", "phr 2"),
        acme.request().with("acr_values", "2 urn:example:gold"),
    ] {
        assert_eq!(silent(&request, &browser).await, "interaction_required");
    }
    let asked = browser.authorize(&essential(&acme, &["2", "phr"])).await;
    assert_eq!(
        (asked.page(), asked.heading().as_str()),
        ("/second-factor", EN.second_factor_title)
    );
    let wrong = type_code(&asked, "123").await;
    assert!(wrong.text().contains(EN.problem_second_factor));
    let callback = type_code(&asked, &app.code(&server, 0)).await;
    let tokens = acme.redeem(&callback.callback().code()).await.tokens();
    let after = tokens.id().claims;
    assert_eq!(
        (&after["acr"], &after["amr"]),
        (&json!("2"), &json!(["pwd", "otp", "mfa"]))
    );
    assert_eq!(
        (&after["sid"], &after["auth_time"]),
        (&before["sid"], &before["auth_time"])
    );
    // The session has the level from now on, and a lower demand is met too.
    for request in [essential(&acme, &["2"]), acme.request().with("acr_values", "1")] {
        let callback = browser.authorize(&request.with("prompt", "none")).await;
        assert!(is_signed_in(&callback));
    }
    // RFC 9470 section 6.2.
    let seen = acme.introspect(tokens.access_token()).await.json();
    assert_eq!(
        (&seen["acr"], &seen["auth_time"]),
        (&after["acr"], &after["auth_time"])
    );
}

#[tokio::test]
async fn what_cannot_be_met_is_refused() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    for request in [
        essential(&acme, &["2"]),
        acme.request().with("acr_values", "2"),
        essential(&acme, &["gold"]),
    ] {
        let answer = browser.authorize(&request).await.callback();
        assert_eq!(answer.error(), "unmet_authentication_requirements");
        assert_eq!(
            silent(&request, &browser).await,
            "unmet_authentication_requirements"
        );
    }
    // The page takes nothing but a passkey, and says where to add one.
    let phishing_resistant = acme.request().with("acr_values", "phr");
    let page = browser.authorize(&phishing_resistant).await;
    assert_eq!(page.page(), "/login");
    assert!(page.text().contains("/account/security") && !page.text().contains("type=\"password\""));
    assert_eq!(silent(&phishing_resistant, &browser).await, "login_required");
    // An unknown value is only a wish.
    let wish = acme.request().with("acr_values", "gold");
    assert!(is_signed_in(&browser.authorize(&wish).await));
}

#[tokio::test]
async fn a_user_with_a_passkey_answers_a_demand_for_two_factors_with_it() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    let request = essential(&acme, &["2"]);
    assert_eq!(silent(&request, &browser).await, "interaction_required");
    // In the live session, and after the password in another browser.
    for asked in [
        browser.authorize(&request).await,
        alice.browser().authorize(&request).await.sign_in().await,
    ] {
        assert_eq!(
            (asked.page(), asked.heading().as_str()),
            ("/second-factor", EN.second_factor_title)
        );
        let answer = type_code(&asked, "000000").await;
        assert!(answer.text().contains(EN.problem_second_factor));
    }
    // A sign-in without a demand needs no passkey.
    assert!(is_signed_in(&half(&alice, &acme).await));
}

#[tokio::test]
async fn a_demand_for_a_second_factor_cannot_be_taken_back_on_the_way() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    let asked = browser.authorize(&essential(&acme, &["2"])).await;
    // The browser goes to the other pages of the sign-in instead.
    let transaction = asked.forms()[0].value("transaction").unwrap().to_owned();
    for page in ["/login", "/consent", "/second-factor"] {
        let answer = browser.visit(&format!("{page}?transaction={transaction}")).await;
        assert_eq!(answer.page(), "/second-factor");
    }
    // Another user's session takes no part.
    let bob = server.user("bob").await.browser();
    let stolen = bob.visit(&asked.path).await;
    assert_eq!(stolen.status, 400);
    // Without the session, the password comes first.
    let cookie = browser.cookie("__Host-idsvc_session").unwrap();
    browser.set_cookie("__Host-idsvc_session", "gone");
    let answer = type_code(&asked, &app.code(&server, 0)).await;
    assert_eq!(answer.page(), "/login");
    browser.set_cookie("__Host-idsvc_session", &cookie);
    assert!(is_signed_in(&type_code(&asked, &app.code(&server, 0)).await));
    // A sign-in with both steps meets it at once.
    server.advance(STEP);
    let asked = half(&alice, &acme).await;
    assert!(is_signed_in(&type_code(&asked, &app.code(&server, 0)).await));
}

#[tokio::test]
async fn an_essential_acr_is_answered_with_a_requested_value() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    enrol(&server, &browser).await;
    let wish = json!({"id_token": {"acr": {"values": ["1"]}}}).to_string();
    for (request, acr) in [
        (essential(&acme, &["1"]), "1"),
        (essential(&acme, &["1", "2", "phr"]), "2"),
        (acme.request().with("acr_values", "1"), "2"),
        (acme.request().with("claims", &wish), "2"),
    ] {
        let callback = browser.authorize(&request).await.callback();
        let tokens = acme.redeem(&callback.code()).await.tokens();
        let refreshed = acme.refresh(tokens.refresh_token()).await.tokens();
        for tokens in [tokens, refreshed] {
            assert_eq!(tokens.id().claims["acr"], acr, "{request:?}");
            // APIs get the level itself.
            assert_eq!(tokens.access().claims["acr"], "2");
        }
    }
}

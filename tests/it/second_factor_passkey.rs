//! A passkey on the page of the second step: it signs in as a whole, and only the user who passed the first step.

use idsvc::flow::factors;
use idsvc::identity::FactorKind;
use idsvc::pages::text::EN;
use serde_json::{Value, json};

use crate::account_self_service::{at, form};
use crate::harness::authenticator::{Passkey, encode};
use crate::harness::{Audit, Person, RelyingParty, Screen, Server};
use crate::passkeys::{data, passkey_form, store};
use crate::second_factor::{enrol, half, is_signed_in, scene, type_code};

async fn with_passkey(server: &Server, person: &Person) -> Passkey {
    let passkey = Passkey::new(person.user.uuid.as_bytes());
    store(server, person, &passkey).await;
    passkey
}

async fn send(page: &Screen, response: &Value) -> Screen {
    let form = passkey_form(page).with("passkey", &response.to_string());
    page.browser().submit(&form).await
}

/// Signs in with a response to the challenge of the page.
pub(crate) async fn touch(page: &Screen, passkey: &Passkey) -> Screen {
    send(page, &passkey.get(&data(page, "challenge").unwrap())).await
}

/// A user with an authenticator app and a passkey, at the page of the second step.
async fn at_second_step() -> (Server, RelyingParty, Person, Passkey, Screen) {
    let (server, acme, alice) = Box::pin(scene()).await;
    Box::pin(enrol(&server, &alice.browser())).await;
    let passkey = Box::pin(with_passkey(&server, &alice)).await;
    let page = half(&alice, &acme).await;
    assert_eq!(page.page(), "/second-factor", "{}", page.text());
    (server, acme, alice, passkey, page)
}

fn is_refused(page: &Screen) -> bool {
    page.page() == "/second-factor" && page.text().contains(EN.problem_passkey)
}

#[tokio::test]
async fn a_passkey_of_the_user_completes_the_sign_in_and_tokens_say_so() {
    let (_server, acme, alice, passkey, page) = at_second_step().await;
    assert_eq!(page.forms().len(), 2, "the code is still accepted");
    assert_eq!(data(&page, "known"), Some(encode(&passkey.id)));
    let audit = Audit::listen();
    let code = touch(&page, &passkey).await.callback().code();
    assert_eq!(audit.take(&["signed_in"])[0]["authority"], "passkey");
    let id = acme.redeem(&code).await.tokens().id().claims;
    assert_eq!(
        (&id["sub"], &id["acr"], &id["amr"]),
        (&json!(alice.sub()), &json!("phr"), &json!(["swk", "user", "mfa"]))
    );
}

#[tokio::test]
async fn the_page_names_no_passkey_without_the_first_step_or_to_a_user_without_one() {
    let (server, acme, _, passkey, begun) = at_second_step().await;
    assert!(begun.text().contains("/assets/login."));
    let login = server.browser().authorize(&acme.request()).await;
    assert!(!login.text().contains(&encode(&passkey.id)));
    let bob = server.user("bob").await;
    enrol(&server, &bob.browser()).await;
    let page = half(&bob, &acme).await;
    assert_eq!(page.forms().len(), 1, "{}", page.text());
    assert!(!page.text().contains("<script"));
    server
        .change_client(&acme, |client| client.metadata.password_sign_in = false)
        .await;
    let refused = touch(&begun, &passkey).await;
    assert!(!is_signed_in(&refused), "{}", refused.text());
}

#[tokio::test]
async fn a_passkey_of_another_user_is_refused() {
    let (server, acme, alice, _, page) = at_second_step().await;
    let bob = server.user("bob").await;
    let mut foreign = with_passkey(&server, &bob).await;
    let audit = Audit::listen();
    for handle in [
        bob.user.uuid.as_bytes().as_slice(),
        alice.user.uuid.as_bytes(),
        &[],
    ] {
        foreign.user_handle = handle.to_vec();
        let refused = touch(&page, &foreign).await;
        assert!(is_refused(&refused), "{}", refused.text());
        assert!(refused.header("set-cookie").is_none());
    }
    let failed = audit.take(&["sign_in_failed"]);
    let is_of_alice = |event: &Value| event["user"] == alice.sub();
    assert!(failed.len() == 3 && failed.iter().all(is_of_alice), "{failed:?}");
    // The same passkey signs its own user in on the sign-in page.
    foreign.user_handle = bob.user.uuid.as_bytes().to_vec();
    let login = server.browser().authorize(&acme.request()).await;
    assert!(is_signed_in(&touch(&login, &foreign).await));
}

#[tokio::test]
async fn an_authenticator_may_leave_the_user_handle_out() {
    let (server, acme, _, passkey, page) = at_second_step().await;
    let without_handle = |page: &Screen| {
        let mut response = passkey.get(&data(page, "challenge").unwrap());
        response["response"]["userHandle"] = Value::Null;
        response
    };
    let login = server.browser().authorize(&acme.request()).await;
    assert!(is_signed_in(&send(&login, &without_handle(&login)).await));
    assert!(is_signed_in(&send(&page, &without_handle(&page)).await));
}

#[tokio::test]
async fn a_response_is_good_in_its_own_sign_in_only() {
    let (_server, acme, alice, passkey, page) = at_second_step().await;
    let other = half(&alice, &acme).await;
    let response = passkey.get(&data(&page, "challenge").unwrap());
    assert!(is_refused(&send(&other, &response).await));
    let without_token = passkey_form(&page)
        .with("passkey", &response.to_string())
        .with("csrf", "AAAA");
    let refused = page.browser().submit(&without_token).await;
    assert_eq!(refused.status, 400);
    assert!(is_signed_in(&send(&page, &response).await));
}

#[tokio::test]
async fn a_live_session_is_raised_by_a_passkey_of_its_own_user_only() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    enrol(&server, &alice.browser()).await;
    let own = with_passkey(&server, &alice).await;
    let foreign = with_passkey(&server, &server.user("bob").await).await;
    let claims = json!({"id_token": {"acr": {"essential": true, "values": ["2"]}}});
    let request = acme.request().with("claims", &claims.to_string());
    let page = browser.authorize(&request).await;
    assert!(is_refused(&touch(&page, &foreign).await));
    let code = touch(&page, &own).await.callback().code();
    let id = acme.redeem(&code).await.tokens().id().claims;
    assert_eq!((&id["sub"], &id["acr"]), (&json!(alice.sub()), &json!("2")));
    assert_eq!(id["amr"], json!(["swk", "user", "mfa"]));
}

#[tokio::test]
async fn a_user_with_passkeys_and_no_app_makes_recovery_codes_and_loses_the_passkey() {
    let (server, acme, alice) = scene().await;
    let passkey = with_passkey(&server, &alice).await;
    let browser = alice.browser();
    let page = at(&browser, "/account/security").await;
    assert!(page.text().contains(EN.recovery_first));
    assert!(is_signed_in(&half(&alice, &acme).await), "the password is enough");
    let page = browser.submit(&form(&page, "recovery-codes")).await;
    let codes = crate::second_factor::recovery_codes(&page);
    let page = half(&alice, &acme).await;
    assert_eq!(page.page(), "/second-factor");
    assert!(page.text().contains(EN.recovery_code) && !page.text().contains(EN.second_factor_use_app));
    assert!(is_signed_in(&touch(&page, &passkey).await));
    let page = half(&alice, &acme).await;
    assert!(is_signed_in(&type_code(&page, &codes[0]).await));
    // The session of the recovery code changes the factors.
    let page = at(page.browser(), "/account/security").await;
    assert!(!page.text().contains(EN.recovery_first));
    // The codes go with the passkey, so either row ends the second step.
    assert!(page.text().contains(EN.factor_remove_last));
    assert_eq!(page.text().matches(EN.factor_remove_ends_step).count(), 2);
    let read = |snapshot: &dyn idsvc::store::engine::Snapshot| factors::of_user(snapshot, alice.user.uuid);
    let stored = server.app.core.store.read_blocking(read).unwrap();
    let (lost, _) = stored
        .iter()
        .find(|(_, factor)| matches!(factor.kind, FactorKind::Passkey(_)))
        .unwrap();
    let removal = form(&page, "factors").with("factor", &lost.to_string());
    let page = page.browser().submit(&removal).await;
    assert!(page.text().contains(EN.security_removed), "{}", page.text());
}

//! `client --acr`: each sign-in of a client has at least this level.

use idsvc::identity::AuthenticationLevel;
use idsvc::pages::text::EN;
use serde_json::json;

use crate::account_self_service::{at, form};
use crate::harness::authenticator::Passkey;
use crate::harness::{Person, RelyingParty, Screen, Server};
use crate::passkeys::{sign_in, store};
use crate::second_factor::{App, enrol, half, is_signed_in, type_code};

const STEP: u64 = 30;

/// A client that demands this level, and one that demands nothing.
async fn scene(level: AuthenticationLevel) -> (Server, RelyingParty, RelyingParty, Person) {
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let bank = server
        .client_with("acme", |client| client.acr = Some(level))
        .await;
    let notes = server.client("notes").await;
    let alice = server.user("alice").await;
    (server, bank, notes, alice)
}

fn heading(page: &Screen) -> (&str, String) {
    (page.page(), page.heading())
}

#[tokio::test]
async fn a_user_without_a_factor_sets_one_up_for_a_client_that_demands_two() {
    let (server, bank, notes, alice) = scene(AuthenticationLevel::TwoFactors).await;
    let browser = alice.browser();
    notes.tokens(&browser).await;
    // The session of the password is not enough, and who holds the browser signs in again before setting one up.
    let silent = browser.authorize(&bank.request().with("prompt", "none")).await;
    assert_eq!(silent.callback().error(), "login_required");
    let login = browser.authorize(&bank.request()).await;
    assert_eq!(login.page(), "/login");
    let page = login.sign_in().await;
    assert_eq!(heading(&page), ("/second-factor", EN.totp_add.to_owned()));
    let app = App::of(&page);
    let callback = type_code(&page, &app.code(&server, 0)).await;
    let tokens = bank.redeem(&callback.callback().code()).await.tokens();
    assert_eq!(tokens.id().claims["acr"], "2");
    // The other client asks for nothing, and gets what the session has.
    assert_eq!(notes.tokens(&browser).await.id().claims["acr"], "2");
    assert!(is_signed_in(&browser.authorize(&bank.request()).await));
    bank.refresh(tokens.refresh_token()).await.tokens();
}

#[tokio::test]
async fn the_higher_of_both_demands_counts() {
    let (server, bank, notes, alice) = scene(AuthenticationLevel::TwoFactors).await;
    let browser = alice.browser();
    notes.tokens(&browser).await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    for lower in ["1", "0"] {
        let asked = browser.authorize(&bank.request().with("acr_values", lower)).await;
        assert_eq!(
            heading(&asked),
            ("/second-factor", EN.second_factor_title.to_owned())
        );
    }
    let claims = json!({"id_token": {"acr": {"essential": true, "values": ["1"]}}});
    let request = bank.request().with("claims", &claims.to_string());
    let silent = browser.authorize(&request.clone().with("prompt", "none")).await;
    assert_eq!(silent.callback().error(), "interaction_required");
    let asked = browser.authorize(&request).await;
    assert!(is_signed_in(&type_code(&asked, &app.code(&server, 0)).await));
    // A demand for a passkey is higher.
    let page = browser.authorize(&bank.request().with("acr_values", "phr")).await;
    assert_eq!(page.page(), "/login");
    assert!(page.forms().iter().all(|form| form.value("password").is_none()));
}

#[tokio::test]
async fn a_client_that_demands_a_passkey_takes_nothing_else() {
    let (server, bank, notes, alice) = scene(AuthenticationLevel::PhishingResistant).await;
    let browser = alice.browser();
    notes.tokens(&browser).await;
    let silent = browser.authorize(&bank.request().with("prompt", "none")).await;
    assert_eq!(silent.callback().error(), "login_required");
    let page = browser.authorize(&bank.request().with("acr_values", "1")).await;
    assert_eq!(page.page(), "/login");
    assert!(page.text().contains("/account/security") && !page.text().contains("type=\"password\""));
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    let code = sign_in(&page, &passkey).await.callback().code();
    assert_eq!(bank.redeem(&code).await.tokens().id().claims["acr"], "phr");
}

#[tokio::test]
async fn a_demand_that_is_set_later_holds_for_the_next_code() {
    let (server, bank, _, alice) = scene(AuthenticationLevel::OneFactor).await;
    let browser = alice.browser();
    let before = bank.tokens(&browser).await;
    let waiting = half(&alice, &bank).await;
    assert!(is_signed_in(&waiting));
    server
        .change_client(&bank, |client| client.acr = Some(AuthenticationLevel::TwoFactors))
        .await;
    assert_eq!(browser.authorize(&bank.request()).await.page(), "/login");
    // A grant from before goes on, and says what it is.
    let after = bank.refresh(before.refresh_token()).await.tokens();
    assert_eq!(after.access().claims["acr"], "1");
}

/// A session of one factor could otherwise add an app on the account page, and count as one with two factors.
#[tokio::test]
async fn the_password_of_a_user_with_a_passkey_reaches_no_level_on_the_account_page() {
    let (server, bank, _, alice) = scene(AuthenticationLevel::TwoFactors).await;
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    server.advance(1);
    let thief = alice.browser();
    let security = at(&thief, "/account/security").await;
    let asked = thief.submit(&form(&security, "totp")).await;
    assert_eq!(asked.page(), "/login", "{}", asked.text());
    let asked = asked.sign_in().await;
    assert_eq!(
        heading(&asked),
        ("/second-factor", EN.second_factor_title.to_owned())
    );
    assert_eq!(thief.authorize(&bank.request()).await.page(), "/second-factor");
}

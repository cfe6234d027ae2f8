//! `mfa.remember_device`: a browser in which the second step is not asked for again.

use std::time::Duration;

use idsvc::identity::{AuthenticationLevel, SecondFactorRule};
use idsvc::pages::text::EN;
use idsvc::store::StoreError;
use serde_json::json;

use crate::account_self_service::form;
use crate::harness::{Browser, Person, RelyingParty, Screen, Server};
use crate::second_factor::{App, code_form, enrol, half, is_signed_in, type_code};

const COOKIE: &str = "__Host-idsvc_remembered";
const STEP: u64 = 30;
const DAY: u64 = 24 * 3600;

async fn scene() -> (Server, RelyingParty, Person, App) {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.remember_device = Some(Duration::from_hours(30 * 24));
    })
    .await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    (server, acme, alice, app)
}

/// Signs in with both steps in this browser, and asks to be remembered there.
async fn remembered(server: &Server, acme: &RelyingParty, browser: &Browser, app: &App) {
    let page = begin(acme, browser).await;
    let form = code_form(&page)
        .with("remember", "1")
        .with("code", &app.code(server, 0));
    let done = browser.submit(&form).await;
    assert!(is_signed_in(&done), "{}", done.text());
    assert!(browser.cookie(COOKIE).is_some());
    server.advance(STEP);
}

/// Begins a sign-in with a password, without the session of before.
async fn begin(acme: &RelyingParty, browser: &Browser) -> Screen {
    browser.set_cookie("__Host-idsvc_session", "gone");
    browser.authorize(&acme.request()).await.sign_in().await
}

#[tokio::test]
async fn a_remembered_browser_skips_the_second_step_and_tokens_say_one_factor() {
    let (server, acme, alice, app) = scene().await;
    let browser = alice.browser();
    // Without the box, nothing is remembered.
    let page = begin(&acme, &browser).await;
    assert!(page.text().contains("name=\"remember\""));
    assert!(is_signed_in(&type_code(&page, &app.code(&server, 0)).await));
    assert!(browser.cookie(COOKIE).is_none());
    server.advance(STEP);
    remembered(&server, &acme, &browser, &app).await;
    let done = begin(&acme, &browser).await;
    let id = acme.redeem(&done.callback().code()).await.tokens().id().claims;
    assert_eq!((&id["acr"], &id["amr"]), (&json!("1"), &json!(["pwd"])));
    // Another browser, and another user in this browser, are asked.
    assert_eq!(half(&alice, &acme).await.page(), "/second-factor");
    // It ends after thirty days.
    server.advance(29 * DAY);
    assert!(is_signed_in(&begin(&acme, &browser).await));
    server.advance(DAY);
    assert_eq!(begin(&acme, &browser).await.page(), "/second-factor");
}

#[tokio::test]
async fn a_demand_for_two_factors_and_a_change_of_factors_ask_for_the_code() {
    let (server, acme, alice, app) = scene().await;
    let browser = alice.browser();
    remembered(&server, &acme, &browser, &app).await;
    browser.set_cookie("__Host-idsvc_session", "gone");
    let request = acme.request().with("acr_values", "2");
    let page = browser.authorize(&request).await.sign_in().await;
    assert_eq!(page.page(), "/second-factor");
    // In the session of one factor as well.
    assert!(is_signed_in(&begin(&acme, &browser).await));
    assert_eq!(browser.authorize(&request).await.page(), "/second-factor");
    let security = browser.visit("/account/security").await;
    let login = browser.submit(&form(&security, "recovery-codes")).await;
    assert_eq!(login.page(), "/login", "{}", login.text());
    assert_eq!(login.sign_in().await.page(), "/second-factor");
    server
        .change_client(&acme, |client| client.acr = Some(AuthenticationLevel::TwoFactors))
        .await;
    assert_eq!(begin(&acme, &browser).await.page(), "/second-factor");
}

#[tokio::test]
async fn a_rule_that_all_need_two_factors_accepts_a_remembered_browser() {
    let server = Server::start_with(|policy| {
        policy.accounts.remember_device = Some(Duration::from_hours(24));
        policy.accounts.second_factor = SecondFactorRule::PasswordUsers;
    })
    .await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    let page = half(&alice, &acme).await;
    let app = App::of(&page);
    assert!(is_signed_in(&type_code(&page, &app.code(&server, 0)).await));
    server.advance(STEP);
    let browser = alice.browser();
    remembered(&server, &acme, &browser, &app).await;
    assert!(is_signed_in(&begin(&acme, &browser).await));
}

#[tokio::test]
async fn several_users_are_remembered_in_one_browser_and_the_cookie_stays_small() {
    let (server, acme, alice, app) = scene().await;
    let browser = alice.browser();
    remembered(&server, &acme, &browser, &app).await;
    for name in ["bob", "carol", "dave", "erin"] {
        let person = server.user(name).await;
        let (app, _) = enrol(&server, &person.browser()).await;
        server.advance(STEP);
        browser.set_cookie("__Host-idsvc_session", "gone");
        let login = browser.authorize(&acme.request()).await;
        let page = login
            .type_in(&format!("{name}@example.com"), &person.password)
            .await;
        let form = code_form(&page)
            .with("remember", "1")
            .with("code", &app.code(&server, 0));
        assert!(is_signed_in(&browser.submit(&form).await));
        let size = browser.cookie(COOKIE).unwrap().len();
        assert!(size < 400, "{size}");
        browser.set_cookie("__Host-idsvc_session", "gone");
        let again = browser.authorize(&acme.request()).await;
        let again = again
            .type_in(&format!("{name}@example.com"), &person.password)
            .await;
        assert!(is_signed_in(&again), "{name}");
        let is_remembered = is_signed_in(&begin(&acme, &browser).await);
        // The fifth user takes the place of the first.
        assert_eq!(is_remembered, name != "erin", "{name}");
    }
}

#[tokio::test]
async fn a_remembered_browser_is_forgotten_after_a_change() {
    let (server, acme, alice, app) = scene().await;
    let browser = alice.browser();
    // Each change, and what undoes its other effects.
    remembered(&server, &acme, &browser, &app).await;
    server.advance(1);
    for command in ["lock", "sessions"] {
        let admin = server.admin();
        let who = alice.user.account_id.clone();
        if command == "lock" {
            admin
                .call(idsvc::admin::user::LockUser { who: who.clone() })
                .await
                .unwrap();
            server
                .admin()
                .call(idsvc::admin::user::EnableUser { who })
                .await
                .unwrap();
        } else {
            admin
                .call(idsvc::admin::session::RevokeSessions::AllOf(who))
                .await
                .unwrap();
        }
        let page = begin(&acme, &browser).await;
        assert_eq!(page.page(), "/second-factor", "{command}");
        // A mark of the same second counts again.
        remembered(&server, &acme, &browser, &app).await;
        assert!(is_signed_in(&begin(&acme, &browser).await), "{command}");
        server.advance(1);
    }
    // The password: another hash of the same one is another password.
    let core = &server.app.core;
    let hash = core
        .passwords
        .hash(alice.password.clone().into(), core.random.bytes())
        .await
        .unwrap();
    server
        .change_user(&alice, |user| user.password = Some(hash))
        .await;
    assert_eq!(begin(&acme, &browser).await.page(), "/second-factor");
    remembered(&server, &acme, &browser, &app).await;
    // A factor that is removed.
    let uuid = alice.user.uuid;
    core.store
        .write("test_factor", move |tx| -> Result<_, StoreError> {
            let all = idsvc::flow::factors::of_user(&*tx, uuid)?;
            let is_codes = |factor: &idsvc::identity::Factor| {
                matches!(factor.kind, idsvc::identity::FactorKind::RecoveryCodes(_))
            };
            for (id, _) in all.iter().filter(|(_, factor)| is_codes(factor)) {
                idsvc::store::tables::FACTORS.remove(tx, &(uuid, *id))?;
            }
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(begin(&acme, &browser).await.page(), "/second-factor");
}

#[tokio::test]
async fn signing_out_elsewhere_forgets_every_browser() {
    let (server, acme, alice, app) = scene().await;
    let (one, other) = (alice.browser(), alice.browser());
    for sessions in ["one", "others"] {
        remembered(&server, &acme, &other, &app).await;
        remembered(&server, &acme, &one, &app).await;
        let page = one.visit("/account/devices").await;
        let ending = form(&page, "sessions");
        // The first row is this browser.
        let value = match sessions {
            "one" => ending.buttons[1].1.clone(),
            _ => "others".to_owned(),
        };
        let done = one.submit(&ending.with("session", &value)).await;
        assert_eq!(done.status, 200, "{}", done.text());
        for browser in [&one, &other] {
            assert_eq!(begin(&acme, browser).await.page(), "/second-factor", "{sessions}");
        }
    }
}

#[tokio::test]
async fn a_mark_counts_only_as_the_service_made_it() {
    let (server, acme, alice, app) = scene().await;
    let browser = alice.browser();
    remembered(&server, &acme, &browser, &app).await;
    let mark = browser.cookie(COOKIE).unwrap();
    // Somebody else who has the cookie gains nothing without the password of the user.
    let bob = server.user("bob").await;
    enrol(&server, &bob.browser()).await;
    let thief = bob.browser();
    thief.set_cookie(COOKIE, &mark);
    assert_eq!(begin(&acme, &thief).await.page(), "/second-factor");
    for made_up in ["", "x", &mark[1..], &format!("{mark}{mark}"), &"A".repeat(4000)] {
        browser.set_cookie(COOKIE, made_up);
        assert_eq!(begin(&acme, &browser).await.page(), "/second-factor");
    }
    browser.set_cookie(COOKIE, &mark);
    assert!(is_signed_in(&begin(&acme, &browser).await));
}

#[tokio::test]
async fn without_the_setting_a_browser_cannot_be_remembered() {
    let server = Server::start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    let page = half(&alice, &acme).await;
    assert!(!page.text().contains("name=\"remember\""));
    let form = code_form(&page)
        .with("remember", "1")
        .with("code", &app.code(&server, 0));
    let done = page.browser().submit(&form).await;
    assert!(is_signed_in(&done) && page.browser().cookie(COOKIE).is_none());
}

/// The new password ends the memory, so the code would be asked for after it.
#[tokio::test]
async fn before_a_password_that_must_be_changed_a_remembered_browser_is_asked_for_the_code() {
    let (server, acme, alice, app) = scene().await;
    let browser = alice.browser();
    remembered(&server, &acme, &browser, &app).await;
    server
        .change_user(&alice, |user| user.must_change_password = true)
        .await;
    let asked = begin(&acme, &browser).await;
    let page = type_code(&asked, &app.code(&server, 0)).await;
    assert_eq!(page.heading(), EN.new_password_title);
    let chosen = page.forms()[0]
        .clone()
        .with("new-password", "a password that is new");
    assert!(is_signed_in(&browser.submit(&chosen).await));
}

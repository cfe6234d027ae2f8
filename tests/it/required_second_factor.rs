//! `mfa.require`: users set up a second factor at the next sign-in.

use idsvc::admin::user::ResetFactors;
use idsvc::flow::factors;
use idsvc::identity::{SecondFactorRule, SignUp};
use idsvc::mail::Content;
use idsvc::pages::text::EN;
use serde_json::json;

use crate::account_links::request_mail;
use crate::anonymous_upgrade::{device, opted_in, pushed, uuid_of};
use crate::harness::authenticator::Passkey;
use crate::harness::{Audit, Person, RelyingParty, Screen, Server};
use crate::passkeys::{sign_in, store};
use crate::second_factor::{App, code_form, enrol, half, is_signed_in, recovery_codes, type_code};

const STEP: u64 = 30;

async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.second_factor = SecondFactorRule::PasswordUsers;
    })
    .await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// A server where people create accounts and need a second factor.
async fn open_to_all() -> Server {
    Server::start_with(|policy| {
        policy.accounts.second_factor = SecondFactorRule::PasswordUsers;
        policy.accounts.sign_up = SignUp::Open;
        policy.accounts.verify_email = false;
    })
    .await
}

/// Carol creates an account in this sign-in.
async fn create_account(login: &Screen) -> Screen {
    let choose = request_mail(login, EN.create_account, "carol@example.com").await;
    let chosen = choose.forms()[0]
        .clone()
        .with("name", "Carol")
        .with("new-password", "a password of carol that is new");
    login.browser().submit(&chosen).await
}

fn has_session(page: &Screen) -> bool {
    page.browser().cookie("__Host-idsvc_session").is_some()
}

#[tokio::test]
async fn where_it_is_required_a_second_factor_is_set_up_in_the_sign_in() {
    let (server, acme, alice) = scene().await;
    let page = half(&alice, &acme).await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/second-factor", EN.totp_add)
    );
    assert!(!has_session(&page) && page.is_not_stored());
    server.mails().await;
    let (app, codes) = (App::of(&page), recovery_codes(&page));
    // The page that is loaded again has the same.
    let again = page.browser().visit(&page.path).await;
    assert_eq!(
        (App::of(&again).seed, recovery_codes(&again)),
        (app.seed.clone(), codes.clone())
    );
    assert_eq!(codes.len(), 10);
    let wrong = type_code(&page, &app.wrong(&server)).await;
    assert!(wrong.text().contains(EN.problem_second_factor) && !has_session(&wrong));
    assert_eq!(
        (App::of(&wrong).seed, recovery_codes(&wrong)),
        (app.seed.clone(), codes.clone())
    );
    let audit = Audit::listen();
    let callback = type_code(&wrong, &app.code(&server, 0)).await;
    assert!(has_session(&callback));
    assert_eq!(audit.take(&["factor_added", "signed_in"]).len(), 2);
    let tokens = acme.redeem(&callback.callback().code()).await.tokens();
    let id = tokens.id().claims;
    assert_eq!(
        (&id["amr"], &id["acr"]),
        (&json!(["pwd", "otp", "mfa"]), &json!("2"))
    );
    // One sign-in in a new browser, with a new app: one mail, which says all of it.
    let notice = server.mail().await;
    let Content::FactorAdded { from, factors, .. } = &notice.message.content else {
        panic!("{notice:?}")
    };
    let kinds: Vec<_> = factors.iter().map(|factor| factor.kind.as_str()).collect();
    assert_eq!(kinds, ["totp", "recovery_codes"]);
    assert!(
        from.as_ref().is_some_and(|from| from.address.is_some()),
        "{notice:?}"
    );
    assert_eq!(notice.message.zone.as_deref(), Some("Europe/Brussels"));
    // From then on the factor is asked for.
    let asked = half(&alice, &acme).await;
    assert_eq!(asked.heading(), EN.second_factor_title);
    assert!(is_signed_in(&type_code(&asked, &codes[9]).await));
    server.advance(STEP);
    let asked = half(&alice, &acme).await;
    let other = type_code(&asked, &app.code(&server, 0)).await;
    assert!(is_signed_in(&other));
    // The link of the notice ends the session that the sign-in began, and no other.
    let question = server.browser().visit(&notice.link()).await;
    question.browser().submit(&question.forms()[0]).await;
    assert!(server.factors_of(&alice).is_empty());
    assert_eq!(callback.browser().fetch("/account").await.status, 303);
    assert_eq!(other.browser().fetch("/account").await.status, 200);
}

#[tokio::test]
async fn of_two_browsers_that_set_up_a_factor_one_does() {
    let (server, acme, alice) = scene().await;
    let (one, other) = (half(&alice, &acme).await, half(&alice, &acme).await);
    let (app, late) = (App::of(&one), App::of(&other));
    // What one browser got does not count in the other.
    let setup = code_form(&one).value("setup").unwrap().to_owned();
    let mixed = code_form(&other)
        .with("setup", &setup)
        .with("code", &app.code(&server, 0));
    let answer = other.browser().submit(&mixed).await;
    assert!(answer.text().contains(EN.problem_second_factor));
    assert!(is_signed_in(&type_code(&one, &app.code(&server, 0)).await));
    let answer = type_code(&other, &late.code(&server, 0)).await;
    assert!(answer.text().contains(EN.problem_second_factor) && !has_session(&answer));
    let uuid = alice.user.uuid;
    let store = &server.app.core.store;
    let stored = store
        .read_blocking(|snapshot| factors::of_user(snapshot, uuid))
        .unwrap();
    assert_eq!(stored.len(), 2);
}

#[tokio::test]
async fn a_new_account_sets_up_the_required_factor_first() {
    let server = open_to_all().await;
    let acme = server.client("acme").await;
    let login = server.browser().authorize(&acme.request()).await;
    let audit = Audit::listen();
    let page = create_account(&login).await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/second-factor", EN.totp_add)
    );
    assert_eq!(audit.take(&["account_created"]).len(), 1);
    assert!(!has_session(&page));
    let app = App::of(&page);
    let consent = type_code(&page, &app.code(&server, 0)).await;
    assert!(has_session(&consent), "{}", consent.text());
}

/// A thief of the password could set up an app instead.
#[tokio::test]
async fn a_user_with_a_passkey_is_asked_for_it_and_sets_nothing_up() {
    let (server, acme, alice) = scene().await;
    // Bob has no factor: what he gets to set up is of no use to Alice.
    let bob = server.user("bob").await;
    let foreign = half(&bob, &acme).await;
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    let page = half(&alice, &acme).await;
    assert_eq!(page.heading(), EN.second_factor_title);
    assert!(page.text().contains(EN.second_factor_passkey_lead) && !page.text().contains("name=\"code\""));
    assert!(!has_session(&page) && code_form(&page).value("setup").is_none());
    let setup = code_form(&foreign).value("setup").unwrap().to_owned();
    let form = code_form(&page)
        .with("setup", &setup)
        .with("code", &App::of(&foreign).code(&server, 0));
    let answer = page.browser().submit(&form).await;
    assert_eq!(answer.heading(), EN.second_factor_title);
    assert!(!has_session(&answer));
    // The passkey is two factors at once.
    let login = server.browser().authorize(&acme.request()).await;
    assert!(is_signed_in(&sign_in(&login, &passkey).await));
}

#[tokio::test]
async fn a_passkey_that_is_added_during_the_enrolment_ends_it() {
    let (server, acme, alice) = scene().await;
    let page = half(&alice, &acme).await;
    let app = App::of(&page);
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    let answer = type_code(&page, &app.code(&server, 0)).await;
    assert_eq!(answer.heading(), EN.second_factor_title);
    assert!(!has_session(&answer));
    let (uuid, store) = (alice.user.uuid, &server.app.core.store);
    let stored = store
        .read_blocking(|snapshot| factors::of_user(snapshot, uuid))
        .unwrap();
    assert_eq!(stored.len(), 1);
}

#[tokio::test]
async fn an_enrolment_is_over_with_the_first_step_that_it_follows() {
    let (server, acme, alice) = scene().await;
    let page = half(&alice, &acme).await;
    let app = App::of(&page);
    server.advance(10 * 60);
    let late = type_code(&page, &app.code(&server, 0)).await;
    assert_eq!(late.page(), "/login");
    assert!(!has_session(&late));
}

/// The account is created before the second factor is set up, and the session begins after it.
#[tokio::test]
async fn an_anonymous_user_becomes_an_account_that_sets_up_the_required_factor() {
    let server = open_to_all().await;
    let acme = server.client_with("acme", opted_in).await;
    let device = device(&acme).await;
    let login = server
        .browser()
        .authorize(&pushed(&acme, device.refresh_token()).await)
        .await;
    let audit = Audit::listen();
    let page = create_account(&login).await;
    let events = audit.take(&["account_created", "anonymous_user_upgraded"]);
    assert_eq!(events.len(), 2);
    let app = App::of(&page);
    let callback = type_code(&page, &app.code(&server, 0)).await;
    let tokens = acme.redeem(&callback.callback().code()).await.tokens();
    assert_eq!(
        (uuid_of(&tokens), &tokens.id().claims["acr"]),
        (uuid_of(&device), &json!("2"))
    );
}

#[tokio::test]
async fn a_user_whose_factors_are_removed_while_a_code_is_asked_for_signs_in_again() {
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    enrol(&server, &alice.browser()).await;
    let page = half(&alice, &acme).await;
    server
        .admin()
        .call(ResetFactors {
            who: alice.user.account_id.clone(),
        })
        .await
        .unwrap();
    let login = page.browser().visit(&page.path).await;
    assert_eq!(login.page(), "/login");
    assert!(is_signed_in(&login.sign_in().await));
}

#[tokio::test]
async fn a_factor_is_set_up_before_a_password_that_must_be_changed() {
    let (server, acme, alice) = scene().await;
    server
        .change_user(&alice, |user| user.must_change_password = true)
        .await;
    let page = half(&alice, &acme).await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/second-factor", EN.totp_add)
    );
    server.mails().await;
    let app = App::of(&page);
    let audit = Audit::listen();
    let choose = type_code(&page, &app.code(&server, 0)).await;
    assert_eq!(choose.heading(), EN.new_password_title);
    assert!(!has_session(&choose));
    assert_eq!(audit.take(&["factor_added", "signed_in"]).len(), 1);
    let is_notice = |content: &Content| matches!(content, Content::FactorAdded { .. });
    assert!(is_notice(&server.mail().await.message.content));
    let chosen = choose.forms()[0]
        .clone()
        .with("new-password", "a password that is new");
    let done = choose.browser().submit(&chosen).await;
    let tokens = acme.redeem(&done.callback().code()).await.tokens();
    assert_eq!(tokens.id().claims["acr"], "2");
}

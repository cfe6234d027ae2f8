//! A passkey is offered after a sign-in with a password, in a browser that can keep one. The sign-in goes on in any case.

use idsvc::identity::User;
use idsvc::mail::Content;
use idsvc::oauth::client::ConsentRequirement;
use idsvc::pages::text::EN;

use crate::harness::authenticator::Passkey;
use crate::harness::html::Form;
use crate::harness::relying_party::AuthorizationRequest;
use crate::harness::{Audit, Browser, Person, RelyingParty, Screen, Server, scene};
use crate::passkeys::{data, passkey_form, store};
use crate::second_factor::{enrol, is_signed_in, type_code};

const COOKIE: &str = "__Host-idsvc_passkey_offer";
const SESSION: &str = "__Host-idsvc_session";

/// What the script of the page adds on a device that can keep a passkey.
fn with_platform(form: Form) -> Form {
    form.with("platform_authenticator", "1")
}

/// Signs in with the password in a browser that can keep a passkey.
async fn sign_in(person: &Person, browser: &Browser, request: &AuthorizationRequest) -> Screen {
    let login = browser.authorize(request).await;
    assert_eq!(login.page(), "/login", "{}", login.text());
    let typed = with_platform(login.login_form())
        .with("username", &person.user.account_id)
        .with("password", &person.password);
    browser.submit(&typed).await
}

/// The page of the offer, in a new browser.
async fn offered(alice: &Person, acme: &RelyingParty) -> Screen {
    let page = sign_in(alice, &alice.browser(), &acme.request()).await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/passkey-offer", EN.passkey_offer_title),
        "{}",
        page.text()
    );
    page
}

fn creation(page: &Screen, person: &Person) -> (Passkey, Form) {
    let passkey = Passkey::new(person.user.uuid.as_bytes());
    let response = passkey.create(&data(page, "challenge").unwrap());
    let form = passkey_form(page).with("passkey", &response.to_string());
    (passkey, form)
}

#[tokio::test]
async fn a_user_who_declines_goes_on_and_is_asked_again_after_thirty_days_at_the_earliest() {
    let (_server, acme, alice) = scene().await;
    let page = offered(&alice, &acme).await;
    let browser = page.browser().clone();
    let declined = page.decide("later").await;
    let set = declined.cookies();
    let set = set.iter().find(|line| line.starts_with(COOKIE)).unwrap();
    assert!(set.contains("Max-Age=2592000"), "{set}");
    let id = acme
        .redeem(&declined.callback().code())
        .await
        .tokens()
        .id()
        .claims;
    assert_eq!(id["acr"], "1");

    browser.set_cookie(SESSION, "ended");
    let login = browser.authorize(&acme.request()).await;
    assert!(!login.text().contains("data-offer"));
    assert!(is_signed_in(&sign_in(&alice, &browser, &acme.request()).await));
}

#[tokio::test]
async fn a_user_who_creates_a_passkey_goes_on_and_signs_in_with_it_the_next_time() {
    let (server, acme, alice) = scene().await;
    let page = offered(&alice, &acme).await;
    let audit = Audit::listen();
    let (passkey, form) = creation(&page, &alice);
    let created = page.browser().submit(&form).await;
    assert!(is_signed_in(&created), "{}", created.text());
    assert_eq!(audit.take(&["factor_added"])[0]["factor"], "passkey");
    assert_eq!(server.factors_of(&alice).len(), 1);
    // The answer was lost: the form, or the page, comes again.
    assert!(is_signed_in(&page.browser().submit(&form).await));
    assert_eq!(server.factors_of(&alice).len(), 1);

    let login = server.browser().authorize(&acme.request()).await;
    let response = passkey.get(&data(&login, "challenge").unwrap());
    let form = passkey_form(&login).with("passkey", &response.to_string());
    assert!(is_signed_in(&login.browser().submit(&form).await));
    // A user who has one is not asked.
    assert!(is_signed_in(
        &sign_in(&alice, &alice.browser(), &acme.request()).await
    ));
}

#[tokio::test]
async fn without_script_or_on_another_device_the_application_opens_at_once() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let login = browser.authorize(&acme.request()).await;
    assert!(login.text().contains("data-offer"));
    let form = login.login_form();
    assert_eq!(form.value("platform_authenticator"), None);
    let answer = browser
        .submit_with(
            &form
                .with("username", &alice.user.account_id)
                .with("password", &alice.password),
            &[("sec-fetch-site", "same-origin")],
        )
        .await;
    assert!(is_signed_in(&answer), "the first answer leads to the application");
}

#[tokio::test]
async fn no_passkey_is_offered_to_a_user_of_a_provider_or_in_a_step_up_or_if_it_is_switched_off() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    let again = acme.request().with("prompt", "login");
    assert!(
        is_signed_in(&sign_in(&alice, &browser, &again).await),
        "signed in before"
    );
    let account = server.browser().visit("/account").await;
    let typed = with_platform(account.login_form())
        .with("username", &alice.user.account_id)
        .with("password", &alice.password);
    assert_eq!(account.browser().submit(&typed).await.page(), "/account");
    let silent = browser.authorize(&acme.request().with("prompt", "none")).await;
    assert!(is_signed_in(&silent));
    server
        .change_user(&alice, |user| user.source = "corp".to_owned())
        .await;
    assert!(is_signed_in(
        &sign_in(&alice, &alice.browser(), &acme.request()).await
    ));

    let server = Server::start_with(|policy| policy.passkey_offer = false).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let login = server.browser().authorize(&acme.request()).await;
    assert!(!login.text().contains("data-offer"));
    assert!(is_signed_in(
        &sign_in(&alice, &alice.browser(), &acme.request()).await
    ));
}

#[tokio::test]
async fn the_offer_comes_after_the_second_step_and_before_the_consent() {
    let (server, acme, alice) = scene().await;
    server
        .change_client(&acme, |client| client.consent = ConsentRequirement::Require)
        .await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(30);
    let page = sign_in(&alice, &alice.browser(), &acme.request()).await;
    let page = type_code(&page, &app.code(&server, 0)).await;
    assert_eq!(page.page(), "/passkey-offer", "{}", page.text());
    let page = page.decide("later").await;
    assert!(is_signed_in(&page.allow().await));
}

#[tokio::test]
async fn two_tabs_go_on_by_themselves() {
    let (_server, acme, alice) = scene().await;
    let page = offered(&alice, &acme).await;
    let browser = page.browser().clone();
    // The user is signed in, so another tab needs no answer to the offer.
    assert!(is_signed_in(&browser.authorize(&acme.request()).await));
    let other = browser.visit(&page.path).await;
    assert_eq!(other.page(), "/passkey-offer", "the page was loaded again");
    let (_, form) = creation(&other, &alice);
    assert!(is_signed_in(&browser.submit(&form).await));
    // The first tab finds that there is nothing to offer.
    assert!(is_signed_in(&page.decide("later").await));
}

#[tokio::test]
async fn of_two_forms_at_once_one_adds_the_passkey_and_both_go_on() {
    let (server, acme, alice) = scene().await;
    let page = offered(&alice, &acme).await;
    let (_, form) = creation(&page, &alice);
    let (one, other) = tokio::join!(page.browser().submit(&form), page.browser().submit(&form));
    assert!(is_signed_in(&one) && is_signed_in(&other), "{}", other.text());
    assert_eq!(server.factors_of(&alice).len(), 1);
}

#[tokio::test]
async fn a_crash_after_the_passkey_was_added_loses_neither_it_nor_the_sign_in() {
    let (server, acme, alice) = scene().await;
    let page = offered(&alice, &acme).await;
    let (passkey, form) = creation(&page, &alice);
    // The passkey is stored, and nothing else has happened.
    store(&server, &alice, &passkey).await;
    assert!(is_signed_in(&page.browser().submit(&form).await));
    let page = sign_in(&alice, &alice.browser(), &acme.request()).await;
    assert!(is_signed_in(&page));
    assert_eq!(server.factors_of(&alice).len(), 1);
}

#[tokio::test]
async fn a_refused_passkey_is_told_and_a_page_that_is_open_for_long_goes_on() {
    let (server, acme, alice) = scene().await;
    let page = offered(&alice, &acme).await;
    let browser = page.browser().clone();
    let (_, form) = creation(&page, &alice);
    for broken in [
        form.clone().with("passkey", "{}"),
        form.clone().with("csrf", "AAAA"),
    ] {
        let refused = browser.submit(&broken).await;
        assert_eq!(refused.page(), "/passkey-offer");
        assert!(refused.text().contains(EN.problem_passkey_add));
        assert!(server.factors_of(&alice).is_empty());
    }
    // Another browser has neither the session nor the transaction.
    let stolen = server.browser().visit(&page.path).await;
    assert_eq!(stolen.status, 400);
    server.advance(11 * 60);
    assert!(
        is_signed_in(&browser.submit(&form).await),
        "the sign-in is too old for a passkey"
    );
    assert!(server.factors_of(&alice).is_empty());
}

#[tokio::test]
async fn a_user_who_signs_out_while_a_passkey_is_offered_signs_in_again() {
    let (server, acme, alice) = scene().await;
    let page = offered(&alice, &acme).await;
    let (_, form) = creation(&page, &alice);
    page.browser().set_cookie(SESSION, "ended");
    let answer = page.browser().submit(&form).await;
    assert_eq!(answer.page(), "/login", "{}", answer.text());
    assert!(server.factors_of(&alice).is_empty());
}

/// Both are in one mail: the notice of the sign-in waits for the answer to the offer.
#[tokio::test]
async fn a_new_browser_and_the_passkey_that_it_was_offered_are_told_by_one_mail() {
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let page = offered(&alice, &acme).await;
    let (_passkey, form) = creation(&page, &alice);
    assert!(is_signed_in(&page.browser().submit(&form).await));
    let notice = server.mail().await;
    let Content::FactorAdded { factors, from, .. } = &notice.message.content else {
        panic!("{notice:?}")
    };
    assert!(factors[0].kind == "passkey" && from.is_some(), "{notice:?}");
    // The link undoes both.
    let question = server.browser().visit(&notice.link()).await;
    question.browser().submit(&question.forms()[0]).await;
    assert!(server.factors_of(&alice).is_empty());
    assert_eq!(page.browser().fetch("/account").await.status, 303);
}

#[tokio::test]
async fn a_new_browser_is_told_by_mail_if_no_passkey_is_created() {
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let page = offered(&alice, &acme).await;
    page.decide("later").await;
    let notice = server.mail().await;
    assert!(
        matches!(notice.message.content, Content::NewDevice { .. }),
        "{notice:?}"
    );
}

/// A sign-in that was told before is not taken back.
#[tokio::test]
async fn a_passkey_that_is_added_later_is_told_by_a_mail_of_its_own() {
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let page = offered(&alice, &acme).await;
    assert_eq!(server.mails().await.len(), 1, "the notice was sent");
    let (_passkey, form) = creation(&page, &alice);
    assert!(is_signed_in(&page.browser().submit(&form).await));
    let notice = server.mail().await;
    assert!(
        matches!(notice.message.content, Content::FactorAdded { .. }),
        "{notice:?}"
    );
}

/// A thief who changes the address must not keep the mail about the sign-in from the owner.
#[tokio::test]
async fn a_new_browser_is_told_at_the_previous_address_if_the_address_changes_before_the_passkey() {
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let page = offered(&alice, &acme).await;
    let (_passkey, form) = creation(&page, &alice);
    let by_thief = |user: &mut User| user.email = Some("mallory@example.com".to_owned());
    server.change_user(&alice, by_thief).await;
    assert!(is_signed_in(&page.browser().submit(&form).await));
    let mails = server.mails().await;
    let mut sent: Vec<_> = mails
        .iter()
        .map(|mail| (mail.message.to.as_str(), mail.message.content.kind()))
        .collect();
    sent.sort_unstable();
    let expected = [
        ("alice@example.com", "new-device"),
        ("mallory@example.com", "factor-added"),
    ];
    assert_eq!(sent, expected);
}

//! What users change themselves on the account page.

use idsvc::admin::user;
use idsvc::identity::SelfServicePolicy;
use idsvc::mail::Content;
use idsvc::pages::text::EN;

use crate::harness::html::Form;
use crate::harness::{Audit, Browser, Person, Screen, Server, scene};

async fn scene_with_all() -> (Server, Person) {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.self_service = SelfServicePolicy {
            claims: vec!["name".to_owned(), "phone_number".to_owned()],
            email: true,
            export: true,
            deletion: true,
        };
    })
    .await;
    let alice = server.user("alice").await;
    (server, alice)
}

async fn at(browser: &Browser, path: &str) -> Screen {
    let page = browser.visit(path).await;
    let page = if page.page() == "/login" {
        page.sign_in().await
    } else {
        page
    };
    assert_eq!((page.status, page.page()), (200, path));
    page
}

fn form(page: &Screen, decision: &str) -> Form {
    let mut forms = page.forms().into_iter();
    let found = forms.find(|form| form.value("decision") == Some(decision));
    found.unwrap_or_else(|| panic!("no form {decision} on {}", page.text()))
}

async fn request_email(browser: &Browser, email: &str) -> Screen {
    let page = at(browser, "/account/profile").await;
    browser.submit(&form(&page, "email").with("email", email)).await
}

async fn confirm(browser: &Browser, link: &str) -> Screen {
    let page = browser.visit(link).await;
    let forms = page.forms();
    assert_eq!(forms.len(), 1, "{}", page.text());
    browser.submit(&forms[0]).await
}

#[tokio::test]
async fn a_user_edits_what_the_operator_allows_and_nothing_else() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    let page = at(&browser, "/account/profile").await;
    let audit = Audit::listen();
    let edited = form(&page, "profile")
        .with("name", "  Alice <Liddell>\u{7} ")
        .with("phone_number", "")
        .with("given_name", "Mallory");
    let saved = browser.submit(&edited).await;
    assert!(saved.text().contains(EN.account_profile_edited));
    assert_eq!(audit.take(&["profile_edited"]).len(), 1);
    let view = user::show(server.admin(), "alice@example.com").unwrap();
    assert_eq!(view.claims["name"], "Alice <Liddell>");
    assert_eq!(
        (view.claims["given_name"].clone(), view.phone_number),
        ("alice".into(), None)
    );
    browser.submit(&edited).await;
    assert!(audit.take(&["profile_edited"]).is_empty(), "nothing changed");
}

#[tokio::test]
async fn without_permission_no_form_is_shown_and_none_is_read() {
    let (_server, _, alice) = scene().await;
    let browser = alice.browser();
    let page = at(&browser, "/account/profile").await;
    let language = form(&page, "language");
    for decision in ["profile", "email", "export", "delete"] {
        assert!(
            page.forms()
                .iter()
                .all(|form| form.value("decision") != Some(decision))
        );
        let forged = language
            .clone()
            .with("decision", decision)
            .with("confirm", "alice@example.com");
        let answer = browser
            .submit(&forged.with("name", "Mallory").with("email", "m@example.com"))
            .await;
        assert!(!answer.text().contains("Mallory"));
    }
    assert!(!page.text().contains("/account/data"));
    assert_eq!(at(&browser, "/account/profile").await.status, 200);
}

#[tokio::test]
async fn a_user_of_a_provider_edits_neither_profile_nor_address() {
    let (server, alice) = scene_with_all().await;
    server
        .change_user(&alice, |user| user.source = "corp".to_owned())
        .await;
    let browser = alice.browser();
    let page = at(&browser, "/account/profile").await;
    assert!(
        page.forms()
            .iter()
            .all(|form| form.value("decision") == Some("language"))
    );
    let forged = form(&page, "language")
        .with("decision", "profile")
        .with("name", "Mallory");
    browser.submit(&forged).await;
    let view = user::show(server.admin(), "alice@example.com").unwrap();
    assert_eq!(view.claims["name"], "alice Example");
}

#[tokio::test]
async fn a_new_address_is_confirmed_and_the_old_one_can_set_it_back() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    at(&browser, "/account/profile").await;
    server.mails().await;
    let sent = request_email(&browser, "new@example.com").await;
    assert!(sent.text().contains(EN.account_email_requested));
    let mail = server.mail().await;
    assert_eq!(mail.message.to, "new@example.com");
    let before = user::show(server.admin(), "alice@example.com").unwrap();
    assert_eq!(before.email.as_deref(), Some("alice@example.com"));
    let phone = server.browser();
    let done = confirm(&phone, &mail.link()).await;
    assert_eq!(done.heading(), EN.address_verified_title);
    let after = user::show(server.admin(), "new@example.com").unwrap();
    assert_eq!(
        (after.account_id.as_str(), after.email_verified),
        ("new@example.com", true)
    );
    assert!(user::show(server.admin(), "alice@example.com").is_err());
    assert_eq!(phone.visit(&mail.link()).await.heading(), EN.error_link);

    let notice = server.mail().await;
    assert_eq!(notice.message.to, "alice@example.com");
    assert!(matches!(notice.message.content, Content::AddressChanged { .. }));
    let secured = confirm(&server.browser(), &notice.link()).await;
    assert_eq!(secured.heading(), EN.secured_title);
    let back = user::show(server.admin(), "alice@example.com").unwrap();
    assert_eq!(
        (back.email.as_deref(), back.has_password),
        (Some("alice@example.com"), false)
    );
    assert_eq!(browser.visit("/account").await.page(), "/login");
    assert_eq!(server.mail().await.message.to, "alice@example.com");
}

#[tokio::test]
async fn an_address_of_another_user_gets_no_mail_and_is_not_taken() {
    let (server, alice) = scene_with_all().await;
    let bob = server.user("bob").await;
    let browser = alice.browser();
    at(&browser, "/account/profile").await;
    server.mails().await;
    let sent = request_email(&browser, "BOB@example.com").await;
    assert!(
        sent.text().contains(EN.account_email_requested),
        "the page does not tell"
    );
    assert!(server.mails().await.is_empty());
    request_email(&browser, "carol@example.com").await;
    let mail = server.mail().await;
    server.user("carol").await;
    assert_eq!(
        confirm(&server.browser(), &mail.link()).await.heading(),
        EN.error_link
    );
    let refused = request_email(&browser, "no address").await;
    assert!(refused.text().contains(EN.problem_no_address));
    drop(bob);
}

#[tokio::test]
async fn a_user_exports_the_data_and_deletes_the_account() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    let page = at(&browser, "/account/data").await;
    let export = browser.submit(&form(&page, "export")).await;
    assert!(
        export
            .header("content-disposition")
            .unwrap()
            .starts_with("attachment")
    );
    assert!(export.is_not_stored());
    let document = export.json();
    assert_eq!(document["sub"], alice.sub());
    assert_eq!(document["sessions"].as_array().unwrap().len(), 1);
    assert!(!export.text().contains("argon2"));
    let slip = browser
        .submit(&form(&page, "delete").with("confirm", "bob@example.com"))
        .await;
    assert!(slip.text().contains(EN.problem_delete_confirm));
    let audit = Audit::listen();
    let gone = browser
        .submit(&form(&page, "delete").with("confirm", " alice@example.com "))
        .await;
    assert_eq!(gone.page(), "/logged-out");
    assert_eq!(audit.take(&["account_deleted"]).len(), 1);
    assert!(user::show(server.admin(), "alice@example.com").is_err());
    assert_eq!(browser.visit("/account").await.page(), "/login");
}

/// A person who finds a browser left open must neither take the account over nor remove it.
#[tokio::test]
async fn an_old_session_changes_nothing_without_a_new_sign_in() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    let data = at(&browser, "/account/data").await;
    let profile = at(&browser, "/account/profile").await;
    server.mails().await;
    server.advance(11 * 60);
    for form in [
        form(&profile, "profile").with("name", "Mallory"),
        form(&profile, "email").with("email", "mallory@example.com"),
        form(&data, "export"),
        form(&data, "delete").with("confirm", "alice@example.com"),
    ] {
        assert_eq!(browser.submit(&form).await.page(), "/login");
    }
    assert!(server.mails().await.is_empty());
    let view = user::show(server.admin(), "alice@example.com").unwrap();
    assert_eq!(view.claims["name"], "alice Example");
}

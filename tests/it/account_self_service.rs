//! What users change themselves on the account page.

use idsvc::admin::user;
use idsvc::identity::{LinkedIdentity, OneTimeLink, SelfServicePolicy, User};
use idsvc::mail::Content;
use idsvc::pages::text::EN;
use idsvc::store::StoreError;
use idsvc::store::tables::{ONE_TIME_LINKS, USERS, USERS_BY_IDENTITY};

use crate::harness::html::Form;
use crate::harness::mailbox::Mail;
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

pub(crate) async fn at(browser: &Browser, path: &str) -> Screen {
    let page = browser.visit(path).await;
    let page = if page.page() == "/login" {
        page.sign_in().await
    } else {
        page
    };
    assert_eq!((page.status, page.page()), (200, path));
    page
}

pub(crate) fn form(page: &Screen, decision: &str) -> Form {
    page.account_form(decision)
}

pub(crate) async fn request_email(browser: &Browser, person: &Person, email: &str) -> Screen {
    let page = at(browser, "/account/profile").await;
    let typed = form(&page, "email").with("email", email);
    browser
        .submit(&typed.with("current-password", &person.password))
        .await
}

/// Changes the address, and returns the mail to the previous one.
async fn change_email(server: &Server, browser: &Browser, person: &Person, email: &str) -> Mail {
    at(browser, "/account/profile").await;
    server.mails().await;
    request_email(browser, person, email).await;
    let link = server.mail().await.link();
    let done = confirm(&server.browser(), &link).await;
    assert_eq!(done.heading(), EN.address_verified_title);
    server.mail().await
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
    let view = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
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
    let decision = |form: &Form| form.value("decision").unwrap_or_default().to_owned();
    let decisions: Vec<_> = page.forms().iter().map(decision).collect();
    assert_eq!(decisions, ["sign-out", "language"]);
    let forged = form(&page, "language")
        .with("decision", "profile")
        .with("name", "Mallory");
    browser.submit(&forged).await;
    let view = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(view.claims["name"], "alice Example");
}

#[tokio::test]
async fn a_new_address_is_confirmed_and_the_old_one_can_set_it_back() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    at(&browser, "/account/profile").await;
    server.mails().await;
    let sent = request_email(&browser, &alice, "new@example.com").await;
    assert!(sent.text().contains(EN.account_email_requested));
    let mail = server.mail().await;
    assert_eq!(mail.message.to, "new@example.com");
    let before = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(before.email.as_deref(), Some("alice@example.com"));
    let phone = server.browser();
    let question = phone.visit(&mail.link()).await;
    let question = question.text();
    assert!(question.contains("new@example.com") && question.contains("alice@example.com"));
    let done = confirm(&phone, &mail.link()).await;
    assert_eq!(done.heading(), EN.address_verified_title);
    let after = server
        .admin()
        .call(user::ShowUser {
            who: "new@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(
        (after.account_id.as_str(), after.email_verified),
        ("alice@example.com", true),
        "nobody else gets the name by which the user is known"
    );
    assert_eq!(phone.visit(&mail.link()).await.heading(), EN.error_link);

    let notice = server.mail().await;
    assert_eq!(notice.message.to, "alice@example.com");
    assert!(matches!(notice.message.content, Content::AddressChanged { .. }));
    let secured = confirm(&server.browser(), &notice.link()).await;
    assert_eq!(secured.heading(), EN.secured_title);
    let back = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(
        (back.email.as_deref(), back.has_password),
        (Some("alice@example.com"), false)
    );
    assert_eq!(browser.visit("/account").await.page(), "/login");
    assert_eq!(server.reset_mail().await.message.to, "alice@example.com");
}

/// Writes the links of mails that were sent as an earlier release wrote them.
async fn rewrite_links(server: &Server, form: &'static str, earlier: &'static str) {
    let rewritten = server.app.core.store.write("test_links", move |tx| {
        for (key, link) in ONE_TIME_LINKS.scan(&*tx, .., usize::MAX)? {
            let purpose = serde_json::to_string(&link.purpose).unwrap();
            let purpose = serde_json::from_str(&purpose.replace(form, earlier)).unwrap();
            ONE_TIME_LINKS.put(tx, &key, &OneTimeLink { purpose, ..link })?;
        }
        Ok::<_, StoreError>(())
    });
    rewritten.await.unwrap();
}

async fn email_of(server: &Server, person: &Person) -> (String, bool) {
    let who = person.user.account_id.clone();
    let shown = server.admin().call(user::ShowUser { who }).await.unwrap();
    (shown.email.unwrap(), shown.email_verified)
}

/// Puts the user's address into another form, opens a link to change it, and then the link that sets it back.
async fn change_and_set_back(
    present: &str,
    new: &str,
    form: &'static str,
    earlier: &'static str,
) -> [(String, bool); 2] {
    let (server, alice) = scene_with_all().await;
    let present = Some(present.to_owned());
    server.change_user(&alice, |user| user.email = present).await;
    let browser = alice.browser();
    at(&browser, "/account/profile").await;
    server.mails().await;
    request_email(&browser, &alice, new).await;
    rewrite_links(&server, form, earlier).await;
    let done = confirm(&server.browser(), &server.mail().await.link()).await;
    assert_eq!(done.heading(), EN.address_verified_title);
    let changed = email_of(&server, &alice).await;
    rewrite_links(&server, form, earlier).await;
    let secured = confirm(&server.browser(), &server.mail().await.link()).await;
    assert_eq!(secured.heading(), EN.secured_title);
    let set_back = email_of(&server, &alice).await;
    rewrite_links(&server, form, earlier).await;
    let reset = server.browser().visit(&server.reset_mail().await.link()).await;
    assert_eq!(reset.page(), "/link", "{}", reset.text());
    [changed, set_back]
}

#[tokio::test]
async fn a_link_from_before_an_upgrade_names_an_address_in_its_earlier_form() {
    let (old, new) = ("j\u{fc}rgen@example.com", "new.j\u{fc}rgen@example.com");
    let is_proven = |(email, is_verified): (String, bool)| is_verified.then_some(email);
    let found = change_and_set_back(old, new, "\u{fc}", "u\u{308}").await;
    assert_eq!(found.map(is_proven), [Some(new.to_owned()), Some(old.to_owned())]);
    let (old, new) = ("j\u{fc}rgen@example.com", "J\u{dc}RGEN@example.org");
    let found = change_and_set_back(old, new, "@example", "@Example").await;
    assert!(found.into_iter().all(|found| is_proven(found).is_some()));
}

/// Letters of another width may be another mailbox.
#[tokio::test]
async fn a_link_to_an_address_of_another_width_proves_no_address() {
    let found = change_and_set_back("zoe@example.com", "zed@example.com", "z", "\u{ff5a}").await;
    let expected = ["zed@example.com", "zoe@example.com"].map(|email| (email.to_owned(), false));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn an_address_of_another_user_gets_no_mail_and_is_not_taken() {
    let (server, alice) = scene_with_all().await;
    let bob = server.user("bob").await;
    let browser = alice.browser();
    at(&browser, "/account/profile").await;
    server.mails().await;
    let sent = request_email(&browser, &alice, "BOB@example.com").await;
    assert!(
        sent.text().contains(EN.account_email_requested),
        "the page does not tell"
    );
    assert!(server.mails().await.is_empty());
    request_email(&browser, &alice, "carol@example.com").await;
    let mail = server.mail().await;
    server.user("carol").await;
    let void = server.browser().visit(&mail.link()).await;
    assert_eq!(void.heading(), EN.error_link);
    let refused = request_email(&browser, &alice, "no address").await;
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
    assert!(
        server
            .admin()
            .call(user::ShowUser {
                who: "alice@example.com".to_owned()
            })
            .await
            .is_err()
    );
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
    let view = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(view.claims["name"], "alice Example");
}

#[tokio::test]
async fn a_new_address_needs_the_present_password() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    let page = at(&browser, "/account/profile").await;
    server.mails().await;
    let typed = form(&page, "email").with("email", "mallory@example.com");
    let audit = Audit::listen();
    let refused = browser
        .submit(&typed.clone().with("current-password", "a guess"))
        .await;
    assert!(refused.text().contains(EN.problem_current_password));
    assert_eq!(audit.take(&["password_change_failed"]).len(), 1);
    browser.submit(&typed.with("current-password", "")).await;
    assert!(server.mails().await.is_empty());
}

#[tokio::test]
async fn a_link_to_a_new_address_is_void_after_its_session_ended() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    at(&browser, "/account/profile").await;
    server.mails().await;
    request_email(&browser, &alice, "mallory@example.com").await;
    let link = server.mail().await.link();
    server
        .admin()
        .call(user::LockUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    server.change_user(&alice, |user| user.enabled = true).await;
    assert_eq!(server.browser().visit(&link).await.heading(), EN.error_link);
    let view = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(view.email.as_deref(), Some("alice@example.com"));
}

/// Otherwise the thief of a session would change it twice, and the link to the second address would undo what the owner
/// does with the first.
#[tokio::test]
async fn an_address_is_changed_once_while_it_can_be_set_back() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    let page = at(&browser, "/account/profile").await;
    let again = form(&page, "email")
        .with("email", "third@example.com")
        .with("current-password", &alice.password);
    change_email(&server, &browser, &alice, "new@example.com").await;
    let refused = browser.submit(&again).await;
    assert!(refused.text().contains(EN.account_email_not_allowed));
    assert!(server.mails().await.is_empty());
    server.advance(7 * 24 * 3600 + 1);
    change_email(&server, &browser, &alice, "third@example.com").await;
}

#[tokio::test]
async fn an_address_that_the_operator_set_is_not_set_back() {
    let (server, alice) = scene_with_all().await;
    let browser = alice.browser();
    let notice = change_email(&server, &browser, &alice, "new@example.com").await;
    let by_operator = |user: &mut User| user.email = Some("hr@example.com".to_owned());
    server.change_user(&alice, by_operator).await;
    assert_eq!(
        server.browser().visit(&notice.link()).await.heading(),
        EN.error_link
    );
}

#[tokio::test]
async fn what_a_provider_linked_by_the_other_address_goes_when_the_address_is_set_back() {
    let (server, alice) = scene_with_all().await;
    let identity = |subject: &str, linked_at| LinkedIdentity {
        issuer: "https://idp.example".to_owned(),
        subject: subject.to_owned(),
        provider: "corp".to_owned(),
        linked_at,
    };
    let now = server.clock.now();
    let link = |identity: LinkedIdentity| async {
        let key = (identity.issuer.clone(), identity.subject.clone());
        let uuid = alice.user.uuid;
        let core = &server.app.core;
        let index = core
            .store
            .write("test_index", move |tx| USERS_BY_IDENTITY.put(tx, &key, &uuid));
        index.await.unwrap();
        server
            .change_user(&alice, |user| user.identities.push(identity))
            .await;
    };
    link(identity("before", now)).await;
    server.advance(60);
    let browser = alice.browser();
    let notice = change_email(&server, &browser, &alice, "mallory@example.com").await;
    server.advance(60);
    link(identity("after", server.clock.now())).await;
    confirm(&server.browser(), &notice.link()).await;
    let core = &server.app.core;
    let (user, before, after) = core
        .store
        .read_blocking(|snapshot| {
            let key = |subject: &str| ("https://idp.example".to_owned(), subject.to_owned());
            Ok::<_, StoreError>((
                USERS.get(snapshot, &alice.user.uuid)?.unwrap(),
                USERS_BY_IDENTITY.get(snapshot, &key("before"))?,
                USERS_BY_IDENTITY.get(snapshot, &key("after"))?,
            ))
        })
        .unwrap();
    let subjects: Vec<_> = user
        .identities
        .iter()
        .map(|identity| identity.subject.as_str())
        .collect();
    assert_eq!((subjects, before, after), (vec!["before"], Some(user.uuid), None));
}

#[tokio::test]
async fn a_new_address_is_one_that_may_sign_up() {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.self_service.email = true;
        policy.accounts.allowed_domains = vec!["example.com".to_owned()];
    })
    .await;
    let alice = server.user("alice").await;
    let browser = alice.browser();
    at(&browser, "/account/profile").await;
    server.mails().await;
    let refused = request_email(&browser, &alice, "alice@elsewhere.example").await;
    assert!(refused.text().contains(EN.account_email_not_allowed));
    assert!(server.mails().await.is_empty());
    request_email(&browser, &alice, "new@example.com").await;
    assert_eq!(server.mail().await.message.to, "new@example.com");
}

#[tokio::test]
async fn a_claim_that_the_form_did_not_have_stays() {
    let (server, alice) = scene_with_all().await;
    let long = "a".repeat(300);
    let name = long.clone();
    server
        .change_user(&alice, |user| {
            user.phone_number = Some("+32 2 555 01 23".to_owned());
            user.claims.insert("name".to_owned(), name.into());
        })
        .await;
    let browser = alice.browser();
    let page = at(&browser, "/account/profile").await;
    let edited = form(&page, "profile").with("fields", "name").with("name", &long);
    browser.submit(&edited.with("phone_number", "")).await;
    let view = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(view.phone_number.as_deref(), Some("+32 2 555 01 23"));
    assert_eq!(view.claims["name"], long.as_str());
}

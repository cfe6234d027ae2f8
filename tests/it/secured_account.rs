//! The link of a notice undoes what the notice says, and no more: who reads a mailbox does not get around the second step.

use idsvc::admin::user;
use idsvc::admin::user::{UpdateUser, UserFields};
use idsvc::identity::SelfServicePolicy;
use idsvc::mail::Content;
use idsvc::pages::text::EN;

use crate::account_self_service::{at, form};
use crate::harness::authenticator::Passkey;
use crate::harness::html::Form;
use crate::harness::mailbox::Mail;
use crate::harness::{Audit, Browser, Person, RelyingParty, Screen, Server};
use crate::passkeys;
use crate::second_factor::{App, STEP, enrol, half, is_signed_in, type_code};

const NEW: &str = "violet tractor umbrella";
const DAY: u64 = 24 * 60 * 60;

async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.self_service = SelfServicePolicy {
            claims: Vec::new(),
            email: true,
            export: false,
            deletion: false,
        };
    })
    .await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// Presses the button of the page that the link of a mail leads to.
async fn press(server: &Server, mail: &Mail) -> Screen {
    let page = server.browser().visit(&mail.link()).await;
    match page.forms().first() {
        Some(form) => page.browser().submit(form).await,
        None => page,
    }
}

/// Chooses a new password by the mail that follows a secured account, in a new browser.
async fn choose(server: &Server, mail: &Mail) -> Screen {
    let page = server.browser().visit(&mail.link()).await;
    let typed = page.forms()[0].clone().with("new-password", NEW);
    page.browser().submit(&typed).await
}

async fn is_in(browser: &Browser) -> bool {
    browser.visit("/account").await.page() == "/account"
}

/// Who reads the mailbox uses the link of a notice from before there was a second factor.
#[tokio::test]
async fn a_newer_factor_voids_the_links_of_older_notices() {
    let (server, acme, alice) = scene().await;
    acme.code(&alice.browser()).await;
    let notice = server.mail().await;
    assert!(matches!(notice.message.content, Content::NewDevice { .. }));
    server.advance(DAY);
    let browser = alice.browser();
    at(&browser, "/account/security").await;
    enrol(&server, &browser).await;
    server.advance(DAY);
    server.mails().await;
    let refused = press(&server, &notice).await;
    assert_eq!(refused.heading(), EN.error_link);
    assert!(
        refused.text().contains(EN.error_link_undoes_nothing),
        "{}",
        refused.text()
    );
    assert_eq!(server.factors_of(&alice).len(), 2);
    assert!(server.mails().await.is_empty());
    assert_eq!(
        half(&alice, &acme).await.page(),
        "/second-factor",
        "the password stays"
    );
}

/// A stranger with the mail learns that the account has changed, and not how.
#[tokio::test]
async fn the_page_of_a_void_link_says_the_true_reason() {
    let (server, acme, alice) = scene().await;
    let notice_of = async || {
        acme.code(&alice.browser()).await;
        server.mail().await
    };
    let (used, old, of_other_address) = (notice_of().await, notice_of().await, notice_of().await);
    server
        .change_user(&alice, |user| user.email = Some("new@example.com".to_owned()))
        .await;
    let refused = press(&server, &of_other_address).await;
    assert!(refused.text().contains(EN.error_link_undoes_nothing));
    assert!(!refused.text().contains("new@example.com"));
    server
        .change_user(&alice, |user| user.email = Some("alice@example.com".to_owned()))
        .await;
    assert_eq!(press(&server, &used).await.heading(), EN.secured_title);
    let again = press(&server, &used).await;
    server.advance(8 * DAY);
    for (page, advice) in [
        (again, EN.error_link_used),
        (press(&server, &old).await, EN.error_link_expired),
    ] {
        assert!(page.text().contains(advice), "{}", page.text());
    }
}

#[tokio::test]
async fn a_link_about_one_factor_leaves_the_others_and_the_sign_in_asks_for_them() {
    let (server, _, alice) = scene().await;
    let owner = alice.browser();
    let (app, _) = enrol(&server, &owner).await;
    server.advance(STEP);
    // A thief of the session has got a code, and adds a passkey.
    let thief = server.browser();
    for (name, value) in owner.cookies() {
        thief.set_cookie(&name, &value);
    }
    let page = at(&thief, "/account/security").await;
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    let created = passkey.create(&passkeys::data(&page, "challenge").unwrap());
    let added = form(&page, "passkey")
        .with("passkey", &created.to_string())
        .with("current-password", &app.code(&server, 0));
    server.mails().await;
    let added = thief.submit(&added).await;
    assert!(added.text().contains(EN.passkey_added), "{}", added.text());
    let notice = server.mail().await;
    let elsewhere = half(&alice, &server.client("other").await).await;
    server.advance(STEP);
    assert!(!is_in(elsewhere.browser()).await);
    let audit = Audit::listen();
    let secured = press(&server, &notice).await;
    assert_eq!(secured.heading(), EN.secured_title);
    let removed = audit.take(&["factor_removed"]);
    assert_eq!((removed.len(), &removed[0]["factor"]), (1, &"passkey".into()));
    assert_eq!(server.factors_of(&alice).len(), 2, "the app and its codes");
    assert!(!is_in(&thief).await);
    let reset = server.mail().await;
    let asked = choose(&server, &reset).await;
    assert_eq!(asked.page(), "/second-factor", "{}", asked.text());
    let done = type_code(&asked, &app.code(&server, 0)).await;
    assert_eq!(done.page(), "/account", "{}", done.text());
}

#[tokio::test]
async fn a_link_ends_the_session_that_it_is_about_and_no_other() {
    let (server, acme, alice) = scene().await;
    let owner = alice.browser();
    let kept = acme.tokens(&owner).await;
    server.mails().await;
    let thief = alice.browser();
    let stolen = acme.tokens(&thief).await;
    let notice = server.mail().await;
    let secured = press(&server, &notice).await;
    assert_eq!(secured.heading(), EN.secured_title);
    assert!(is_in(&owner).await && !is_in(&thief).await);
    assert!(acme.is_welcome(&kept).await);
    let refused = acme.refresh(stolen.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_grant");
}

/// Who reads the previous mailbox gets the address back, and is asked for the factor.
#[tokio::test]
async fn the_previous_mailbox_sets_the_address_back_and_does_not_get_around_the_factor() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let (app, _) = enrol(&server, &browser).await;
    server.advance(STEP);
    let page = at(&browser, "/account/profile").await;
    server.mails().await;
    let typed = form(&page, "email").with("email", "new@example.com");
    browser.submit(&typed).await;
    press(&server, &server.mail().await).await;
    let notice = server.mail().await;
    assert!(matches!(notice.message.content, Content::AddressChanged { .. }));
    assert_eq!(press(&server, &notice).await.heading(), EN.secured_title);
    assert!(!is_in(&browser).await, "the address was changed in this session");
    let mut mails = server.mails().await;
    let is_told = |mail: &Mail| matches!(mail.message.content, Content::AddressChanged { link: None, .. });
    let told: Vec<_> = mails.extract_if(.., |mail| is_told(mail)).collect();
    assert_eq!((told.len(), told[0].message.to.as_str()), (1, "new@example.com"));
    let asked = choose(&server, &mails[0]).await;
    assert_eq!(asked.page(), "/second-factor", "{}", asked.text());
    assert!(!is_signed_in(&asked));
    assert_eq!(server.factors_of(&alice).len(), 2);
    let done = type_code(&asked, &app.code(&server, 0)).await;
    assert_eq!(done.page(), "/account", "{}", done.text());
    drop(acme);
}

/// A link of an earlier release does not say what it is about.
#[tokio::test]
async fn a_link_of_an_earlier_release_removes_no_factor() {
    let (server, _, alice) = scene().await;
    let browser = alice.browser();
    at(&browser, "/account/security").await;
    server.mails().await;
    let (_, _) = enrol(&server, &browser).await;
    let notice = server.mail().await;
    let forget = |tx: &mut dyn idsvc::store::engine::Tx| {
        use idsvc::identity::LinkPurpose;
        use idsvc::store::tables::ONE_TIME_LINKS;
        for (key, mut link) in ONE_TIME_LINKS.scan(&*tx, .., 100)? {
            if let LinkPurpose::SecureAccount { event, .. } = &mut link.purpose {
                *event = None;
                ONE_TIME_LINKS.put(tx, &key, &link)?;
            }
        }
        Ok::<_, idsvc::store::StoreError>(())
    };
    let written = server.app.core.store.write("test_links", forget).await;
    written.unwrap();
    assert_eq!(press(&server, &notice).await.heading(), EN.secured_title);
    assert_eq!(server.factors_of(&alice).len(), 2);
    assert!(!is_in(&browser).await);
}

/// The form of a user who has no factor left, if the page of the second step has it.
fn none_left(page: &Screen) -> Option<Form> {
    let mut forms = page.forms().into_iter();
    forms.find(|form| form.value("decision") == Some("none-left"))
}

/// A user with an app who has secured the account by the notice of a new browser, and is at the second step with the new
/// password.
async fn at_second_step() -> (Server, RelyingParty, Person, App, Screen) {
    let (server, acme, mut alice) = Box::pin(scene()).await;
    let browser = alice.browser();
    let (app, _) = Box::pin(enrol(&server, &browser)).await;
    let page = at(&browser, "/account/profile").await;
    server.mails().await;
    let typed = form(&page, "email").with("email", "new@example.com");
    browser.submit(&typed).await;
    Box::pin(press(&server, &server.mail().await)).await;
    server.advance(STEP);
    server.mails().await;
    let asked = half(&alice, &acme).await;
    assert!(none_left(&asked).is_none(), "the account is not secured");
    assert!(is_signed_in(&type_code(&asked, &app.code(&server, 0)).await));
    let notice = server.mail().await;
    assert!(matches!(notice.message.content, Content::NewDevice { .. }));
    Box::pin(press(&server, &notice)).await;
    let reset = server.mail().await;
    let asked = Box::pin(choose(&server, &reset)).await;
    assert_eq!(asked.page(), "/second-factor", "{}", asked.text());
    server.mails().await;
    NEW.clone_into(&mut alice.password);
    (server, acme, alice, app, asked)
}

#[tokio::test]
async fn a_person_who_has_no_factor_left_waits_a_day_and_every_address_is_told() {
    let (server, acme, alice, _, asked) = at_second_step().await;
    let audit = Audit::listen();
    let begun = asked.browser().submit(&none_left(&asked).unwrap()).await;
    let began = audit.take(&["lost_factors_wait_began"]);
    let end = server.app.core.clock.now().seconds() + DAY;
    assert_eq!((began.len(), &began[0]["ends_at"]), (1, &end.to_string().into()));
    assert_eq!(began[0]["user"], alice.user.uuid.to_string());
    assert!(none_left(&begun).is_none() && !is_signed_in(&begun));
    let (said, _) = EN.second_factor_wait.split_once("{}").unwrap();
    assert!(begun.text().contains(said), "{}", begun.text());
    let mails = server.mails().await;
    let mut told: Vec<_> = mails.iter().map(|mail| mail.message.to.as_str()).collect();
    told.sort_unstable();
    assert_eq!(told, ["alice@example.com", "new@example.com"]);
    let is_of_end = |mail: &Mail| matches!(mail.message.content, Content::FactorsEnd { .. });
    assert!(mails.iter().all(is_of_end));
    // To say it again begins nothing anew.
    asked.browser().submit(&none_left(&asked).unwrap()).await;
    assert!(server.mails().await.is_empty());
    assert!(audit.take(&["lost_factors_wait_began"]).is_empty());
    server.advance(DAY - 60);
    assert_eq!(half(&alice, &acme).await.page(), "/second-factor");
    assert_eq!(server.factors_of(&alice).len(), 2);
    server.advance(120);
    let audit = Audit::listen();
    assert!(is_signed_in(&half(&alice, &acme).await));
    assert!(server.factors_of(&alice).is_empty());
    let ended = audit.take(&["factor_removed", "lost_factors_wait_ended"]);
    assert_eq!(ended.len(), 3, "the app, its codes, and the wait");
    assert_eq!(ended[2]["reason"], "over");
    let mails = server.mails().await;
    let is_of_removal = |mail: &&Mail| matches!(mail.message.content, Content::FactorRemoved { .. });
    let mut told = mails.iter().filter(is_of_removal);
    let told = (told.next().unwrap(), told.next().is_none());
    assert_eq!((told.0.message.to.as_str(), told.1), ("new@example.com", true));
    assert_eq!(press(&server, told.0).await.heading(), EN.secured_title);
}

/// Months later, the password alone must not be enough.
#[tokio::test]
async fn a_wait_that_no_sign_in_follows_for_a_week_is_void() {
    for (days, is_void) in [(7, false), (9, true), (90, true)] {
        let (server, acme, alice, _, asked) = Box::pin(at_second_step()).await;
        asked.browser().submit(&none_left(&asked).unwrap()).await;
        server.mails().await;
        server.advance(days * DAY);
        let (admin, who) = (server.admin(), "alice@example.com".to_owned());
        let shown = admin.call(user::ShowUser { who: who.clone() }).await.unwrap();
        let factors = admin.call(user::ListFactors { who }).await.unwrap();
        let is_shown = [shown.factors_end_at.is_some(), factors.factors_end_at.is_some()];
        assert_eq!(is_shown, [!is_void; 2], "{days}");
        let audit = Audit::listen();
        let next = half(&alice, &acme).await;
        assert_eq!(is_signed_in(&next), !is_void, "{days}");
        assert!(none_left(&next).is_none());
        assert_eq!(
            reasons_of_ends(&audit),
            [if is_void { "expired" } else { "over" }]
        );
        assert_eq!(
            server.factors_of(&alice).len(),
            if is_void { 2 } else { 0 },
            "{days}"
        );
        assert_eq!(server.mails().await.is_empty(), is_void, "{days}");
    }
}

#[tokio::test]
async fn a_code_on_the_account_page_ends_the_wait() {
    let (server, _, alice) = scene().await;
    let browser = alice.browser();
    let (app, _) = enrol(&server, &browser).await;
    for (name, field, value) in [
        ("email", "email", "new@example.com"),
        ("password", "new-password", NEW),
    ] {
        let now = server.app.core.clock.now();
        let begin = move |user: &mut idsvc::identity::User| user.factors_end_at = Some(now);
        server.change_user(&alice, begin).await;
        let audit = Audit::listen();
        let typed = async |proof: &str| {
            let section = if name == "email" { "profile" } else { name };
            let page = at(&browser, &format!("/account/{section}")).await;
            let filled = form(&page, name).with("current-password", proof);
            browser.submit(&filled.with(field, value)).await
        };
        typed("000000").await;
        assert!(reasons_of_ends(&audit).is_empty(), "{name}");
        server.advance(STEP);
        typed(&app.code(&server, 0)).await;
        assert_eq!(reasons_of_ends(&audit), ["factor"], "{name}");
        let user = idsvc::admin::user::ShowUser {
            who: "alice@example.com".to_owned(),
        };
        let shown = server.admin().call(user).await.unwrap();
        assert_eq!(shown.factors_end_at, None, "{name}");
    }
}

/// Why waits ended.
fn reasons_of_ends(audit: &Audit) -> Vec<String> {
    let ended = audit.take(&["lost_factors_wait_ended"]);
    let reasons = ended
        .iter()
        .map(|event| event["reason"].as_str().unwrap().to_owned());
    reasons.collect()
}

#[tokio::test]
async fn an_operator_sees_the_wait_and_ends_it_with_the_factors_or_without() {
    for keep in [true, false] {
        let (server, acme, alice, _, asked) = Box::pin(at_second_step()).await;
        asked.browser().submit(&none_left(&asked).unwrap()).await;
        let end = Some(server.app.core.clock.now() + std::time::Duration::from_secs(DAY));
        let (admin, who) = (server.admin(), "alice@example.com".to_owned());
        let shown = admin.call(user::ShowUser { who: who.clone() }).await.unwrap();
        let factors = admin.call(user::ListFactors { who: who.clone() }).await.unwrap();
        assert_eq!((shown.factors_end_at, factors.factors_end_at), (end, end));
        let audit = Audit::listen();
        if keep {
            let update = UpdateUser {
                who: who.clone(),
                email: None,
                account_id: None,
                reset_failed_passwords: false,
                keep_factors: true,
                fields: UserFields::default(),
            };
            let ended = admin.call(update.clone()).await.unwrap().changes;
            assert_eq!((ended.len(), ended[0].field.as_str()), (1, "factors_end_at"));
            assert_eq!(admin.call(update).await.unwrap().changes, []);
        } else {
            admin.call(user::ResetFactors { who: who.clone() }).await.unwrap();
        }
        assert_eq!(reasons_of_ends(&audit), ["operator"], "{keep}");
        let shown = admin.call(user::ShowUser { who }).await.unwrap();
        assert_eq!(shown.factors_end_at, None);
        server.advance(DAY + 60);
        let next = half(&alice, &acme).await;
        assert_eq!(is_signed_in(&next), !keep);
        assert!(none_left(&next).is_none(), "the wait does not begin again");
        assert_eq!(server.factors_of(&alice).len(), if keep { 2 } else { 0 });
    }
}

#[tokio::test]
async fn a_sign_in_with_a_factor_ends_the_wait() {
    let (server, acme, alice, app, asked) = at_second_step().await;
    asked.browser().submit(&none_left(&asked).unwrap()).await;
    server.advance(STEP);
    let other = half(&alice, &acme).await;
    let audit = Audit::listen();
    assert!(is_signed_in(&type_code(&other, &app.code(&server, 0)).await));
    assert_eq!(reasons_of_ends(&audit), ["factor"]);
    server.advance(DAY + 60);
    let asked = half(&alice, &acme).await;
    assert_eq!(asked.page(), "/second-factor", "{}", asked.text());
    assert!(none_left(&asked).is_none());
    assert_eq!(server.factors_of(&alice).len(), 2);
}

/// The wait is for a person without a factor. A later thief of the password must not begin it.
#[tokio::test]
async fn a_sign_in_with_a_factor_after_the_account_was_secured_leaves_no_wait_to_begin() {
    let (server, acme, alice, app, asked) = at_second_step().await;
    assert!(none_left(&asked).is_some());
    server.advance(STEP);
    let other = half(&alice, &acme).await;
    assert!(is_signed_in(&type_code(&other, &app.code(&server, 0)).await));
    server.advance(DAY);
    let stolen = half(&alice, &acme).await;
    assert_eq!(stolen.page(), "/second-factor");
    assert!(none_left(&stolen).is_none());
}

/// The link takes the password away. A session of a thief that goes on must not add a factor meanwhile.
#[tokio::test]
async fn a_session_that_goes_on_adds_no_factor_while_the_secured_account_has_no_password() {
    let (server, acme, alice) = scene().await;
    acme.code(&alice.browser()).await;
    let notice = server.mail().await;
    let thief = alice.browser();
    acme.code(&thief).await;
    let page = at(&thief, "/account/security").await;
    let add = form(&page, "totp").with("current-password", "");
    let secured = press(&server, &notice).await;
    assert_eq!(secured.heading(), EN.secured_title);
    let setup = thief.submit(&add).await;
    let confirm = setup
        .forms()
        .into_iter()
        .find(|form| form.value("decision") == Some("totp-confirm"));
    if let Some(confirm) = confirm {
        let app = App::of(&setup);
        thief.submit(&confirm.with("code", &app.code(&server, 0))).await;
    }
    assert_eq!(server.factors_of(&alice).len(), 0);
}

#[tokio::test]
async fn a_thief_of_the_password_begins_no_wait() {
    let (server, acme, alice) = scene().await;
    enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    server.mails().await;
    let asked = half(&alice, &acme).await;
    assert!(none_left(&asked).is_none());
    let forged = asked.forms().remove(0).with("decision", "none-left");
    asked.browser().submit(&forged).await;
    assert!(server.mails().await.is_empty());
    server.advance(DAY + 60);
    assert_eq!(half(&alice, &acme).await.page(), "/second-factor");
    assert_eq!(server.factors_of(&alice).len(), 2);
}

#[tokio::test]
async fn the_link_of_the_mail_about_the_wait_ends_it() {
    let (server, acme, alice, _, asked) = at_second_step().await;
    asked.browser().submit(&none_left(&asked).unwrap()).await;
    let mails = server.mails().await;
    let mut to_address = mails.iter().filter(|mail| mail.message.to == "new@example.com");
    let audit = Audit::listen();
    let secured = press(&server, to_address.next().unwrap()).await;
    assert_eq!(secured.heading(), EN.secured_title);
    assert_eq!(reasons_of_ends(&audit), ["secured"]);
    let reset = server.mail().await;
    choose(&server, &reset).await;
    server.advance(DAY + 60);
    let asked = half(&alice, &acme).await;
    assert_eq!(asked.page(), "/second-factor", "{}", asked.text());
    assert_eq!(server.factors_of(&alice).len(), 2);
}

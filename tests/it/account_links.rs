//! Links in mails: a new password, a new account, an invitation.

use idsvc::admin::SecretString;
use idsvc::admin::group::AddGroup;
use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user::{self, InviteUser, LinkView, ResetUser};
use idsvc::federation::provider::LinkPolicy;
use idsvc::identity::SignUp;
use idsvc::mail::Content;
use idsvc::oauth::Policy;
use idsvc::oauth::group::GroupFields;
use idsvc::pages::text::EN;
use idsvc::store::tables::{ONE_TIME_LINKS, OUTBOX};

use crate::anonymous_upgrade::{device, opted_in, pushed};
use crate::harness::html::Form;
use crate::harness::mailbox::Mail;
use crate::harness::{Audit, Browser, ISSUER, Person, RelyingParty, Screen, Server, Tokens, sweep_all};

const NEW: &str = "a password that is new";
const HOUR: u64 = 60 * 60;

/// A service that can send mails.
async fn scene() -> (Server, RelyingParty, Person) {
    scene_with(|_| {}).await
}

pub(crate) async fn scene_with(change: impl FnOnce(&mut Policy)) -> (Server, RelyingParty, Person) {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        change(policy);
    })
    .await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

pub(crate) fn open(policy: &mut Policy) {
    policy.accounts.sign_up = SignUp::Open;
    policy.accounts.verify_email = true;
}

/// The address of the page's link with this text.
fn link_named(page: &Screen, text: &str) -> String {
    let end = page.text().find(&format!(">{text}</a>"));
    let before = &page.text()[..end.unwrap_or_else(|| panic!("no link {text} on {}", page.text()))];
    let href = before.rsplit_once("href=\"").unwrap().1;
    href.split('"').next().unwrap().replace("&amp;", "&")
}

pub(crate) fn only_form(page: &Screen) -> Form {
    let mut forms = page.forms();
    assert_eq!(forms.len(), 1, "{}", page.text());
    forms.remove(0)
}

/// Requests a mail on the page that the sign-in page links to with this text.
pub(crate) async fn request_mail(login: &Screen, link: &str, address: &str) -> Screen {
    let page = login.browser().visit(&link_named(login, link)).await;
    let form = only_form(&page).with("address", address);
    login.browser().submit(&form).await
}

pub(crate) async fn choose(page: &Screen, password: &str) -> Screen {
    assert_eq!((page.status, page.page()), (200, "/link"), "{}", page.text());
    let form = only_form(page).with("new-password", password);
    page.browser().submit(&form).await
}

pub(crate) async fn enter_code(page: &Screen, code: &str) -> Screen {
    assert_eq!(page.page(), "/check-mail");
    page.browser().submit(&only_form(page).with("code", code)).await
}

pub(crate) async fn begin(acme: &RelyingParty, browser: &Browser) -> Screen {
    let request = acme.request().with("scope", "openid profile email");
    let login = browser.authorize(&request).await;
    assert_eq!(login.page(), "/login");
    login
}

pub(crate) async fn ask_for_reset(
    server: &Server,
    acme: &RelyingParty,
    browser: &Browser,
    who: &str,
) -> (Screen, Mail) {
    let login = begin(acme, browser).await;
    server.mails().await;
    let sent = request_mail(&login, EN.forgot_password, who).await;
    assert_eq!(sent.page(), "/check-mail");
    (sent, server.mail().await)
}

#[tokio::test]
async fn a_code_from_the_mail_sets_a_new_password_and_continues_the_sign_in() {
    let (server, acme, alice) = scene().await;
    let elsewhere = acme.code(&alice.browser()).await;
    let tokens = acme.redeem(&elsewhere).await.tokens();

    let browser = alice.browser();
    let audit = Audit::listen();
    let (sent, mail) = ask_for_reset(&server, &acme, &browser, "alice@example.com").await;
    assert_eq!(mail.message.to, "alice@example.com");
    assert_eq!(mail.message.client_id.as_deref(), Some("acme"));
    let page = enter_code(&sent, &mail.code()).await;
    assert_eq!(page.heading(), EN.new_password_title);
    let short = choose(&page, "short").await;
    assert!(short.text().contains(EN.problem_too_short));
    let done = choose(&short, NEW).await;
    let code = done.callback().code();
    let fresh = acme.redeem(&code).await.tokens();
    assert_eq!(fresh.id().claims["sub"], alice.sub());

    let events = audit.take(&["password_reset"]);
    assert_eq!(events.len(), 1);
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
    let old = begin(&acme, &server.browser()).await;
    let old = old.type_in("alice@example.com", &alice.password).await;
    assert!(old.text().contains(EN.problem_credentials));
    let new = begin(&acme, &server.browser()).await;
    new.type_in("alice@example.com", NEW).await.callback().code();

    let again = browser.visit(&mail.link()).await;
    assert_eq!((again.status, again.heading().as_str()), (400, EN.error_link));
}

/// Scanners of mails open every link, some of them several times.
#[tokio::test]
async fn opening_a_link_uses_nothing_up_and_the_link_works_in_another_browser() {
    let (server, acme, alice) = scene().await;
    let (_, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    for _ in 0..3 {
        let scanner = server.browser();
        let page = scanner.visit(&mail.link()).await;
        assert_eq!(
            (page.status, page.heading().as_str()),
            (200, EN.new_password_title)
        );
        assert!(page.is_not_stored());
    }
    let phone = server.browser();
    let done = choose(&phone.visit(&mail.link()).await, NEW).await;
    assert_eq!((done.status, done.page()), (200, "/account"));
    assert_eq!(phone.visit("/account").await.status, 200);
}

#[tokio::test]
async fn an_unknown_name_gets_the_same_answer_and_no_mail() {
    let (server, acme, alice) = scene().await;
    server.change_user(&alice, |user| user.enabled = false).await;
    for nobody in ["nobody@example.com", "alice@example.com"] {
        let login = begin(&acme, &server.browser()).await;
        let sent = request_mail(&login, EN.forgot_password, nobody).await;
        assert_eq!((sent.status, sent.heading().as_str()), (200, EN.check_mail_title));
        assert!(sent.text().contains(nobody));
        let waiting = server
            .app
            .core
            .store
            .read_blocking(|snapshot| OUTBOX.count(snapshot));
        assert_eq!(waiting.unwrap(), 0);
        assert!(server.mails().await.is_empty());
        for _ in 0..5 {
            let wrong = enter_code(&sent, "000000").await;
            assert!(wrong.text().contains(EN.problem_code_wrong));
        }
        assert!(
            enter_code(&sent, "000000")
                .await
                .text()
                .contains(EN.problem_code_over)
        );
    }
}

#[tokio::test]
async fn a_code_is_void_after_five_wrong_ones_and_the_link_still_works() {
    let (server, acme, alice) = scene().await;
    let (sent, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    let wrong = if mail.code() == "123456" {
        "654321"
    } else {
        "123456"
    };
    for _ in 0..5 {
        assert!(
            enter_code(&sent, wrong)
                .await
                .text()
                .contains(EN.problem_code_wrong)
        );
    }
    let right = enter_code(&sent, &mail.code()).await;
    assert!(right.text().contains(EN.problem_code_over));
    let page = alice.browser().visit(&mail.link()).await;
    assert_eq!(choose(&page, NEW).await.page(), "/account");
}

/// The code of another browser's mail is worth nothing: what the browser keeps of the mail is bound to its sign-in.
#[tokio::test]
async fn a_code_works_only_in_the_browser_in_which_the_mail_was_requested() {
    let (server, acme, alice) = scene().await;
    let (sent, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    let thief = server.browser();
    let stolen = thief.visit(&sent.path).await;
    assert_eq!(stolen.status, 400);
    let own = begin(&acme, &thief).await;
    let own = request_mail(&own, EN.forgot_password, "nobody@example.com").await;
    let form = only_form(&own)
        .with("mail", only_form(&sent).value("mail").unwrap())
        .with("code", &mail.code());
    assert_eq!(thief.submit(&form).await.status, 400);
}

#[tokio::test]
async fn a_link_is_void_once_it_has_expired_or_the_password_or_the_address_has_changed() {
    let (server, acme, alice) = scene().await;
    for change in ["time", "password", "address", "disabled"] {
        let (_, mail) = ask_for_reset(&server, &acme, &server.browser(), "alice@example.com").await;
        let page = server.browser().visit(&mail.link()).await;
        assert_eq!(page.status, 200);
        match change {
            "time" => server.advance(HOUR),
            "password" => set_password(&server, "another good password").await,
            "address" => {
                let address = Some("new@example.com".to_owned());
                server.change_user(&alice, |user| user.email = address).await;
            }
            _ => server.change_user(&alice, |user| user.enabled = false).await,
        }
        let refused = choose(&page, NEW).await;
        assert_eq!(refused.heading(), EN.error_link, "{change}");
        server
            .change_user(&alice, |user| user.email = Some("alice@example.com".to_owned()))
            .await;
    }
    sweep_all(&server).await;
    server.advance(2 * HOUR);
    sweep_all(&server).await;
    let left = server
        .app
        .core
        .store
        .read_blocking(|snapshot| ONE_TIME_LINKS.count(snapshot));
    assert_eq!(left.unwrap(), 0, "expired links are removed");
}

async fn set_password(server: &Server, password: &str) {
    let request = user::SetPassword {
        who: "alice@example.com".to_owned(),
        password: user::NewPassword::Given(SecretString::new(password)),
        keep_sessions: true,
    };
    server.admin().call(request).await.unwrap();
}

/// Two clicks, or a link that was forwarded and used at the same time.
#[tokio::test]
async fn of_two_uses_at_once_one_wins() {
    let (server, acme, _alice) = scene().await;
    let (_, mail) = ask_for_reset(&server, &acme, &server.browser(), "alice@example.com").await;
    let (one, two) = (server.browser(), server.browser());
    let (one, two) = (one.visit(&mail.link()).await, two.visit(&mail.link()).await);
    let (one, two) = tokio::join!(choose(&one, NEW), choose(&two, "another good password"));
    let won = [&one, &two].map(|page| page.page() == "/account" && page.status == 200);
    assert!(won[0] != won[1], "{} {}", one.page(), two.page());
}

#[tokio::test]
async fn mails_are_limited_by_recipient_and_by_sender() {
    let (server, acme, _alice) = scene().await;
    let login = begin(&acme, &server.browser()).await;
    for attempt in 0..5 {
        let alias = [
            " Alice@Example.com",
            "alice+home@example.com",
            "ALICE+@example.com",
        ][attempt % 3];
        let page = request_mail(&login, EN.forgot_password, alias).await;
        let (status, shown) = if attempt < 4 {
            (200, "/check-mail")
        } else {
            (429, "/recover")
        };
        assert_eq!((page.status, page.page()), (status, shown), "{attempt}");
    }
    assert_eq!(server.mails().await.len(), 2, "nobody has the other addresses");
    for number in 0..6 {
        let page = request_mail(&login, EN.forgot_password, &format!("{number}@example.com")).await;
        assert_eq!(page.page(), "/check-mail");
    }
    let page = request_mail(&login, EN.forgot_password, "seven@example.com").await;
    assert_eq!((page.status, page.header("retry-after").is_some()), (429, true));
}

/// Nothing of the request makes a link, neither the host nor a forwarded header.
#[tokio::test]
async fn links_are_made_of_the_issuer_only() {
    let (server, acme, _alice) = scene().await;
    let login = begin(&acme, &server.browser()).await;
    let page = login
        .browser()
        .visit(&link_named(&login, EN.forgot_password))
        .await;
    let form = only_form(&page).with("address", "alice@example.com");
    let headers = [
        ("origin", ISSUER),
        ("sec-fetch-site", "same-origin"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "host=evil.example"),
    ];
    login.browser().submit_with(&form, &headers).await;
    let Content::ResetPassword { link, .. } = server.mail().await.message.content else {
        panic!("another mail");
    };
    assert!(
        link.starts_with(&format!("{ISSUER}/link?token=idsvc_li_")),
        "{link}"
    );
}

#[tokio::test]
async fn forms_from_other_pages_are_refused() {
    let (server, acme, _alice) = scene_with(open).await;
    let login = begin(&acme, &server.browser()).await;
    let browser = login.browser();
    let recover = only_form(&browser.visit(&link_named(&login, EN.forgot_password)).await);
    let sign_up = only_form(&browser.visit(&link_named(&login, EN.create_account)).await);
    for form in [
        recover.clone(),
        sign_up.clone(),
        recover.with("csrf", sign_up.value("csrf").unwrap()),
    ] {
        let form = form.with("address", "alice@example.com");
        let foreign = [
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "cross-site"),
        ];
        assert_eq!(browser.submit_with(&form, &foreign).await.status, 400);
        let without = form.without("csrf");
        assert_eq!(browser.submit(&without).await.status, 400);
    }
    assert!(server.mails().await.is_empty());
    let (_, mail) = ask_for_reset(&server, &acme, browser, "alice@example.com").await;
    let page = server.browser().visit(&mail.link()).await;
    let form = only_form(&page).with("new-password", NEW);
    let foreign = [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    assert_eq!(page.browser().submit_with(&form, &foreign).await.status, 400);
    assert_eq!(page.browser().submit(&form.without("csrf")).await.status, 400);
    assert_eq!(choose(&page, NEW).await.page(), "/account");
}

#[tokio::test]
async fn a_person_signs_up_and_comes_to_the_application_as_a_verified_user() {
    let (server, acme, _) = scene_with(open).await;
    let browser = server.browser();
    let audit = Audit::listen();
    let login = begin(&acme, &browser).await;
    let sent = request_mail(&login, EN.create_account, "bob@example.com").await;
    let mail = server.mail().await;
    let page = enter_code(&sent, &format!(" {} {}", &mail.code()[..3], &mail.code()[3..])).await;
    assert_eq!(page.heading(), EN.create_account);
    let form = only_form(&page)
        .with("name", "Bob <Builder>")
        .with("new-password", NEW);
    let done = browser.submit(&form).await;
    let code = done.callback().code();
    let tokens = acme.redeem(&code).await.tokens();
    let claims = acme.userinfo(tokens.access_token()).await.json();
    assert_eq!(
        (&claims["email"], &claims["email_verified"], &claims["name"]),
        (&"bob@example.com".into(), &true.into(), &"Bob <Builder>".into())
    );
    let events = audit.take(&["account_created"]);
    assert_eq!(
        (&events[0]["client_id"], &events[0]["invited"]),
        (&"acme".into(), &"false".into())
    );
    let again = begin(&acme, &server.browser()).await;
    again.type_in("bob@example.com", NEW).await.callback().code();
}

#[tokio::test]
async fn a_known_address_gets_a_mail_that_says_so_and_the_page_does_not() {
    let (server, acme, _alice) = scene_with(open).await;
    let login = begin(&acme, &server.browser()).await;
    let sent = request_mail(&login, EN.create_account, "ALICE@example.com").await;
    assert_eq!(sent.heading(), EN.check_mail_title);
    let mail = server.mail().await;
    assert!(
        matches!(mail.message.content, Content::AlreadySignedUp { .. }),
        "{mail:?}"
    );
    assert!(
        enter_code(&sent, "000000")
            .await
            .text()
            .contains(EN.problem_code_wrong)
    );
}

/// The person who opens the link chooses the password, so that nobody can prepare an account for another person's address.
#[tokio::test]
async fn a_sign_up_link_that_another_browser_opens_gives_the_first_one_nothing() {
    let (server, acme, _) = scene_with(open).await;
    let attacker = server.browser();
    let login = begin(&acme, &attacker).await;
    let sent = request_mail(&login, EN.create_account, "victim@example.com").await;
    let mail = server.mail().await;
    let victim = server.browser();
    let done = choose(&victim.visit(&mail.link()).await, NEW).await;
    assert_eq!(done.page(), "/account");
    assert!(
        enter_code(&sent, &mail.code())
            .await
            .text()
            .contains(EN.problem_code_over)
    );
    assert_eq!(attacker.visit("/account").await.page(), "/login");
}

#[tokio::test]
async fn an_address_that_was_taken_meanwhile_is_not_taken_over() {
    let (server, acme, _) = scene_with(open).await;
    let login = begin(&acme, &server.browser()).await;
    let sent = request_mail(&login, EN.create_account, "carol@example.com").await;
    let page = enter_code(&sent, &server.mail().await.code()).await;
    let carol = server.user("carol").await;
    let refused = choose(&page, NEW).await;
    assert_eq!(refused.heading(), EN.error_link);
    let login = begin(&acme, &carol.browser()).await;
    login.sign_in().await.callback().code();
}

#[tokio::test]
async fn only_allowed_addresses_sign_up() {
    let (server, acme, _) = scene_with(|policy| {
        open(policy);
        policy.accounts.allowed_domains = vec!["example.com".to_owned()];
    })
    .await;
    let fields = ProviderFields {
        issuer: Some("https://corp.example".to_owned()),
        client_id: Some("idsvc".to_owned()),
        domains: Some(vec!["example.com".to_owned()]),
        link: Some(LinkPolicy::VerifiedEmail),
        ..Default::default()
    };
    let login = begin(&acme, &server.browser()).await;
    for (address, problem) in [
        ("dan@elsewhere.example", EN.problem_address_not_allowed),
        ("dan", EN.problem_no_address),
        ("dan@example.com\r\nBcc: all@example.com", EN.problem_no_address),
    ] {
        let page = request_mail(&login, EN.create_account, address).await;
        assert!(page.text().contains(problem), "{address}");
    }
    server.provider("corp", fields).await;
    let page = request_mail(&login, EN.create_account, "dan@example.com").await;
    assert!(page.text().contains(EN.problem_address_at_provider));
    assert!(server.mails().await.is_empty());
}

#[tokio::test]
async fn without_verification_a_person_signs_up_without_a_mail() {
    let (server, acme, _alice) = scene_with(|policy| {
        open(policy);
        policy.accounts.verify_email = false;
        policy.sends_mail = false;
    })
    .await;
    let login = begin(&acme, &server.browser()).await;
    let taken = request_mail(&login, EN.create_account, "alice@example.com").await;
    assert!(taken.text().contains(EN.problem_address_taken));
    let page = request_mail(&login, EN.create_account, "erin@example.com").await;
    let done = choose(&page, NEW).await;
    let tokens = acme.redeem(&done.callback().code()).await.tokens();
    let claims = acme.userinfo(tokens.access_token()).await.json();
    assert_eq!(claims["email_verified"], false);
}

#[tokio::test]
async fn a_client_can_send_a_person_straight_to_the_page_for_a_new_account() {
    let (server, acme, alice) = scene_with(open).await;
    let request = acme.request().with("prompt", "create");
    let page = server.browser().authorize(&request).await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/sign-up", EN.create_account)
    );
    let login = page.browser().visit(&link_named(&page, EN.back_to_sign_in)).await;
    assert_eq!(login.page(), "/login");
    let browser = alice.browser();
    acme.code(&browser).await;
    assert_eq!(
        browser.authorize(&request).await.page(),
        "/sign-up",
        "although a session is live"
    );
    let discovery = server.get("/.well-known/openid-configuration").await.json();
    let values = discovery["prompt_values_supported"].as_array().unwrap().clone();
    assert!(values.contains(&"create".into()));

    let (closed, acme, _) = scene().await;
    assert_eq!(
        closed
            .browser()
            .authorize(&acme.request().with("prompt", "create"))
            .await
            .page(),
        "/login"
    );
    assert_eq!(closed.get("/sign-up").await.status, 404);
}

async fn invite(server: &Server, email: &str, groups: &[&str]) -> LinkView {
    let request = InviteUser {
        email: email.to_owned(),
        groups: groups.iter().map(|name| (*name).to_owned()).collect(),
        client_id: Some("acme".to_owned()),
    };
    server.admin().call(request).await.unwrap()
}

#[tokio::test]
async fn an_invited_person_creates_an_account_in_the_groups_of_the_invitation() {
    let (server, acme, _) = scene_with(|policy| policy.accounts.sign_up = SignUp::Invitation).await;
    let add = AddGroup {
        name: "staff".to_owned(),
        fields: GroupFields::default(),
    };
    server.admin().call(add).await.unwrap();
    let view = invite(&server, "frank@example.com", &["staff"]).await;
    assert_eq!(
        (view.sent_to.as_deref(), view.link.is_none()),
        (Some("frank@example.com"), true)
    );
    let mail = server.mail().await;
    let browser = server.browser();
    let page = browser.visit(&mail.link()).await;
    assert_eq!(page.heading(), EN.create_account);
    let form = only_form(&page).with("new-password", NEW);
    let done = browser.submit(&form).await;
    assert_eq!(done.location(), "https://acme.example");
    let code = acme.code(&browser).await;
    let user = server
        .admin()
        .call(user::ShowUser {
            who: "frank@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(
        (user.groups, user.email_verified),
        (["staff".to_owned()].into(), true)
    );
    assert!(!code.is_empty());
    assert_eq!(
        server.browser().visit(&mail.link()).await.heading(),
        EN.error_link
    );
    let login = begin(&acme, &server.browser()).await;
    assert!(!login.text().contains(EN.create_account), "sign-up is not open");
}

#[tokio::test]
async fn the_operator_resets_a_password_by_a_printed_link() {
    let (server, acme, alice) = scene().await;
    let request = |mail| ResetUser {
        who: "alice@example.com".to_owned(),
        mail,
    };
    let printed = server.admin().call(request(false)).await.unwrap();
    let link = printed
        .link
        .unwrap()
        .reveal()
        .strip_prefix(ISSUER)
        .unwrap()
        .to_owned();
    assert!(server.mails().await.is_empty());
    acme.code(&alice.browser()).await;
    let browser = server.browser();
    assert_eq!(choose(&browser.visit(&link).await, NEW).await.page(), "/account");
    server.mails().await;
    let sent = server.admin().call(request(true)).await.unwrap();
    assert_eq!(
        (sent.sent_to.as_deref(), sent.link),
        (Some("alice@example.com"), None)
    );
    assert!(server.mail().await.link().starts_with("/link?token="));
}

#[tokio::test]
async fn a_locked_user_loses_sessions_and_grants_at_once() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.redeem(&acme.code(&browser).await).await.tokens();
    let (_, mail) = ask_for_reset(&server, &acme, &server.browser(), "alice@example.com").await;
    let locked = server
        .admin()
        .call(user::LockUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(locked.sessions_ended, 1);
    assert!(locked.access_tokens_expire_at > server.clock.now());
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
    assert_eq!(browser.visit("/account").await.page(), "/login");
    let refused = server.browser().visit(&mail.link()).await;
    assert_eq!((refused.status, refused.heading().as_str()), (400, EN.error_link));
    server
        .admin()
        .call(user::EnableUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    let page = server.browser().visit(&mail.link()).await;
    assert_eq!(choose(&page, NEW).await.page(), "/account", "it was not used up");
}

#[tokio::test]
async fn a_new_browser_is_noticed_once_and_the_user_secures_the_account() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let mail = server.mail().await;
    let Content::NewDevice { at, .. } = mail.message.content else {
        panic!("{mail:?}");
    };
    assert_eq!(
        (mail.message.to.as_str(), at),
        ("alice@example.com", server.clock.now())
    );
    browser
        .authorize(&acme.request().with("prompt", "login"))
        .await
        .sign_in()
        .await;
    assert!(server.mails().await.is_empty(), "the browser is known now");

    let thief = server.browser();
    let stolen = begin(&acme, &thief).await;
    let stolen = stolen
        .type_in("alice@example.com", &alice.password)
        .await
        .callback()
        .code();
    let stolen = acme.redeem(&stolen).await.tokens();
    let mail = server.mail().await;
    let phone = server.browser();
    let audit = Audit::listen();
    let page = phone.visit(&mail.link()).await;
    assert_eq!(page.heading(), EN.secure_account);
    assert!(acme.is_welcome(&stolen).await, "to open the link changes nothing");
    let secured = phone.submit(&only_form(&page)).await;
    assert_eq!(secured.heading(), EN.secured_title);
    assert_eq!(audit.take(&["account_secured"]).len(), 1);
    assert_eq!(thief.visit("/account").await.page(), "/login");
    assert_eq!(
        acme.refresh(stolen.refresh_token()).await.error(),
        "invalid_grant"
    );
    let old = begin(&acme, &server.browser()).await;
    let old = old.type_in("alice@example.com", &alice.password).await;
    assert!(old.text().contains(EN.problem_credentials));
    assert_eq!(phone.visit(&mail.link()).await.heading(), EN.error_link);
    let reset = server.mail().await;
    let done = choose(&phone.visit(&reset.link()).await, NEW).await;
    assert_eq!(done.page(), "/account");
    assert!(matches!(
        server.mail().await.message.content,
        Content::PasswordChanged { .. }
    ));
}

#[tokio::test]
async fn notices_of_new_browsers_are_limited_for_each_user() {
    let (server, acme, alice) = scene().await;
    for _ in 0..6 {
        begin(&acme, &server.browser())
            .await
            .type_in("alice@example.com", &alice.password)
            .await;
    }
    assert_eq!(server.mails().await.len(), 4);
}

pub(crate) fn by_mail(policy: &mut Policy) {
    policy.accounts.email_sign_in = true;
}

#[tokio::test]
async fn a_user_signs_in_by_the_code_of_a_mail() {
    let (server, acme, alice) = scene_with(by_mail).await;
    let audit = Audit::listen();
    let login = begin(&acme, &server.browser()).await;
    let sent = request_mail(&login, EN.sign_in_by_mail, "alice@example.com").await;
    let mail = server.mail().await;
    let done = enter_code(&sent, &mail.code()).await;
    let tokens = acme.redeem(&done.callback().code()).await.tokens();
    assert_eq!(tokens.id().claims["amr"], serde_json::json!(["otp"]));
    assert_eq!(tokens.id().claims["sub"], alice.sub());
    assert_eq!(tokens.0["amr"][0]["authority"], "email");
    assert_eq!(audit.take(&["signed_in"])[0]["authority"], "email");
    assert_eq!(
        server.browser().visit(&mail.link()).await.heading(),
        EN.error_link
    );
    assert!(acme.refresh(tokens.refresh_token()).await.status == 200);
}

/// Otherwise an attacker could forward a link to the attacker's own account.
#[tokio::test]
async fn a_sign_in_link_works_only_in_the_browser_in_which_it_was_requested() {
    let (server, acme, _alice) = scene_with(by_mail).await;
    let browser = server.browser();
    let login = begin(&acme, &browser).await;
    request_mail(&login, EN.sign_in_by_mail, "alice@example.com").await;
    let mail = server.mail().await;
    let phone = server.browser();
    let refused = phone.visit(&mail.link()).await;
    assert_eq!(
        (refused.status, refused.heading().as_str()),
        (400, EN.error_other_browser)
    );
    let own = begin(&acme, &phone).await;
    let transaction = own.login_form().value("transaction").unwrap().to_owned();
    let forced = phone
        .visit(&format!("{}&transaction={transaction}", mail.link()))
        .await;
    let over = phone.submit(&only_form(&forced)).await;
    assert_eq!(over.heading(), EN.error_link);
    assert_eq!(phone.visit("/account").await.page(), "/login");
    let page = browser.visit(&mail.link()).await;
    browser.submit(&only_form(&page)).await.callback().code();
}

#[tokio::test]
async fn a_link_that_is_opened_in_the_same_browser_continues_to_the_application() {
    let (server, acme, _alice) = scene_with(|policy| {
        by_mail(policy);
        open(policy);
    })
    .await;
    for (link, address, heading) in [
        (EN.sign_in_by_mail, "alice@example.com", EN.sign_in),
        (EN.forgot_password, "alice@example.com", EN.new_password_title),
        (EN.create_account, "gina@example.com", EN.create_account),
    ] {
        let browser = server.browser();
        let login = begin(&acme, &browser).await;
        request_mail(&login, link, address).await;
        let mail = server.mails().await.pop().unwrap();
        let page = browser.visit(&mail.link()).await;
        assert_eq!((page.status, page.heading().as_str()), (200, heading));
        let form = only_form(&page).with("new-password", NEW);
        browser.submit(&form).await.callback().code();
        server.mails().await;
    }
}

/// The application of a device with an anonymous user, which sends the person to the page for a new account.
async fn sign_up_of_device(server: &Server, acme: &RelyingParty, browser: &Browser) -> (Tokens, Screen) {
    server.change_client(acme, opted_in).await;
    let before = device(acme).await;
    let request = pushed(acme, before.refresh_token()).await;
    let login = browser.authorize(&request).await;
    let sent = request_mail(&login, EN.create_account, "hanna@example.com").await;
    (before, sent)
}

#[tokio::test]
async fn a_person_who_began_as_an_anonymous_user_signs_up_and_keeps_the_sub() {
    let (server, acme, _) = scene_with(open).await;
    let browser = server.browser();
    let (before, sent) = sign_up_of_device(&server, &acme, &browser).await;
    let page = enter_code(&sent, &server.mail().await.code()).await;
    let tokens = acme
        .redeem(&choose(&page, NEW).await.callback().code())
        .await
        .tokens();
    assert_eq!(tokens.id().claims["sub"], before.0["uuid"]);
    assert!(tokens.access().claims.get("anonymous_sub").is_none());
    let after = acme.refresh(before.refresh_token()).await.tokens();
    assert_eq!(
        (&after.0["uuid"], &after.0["user_type"]),
        (&before.0["uuid"], &"user".into())
    );
    acme.refresh(after.refresh_token()).await.tokens();
    assert_eq!(
        acme.refresh(before.refresh_token()).await.error(),
        "invalid_grant"
    );
    let user = server
        .admin()
        .call(user::ShowUser {
            who: "hanna@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!((user.source.as_str(), user.email_verified), ("LOCAL", true));
}

/// Otherwise an attacker could push the token of their own device, and have the link sent to a victim.
#[tokio::test]
async fn a_sign_up_link_that_another_browser_opens_does_not_become_the_account_of_the_device() {
    let (server, acme, _) = scene_with(open).await;
    let (before, _) = sign_up_of_device(&server, &acme, &server.browser()).await;
    let victim = server.browser();
    let page = victim.visit(&server.mail().await.link()).await;
    assert_eq!(choose(&page, NEW).await.page(), "/account");
    let user = server
        .admin()
        .call(user::ShowUser {
            who: "hanna@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_ne!(user.uuid.to_string(), before.0["uuid"].as_str().unwrap());
    let after = acme.refresh(before.refresh_token()).await.tokens();
    assert_eq!(after.0["user_type"], "anonymous");
}

/// Another person may have made the account, and may know its password. A new password ends all that.
#[tokio::test]
async fn no_mail_signs_in_a_user_of_a_provider_or_with_an_unverified_address() {
    let (server, acme, alice) = scene_with(by_mail).await;
    for source in ["LOCAL", "corp"] {
        server
            .change_user(&alice, |user| {
                user.email_verified = source == "corp";
                user.source = source.to_owned();
            })
            .await;
        let login = begin(&acme, &server.browser()).await;
        let sent = request_mail(&login, EN.sign_in_by_mail, "alice@example.com").await;
        assert_eq!(sent.heading(), EN.check_mail_title);
        assert!(server.mails().await.is_empty(), "{source}");
    }
}

/// People press a button twice, and answers are lost.
#[tokio::test]
async fn a_right_code_may_be_typed_again_until_its_link_is_used() {
    let (server, acme, alice) = scene().await;
    let (sent, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    let first = enter_code(&sent, &mail.code()).await;
    let second = enter_code(&sent, &mail.code()).await;
    assert_eq!(choose(&first, NEW).await.heading(), EN.error_link);
    choose(&second, NEW).await.callback().code();
    let row = only_form(&sent).with("code", &mail.code());
    let third = sent.browser().submit(&row).await;
    assert!(!third.text().contains(EN.new_password_title));
}

#[tokio::test]
async fn wrong_codes_of_many_mails_are_counted_for_the_user() {
    let (server, acme, alice) = scene().await;
    let audit = Audit::listen();
    for _ in 0..20 {
        let (sent, mail) = ask_for_reset(&server, &acme, &server.browser(), "alice@example.com").await;
        let wrong = if mail.code() == "123456" {
            "654321"
        } else {
            "123456"
        };
        for _ in 0..5 {
            enter_code(&sent, wrong).await;
        }
        server.advance(5 * HOUR);
    }
    assert_eq!(audit.take(&["sign_in_failed"]).len(), 100);
    let (sent, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    let refused = enter_code(&sent, &mail.code()).await;
    assert!(refused.text().contains(EN.problem_code_wrong));
    let page = server.browser().visit(&mail.link()).await;
    assert_eq!(choose(&page, NEW).await.page(), "/account");
    server.advance(15 * 60);
    let (sent, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    assert_eq!(enter_code(&sent, &mail.code()).await.page(), "/link");
}

#[tokio::test]
async fn a_sign_up_that_is_refused_leaves_the_device_its_anonymous_user() {
    let (server, acme, _) = scene_with(open).await;
    let (before, sent) = sign_up_of_device(&server, &acme, &server.browser()).await;
    let page = enter_code(&sent, &server.mail().await.code()).await;
    server.user("hanna").await;
    assert_eq!(choose(&page, NEW).await.heading(), EN.error_link);
    let after = acme.refresh(before.refresh_token()).await.tokens();
    assert_eq!(after.0["user_type"], "anonymous");
}

#[tokio::test]
async fn a_notice_to_an_earlier_address_secures_nothing() {
    let (server, acme, alice) = scene().await;
    acme.code(&alice.browser()).await;
    let mail = server.mail().await;
    let page = server.browser().visit(&mail.link()).await;
    server
        .change_user(&alice, |user| user.email = Some("new@example.com".to_owned()))
        .await;
    let refused = page.browser().submit(&only_form(&page)).await;
    assert_eq!(refused.heading(), EN.error_link);
}

#[tokio::test]
async fn a_secured_user_whose_mail_expired_requests_another_one() {
    let (server, acme, alice) = scene().await;
    acme.code(&alice.browser()).await;
    let notice = server.mail().await;
    let page = server.browser().visit(&notice.link()).await;
    page.browser().submit(&only_form(&page)).await;
    let expired = server.mail().await;
    server.advance(25 * HOUR);
    let over = server.browser().visit(&expired.link()).await;
    assert_eq!(over.heading(), EN.error_link);
    let (sent, mail) = ask_for_reset(&server, &acme, &server.browser(), "alice@example.com").await;
    let page = enter_code(&sent, &mail.code()).await;
    choose(&page, NEW).await.callback().code();
}

#[tokio::test]
async fn a_user_who_must_change_the_password_chooses_another_one_before_the_application_opens() {
    let (server, acme, alice) = scene().await;
    server
        .change_user(&alice, |user| user.must_change_password = true)
        .await;
    let browser = server.browser();
    let login = begin(&acme, &browser).await;
    let page = login.type_in("alice@example.com", &alice.password).await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/link", EN.new_password_title)
    );
    assert_eq!(
        browser.fetch("/account").await.status,
        303,
        "nobody is signed in yet"
    );
    assert!(
        page.text()
            .contains("You have to choose another one before you go on.")
    );
    let forms = page.forms();
    let link = format!("/link?token={}", forms[0].value("token").unwrap());
    let elsewhere = server.browser().visit(&link).await;
    assert_eq!(elsewhere.heading(), EN.error_link, "it belongs to this sign-in");
    let same = choose(&page, &alice.password).await;
    assert!(same.text().contains(EN.problem_same_password));
    choose(&same, NEW).await.callback().code();
    let again = begin(&acme, &server.browser()).await;
    again.type_in("alice@example.com", NEW).await.callback().code();
}

#[tokio::test]
async fn a_wrong_password_does_not_tell_that_the_user_must_change_it() {
    let (server, acme, alice) = scene().await;
    server
        .change_user(&alice, |user| user.must_change_password = true)
        .await;
    let login = begin(&acme, &server.browser()).await;
    let refused = login.type_in("alice@example.com", "wrong").await;
    assert!(refused.text().contains(EN.problem_credentials));
    assert_eq!(server.mails().await.len(), 0);
}

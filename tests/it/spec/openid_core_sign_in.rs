//! OpenID Connect Core 1.0 section 3.1.2.3: the sign-in page, and who may not get past it.

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::time::Duration;

use idsvc::flow::browser::Browser as Sender;
use idsvc::flow::login::password::{PasswordCredentials, SignIn, sign_in};
use idsvc::flow::login::transaction;
use idsvc::flow::login::transaction::{BrowserLogin, LoginTransactionError};
use idsvc::flow::users::user_named;
use idsvc::identity::{Device, LoginName, User};
use idsvc::limit::password_attempt::PasswordAttempt;
use idsvc::oauth::Client;
use idsvc::oauth::client::ConsentRequirement;
use idsvc::password::{Memory, PasswordParams, PasswordPool, PoolSize, hash};
use idsvc::secret::{Secret, SessionCookie};
use idsvc::store::StoreError;
use idsvc::store::engine::Tx;
use idsvc::store::tables::{CLIENTS, USERS};
use zeroize::Zeroizing;

use crate::harness::{Audit, Browser, ISSUER, Person, RelyingParty, Screen, Server, scene};

const SESSION: &str = "__Host-idsvc_session";
const BINDING: &str = "__Host-idsvc_browser";

async fn is_signed_in(browser: &Browser, acme: &RelyingParty) -> bool {
    let callback = browser
        .authorize(&acme.request().with("prompt", "none"))
        .await
        .callback();
    callback.get("error").is_none()
}

/// The page is a plain form that works without scripts, in words that people and programs know.
#[tokio::test]
async fn the_sign_in_page_is_a_plain_form() {
    let (_server, acme, alice) = scene().await;
    let page = alice.browser().authorize(&acme.request()).await;
    assert_eq!(
        (page.status, page.page(), page.heading().as_str()),
        (200, "/login", "Sign in")
    );
    let form = page.login_form();
    assert_eq!((form.method.as_str(), form.action.as_str()), ("post", "/login"));
    assert_eq!(
        (form.value("username"), form.value("password")),
        (Some(""), Some(""))
    );
    for part in [
        "id=\"username\"",
        "id=\"password\"",
        "type=\"password\"",
        "type=\"submit\"",
    ] {
        assert_eq!(page.text().matches(part).count(), 1, "{part}");
    }
    assert_eq!(page.text().matches("<script").count(), 1);
    assert!(
        page.text().contains("<script src=\"/assets/login."),
        "it shows passwords"
    );
}

/// Sections 16.2 and 16.20, RFC 6749 section 10.13: no frame, no cache, no address in the referrer, nothing
/// from elsewhere.
#[tokio::test]
async fn pages_carry_the_headers_that_protect_them() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let login = browser.authorize(&acme.request()).await;
    let consent = browser
        .authorize(&acme.request().with("prompt", "consent"))
        .await
        .sign_in()
        .await;
    let error = browser.visit("/oauth2/authorize").await;
    for page in [login, consent, error] {
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; ") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(page.header("referrer-policy"), Some("strict-origin"));
        assert_eq!(
            page.header("permissions-policy"),
            Some("camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
        );
        assert!(page.is_not_stored());
    }
}

/// RFC 6265bis section 4.1.3: the cookies are for this host, over TLS, out of the reach of scripts, and those of
/// a session end with the browser. (Every test checks the first three.)
#[tokio::test]
async fn cookies_are_set_when_they_are_needed_and_no_sooner() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = browser.fetch(&acme.request().path()).await;
    let [binding] = page.cookies()[..] else {
        panic!("{:?}", page.cookies())
    };
    assert!(binding.starts_with("__Host-idsvc_browser=idsvc_br_"), "{binding}");
    assert!(
        binding.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=31536000"),
        "{binding}: several tabs of a browser that begins have one"
    );
    let page = page.follow().await;
    assert!(page.cookies().is_empty());
    let again = browser.fetch(&acme.request().path()).await;
    assert!(again.cookies().is_empty(), "one browser, one binding");
    let signed_in = page.sign_in().await;
    let [session, known] = signed_in.cookies()[..] else {
        panic!("{:?}", signed_in.cookies())
    };
    assert!(known.starts_with("__Host-idsvc_known="), "{known}");
    assert!(
        known.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=31536000"),
        "{known}"
    );
    assert!(session.starts_with("__Host-idsvc_session=idsvc_se_"), "{session}");
    assert!(
        session.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"),
        "{session}"
    );
}

/// An attacker learns nothing from a failure: a wrong password, an unknown name and a disabled user look the same.
#[tokio::test]
async fn a_wrong_password_an_unknown_name_and_a_disabled_user_look_alike() {
    let (server, acme, alice) = scene().await;
    let bob = server.user_with("bob", |user| user.enabled = false).await;
    let carol = server.user_with("carol", |user| user.password = None).await;
    let mut pages = Vec::new();
    for (username, password) in [
        ("alice@example.com", "wrong password"),
        ("nobody@example.com", "wrong password"),
        ("bob@example.com", bob.password.as_str()),
        ("carol@example.com", carol.password.as_str()),
        ("alice@example.com", bob.password.as_str()),
    ] {
        let browser = alice.browser();
        let page = browser
            .authorize(&acme.request())
            .await
            .type_in(username, password)
            .await;
        assert_eq!(
            (page.status, page.login_form().value("username")),
            (200, Some(username))
        );
        assert_eq!(page.login_form().value("password"), Some(""));
        assert!(page.text().contains("role=\"alert\""));
        assert_eq!(browser.cookie(SESSION), None);
        pages.push(page.shown());
    }
    assert!(pages.windows(2).all(|pair| pair[0] == pair[1]));
    let page = alice
        .browser()
        .authorize(&acme.request())
        .await
        .type_in("alice@example.com", "wrong")
        .await;
    page.sign_in().await.callback().code();
}

/// A name is recognised however it is written, and so is the account identifier.
#[tokio::test]
async fn a_user_is_found_by_address_or_account_in_any_case() {
    let (server, acme, _alice) = scene().await;
    let dora = server
        .user_with("dora", |user| user.account_id = "Dora-7".to_owned())
        .await;
    for name in ["dora@example.com", " DORA@Example.COM ", "Dora-7", "dora-7"] {
        let page = dora.browser().authorize(&acme.request()).await;
        let tokens = acme
            .redeem(&page.type_in(name, &dora.password).await.callback().code())
            .await
            .tokens();
        assert_eq!(
            (&tokens.0["uuid"], &tokens.0["account_id"]),
            (&dora.sub().into(), &"Dora-7".into())
        );
    }
}

/// Passwords of any length and any character are compared, and never cut.
#[tokio::test]
async fn odd_passwords_are_refused_like_others() {
    let (_server, acme, alice) = scene().await;
    let longer = format!("{}x", alice.password);
    for password in [
        "",
        "é\u{0}\r\n",
        &"x".repeat(60_000),
        &longer,
        &longer[..longer.len() - 2],
    ] {
        let page = alice
            .browser()
            .authorize(&acme.request())
            .await
            .type_in("alice@example.com", password)
            .await;
        assert_eq!((page.status, page.page()), (200, "/login"));
    }
}

/// RFC 6749 section 10.12: a form that did not come from our page signs nobody in.
#[tokio::test]
async fn a_form_without_our_token_signs_nobody_in() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let filled = |screen: &Screen| {
        screen
            .login_form()
            .with("username", "alice@example.com")
            .with("password", &alice.password)
    };
    let page = browser.authorize(&acme.request()).await;
    let foreign = alice.browser().authorize(&acme.request()).await;
    let other = browser.authorize(&acme.request()).await;
    for form in [
        filled(&page).without("csrf"),
        filled(&page).with("csrf", "AAAA"),
        filled(&page).with("csrf", foreign.login_form().value("csrf").unwrap()),
        filled(&page).with("csrf", other.login_form().value("csrf").unwrap()),
    ] {
        let refused = browser.submit(&form).await;
        assert_eq!((refused.status, refused.page()), (400, "/login"));
        assert_eq!(browser.cookie(SESSION), None);
    }
    let refused = browser.submit(&filled(&page).without("csrf")).await;
    refused.sign_in().await.callback().code();
}

/// RFC 6749 section 10.12: nor does one that another site sent. A browser that says nothing is old.
#[tokio::test]
async fn a_form_from_another_site_signs_nobody_in() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await;
    let form = page
        .login_form()
        .with("username", "alice@example.com")
        .with("password", &alice.password);
    for headers in [
        &[
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "cross-site"),
        ][..],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://id.example.test")],
        &[("origin", ISSUER), ("sec-fetch-site", "same-site")],
    ] {
        let refused = browser.submit_with(&form, headers).await;
        assert_eq!(
            (refused.status, refused.header("location")),
            (400, None),
            "{headers:?}"
        );
        assert_eq!(browser.cookie(SESSION), None);
    }
    browser.submit_with(&form, &[]).await.callback().code();
}

/// RFC 9700 section 4.7: a link to a sign-in under way is good in the browser it was begun in.
#[tokio::test]
async fn a_stolen_sign_in_link_gives_nothing() {
    let (server, acme, alice) = scene().await;
    let mallory = server.user("mallory").await;
    let other = format!("400 {}", LoginTransactionError::OtherBrowser);
    let page = alice.browser().authorize(&acme.request()).await;
    let thief = mallory.browser();
    assert_eq!(thief.visit(&page.path).await.error_page(), other);
    acme.code(&thief).await;
    assert_eq!(thief.visit(&page.path).await.error_page(), other);
    let form = page
        .login_form()
        .with("username", "mallory@example.com")
        .with("password", &mallory.password);
    assert_eq!(thief.submit(&form).await.error_page(), other);
    page.sign_in().await.callback().code();
}

/// Session fixation: what a browser had before it signed in is worth nothing after, and what it had before it
/// signed in again neither.
#[tokio::test]
async fn the_session_cookie_changes_with_every_sign_in() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let before = browser.cookie(SESSION).unwrap();
    let thief = alice.browser();
    thief.set_cookie(SESSION, &before);
    assert!(is_signed_in(&thief, &acme).await);
    browser
        .authorize(&acme.request().with("prompt", "login"))
        .await
        .sign_in()
        .await
        .callback()
        .code();
    assert_ne!(browser.cookie(SESSION).unwrap(), before);
    assert!(is_signed_in(&browser, &acme).await);
    assert!(!is_signed_in(&thief, &acme).await);
    let after = browser.cookie(SESSION).unwrap();
    browser.visit("/oauth2/logout").await.decide("logout").await;
    thief.set_cookie(SESSION, &after);
    assert!(
        !is_signed_in(&thief, &acme).await,
        "signing out ends the session itself"
    );
}

/// One browser, one user: signing in as another user ends the earlier session and its grants.
#[tokio::test]
async fn signing_in_as_another_user_ends_the_session_before() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let browser = alice.browser();
    let alices = acme.tokens(&browser).await;
    let cookie = browser.cookie(SESSION).unwrap();
    let page = browser.authorize(&acme.request().with("prompt", "login")).await;
    let audit = Audit::listen();
    let code = page
        .type_in("bob@example.com", &bob.password)
        .await
        .callback()
        .code();
    let ended = audit.take(&["signed_out"]);
    assert_eq!(ended.len(), 1);
    assert_eq!(
        (&ended[0]["user"], &ended[0]["session"]),
        (&alices.id().claims["sub"], &alices.id().claims["sid"])
    );
    let bobs = acme.redeem(&code).await.tokens();
    assert_ne!(alices.id().claims["sid"], bobs.id().claims["sid"]);
    assert!(acme.is_welcome(&bobs).await && !acme.is_welcome(&alices).await);
    let thief = alice.browser();
    thief.set_cookie(SESSION, &cookie);
    assert!(!is_signed_in(&thief, &acme).await);
}

/// A cookie that nobody gave out is as good as none.
#[tokio::test]
async fn an_invented_cookie_is_no_session() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let genuine = browser.cookie(SESSION).unwrap();
    let mut changed = genuine.clone();
    changed.replace_range(50..51, if &genuine[50..51] == "A" { "B" } else { "A" });
    let twice = format!("{genuine}; {SESSION}={changed}");
    for invented in ["x", "", &changed, &genuine[..genuine.len() - 1], &twice] {
        browser.set_cookie(SESSION, invented);
        assert!(!is_signed_in(&browser, &acme).await, "{invented}");
    }
    // Who knows the id of a session, which ID tokens carry as sid, can make up the rest in the right form.
    let session = Secret::<SessionCookie>::parse(&genuine).unwrap();
    let forged = Secret::<SessionCookie>::assemble(session.locator(), &[7; 32]);
    browser.set_cookie(SESSION, forged.reveal());
    assert!(!is_signed_in(&browser, &acme).await, "of a session that exists");
    browser.set_cookie(SESSION, &genuine);
    browser.set_cookie(BINDING, "x");
    assert!(is_signed_in(&browser, &acme).await);
    let page = browser.authorize(&acme.request().with("prompt", "login")).await;
    page.sign_in().await.callback().code();
}

/// The user record is checked once more in the transaction that signs the user in.
#[tokio::test]
async fn a_user_who_changes_while_the_password_is_checked_is_not_signed_in() {
    let changes: [fn(&mut User); 2] = [|user| user.enabled = false, |user| user.password = None];
    for change in changes {
        let (server, acme, alice) = scene().await;
        let mut user = alice.user.clone();
        change(&mut user);
        let write = move |tx: &mut dyn Tx| USERS.put(tx, &user.uuid, &user);
        let outcome = sign_in_behind(&server, &acme, &alice, write).await;
        assert!(matches!(outcome, SignIn::Refused), "{outcome:?}");
    }
}

/// The first of two forms that a hasty hand sends makes the hash anew; the second has checked the one before.
#[tokio::test]
async fn a_hash_that_is_made_anew_while_the_password_is_checked_keeps_nobody_out() {
    let (server, acme, alice) = scene().await;
    let params = server.app.core.passwords.params();
    let mut user = alice.user.clone();
    user.password = Some(hash(params, alice.password.as_bytes(), [9; 16], &mut Memory::default()).unwrap());
    let write = move |tx: &mut dyn Tx| USERS.put(tx, &user.uuid, &user);
    let outcome = sign_in_behind(&server, &acme, &alice, write).await;
    assert!(matches!(outcome, SignIn::Done { .. }), "{outcome:?}");
}

/// The client record is checked once more too.
#[tokio::test]
async fn a_client_that_changes_while_the_password_is_checked_gets_no_code_for_what_it_was() {
    let changes: [fn(&mut Client); 3] = [
        |client| client.enabled = false,
        |client| client.redirect_uris = vec!["https://acme.example/new".to_owned()],
        |client| client.password_sign_in = false,
    ];
    for change in changes {
        let (server, acme, alice) = scene().await;
        let mut client = Client::clone(&server.app.core.catalog().client("acme").unwrap());
        change(&mut client);
        let write = move |tx: &mut dyn Tx| CLIENTS.put(tx, "acme", &client);
        let outcome = sign_in_behind(&server, &acme, &alice, write).await;
        assert!(matches!(outcome, SignIn::Expired), "{outcome:?}");
    }
}

/// What comes of a sign-in when this is written after it was looked at, and before it is written itself.
async fn sign_in_behind(
    server: &Server,
    acme: &RelyingParty,
    alice: &Person,
    change: impl Fn(&mut dyn Tx) -> Result<(), StoreError> + Send + 'static,
) -> SignIn {
    let browser = alice.browser();
    let form = browser.authorize(&acme.request()).await.login_form();
    let core = &server.app.core;
    let now = core.clock.now();
    let binding = browser.cookie(BINDING);
    let here = Sender::of(None, binding.as_deref(), Device::default());
    let sealed = form.value("transaction").unwrap();
    let login = transaction::load_login(core, &here, sealed, None, |_| Ok(()), now)
        .await
        .unwrap();
    let name = LoginName::new("alice@example.com");
    let user = user_named(core, &name).await.unwrap();
    let credentials = PasswordCredentials {
        takes_passkey_offer: false,
        name,
        password: Zeroizing::new(alice.password.clone()),
        from: Ipv4Addr::LOCALHOST.into(),
        sends_notice: false,
    };
    let attempt = PasswordAttempt::trusted();
    let (go, wait) = mpsc::channel();
    let at = BrowserLogin {
        core,
        browser: &here,
        login: &login,
        now,
    };
    let (changed, signed_in, ()) = tokio::join!(
        biased;
        core.store.write("test_change", move |tx| {
            // The sign-in has read the record at this point, and its own write waits behind this one.
            let _ = wait.recv();
            change(tx)
        }),
        sign_in(at, user, &credentials, &attempt),
        async { go.send(()).unwrap() },
    );
    changed.unwrap();
    signed_in.unwrap()
}

/// A sign-in has half an hour.
#[tokio::test]
async fn a_sign_in_left_alone_expires() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await;
    let in_time = browser.authorize(&acme.request()).await;
    server.advance(1_799);
    in_time.sign_in().await.callback().code();
    server.advance(1);
    let late = page.sign_in().await;
    assert_eq!(
        late.error_page(),
        format!("400 {}", LoginTransactionError::Expired)
    );
}

/// A form sent twice by a hasty hand is answered twice, since the browser shows the second answer; going back later
/// and sending it again brings nothing.
#[tokio::test]
async fn a_finished_sign_in_is_answered_once_more_and_then_no_more() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await;
    page.clone().sign_in().await.callback().code();
    let second = page.clone().sign_in().await.callback().code();
    acme.redeem(&second).await.tokens();
    server.advance(10);
    let expired = format!("400 {}", LoginTransactionError::Expired);
    assert_eq!(page.clone().sign_in().await.error_page(), expired);
    assert_eq!(browser.visit(&page.path).await.error_page(), expired);
}

/// An answer that never arrived set no session cookie. A user who authenticates again gets a new answer while the request
/// is valid.
#[tokio::test]
async fn a_sign_in_whose_answer_was_lost_is_gone_through_again() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await;
    for _ in 0..2 {
        page.clone().sign_in().await.callback().code();
        browser.set_cookie(SESSION, "lost");
        server.advance(60);
        assert_eq!(browser.visit(&page.path).await.page(), "/login");
    }
    let code = page.clone().sign_in().await.callback().code();
    acme.redeem(&code).await.tokens();
    browser.visit(&page.path).await.callback().code();
    server.advance(10);
    let expired = format!("400 {}", LoginTransactionError::Expired);
    assert_eq!(page.clone().sign_in().await.error_page(), expired);
    browser.set_cookie(SESSION, "lost");
    server.advance(1_800);
    assert_eq!(page.sign_in().await.error_page(), expired);
}

/// The history of a shared browser may hold a form with a password, such as one that had to wait.
#[tokio::test]
async fn a_sign_in_whose_session_was_ended_is_over() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await;
    page.clone().sign_in().await.callback().code();
    browser.visit("/oauth2/logout").await.decide("logout").await;
    server.advance(11);
    let expired = format!("400 {}", LoginTransactionError::Expired);
    assert_eq!(page.clone().sign_in().await.error_page(), expired);
    browser.set_cookie(SESSION, "lost");
    assert_eq!(page.sign_in().await.error_page(), expired);
}

/// After a sign-out, a form from the browser's history signs nobody in, also while consent is pending and after another
/// user has signed in. The request continues for the user who is signed in, unless it asks for a new authentication.
#[tokio::test]
async fn a_password_out_of_the_history_signs_nobody_in_who_has_signed_out() {
    let (server, acme, alice) = scene().await;
    let asking = server
        .client_with("asking", |client| client.consent = ConsentRequirement::Require)
        .await;
    let bob = server.user("bob").await;
    let expired = format!("400 {}", LoginTransactionError::Expired);
    for (prompt, goes_on) in [("consent", true), ("login", false)] {
        let browser = alice.browser();
        let request = asking.request().with("prompt", prompt);
        let page = browser.authorize(&request).await;
        assert_eq!(page.clone().sign_in().await.page(), "/consent");
        browser.visit("/oauth2/logout").await.decide("logout").await;
        assert_eq!(page.clone().sign_in().await.error_page(), expired);
        assert!(!is_signed_in(&browser, &asking).await);
        let of_bob = browser.authorize(&acme.request()).await;
        of_bob.type_in("bob@example.com", &bob.password).await.callback();
        assert_eq!(page.clone().sign_in().await.error_page(), expired);
        assert_eq!(browser.visit(&page.path).await.page() == "/consent", goes_on);
        assert_eq!(acme.tokens(&browser).await.id().claims["sub"], bob.sub());
    }
}

/// The same where the session was left alone until it was over: its cookie tells that the answer arrived.
#[tokio::test]
async fn a_sign_in_whose_session_has_gone_idle_is_over() {
    let idle = Duration::from_mins(1);
    let server = Server::start_with(|policy| policy.lifetimes.session.idle = idle).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await;
    page.clone().sign_in().await.callback().code();
    server.advance(60);
    assert!(!is_signed_in(&browser, &acme).await);
    let expired = format!("400 {}", LoginTransactionError::Expired);
    assert_eq!(page.clone().sign_in().await.error_page(), expired);
    assert_eq!(browser.visit(&page.path).await.error_page(), expired);
    assert!(!is_signed_in(&browser, &acme).await);
}

/// A change by the operator during a sign-in applies: no browser is sent to a redirect URI that was removed.
#[tokio::test]
async fn a_redirect_uri_taken_away_meanwhile_gets_no_code() {
    let (server, acme, alice) = scene().await;
    let page = alice.browser().authorize(&acme.request()).await;
    server
        .change_client(&acme, |client| {
            client.redirect_uris = vec!["https://acme.example/new".to_owned()];
        })
        .await;
    assert_eq!(page.sign_in().await.status, 400);
}

/// A code does not outlive the session it was issued in, with any scope.
#[tokio::test]
async fn a_code_is_worthless_once_its_user_has_signed_out() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let request = acme.request().with("scope", "openid offline_access");
    let tokens = acme.tokens_for(&browser, &request).await;
    let code = browser.authorize(&request).await.callback().code();
    let path = format!("/oauth2/logout?id_token_hint={}", tokens.id_token());
    browser.visit(&path).await;
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
    drop(server);
}

/// A change by the operator during a sign-in applies.
#[tokio::test]
async fn a_client_disabled_meanwhile_gets_no_code() {
    let (server, acme, alice) = scene().await;
    let page = alice.browser().authorize(&acme.request()).await;
    server.change_client(&acme, |client| client.enabled = false).await;
    assert_eq!(page.sign_in().await.status, 400);
}

/// RFC 9106 section 4: when the operator has changed what a hash costs, it is made anew while the password is at
/// hand.
#[tokio::test]
async fn a_hash_of_another_cost_is_replaced_when_its_user_signs_in() {
    let (server, acme, _alice) = scene().await;
    let dearer = PasswordParams::new(128, 2, 1).unwrap();
    let pool = PasswordPool::start(
        dearer,
        PoolSize {
            threads: 1,
            waiting: 1,
        },
    )
    .unwrap();
    let old = pool
        .hash(Zeroizing::new("the password of erin".to_owned()), [7; 16])
        .await
        .unwrap();
    let erin = server
        .user_with("erin", |user| user.password = Some(old.clone()))
        .await;
    let stored = || {
        let user = server
            .app
            .core
            .store
            .read_blocking(|snapshot| USERS.get(snapshot, &erin.user.uuid))
            .unwrap();
        user.unwrap().password.unwrap()
    };
    let wrong = erin.browser().authorize(&acme.request()).await;
    wrong.type_in("erin@example.com", "wrong").await;
    assert_eq!(stored(), old);
    acme.code(&erin.browser()).await;
    assert!(stored().needs_rehash(dearer) && !stored().needs_rehash(server.app.core.passwords.params()));
    acme.code(&erin.browser()).await;
}

/// A password with more bytes than the operator allows is refused, even if an imported record holds its hash. The page
/// is that of any wrong password.
#[tokio::test]
async fn a_password_beyond_the_longest_is_wrong() {
    let (server, acme, alice) = scene().await;
    let longest = server.app.core.policy.password.max_bytes;
    let hash = async |password: String| {
        let pool = &server.app.core.passwords;
        pool.hash(Zeroizing::new(password), [7; 16]).await.unwrap()
    };
    let (fitting, beyond) = ("p".repeat(longest), "p".repeat(longest + 1));
    let (fits, exceeds) = (hash(fitting.clone()).await, hash(beyond.clone()).await);
    let dora = server
        .user_with("dora", |user| user.password = Some(exceeds))
        .await;
    server
        .change_user(&alice, |user| user.password = Some(fits))
        .await;
    let page = alice.browser().authorize(&acme.request()).await;
    let refused = page.type_in("dora@example.com", &beyond).await;
    assert_eq!((refused.status, refused.page()), (200, "/login"));
    let wrong = refused.clone().type_in("dora@example.com", "wrong").await;
    assert_eq!(refused.shown(), wrong.shown());
    assert!(!is_signed_in(&dora.browser(), &acme).await);
    wrong
        .type_in("alice@example.com", &fitting)
        .await
        .callback()
        .code();
}

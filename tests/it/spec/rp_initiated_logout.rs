//! OpenID Connect RP-Initiated Logout 1.0.

use idsvc::admin::key;
use idsvc::flow::rotate_keys;
use idsvc::jose::alg::Algorithm;
use idsvc::pages::text::EN;
use serde_json::json;

use crate::harness::sweep_all;
use crate::harness::{Audit, Browser, RelyingParty, Tokens, scene, write_form};

const BYE: &str = "https://acme.example/bye";

async fn is_signed_in(browser: &Browser, acme: &RelyingParty) -> bool {
    let callback = browser
        .authorize(&acme.request().with("prompt", "none"))
        .await
        .callback();
    match callback.get("error") {
        None => true,
        Some("login_required") => false,
        Some(other) => panic!("{other}"),
    }
}

fn logout(parameters: &[(&str, &str)]) -> String {
    format!("/oauth2/logout?{}", write_form(parameters))
}

/// Sections 2 and 3: with a hint and a registered address nobody is asked, and `state` comes back.
#[tokio::test]
async fn a_client_signs_its_user_out() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let hint = tokens.id_token();
    let stay = [
        ("id_token_hint", hint),
        ("post_logout_redirect_uri", BYE),
        ("state", "a b&c=é"),
        ("extra", "1"),
    ];
    let screen = browser.visit(&logout(&stay)).await;
    assert_eq!(
        screen.location(),
        "https://acme.example/bye?state=a+b%26c%3D%C3%A9"
    );
    assert_eq!(browser.cookie("__Host-idsvc_session"), None);
    assert!(!is_signed_in(&browser, &acme).await);
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
}

/// However often a hasty hand asks, the session ends once, and so it is accounted for.
#[tokio::test]
async fn many_sign_outs_at_once_are_one() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let path = logout(&[
        ("id_token_hint", tokens.id_token()),
        ("post_logout_redirect_uri", BYE),
    ]);
    let audit = Audit::listen();
    let (one, other) = tokio::join!(browser.visit(&path), browser.visit(&path));
    assert_eq!((one.location(), other.location()), (BYE, BYE));
    let sid = tokens.id().claims["sid"].clone();
    assert_eq!(
        audit.take(&["signed_out"]),
        [json!({"event": "signed_out", "user": alice.sub(), "session": sid})]
    );
}

/// A session that was left alone for long signs nobody in any more; signing out of it still ends what it granted.
#[tokio::test]
async fn whoever_signs_out_late_has_signed_out() {
    const DAY: u64 = 24 * 60 * 60;
    let (server, acme, alice) = scene().await;
    let audit = Audit::listen();
    for with_hint in [true, false] {
        let browser = alice.browser();
        let tokens = acme.tokens(&browser).await;
        server.advance(DAY);
        sweep_all(&server).await;
        let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
        assert!(!is_signed_in(&browser, &acme).await);
        if with_hint {
            let stay = [
                ("id_token_hint", tokens.id_token()),
                ("post_logout_redirect_uri", BYE),
            ];
            assert_eq!(browser.visit(&logout(&stay)).await.location(), BYE);
        } else {
            let asked = browser.visit("/logout/confirm").await;
            assert!(!asked.text().contains("alice"), "it names nobody");
            asked.decide("logout").await;
        }
        assert_eq!(
            acme.refresh(tokens.refresh_token()).await.error(),
            "invalid_grant"
        );
    }
    assert!(audit.take(&["signed_out"]).is_empty(), "nobody was signed in");
}

/// A user who signs in again in the same browser continues the session that was not ended.
#[tokio::test]
async fn a_late_sign_in_takes_the_grants_of_its_session_along() {
    const DAY: u64 = 24 * 60 * 60;
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let before = acme.tokens(&browser).await;
    server.advance(DAY);
    let after = acme.tokens(&browser).await;
    browser.visit("/logout/confirm").await.decide("logout").await;
    for tokens in [&before, &after] {
        assert_eq!(
            acme.refresh(tokens.refresh_token()).await.error(),
            "invalid_grant"
        );
    }
}

/// Section 3: no `state` sent, none returned; the client may name itself.
#[tokio::test]
async fn without_state_none_comes_back() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let screen = browser
        .visit(&logout(&[
            ("id_token_hint", tokens.id_token()),
            ("post_logout_redirect_uri", BYE),
            ("client_id", "acme"),
        ]))
        .await;
    assert_eq!(screen.location(), BYE);
    assert!(!is_signed_in(&browser, &acme).await);
}

/// Section 3: a query that belongs to the registered address stays.
#[tokio::test]
async fn a_registered_query_is_kept() {
    let (server, acme, alice) = scene().await;
    let registered = "https://acme.example/bye?tenant=%20a";
    server
        .change_client(&acme, |client| {
            client.post_logout_redirect_uris.push(registered.to_owned());
        })
        .await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let hint = ("id_token_hint", tokens.id_token());
    let screen = browser
        .visit(&logout(&[
            hint,
            ("post_logout_redirect_uri", registered),
            ("state", "s"),
        ]))
        .await;
    assert_eq!(screen.location(), "https://acme.example/bye?tenant=%20a&state=s");
}

/// Section 2: the request may be posted. A form from another site brings no cookie along, so the browser is asked
/// to come again.
#[tokio::test]
async fn a_posted_request_ends_the_session_of_the_browser_it_came_from() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let elsewhere = alice.browser();
    let tokens = acme.tokens(&browser).await;
    acme.tokens(&elsewhere).await;
    let reply = server
        .post("/oauth2/logout")
        .with("id_token_hint", tokens.id_token())
        .with("post_logout_redirect_uri", BYE)
        .await;
    assert!(is_signed_in(&browser, &acme).await);
    assert_eq!(browser.visit(reply.location()).await.location(), BYE);
    assert!(!is_signed_in(&browser, &acme).await);
    assert!(is_signed_in(&elsewhere, &acme).await);
}

/// Section 2: an ID token alone cannot sign its user out from another browser.
#[tokio::test]
async fn a_hint_alone_ends_nothing() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let path = logout(&[
        ("id_token_hint", tokens.id_token()),
        ("post_logout_redirect_uri", BYE),
    ]);
    let stranger = server.user("mallory").await.browser();
    assert_eq!(stranger.visit(&path).await.location(), BYE);
    assert!(is_signed_in(&browser, &acme).await);
    acme.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 2: an expired hint is a hint, however old.
#[tokio::test]
async fn an_expired_hint_is_accepted() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    server.advance(2 * 60 * 60);
    let path = logout(&[
        ("id_token_hint", tokens.id_token()),
        ("post_logout_redirect_uri", BYE),
    ]);
    assert_eq!(browser.visit(&path).await.location(), BYE);
    assert!(!is_signed_in(&browser, &acme).await);
    server.advance(60 * 24 * 60 * 60);
    assert_eq!(browser.visit(&path).await.location(), BYE);
}

/// Section 3: nobody is sent to an address that is not registered, and nobody is signed out by a faulty request.
#[tokio::test]
async fn nobody_is_sent_to_an_unregistered_address() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let hint = ("id_token_hint", tokens.id_token());
    for uri in [
        "https://evil.example/",
        "https://acme.example/bye?foo=bar",
        "https://acme.example/bye/",
        "https://acme.example/cb",
        "https://other.example/bye",
    ] {
        let page = browser
            .visit(&logout(&[
                hint,
                ("post_logout_redirect_uri", uri),
                ("state", "x"),
            ]))
            .await;
        assert_eq!(page.error_page_status(), 400, "{uri}");
    }
    let swapped = browser
        .visit(&logout(&[
            hint,
            ("post_logout_redirect_uri", BYE),
            ("client_id", "other"),
        ]))
        .await;
    assert_eq!(swapped.error_page_status(), 400);
    let twice = browser
        .visit(&logout(&[
            hint,
            ("post_logout_redirect_uri", BYE),
            ("state", "1"),
            ("state", "2"),
        ]))
        .await;
    assert_eq!(twice.error_page_status(), 400);
    assert!(is_signed_in(&browser, &acme).await && is_signed_in(&browser, &other).await);
}

/// Section 4: a request that proves nothing is no reason not to sign out, and nobody is sent to a client that is not in
/// service.
#[tokio::test]
async fn a_hint_of_a_disabled_client_asks_first() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    server.change_client(&acme, |client| client.enabled = false).await;
    let hint = ("id_token_hint", tokens.id_token());
    for parameters in [&[hint, ("post_logout_redirect_uri", BYE)][..], &[hint]] {
        assert_eq!(browser.visit(&logout(parameters)).await.page(), "/logout/confirm");
    }
    assert!(is_signed_in(&browser, &other).await);
    let question = browser.visit(&logout(&[hint])).await;
    assert_eq!(question.decide("logout").await.page(), "/logged-out");
    assert!(!is_signed_in(&browser, &other).await);
}

fn forgeries(acme: &RelyingParty, tokens: &Tokens) -> Vec<String> {
    let mut hint = tokens.id();
    hint.header["alg"] = "none".into();
    let unsigned = hint.forge(None);
    hint.header["alg"] = "HS256".into();
    let by_secret = hint.forge(Some(acme.secret.as_bytes()));
    let (input, _) = tokens.id_token().rsplit_once('.').unwrap();
    let mut foreign = tokens.id();
    foreign.header["kid"] = "another key".into();
    let access = tokens.access_token().to_owned();
    vec![
        unsigned,
        by_secret,
        format!("{input}.AAAA"),
        foreign.forge(Some(b"x")),
        access,
        "x".to_owned(),
    ]
}

/// Section 2: for as long as a session lasts, its first ID token is a hint, even after its key was removed.
#[tokio::test]
async fn a_hint_outlives_the_key_that_signed_it() {
    let (server, acme, alice) = scene().await;
    let core = &server.app.core;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    rotate_keys::rotate(core, Algorithm::Rs256, true).await.unwrap();
    for _ in 0..14 {
        server.advance(12 * 60 * 60 - 1);
        rotate_keys::keep(core).await.unwrap();
        let hinted = acme
            .request()
            .with("prompt", "none")
            .with("id_token_hint", tokens.id_token());
        browser.authorize(&hinted).await.callback().code();
    }
    let path = logout(&[
        ("id_token_hint", tokens.id_token()),
        ("post_logout_redirect_uri", BYE),
    ]);
    assert_eq!(browser.visit(&path).await.location(), BYE);
    assert!(!is_signed_in(&browser, &acme).await);
}

/// Section 2: what a key signed that was withdrawn proves nothing, and its user is asked. A sign-in goes on without it.
#[tokio::test]
async fn a_hint_of_a_withdrawn_key_asks_first() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let leaked = tokens.id().header["kid"].as_str().unwrap().to_owned();
    rotate_keys::rotate(&server.app.core, Algorithm::Rs256, true)
        .await
        .unwrap();
    server.admin().call(key::RetireKey { kid: leaked }).await.unwrap();
    let hint = ("id_token_hint", tokens.id_token());
    let request = acme.request().with("id_token_hint", tokens.id_token());
    browser.authorize(&request).await.callback().code();
    let silent = browser.authorize(&request.with("prompt", "none")).await;
    assert_eq!(silent.callback().get("error"), Some("login_required"));
    let question = browser
        .visit(&logout(&[hint, ("post_logout_redirect_uri", BYE)]))
        .await;
    assert_eq!(question.page(), "/logout/confirm");
    assert!(is_signed_in(&browser, &acme).await);
    assert_eq!(question.decide("logout").await.page(), "/logged-out");
    assert!(!is_signed_in(&browser, &acme).await);
}

/// Section 2: a hint that this service did not sign proves nothing: the user is asked, and stays here.
#[tokio::test]
async fn a_forged_hint_signs_nobody_out() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    for forged in forgeries(&acme, &tokens) {
        let path = logout(&[
            ("id_token_hint", &forged),
            ("post_logout_redirect_uri", BYE),
            ("state", "x"),
        ]);
        assert_eq!(browser.visit(&path).await.page(), "/logout/confirm");
    }
    assert!(is_signed_in(&browser, &acme).await);
}

/// Section 2: without a hint the user is asked. If the request names no registered address of a known client, the
/// signed-out page has a link to the account page.
#[tokio::test]
async fn without_a_hint_the_user_is_asked() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    for parameters in [
        &[][..],
        &[("state", "x")],
        &[("post_logout_redirect_uri", BYE), ("state", "x")],
        &[("post_logout_redirect_uri", BYE), ("client_id", "nobody")],
        &[("client_id", "acme"), ("state", "x")],
    ] {
        acme.code(&browser).await;
        let question = browser.visit(&logout(parameters)).await;
        assert_eq!(question.page(), "/logout/confirm");
        assert!(is_signed_in(&browser, &acme).await);
        let page = question.decide("logout").await;
        assert_eq!(
            (page.page(), page.heading().as_str()),
            ("/logged-out", &*EN.logged_out_of.replace("{}", "idsvc"))
        );
        assert!(page.text().contains("href=\"/account\""), "a way on");
        assert!(!is_signed_in(&browser, &acme).await);
        assert_eq!(browser.visit(&logout(parameters)).await.page(), "/logged-out");
    }
}

/// Sections 2 and 3: a client that names itself without a hint gets its user back once the user has confirmed.
#[tokio::test]
async fn a_client_without_a_hint_gets_its_user_back_after_a_yes() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let request = [
        ("client_id", "acme"),
        ("post_logout_redirect_uri", BYE),
        ("state", "a b&c=é"),
    ];
    acme.code(&browser).await;
    let question = browser.visit(&logout(&request)).await;
    assert_eq!(question.page(), "/logout/confirm");
    assert!(is_signed_in(&browser, &acme).await, "not without a yes");
    let form = question.decision_form("logout");
    let evil = [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    assert_eq!(browser.submit_with(&form, &evil).await.header("location"), None);
    assert!(
        is_signed_in(&browser, &acme).await,
        "nor with that of another site"
    );
    let done = browser.submit(&form).await;
    assert_eq!(done.location(), "https://acme.example/bye?state=a+b%26c%3D%C3%A9");
    assert!(!is_signed_in(&browser, &acme).await);
    let again = browser.visit(&logout(&request)).await;
    assert_eq!(again.page(), "/logged-out", "nobody is there to confirm it");
    let posted = request
        .into_iter()
        .fold(server.post("/oauth2/logout"), |call, (name, value)| {
            call.with(name, value)
        });
    acme.code(&browser).await;
    let question = browser.visit(posted.await.location()).await;
    assert_eq!(question.page(), "/logout/confirm");
    server
        .change_client(&acme, |client| client.post_logout_redirect_uris.clear())
        .await;
    assert_eq!(
        question.decide("logout").await.page(),
        "/logged-out",
        "it counts as it is now"
    );
}

/// Section 3: the browser is sent only to an address that the named client has registered. A hint takes precedence over
/// `client_id`.
#[tokio::test]
async fn a_client_without_a_hint_gets_its_user_nowhere_else() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    for uri in [
        "https://evil.example/",
        "https://other.example/bye",
        "https://acme.example/cb",
    ] {
        let faulty = logout(&[("client_id", "acme"), ("post_logout_redirect_uri", uri)]);
        assert_eq!(browser.visit(&faulty).await.error_page_status(), 400, "{uri}");
        let direct = format!("/logout/confirm?{}", faulty.split_once('?').unwrap().1);
        let question = browser.visit(&direct).await;
        assert_eq!(question.decide("logout").await.page(), "/logged-out", "{uri}");
        acme.code(&browser).await;
    }
    server.change_client(&acme, |client| client.enabled = false).await;
    let named = logout(&[("client_id", "acme"), ("post_logout_redirect_uri", BYE)]);
    let question = browser.visit(&named).await;
    assert_eq!(question.decide("logout").await.page(), "/logged-out", "disabled");
    let swapped = logout(&[
        ("id_token_hint", tokens.id_token()),
        ("client_id", "other"),
        ("post_logout_redirect_uri", "https://other.example/bye"),
    ]);
    other.code(&browser).await;
    assert_eq!(browser.visit(&swapped).await.error_page_status(), 400);
    assert!(is_signed_in(&browser, &other).await);
}

/// Section 2: a hint without an address ends the session and says so.
#[tokio::test]
async fn a_hint_alone_ends_the_session() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let page = browser
        .visit(&logout(&[("id_token_hint", tokens.id_token()), ("state", "x")]))
        .await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/logged-out", &*EN.logged_out_of.replace("{}", "idsvc"))
    );
    assert!(!is_signed_in(&browser, &acme).await);
}

/// Section 2: if another user is signed in, that user is asked.
#[tokio::test]
async fn another_users_hint_asks_first() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let tokens = acme.tokens(&alice.browser()).await;
    let browser = bob.browser();
    acme.code(&browser).await;
    let path = logout(&[
        ("id_token_hint", tokens.id_token()),
        ("post_logout_redirect_uri", BYE),
    ]);
    let question = browser.visit(&path).await;
    assert_eq!(question.page(), "/logout/confirm");
    assert!(is_signed_in(&browser, &acme).await);
    assert_eq!(question.decide("logout").await.location(), BYE);
    assert!(!is_signed_in(&browser, &acme).await);
}

/// Section 4: if the user has signed in again since, the ID token of the session before ends nothing by itself.
#[tokio::test]
async fn the_hint_of_an_earlier_session_asks_first() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let before = acme.tokens(&browser).await;
    browser.visit("/logout/confirm").await.decide("logout").await;
    let after = acme.tokens(&browser).await;
    assert_ne!(before.id().claims["sid"], after.id().claims["sid"]);
    let hinted = |tokens: &Tokens| {
        logout(&[
            ("id_token_hint", tokens.id_token()),
            ("post_logout_redirect_uri", BYE),
        ])
    };
    let question = browser.visit(&hinted(&before)).await;
    assert_eq!(question.page(), "/logout/confirm");
    assert!(is_signed_in(&browser, &acme).await);
    assert_eq!(question.decide("logout").await.location(), BYE);
    assert!(!is_signed_in(&browser, &acme).await);
    let page = browser.visit(&hinted(&before)).await;
    assert_eq!(page.location(), BYE, "nobody is signed in");
}

/// Section 2: `logout_hint` and `ui_locales` are accepted. The hint names a user to nobody, and the pages have the
/// language.
#[tokio::test]
async fn a_logout_hint_and_languages_are_accepted() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let question = browser
        .visit(&logout(&[
            ("logout_hint", "mallory@example.com"),
            ("ui_locales", "de"),
        ]))
        .await;
    assert_eq!(question.page(), "/logout/confirm");
    assert!(question.text().contains("lang=\"de\"") && !question.text().contains("mallory"));
    let page = question.decide("logout").await;
    assert!(page.text().contains("lang=\"de\""));
    assert!(!is_signed_in(&browser, &acme).await);
}

/// Nor does it end what another user left behind in this browser.
#[tokio::test]
async fn another_users_hint_ends_no_session_that_ran_out() {
    const DAY: u64 = 24 * 60 * 60;
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let hint = acme.tokens(&alice.browser()).await;
    let browser = bob.browser();
    let tokens = acme.tokens(&browser).await;
    server.advance(DAY);
    let path = logout(&[
        ("id_token_hint", hint.id_token()),
        ("post_logout_redirect_uri", BYE),
    ]);
    assert_eq!(browser.visit(&path).await.location(), BYE);
    acme.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 6: another site cannot press the button.
#[tokio::test]
async fn another_site_cannot_confirm_for_the_user() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let question = browser.visit("/oauth2/logout").await;
    let form = question.decision_form("logout");
    let evil = [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    browser.submit_with(&form, &evil).await;
    browser
        .submit_with(&form, &[("sec-fetch-site", "same-site")])
        .await;
    browser.submit(&form.clone().without("csrf")).await;
    browser.submit(&form.clone().with("csrf", "AAAA")).await;
    let csrf = form.value("csrf").unwrap().to_owned();
    browser
        .visit(&format!(
            "/logout/confirm?{}",
            write_form(&[("decision", "logout"), ("csrf", &csrf)])
        ))
        .await;
    assert!(is_signed_in(&browser, &acme).await);
    assert_eq!(browser.submit(&form).await.page(), "/logged-out");
}

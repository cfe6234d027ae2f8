//! OpenID Connect Core 1.0 section 3.1.2.4: consent.

use idsvc::flow::login::transaction::LoginTransactionError;
use idsvc::oauth::client::{ClientOrigin, ConsentRequirement};
use idsvc::pages::text::EN;

use crate::harness::{Person, RelyingParty, Server, scene, write_form};

/// A service with a client whose users are asked.
async fn asking() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    let acme = server
        .client_with("acme", |client| {
            client.consent = ConsentRequirement::Require;
            client.client_name = Some("Acme <Notes>".to_owned());
        })
        .await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// The user is asked once, told what is asked for, and what was allowed is remembered.
#[tokio::test]
async fn consent_is_asked_for_once_and_remembered() {
    let (server, acme, alice) = asking().await;
    let browser = alice.browser();
    let request = acme.request().with("scope", "openid email notes.read");
    let page = browser.authorize(&request).await.sign_in().await;
    assert_eq!(page.page(), "/consent");
    assert!(page.text().contains("Acme &lt;Notes&gt;") && page.text().contains("notes.read"));
    let code = page.allow().await.callback().code();
    acme.redeem(&code).await.tokens();
    server.advance(60);
    let silent = browser
        .fetch(&request.clone().with("prompt", "none").path())
        .await;
    acme.redeem(&silent.callback().code()).await.tokens();
    let elsewhere = alice.browser().authorize(&request).await.sign_in().await;
    elsewhere.callback().code();
}

/// Nobody vouches for a client that registered itself. It chose its own name, so the page shows the host of its
/// redirect URI.
#[tokio::test]
async fn a_client_that_registered_itself_is_shown_with_where_access_goes() {
    let (server, acme, alice) = asking().await;
    let page = alice.browser().authorize(&acme.request()).await.sign_in().await;
    let unverified = EN
        .consent_unverified
        .replace("{}", "<bdi class=\"name\">idsvc</bdi>");
    assert!(page.text().contains("acme.example") && !page.text().contains(&unverified));
    let sent_to = async |uri: &str| {
        let change = |client: &mut idsvc::oauth::Client| {
            client.origin = ClientOrigin::DynamicRegistration;
            client.redirect_uris = vec![uri.to_owned()];
        };
        server.change_client(&acme, change).await;
        let request = acme.request().with("redirect_uri", uri);
        alice
            .browser()
            .authorize(&request)
            .await
            .sign_in()
            .await
            .text()
            .to_owned()
    };
    let host = EN
        .consent_host
        .replace("{}", "<bdi class=\"name\">evil.example</bdi>");
    let page = sent_to("https://evil.example:8443/cb").await;
    assert!(page.contains(&host) && page.contains(&unverified));
    let page = sent_to("http://127.0.0.1:7777/cb").await;
    assert!(page.contains(EN.consent_device) && page.contains(&unverified));
}

/// A denial counts even after a consent or a sign-out in another tab.
#[tokio::test]
async fn a_no_is_never_taken_for_a_yes() {
    let (_server, acme, alice) = asking().await;
    let browser = alice.browser();
    let first = browser.authorize(&acme.request()).await.sign_in().await;
    let second = browser.authorize(&acme.request()).await;
    let third = browser.authorize(&acme.request()).await;
    first.allow().await.callback().code();
    let declined = second.decide("deny").await.callback();
    assert_eq!(declined.error(), "access_denied");
    browser.visit("/logout/confirm").await.decide("logout").await;
    let declined = third.decide("deny").await.callback();
    assert_eq!(declined.error(), "access_denied");
}

/// A user who says no is heard, and nothing is remembered.
#[tokio::test]
async fn a_user_who_declines_is_access_denied() {
    let (server, acme, alice) = asking().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await.sign_in().await;
    let form = page.decision_form("allow");
    let callback = page.decide("deny").await.callback();
    assert_eq!(callback.error(), "access_denied");
    assert_eq!(callback.get("state"), Some("state of acme"));
    server.advance(10);
    let late = browser.submit(&form).await;
    assert_eq!(
        late.error_page(),
        format!("400 {}", LoginTransactionError::Expired)
    );
    assert_eq!(browser.authorize(&acme.request()).await.page(), "/consent");
    let silent = browser
        .authorize(&acme.request().with("prompt", "none"))
        .await
        .callback();
    assert_eq!(silent.error(), "consent_required");
}

/// A no that is sent twice by a hasty hand is heard: the browser shows the second answer. Nothing else is taken for it.
#[tokio::test]
async fn a_no_is_answered_once_more_and_stays_a_no() {
    let (_server, acme, alice) = asking().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await.sign_in().await;
    let (no, yes) = (page.decision_form("deny"), page.decision_form("allow"));
    for form in [&no, &no, &yes] {
        let callback = browser.submit(form).await.callback();
        assert_eq!(callback.error(), "access_denied");
        assert_eq!(callback.get("state"), Some("state of acme"));
    }
    let path = format!("/login?transaction={}", no.value("transaction").unwrap());
    let callback = browser.visit(&path).await.callback();
    assert_eq!(callback.error(), "access_denied");
    assert_eq!(
        browser.authorize(&acme.request()).await.page(),
        "/consent",
        "the late yes is not remembered"
    );
}

/// What was not allowed yet is asked for, and adds to what was.
#[tokio::test]
async fn more_scope_asks_again_and_adds_up() {
    let (_server, acme, alice) = asking().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let more = acme.request().with("scope", "openid email");
    let silent = browser
        .authorize(&more.clone().with("prompt", "none"))
        .await
        .callback();
    assert_eq!(silent.error(), "consent_required");
    let page = browser.authorize(&more).await;
    assert_eq!(page.page(), "/consent");
    page.allow().await.callback().code();
    for scope in ["openid", "email", "openid email"] {
        browser
            .authorize(&acme.request().with("scope", scope))
            .await
            .callback()
            .code();
    }
    let claims = acme
        .request()
        .with("claims", r#"{"userinfo":{"phone_number":null}}"#);
    assert_eq!(browser.authorize(&claims).await.page(), "/consent");
}

/// What one user allowed, or one client was allowed, is nobody else's.
#[tokio::test]
async fn consent_is_one_users_for_one_client() {
    let (server, acme, alice) = asking().await;
    let bob = server.user("bob").await;
    let other = server
        .client_with("other", |client| client.consent = ConsentRequirement::Require)
        .await;
    let browser = alice.browser();
    acme.code(&browser).await;
    assert_eq!(browser.authorize(&other.request()).await.page(), "/consent");
    assert_eq!(
        bob.browser()
            .authorize(&acme.request())
            .await
            .sign_in()
            .await
            .page(),
        "/consent"
    );
}

/// What one user said to a request says nothing for another who comes to it while it still repeats its answer.
#[tokio::test]
async fn a_yes_counts_in_the_session_that_it_was_said_in() {
    let (server, acme, alice) = scene().await;
    server.user("bob").await;
    let request = acme.request().with("prompt", "consent");

    let browser = alice.browser();
    let login = browser.authorize(&request).await;
    let form = login.login_form().with("username", "bob@example.com");
    let yes = login.sign_in().await.decision_form("allow");
    for _ in 0..2 {
        browser.submit(&yes).await.callback().code();
    }
    let other = browser
        .submit(&form.with("password", "the password of bob"))
        .await;
    assert_eq!(other.page(), "/consent", "after a sign-in");

    let browser = alice.browser();
    acme.code(&browser).await;
    let yes = browser.authorize(&request).await.decision_form("allow");
    browser.submit(&yes).await.callback().code();
    let elsewhere = browser.authorize(&acme.request().with("prompt", "login")).await;
    elsewhere
        .type_in("bob@example.com", "the password of bob")
        .await
        .callback()
        .code();
    let path = format!("/consent?transaction={}", yes.value("transaction").unwrap());
    // In another tab: the page asks, and sends nobody on from its own address.
    browser.visit(&path).await.decision_form("allow");
}

/// `prompt=consent` asks again, also for a client that the operator vouches for; so comes `offline_access`
/// (section 11).
#[tokio::test]
async fn prompt_consent_asks_in_any_case() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let request = acme
        .request()
        .with("scope", "openid offline_access")
        .with("prompt", "consent");
    for _ in 0..2 {
        let page = browser.authorize(&request).await;
        assert_eq!(page.page(), "/consent");
        let reloaded = browser.visit(&page.path).await;
        assert_eq!(
            reloaded.page(),
            "/consent",
            "coming back to the page does not help"
        );
        let code = reloaded.allow().await.callback().code();
        let tokens = acme.redeem(&code).await.tokens();
        assert_eq!(tokens.scope(), ["openid", "offline_access", "authenticated"]);
        acme.refresh(tokens.refresh_token()).await.tokens();
    }
}

/// Section 16.12 and RFC 6749 section 10.12: only the user's own click on our page counts.
#[tokio::test]
async fn nobody_else_can_say_yes() {
    let (_server, acme, alice) = asking().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await.sign_in().await;
    let form = page.decision_form("allow");
    let transaction = form.value("transaction").unwrap().to_owned();
    let csrf = form.value("csrf").unwrap().to_owned();
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[
            ("sec-fetch-site", "same-site"),
            ("origin", "https://id.example.test"),
        ],
    ] {
        let refused = browser.submit_with(&form, headers).await;
        assert_eq!(
            (refused.header("location"), refused.heading().is_empty()),
            (None, false),
            "{headers:?}"
        );
    }
    let query = write_form(&[
        ("transaction", &transaction),
        ("csrf", &csrf),
        ("decision", &"allow".to_owned()),
    ]);
    browser
        .visit(&format!("/consent?{query}"))
        .await
        .decision_form("allow");
    for form in [
        form.clone().without("csrf"),
        form.clone().with("csrf", "AAAA"),
        form.clone().with("decision", "yes"),
    ] {
        browser.submit(&form).await.decision_form("allow");
    }
    let fresh = browser.authorize(&acme.request()).await.decision_form("allow");
    let swapped = form.clone().with("csrf", fresh.value("csrf").unwrap());
    browser.submit(&swapped).await.decision_form("allow");
    let denied = browser
        .submit_with(
            &form.clone().with("decision", "deny"),
            &[("sec-fetch-site", "cross-site")],
        )
        .await;
    assert_eq!(denied.header("location"), None);
    browser.submit(&form).await.callback().code();
}

/// The question belongs to the browser it was asked in and to the user it was asked.
#[tokio::test]
async fn another_browser_or_user_cannot_answer() {
    let (server, acme, alice) = asking().await;
    let (bob, carol) = (server.user("bob").await, server.user("carol").await);
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await.sign_in().await;
    let form = page.decision_form("allow");
    let thief = bob.browser();
    acme.code(&thief).await;
    let stolen = thief.visit(&page.path).await;
    let other = format!("400 {}", LoginTransactionError::OtherBrowser);
    assert_eq!(stolen.error_page(), other);
    assert_eq!(thief.submit(&form).await.error_page(), other);

    let switch = browser.authorize(&acme.request().with("prompt", "login")).await;
    assert_eq!(
        switch.type_in("carol@example.com", &carol.password).await.page(),
        "/consent"
    );
    let late = browser.submit(&form).await;
    assert_eq!(
        late.header("location"),
        None,
        "alice was asked, carol is signed in"
    );
    assert!(late.text().contains("carol Example"));
    assert!(late.text().contains(EN.problem_consent_again));
    assert!(!browser.visit(&page.path).await.text().contains("role=\"alert\""));
}

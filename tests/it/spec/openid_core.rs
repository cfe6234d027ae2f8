//! OpenID Connect Core 1.0: the authorization request and who has to sign in for it.

use std::time::Duration;

use idsvc::flow::login::transaction::LoginTransactionError;
use idsvc::oauth::access_token::AccessTokenTyp;
use idsvc::oauth::redirect_uri::Mismatch;
use idsvc::pages::text::EN;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{AuthorizationRequest, Browser, Jwt, RelyingParty, START, Server, scene, write_form};

/// The ID token that comes of a request.
async fn id_token(party: &RelyingParty, browser: &Browser, request: &AuthorizationRequest) -> Jwt {
    party.tokens_for(browser, request).await.id()
}

/// The code, or the error, that answers a request that no page may come between.
async fn silent(browser: &Browser, request: &AuthorizationRequest) -> String {
    let callback = browser
        .authorize(&request.clone().with("prompt", "none"))
        .await
        .callback();
    if callback.get("error").is_some() {
        callback.error()
    } else {
        callback.code()
    }
}

/// Section 3.1.2.1, `prompt=none`: nobody is signed in.
#[tokio::test]
async fn prompt_none_without_a_session_is_login_required() {
    let (_server, acme, alice) = scene().await;
    let callback = alice
        .browser()
        .authorize(&acme.request().with("prompt", "none"))
        .await
        .callback();
    assert_eq!(callback.error(), "login_required");
    assert_eq!(callback.get("state"), Some("state of acme"));
}

/// Section 3.1.2.1, `prompt=none`: a user is signed in, and the sign-in stays the same.
#[tokio::test]
async fn prompt_none_with_a_session_answers_at_once() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let first = id_token(&acme, &browser, &acme.request()).await.claims;
    server.advance(100);
    let request = acme.request().with("prompt", "none");
    let callback = browser.fetch(&request.path()).await.callback();
    let second = acme.redeem(&callback.code()).await.tokens().id().claims;
    for same in ["sub", "auth_time", "sid"] {
        assert_eq!(first[same], second[same]);
    }
    assert_eq!(second["iat"], START.seconds() + 100);
}

/// Section 3.1.2.1: what `prompt` may say. A value of an extension that the service does not have is ignored.
#[tokio::test]
async fn prompt_has_four_values_and_none_stands_alone() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    for prompt in ["none login", "consent none", "none create"] {
        let callback = browser
            .authorize(&acme.request().with("prompt", prompt))
            .await
            .callback();
        assert_eq!(callback.error(), "invalid_request", "{prompt}");
    }
    for prompt in ["create", "please sign in"] {
        let request = acme.request().with("prompt", prompt);
        assert_eq!(browser.authorize(&request).await.page(), "/login", "{prompt}");
    }
    let both = browser
        .authorize(&acme.request().with("prompt", "consent login"))
        .await;
    assert_eq!(both.page(), "/login");
    assert_eq!(both.sign_in().await.page(), "/consent");
}

/// Section 3.1.2.1, `prompt=login`: the user proves again who they are; the session goes on.
#[tokio::test]
async fn prompt_login_asks_for_the_password_again() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let first = id_token(&acme, &browser, &acme.request()).await.claims;
    let cookie = browser.cookie("__Host-idsvc_session");
    server.advance(60);
    let page = browser.authorize(&acme.request().with("prompt", "login")).await;
    assert_eq!((page.page(), page.heading().as_str()), ("/login", EN.sign_in));
    let again = browser.visit(&page.path).await;
    assert_eq!(again.page(), "/login", "coming back to the page does not help");
    let form = again
        .login_form()
        .without("password")
        .with("decision", "continue");
    assert_eq!(
        browser.submit(&form).await.page(),
        "/login",
        "nor does a choice that was not offered"
    );
    let code = again.sign_in().await.callback().code();
    let second = acme.redeem(&code).await.tokens().id().claims;
    assert_eq!(second["auth_time"], START.seconds() + 60);
    assert_eq!((&first["sub"], &first["sid"]), (&second["sub"], &second["sid"]));
    assert_ne!(browser.cookie("__Host-idsvc_session"), cookie);
}

/// Section 3.1.2.1, `prompt=select_account`: the user continues or signs in as another user.
#[tokio::test]
async fn prompt_select_account_lets_the_user_choose() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let browser = alice.browser();
    acme.code(&browser).await;
    server.advance(60);
    let request = acme.request().with("prompt", "select_account");
    let screen = browser.authorize(&request).await;
    assert!(screen.text().contains("alice Example"));
    let stays = acme
        .redeem(&screen.decide("continue").await.callback().code())
        .await
        .tokens()
        .id()
        .claims;
    assert_eq!(
        (&stays["sub"], &stays["auth_time"]),
        (&alice.sub().into(), &START.seconds().into())
    );

    let screen = browser.authorize(&request).await;
    let code = screen
        .type_in("bob@example.com", &bob.password)
        .await
        .callback()
        .code();
    let changes = acme.redeem(&code).await.tokens().id().claims;
    assert_eq!(changes["sub"], bob.sub());
    assert_ne!(changes["sid"], stays["sid"]);
    let now = id_token(&acme, &browser, &acme.request()).await.claims;
    assert_eq!(now["sub"], bob.sub());
    let fresh = alice.browser().authorize(&request).await;
    assert!(!fresh.text().contains("value=\"continue\""));
}

/// A user who signed out in another tab has typed no password, so the form reports no error.
#[tokio::test]
async fn a_choice_of_account_that_comes_too_late_leads_to_the_form() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let request = acme.request().with("prompt", "select_account");
    let screen = browser.authorize(&request).await;
    browser.visit("/logout/confirm").await.decide("logout").await;
    let late = screen.decide("continue").await;
    assert_eq!((late.page(), late.status), ("/login", 400));
    assert!(late.text().contains(EN.problem_expired), "{}", late.text());
    late.sign_in().await.callback().code();
}

/// Section 5.5.1: where the claims name the user, another one is not offered.
#[tokio::test]
async fn a_choice_of_account_offers_nobody_whom_the_request_rules_out() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let browser = alice.browser();
    acme.code(&browser).await;
    for (user, is_offered) in [(alice.sub(), true), (bob.sub(), false)] {
        let claims = format!(r#"{{"id_token":{{"sub":{{"value":"{user}"}}}}}}"#);
        let request = acme.request().with("prompt", "select_account");
        let screen = browser.authorize(&request.with("claims", &claims)).await;
        assert_eq!(screen.page(), "/login");
        assert_eq!(screen.text().contains("value=\"continue\""), is_offered, "{user}");
    }
}

/// Section 3.1.2.1: a choice of account never takes the place of a password that was demanded.
#[tokio::test]
async fn a_demanded_password_cannot_be_avoided_by_choosing() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    server.advance(100);
    for request in [
        acme.request().with("prompt", "select_account login"),
        acme.request()
            .with("prompt", "select_account")
            .with("max_age", "99"),
    ] {
        let page = browser.authorize(&request).await;
        assert!(!page.text().contains("value=\"continue\""));
        let form = page.login_form().without("password").with("decision", "continue");
        let refused = browser.submit(&form).await;
        assert_eq!((refused.page(), refused.status), ("/login", 400));
    }
}

/// Section 3.1.2.1, `max_age`: a sign-in that is too old does not count, and says so when no page may be shown.
#[tokio::test]
async fn max_age_asks_again_when_the_sign_in_is_too_old() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    server.advance(2);
    let request = acme.request().with("max_age", "1");
    assert_eq!(silent(&browser, &request).await, "login_required");
    let choice = browser
        .authorize(&request.clone().with("prompt", "select_account"))
        .await;
    assert!(!choice.text().contains("value=\"continue\""));
    let page = browser.authorize(&request).await;
    assert_eq!(page.page(), "/login");
    let second = acme
        .redeem(&page.sign_in().await.callback().code())
        .await
        .tokens()
        .id()
        .claims;
    assert_eq!(second["auth_time"], START.seconds() + 2);
    assert_eq!(
        browser
            .authorize(&acme.request().with("max_age", "0"))
            .await
            .page(),
        "/login"
    );
}

/// Section 3.1.2.1, `max_age`: a sign-in that is young enough does.
#[tokio::test]
async fn max_age_lets_a_young_sign_in_stand() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let first = id_token(&acme, &browser, &acme.request().with("max_age", "15000"))
        .await
        .claims;
    server.advance(10_000);
    let callback = browser
        .authorize(&acme.request().with("max_age", "10000"))
        .await
        .callback();
    let second = acme.redeem(&callback.code()).await.tokens().id().claims;
    assert_eq!(first["auth_time"], START.seconds());
    assert_eq!(first["auth_time"], second["auth_time"]);
}

/// Section 3.1.2.1, `id_token_hint`: the user is who the client thinks, or nobody.
#[tokio::test]
async fn an_id_token_hint_names_who_must_be_signed_in() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let (browser, other) = (alice.browser(), bob.browser());
    let tokens = acme.tokens(&browser).await;
    acme.tokens(&other).await;
    let request = acme.request().with("id_token_hint", tokens.id_token());
    server.advance(7_200);
    assert!(silent(&browser, &request).await.starts_with("idsvc_ac_"));
    assert_eq!(silent(&other, &request).await, "login_required");
    let page = other.authorize(&request).await;
    assert_eq!(page.page(), "/login");
    for _ in 0..2 {
        let refused = page.clone().sign_in().await.callback();
        assert_eq!(refused.error(), "login_required");
    }
    let page = other.authorize(&request).await;
    let code = page
        .type_in("alice@example.com", &alice.password)
        .await
        .callback()
        .code();
    assert_eq!(acme.redeem(&code).await.tokens().id().claims["sub"], alice.sub());
}

/// Section 3.1.2.1, `id_token_hint`: what this service did not issue as an ID token is no hint. It is as if none had been
/// sent, but where nobody may be asked.
#[tokio::test]
async fn a_forged_id_token_hint_counts_as_none() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let mut unsigned = tokens.id();
    unsigned.header["alg"] = "none".into();
    for hint in ["x", &unsigned.forge(None), tokens.access_token()] {
        let request = acme.request().with("id_token_hint", hint);
        browser.authorize(&request).await.callback().code();
        assert_eq!(silent(&browser, &request).await, "login_required");
        let page = alice.browser().authorize(&request).await;
        assert_eq!(page.page(), "/login");
    }
}

/// Section 3.1.2.1, `id_token_hint`: an access token, which more people see, is none, not even where it bears the
/// same `typ` and audience.
#[tokio::test]
async fn an_access_token_is_no_hint_whatever_its_type() {
    let server = Server::start_with(|policy| policy.access_token_typ = AccessTokenTyp::Jwt).await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| client.audience = Some("acme".to_owned()))
        .await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let request = acme.request().with("id_token_hint", tokens.access_token());
    assert_eq!(silent(&browser, &request).await, "login_required");
    let query = write_form(&[("id_token_hint", tokens.access_token())]);
    let page = browser.visit(&format!("/oauth2/logout?{query}")).await;
    assert_eq!(page.page(), "/logout/confirm");
    assert_eq!(acme.userinfo(tokens.id_token()).await.status, 401);
    assert!(acme.is_welcome(&tokens).await);
}

/// Section 5.5.1: `sub` with a value in `claims`, or with several, is the same demand.
#[tokio::test]
async fn a_demanded_subject_must_be_the_one_signed_in() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let stranger = "00000000-0000-4000-8000-000000000001";
    let demand = |sub: Value| {
        let claims = json!({"id_token": {"sub": sub}});
        acme.request().with("claims", &claims.to_string())
    };
    for met in [
        json!({"value": alice.sub()}),
        json!({"values": [alice.sub()]}),
        json!({"values": ["nobody", stranger, alice.sub()]}),
        json!({"essential": true}),
    ] {
        let answer = silent(&browser, &demand(met.clone())).await;
        assert!(answer.starts_with("idsvc_ac_"), "{met}");
    }
    for unmet in [
        json!({"value": stranger}),
        json!({"value": "nobody"}),
        json!({"value": ""}),
        json!({"value": 1}),
        json!({"value": [alice.sub()]}),
        json!({"values": [stranger, "nobody"]}),
        json!({"values": []}),
        json!({"values": alice.sub()}),
        json!({"value": stranger, "values": [alice.sub()]}),
    ] {
        let answer = silent(&browser, &demand(unmet.clone())).await;
        assert_eq!(answer, "login_required", "{unmet}");
    }
    let tokens = acme.tokens(&browser).await;
    let hinted =
        |sub: &str| demand(json!({"values": [stranger, sub]})).with("id_token_hint", tokens.id_token());
    let answer = silent(&browser, &hinted(&alice.sub())).await;
    assert!(answer.starts_with("idsvc_ac_"));
    assert_eq!(silent(&browser, &hinted("nobody")).await, "invalid_request");
    let crowd: Vec<_> = (0..51).map(|n| Uuid::from_u128(n).to_string()).collect();
    assert_eq!(
        silent(&browser, &demand(json!({"values": crowd}))).await,
        "invalid_request"
    );
}

/// Section 3.1.2.1, `login_hint`: a wish, which the user may overrule.
#[tokio::test]
async fn a_login_hint_fills_in_the_name() {
    let (_server, acme, alice) = scene().await;
    let hint = "nobody\"><script>@example.com";
    let page = alice
        .browser()
        .authorize(&acme.request().with("login_hint", hint))
        .await;
    assert_eq!(page.login_form().value("username"), Some(hint));
    assert!(!page.text().contains("<script>@"));
    page.sign_in().await.callback().code();
}

/// Section 3.1.2.1: parameters about how a page looks are never a fault.
#[tokio::test]
async fn wishes_about_the_page_are_never_an_error() {
    let (_server, acme, alice) = scene().await;
    for (name, value) in [
        ("display", "page"),
        ("display", "popup"),
        ("display", "hologram"),
        ("ui_locales", "se"),
        ("ui_locales", "xx-YY de"),
        ("claims_locales", "se"),
        ("acr_values", "urn:mace:incommon:iap:silver 1"),
        ("acr_values", "5"),
    ] {
        let tokens = acme
            .tokens_for(&alice.browser(), &acme.request().with(name, value))
            .await;
        assert_eq!(tokens.id().claims["acr"], "1", "{name}={value}");
    }
    let german = alice
        .browser()
        .authorize(&acme.request().with("ui_locales", "xx de en"))
        .await;
    assert!(german.text().contains("lang=\"de\""));
    let arabic = alice
        .browser()
        .authorize(&acme.request().with("ui_locales", "ar"))
        .await;
    assert!(arabic.text().contains("dir=\"rtl\""));
}

/// Section 5.5.1.1: an essential `acr` that cannot be met is an error, a voluntary one is not.
#[tokio::test]
async fn an_essential_acr_is_met_or_refused() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let ask = |acr: &str| {
        acme.request()
            .with("claims", &format!(r#"{{"id_token":{{"acr":{acr}}}}}"#))
    };
    for met in [
        r#"{"essential":true,"values":["5","1"]}"#,
        r#"{"essential":true,"value":"1"}"#,
        r#"{"essential":true}"#,
        r#"{"values":["5"]}"#,
        "null",
    ] {
        assert_eq!(
            id_token(&acme, &browser, &ask(met)).await.claims["acr"],
            "1",
            "{met}"
        );
    }
    for unmet in [
        r#"{"essential":true,"values":["5","6"]}"#,
        r#"{"essential":true,"value":"5"}"#,
        r#"{"essential":true,"value":1}"#,
    ] {
        let callback = browser.authorize(&ask(unmet)).await.callback();
        assert_eq!(callback.error(), "unmet_authentication_requirements");
    }
}

/// Section 6: what is not supported is refused, not passed over. So is an object that is not signed (section 6.1).
#[tokio::test]
async fn unsigned_request_objects_and_addresses_of_objects_are_refused() {
    let (_server, acme, alice) = scene().await;
    for (name, value, error) in [
        ("request", "eyJhbGciOiJub25lIn0.e30.", "invalid_request_object"),
        (
            "request_uri",
            "https://acme.example/request.jwt",
            "request_uri_not_supported",
        ),
        ("registration", "{}", "registration_not_supported"),
    ] {
        let callback = alice
            .browser()
            .authorize(&acme.request().with(name, value))
            .await
            .callback();
        assert_eq!(callback.error(), error);
        assert_eq!(callback.get("state"), Some("state of acme"));
    }
    let elsewhere = acme
        .request()
        .with("redirect_uri", "https://evil.example/")
        .with("request", "e30.e30.");
    let page = alice.browser().authorize(&elsewhere).await;
    assert_eq!(page.error_page(), format!("400 {}", Mismatch::Unregistered));
}

/// Section 3.1.2.3: who is signed in for one client is signed in for all.
#[tokio::test]
async fn a_second_client_needs_no_second_sign_in() {
    let (server, acme, alice) = scene().await;
    let second = server.public_client("second").await;
    let browser = alice.browser();
    let one = acme.tokens(&browser).await.id().claims;
    server.advance(600);
    let callback = browser.fetch(&second.request().path()).await.callback();
    let other = second.redeem(&callback.code()).await.tokens().id().claims;
    for same in ["sub", "sid", "auth_time"] {
        assert_eq!(one[same], other[same]);
    }
    assert_eq!(
        (&other["aud"], &other["azp"]),
        (&"second".into(), &"second".into())
    );
}

/// Section 3.1.2.3: a session ends when it is not used for half a day, and after a week in any case.
#[tokio::test]
async fn a_session_ends_by_idleness_and_by_age() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    server.advance(12 * 3_600);
    assert!(
        silent(&browser, &acme.request())
            .await
            .starts_with("login_required")
    );
    acme.code(&browser).await;
    for _ in 0..15 {
        server.advance(11 * 3_600);
        assert!(silent(&browser, &acme.request()).await.starts_with("idsvc_ac_"));
    }
    server.advance(3 * 3_600);
    assert!(
        silent(&browser, &acme.request())
            .await
            .starts_with("login_required")
    );
}

/// Each way to use a session counts, however short the time without use may be.
#[tokio::test]
async fn a_session_in_use_does_not_end_by_idleness() {
    let server = Server::start_with(|policy| policy.lifetimes.session.idle = Duration::from_mins(5)).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let browser = alice.browser();
    acme.code(&browser).await;
    for _ in 0..4 {
        server.advance(4 * 60);
        assert!(silent(&browser, &acme.request()).await.starts_with("idsvc_ac_"));
    }
    for _ in 0..4 {
        server.advance(4 * 60);
        assert_eq!(browser.visit("/account").await.page(), "/account");
    }
    assert!(silent(&browser, &acme.request()).await.starts_with("idsvc_ac_"));
    server.advance(5 * 60);
    assert!(
        silent(&browser, &acme.request())
            .await
            .starts_with("login_required")
    );
}

/// Section 3.1.2.3: a new authentication restarts the lifetime of the session.
#[tokio::test]
async fn signing_in_again_renews_the_session() {
    const DAY: u64 = 24 * 3_600;
    let server = Server::start_with(|policy| {
        policy.lifetimes.session.idle = policy.lifetimes.session.absolute;
    })
    .await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let browser = alice.browser();
    let first = id_token(&acme, &browser, &acme.request()).await.claims;
    server.advance(6 * DAY);
    let page = browser.authorize(&acme.request().with("prompt", "login")).await;
    page.sign_in().await.callback().code();
    server.advance(6 * DAY);
    let callback = browser
        .authorize(&acme.request().with("prompt", "none"))
        .await
        .callback();
    let last = acme.redeem(&callback.code()).await.tokens().id().claims;
    assert_eq!(first["sid"], last["sid"]);
    server.advance(DAY);
    assert!(
        silent(&browser, &acme.request())
            .await
            .starts_with("login_required")
    );
}

/// Section 3.1.2.3: a user who was disabled is signed in nowhere.
#[tokio::test]
async fn a_disabled_user_is_signed_in_nowhere() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    server.change_user(&alice, |user| user.enabled = false).await;
    assert!(
        silent(&browser, &acme.request())
            .await
            .starts_with("login_required")
    );
    assert_eq!(browser.authorize(&acme.request()).await.page(), "/login");
}

/// Section 3.1.2.2: several sign-ins may be under way in one browser.
#[tokio::test]
async fn two_sign_ins_in_one_browser_do_not_disturb_each_other() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let browser = alice.browser();
    let one = browser.authorize(&acme.request()).await;
    let two = browser.authorize(&other.request()).await;
    acme.redeem(&one.sign_in().await.callback().code()).await.tokens();
    let reloaded = browser.visit(&two.path).await;
    other.redeem(&reloaded.callback().code()).await.tokens();
}

/// Section 3.1.2.6: addresses that no sign-in belongs to.
#[tokio::test]
async fn a_page_without_a_sign_in_says_so() {
    let (_server, _acme, alice) = scene().await;
    let browser = alice.browser();
    let expired = format!("400 {}", LoginTransactionError::Expired);
    let query = write_form(&[("transaction", "00000000-0000-7000-8000-000000000000")]);
    for path in [
        "/consent",
        &format!("/consent?{query}"),
        &format!("/login?{query}"),
    ] {
        assert_eq!(browser.visit(path).await.error_page(), expired, "{path}");
    }
    assert_eq!(browser.visit("/error").await.error_page_status(), 400);
}

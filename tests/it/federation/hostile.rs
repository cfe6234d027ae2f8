//! What a hostile visitor, a hostile provider and one that is down cannot do.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::admin::group::AddGroup;
use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user;
use idsvc::federation::Provider;
use idsvc::flow::login::transaction::LoginTransactionError;
use idsvc::oauth::GroupFields;
use idsvc::pages::text::{DE, EN};
use idsvc::store::tables::PROVIDERS;
use serde_json::json;

use super::{AT_PROVIDER, Question, Scene, open, registered, scene, scene_with};
use crate::harness::{Audit, START, Say, Tokens, Upstream};

#[tokio::test]
async fn an_application_without_passwords_takes_none() {
    let scene = scene().await;
    let alice = scene.server.user("alice").await;
    let password_client = scene.server.client("by-password").await;
    let screen = alice.browser().authorize(&password_client.request()).await;
    let form = screen.login_form();
    let tied_request = screen.browser().fetch(&scene.acme.request().path()).await;
    let transaction = tied_request
        .header("location")
        .unwrap()
        .split("transaction=")
        .nth(1)
        .unwrap()
        .to_owned();
    let page = screen
        .browser()
        .fetch(&format!("/login?transaction={transaction}&problem=failed"))
        .await;
    assert!(page.forms().iter().all(|form| form.value("password").is_none()));
    let forged = form
        .with("transaction", &transaction)
        .with("username", "alice@example.com")
        .with("password", &alice.password);
    let refused = screen.browser().submit(&forged).await;
    assert_eq!((refused.status, refused.page()), (400, "/login"));
    assert!(refused.text().contains(EN.problem_expired));
    assert!(screen.browser().cookie("__Host-idsvc_session").is_none());
    let page = alice.browser().authorize(&password_client.request()).await;
    scene
        .server
        .change_client(&password_client, |client| client.password_sign_in = false)
        .await;
    let late = page.sign_in().await;
    assert!(
        late.browser().cookie("__Host-idsvc_session").is_none(),
        "the permission was taken away during the sign-in"
    );
}

#[tokio::test]
async fn an_answer_counts_once_in_the_browser_that_asked() {
    let scene = scene().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let answer = question.answer("code=c-1");
    let stolen = scene.visitor().fetch(&answer).await;
    assert_eq!(stolen.status, 400);
    assert!(
        stolen
            .text()
            .contains(&LoginTransactionError::OtherBrowser.to_string()),
        "{}",
        stolen.text()
    );
    assert!(
        scene.upstream.seen("/token").is_empty(),
        "nothing is redeemed for a thief"
    );
    browser.visit(&answer).await.callback().code();
    browser.visit(&answer).await.callback().code();
    assert_eq!(
        scene.upstream.seen("/token").len(),
        1,
        "the sign-in answers again, not the provider"
    );
    scene.server.advance(10);
    let replayed = browser.visit(&answer).await;
    assert_eq!(replayed.status, 400);
    assert_eq!(scene.upstream.seen("/token").len(), 1);
    for bad in [
        "code=x",
        "state=&code=x",
        "state=idsvc_us_x&code=x",
        "state=a&state=b&code=x",
        "error=x",
    ] {
        assert_eq!(
            browser
                .fetch(&format!("/federation/up/callback?{bad}"))
                .await
                .status,
            400,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn the_last_question_is_the_one_that_is_answered() {
    let scene = scene_with(open, |_| {}).await;
    let browser = scene.visitor();
    let screen = browser.authorize(&scene.acme.request()).await;
    let start = screen.path.replace("/login?", "/federation/up/start?");
    let first = Question::of(&browser.visit(&start).await, &scene.upstream);
    let second = Question::of(&browser.visit(&start).await, &scene.upstream);
    scene.vouch(&second, "u-1", &json!({}));
    assert_eq!(browser.fetch(&first.answer("code=c")).await.status, 400);
    browser.visit(&second.answer("code=c")).await.callback().code();
}

#[tokio::test]
async fn an_answer_of_another_provider_is_refused() {
    let scene = scene_with(open, |_| {}).await;
    let evil = Upstream::start_other().await;
    scene.server.provider("evil", registered(&evil)).await;
    scene
        .server
        .change_client(&scene.acme, |client| {
            client.providers.insert("evil".to_owned());
        })
        .await;
    let browser = scene.visitor();
    let screen = browser.authorize(&scene.acme.request()).await;
    let question = Question::of(
        &browser
            .visit(&screen.path.replace("/login?", "/federation/up/start?"))
            .await,
        &scene.upstream,
    );
    scene.vouch(&question, "u-1", &json!({}));
    assert_eq!(
        browser.fetch(&question.answer_of("evil", "code=c")).await.status,
        400
    );
    let iss: String = form_urlencoded::byte_serialize(evil.issuer.as_bytes()).collect();
    let mixed = browser
        .visit(&question.answer(&format!("code=c&iss={iss}")))
        .await;
    assert!(
        mixed.text().contains(EN.problem_provider_failed),
        "{}",
        mixed.text()
    );
    assert!(scene.upstream.seen("/token").is_empty() && evil.seen("/token").is_empty());
}

/// While a user is at a provider, the operator may give its name to another issuer. The new issuer gets no code of the
/// first one.
#[tokio::test]
async fn an_answer_of_the_issuer_before_goes_to_no_other() {
    let scene = scene().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    let other = Upstream::start_other().await;
    scene.server.change_provider("up", registered(&other)).await;
    let screen = browser.visit(&question.answer("code=c-1")).await;
    assert_eq!(screen.page(), "/login");
    assert!(
        screen.text().contains(EN.problem_provider_failed),
        "{}",
        screen.text()
    );
    assert!(other.seen("/token").is_empty());
}

#[tokio::test]
async fn a_provider_that_promises_to_name_itself_has_to() {
    let scene = scene().await;
    let document = json!({
        "issuer": scene.upstream.issuer,
        "authorization_endpoint": format!("{}/authorize", scene.upstream.issuer),
        "token_endpoint": format!("{}/token", scene.upstream.issuer),
        "jwks_uri": format!("{}/jwks", scene.upstream.issuer),
        "authorization_response_iss_parameter_supported": true,
    });
    scene
        .upstream
        .say("/.well-known/openid-configuration", Say::Json(document));
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let silent = browser.visit(&question.answer("code=c")).await;
    assert!(silent.text().contains(EN.problem_provider_failed));
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let iss: String = form_urlencoded::byte_serialize(scene.upstream.issuer.as_bytes()).collect();
    browser
        .visit(&question.answer(&format!("code=c&iss={iss}")))
        .await
        .callback()
        .code();
}

#[tokio::test]
async fn the_id_token_is_checked_in_full() {
    let scene = scene().await;
    let now = START.seconds();
    for changes in [
        json!({"iss": "https://other.example"}),
        json!({"aud": "another-client"}),
        json!({"aud": [AT_PROVIDER, "another-client"]}),
        json!({"azp": "another-client"}),
        json!({"nonce": null}),
        json!({"nonce": "another"}),
        json!({"exp": now - 31}),
        json!({"iat": now + 31}),
        json!({"sub": ""}),
        json!({"sub": "a\nb"}),
        json!({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}),
        json!({"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}),
    ] {
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        scene.vouch(&question, "u-1", &changes);
        let screen = browser.visit(&question.answer("code=c")).await;
        assert_eq!((screen.status, screen.page()), (200, "/login"), "{changes}");
        assert!(screen.text().contains(EN.problem_provider_failed), "{changes}");
        assert!(browser.cookie("__Host-idsvc_session").is_none());
    }
    let scene = &scene;
    let forge = |token: String| async move {
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        let mut claims = scene.upstream.claims(AT_PROVIDER, "u-1");
        claims["nonce"] = question.get("nonce").unwrap().into();
        let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
        scene.issue(&token.replace("PAYLOAD", &payload));
        browser
            .visit(&question.answer("code=c"))
            .await
            .text()
            .contains(EN.problem_provider_failed)
    };
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    assert!(forge(format!("{none}.PAYLOAD.")).await);
    let hs256 = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    assert!(forge(format!("{hs256}.PAYLOAD.{}", URL_SAFE_NO_PAD.encode([1; 32]))).await);
    assert!(
        user::page(scene.server.admin(), &user::ListUsers::default())
            .unwrap()
            .records
            .is_empty(),
        "nobody came in"
    );
}

#[tokio::test]
async fn an_error_is_told_on_the_page_or_to_the_application() {
    let scene = scene().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    for _ in 0..2 {
        let denied = browser
            .visit(&question.answer("error=access_denied"))
            .await
            .callback();
        assert_eq!(denied.error(), "access_denied");
    }
    for (error, expected) in [
        ("temporarily_unavailable", EN.problem_provider_unavailable),
        ("server_error", EN.problem_provider_unavailable),
        ("invalid_scope", EN.problem_provider_failed),
        ("%3Cscript%3E", EN.problem_provider_failed),
    ] {
        let question = scene.ask(&browser).await;
        let screen = browser
            .visit(&question.answer(&format!("error={error}&error_description=secret")))
            .await;
        assert!(screen.text().contains(expected), "{error}: {}", screen.text());
        assert!(!screen.text().contains("secret") && !screen.text().contains("<script>"));
        assert!(
            screen.text().contains("href=\"/federation/up/start?"),
            "there is a way to try again"
        );
    }
    scene
        .server
        .change_client(&scene.acme, |client| client.password_sign_in = true)
        .await;
    let screen = browser.authorize(&scene.acme.request()).await;
    let start = screen.path.replace("/login?", "/federation/up/start?");
    let question = Question::of(&browser.visit(&start).await, &scene.upstream);
    let screen = browser.visit(&question.answer("error=access_denied")).await;
    assert!(
        screen.text().contains(EN.problem_provider_cancelled)
            && screen.login_form().value("password").is_some()
    );
}

#[tokio::test]
async fn an_upstream_that_is_down_gives_a_clear_page() {
    let scene = scene().await;
    let down = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_vec();
    scene
        .upstream
        .say("/.well-known/openid-configuration", Say::Raw(down.clone()));
    let browser = scene.visitor();
    let screen = browser.authorize(&scene.acme.request()).await;
    assert_eq!(screen.page(), "/login");
    assert!(
        screen.text().contains(EN.problem_provider_unavailable),
        "{}",
        screen.text()
    );
    let other = Scene { ..scene };
    other.server.advance(5);
    let fresh = Upstream::start_other().await;
    drop(fresh);
    let question = {
        let issuer = other.upstream.issuer.clone();
        other.upstream.say(
            "/.well-known/openid-configuration",
            Say::Json(json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "jwks_uri": format!("{issuer}/jwks"),
            })),
        );
        other.ask(&browser).await
    };
    other.upstream.say("/token", Say::Raw(down));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(screen.text().contains(EN.problem_provider_unavailable));
}

#[tokio::test]
async fn a_disabled_provider_refuses_everywhere() {
    let scene = scene_with(open, |_| {}).await;
    let browser = scene.visitor();
    let screen = browser.authorize(&scene.acme.request()).await;
    let start = screen.path.replace("/login?", "/federation/up/start?");
    let question = Question::of(&browser.visit(&start).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({}));
    let signed_in = scene.visitor();
    let other = Question::of(
        &signed_in
            .authorize(&scene.acme.request().with("idp_hint", "up"))
            .await,
        &scene.upstream,
    );
    scene.vouch(&other, "u-1", &json!({}));
    let code = signed_in.visit(&other.answer("code=c")).await.callback().code();
    let tokens = scene.acme.redeem(&code).await.tokens();
    let alice = scene.server.user("alice").await;
    let typed = scene.acme.tokens(&alice.browser()).await;
    let is_enabled = async |enabled| {
        let fields = ProviderFields {
            enabled: Some(enabled),
            ..ProviderFields::default()
        };
        scene.server.change_provider("up", fields).await;
    };
    let is_in_force = async |tokens: &Tokens| {
        let mut verdicts = vec![scene.acme.is_welcome(tokens).await];
        for token in [tokens.access_token(), tokens.refresh_token()] {
            verdicts.push(scene.acme.introspect(token).await.json()["active"] == json!(true));
        }
        verdicts.dedup();
        assert_eq!(verdicts.len(), 1, "one answer everywhere");
        verdicts[0]
    };
    assert!(is_in_force(&tokens).await);
    is_enabled(false).await;
    assert!(!is_in_force(&tokens).await);
    assert!(is_in_force(&typed).await, "who came by password stays");
    let screen = browser.visit(&start).await;
    assert!(screen.page() == "/login" && screen.text().contains(EN.problem_provider_failed));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(screen.page() == "/login" && screen.text().contains(EN.problem_provider_failed));
    assert_eq!(
        signed_in.authorize(&scene.acme.request()).await.page(),
        "/login",
        "the session does not count"
    );
    assert_eq!(
        scene.acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
    is_enabled(true).await;
    assert!(is_in_force(&tokens).await);
    scene.acme.refresh(tokens.refresh_token()).await.tokens();
}

/// A visitor without any way to sign in is told so, instead of seeing a page with only a heading.
#[tokio::test]
async fn a_page_without_a_way_in_says_so() {
    let scene = scene().await;
    let disabled = ProviderFields {
        enabled: Some(false),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", disabled).await;
    let request = scene.acme.request().with("ui_locales", "de");
    let browser = scene.visitor();
    for (request, expected) in [
        (scene.acme.request(), EN.problem_no_way),
        (request, DE.problem_no_way),
    ] {
        let screen = browser.authorize(&request).await;
        assert_eq!((screen.page(), screen.status), ("/login", 200));
        assert!(screen.text().contains(expected), "{}", screen.text());
    }
    let elsewhere = scene.server.client("by-password").await;
    let screen = browser.authorize(&elsewhere.request()).await;
    assert!(!screen.text().contains(EN.problem_no_way));
}

#[tokio::test]
async fn made_up_answers_without_end_are_held_back_before_the_provider_is_asked() {
    let scene = scene().await;
    let browser = scene.visitor();
    let answer = scene.ask(&browser).await.answer("code=made-up");
    let audit = Audit::listen();
    for _ in 0..300 {
        assert_eq!(browser.fetch(&answer).await.status, 303);
    }
    let held_back = browser.fetch(&answer).await;
    assert_eq!(held_back.status, 429);
    assert!(held_back.header("retry-after").is_some());
    assert_eq!(scene.upstream.seen("/token").len(), 300);
    let refusals = audit.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(refusals[0]["error"], "throttled");
}

/// The service ignores a claim `groups` of the provider, and a mapping to `groups` that an earlier release allowed.
#[tokio::test]
async fn a_provider_puts_nobody_into_a_group() {
    let scene = scene_with(
        |client| {
            open(client);
            client.scope = client.scope.clone().with("groups");
        },
        |_| {},
    )
    .await;
    let core = &scene.server.app.core;
    let mut provider = Provider::clone(core.catalog().provider("up").unwrap());
    for name in ["groups", "roles"] {
        provider
            .settings
            .claims
            .insert(name.to_owned(), "teams".to_owned());
    }
    let written = core.store.write("test_provider", move |tx| {
        PROVIDERS.put(tx, &provider.id, &provider)
    });
    written.await.unwrap();
    core.reload_catalog().await.unwrap();
    let group = AddGroup {
        name: "admins".to_owned(),
        fields: GroupFields::default(),
    };
    scene.server.admin().call(group).await.unwrap();
    let browser = scene.visitor();
    let request = scene
        .acme
        .request()
        .with("scope", "openid groups")
        .with("idp_hint", "up");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    let claims = json!({"groups": ["admins"], "roles": ["admins"], "teams": ["admins"]});
    scene.vouch(&question, "u-1", &claims);
    let code = browser
        .visit(&question.answer("code=c-1"))
        .await
        .callback()
        .code();
    let tokens = scene.acme.redeem(&code).await.tokens();
    for claims in [tokens.id().claims, tokens.access().claims] {
        assert_eq!((&claims["groups"], claims.get("roles")), (&json!([]), None));
    }
    let users = user::page(scene.server.admin(), &user::ListUsers::default()).unwrap();
    let user = &users.records[0];
    assert!(user.groups.is_empty() && !user.claims.contains_key("groups"));
}

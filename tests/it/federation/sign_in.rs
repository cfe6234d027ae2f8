//! The way to a provider and back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user;
use idsvc::federation::provider::UpstreamAuth;
use idsvc::oauth::client::{ClientOrigin, GrantType};
use idsvc::pages::text::EN;
use serde_json::json;

use super::{AT_PROVIDER, Question, open, registered, scene, scene_with, tied, uuid};
use crate::harness::html::Form;
use crate::harness::server::PROVIDER_SECRET;
use crate::harness::{ISSUER, START, Screen, Upstream};

#[tokio::test]
async fn the_application_notices_nothing_but_the_amr() {
    let scene = scene().await;
    let browser = scene.visitor();
    let claims = json!({"email": "ann@up.example", "email_verified": true, "name": "Ann Up"});
    let tokens = scene.tokens(&browser, "u-1", &claims).await;
    assert_eq!(tokens.0["amr"], json!([{"authority": "up"}]));
    assert_eq!(
        (&tokens.0["source"], &tokens.0["account_id"]),
        (&json!("up"), &json!("ann@up.example"))
    );
    let id = scene.acme.verify(tokens.id_token()).await.claims;
    assert_eq!(id["amr"], json!(["fed"]));
    assert!(id["sid"].is_string());
    let users = user::page(scene.server.admin(), &user::ListUsers::default())
        .unwrap()
        .records;
    assert_eq!(users.len(), 1);
    assert_eq!(users[0].claims["name"], "Ann Up");
    let again = scene.acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(again.0["amr"], json!([{"authority": "up"}]));
}

#[tokio::test]
async fn the_question_is_complete_and_bound_to_this_sign_in() {
    let scene = scene().await;
    let request = scene
        .acme
        .request()
        .with("login_hint", "ann@up.example")
        .with("ui_locales", "de fr")
        .with("max_age", "60");
    let question = Question::of(&scene.visitor().authorize(&request).await, &scene.upstream);
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", AT_PROVIDER),
        ("redirect_uri", &format!("{ISSUER}/federation/up/callback")),
        ("scope", "openid profile email"),
        ("code_challenge_method", "S256"),
        ("login_hint", "ann@up.example"),
        ("ui_locales", "de fr"),
        ("max_age", "60"),
    ] {
        assert_eq!(question.get(name), Some(value), "{name}");
    }
    assert_eq!(question.get("code_challenge").unwrap().len(), 43);
    assert_eq!(question.get("prompt"), None);
    let other = scene.ask(&scene.visitor()).await;
    for name in ["state", "nonce", "code_challenge"] {
        assert_ne!(question.get(name), other.get(name), "{name}");
    }
}

#[tokio::test]
async fn the_code_is_redeemed_with_the_secret_and_the_verifier() {
    for (method, basic) in [
        (UpstreamAuth::ClientSecretBasic, true),
        (UpstreamAuth::ClientSecretPost, false),
    ] {
        let scene = scene_with(tied, |fields| fields.auth_method = Some(method)).await;
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        scene.vouch(&question, "u-1", &json!({}));
        browser.visit(&question.answer("code=c%2B1")).await.callback();
        let seen = scene.upstream.seen("/token").pop().unwrap();
        assert_eq!(seen.field("grant_type"), Some("authorization_code"));
        assert_eq!(seen.field("code"), Some("c+1"));
        assert_eq!(seen.field("redirect_uri"), question.get("redirect_uri"));
        let verifier = seen.field("code_verifier").unwrap();
        let challenge = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
        assert_eq!(
            question.get("code_challenge"),
            Some(&*URL_SAFE_NO_PAD.encode(challenge))
        );
        let encoded: String = form_urlencoded::byte_serialize(PROVIDER_SECRET.as_bytes()).collect();
        let pair = format!("{AT_PROVIDER}:{encoded}");
        let header = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
        assert_eq!(seen.authorization.is_some_and(|sent| sent == header), basic);
        assert_eq!(
            seen.form.iter().any(|(_, value)| value == PROVIDER_SECRET),
            !basic
        );
    }
}

#[tokio::test]
async fn the_service_can_sign_who_it_is() {
    let scene = scene_with(tied, |fields| {
        fields.auth_method = Some(UpstreamAuth::PrivateKeyJwt);
    })
    .await;
    scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let seen = scene.upstream.seen("/token").pop().unwrap();
    let assertion = scene.acme.verify(seen.field("client_assertion").unwrap()).await;
    let claims = assertion.claims;
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!(AT_PROVIDER), &json!(AT_PROVIDER))
    );
    assert_eq!(claims["aud"], scene.upstream.issuer);
    assert_eq!(claims["exp"], START.seconds() + 60);
    assert!(claims["jti"].is_string() && seen.field("client_secret").is_none());
}

#[tokio::test]
async fn a_second_application_needs_no_second_sign_in() {
    let scene = scene().await;
    let other = scene.server.client_with("other", tied).await;
    let browser = scene.visitor();
    let first = scene.tokens(&browser, "u-1", &json!({})).await;
    let second = other.tokens(&browser).await;
    assert_eq!(uuid(&first), uuid(&second));
    assert_eq!(scene.upstream.seen("/token").len(), 1);
    let by_password = scene.server.client("by-password").await;
    let screen = browser.authorize(&by_password.request()).await;
    assert_eq!(
        screen.page(),
        "/login",
        "an application that does not take the provider's word asks itself"
    );
}

#[tokio::test]
async fn the_page_offers_what_the_application_takes() {
    let scene = scene_with(open, |_| {}).await;
    let alice = scene.server.user("alice").await;
    let screen = alice.browser().authorize(&scene.acme.request()).await;
    assert_eq!(screen.page(), "/login");
    assert!(
        screen.text().contains("<bdi class=\"name\">Up &amp; Co</bdi>"),
        "{}",
        screen.text()
    );
    let link = screen
        .text()
        .split("href=\"/federation/up/start?")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let question = Question::of(
        &screen
            .browser()
            .visit(&format!("/federation/up/start?{link}"))
            .await,
        &scene.upstream,
    );
    scene.vouch(&question, "u-1", &json!({}));
    screen
        .browser()
        .visit(&question.answer("code=c"))
        .await
        .callback()
        .code();
    let typed = alice
        .browser()
        .authorize(&scene.acme.request())
        .await
        .through()
        .await;
    typed.code();
    let hinted = scene.acme.request().with("idp_hint", "up");
    Question::of(&alice.browser().authorize(&hinted).await, &scene.upstream);
    let unknown = scene.acme.request().with("idp_hint", "nobody");
    assert_eq!(alice.browser().authorize(&unknown).await.page(), "/login");
    let fields = ProviderFields {
        domains: Some(vec!["up.example".to_owned()]),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", fields).await;
    let by_domain = scene.acme.request().with("login_hint", "ann@UP.example");
    Question::of(&alice.browser().authorize(&by_domain).await, &scene.upstream);
    let elsewhere = scene.acme.request().with("login_hint", "ann@elsewhere.example");
    assert_eq!(alice.browser().authorize(&elsewhere).await.page(), "/login");
}

/// There is no going on with a session that the application does not take: it would show the same page for ever.
#[tokio::test]
async fn a_choice_of_account_offers_none_that_the_application_does_not_take() {
    let scene = scene().await;
    let by_password = scene.server.client("by-password").await;
    let browser = scene.server.user("alice").await.browser();
    by_password.tokens(&browser).await;
    let choice = scene.acme.request().with("prompt", "select_account");
    let question = Question::of(&browser.authorize(&choice).await, &scene.upstream);
    assert_eq!(question.get("prompt"), Some("select_account"));
    let other = Upstream::start_other().await;
    scene.server.provider("other", registered(&other)).await;
    scene
        .server
        .change_client(&scene.acme, |client| {
            client.providers.insert("other".to_owned());
        })
        .await;
    let screen = browser.authorize(&choice).await;
    assert_eq!(screen.page(), "/login");
    assert!(!screen.text().contains("value=\"continue\""), "{}", screen.text());
}

/// A user who must authenticate again for the account page does so in the same way as before. The provider of the
/// user's e-mail domain may know the user under another account.
#[tokio::test]
async fn nobody_is_sent_to_a_provider_by_the_name_of_their_own_account() {
    let scene = scene().await;
    let fields = ProviderFields {
        domains: Some(vec!["example.com".to_owned()]),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", fields).await;
    let browser = scene.server.user("bob").await.browser();
    let page = browser.visit("/account/devices").await.sign_in().await;
    scene.server.advance(11 * 60);
    let asked = browser.submit(&end_others(&page)).await;
    assert_eq!(asked.page(), "/login");
    assert_eq!(asked.login_form().value("username"), Some("bob@example.com"));
}

/// A provider whose clock is ahead does not keep an authentication recent for longer.
#[tokio::test]
async fn a_sign_in_of_the_future_is_one_of_now() {
    let scene = scene().await;
    let browser = scene.visitor();
    let tomorrow = START.seconds() + 86_400;
    let tokens = scene
        .tokens(&browser, "u-1", &json!({"auth_time": tomorrow}))
        .await;
    assert_eq!(tokens.id().claims["auth_time"], START.seconds());
    let page = browser.visit("/account/devices").await;
    let sessions = end_others(&page);
    scene.server.advance(599);
    assert_eq!(browser.submit(&sessions).await.page(), "/account/devices");
    scene.server.advance(1);
    assert_eq!(browser.submit(&sessions).await.page(), "/login");
}

/// The form that ends all other sessions.
fn end_others(account: &Screen) -> Form {
    let mut forms = account.forms().into_iter();
    let sessions = forms.find(|form| form.value("decision") == Some("sessions"));
    sessions.unwrap().with("session", "others")
}

/// If a provider has a session, a person at the open browser comes back without a question. A provider that does not
/// send `auth_time` is therefore asked to authenticate the user again before anything ends.
#[tokio::test]
async fn a_silent_return_from_a_provider_is_no_proof() {
    let scene = scene_with(open, |_| {}).await;
    let browser = scene.visitor();
    let request = scene.acme.request().with("idp_hint", "up");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({}));
    browser
        .visit(&question.answer("code=c-1"))
        .await
        .callback()
        .code();
    let account = browser.visit("/account/devices").await;
    let asked = browser.submit(&end_others(&account)).await;
    assert_eq!(asked.page(), "/login");
    let start = asked.path.replace("/login?", "/federation/up/start?");
    let question = Question::of(&browser.visit(&start).await, &scene.upstream);
    assert_eq!(
        (question.get("prompt"), question.get("max_age")),
        (Some("login"), Some("600")),
        "it has to say when, if it can"
    );
    assert_eq!(question.get("login_hint"), None, "it is a name of this service");
    scene.vouch(&question, "u-1", &json!({}));
    let account = browser.visit(&question.answer("code=c-2")).await;
    assert_eq!(
        browser.submit(&end_others(&account)).await.page(),
        "/account/devices"
    );
    // What was asked of it stands in an address: an application that has to know when is told no.
    let silent = scene.acme.request().with("max_age", "300").with("prompt", "none");
    let answer = browser.authorize(&silent).await.callback();
    assert_eq!(answer.get("error"), Some("login_required"));
}

/// `auth_time` is what the provider says. An application that needs it gets an error.
#[tokio::test]
async fn nobody_invents_when_a_user_authenticated() {
    let scene = scene().await;
    let browser = scene.visitor();
    let tokens = scene.tokens(&browser, "u-1", &json!({})).await;
    let id = scene.acme.verify(tokens.id_token()).await.claims;
    let access = scene.acme.verify(tokens.access_token()).await.claims;
    assert!(id.get("auth_time").is_none() && access.get("auth_time").is_none());
    let request = scene.acme.request().with("max_age", "300");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({}));
    let answer = browser.visit(&question.answer("code=c-2")).await.callback();
    assert_eq!(answer.get("error"), Some("unmet_authentication_requirements"));
}

/// The moment of return does not prove when the user signed in. It satisfies the `max_age` of no application (OpenID
/// Connect Core 3.1.2.1).
#[tokio::test]
async fn a_sign_in_of_an_age_that_nobody_tells_is_of_none() {
    let scene = scene().await;
    let other = scene.server.client_with("other", tied).await;
    let browser = scene.visitor();
    scene.tokens(&browser, "u-1", &json!({})).await;
    for party in [&scene.acme, &other] {
        let silent = party.request().with("max_age", "300").with("prompt", "none");
        let answer = browser.authorize(&silent).await.callback();
        assert_eq!(answer.get("error"), Some("login_required"));
    }
    let request = other.request().with("max_age", "300");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    assert_eq!(
        (question.get("prompt"), question.get("max_age")),
        (None, Some("300")),
        "it has to say when, and nobody has to prove again what may be young enough"
    );
    scene.vouch(&question, "u-1", &json!({"auth_time": START.seconds() - 200}));
    browser
        .visit(&question.answer("code=c-2"))
        .await
        .callback()
        .code();
    let request = scene.acme.request().with("max_age", "300");
    browser.authorize(&request).await.callback().code();
}

#[tokio::test]
async fn a_demanded_sign_in_is_demanded_there_too() {
    let scene = scene().await;
    let browser = scene.visitor();
    let dated = json!({"auth_time": START.seconds()});
    scene.tokens(&browser, "u-1", &dated).await;
    let request = scene.acme.request().with("prompt", "login");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    assert_eq!(question.get("prompt"), Some("login"));
    let request = scene.acme.request().with("max_age", "0");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    assert_eq!(question.get("prompt"), Some("login"));
    let request = scene.acme.request().with("max_age", "100");
    scene.server.advance(101);
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    assert_eq!(
        (question.get("prompt"), question.get("max_age")),
        (Some("login"), Some("100"))
    );
    let now = START.seconds() + 101;
    scene.vouch(&question, "u-1", &json!({"iat": now, "auth_time": now - 131}));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(
        screen.text().contains(EN.problem_provider_failed),
        "an old sign-in there is none here"
    );
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({"iat": now}));
    let answer = browser.visit(&question.answer("code=c")).await.callback();
    assert_eq!(
        answer.get("error"),
        Some("unmet_authentication_requirements"),
        "nor is one of an age that nobody tells"
    );
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({"iat": now, "auth_time": now - 5}));
    let code = browser.visit(&question.answer("code=c")).await.callback().code();
    let tokens = scene.acme.redeem(&code).await.tokens();
    let id = scene.acme.verify(tokens.id_token()).await.claims;
    assert_eq!(id["auth_time"], now - 5);
}

/// OpenID Connect Core 3.1.2.1: the age counts until the time of the request. The time that a user spends on further
/// pages or a second factor after the password does not count.
#[tokio::test]
async fn the_time_that_people_take_at_the_provider_does_not_count() {
    let scene = scene().await;
    for max_age in [0, 10] {
        let request = scene.acme.request().with("max_age", &max_age.to_string());
        for (since, is_believed) in [(5, true), (-30 - max_age, true), (-31 - max_age, false)] {
            let browser = scene.visitor();
            let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
            let asked_at = scene.server.clock.now().seconds();
            let dated = json!({"iat": asked_at, "auth_time": asked_at.checked_add_signed(since).unwrap()});
            scene.server.advance(45);
            scene.vouch(&question, "u-1", &dated);
            let screen = browser.visit(&question.answer("code=c")).await;
            assert_eq!(
                !screen.text().contains(EN.problem_provider_failed),
                is_believed,
                "{max_age}, {since}: {}",
                screen.text()
            );
            if is_believed {
                screen.callback().code();
            }
        }
    }
}

/// `prompt=login` is not answered by a sign-in that the provider itself says is an old one (section 3.1.2.1).
#[tokio::test]
async fn a_provider_that_asks_nobody_anew_is_not_believed() {
    let scene = scene().await;
    let request = scene.acme.request().with("prompt", "login");
    for (age, is_believed) in [(3600, false), (31, false), (30, true), (0, true)] {
        let browser = scene.visitor();
        let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
        let now = START.seconds();
        scene.vouch(&question, "u-1", &json!({"iat": now, "auth_time": now - age}));
        let screen = browser.visit(&question.answer("code=c")).await;
        assert_eq!(
            !screen.text().contains(EN.problem_provider_failed),
            is_believed,
            "{age}"
        );
    }
}

#[tokio::test]
async fn the_answer_in_a_form_looks_and_speaks_as_the_application_asked() {
    let scene = scene_with(
        |client| {
            tied(client);
            client.theme = Some("split".to_owned());
        },
        |_| {},
    )
    .await;
    let browser = scene.visitor();
    let request = scene
        .acme
        .request()
        .with("response_mode", "form_post")
        .with("ui_locales", "de");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({}));
    let page = browser.fetch(&question.answer("code=c")).await;
    assert!(page.text().contains("card page-form-post"), "{}", page.text());
    assert!(page.text().contains("<html lang=\"de\"") && page.text().contains("<body class=\"split\">"));
}

/// RFC 8628: the sign-in for a device goes the same way, and ends on the page for the decision.
#[tokio::test]
async fn a_person_signs_in_at_the_provider_to_allow_a_device() {
    let scene = scene_with(
        |client| {
            tied(client);
            client.grant_types.insert(GrantType::DeviceCode);
        },
        |_| {},
    )
    .await;
    let codes = scene.acme.post("/oauth2/device_authorization").await.json();
    let browser = scene.visitor();
    let page = browser.visit("/device").await;
    let form = page
        .forms()
        .into_iter()
        .find(|form| form.value("user_code").is_some());
    let form = form
        .unwrap()
        .with("user_code", codes["user_code"].as_str().unwrap());
    let sent = browser.submit(&form).await;
    let question = Question::of(&sent, &scene.upstream);
    let refused = browser.visit(&question.answer("error=access_denied")).await;
    assert_eq!(refused.page(), "/login");
    let question = Question::of(&browser.submit(&form).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({}));
    let page = browser.visit(&question.answer("code=c-1")).await;
    assert_eq!(page.page(), "/device");
    page.decide("allow").await;
    let redeemed = scene.acme.post("/oauth2/token");
    let redeemed = redeemed.with("grant_type", "urn:ietf:params:oauth:grant-type:device_code");
    let tokens = redeemed
        .with("device_code", codes["device_code"].as_str().unwrap())
        .await
        .tokens();
    assert_eq!(tokens.0["amr"], json!([{"authority": "up"}]));
}

/// RFC 9700 section 4.11.2: a provider may send a browser back without a person. So the error of a client that registered
/// itself is shown.
#[tokio::test]
async fn an_error_at_the_provider_sends_nobody_to_a_client_that_registered_itself() {
    let scene = scene().await;
    let stranger = scene
        .server
        .client_with("stranger", |client| {
            client.origin = ClientOrigin::DynamicRegistration;
        })
        .await;
    let request = stranger.request().with("max_age", "300").with("idp_hint", "up");
    let browser = scene.visitor();
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({}));
    let shown = browser.visit(&question.answer("code=c-1")).await;
    assert_eq!((shown.status, shown.page()), (200, "/login"));
}

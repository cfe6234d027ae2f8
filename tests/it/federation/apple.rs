//! Sign in with Apple: a client secret that the service signs, an answer that is posted, a name that is sent once.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::admin::SecretString;
use idsvc::admin::provider::{AddProvider, ProviderFields};
use idsvc::admin::user;
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwt::{self, ExpectedTyp};
use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use serde_json::{Value, json};

use super::{AT_PROVIDER, Question, Scene, registered, scene, tied};
use crate::harness::process::{Service, said};
use crate::harness::{Browser, Jwt, Server, Upstream};

const POSTED_USER: &str = "__Host-idsvc_posted_user";
const USER: &str = r#"{"name":{"firstName":"Zoë","lastName":"d'Arc"},"email":"zoe@up.example"}"#;

/// A private key in the form of Apple's files.
fn file_of(key: &SigningKey) -> String {
    format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
        STANDARD.encode(key.pkcs8())
    )
}

async fn apple() -> (Scene, SigningKey) {
    let upstream = Upstream::start().await;
    let server = Server::start_reaching(&upstream.terms(), |_| {}).await;
    let key = SigningKey::generate_es256(&Random::system()).unwrap();
    let add = AddProvider {
        id: "up".to_owned(),
        client_secret: Some(SecretString::new(file_of(&key))),
        fields: ProviderFields {
            scope: Some(vec!["openid".to_owned(), "name".to_owned(), "email".to_owned()]),
            apple_team_id: Some("TEAM123456".to_owned()),
            apple_key_id: Some("KEY1234567".to_owned()),
            ..registered(&upstream)
        },
    };
    server.admin().call(add).await.unwrap();
    let acme = server.client_with("acme", tied).await;
    let scene = Scene {
        upstream,
        server,
        acme,
    };
    (scene, key)
}

impl Scene {
    /// The browser posts the answer from the provider's site, so without cookies, and follows the redirect with them.
    /// Returns where it is sent.
    async fn post_answer(&self, browser: &Browser, question: &Question, more: &[(&str, &str)]) -> String {
        let mut post = self
            .server
            .post("/federation/up/callback")
            .with("state", question.state());
        for (name, value) in more {
            post = post.with(name, value);
        }
        let reply = post.await;
        assert_eq!(reply.status, 303, "{}", reply.text());
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("referrer-policy"), Some("strict-origin"));
        for line in reply.cookies() {
            assert!(
                line.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=300"),
                "{line}"
            );
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            assert_eq!(name, POSTED_USER);
            browser.set_cookie(name, value);
        }
        reply.location().to_owned()
    }

    async fn sign_in_at_apple(&self, browser: &Browser, subject: &str, user: Option<&str>) -> Value {
        let question = self.ask(browser).await;
        assert_eq!(question.get("response_mode"), Some("form_post"));
        self.vouch(&question, subject, &json!({}));
        let more = [("code", "c-1")]
            .into_iter()
            .chain(user.map(|user| ("user", user)));
        let address = self
            .post_answer(browser, &question, &more.collect::<Vec<_>>())
            .await;
        let expected = format!("/federation/up/callback?state={}&code=c-1", question.state());
        assert_eq!(address, expected, "proxies log it");
        let code = browser.visit(&address).await.callback().code();
        assert_eq!(browser.cookie(POSTED_USER), None);
        let tokens = self.acme.redeem(&code).await.tokens();
        assert_eq!(tokens.0["email"], "", "the address beside the name is not signed");
        let users = user::page(self.server.admin(), &user::ListUsers::default());
        let users = users.unwrap().records.into_iter();
        let account = format!("up:{subject}");
        let mut users = users.filter(|user| user.account_id == account);
        json!(users.next().unwrap().claims)
    }
}

#[tokio::test]
async fn the_service_signs_a_new_client_secret_for_each_request() {
    let (scene, key) = apple().await;
    for subject in ["u-1", "u-2"] {
        scene.sign_in_at_apple(&scene.visitor(), subject, None).await;
        scene.server.advance(1);
    }
    let [first, second] = scene.upstream.seen("/token").try_into().unwrap();
    assert_eq!((first.authorization, first.form.len()), (None, 6));
    assert_ne!(
        first.form.iter().find(|(name, _)| name == "client_secret"),
        second.form.iter().find(|(name, _)| name == "client_secret")
    );
    let secret = second.field("client_secret").unwrap();
    let header = Jwt::read(secret).header;
    assert_eq!(
        header,
        json!({ "alg": "ES256", "kid": "KEY1234567", "typ": "JWT" })
    );
    let select = |_: Option<&str>, _| Some(key.public());
    let claims: Value = jwt::verify(secret, ExpectedTyp::Any, &[Algorithm::Es256], select).unwrap();
    let at = scene.server.clock.now().seconds() - 1;
    let issuer = &scene.upstream.issuer;
    assert_eq!(
        claims,
        json!({ "iss": "TEAM123456", "sub": AT_PROVIDER, "aud": issuer, "iat": at, "exp": at + 300 })
    );
    assert_eq!(second.field("client_id"), Some(AT_PROVIDER));
}

#[tokio::test]
async fn the_name_that_is_sent_once_is_kept_for_a_new_account_only() {
    let (scene, _) = apple().await;
    let profile = |claims: &Value| ["name", "given_name", "family_name"].map(|name| claims[name].clone());
    let known = [json!("Zoë d'Arc"), json!("Zoë"), json!("d'Arc")];
    let first = scene.sign_in_at_apple(&scene.visitor(), "u-1", Some(USER)).await;
    assert_eq!(profile(&first), known);
    let later = scene.sign_in_at_apple(&scene.visitor(), "u-1", None).await;
    assert_eq!(profile(&later), known);
    let other = USER.replace("Zoë", "Eve");
    let again = scene
        .sign_in_at_apple(&scene.visitor(), "u-1", Some(&other))
        .await;
    assert_eq!(profile(&again), known, "a user who is known keeps the name");
    let long = json!({ "name": { "firstName": "a".repeat(2000) } }).to_string();
    for (subject, odd) in [
        ("u-2", "no JSON"),
        ("u-3", r#"{"name":{"firstName":7,"lastName":" "}}"#),
        ("u-4", "[]"),
        ("u-5", &long),
    ] {
        let claims = scene.sign_in_at_apple(&scene.visitor(), subject, Some(odd)).await;
        assert_eq!(profile(&claims), [Value::Null, Value::Null, Value::Null], "{odd}");
    }
    let half = scene
        .sign_in_at_apple(&scene.visitor(), "u-6", Some(r#"{"name":{"lastName":"Su"}}"#))
        .await;
    assert_eq!(profile(&half), [json!("Su"), Value::Null, json!("Su")]);
}

/// The POST reads and uses up nothing: it may come twice, and only the browser of the sign-in gets further.
#[tokio::test]
async fn a_posted_answer_is_only_redirected_to_the_same_place() {
    let (scene, _) = apple().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let more = [
        ("code", "c+1 &"),
        ("redirect_uri", "https://evil.example"),
        ("x", "y"),
    ];
    let address = scene.post_answer(&browser, &question, &more).await;
    assert_eq!(address, scene.post_answer(&browser, &question, &more).await);
    assert_eq!(
        address,
        format!(
            "/federation/up/callback?state={}&code=c%2B1+%26",
            question.state()
        )
    );
    assert!(scene.upstream.seen("/token").is_empty());
    assert_eq!(
        scene.visitor().visit(&address).await.status,
        400,
        "another browser"
    );
    browser.visit(&address).await.callback().code();
    let seen = scene.upstream.seen("/token").pop().unwrap();
    assert_eq!(seen.field("code"), Some("c+1 &"));

    let question = scene.ask(&scene.visitor()).await;
    let long = "c".repeat(5000);
    let post = scene
        .server
        .post("/federation/up/callback")
        .with("state", question.state());
    assert_eq!(post.clone().with("code", &long).await.status, 400);
    assert_eq!(post.with("code", "a").and("code", "b").await.status, 400);
}

/// Two sign-ins at once: a name is of the sign-in that it was posted to.
#[tokio::test]
async fn a_posted_name_is_not_used_in_another_sign_in_or_from_an_address() {
    let (scene, _) = apple().await;
    let (browser, other) = (scene.visitor(), scene.visitor());
    let (question, foreign) = (scene.ask(&browser).await, scene.ask(&other).await);
    scene
        .post_answer(&browser, &foreign, &[("code", "c-2"), ("user", USER)])
        .await;
    scene.vouch(&question, "u-1", &json!({}));
    let user: String = form_urlencoded::byte_serialize(USER.as_bytes()).collect();
    let answer = question.answer(&format!("code=c-1&user={user}"));
    browser.visit(&answer).await.callback().code();
    let users = user::page(scene.server.admin(), &user::ListUsers::default());
    assert_eq!(users.unwrap().records[0].claims.get("name"), None);
}

#[tokio::test]
async fn cancelling_at_apple_is_a_refusal() {
    let (scene, _) = apple().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    let address = scene
        .post_answer(&browser, &question, &[("error", "user_cancelled_authorize")])
        .await;
    let answer = browser.visit(&address).await.callback();
    assert_eq!(answer.get("error"), Some("access_denied"));
}

#[tokio::test]
async fn another_provider_may_not_post_its_answer_or_send_a_name() {
    let scene = scene().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    assert_eq!(question.get("response_mode"), None);
    scene.vouch(&question, "u-1", &json!({}));
    for provider in ["up", "unknown"] {
        let path = format!("/federation/{provider}/callback");
        let post = scene
            .server
            .post(&path)
            .with("state", question.state())
            .with("code", "c-1");
        let reply = post.await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")));
    }
    let user: String = form_urlencoded::byte_serialize(USER.as_bytes()).collect();
    browser
        .visit(&question.answer(&format!("code=c-1&user={user}")))
        .await
        .callback()
        .code();
    let users = user::page(scene.server.admin(), &user::ListUsers::default());
    assert_eq!(users.unwrap().records[0].claims.get("name"), None);
}

#[test]
fn apple_is_added_with_its_team_and_key() {
    let service = Service::new();
    let folder = tempfile::TempDir::new().unwrap();
    let key = SigningKey::generate_es256(&Random::system()).unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (p8, text) = (file("AuthKey.p8", &file_of(&key)), file("secret", "a secret"));
    let add =
        "provider add apple --issuer https://appleid.apple.com --client-id com.example.web --create-users";
    let run = |more: &str| {
        let line = format!("{add} {more} --json");
        service.run(&line.split(' ').collect::<Vec<_>>())
    };
    let team = "--apple-team-id TEAM123456";
    for (more, problem) in [
        (format!("{team} --apple-key-file {p8}"), "--apple-key-id"),
        (
            format!("{team} --apple-key-id KEY1234567"),
            "(the .p8 file), in place of a client secret: add --apple-key-file",
        ),
        (
            format!("--apple-team-id team123456 --apple-key-id KEY1234567 --apple-key-file {p8}"),
            "ten capital letters and digits",
        ),
        (
            format!("{team} --apple-key-id KEY123456\u{3000} --apple-key-file {p8}"),
            "ten capital letters and digits",
        ),
        (
            format!("{team} --apple-key-id AuthKey_KEY1234567.p8 --apple-key-file {p8}"),
            "ten capital letters and digits",
        ),
        (
            format!("{team} --apple-key-id KEY1234567 --apple-key-file {text}"),
            "not its private key for ES256",
        ),
        (
            format!("{team} --apple-key-id KEY1234567 --apple-key-file {p8} --auth-method private_key_jwt"),
            "client_secret_post only",
        ),
    ] {
        let ran = run(&more);
        let text = said(&ran);
        assert!(!ran.status.success() && text.contains(problem), "{more}: {text}");
    }
    let ran = run(&format!("{team} --apple-key-id KEY1234567 --apple-key-file {p8}"));
    assert!(ran.status.success(), "{}", said(&ran));
    let shown = service.json(&["provider", "show", "apple", "--json"]);
    assert_eq!(shown["auth_method"], "client_secret_post");
    assert_eq!(
        (&shown["apple_team_id"], &shown["apple_key_id"]),
        (&json!("TEAM123456"), &json!("KEY1234567"))
    );
    assert_eq!(shown["has_secret"], true);
    let leave = [
        "provider",
        "update",
        "apple",
        "--apple-team-id",
        "",
        "--apple-key-id",
        "",
        "--json",
    ];
    let ran = service.run(&leave);
    assert!(
        !ran.status.success() && said(&ran).contains("secret"),
        "the key is not sent as a secret"
    );
}

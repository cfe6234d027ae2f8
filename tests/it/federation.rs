//! Sign-in at an upstream provider, from the application's door and back to it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::federation::provider::{LinkPolicy, UpstreamAuth};
use idsvc::flow::admin::provider::ProviderFields;
use idsvc::flow::admin::provider::examine::{ProviderReport, Standing, examine};
use idsvc::flow::admin::{Disclosed, user};
use idsvc::jose::jwt;
use idsvc::oauth::client::Client;
use idsvc::store::tables::{FAMILIES, LOGIN_TRANSACTIONS, SESSIONS};
use serde_json::{Value, json};
use url::Url;

use crate::harness::reply::Callback;
use crate::harness::{
    Browser, ISSUER, RelyingParty, START, Say, Screen, Server, Tokens, Upstream, parse_form,
};

/// The identifier of the service at the provider.
const AT_PROVIDER: &str = "idsvc";
const SECRET: &str = "the secret at the provider: with/odd+characters";

struct Scene {
    upstream: Upstream,
    server: Server,
    acme: RelyingParty,
}

fn registered(upstream: &Upstream) -> ProviderFields {
    ProviderFields {
        issuer: Some(upstream.issuer.clone()),
        name: Some("Up & Co".to_owned()),
        client_id: Some(AT_PROVIDER.to_owned()),
        client_secret: Some(Disclosed::new(SECRET)),
        create_users: Some(true),
        ..ProviderFields::default()
    }
}

/// A client whose people come by the provider and in no other way.
fn tied(client: &mut Client) {
    client.providers.insert("up".to_owned());
    client.password_sign_in = false;
}

/// A client whose people may choose.
fn open(client: &mut Client) {
    client.providers.insert("up".to_owned());
}

async fn scene() -> Scene {
    scene_with(tied, |_| {}).await
}

async fn scene_with(client: impl FnOnce(&mut Client), provider: impl FnOnce(&mut ProviderFields)) -> Scene {
    let upstream = Upstream::start().await;
    let server = Server::start_reaching(&upstream.terms(), |_| {}).await;
    let mut fields = registered(&upstream);
    provider(&mut fields);
    server.provider("up", fields).await;
    let acme = server.client_with("acme", client).await;
    Scene {
        upstream,
        server,
        acme,
    }
}

/// A question that the service has sent a browser to the provider with.
struct Question(Vec<(String, String)>);

impl Question {
    fn of(screen: &Screen, upstream: &Upstream) -> Self {
        let location = screen
            .header("location")
            .unwrap_or_else(|| panic!("{}", screen.text()));
        let address = Url::parse(location).unwrap();
        assert!(
            location.starts_with(&format!("{}/authorize?", upstream.issuer)),
            "{location}"
        );
        Self(parse_form(address.query().unwrap()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn state(&self) -> &str {
        self.get("state").unwrap()
    }

    fn answer(&self, rest: &str) -> String {
        self.answer_of("up", rest)
    }

    fn answer_of(&self, provider: &str, rest: &str) -> String {
        format!("/federation/{provider}/callback?state={}&{rest}", self.state())
    }
}

impl Scene {
    fn visitor(&self) -> Browser {
        self.server.browser()
    }

    async fn ask(&self, browser: &Browser) -> Question {
        Question::of(&browser.authorize(&self.acme.request()).await, &self.upstream)
    }

    /// The provider answers this question about `subject`, with these claims changed; null removes one.
    fn vouch(&self, question: &Question, subject: &str, changes: &Value) {
        let mut claims = self.upstream.claims(AT_PROVIDER, subject);
        claims["nonce"] = question.get("nonce").unwrap().into();
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        self.issue(&self.upstream.sign(&claims));
    }

    fn issue(&self, id_token: &str) {
        self.upstream.say(
            "/token",
            Say::Json(json!({
                "access_token": "the-upstream-access-token",
                "token_type": "Bearer",
                "expires_in": 600,
                "id_token": id_token,
            })),
        );
    }

    /// Signs somebody in at the provider and brings them to the application.
    async fn sign_in(&self, browser: &Browser, subject: &str, claims: &Value) -> Callback {
        let question = self.ask(browser).await;
        self.vouch(&question, subject, claims);
        browser.visit(&question.answer("code=c-1")).await.callback()
    }

    async fn tokens(&self, browser: &Browser, subject: &str, claims: &Value) -> Tokens {
        let code = self.sign_in(browser, subject, claims).await.code();
        self.acme.redeem(&code).await.tokens()
    }
}

fn uuid(tokens: &Tokens) -> String {
    tokens.0["uuid"].as_str().unwrap().to_owned()
}

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
    assert!(id["sid"].is_string() && id["auth_time"] == START.seconds());
    let users = user::list(scene.server.admin(), 10).unwrap();
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
    let stored = scene
        .server
        .app
        .core
        .store
        .read(|snapshot| LOGIN_TRANSACTIONS.scan(snapshot, .., 10))
        .unwrap();
    assert!(!serde_json::to_string(&stored).unwrap().contains(question.state()));
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
        let encoded: String = form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
        let pair = format!("{AT_PROVIDER}:{encoded}");
        let header = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
        assert_eq!(seen.authorization.is_some_and(|sent| sent == header), basic);
        assert_eq!(seen.form.iter().any(|(_, value)| value == SECRET), !basic);
    }
}

#[tokio::test]
async fn the_service_can_sign_who_it_is() {
    let scene = scene_with(tied, |fields| {
        fields.auth_method = Some(UpstreamAuth::PrivateKeyJwt);
        fields.client_secret = None;
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
        screen
            .text()
            .contains("Continue with <bdi class=\"name\">Up &amp; Co</bdi>"),
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
    assert_eq!(refused.page(), "/login");
    assert!(screen.browser().cookie("__Host-idsvc_session").is_none());
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
        stolen.text().contains("begun in another browser"),
        "{}",
        stolen.text()
    );
    assert!(
        scene.upstream.seen("/token").is_empty(),
        "nothing is redeemed for a thief"
    );
    browser.visit(&answer).await.callback().code();
    let replayed = browser.fetch(&answer).await;
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
    assert!(mixed.text().contains("did not work"), "{}", mixed.text());
    assert!(scene.upstream.seen("/token").is_empty() && evil.seen("/token").is_empty());
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
    assert!(silent.text().contains("did not work"));
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
        json!({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}),
    ] {
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        scene.vouch(&question, "u-1", &changes);
        let screen = browser.visit(&question.answer("code=c")).await;
        assert_eq!((screen.status, screen.page()), (200, "/login"), "{changes}");
        assert!(screen.text().contains("did not work"), "{changes}");
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
            .contains("did not work")
    };
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    assert!(forge(format!("{none}.PAYLOAD.")).await);
    let hs256 = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    assert!(forge(format!("{hs256}.PAYLOAD.{}", URL_SAFE_NO_PAD.encode([1; 32]))).await);
    assert!(
        user::list(scene.server.admin(), 10).unwrap().is_empty(),
        "nobody came in"
    );
}

#[tokio::test]
async fn an_error_is_told_on_the_page_or_to_the_application() {
    let scene = scene().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    let denied = browser
        .visit(&question.answer("error=access_denied"))
        .await
        .callback();
    assert_eq!(
        denied.refusal(),
        "access_denied: the user did not sign in at the provider"
    );
    for (error, expected) in [
        ("temporarily_unavailable", "cannot be reached right now"),
        ("server_error", "cannot be reached right now"),
        ("invalid_scope", "did not work"),
        ("%3Cscript%3E", "did not work"),
    ] {
        let question = scene.ask(&browser).await;
        let screen = browser
            .visit(&question.answer(&format!("error={error}&error_description=secret")))
            .await;
        assert!(screen.text().contains(expected), "{error}: {}", screen.text());
        assert!(!screen.text().contains("secret") && !screen.text().contains("<script>"));
        assert!(
            screen.text().contains("Continue with"),
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
    assert!(screen.text().contains("was cancelled") && screen.login_form().value("password").is_some());
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
        screen.text().contains("cannot be reached right now"),
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
    assert!(screen.text().contains("cannot be reached right now"));
}

#[tokio::test]
async fn userinfo_fills_what_the_id_token_leaves_out_and_speaks_of_the_same_person() {
    let scene = scene().await;
    scene.upstream.say(
        "/userinfo",
        Say::Json(json!({"sub": "u-1", "email": "ann@up.example", "email_verified": "true", "name": "Ann"})),
    );
    let tokens = scene
        .tokens(&scene.visitor(), "u-1", &json!({"nickname": "ann"}))
        .await;
    assert_eq!(tokens.0["account_id"], "ann@up.example");
    let seen = scene.upstream.seen("/userinfo").pop().unwrap();
    assert_eq!(
        seen.authorization.as_deref(),
        Some("Bearer the-upstream-access-token")
    );
    let user = user::show(scene.server.admin(), &uuid(&tokens)).unwrap();
    assert_eq!(
        (&user.claims["name"], &user.claims["nickname"]),
        (&json!("Ann"), &json!("ann"))
    );
    scene.upstream.say(
        "/userinfo",
        Say::Json(json!({"sub": "u-2", "email": "victim@up.example"})),
    );
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-3", &json!({}));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(screen.text().contains("did not work"));
}

#[tokio::test]
async fn claims_are_mapped_by_the_record() {
    let scene = scene_with(tied, |fields| {
        fields.claims = Some(vec![
            ("nickname".to_owned(), "login".to_owned()),
            ("employee".to_owned(), "emp_no".to_owned()),
        ]);
    })
    .await;
    let claims = json!({"login": "ann-login", "nickname": "theirs", "emp_no": 7, "email": "not an address", "name": ["no text"]});
    let tokens = scene.tokens(&scene.visitor(), "u-1", &claims).await;
    let user = user::show(scene.server.admin(), &uuid(&tokens)).unwrap();
    assert_eq!(
        (&user.claims["nickname"], &user.claims["employee"]),
        (&json!("ann-login"), &json!(7))
    );
    assert!(
        user.email.is_none() && !user.claims.contains_key("name"),
        "what has a wrong form is left out"
    );
}

#[tokio::test]
async fn the_upstreams_access_token_is_a_claim_until_it_expires_and_sealed_at_rest() {
    let scene = scene().await;
    let tokens = scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let access = scene.acme.verify(tokens.access_token()).await.claims;
    assert_eq!(access["upstream_access_token"], "the-upstream-access-token");
    assert!(tokens.0.get("upstream_access_token").is_none());
    let (families, sessions) = scene
        .server
        .app
        .core
        .store
        .read(|snapshot| Ok((FAMILIES.scan(snapshot, .., 9)?, SESSIONS.scan(snapshot, .., 9)?)))
        .unwrap();
    let stored = serde_json::to_string(&(&families, &sessions)).unwrap();
    assert!(stored.contains("sealed") && !stored.contains("the-upstream-access-token"));
    let again = scene.acme.refresh(tokens.refresh_token()).await.tokens();
    let access = scene.acme.verify(again.access_token()).await.claims;
    assert_eq!(access["upstream_access_token"], "the-upstream-access-token");
    scene.server.advance(600);
    let later = scene.acme.refresh(again.refresh_token()).await.tokens();
    let access = scene.acme.verify(later.access_token()).await.claims;
    assert!(access.get("upstream_access_token").is_none());
    let family = scene
        .server
        .app
        .core
        .store
        .read(|snapshot| FAMILIES.scan(snapshot, .., 9))
        .unwrap();
    assert!(
        family
            .iter()
            .all(|(_, family)| family.authorization.upstream_token.is_none())
    );
    let off = ProviderFields {
        embed_token: Some(String::new()),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", off).await;
    let tokens = scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let access = scene.acme.verify(tokens.access_token()).await.claims;
    assert!(access.get("upstream_access_token").is_none());
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
    let fields = ProviderFields {
        enabled: Some(false),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", fields).await;
    let screen = browser.visit(&start).await;
    assert!(screen.page() == "/login" && screen.text().contains("did not work"));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(screen.page() == "/login" && screen.text().contains("did not work"));
    assert_eq!(
        signed_in.authorize(&scene.acme.request()).await.page(),
        "/login",
        "the session does not count"
    );
    assert_eq!(
        scene.acme.refresh(tokens.refresh_token()).await.refusal(),
        "400 invalid_grant: the provider by which the user signed in is no longer in service"
    );
}

#[tokio::test]
async fn a_provider_is_replaced_without_a_change_at_the_application() {
    let scene = scene_with(tied, |fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let ann = json!({"email": "ann@up.example", "email_verified": true});
    let before = scene.tokens(&scene.visitor(), "u-1", &ann).await;
    let next = Upstream::start_other().await;
    let mut fields = registered(&next);
    fields.link = Some(LinkPolicy::VerifiedEmail);
    scene.server.provider("next", fields).await;
    scene
        .server
        .change_client(&scene.acme, |client| {
            client.providers = ["next".to_owned()].into();
        })
        .await;
    let browser = scene.visitor();
    let question = Question::of(&browser.authorize(&scene.acme.request()).await, &next);
    let mut claims = next.claims(AT_PROVIDER, "other-subject");
    claims["nonce"] = question.get("nonce").unwrap().into();
    claims["email"] = "ann@up.example".into();
    claims["email_verified"] = true.into();
    next.say(
        "/token",
        Say::Json(json!({"access_token": "a", "id_token": next.sign(&claims)})),
    );
    let code = browser
        .visit(&question.answer_of("next", "code=c"))
        .await
        .callback()
        .code();
    let after = scene.acme.redeem(&code).await.tokens();
    assert_eq!(
        uuid(&before),
        uuid(&after),
        "the same verified address is the same user"
    );
    assert_eq!(after.0["amr"], json!([{"authority": "next"}]));
    scene.acme.refresh(before.refresh_token()).await.tokens();
}

#[tokio::test]
async fn a_new_key_of_the_provider_is_learned() {
    let scene = scene().await;
    scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    scene.upstream.publish(&[scene.upstream.next_key()]);
    scene.server.advance(61);
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    let mut claims = scene.upstream.claims(AT_PROVIDER, "u-1");
    claims["nonce"] = question.get("nonce").unwrap().into();
    scene.issue(&jwt::sign(scene.upstream.next_key(), "JWT", &claims).unwrap());
    browser.visit(&question.answer("code=c")).await.callback().code();
}

#[tokio::test]
async fn who_may_not_come_in_is_told_so() {
    let scene = scene_with(tied, |fields| fields.create_users = Some(false)).await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(
        screen.text().contains("There is no account here for you"),
        "{}",
        screen.text()
    );
}

#[tokio::test]
async fn a_demanded_sign_in_is_demanded_there_too() {
    let scene = scene().await;
    let browser = scene.visitor();
    scene.tokens(&browser, "u-1", &json!({})).await;
    let request = scene.acme.request().with("prompt", "login");
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
        screen.text().contains("did not work"),
        "an old sign-in there is none here"
    );
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({"iat": now, "auth_time": now - 5}));
    let code = browser.visit(&question.answer("code=c")).await.callback().code();
    let tokens = scene.acme.redeem(&code).await.tokens();
    let id = scene.acme.verify(tokens.id_token()).await.claims;
    assert_eq!(id["auth_time"], now - 5);
}

#[tokio::test]
async fn a_picture_is_served_and_can_do_nothing() {
    let svg = r#"<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>"#;
    let scene = scene_with(open, |fields| {
        fields.logo = Some(base64::engine::general_purpose::STANDARD.encode(svg));
    })
    .await;
    let reply = scene.server.get("/federation/up/logo").await;
    assert_eq!(reply.header("content-type"), Some("image/svg+xml"));
    assert!(
        reply
            .header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
    assert_eq!(scene.server.get("/federation/none/logo").await.status, 404);
}

#[tokio::test]
async fn a_provider_is_examined_step_by_step() {
    let scene = scene().await;
    scene.upstream.say(
        "/authorize",
        Say::Raw(b"HTTP/1.1 303 See Other\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n".to_vec()),
    );
    let refused = |error: &str| {
        let body = format!(r#"{{"error":"{error}"}}"#);
        Say::Raw(
            format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes(),
        )
    };
    scene.upstream.say("/token", refused("invalid_grant"));
    let report = examine(scene.server.admin(), "up").await.unwrap();
    assert!(report.works, "{report:#?}");
    let failed = |report: &ProviderReport| -> Vec<String> {
        let failed = report
            .findings
            .iter()
            .filter(|finding| finding.standing == Standing::Failed);
        failed.map(|finding| finding.check.clone()).collect()
    };
    scene.upstream.say("/token", refused("invalid_client"));
    scene.upstream.say("/authorize", refused("invalid_request"));
    scene.upstream.say("/jwks", Say::Json(json!({"keys": []})));
    let report = examine(scene.server.admin(), "up").await.unwrap();
    assert_eq!(failed(&report), ["keys", "redirect uri", "credentials"]);
    assert!(
        report
            .findings
            .iter()
            .filter(|finding| finding.standing == Standing::Failed)
            .all(|finding| finding.remedy.is_some())
    );
    scene.upstream.say("/.well-known/openid-configuration", Say::Json(json!({
        "issuer": "https://other.example", "authorization_endpoint": "https://a.example/", "token_endpoint": "https://a.example/", "jwks_uri": "https://a.example/",
    })));
    let report = examine(scene.server.admin(), "up").await.unwrap();
    assert_eq!(failed(&report), ["discovery"]);
}

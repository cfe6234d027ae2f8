//! What the log says of a request that was refused: enough for those who run the service, and no secret.

use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::Refusal;
use idsvc::oauth::authorize::UntrustedRedirect;
use idsvc::oauth::client::{AuthMethod, Client, ConsentRequirement};
use idsvc::oauth::redirect_uri::Mismatch;
use idsvc::pages::text::EN;
use idsvc::random::Random;
use serde_json::{Value, json};

use crate::harness::reply::{Callback, line_of};
use crate::harness::token::signed;
use crate::harness::wire::Call;
use crate::harness::{Audit, ISSUER, START, Server};

fn es256() -> SigningKey {
    SigningKey::generate_es256(&Random::system()).unwrap()
}

fn ask(server: &Server) -> Call {
    server
        .post("/oauth2/token")
        .with("grant_type", "client_credentials")
}

/// The client and the cause, where one was refused and nothing else was.
fn cause(refused: &[Value]) -> (Option<&str>, Option<&str>) {
    let [line] = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(line["error"], "invalid_client");
    (line["client_id"].as_str(), line["reason"].as_str())
}

/// The lines without their descriptions, which every line has.
fn without_descriptions(mut lines: Vec<Value>) -> Vec<Value> {
    for line in &mut lines {
        let description = line.as_object_mut().unwrap().remove("description");
        assert_ne!(description.unwrap(), "");
    }
    lines
}

/// The answer is one for all, so that a stranger learns nothing.
#[tokio::test]
async fn the_log_says_why_a_client_proved_nothing() {
    let server = Server::start_with_limits(|limits| limits.enabled = false).await;
    server.client("web").await;
    server.public_client("app").await;
    let off = server.client("off").await;
    server.change_client(&off, |client| client.enabled = false).await;
    let key = es256();
    let jwk = key.public().to_jwk();
    server
        .client_with("robot", move |client| {
            client.jwks = vec![jwk];
            client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
            client.secrets.clear();
        })
        .await;
    let audit = Audit::listen();
    for (client_id, secret, registered, reason) in [
        ("web", "guessed-secret", Some("web"), "wrong_secret"),
        ("web", "", Some("web"), "no_secret"),
        ("app", "guessed-secret", Some("app"), "public_client_sent_secret"),
        ("robot", "guessed-secret", Some("robot"), "client_has_no_secret"),
        ("off", &off.secret, Some("off"), "client_disabled"),
        ("nobody", "guessed-secret", None, "unknown_client"),
    ] {
        let refused = ask(&server).basic(client_id, secret).await;
        assert_eq!(refused.refusal(), line_of(&Refusal::CLIENT_UNPROVEN));
        assert!(!refused.text().contains(reason));
        let lines = audit.refusals();
        assert_eq!(cause(&lines), (registered, Some(reason)));
        assert!(!json!(lines).to_string().contains("guessed"));
    }
    let claims = json!({
        "iss": "robot", "sub": "robot", "aud": ISSUER, "exp": START.seconds() + 60, "jti": "1",
    });
    for (key, header, reason) in [
        (&es256(), json!({"alg": "ES256"}), "bad_signature"),
        (&key, json!({"alg": "ES256", "kid": "other"}), "unknown_key"),
        (&key, json!({"alg": "ES256", "typ": "at+jwt"}), "wrong_typ"),
        (&key, json!({"alg": "HS256"}), "algorithm_not_allowed"),
    ] {
        let assertion = signed(key, &header, &claims);
        let refused = ask(&server)
            .with(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            )
            .with("client_assertion", &assertion)
            .await;
        assert_eq!(refused.refusal(), line_of(&Refusal::CLIENT_UNPROVEN));
        let lines = audit.refusals();
        assert_eq!(cause(&lines), (Some("robot"), Some(reason)));
        assert!(!json!(lines).to_string().contains(&assertion));
    }
}

#[tokio::test]
async fn the_log_says_which_client_asked_for_too_much() {
    let server = Server::start().await;
    let web = server.client("web").await;
    let audit = Audit::listen();
    let refused = web
        .post("/oauth2/token")
        .with("grant_type", "client_credentials")
        .await;
    let [line] = audit.refusals().try_into().unwrap();
    assert_eq!(line["client_id"], "web");
    assert_eq!(
        refused.refusal(),
        format!(
            "400 {}: {}",
            line["error"].as_str().unwrap(),
            line["description"].as_str().unwrap()
        )
    );
    assert_eq!(line.get("reason"), None);
}

/// A request that is turned away before it is parsed counts as a refusal too.
#[tokio::test]
async fn the_log_says_what_was_too_large_and_what_came_at_a_bad_moment() {
    let server = Server::start().await;
    let audit = Audit::listen();
    let here = "127.0.0.1".parse().unwrap();
    let too_large = "x".repeat(64 * 1024 + 1);
    let reply = ask(&server).with("pad", &too_large).await;
    assert_eq!(reply.status, 413);
    let places: Vec<_> = std::iter::from_fn(|| server.app.limits.permit_for_request(here)).collect();
    assert_eq!(ask(&server).await.status, 503);
    drop(places);
    assert_eq!(
        without_descriptions(audit.refusals()),
        [
            json!({"error": "invalid_request", "from": "127.0.0.1"}),
            json!({"error": "temporarily_unavailable", "from": "127.0.0.1"}),
        ]
    );
}

/// Scripts and APIs ask without a page that could show what is wrong.
#[tokio::test]
async fn the_log_says_which_token_and_which_origin_are_not_taken() {
    let server = Server::start().await;
    let web = server.client("web").await;
    let audit = Audit::listen();
    let refused = web.userinfo("guessed").await;
    assert_eq!(refused.status, 401);
    let [line] = audit.refusals().try_into().unwrap();
    assert_eq!(line["error"], "invalid_token");
    assert!(!line.to_string().contains("guessed"), "{line}");
    assert_eq!(server.get("/oauth2/userinfo").await.status, 401);
    assert!(audit.refusals().is_empty(), "who brings none asks how it is done");
    for (origin, logged) in [
        ("https://other.example", "https://other.example"),
        ("https://a.example\"", "https://a.example?"),
    ] {
        let preflight = server
            .call("OPTIONS", "/oauth2/token")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .await;
        assert_eq!(preflight.status, 403);
        assert_eq!(
            without_descriptions(audit.refusals()),
            [json!({
                "error": "403",
                "from": "127.0.0.1",
                "origin": logged,
            })]
        );
    }
}

/// Its query and its user name are left out: they may hold a secret.
#[tokio::test]
async fn the_log_says_which_redirect_uri_is_not_registered() {
    let server = Server::start().await;
    let web = server.client("web").await;
    let alice = server.user("alice").await;
    let audit = Audit::listen();
    let long = format!("https://app.example/{}", "x".repeat(3000));
    let most = format!("https://{}", &long[8..208]);
    for (sent, logged) in [
        ("https://app.example/other", "https://app.example/other"),
        ("https://app.example/cb?key=secret", "https://app.example/cb?..."),
        ("https://app.example/cb#key=secret", "https://app.example/cb#..."),
        ("https://me:secret@app.example/cb", "https://@app.example/cb"),
        ("https%3A%2F%2Fapp.example%3Fsecret", "https%..."),
        ("http://a/\"\r\n\u{202e}é", "http://a/?????"),
        (long.as_str(), most.as_str()),
    ] {
        let page = alice
            .browser()
            .authorize(&web.request().with("redirect_uri", sent))
            .await;
        assert_eq!(page.error_page(), format!("400 {}", Mismatch::Unregistered));
        assert_eq!(
            audit.refusals(),
            [json!({
                "error": "400",
                "description": Mismatch::Unregistered.to_string(),
                "from": "127.0.0.1",
                "client_id": "web",
                "redirect_uri": logged,
            })]
        );
    }
}

/// The refusal is sent to the application by redirect, and the application may show it to nobody.
#[tokio::test]
async fn the_log_says_what_an_application_is_told_by_redirect() {
    let server = Server::start().await;
    let asking = |client: &mut Client| client.consent = ConsentRequirement::Require;
    let web = server.client_with("web", asking).await;
    let alice = server.user("alice").await;
    let browser = alice.browser();
    let audit = Audit::listen();
    let log_of = |callback: &Callback| {
        json!([{
            "error": callback.error(),
            "description": callback.get("error_description"),
            "from": "127.0.0.1",
            "client_id": "web",
        }])
    };
    let state = "a-secret-of-the-application";
    let request = web.request().with("state", state);
    for (name, value, error) in [
        ("response_type", "token", "unsupported_response_type"),
        ("code_challenge_method", "plain", "invalid_request"),
        ("prompt", "none", "login_required"),
    ] {
        let callback = browser
            .authorize(&request.clone().with(name, value))
            .await
            .callback();
        assert_eq!(callback.error(), error);
        let logged = json!(audit.refusals());
        assert_eq!(logged, log_of(&callback));
        assert!(!logged.to_string().contains(state));
    }
    let posted = request
        .clone()
        .with("prompt", "none")
        .with("response_mode", "form_post");
    let posted = browser.authorize(&posted).await.posted_callback();
    assert_eq!(json!(audit.refusals()), log_of(&posted));
    let question = browser.authorize(&request).await.sign_in().await;
    assert!(audit.refusals().is_empty());
    let denied = question.decide("deny").await.callback();
    assert_eq!(denied.error(), "access_denied");
    assert_eq!(json!(audit.refusals()), log_of(&denied));
    let question = browser.authorize(&request).await;
    question.allow().await.callback().code();
    assert!(audit.refusals().is_empty(), "a code is no refusal");
}

#[tokio::test]
async fn the_log_tells_a_disabled_client_from_an_unknown_one() {
    let server = Server::start().await;
    let (web, alice) = (server.client("web").await, server.user("alice").await);
    server.change_client(&web, |client| client.enabled = false).await;
    let audit = Audit::listen();
    for (client_id, registered, reason) in [
        ("web", json!("web"), "client_disabled"),
        ("nobody", Value::Null, "unknown_client"),
    ] {
        let page = alice
            .browser()
            .authorize(&web.request().with("client_id", client_id))
            .await;
        assert_eq!(
            page.error_page(),
            format!("400 {}", UntrustedRedirect::UnknownClient)
        );
        let [line] = audit.refusals().try_into().unwrap();
        assert_eq!(
            (&line["client_id"], &line["reason"]),
            (&registered, &json!(reason))
        );
    }
}

/// The page is reached by another name of the machine, and answers go to that of the issuer: nobody would ever get in.
#[tokio::test]
async fn who_signs_in_under_another_name_is_told_the_right_one() {
    const ELSEWHERE: &str = "https://127.0.0.1:8443";
    let server = Server::start().await;
    let (web, alice) = (server.client("web").await, server.user("alice").await);
    let browser = alice.browser();
    let form = browser.authorize(&web.request()).await.login_form();
    let form = form
        .with("username", "alice@example.com")
        .with("password", &alice.password);
    let link = format!("<a href=\"{ISSUER}\"><bdi>{ISSUER}</bdi></a>");
    let audit = Audit::listen();
    for site in [Some("same-origin"), None] {
        let mut headers = vec![("origin", ELSEWHERE)];
        headers.extend(site.map(|site| ("sec-fetch-site", site)));
        let page = browser.submit_with(&form, &headers).await;
        assert_eq!((page.status, page.header("location")), (400, None));
        assert!(page.text().contains(&link), "{}", page.text());
        assert_eq!(
            without_descriptions(audit.refusals()),
            [json!({
                "error": "400",
                "from": "127.0.0.1",
                "client_id": "web",
                "origin": ELSEWHERE,
                "own_origin": ISSUER,
            })]
        );
    }
    // What another site sends, and what says nothing that can be shown, is called foreign.
    let forged = form.clone().with("csrf", "forged");
    for (form, origin, site) in [
        (&form, "https://evil.example", "cross-site"),
        (&form, "https://evil.example.test", "same-site"),
        (&forged, ELSEWHERE, "same-origin"),
        (&form, "null", "none"),
        (&form, "https://evil.example/<b>", "same-origin"),
        (&form, "HTTPS://EVIL.EXAMPLE", "same-origin"),
    ] {
        let page = browser
            .submit_with(form, &[("origin", origin), ("sec-fetch-site", site)])
            .await;
        assert_eq!(page.status, 400, "{origin}");
        assert_eq!(page.heading(), EN.error_foreign_form, "{origin}");
        assert_eq!(audit.refusals().len(), 1, "{origin}");
    }
    let at_issuer = server.get("/").header("accept", BROWSER).await;
    assert_eq!(
        (at_issuer.status, at_issuer.location()),
        (303, "/account"),
        "the link leads somewhere"
    );
    let done = browser.submit(&form).await;
    assert!(
        done.location().starts_with(web.redirect_uri()),
        "the right name does it"
    );
}

/// What a browser accepts.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// A probe that follows a redirect would begin a sign-in each time.
#[tokio::test]
async fn the_root_leads_people_to_their_account_and_tells_programs_what_this_is() {
    let server = Server::start().await;
    let person = server.get("/").header("accept", BROWSER).await;
    assert_eq!((person.status, person.location()), (303, "/account"));
    for accept in ["", "*/*", "application/json", "text/html;q=0"] {
        let program = server.get("/").header("accept", accept).await;
        assert_eq!(
            (program.status, program.header("location")),
            (200, None),
            "{accept}"
        );
        assert_eq!(program.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(
            program.text(),
            "idsvc, an OAuth 2.1 and OpenID Connect service: \
             https://id.example.test/.well-known/openid-configuration\n"
        );
    }
    assert_eq!(server.call("HEAD", "/").await.status, 200);
    assert_eq!(server.get("//").await.status, 404);
}

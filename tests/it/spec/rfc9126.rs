//! RFC 9126: pushed authorization requests.

use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::assertion::ASSERTION_TYPE;
use idsvc::oauth::authorize::UntrustedRedirect;
use idsvc::oauth::client::AuthMethod;
use idsvc::oauth::parameters::ParameterError;
use idsvc::oauth::pushed::URN;
use idsvc::random::Random;
use serde_json::json;

use crate::harness::relying_party::AuthorizationRequest;
use crate::harness::wire::Call;
use crate::harness::{Browser, ISSUER, Person, RelyingParty, Server};

const USED: &str = "400 request_uri is unknown, expired or used, or belongs to another client";

async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

fn push(party: &RelyingParty, request: &AuthorizationRequest) -> Call {
    let parameters = request.clone().without("client_id").parameters;
    party.post("/oauth2/par").fields(&parameters)
}

/// The request that a browser brings after the usual one was pushed.
async fn pushed(party: &RelyingParty) -> AuthorizationRequest {
    pushed_as(party, &party.request()).await
}

async fn pushed_as(party: &RelyingParty, request: &AuthorizationRequest) -> AuthorizationRequest {
    let reply = push(party, request).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    brought(party.client_id(), reply.json()["request_uri"].as_str().unwrap())
}

fn brought(client_id: &str, request_uri: &str) -> AuthorizationRequest {
    AuthorizationRequest::default()
        .with("client_id", client_id)
        .with("request_uri", request_uri)
}

async fn error_page(browser: &Browser, request: &AuthorizationRequest) -> String {
    browser.authorize(request).await.error_page()
}

/// Sections 2.2 and 4.
#[tokio::test]
async fn a_pushed_request_is_good_for_a_minute_and_signs_a_user_in() {
    let (server, acme, alice) = scene().await;
    let reply = push(&acme, &acme.request().with("nonce", "n-1")).await;
    assert_eq!(
        (reply.status, reply.json()["expires_in"].clone()),
        (201, json!(60))
    );
    assert!(reply.is_not_stored());
    let request_uri = reply.json()["request_uri"].as_str().unwrap().to_owned();
    assert!(request_uri.starts_with(URN), "{request_uri}");
    server.advance(59);
    let request = brought("acme", &request_uri);
    let callback = alice.browser().authorize(&request).await.through().await;
    assert_eq!(callback.get("state"), Some("state of acme"));
    let tokens = acme.redeem(&callback.code()).await.tokens();
    assert_eq!(tokens.id().claims["nonce"], "n-1");
    let discovery = server.get("/.well-known/openid-configuration").await.json();
    let endpoint = &discovery["pushed_authorization_request_endpoint"];
    assert_eq!(endpoint, &json!(format!("{ISSUER}/oauth2/par")));
}

/// Section 4: only `client_id` counts beside it.
#[tokio::test]
async fn parameters_beside_the_request_uri_are_ignored() {
    let (_server, acme, alice) = scene().await;
    let request = pushed(&acme).await;
    let request = request
        .with("redirect_uri", "https://evil.example/cb")
        .with("scope", "openid email")
        .with("response_mode", "form_post")
        .with("state", "another");
    let callback = alice.browser().authorize(&request).await.through().await;
    assert!(callback.uri.starts_with(acme.redirect_uri()), "{}", callback.uri);
    assert_eq!(callback.get("state"), Some("state of acme"));
    let tokens = acme.redeem(&callback.code()).await.tokens();
    assert_eq!(tokens.scope(), ["openid", "authenticated"]);
}

/// RFC 6749 section 3.1. The pushed request is not used up.
#[tokio::test]
async fn a_parameter_sent_twice_beside_the_request_uri_is_refused() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let request = pushed(&acme).await;
    for name in ["scope", "state", "extra"] {
        let twice = request.clone().and(name, "one").and(name, "two");
        let callback = browser.authorize(&twice).await.callback();
        assert_eq!(
            callback.refusal(),
            format!("invalid_request: {}", ParameterError::Duplicate(name.to_owned()))
        );
        assert_eq!(callback.get("state"), Some("state of acme"));
        assert!(callback.uri.starts_with(acme.redirect_uri()), "{}", callback.uri);
    }
    for name in ["client_id", "request_uri"] {
        let twice = request.clone().and(name, "another");
        assert_eq!(
            error_page(&browser, &twice).await,
            format!("400 {}", UntrustedRedirect::Ambiguous),
            "{name}"
        );
    }
    let named_twice = request.and("resource", "one").and("resource", "two");
    let callback = browser.authorize(&named_twice).await.through().await;
    acme.redeem(&callback.code()).await.tokens();
}

#[tokio::test]
async fn a_request_uri_that_expired_or_is_anothers_or_invented_shows_a_page() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let browser = alice.browser();
    let request = pushed(&acme).await;
    let request_uri = request.get("request_uri").unwrap().to_owned();
    let uri = acme.redirect_uri();
    let stolen = brought(other.client_id(), &request_uri);
    assert_eq!(error_page(&browser, &stolen).await, USED);
    let nobodys = request.clone().without("client_id");
    assert_eq!(error_page(&browser, &nobodys).await, "400 client_id is missing");
    for invented in [
        URN.to_owned(),
        format!("{URN}x"),
        format!("{request_uri}A"),
        request_uri[..request_uri.len() - 4].to_owned(),
    ] {
        let page = error_page(&browser, &brought("acme", &invented)).await;
        assert_eq!(page, USED, "{invented}");
    }
    server
        .change_client(&acme, |client| client.redirect_uris[0].push('2'))
        .await;
    assert_eq!(
        error_page(&browser, &request).await,
        USED,
        "the redirect URI is gone"
    );
    server
        .change_client(&acme, |client| client.redirect_uris[0].truncate(uri.len()))
        .await;
    server.advance(60);
    assert_eq!(error_page(&browser, &request).await, USED);
}

/// Section 7.3: a page may be loaded again, and a code is issued once.
#[tokio::test]
async fn it_is_used_when_the_sign_in_ends_and_not_when_the_page_opens() {
    let (server, acme, alice) = scene().await;
    let request = pushed(&acme).await;
    let (browser, late) = (alice.browser(), alice.browser());
    let opened = late.authorize(&request).await;
    assert_eq!(opened.page(), "/login");
    assert_eq!(browser.authorize(&request).await.page(), "/login");
    let form = browser.authorize(&request).await.sign_in().await;
    acme.redeem(&form.callback().code()).await.tokens();
    for browser in [&browser, &late, &server.browser()] {
        assert_eq!(error_page(browser, &request).await, USED);
    }
    let again = opened.sign_in().await;
    assert_eq!(again.error_page_status(), 400, "{}", again.text());
}

#[tokio::test]
async fn a_live_session_and_a_refusal_use_it_up_as_well() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    let request = pushed(&acme).await;
    let code = browser.authorize(&request).await.callback().code();
    acme.redeem(&code).await.tokens();
    assert_eq!(error_page(&browser, &request).await, USED);
    let asked = pushed_as(&acme, &acme.request().with("prompt", "consent")).await;
    let consent = browser.authorize(&asked).await;
    assert_eq!(consent.page(), "/consent");
    assert_eq!(consent.decide("deny").await.callback().error(), "access_denied");
    assert_eq!(error_page(&browser, &asked).await, USED);
    // A refusal before anybody has signed in changes nothing, so it may come again.
    let silent = pushed_as(&acme, &acme.request().with("prompt", "none")).await;
    for _ in 0..2 {
        let refused = server.browser().authorize(&silent).await.callback();
        assert_eq!(refused.error(), "login_required");
    }
}

/// Two answers at once: the writer decides, and one of them has the code.
#[tokio::test]
async fn of_two_browsers_with_one_request_uri_one_gets_the_code() {
    let (_server, acme, alice) = scene().await;
    let (one, other) = (alice.browser(), alice.browser());
    acme.tokens(&one).await;
    acme.tokens(&other).await;
    for _ in 0..10 {
        let request = pushed(&acme).await;
        let (first, second) = tokio::join!(one.authorize(&request), other.authorize(&request));
        let codes = [first, second]
            .iter()
            .filter(|screen| screen.status != 400)
            .count();
        assert_eq!(codes, 1);
    }
}

/// Section 2.3: what is wrong is answered to the client, which nobody else learns of.
#[tokio::test]
async fn what_is_wrong_with_a_request_is_answered_when_it_is_pushed() {
    let (server, acme, _alice) = scene().await;
    let public = server.public_client("app").await;
    let request = acme.request();
    for (request, error) in [
        (
            request.clone().with("request_uri", "urn:example:x"),
            "invalid_request",
        ),
        (
            request.clone().with("redirect_uri", "https://evil.example/cb"),
            "invalid_request",
        ),
        (request.clone().without("response_type"), "invalid_request"),
        (
            request.clone().with("response_type", "token"),
            "unsupported_response_type",
        ),
        (
            request.clone().with("request", "e30.e30."),
            "invalid_request_object",
        ),
        (request.clone().and("state", "twice"), "invalid_request"),
        (
            request
                .clone()
                .with("state", &"s".repeat(4096))
                .with("nonce", &"n".repeat(1024)),
            "invalid_request",
        ),
        (
            request.clone().with("resource", "https://unknown.example"),
            "invalid_target",
        ),
    ] {
        let reply = push(&acme, &request).await;
        assert_eq!(
            (reply.status, reply.error()),
            (400, error.to_owned()),
            "{request:?}"
        );
    }
    let unproven = server.post("/oauth2/par").fields(&request.parameters).await;
    assert_eq!(
        (unproven.status, unproven.error()),
        (401, "invalid_client".to_owned())
    );
    let unchallenged = public
        .request()
        .without("code_challenge")
        .without("code_challenge_method");
    assert_eq!(push(&public, &unchallenged).await.error(), "invalid_request");
    assert_eq!(push(&public, &public.request()).await.status, 201);
    assert_eq!(server.get("/oauth2/par").await.status, 405);
}

/// Section 6: `require_pushed_authorization_requests`.
#[tokio::test]
async fn a_client_that_must_push_is_refused_otherwise() {
    let (server, acme, alice) = scene().await;
    server
        .change_client(&acme, |client| {
            client.require_pushed_authorization_requests = true;
        })
        .await;
    let refused = alice.browser().authorize(&acme.request()).await.callback();
    assert_eq!(
        refused.refusal(),
        "invalid_request: this client must push its authorization requests"
    );
    let external = acme
        .request()
        .with("request_uri", "https://acme.example/request.jwt");
    let refused = alice.browser().authorize(&external).await.callback();
    assert_eq!(refused.error(), "invalid_request");
    let request = pushed(&acme).await;
    alice.browser().authorize(&request).await.through().await.code();
}

/// Section 2: an assertion may be addressed to the issuer, to this endpoint or to the token endpoint.
#[tokio::test]
async fn an_assertion_for_the_token_endpoint_is_accepted() {
    let (server, acme, _alice) = scene().await;
    let key = SigningKey::generate_es256(&Random::system()).unwrap();
    let jwk = key.public().to_jwk();
    server
        .change_client(&acme, |client| {
            client.jwks = vec![jwk];
            client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
        })
        .await;
    let parameters = acme.request().parameters;
    for (audience, status) in [
        (ISSUER.to_owned(), 201),
        (format!("{ISSUER}/oauth2/par"), 201),
        (format!("{ISSUER}/oauth2/token"), 201),
        (format!("{ISSUER}/oauth2/revoke"), 401),
    ] {
        let claims = json!({
            "iss": "acme", "sub": "acme", "aud": audience, "jti": Random::system().uuid_v4(),
            "exp": server.clock.now().seconds() + 60,
        });
        let reply = server
            .post("/oauth2/par")
            .fields(&parameters)
            .with("client_assertion_type", ASSERTION_TYPE)
            .with("client_assertion", &jwt::sign(&key, "JWT", &claims).unwrap())
            .await;
        assert_eq!(reply.status, status, "{audience}: {}", reply.text());
    }
}

/// The address of the sign-in page contains the request as well.
#[tokio::test]
async fn the_longest_request_that_can_be_pushed_fits_into_addresses() {
    let (_server, acme, alice) = scene().await;
    let state = "s".repeat(3900);
    let request = pushed_as(&acme, &acme.request().with("state", &state)).await;
    let callback = alice.browser().authorize(&request).await.through().await;
    assert_eq!(callback.get("state"), Some(state.as_str()));
}

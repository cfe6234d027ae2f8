//! JWT Secured Authorization Response Mode for OAuth 2.0 (JARM).

use idsvc::jose::alg::Algorithm;
use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use serde_json::{Value, json};

use crate::harness::reply::Callback;
use crate::harness::token::signed;
use crate::harness::{ISSUER, Jwt, RelyingParty, scene};

/// The one parameter of a signed response.
fn response(callback: &Callback) -> &str {
    assert_eq!(callback.names(), ["response"]);
    callback.get("response").unwrap()
}

/// The signed response, verified with the published keys.
async fn verified(party: &RelyingParty, callback: &Callback) -> Jwt {
    assert_eq!(callback.uri, party.redirect_uri());
    party.verify(response(callback)).await
}

fn names(claims: &Value) -> Vec<&str> {
    claims.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Sections 2.1 and 2.3: one parameter, with all others in it.
#[tokio::test]
async fn a_signed_response_has_the_parameters_for_one_client_and_a_short_time() {
    let (server, acme, alice) = scene().await;
    let now = server.clock.now().seconds();
    for mode in ["jwt", "query.jwt", "form_post.jwt"] {
        let request = acme.request().with("response_mode", mode);
        let screen = alice.browser().authorize(&request).await.sign_in().await;
        let callback = match mode {
            "form_post.jwt" => screen.posted_callback(),
            _ => screen.callback(),
        };
        let answer = verified(&acme, &callback).await;
        assert_eq!(
            (&answer.header["alg"], &answer.header["typ"]),
            (&json!("RS256"), &json!("JWT"))
        );
        let claims = &answer.claims;
        assert_eq!(names(claims), ["aud", "code", "exp", "iss", "state"]);
        assert_eq!((&claims["iss"], &claims["aud"]), (&json!(ISSUER), &json!("acme")));
        assert_eq!(claims["state"], "state of acme");
        let exp = claims["exp"].as_u64().unwrap();
        assert!((now + 60..=now + 600).contains(&exp), "{exp}");
        acme.redeem(claims["code"].as_str().unwrap()).await.tokens();
    }
}

#[tokio::test]
async fn any_state_comes_back_as_it_was_sent() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    for state in [
        "\"<&é> +%",
        "{\"iss\":\"https://evil.example\"}",
        "a.b.c",
        "\u{1f600}\\u0022",
        "0",
    ] {
        let request = acme.request().with("response_mode", "jwt").with("state", state);
        let callback = browser.authorize(&request).await.callback();
        assert_eq!(verified(&acme, &callback).await.claims["state"], state);
        let request = request.with("response_mode", "form_post.jwt");
        let callback = browser.authorize(&request).await.posted_callback();
        assert_eq!(verified(&acme, &callback).await.claims["state"], state);
    }
    let request = acme.request().with("response_mode", "jwt").without("state");
    let callback = browser.authorize(&request).await.callback();
    assert_eq!(
        names(&verified(&acme, &callback).await.claims),
        ["aud", "code", "exp", "iss"]
    );
}

/// Section 2.1: error responses are signed too.
#[tokio::test]
async fn refusals_are_signed_too() {
    let (_server, acme, alice) = scene().await;
    let request = acme.request().with("response_mode", "jwt");
    for (request, error) in [
        (request.clone().without("response_type"), "invalid_request"),
        (
            request.clone().with("response_type", "token"),
            "unsupported_response_type",
        ),
        (request.clone().with("prompt", "none"), "login_required"),
        (
            request.clone().with("request", "e30.e30."),
            "invalid_request_object",
        ),
    ] {
        let callback = alice.browser().authorize(&request).await.callback();
        let claims = verified(&acme, &callback).await.claims;
        assert_eq!(claims["error"], error);
        assert_eq!(
            names(&claims),
            ["aud", "error", "error_description", "exp", "iss", "state"]
        );
    }
    let asked = request.with("prompt", "consent");
    let consent = alice.browser().authorize(&asked).await.sign_in().await;
    let callback = consent.decide("deny").await.callback();
    assert_eq!(verified(&acme, &callback).await.claims["error"], "access_denied");
}

/// Section 3: `authorization_signed_response_alg`.
#[tokio::test]
async fn the_record_of_the_client_names_the_algorithm() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.tokens(&browser).await;
    let request = acme.request().with("response_mode", "jwt");
    for (registered, alg) in [(None, "RS256"), (Some(Algorithm::Es256), "ES256")] {
        server
            .change_client(&acme, |client| {
                client.authorization_signed_response_alg = registered;
            })
            .await;
        let callback = browser.authorize(&request).await.callback();
        assert_eq!(verified(&acme, &callback).await.header["alg"], alg);
    }
    // The client asks for a signed response each time (FAPI 2.0 Message Signing section 5.4).
    browser.authorize(&acme.request()).await.callback().code();
}

/// Sections 2.3.2 and 2.3.4: the fragment is not for the response type `code` here.
#[tokio::test]
async fn other_modes_are_refused() {
    let (_server, acme, alice) = scene().await;
    for mode in ["fragment.jwt", "fragment", "JWT", "jwt.query", "query.jwt "] {
        let request = acme.request().with("response_mode", mode);
        let refused = alice.browser().authorize(&request).await.callback();
        assert_eq!(
            refused.refusal(),
            "invalid_request: response_mode must be query, form_post, jwt, query.jwt or form_post.jwt"
        );
    }
}

/// RFC 9101 and RFC 9126: the mode of a signed or pushed request counts.
#[tokio::test]
async fn a_signed_and_pushed_request_gets_a_signed_response() {
    let (server, acme, alice) = scene().await;
    let key = SigningKey::generate_es256(&Random::system()).unwrap();
    let jwk = key.public().to_jwk();
    server
        .change_client(&acme, |client| client.jwks = vec![jwk])
        .await;
    let mut claims = json!({ "response_mode": "jwt" });
    for (name, value) in acme.request().parameters {
        claims[name] = value.into();
    }
    let object = signed(&key, &json!({ "alg": "ES256" }), &claims);
    let pushed = acme.post("/oauth2/par").with("request", &object).await.json();
    let by_value = acme.request().with("request", &object);
    let by_reference = acme
        .request()
        .with("request_uri", pushed["request_uri"].as_str().unwrap());
    for request in [by_value, by_reference] {
        let screen = alice.browser().authorize(&request).await.sign_in().await;
        let claims = verified(&acme, &screen.callback()).await.claims;
        acme.redeem(claims["code"].as_str().unwrap()).await.tokens();
    }
}

/// RFC 8725 section 3.12: a signed response is no token of another kind.
#[tokio::test]
async fn a_signed_response_passes_for_no_token() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let request = acme.request().with("response_mode", "jwt");
    let callback = browser.authorize(&request).await.callback();
    let answer = response(&callback);
    assert_eq!(acme.userinfo(answer).await.status, 401);
    assert_eq!(acme.introspect(answer).await.json(), json!({ "active": false }));
    let hinted = acme.request().with("prompt", "none");
    for (hint, is_read) in [(tokens.id_token(), true), (answer, false)] {
        let callback = browser
            .authorize(&hinted.clone().with("id_token_hint", hint))
            .await
            .callback();
        assert_eq!(callback.get("code").is_some(), is_read);
    }
}

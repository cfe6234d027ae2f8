//! RFC 9701: introspection responses that the service signed.

use idsvc::jose::alg::Algorithm;
use serde_json::{Value, json};

use crate::harness::wire::Call;
use crate::harness::{ISSUER, Jwt, RelyingParty, START, scene};

const MEDIA_TYPE: &str = "application/token-introspection+jwt";

/// A request for a signed response.
fn ask(party: &RelyingParty, token: &str) -> Call {
    party.introspect(token).header("accept", MEDIA_TYPE)
}

/// The signed response, verified with the published keys.
async fn signed(party: &RelyingParty, call: Call) -> Jwt {
    let reply = call.await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some(MEDIA_TYPE))
    );
    assert!(reply.is_not_stored());
    let answer = party.verify(reply.text()).await;
    assert_eq!(answer.header["typ"], "token-introspection+jwt");
    answer
}

/// Sections 4 and 5: the same as in JSON, for the client that asked.
#[tokio::test]
async fn a_client_that_accepts_a_signed_response_gets_one() {
    let (server, acme, alice) = scene().await;
    let api = server.client("api").await;
    let tokens = acme.tokens(&alice.browser()).await;
    for party in [&acme, &api] {
        for token in [tokens.access_token(), tokens.refresh_token(), "unknown"] {
            let plain: Value = party.introspect(token).await.json();
            let answer = signed(party, ask(party, token)).await;
            let expected = json!({
                "iss": ISSUER,
                "aud": party.client_id(),
                "iat": START.seconds(),
                "token_introspection": plain,
            });
            assert_eq!(answer.claims, expected);
        }
    }
    let told = signed(&api, ask(&api, tokens.access_token())).await.claims;
    assert_eq!(told["token_introspection"]["active"], true);
    let told = signed(&api, ask(&api, tokens.refresh_token())).await.claims;
    assert_eq!(told["token_introspection"], json!({ "active": false }));
}

/// Section 4, and RFC 9110 section 12.5.1: only a client that names the media type gets a JWT.
#[tokio::test]
async fn without_the_media_type_the_answer_is_json() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    for is_registered in [false, true] {
        let alg = is_registered.then_some(Algorithm::Es256);
        server
            .change_client(&acme, |client| client.introspection_signed_response_alg = alg)
            .await;
        for accept in [
            "*/*",
            "application/*",
            "application/json",
            "application/jwt",
            "token-introspection+jwt",
            "application/token-introspection+jwt;q=0",
            "application/token-introspection",
        ] {
            let reply = acme
                .introspect(tokens.access_token())
                .header("accept", accept)
                .await;
            assert_eq!(reply.json()["active"], true, "{accept}");
        }
        for accept in [
            "Application/Token-Introspection+JWT",
            "application/json;q=0.5, application/token-introspection+jwt;q=0.9",
        ] {
            let call = acme.introspect(tokens.access_token()).header("accept", accept);
            signed(&acme, call).await;
        }
    }
}

/// Section 6: `introspection_signed_response_alg`.
#[tokio::test]
async fn the_record_of_the_client_that_asks_names_the_algorithm() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    for (registered, alg) in [(None, "RS256"), (Some(Algorithm::Es256), "ES256")] {
        server
            .change_client(&acme, |client| {
                client.introspection_signed_response_alg = registered;
            })
            .await;
        let answer = signed(&acme, ask(&acme, tokens.access_token())).await;
        assert_eq!(answer.header["alg"], alg);
    }
}

/// Section 5: an error is JSON. Section 3: who asks has to authenticate.
#[tokio::test]
async fn a_refusal_is_json() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let app = server.public_client("app").await;
    assert_eq!(ask(&app, tokens.access_token()).await.error(), "invalid_client");
    let wrong = ask(&acme, tokens.access_token()).basic("acme", "wrong");
    assert_eq!(wrong.await.error(), "invalid_client");
    assert_eq!(ask(&acme, "").await.error(), "invalid_request");
}

/// Section 8.1: its `typ` and the missing `sub` and `exp` keep it from passing for an access token.
#[tokio::test]
async fn a_signed_introspection_response_passes_for_no_token() {
    let (_server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let reply = ask(&acme, tokens.access_token()).await;
    assert_eq!(acme.userinfo(reply.text()).await.status, 401);
    assert_eq!(
        acme.introspect(reply.text()).await.json(),
        json!({ "active": false })
    );
    let hinted = acme
        .request()
        .with("prompt", "none")
        .with("id_token_hint", reply.text());
    let refused = alice.browser().authorize(&hinted).await.callback();
    assert_eq!(refused.error(), "login_required");
}

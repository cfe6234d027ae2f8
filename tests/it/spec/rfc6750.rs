//! Bearer tokens, at the one resource that the service itself has.

use crate::harness::{Server, scene};

const UNKNOWN: &str = "401 Bearer realm=\"idsvc\", error=\"invalid_token\"";
const INVALID: &str = "400 Bearer realm=\"idsvc\", error=\"invalid_request\"";

/// Sections 2.1 and 2.2: in the header, whose scheme has no case, or in the body.
#[tokio::test]
async fn a_token_comes_in_the_header_or_in_the_body() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let token = tokens.access_token();
    let expected = acme.userinfo(token).await.json();
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let call = server
            .get("/oauth2/userinfo")
            .header("authorization", &format!("{scheme} {token}"));
        assert_eq!(call.await.json(), expected);
    }
    assert_eq!(
        server.post("/oauth2/userinfo").bearer(token).await.json(),
        expected
    );
    assert_eq!(
        server
            .post("/oauth2/userinfo")
            .with("access_token", token)
            .await
            .json(),
        expected
    );
}

/// Section 2.2: only a form can hold a token. What else a library sends along does not matter to one in the header.
#[tokio::test]
async fn beside_a_token_in_the_header_a_body_that_is_no_form_is_not_read() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let token = tokens.access_token();
    let expected = acme.userinfo(token).await.json();
    for (media_type, body) in [
        ("application/json", "{}".to_owned()),
        ("application/json", format!("{{\"access_token\":\"{token}\"}}")),
        ("text/plain", format!("access_token={token}")),
    ] {
        let post = || server.post("/oauth2/userinfo").body(media_type, body.clone());
        assert_eq!(post().bearer(token).await.json(), expected, "{media_type} {body}");
        assert_eq!(post().await.challenge(), INVALID);
    }
}

/// Section 2.3, RFC 9700 section 4.3.2: never in the address.
#[tokio::test]
async fn a_token_in_the_address_is_not_looked_at() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let path = format!("/oauth2/userinfo?access_token={}", tokens.access_token());
    for reply in [server.get(&path).await, server.post(&path).await] {
        assert_eq!(reply.challenge(), "401 Bearer realm=\"idsvc\"");
    }
}

/// Section 3.1: who has no token learns nothing but the scheme.
#[tokio::test]
async fn without_a_token_the_challenge_names_no_error() {
    let server = Server::start().await;
    let none = server.get("/oauth2/userinfo").await;
    assert_eq!(
        (none.challenge().as_str(), none.text()),
        ("401 Bearer realm=\"idsvc\"", "")
    );
    let basic = server.get("/oauth2/userinfo").basic("acme", "x").await;
    assert_eq!(basic.challenge(), none.challenge());
}

/// Section 3.1: `invalid_request` is 400.
#[tokio::test]
async fn a_token_in_two_places_is_an_invalid_request() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let token = tokens.access_token();
    let post = || server.post("/oauth2/userinfo");
    for call in [
        post().bearer(token).with("access_token", token),
        post().and("access_token", token).and("access_token", token),
        post().bearer("a b"),
        post().bearer(""),
        post().bearer(token).header("authorization", "Bearer x"),
    ] {
        let reply = call.await;
        assert_eq!(reply.challenge(), INVALID);
        assert_eq!(reply.json()["error"], "invalid_request");
    }
}

/// Section 3.1: `invalid_token` is 401, for every string that is no valid access token of this service.
#[tokio::test]
async fn whatever_is_no_access_token_is_an_invalid_token() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let mut unsigned = tokens.access();
    let stripped = tokens.access_token().rsplit_once('.').unwrap().0.to_owned() + ".";
    unsigned.header["alg"] = "none".into();
    let none = unsigned.forge(None);
    unsigned.header["alg"] = "HS256".into();
    let jwks = server.get("/oauth2/jwks").await;
    let hmac = unsigned.forge(Some(jwks.text().as_bytes()));
    for token in [
        "x",
        tokens.id_token(),
        tokens.refresh_token(),
        &stripped,
        &none,
        &hmac,
        &"a".repeat(10_000),
    ] {
        assert_eq!(acme.userinfo(token).await.challenge(), UNKNOWN);
    }
    server.advance(86_399);
    assert!(acme.is_welcome(&tokens).await);
    server.advance(1);
    let expired = acme.userinfo(tokens.access_token()).await;
    assert_eq!(expired.challenge(), UNKNOWN);
    assert_eq!(expired.json()["error"], "invalid_token");
}

/// Section 3.1: `insufficient_scope` is 403 and names the scope that is needed.
#[tokio::test]
async fn a_token_without_openid_has_insufficient_scope() {
    let (_server, acme, alice) = scene().await;
    let tokens = acme
        .tokens_for(
            &alice.browser(),
            &acme.request().with("scope", "notes.read email"),
        )
        .await;
    let reply = acme.userinfo(tokens.access_token()).await;
    assert_eq!(
        reply.challenge(),
        "403 Bearer realm=\"idsvc\", error=\"insufficient_scope\", scope=\"openid\""
    );
}

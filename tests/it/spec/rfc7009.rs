//! Token Revocation.

use idsvc::random::Random;
use idsvc::secret::{RefreshToken, Secret};
use uuid::Uuid;

use crate::harness::scene;

/// Section 2.1: a refresh token takes the access tokens of its grant along.
#[tokio::test]
async fn revoking_a_refresh_token_ends_the_grant() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let first = acme.tokens(&browser).await;
    let bystander = acme.tokens(&browser).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    let reply = acme
        .revoke(second.refresh_token())
        .with("token_type_hint", "refresh_token")
        .await;
    assert_eq!((reply.status, reply.text()), (200, "{}"));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.is_not_stored());
    assert!(!acme.is_welcome(&first).await && !acme.is_welcome(&second).await);
    assert_eq!(
        acme.refresh(second.refresh_token()).await.error(),
        "invalid_grant"
    );
    assert!(acme.is_welcome(&bystander).await);
}

/// Section 2.1: so does one that was replaced since, since it may be all that the client still has.
#[tokio::test]
async fn revoking_a_replaced_refresh_token_ends_the_grant_too() {
    let (_server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    assert_eq!(acme.revoke(first.refresh_token()).await.status, 200);
    assert!(!acme.is_welcome(&second).await);
}

/// Section 2.1: an access token ends alone.
#[tokio::test]
async fn revoking_an_access_token_ends_this_one() {
    let (_server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    assert_eq!(
        acme.revoke(first.access_token())
            .with("token_type_hint", "refresh_token")
            .await
            .status,
        200
    );
    assert!(!acme.is_welcome(&first).await);
    assert!(acme.is_welcome(&second).await);
    acme.refresh(second.refresh_token()).await.tokens();
}

/// Section 2.2: a token that is worth nothing is as good as revoked, and a strange hint is no fault.
#[tokio::test]
async fn an_unknown_token_is_answered_alike() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    for token in ["x", "idsvc_rt_x", tokens.id_token()] {
        let reply = acme.revoke(token).with("token_type_hint", "saml2").await;
        assert_eq!((reply.status, reply.text()), (200, "{}"));
    }
    assert!(acme.is_welcome(&tokens).await);
    for _ in 0..2 {
        assert_eq!(acme.revoke(tokens.access_token()).await.status, 200);
    }
    server.advance(90_000);
    assert_eq!(acme.revoke(tokens.access_token()).await.status, 200);
}

/// Section 2.2: the grant of an access token can be read in it, and naming the grant is not having its refresh token.
#[tokio::test]
async fn a_token_made_up_for_a_known_grant_revokes_nothing() {
    let (server, _acme, alice) = scene().await;
    let app = server.public_client("app").await;
    let tokens = app.tokens(&alice.browser()).await;
    let grant: Uuid = tokens.access().claims["grant_id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let (generation, lineage) = ([0; 4], [0; 16]);
    let locator = [&grant.as_bytes()[..], &generation, &lineage].concat();
    let invented = Secret::<RefreshToken>::generate(&locator, &Random::system());
    assert_eq!(app.revoke(invented.reveal()).await.status, 200);
    assert!(app.is_welcome(&tokens).await);
    app.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 2.1: a client revokes what is its own, and is told of what is not.
#[tokio::test]
async fn another_clients_token_is_refused_and_stays() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let tokens = acme.tokens(&alice.browser()).await;
    for token in [tokens.access_token(), tokens.refresh_token()] {
        assert_eq!(other.revoke(token).await.error(), "invalid_grant");
    }
    assert!(acme.is_welcome(&tokens).await);
    acme.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 2.1: the client authenticates as at the token endpoint; a public one names itself.
#[tokio::test]
async fn who_revokes_has_to_say_who_it_is() {
    let (server, acme, alice) = scene().await;
    let app = server.public_client("app").await;
    let tokens = acme.tokens(&alice.browser()).await;
    let anonymous = server
        .post("/oauth2/revoke")
        .with("token", tokens.refresh_token())
        .await;
    assert_eq!(anonymous.error(), "invalid_client");
    let wrong = acme.revoke(tokens.refresh_token()).basic("acme", "wrong").await;
    assert_eq!(wrong.error(), "invalid_client");
    assert!(wrong.header("www-authenticate").unwrap().starts_with("Basic "));
    assert_eq!(acme.revoke("").await.error(), "invalid_request");
    assert!(acme.is_welcome(&tokens).await);
    let own = app.tokens(&alice.browser()).await;
    assert_eq!(app.revoke(own.refresh_token()).await.status, 200);
    assert!(!app.is_welcome(&own).await);
}

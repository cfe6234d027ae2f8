//! Authorization Server Metadata.

use crate::harness::{Server, write_form};

/// Section 3: the same document under its own path.
#[tokio::test]
async fn both_well_known_documents_are_the_same() {
    let server = Server::start().await;
    let one = server.get("/.well-known/openid-configuration").await;
    let other = server.get("/.well-known/oauth-authorization-server").await;
    assert_eq!(
        (one.text(), one.header("etag")),
        (other.text(), other.header("etag"))
    );
}

/// Section 2: addresses are https ones below the issuer, and no member is empty.
#[tokio::test]
async fn every_address_lies_below_the_issuer_and_answers() {
    let server = Server::start().await;
    let document = server.get("/.well-known/oauth-authorization-server").await.json();
    let mut endpoints = 0;
    for (name, value) in document.as_object().unwrap() {
        assert!(
            !value.is_null() && value.as_array().is_none_or(|values| !values.is_empty()),
            "{name}"
        );
        if name.ends_with("_endpoint") || name == "jwks_uri" {
            let path = value
                .as_str()
                .unwrap()
                .strip_prefix("https://id.example.test/")
                .unwrap();
            assert_ne!(server.get(&format!("/{path}")).await.status, 404, "{name}");
            endpoints += 1;
        }
    }
    assert_eq!(endpoints, 9);
}

/// Section 3.1: an issuer with a path has its document between its host and its path, and all of it works.
#[tokio::test]
async fn an_issuer_may_have_a_path() {
    let issuer = "https://id.example.test/tenant/a";
    let server = Server::start_with(|policy| issuer.clone_into(&mut policy.issuer)).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let one = server
        .get("/.well-known/oauth-authorization-server/tenant/a")
        .await;
    let other = server.get("/tenant/a/.well-known/openid-configuration").await;
    assert_eq!(one.json(), other.json());
    assert_eq!(one.json()["issuer"], issuer);
    assert_eq!(one.json()["token_endpoint"], format!("{issuer}/oauth2/token"));
    for path in [
        "/.well-known/openid-configuration",
        "/oauth2/jwks",
        "/tenant/oauth2/jwks",
        "/tenant/ab/oauth2/jwks",
    ] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
    let query = write_form(&acme.request().parameters);
    let screen = alice
        .browser()
        .visit(&format!("/tenant/a/oauth2/authorize?{query}"))
        .await;
    assert_eq!(screen.page(), "/tenant/a/login");
    let callback = screen.sign_in().await.callback();
    assert_eq!(callback.get("iss"), Some(issuer));
    let tokens = server
        .post("/tenant/a/oauth2/token")
        .basic("acme", &acme.secret)
        .with("grant_type", "authorization_code")
        .with("code", &callback.code())
        .with("redirect_uri", acme.redirect_uri())
        .await
        .tokens();
    assert_eq!(
        (&tokens.id().claims["iss"], &tokens.0["iss"]),
        (&issuer.into(), &issuer.into())
    );
    assert_eq!(
        server
            .get("/tenant/a/oauth2/userinfo")
            .bearer(tokens.access_token())
            .await
            .status,
        200
    );
}

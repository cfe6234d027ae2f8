//! Token Introspection.

use idsvc::admin::key;
use idsvc::admin::key::RotateKey;
use idsvc::jose::alg::Algorithm;
use idsvc::oauth::Client;
use idsvc::oauth::access_token::AccessTokenTyp;
use idsvc::oauth::client::GrantType;
use serde_json::json;

use crate::harness::token::signed;
use crate::harness::{ISSUER, Jwt, RelyingParty, START, Server, scene};

async fn verdict(party: &RelyingParty, token: &str) -> serde_json::Value {
    let reply = party.introspect(token).await;
    assert_eq!(reply.status, 200);
    assert!(reply.is_not_stored());
    reply.json()
}

/// Section 2.2: what is said of an access token.
#[tokio::test]
async fn an_access_token_is_told_of() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let expected = json!({
        "active": true,
            "acr": "1",
            "auth_time": START.seconds(),
        "scope": "openid authenticated",
        "client_id": "acme",
        "username": "alice@example.com",
        "token_type": "bearer",
        "exp": START.seconds() + 86_400,
        "iat": START.seconds(),
        "sub": alice.sub(),
        "aud": ISSUER,
        "iss": ISSUER,
        "jti": tokens.0["jti"],
    });
    assert_eq!(verdict(&acme, tokens.access_token()).await, expected);
    let api = server.client("api").await;
    assert_eq!(verdict(&api, tokens.access_token()).await, expected);
    let hinted = acme
        .introspect(tokens.access_token())
        .with("token_type_hint", "refresh_token")
        .await;
    assert_eq!(hinted.json(), expected);
}

/// Section 2.2: what is said of a refresh token, and only to the client that has it.
#[tokio::test]
async fn a_refresh_token_is_told_of_to_its_client() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    assert_eq!(
        verdict(&acme, tokens.refresh_token()).await,
        json!({
            "active": true,
            "scope": "openid authenticated",
            "client_id": "acme",
            "username": "alice@example.com",
            "exp": START.seconds() + 90 * 86_400,
            "iat": START.seconds(),
            "sub": alice.sub(),
            "iss": ISSUER,
        })
    );
    let other = server.client("other").await;
    assert_eq!(
        verdict(&other, tokens.refresh_token()).await,
        json!({"active": false})
    );
    assert_eq!(verdict(&acme, tokens.refresh_token()).await["active"], true);
}

/// Section 2.2: for an inactive token, the answer does not say why.
#[tokio::test]
async fn an_inactive_token_is_only_said_to_be_so() {
    let inactive = json!({"active": false});
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let mut forged = tokens.access();
    forged.header["alg"] = "none".into();
    for token in [
        "x",
        "idsvc_rt_x",
        tokens.id_token(),
        &forged.forge(None),
        &"x".repeat(40_000),
    ] {
        assert_eq!(verdict(&acme, token).await, inactive);
    }
    let revoked = acme.tokens(&browser).await;
    acme.revoke(revoked.refresh_token()).await;
    for token in [revoked.access_token(), revoked.refresh_token()] {
        assert_eq!(verdict(&acme, token).await, inactive);
    }
    server.change_user(&alice, |user| user.enabled = false).await;
    for token in [tokens.access_token(), tokens.refresh_token()] {
        assert_eq!(verdict(&acme, token).await, inactive);
    }
    server.change_user(&alice, |user| user.enabled = true).await;
    assert_eq!(verdict(&acme, tokens.access_token()).await["active"], true);
    server.advance(86_400);
    assert_eq!(verdict(&acme, tokens.access_token()).await, inactive);
    assert_eq!(verdict(&acme, tokens.refresh_token()).await["active"], true);
    server.advance(90 * 86_400);
    assert_eq!(verdict(&acme, tokens.refresh_token()).await, inactive);
}

/// Section 2.2: `scope` is what the token is good for now, not what it was issued with.
#[tokio::test]
async fn a_token_is_good_for_no_more_than_its_client_may_still_have() {
    let (server, acme, alice) = scene().await;
    let reading = acme.request().with("scope", "openid notes.read");
    let tokens = acme.tokens_for(&alice.browser(), &reading).await;
    server
        .change_client(&acme, |client| client.scope = "openid".parse().unwrap())
        .await;
    for token in [tokens.access_token(), tokens.refresh_token()] {
        assert_eq!(verdict(&acme, token).await["scope"], "openid authenticated");
    }
}

/// Section 4: that a token was active a moment ago says nothing of one that differs from it, nor of its key.
#[tokio::test]
async fn a_token_that_was_active_is_judged_anew_each_time() {
    let (server, acme, alice) = scene().await;
    let eddsa = RotateKey {
        alg: Algorithm::EdDsa,
        at_once: true,
    };
    let key = server.admin().call(eddsa).await.unwrap();
    server
        .change_client(&acme, |client| client.access_token_alg = Some(Algorithm::EdDsa))
        .await;
    let browser = alice.browser();
    let (tokens, others) = (acme.tokens(&browser).await, acme.tokens(&browser).await);
    let parts = |token: &str| -> [String; 3] {
        let parts: Vec<_> = token.split('.').map(ToOwned::to_owned).collect();
        parts.try_into().unwrap()
    };
    let ([header, payload, signature], [_, payload_of_other, signature_of_other]) =
        (parts(tokens.access_token()), parts(others.access_token()));
    let forged = [
        [&header, &payload, &signature_of_other],
        [&header, &payload_of_other, &signature],
        [&parts(tokens.id_token())[0], &payload, &signature],
    ];
    for _ in 0..2 {
        assert_eq!(verdict(&acme, tokens.access_token()).await["active"], true);
        for parts in forged {
            let token = parts.map(String::as_str).join(".");
            assert_eq!(verdict(&acme, &token).await, json!({"active": false}));
        }
    }
    server
        .change_client(&acme, |client| client.access_token_alg = None)
        .await;
    for _ in ["signing", "retired, while its tokens are good"] {
        assert_eq!(verdict(&acme, tokens.access_token()).await["active"], true);
        server
            .admin()
            .call(key::RetireKey { kid: key.kid.clone() })
            .await
            .unwrap();
    }
    assert_eq!(
        verdict(&acme, tokens.access_token()).await,
        json!({"active": false})
    );
}

/// Section 2.2: active is what the token endpoint would take.
#[tokio::test]
async fn a_refresh_token_of_a_client_that_may_not_refresh_is_inactive() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    for may_refresh in [false, true] {
        let change = |client: &mut Client| {
            client.grant_types = [GrantType::AuthorizationCode].into();
            if may_refresh {
                client.grant_types.insert(GrantType::RefreshToken);
            }
        };
        server.change_client(&acme, change).await;
        let judged = verdict(&acme, tokens.refresh_token()).await;
        assert_eq!(judged["active"], may_refresh);
        let refreshed = acme.refresh(tokens.refresh_token()).await;
        assert_eq!(refreshed.status == 200, may_refresh);
    }
}

/// Tokens outlast the setting under which they were made.
#[tokio::test]
async fn an_access_token_is_one_under_either_type_and_an_id_token_under_none() {
    let [at_jwt, jwt] = AccessTokenTyp::ALL;
    for (configured, former) in [(at_jwt, jwt), (jwt, at_jwt)] {
        let server = Server::start_with(|policy| policy.access_token_typ = configured).await;
        let (typ, former) = (configured.as_str(), former.as_str());
        let acme = server.client("acme").await;
        let alice = server.user("alice").await;
        let tokens = acme.tokens(&alice.browser()).await;
        let catalog = server.app.core.catalog();
        let retyped = |mut token: Jwt, alg, typ: &str| {
            token.header["typ"] = typ.into();
            signed(
                catalog.keyring().signer(alg).unwrap(),
                &token.header,
                &token.claims,
            )
        };
        let old = retyped(tokens.access(), Algorithm::Es256, former);
        assert_eq!(verdict(&acme, &old).await["active"], true, "{typ}");
        assert_eq!(acme.userinfo(&old).await.status, 200, "{typ}");
        for typ in [typ, former] {
            let id = retyped(tokens.id(), Algorithm::Rs256, typ);
            assert_eq!(verdict(&acme, &id).await, json!({"active": false}), "{typ}");
            assert_eq!(acme.userinfo(&id).await.status, 401, "{typ}");
        }
        assert_eq!(acme.revoke(&old).await.status, 200);
        assert_eq!(verdict(&acme, &old).await, json!({"active": false}), "{typ}");
    }
}

/// Section 2.1: an API that asks needs no more than to prove who it is, and gets nothing else for it.
#[tokio::test]
async fn a_client_without_grants_asks_and_does_nothing_else() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let api = server
        .client_with("api", |client| {
            client.grant_types.clear();
            client.redirect_uris.clear();
        })
        .await;
    assert_eq!(verdict(&api, tokens.access_token()).await["active"], true);
    let inactive = json!({"active": false});
    assert_eq!(verdict(&api, tokens.refresh_token()).await, inactive);
    for token in [tokens.access_token(), tokens.refresh_token()] {
        assert_eq!(api.revoke(token).await.error(), "invalid_grant");
    }
    assert!(acme.is_welcome(&tokens).await);
    for grant in GrantType::ALL {
        let asked = api.post("/oauth2/token");
        let asked = asked.with("grant_type", &grant.value("service")).await;
        assert_eq!(asked.error(), "unauthorized_client", "{grant}");
    }
}

/// Section 2.1: only clients that prove who they are may ask, lest tokens are guessed.
#[tokio::test]
async fn who_asks_has_to_authenticate() {
    let (server, acme, alice) = scene().await;
    let app = server.public_client("app").await;
    let tokens = app.tokens(&alice.browser()).await;
    assert_eq!(
        app.introspect(tokens.access_token()).await.error(),
        "invalid_client"
    );
    let anonymous = server
        .post("/oauth2/introspect")
        .with("token", tokens.access_token())
        .await;
    assert_eq!(anonymous.error(), "invalid_client");
    let wrong = acme
        .introspect(tokens.access_token())
        .basic("acme", "wrong")
        .await;
    assert_eq!(wrong.error(), "invalid_client");
    assert_eq!(acme.introspect("").await.error(), "invalid_request");
}

//! The OAuth 2.0 Authorization Framework: a code is redeemed, and what the answer looks like.

use idsvc::jose::alg::Algorithm;
use idsvc::oauth::access_token::AccessTokenTyp;
use idsvc::oauth::client::GrantType;
use idsvc::oauth::code;
use idsvc::secret::{AuthorizationCode, Secret};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::relying_party::VERIFIER;
use crate::harness::reply::line_of;
use crate::harness::{ISSUER, START, Server, scene};

/// Section 3.3: a code brings nothing that the operator took from the client since it was made.
#[tokio::test]
async fn a_code_brings_no_scope_that_the_client_lost() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let request = acme.request().with("scope", "openid email notes.read");
    let code = browser.authorize(&request).await.through().await.code();
    server
        .change_client(&acme, |client| client.scope = "openid email".parse().unwrap())
        .await;
    let tokens = acme.redeem(&code).await.tokens();
    assert_eq!(tokens.scope(), ["openid", "email", "authenticated"]);
    let claims = acme.verify(tokens.access_token()).await.claims;
    assert_eq!(claims["scope"], "openid email authenticated");
}

/// Section 4.1: the whole way, and section 5.1: the answer, field by field.
#[tokio::test]
async fn a_code_brings_tokens_and_the_answer_says_for_whom() {
    let (server, acme, alice) = scene().await;
    server.advance(7);
    let code = acme.code(&alice.browser()).await;
    server.advance(5);
    let tokens = acme.redeem(&code).await.tokens();
    let mut answer = tokens.0.clone();
    let fields = answer.as_object_mut().unwrap();
    for name in ["access_token", "id_token"] {
        assert_eq!(
            fields.remove(name).unwrap().as_str().unwrap().split('.').count(),
            3
        );
    }
    assert_eq!(fields.remove("idtoken").unwrap(), tokens.id_token());
    assert!(
        fields
            .remove("refresh_token")
            .unwrap()
            .as_str()
            .unwrap()
            .starts_with("idsvc_rt_")
    );
    let jti = fields.remove("jti").unwrap();
    assert_eq!(
        jti.as_str()
            .unwrap()
            .parse::<uuid::Uuid>()
            .unwrap()
            .get_version_num(),
        4
    );
    assert_eq!(
        answer,
        json!({
            "token_type": "bearer",
            "expires_in": 86_400,
            "scope": "openid authenticated",
            "account_id": "alice@example.com",
            "user_type": "user",
            "venueId": null,
            "organization": "default",
            "amr": [{"authority": "credential"}],
            "iss": ISSUER,
            "iat": START.seconds() + 12,
            "phone_number": "+32470123456",
            "source": "LOCAL",
            "email": "alice@example.com",
            "email_verified": true,
            "uuid": alice.sub(),
        })
    );
}

/// Section 5.1, RFC 9068 section 2: the access token says what the answer says.
#[tokio::test]
async fn the_access_token_repeats_the_answer() {
    let (server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    server.advance(5);
    let tokens = acme.redeem(&code).await.tokens();
    let token = acme.verify(tokens.access_token()).await;
    let header = token.header.as_object().unwrap();
    assert_eq!(header.keys().collect::<Vec<_>>(), ["alg", "kid", "typ"]);
    assert_eq!(
        (&header["alg"], &header["typ"]),
        (&json!("ES256"), &json!("at+jwt"))
    );

    let mut claims = token.claims.clone();
    let claims = claims.as_object_mut().unwrap();
    let mut take = |name: &str| claims.remove(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(take("sub"), alice.sub());
    assert_eq!(take("aud"), ISSUER);
    assert_eq!(take("client_id"), "acme");
    assert_eq!(take("auth_time"), START.seconds());
    assert_eq!(take("acr"), "1");
    let lasts = take("exp").as_u64().unwrap() - tokens.0["iat"].as_u64().unwrap();
    assert_eq!(lasts, tokens.0["expires_in"].as_u64().unwrap());
    assert!(take("grant_id").as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    let mut answer = tokens.0.clone();
    let common = answer.as_object_mut().unwrap();
    for name in [
        "access_token",
        "id_token",
        "idtoken",
        "refresh_token",
        "token_type",
        "expires_in",
    ] {
        common.remove(name).unwrap();
    }
    assert_eq!(claims, common);
}

/// Section 5.1: what depends on the user.
#[tokio::test]
async fn the_answer_shows_the_users_record_as_it_is() {
    let server = Server::start().await;
    let acme = server.client("acme").await;
    let bob = server
        .user_with("bob", |user| {
            user.account_id = "bob".to_owned();
            user.email = None;
            user.phone_number = None;
            user.user_type = "kiosk".to_owned();
            user.venue_id = Some("venue-7".to_owned());
            user.organization = "north".to_owned();
            user.source = "IMPORT".to_owned();
        })
        .await;
    let tokens = acme.tokens(&bob.browser()).await;
    let shown = |json: &Value| {
        let names = [
            "account_id",
            "email",
            "email_verified",
            "phone_number",
            "user_type",
            "venueId",
            "organization",
            "source",
        ];
        names.map(|name| json[name].clone())
    };
    let expected = json!(["bob", "", false, null, "kiosk", "venue-7", "north", "IMPORT"]);
    assert_eq!(json!(shown(&tokens.0)), expected);
    assert_eq!(json!(shown(&tokens.access().claims)), expected);
}

/// Section 5.1: what depends on the client and the operator.
#[tokio::test]
async fn the_answer_follows_the_clients_record_and_the_settings() {
    let server = Server::start_with(|policy| {
        policy.id_token_alias = false;
        policy.access_token_typ = AccessTokenTyp::Jwt;
        policy.lifetimes.access_token = std::time::Duration::from_mins(5);
    })
    .await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| {
            client.audience = Some("https://api.example".to_owned());
            client.access_token_alg = Some(Algorithm::Rs256);
            client.id_token_signed_response_alg = Some(Algorithm::Es256);
            client.grant_types = [GrantType::AuthorizationCode].into();
        })
        .await;
    let tokens = acme.tokens(&alice.browser()).await;
    assert_eq!(tokens.0.get("idtoken"), None);
    assert_eq!(tokens.0.get("refresh_token"), None);
    assert_eq!(tokens.0["expires_in"], 300);
    let token = acme.verify(tokens.access_token()).await;
    assert_eq!(
        (&token.header["alg"], &token.header["typ"]),
        (&json!("RS256"), &json!("JWT"))
    );
    assert_eq!(token.claims["aud"], "https://api.example");
    assert_eq!(token.claims["exp"], START.seconds() + 300);
    assert_eq!(acme.verify(tokens.id_token()).await.header["alg"], "ES256");
    assert!(acme.is_welcome(&tokens).await);
    server.advance(299);
    assert!(acme.is_welcome(&tokens).await);
    server.advance(1);
    assert!(!acme.is_welcome(&tokens).await);
}

/// Section 5.1: a request without `openid` is no OpenID Connect request.
#[tokio::test]
async fn without_openid_there_is_no_id_token() {
    let (_server, acme, alice) = scene().await;
    let tokens = acme
        .tokens_for(&alice.browser(), &acme.request().with("scope", "notes.read"))
        .await;
    assert_eq!((tokens.0.get("id_token"), tokens.0.get("idtoken")), (None, None));
    assert_eq!(tokens.0["scope"], "notes.read authenticated");
}

/// Section 4.1.2: a code is good for a minute.
#[tokio::test]
async fn a_code_expires_after_sixty_seconds() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let code = acme.code(&browser).await;
    server.advance(59);
    acme.redeem(&code).await.tokens();
    let code = acme.code(&browser).await;
    server.advance(60);
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
}

/// Sections 4.1.2 and 10.5: a code is good once, and using it again takes back what it brought.
#[tokio::test]
async fn a_code_used_twice_revokes_what_it_brought() {
    for pause in [1, 30, 3_600] {
        let (server, acme, alice) = scene().await;
        let code = acme.code(&alice.browser()).await;
        let tokens = acme.redeem(&code).await.tokens();
        let refreshed = acme.refresh(tokens.refresh_token()).await.tokens();
        assert!(acme.is_welcome(&tokens).await && acme.is_welcome(&refreshed).await);
        server.advance(pause);
        assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
        assert!(!acme.is_welcome(&tokens).await && !acme.is_welcome(&refreshed).await);
        assert_eq!(
            acme.refresh(refreshed.refresh_token()).await.error(),
            "invalid_grant"
        );
    }
}

/// OAuth 2.1 section 4.1.3: who has a used code and not what belongs to it takes nothing back.
#[tokio::test]
async fn a_used_code_alone_revokes_nothing() {
    let (server, acme, alice) = scene().await;
    let app = server.public_client("app").await;
    for party in [&app, &acme] {
        let browser = alice.browser();
        let request = party.request().with_challenge();
        let code = browser.authorize(&request).await.through().await.code();
        let redeem = || party.redeem(&code).with("code_verifier", VERIFIER);
        let tokens = redeem().await.tokens();
        server.advance(100);
        let wrong = VERIFIER.to_lowercase();
        for replay in [
            redeem().without("code_verifier"),
            redeem().with("code_verifier", &wrong),
            redeem().without("redirect_uri"),
            redeem().with("redirect_uri", "https://app.example/other"),
        ] {
            assert_eq!(replay.await.error(), "invalid_grant");
        }
        let refreshed = party.refresh(tokens.refresh_token()).await.tokens();
        assert!(party.is_welcome(&refreshed).await);
        assert_eq!(redeem().await.error(), "invalid_grant");
        let gone = party.refresh(refreshed.refresh_token()).await;
        assert_eq!(gone.error(), "invalid_grant");
    }
}

/// Section 10.5: of many who come at the same moment one gets tokens, and the others make them worthless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_redeemed_by_many_at_once_is_redeemed_once() {
    let (_server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    let mut redemptions = JoinSet::new();
    for _ in 0..32 {
        redemptions.spawn(acme.redeem(&code).into_future());
    }
    let (granted, refused): (Vec<_>, Vec<_>) = redemptions
        .join_all()
        .await
        .into_iter()
        .partition(|reply| reply.status == 200);
    assert_eq!((granted.len(), refused.len()), (1, 31));
    assert!(refused.iter().all(|reply| reply.error() == "invalid_grant"));
    let tokens = granted[0].tokens();
    assert!(!acme.is_welcome(&tokens).await);
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
}

/// Section 4.1.3: a code is bound to its client, and another client can neither use nor spoil it.
#[tokio::test]
async fn another_clients_code_is_refused_and_stays_good() {
    let (server, acme, alice) = scene().await;
    let other = server
        .client_with("other", |client| {
            client.redirect_uris = vec!["https://acme.example/cb".to_owned()];
        })
        .await;
    let code = acme.code(&alice.browser()).await;
    assert_eq!(other.redeem(&code).await.error(), "invalid_grant");
    let tokens = acme.redeem(&code).await.tokens();
    assert_eq!(other.redeem(&code).await.error(), "invalid_grant");
    assert!(acme.is_welcome(&tokens).await);
}

/// Section 4.1.3: the redirect URI of the request is named again.
#[tokio::test]
async fn the_redirect_uri_has_to_be_that_of_the_request() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let code = acme.code(&browser).await;
    assert_eq!(
        acme.redeem(&code).without("redirect_uri").await.error(),
        "invalid_grant"
    );
    assert_eq!(
        acme.redeem(&code)
            .with("redirect_uri", "https://acme.example/cb/")
            .await
            .error(),
        "invalid_grant"
    );
    acme.redeem(&code).await.tokens();

    let request = acme.request().without("redirect_uri");
    let code = browser.authorize(&request).await.callback().code();
    acme.redeem(&code).without("redirect_uri").await.tokens();
    let code = browser.authorize(&request).await.callback().code();
    acme.redeem(&code).await.tokens();
}

/// Section 5.2: a code that nobody issued.
#[tokio::test]
async fn an_invented_code_is_an_invalid_grant() {
    let (_server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    let mut changed = code.clone();
    changed.replace_range(50..51, if &code[50..51] == "A" { "B" } else { "A" });
    let known = Secret::<AuthorizationCode>::parse(&code).unwrap();
    let forged = Secret::<AuthorizationCode>::assemble(known.locator(), &[7; 32]);
    let unknown = line_of(&code::UNKNOWN);
    for invented in [
        forged.reveal(),
        "x",
        "idsvc_ac_",
        &code[..code.len() - 1],
        &changed,
        &format!("{code}A"),
        "\u{e9}\"\\",
    ] {
        assert_eq!(acme.redeem(invented).await.refusal(), unknown, "{invented}");
    }
    assert_eq!(acme.redeem("").await.error(), "invalid_request");
    acme.redeem(&code).await.tokens();
}

/// Section 4.1.4: what has happened since the code was issued counts.
#[tokio::test]
async fn a_user_or_client_disabled_meanwhile_gets_no_tokens() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let code = acme.code(&browser).await;
    server.change_user(&alice, |user| user.enabled = false).await;
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
    server.change_user(&alice, |user| user.enabled = true).await;
    let code = acme.code(&browser).await;
    server.change_client(&acme, |client| client.enabled = false).await;
    assert_eq!(acme.redeem(&code).await.error(), "invalid_client");
}

/// Section 4.1.4: the code of a user who has signed out is refused.
#[tokio::test]
async fn a_code_from_an_ended_session_brings_nothing() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let code = acme.code(&browser).await;
    browser.visit("/oauth2/logout").await.decide("logout").await;
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
}
